"""What the tests of lifecycles have in common, beside fixtures."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.lifecycle.faulty import Probe

ROOT = Path(__file__).parents[2]
_TAG = "AGYMC_TEST_TAG"
_PATIENCE = 10.0  # seconds; a bound for polling, nothing is asserted about it


def probes(count: int, **arguments: Any) -> list[Callable[[], Probe]]:
    """Functions that make so many probes."""
    return [functools.partial(Probe, index, **arguments) for index in range(count)]


def eventually(condition: Callable[[], Any]) -> bool:
    """Whether the condition becomes true before patience is at an end."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            return bool(condition())
        time.sleep(0.02)
    return True


def _children() -> set[str]:
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            dead = " (dead)" if process.status() == psutil.STATUS_ZOMBIE else ""
            found.add(f"process {process.pid}{dead}: {process.cmdline()}")
        except psutil.Error:
            pass
    return found


def _descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"descriptor {name}: {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            pass  # the one of the listing
    return found


def _mappings() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {f"mapping {line}" for line in lines if "memfd:agymc" in line}


def _files() -> set[str]:
    shared = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if re.match("agymc|psm_", name)}
    return shared | {f"temporary file {path}" for path in Path(tempfile.gettempdir()).iterdir()}


def footprint() -> set[str]:
    """All that this process holds, in words."""
    threads = {f"thread {thread.name}" for thread in threading.enumerate()}
    return _children() | threads | _descriptors() | _mappings() | _files()


class Script:
    """A program in a process of its own, and all processes that come of it.

    Args:
        source: The program, dedented.
        flags: Of the interpreter.
        how: "file", "-c" or "-" (from standard input).
        folder: Where the file lies.
    """

    def __init__(
        self,
        source: str,
        folder: Path,
        *arguments: str,
        flags: tuple[str, ...] = (),
        how: str = "file",
        **options: Any,
    ) -> None:
        self.tag = uuid.uuid4().hex
        source = textwrap.dedent(source)
        path = ":".join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, _TAG: self.tag}
        program = {"file": str(folder / "script.py"), "-c": "-c", "-": "-"}[how]
        command = [sys.executable, *flags, program]
        if how == "file":
            (folder / "script.py").write_text(source)
        elif how == "-c":
            command.append(source)
        self.process = subprocess.Popen(
            [*command, *arguments],
            env={**environment, **options.pop("env", {})},
            stdin=options.pop("stdin", subprocess.PIPE if how == "-" else subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **{"cwd": folder, "text": True, **options},
        )
        self._input = source if how == "-" else None
        self.stdout = ""
        self.stderr = ""

    def read_line(self) -> str:
        """The next line that it prints; fails with what it complained of when there is none."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.wait()
            pytest.fail(f"the script ended with {self.process.returncode}:\n{self.stderr}")
        return line.rstrip("\n")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code. What it printed is in `stdout` and `stderr` then."""
        if self._input is None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None
        self.stdout, self.stderr = self.process.communicate(self._input, timeout=50)
        return self.process.returncode

    def succeed(self) -> str:
        """What it printed; fails when it complained."""
        code = self.wait()
        assert code == 0, f"exit code {code}\n{self.stdout}\n{self.stderr}"
        self.assert_gone()
        return self.stdout

    def alive(self) -> list[str]:
        """The processes that came of it and are still there."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.status() != psutil.STATUS_ZOMBIE
                    and process.environ().get(_TAG) == self.tag
                ):
                    found.append(f"{process.pid}: {process.cmdline()}")
            except psutil.Error:
                pass
        return found

    def assert_gone(self) -> None:
        if not eventually(lambda: not self.alive()):
            pytest.fail("left behind:\n  " + "\n  ".join(self.alive()), pytrace=False)

    def end(self) -> None:
        """By force, with all that came of it."""
        for line in self.alive():
            try:
                os.kill(int(line.partition(":")[0]), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
