"""``agymc bench``."""

from __future__ import annotations

import json

SHORT = ("-n", "3", "--rounds", "2", "--seconds", "0.02")


def test_some_contenders(command, tmp_path):
    names = ["loop", "serial", "thread, batches", "process, caller steps", "auto", "gym-sync"]
    wanted = [part for name in names for part in ("--contender", name)]
    files = ("--json", tmp_path / "out.json", "--plot", tmp_path / "out.png")
    run = command("bench", "strange:Plain", *SHORT, *wanted, *files)
    assert run.code == 0, run.err
    assert "Plain: 3 x strange:Plain" in run.out
    assert run.row("loop")[1] == "1.00"
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["machine"]["versions"]["gymnasium"] in run.out.replace("\n", " ")
    (work,) = document["works"]
    assert [result["contender"] for result in work["results"]] == names
    for result in work["results"]:
        assert len(result["sps"]) == len(result["cpu"]) == 2
        assert min(result["sps"]) > 0 and result["memory"] > 0 and result["start_up"] > 0
        assert not result["error"]
    assert {result["engine"] for result in work["results"]} >= {"serial", "thread", "process"}


def test_rendering_is_measured_too(command):
    run = command("bench", "strange:Counts", *SHORT, "--render", "-c", "loop", "-c", "serial")
    assert run.code == 0, run.err
    assert len(run.row("serial")) == 6


def test_who_cannot_take_part_says_why(command):
    run = command("bench", "strange:BrokenInAProcess", *SHORT, "-c", "serial", "-c", "process")
    assert run.code == 0, run.err
    assert run.row("process") == ["-"]
    assert "process: EnvError: env 0 raised ValueError in step: " in run.out
    assert len(run.row("serial")) == 6
    run = command("bench", "strange:Dies", *SHORT, "-c", "loop")
    assert run.code == 1
    assert "loop: it ended with exit code 7" in run.out
    run = command("bench", "strange:Unmakeable", *SHORT, "-c", "loop")
    assert run.code == 1
    assert "loop: RuntimeError: no licence" in run.out


def test_what_there_is_not(command, tmp_path):
    run = command("bench", "Cartpole-v1", *SHORT)
    assert run.code == 2
    assert "Error: no environment is registered as 'Cartpole-v1'" in run.err
    run = command("bench", "CartPole-v1", *SHORT, "-c", "gym-asink")
    assert run.code == 2
    assert "expected contenders out of loop; serial; thread; " in " ".join(run.err.split())
    assert "got gym-asink" in run.err
    run = command(
        "bench", "CartPole-v1", *SHORT, "-c", "loop", "--json", tmp_path / "no" / "out.json"
    )
    assert run.code == 2
    assert "No such file or directory" in run.err


def test_ctrl_c(command):
    run = command.interrupt("bench", "strange:Hangs", *SHORT, "-c", "process", "-c", "loop")
    assert run.code == 130
    assert "Traceback" not in run.err
