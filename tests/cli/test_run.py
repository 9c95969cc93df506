"""What `agymc run` plays, and what it says of it."""

from __future__ import annotations

import json
import os
import pty
import re

import gymnasium
import numpy as np
import pytest
from PIL import Image
from tests.cli.conftest import read_film

import agymc

ENGINES = ["serial", "thread", "process", "process+thread"]


def test_table(run):
    result = run("CartPole-v1", "-n", 4, "-e", 3, "--seed", 1, "--num-workers", 2)
    assert result.code == 0
    assert result.err == ""
    assert "CartPole-v1 x 4, 3 episodes each  policy random, seed 1" in result.out
    assert "\x1b" not in result.out
    mean, median, least, most = map(float, result.row("length"))
    assert least <= median <= most and least <= mean <= most
    assert [float(cell) for cell in result.row("return")][2:] == [least, most]
    assert result.row("engine") == ["process, 2 workers"]
    assert result.row("envs") == ["4"]
    assert result.row("episodes") == ["12"]
    assert float(result.row("steps")[0]) == pytest.approx(12 * mean, abs=1)
    for name in ("seconds to make the envs", "seconds to play", "CPU seconds, this process"):
        assert float(result.row(name)[0]) >= 0
    assert float(result.row("CPU seconds, workers")[0]) > 0
    assert result.row("steps per second (SPS)")


def by_hand(seed: int, num_envs: int, episodes: int) -> dict[str, float]:
    """CartPole, always pushed to the left, without agymc."""
    lengths = []
    for index in range(num_envs):
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=seed + index)
        for _ in range(episodes):
            length, over = 0, False
            while not over:
                _, _, terminated, truncated, _ = env.step(0)
                length, over = length + 1, terminated or truncated
            lengths.append(length)
            env.reset()
    return {
        "mean": float(np.mean(lengths)),
        "median": float(np.median(lengths)),
        "min": min(lengths),
        "max": max(lengths),
    }


def test_document(run):
    arguments = ["CartPole-v1", "-n", 5, "-e", 4, "--seed", 7, "--engine", "serial"]
    document = run(*arguments, "--policy", "strange:left", "--json").document()
    part = document.pop("concurrent")
    assert document == {
        "agymc": agymc.__version__,
        "gymnasium": gymnasium.__version__,
        "env_id": "CartPole-v1",
        "num_envs": 5,
        "episodes_per_env": 4,
        "seed": 7,
        "policy": "strange:left",
        "render": False,
        "interrupted": False,
        "error": None,
        "recorded": None,
        "plain_loop": None,
        "sps_ratio": None,
        "same_episodes": None,
    }
    expected = by_hand(7, 5, 4)
    assert part["length"] == part["return"] == expected
    assert part["steps"] == 20 * expected["mean"]
    assert part["sps"] == pytest.approx(part["steps"] / part["seconds_playing"])
    assert (part["engine"], part["num_workers"], part["num_envs"]) == ("serial", None, 5)
    assert (part["episodes"], part["notes"]) == (20, [])


def results(document):
    return {key: document["concurrent"][key] for key in ("return", "length", "steps")}


def test_same_seed_same_episodes_on_every_engine(run):
    arguments = ["strange:Composite-v0", "-n", 5, "-e", 3, "--json", "--seed"]
    expected = results(run(*arguments, 3, "--engine", "serial").document())
    for engine in ENGINES[1:]:
        assert results(run(*arguments, 3, "--engine", engine).document()) == expected, engine
    partial = run(*arguments, 3, "--min-ready", 2)
    assert results(partial.document()) == expected
    assert results(run(*arguments, 4, "--engine", "serial").document()) != expected


def test_seed_of_an_unseeded_run_repeats_it(run):
    arguments = ["CartPole-v1", "-n", 3, "-e", 2, "--engine", "serial", "--json"]
    first, second = run(*arguments).document(), run(*arguments).document()
    assert first["seed"] != second["seed"]
    assert results(run(*arguments, "--seed", first["seed"]).document()) == results(first)


def test_continuous_actions(run):
    arguments = ["Pendulum-v1", "-n", 2, "-e", 1, "--seed", 0, "--engine", "serial", "--compare"]
    document = run(*arguments, "--json").document()
    assert document["concurrent"]["length"]["min"] == 200
    assert document["same_episodes"] == 2


@pytest.mark.parametrize(
    ("env_id", "policy"),
    [
        ("CartPole-v1", "strange:wise"),
        ("CartPole-v1", "strange:Object"),
        ("CartPole-v1", "strange:Object.right"),
        ("strange:Composite-v0", "strange:composite"),
    ],
)
def test_policy(run, env_id, policy):
    arguments = ["--policy", policy, "-n", 3, "-e", 1, "--seed", 0, "--compare", "--json"]
    document = run(env_id, *arguments).document()
    assert document["policy"] == policy
    assert document["same_episodes"] == 3
    if policy == "strange:wise":
        assert document["concurrent"]["return"]["mean"] > 100


def test_modules_of_the_current_directory_are_found_by_the_script_too(run):
    script = ("-P", "-c", "import sys; from agymc.cli import main; sys.exit(main())")
    arguments = ["strange:Plain-v0", "-n", 2, "-e", 1, "--policy", "strange:Object"]
    result = run(*arguments, program=script)
    assert (result.code, result.err) == (0, "")
    assert result.row("length") == ["20.0", "20.0", "20", "20"]


# ---------------------------------------------------------------------- compare


