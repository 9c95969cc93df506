"""The examples of asyncio run as their docstrings say, print what they should and leave nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
_TAG = "AGYMC_TEST_TAG"

STOCKFISH = shutil.which("stockfish") or shutil.which("/usr/games/stockfish")
needs_stockfish = pytest.mark.skipif(
    STOCKFISH is None, reason="needs the program stockfish: apt install stockfish"
)


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs the package {', '.join(missing)}")


class Example:
    """An example that runs, with warnings as errors, and all processes that come of it."""

    def __init__(self, name: str, *arguments: str, descriptors: int | None = None) -> None:
        self.tag = uuid.uuid4().hex
        command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), _TAG: self.tag},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def lines(self) -> list[str]:
        """What it printed, when it has ended well; it must not have complained."""
        code, output, complaints = self.end()
        assert (code, complaints) == (0, ""), f"exit code {code}\n{output}\n{complaints}"
        return output.splitlines()

    def end(self) -> tuple[int, str, str]:
        """Its exit code, output and complaints; nothing is left of it."""
        try:
            output, complaints = self.process.communicate(timeout=50)
            assert not self.alive()
        finally:
            for process in self.alive():
                process.kill()
            self.process.kill()
            self.process.communicate()
        return self.process.returncode, output, complaints

    def alive(self) -> list[psutil.Process]:
        """The processes that came of it and are still there."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_TAG) == self.tag:
                    found.append(process)
            except psutil.Error:
                pass  # not ours, or gone
        return found


@needs("openenv", "uvicorn")
def test_openenv_echo() -> None:
    first, second, third = Example("openenv_echo.py", "--envs", "8", "--episodes", "20").lines()
    assert re.fullmatch(r"8 sessions opened in .* s at http://127\.0\.0\.1:\d+", first)
    assert second.startswith("20 episodes of return 15.0 in")  # 1 + 2 + 3 + 4 + 5 words
    assert third == "the last echo: la la la la la"


@needs("aiohttp")
def test_http_env() -> None:
    example = Example(
        *("http_env.py", "--envs", "200", "--episodes", "300", "--latency", "0.005"),
        *("--connections", "64"),
        descriptors=128,  # less than there are sessions
    )
    first, second, third = example.lines()
    assert first.startswith("200 sessions over 64 connections")
    assert second.startswith("300 episodes, 300 of them at the goal")
    assert third.endswith("0 sessions left")


@needs("chess")
@needs_stockfish
def test_chess_plays_the_same_games_each_time() -> None:
    arguments = ("--envs", "2", "--episodes", "4", "--nodes", "200")
    runs = [Example("chess_stockfish.py", *arguments).lines() for _ in range(2)]
    (first, game, speed), again = runs
    assert re.fullmatch(r"4 games, \d+ moves of White: .*", first)
    assert game.startswith("the last of env 0: 1. ")
    assert speed.startswith("2 engines, 200 nodes a move")
    assert again[:2] == [first, game]


@needs("chess")
def test_chess_without_stockfish() -> None:
    code, output, complaints = Example("chess_stockfish.py", "--stockfish", "/not/here").end()
    assert (code, output) == (1, "")
    assert complaints == "found no /not/here: apt install stockfish, or name it: --stockfish\n"


def _playing_over_http(example: Example) -> bool:
    return len(psutil.Process(example.process.pid).net_connections("tcp")) >= 50


def _engines_think(example: Example) -> bool:
    engines = [process for process in example.alive() if process.pid != example.process.pid]
    return len(engines) == 3 and all(engine.cpu_times().user > 0.2 for engine in engines)


@pytest.mark.parametrize(
    ("arguments", "in_the_middle"),
    [
        pytest.param(
            ("http_env.py", "--latency", "2"),
            _playing_over_http,
            marks=needs("aiohttp"),
            id="http",
        ),
        pytest.param(
            ("chess_stockfish.py", "--envs", "3", "--nodes", "1000000000000"),
            _engines_think,
            marks=[needs("chess"), needs_stockfish],
            id="chess",
        ),
    ],
)
def test_ctrl_c_leaves_nothing(
    arguments: tuple[str, ...], in_the_middle: Callable[[Example], bool]
) -> None:
    example = Example(*arguments)
    try:
        eventually(lambda: in_the_middle(example))
        example.process.send_signal(signal.SIGINT)
    finally:
        code, _, complaints = example.end()
    assert code in (1, 130, -signal.SIGINT)
    assert complaints.rstrip().endswith("KeyboardInterrupt")


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
