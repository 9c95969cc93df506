"""The command, run as a user runs it."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v3
import psutil
import pytest

import agymc

HERE = Path(__file__).parent


def read_film(path: Path) -> Any:
    """Its pictures, (n, height, width, 3)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # imageio does not close its pipes
        frames = imageio.v3.imread(path)
        gc.collect()
    return frames


class Run:
    """A run that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def document(self) -> dict[str, Any]:
        """The JSON document, which must be all of the output."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    def row(self, name: str) -> list[str]:
        """The cells of a row of the tables."""
        (line,) = re.findall(rf"^{re.escape(name)}  +(.*)$", self.out, re.MULTILINE)
        return re.split(r"  +", line.strip())


class Command:
    """Starts ``agymc`` and finds out what it leaves behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark
        self._tag = uuid.uuid4().hex
        source = str(Path(agymc.__file__).parents[1])
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
            "AGYMC_TEST": self._tag,
            "STRANGE_MARK": str(mark),
            "COLUMNS": "80",
        }
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
            self.env.pop(name, None)

    def start(self, *arguments: str, program: tuple[str, ...] = ("-m", "agymc"), **kwargs: Any):
        kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
        return subprocess.Popen(
            [sys.executable, *program, *map(str, arguments)],
            cwd=HERE,
            env=self.env,
            stdin=subprocess.DEVNULL,
            text=True,
            **kwargs,
        )

    def __call__(self, *arguments: Any, **kwargs: Any) -> Run:
        process = self.start(*arguments, **kwargs)
        out, err = process.communicate(timeout=50)
        return Run(process.returncode, out, err)

    def interrupt(self, *arguments: Any, presses: int = 1) -> Run:
        """Press Ctrl-C when an env says that the moment has come."""
        process = self.start(*arguments)
        try:
            while not self.mark.exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            for _ in range(presses):
                process.send_signal(signal.SIGINT)
                time.sleep(0.1)  # two signals at once would count as one
            out, err = process.communicate(timeout=50)
        finally:
            process.kill()
        return Run(process.returncode, out, err)

    def leftovers(self) -> list[psutil.Process]:
        """Processes of this test that are still there, given a moment to go."""
        for _ in range(100):
            found = [process for process in psutil.process_iter() if self._is_ours(process)]
            if not found:
                break
            time.sleep(0.05)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("AGYMC_TEST") == self._tag
        except psutil.Error:
            return False


@pytest.fixture
def command(tmp_path: Path):
    command = Command(tmp_path / "mark")
    yield command
    assert command.leftovers() == []


@pytest.fixture
def run(command: Command) -> Callable[..., Run]:
    return lambda *arguments, **kwargs: command("run", *arguments, **kwargs)