def test_compare_plays_the_same(run):
    result = run("CartPole-v1", "-n", 4, "-e", 3, "--compare", "--engine", "serial")
    assert result.code == 0
    assert result.row("engine") == ["serial", "none"]
    assert result.row("episodes") == ["12", "12"]
    assert len(set(result.row("steps"))) == 1
    assert "The plain loop played all 12 episodes. Its episodes had the same returns" in result.out
    ours, plain = (float(cell.replace(",", "")) for cell in result.row("steps per second (SPS)"))
    (ratio,) = (line.split()[2] for line in result.out.splitlines() if line.startswith("agymc ma"))
    assert float(ratio) == pytest.approx(ours / plain, rel=0.05)


def test_compare_names_the_share_that_there_was_time_for(run):
    arguments = ["-n", 4, "-e", 2, "--compare", "--engine", "process"]
    result = run("strange:SlowInPlainLoop-v0", *arguments)
    assert result.code == 0
    assert result.row("episodes")[0] == "8"
    text = " ".join(result.out.split())
    assert "The plain loop had time for 4 of 4 envs, 0 of 8 episodes and " in text
    assert " of 160 steps." in text


def test_compare_says_when_episodes_went_differently(run):
    result = run("strange:Unseeded-v0", "-n", 2, "-e", 2, "--compare", "--engine", "serial")
    assert "4 of its episodes went differently: something in the env" in result.out


# ---------------------------------------------------------------------- pictures


def test_each_step_is_rendered_and_none_is_played_in_vain(run):
    arguments = ["strange:Counts-v0", "-n", 2, "-e", 3, "--render", "--compare"]
    result = run(*arguments, "--engine", "serial")
    # Two envs of agymc, two of the plain loop.
    assert result.out.count("steps=60 renders=60 resets=3\n") == 4
    assert result.row("steps") == ["120", "120"]


@pytest.mark.parametrize("suffix", [".png", ".gif", ".mp4"])
def test_record(run, tmp_path, suffix):
    path = tmp_path / f"mosaic{suffix}"
    arguments = ["strange:Plain-v0", "-n", 4, "-e", 2, "--engine", "serial", "--record", path]
    result = run(*arguments, "--json")
    assert result.document()["recorded"] == str(path)
    assert list(tmp_path.glob("*mosaic*")) == [path]
    if suffix == ".png":
        with Image.open(path) as picture:
            assert picture.size == (80, 60)
            assert np.asarray(picture).max() == 9 * 20  # how the last episode ended
        return
    frames = read_film(path)
    assert len(frames) >= 40  # one per step of the longest env, and how it ended
    assert frames.shape[1:3] == (60, 80)


def test_no_control_characters_and_one_line_about_the_picture(run, tmp_path):
    path = tmp_path / "last.png"
    result = run("strange:Plain-v0", "-n", 1, "-e", 1, "--engine", "serial", "--record", path)
    assert "\x1b" not in result.out + result.err
    assert f"A picture of the env: {path}\n" in result.out


# ---------------------------------------------------------------------- what envs print


@pytest.mark.parametrize("engine", ["serial", "process"])
def test_document_is_alone_on_standard_output(run, engine):
    arguments = ["strange:Chatty-v0", "-n", 2, "-e", 1, "--seed", 5, "--compare", "--json"]
    result = run(*arguments, "--engine", engine)
    assert result.document()["concurrent"]["episodes"] == 2
    # Two workers may print into each other's lines.
    for words in ("hello from 5", "hello from 6"):
        assert result.err.count(words) == 2
    assert result.err.count("unfinished") == 4


@pytest.mark.parametrize("engine", ["serial", "process"])
def test_bar_leaves_what_envs_print_alone(command, engine):
    lines = in_terminal(
        command, "run", "strange:Chatty-v0", "-n", 2, "-e", 2, "--seed", 5, "--engine", engine
    )
    for words in ("hello from 5", "hello from 6"):
        # Two workers may print into each other's lines, but never into those of the bar.
        assert "".join(lines).count(words) == 2, lines
    assert sum("a line of native code" in line for line in lines) == 4
    assert "".join(lines).count("unfinished") == 4
    assert not any("Playing" in line and "native" not in line for line in lines)
    assert not any("Playing" in line and "hello" in line for line in lines)
    assert any(line.startswith("steps per second (SPS)") for line in lines)


def in_terminal(command, *arguments):
    """The lines that the command leaves on a terminal, which is wide enough for all of them."""
    master, slave = pty.openpty()
    command.env |= {"TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
    process = command.start(*arguments, stdout=slave, stderr=slave)
    os.close(slave)
    with open(master, "rb", closefd=True) as terminal:
        data = b""
        while part := read_some(terminal):
            data += part
    assert process.wait(50) == 0
    text = data.decode()
    assert "Playing" in text  # there was a bar
    return screen(text)


def read_some(terminal):
    try:
        return os.read(terminal.fileno(), 4096)
    except OSError:  # the other end is closed
        return b""


def screen(text):
    """What a terminal shows after this, as far as it understands what rich writes."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] != "\x1b":
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.strip() for line in lines]


def test_a_reader_that_goes_away_is_no_error(command):
    process = command.start("run", "strange:Plain-v0", "-n", "1", "-e", "1", "--engine", "serial")
    process.stdout.close()
    assert process.wait(50) == 1
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_document_of_a_failed_run(run):
    result = run("strange:Broken-v0", "-n", 2, "-e", 4, "--json", "--engine", "serial")
    assert result.code == 1
    document = json.loads(result.out)
    assert document["error"].startswith("env 0 raised ValueError in step: boom")
    assert document["concurrent"]["episodes"] == 4
