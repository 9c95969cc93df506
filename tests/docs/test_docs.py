"""What the documentation shows is true: its code runs, and prints what it says that it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agymc
from agymc import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"] + [
    f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))
]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"print\(.*\)  # (.+)$")


def _blocks(text: str) -> tuple[str, list[str]]:
    """The Python code of a page, and the lines that it must print, in order.

    These are the comments behind ``print(...)``, and blocks without a language that follow
    directly on a block of Python.
    """
    code: list[str] = []
    printed: list[str] = []
    end_of_python = None
    for fence in _FENCE.finditer(text):
        language, body = fence.groups()
        if language == "python":
            code.append(body)
            found = map(_PRINTED.search, body.splitlines())
            printed += [match[1] for match in found if match is not None]
        elif (
            language == ""
            and end_of_python is not None
            and not text[end_of_python : fence.start()].strip()
        ):
            printed += body.splitlines()
        end_of_python = fence.end() if language == "python" else None
    return "\n".join(code), printed


def _run(*arguments: str | Path, cwd: Path) -> str:
    """What a Python process prints; it must end well."""
    this = {"PYTHONPATH": str(Path(agymc.__file__).parents[1])}  # the agymc that is tested
    dummies = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **this, **dummies},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


WITH_CODE = [page for page in PAGES if _blocks((ROOT / page).read_text())[0]]


@pytest.mark.parametrize("page", WITH_CODE)
def test_code_runs_and_prints_what_it_says(page: str, tmp_path: Path) -> None:
    code, printed = _blocks((ROOT / page).read_text())
    (tmp_path / "page.py").write_text(code)
    lines = iter(_run("page.py", cwd=tmp_path).splitlines())
    for expected in printed:
        assert expected in lines, f"{expected!r} was not printed, or not in this order"


EXAMPLES = {
    "classic_gym.py": ["--num-envs", "6", "--rounds", "2"],
    "custom_env_in_a_script.py": [],
    "partial_batches.py": ["--num-envs", "8", "--steps", "20"],
    "record_mosaic.py": ["--num-envs", "4", "--steps", "5", "--path", "mosaic.gif"],
    "vector_api.py": ["--num-envs", "8", "--steps", "100"],
}


# These need servers and engines, and are run in tests/asyncio.
ELSEWHERE = {"chess_stockfish.py", "http_env.py", "openenv_echo.py"}


@pytest.mark.parametrize(
    "name", sorted({path.name for path in (ROOT / "examples").glob("*.py")} - ELSEWHERE)
)
def test_example_runs(name: str, tmp_path: Path) -> None:
    assert _run(ROOT / "examples" / name, *EXAMPLES[name], cwd=tmp_path)


def test_benchmark_runs(tmp_path: Path) -> None:
    flags = "--work images --rounds 2 --seconds 0.01 --json out.json --plot out.png"
    names = ["--contender", "loop", "gym-sync", "serial"]
    script = ROOT / "benchmarks" / "panel.py"
    assert "32 x works:Images" in _run(script, *flags.split(), *names, cwd=tmp_path)
    (work,) = json.loads((tmp_path / "out.json").read_text())["works"]
    assert [result["contender"] for result in work["results"]] == names[1:]
    assert all(len(result["sps"]) == 2 for result in work["results"])
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{target} of {page} does not exist"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in anchors, f"{target} of {page} names no heading"


def test_tree_of_errors_is_that_of_the_code() -> None:
    tree = [line.strip() for line in (errors.__doc__ or "").splitlines() if "── " in line]
    page = (ROOT / "docs/semantics.md").read_text()
    shown = [line.strip() for line in page.splitlines() if "── " in line]
    assert shown == [line.replace("`", "") for line in tree]


def test_engines_are_all_described() -> None:
    page = (ROOT / "docs/engines.md").read_text()
    assert re.findall(r"^\| `([a-z+]+)` \|", page, re.MULTILINE)[: len(agymc.ENGINES)] == list(
        agymc.ENGINES
    )
