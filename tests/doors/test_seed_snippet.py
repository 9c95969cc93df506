"""The example that agymc began with runs as it stands, and so does a program in its spirit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "shared" / "seed" / "agymc.txt"  # the first page, where it is kept

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
OUT_OF_DATE = "The environment CartPole-v0 is out of date"


@pytest.fixture(params=["as it stood", "in its spirit"])
def snippet(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with the program."""
    if request.param == "in its spirit":
        return HERE / "snippet.py"
    if not PAGE.exists():
        pytest.skip("the first page is not part of this repository")
    found = re.search(r"^import argparse$.*?^    envs\.close\(\)$", PAGE.read_text(), re.M | re.S)
    assert found is not None
    file = tmp_path / "snippet.py"
    file.write_text(found[0] + "\n")
    return file


def run(snippet: Path, *flags: str, **environment: str) -> str:
    """Run it to its end; what it wrote to stderr, without the warning about the old id.

    Nothing may be left of it, which is why it has a session of its own, known by its number.
    """
    kept = {name: value for name, value in os.environ.items() if name not in DISPLAYS}
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, str(snippet), *flags],
        env={**kept, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=55)
    finally:
        process.kill()
    left = [p for p in psutil.process_iter() if _session_of(p.pid) == process.pid]
    assert not left, f"processes left: {left}"
    assert output == ""
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert errors.count(OUT_OF_DATE) == 1
    lines = errors.splitlines()
    first = next(i for i, line in enumerate(lines) if OUT_OF_DATE in line)
    del lines[first : first + 2]  # and the line of code that Python shows with a warning
    return "\n".join(lines)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # it has ended since
        return None


def test_200_envs(snippet):
    assert run(snippet, "--num-envs", "200", "--episodes", "2") == ""


def test_verbose(snippet):
    errors = run(snippet, "--num-envs", "3", "--episodes", "2", "--verbose")
    assert "2/2" in errors  # tqdm's bar


def test_render_without_a_display(snippet):
    errors = run(snippet, "--num-envs", "3", "--episodes", "2", "--render")
    assert errors.count("UserWarning") == 1
    assert "render('human') shows nothing: there is no display" in errors
    assert len(errors.splitlines()) == 2  # the warning, and the line of code


def test_render(snippet):
    assert (
        run(snippet, "--num-envs", "4", "--episodes", "1", "--render", SDL_VIDEODRIVER="dummy")
        == ""
    )
