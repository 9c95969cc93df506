"""What goes wrong is said in words, with the exit code that it has."""

from __future__ import annotations

import re

import pytest

import agymc


def test_version(command):
    result = command("--version")
    assert (result.code, result.out, result.err) == (0, f"agymc {agymc.__version__}\n", "")


def test_help(run):
    result = run("--help")
    assert result.code == 0
    for words in ("--num-envs", "[default: 16]", "MODULE:FUNCTION", "(k, ...)", "Exit codes: 0;"):
        assert words in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["CartPol-v1"], "no environment is registered as 'CartPol-v1': "),
        (["CartPole-v1", "--engine", "magic"], "expected an engine out of 'auto', 'serial', "),
        (["CartPole-v1", "--num-workers", "2", "--engine", "serial"], "has no num_workers"),
        (["CartPole-v1", "-n", "0"], "Invalid value for '--num-envs'"),
        (["CartPole-v1", "-e", "many"], "Invalid value for '--episodes'"),
        (["CartPole-v1", "--seed", "-1"], "Invalid value for '--seed'"),
        (["CartPole-v1", "--no-such-option"], "No such option: --no-such-option"),
        (["CartPole-v1", "--policy", "strange"], "expected --policy module:function, got 'strange"),
        (["CartPole-v1", "--policy", "nowhere:x"], "there is no module 'nowhere' for --policy"),
        (["CartPole-v1", "--policy", "strange:lef"], "has no 'lef'; did you mean 'left'?"),
        (["CartPole-v1", "--policy", "strange:number"], "(observations) -> actions, got 3"),
        (["CartPole-v1", "--record", "x.jpg"], "--record x.jpg: expected a file name that ends"),
        (["CartPole-v1", "--record", "no/x.png"], "--record no/x.png: expected a directory"),
        (["strange:Unrenderable-v0", "--render"], "strange:Unrenderable-v0 does not"),
        (["strange:Invisible-v0", "--render"], "env 0 gave NoneType"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_error(run, arguments, words):
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    (line,) = (line for line in result.err.splitlines() if line.startswith("Error: "))
    assert words in line
    assert "Traceback" not in result.err


def test_policy_whose_module_fails(command, tmp_path):
    (tmp_path / "bad_policy.py").write_text("import no_such_package\n")
    command.env["PYTHONPATH"] += f":{tmp_path}"
    result = command("run", "CartPole-v1", "--policy", "bad_policy:x")
    assert result.code == 2
    assert "Error: --policy can't import 'bad_policy': No module named 'no_such_package'" in (
        result.err
    )
    assert 'bad_policy.py", line 1, in <module>' in result.err


def test_env_error_shows_the_table_and_the_traceback_of_the_env(run):
    result = run("strange:Broken-v0", "-n", 4, "-e", 5, "--seed", 10)
    assert result.code == 1
    assert "Ended by an error. This is what was played until then:" in result.out
    assert result.row("episodes") == ["8"]
    first, _, *trace = result.err.splitlines()
    found = re.match(
        r"Error: env (\d) raised ValueError in step: boom \[bold\]now\[/bold\] "
        r"\(engine 'process', seed (\d+)\)",
        first,
    )
    assert found is not None, first
    assert int(found[2]) == 10 + int(found[1])
    assert "see `others`" not in first  # that would be for a program
    assert trace[0] == "Traceback (most recent call last):"
    files = [line for line in trace if line.startswith("  File")]
    assert [line.rpartition(" in ")[2] for line in files] == ["step", "explode"]
    assert all("strange.py" in line for line in files)
    assert trace[-1] == "ValueError: boom [bold]now[/bold]"


def test_env_error_in_the_caller_is_shown_alike(run):
    result = run("strange:Broken-v0", "-n", 1, "-e", 5, "--seed", 10, "--engine", "serial")
    assert result.code == 1
    files = [line for line in result.err.splitlines() if line.startswith("  File")]
    assert [line.rpartition(" in ")[2] for line in files] == ["step", "explode"]


def test_env_that_cannot_be_made(run):
    result = run("strange:Unmakeable-v0", "-n", 1)
    assert (result.code, result.out) == (1, "")
    assert "Error: env 0 raised RuntimeError in construction: no licence" in result.err
    assert "in __init__" in result.err


def test_dead_worker(run):
    result = run("strange:Dies-v0", "-n", 1, "-e", 1, "--engine", "process")
    assert (result.code, result.out) == (1, "")
    assert "Error: the worker process of env 0 died (exit code 7) in step" in result.err
    assert "Traceback" not in result.err


def test_env_error_in_the_plain_loop(run):
    arguments = ["-n", 1, "-e", 1, "--seed", 3, "--compare", "--engine", "process"]
    result = run("strange:BrokenInPlainLoop-v0", *arguments)
    assert result.code == 1
    assert result.row("episodes") == ["1", "0"]
    words = "Error: env 0 raised ValueError in step of the plain loop: only here (seed 3)"
    assert words in result.err
    assert "strange.py" in result.err


def test_policy_error(run):
    result = run("CartPole-v1", "-n", 2, "--engine", "serial", "--policy", "strange:fails")
    assert (result.code, result.out) == (1, "")
    assert "Error: the policy strange:fails raised KeyError: 'what'" in result.err
    assert 'strange.py", line' in result.err


def test_policy_with_the_wrong_number_of_actions(run):
    result = run("CartPole-v1", "-n", 3, "--engine", "serial", "--policy", "strange:too_few")
    assert (result.code, result.out) == (1, "")
    assert "Error: the policy did not return 3 actions: expected 3 actions" in result.err


BLOCK = "import sys; sys.modules[{!r}] = None; from agymc.cli import main; sys.exit(main())"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_missing_cli_extra(command, package):
    result = command("run", "CartPole-v1", program=("-c", BLOCK.format(package)))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("the command agymc needs the package ")
    assert result.err.endswith("which is not installed: pip install 'agymc[cli]'\n")


@pytest.mark.parametrize(("module", "suffix"), [("PIL", ".png"), ("imageio_ffmpeg", ".mp4")])
def test_missing_render_extra(command, tmp_path, module, suffix):
    arguments = ["run", "CartPole-v1", "--record", tmp_path / f"x{suffix}"]
    result = command(*arguments, program=("-c", BLOCK.format(module)))
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("pip install 'agymc[render]'\n")


def test_missing_package_of_an_env(command):
    arguments = ["run", "LunarLander-v3", "--engine", "serial"]
    result = command(*arguments, program=("-c", BLOCK.format("Box2D")))
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("pip install 'agymc[box2d]'\n")
