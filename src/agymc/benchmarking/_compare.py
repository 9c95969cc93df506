"""The parent: starts the contenders, asks them in turn, and keeps what they say."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from agymc.benchmarking._contenders import Work

__all__ = ["Comparison", "Result", "compare"]

_CLOSING = 30.0  # seconds that a contender has to close its envs


@dataclass
class Result:
    """The measurements of one contender at one work.

    Attributes:
        contender: Its name.
        start_up: Seconds to make all envs and reset them once, without imports of the contender.
        start_up_cpu: CPU seconds of the same.
        engine: The engine, for those of agymc; with its options where it was chosen.
        sps: Steps of an env per second, for each round.
        cpu: CPU seconds per step of an env, of all its processes, for each round.
        memory: The most bytes that its processes were seen to hold together.
        memory_kind: "pss" (shared pages counted once) or "rss".
        error: Why it could not take part, or "".
    """

    contender: str
    start_up: float = 0.0
    start_up_cpu: float = 0.0
    engine: str = ""
    sps: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: int = 0
    memory_kind: str = ""
    error: str = ""

    def add(self, answer: dict[str, Any]) -> None:
        """Take in what a round gave."""
        self.sps.append(answer["sps"])
        self.cpu.append(answer["cpu"])
        self.memory = max(self.memory, answer["memory"])
        self.memory_kind = answer["memory_kind"]

    @property
    def median(self) -> float:
        """The median of the steps per second."""
        return statistics.median(self.sps)


@dataclass
class Comparison:
    """All contenders at one work.

    Attributes:
        work: The work.
        results: One per contender; those that could not take part say why.
    """

    work: Work
    results: list[Result]

    def of(self, name: str) -> Result | None:
        """The result of a contender that took part."""
        return next((one for one in self.results if one.contender == name and one.sps), None)

    def ratio(self, name: str, baseline: str) -> float | None:
        """The ratio of the medians of two contenders' steps per second."""
        own, base = self.of(name), self.of(baseline)
        return None if own is None or base is None else own.median / base.median

    def spread(self, name: str, baseline: str) -> tuple[float, float] | None:
        """The smallest and largest ratio of two contenders within a round."""
        own, base = self.of(name), self.of(baseline)
        if own is None or base is None:
            return None
        ratios = [a / b for a, b in zip(own.sps, base.sps, strict=True)]
        return min(ratios), max(ratios)


def compare(
    work: Work,
    names: Sequence[str],
    *,
    rounds: int = 7,
    seconds: float = 1.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Have all contenders do the same work, round by round.

    Args:
        work: The work.
        names: Of `CONTENDERS`.
        rounds: How many.
        seconds: About how long a round of a contender takes.
        tell: Is told what happens.
    """
    results = []
    with ExitStack() as stack:
        running: list[tuple[_Process, Result]] = []
        for name in names:
            tell(f"{work.name}: starting {name}")
            process = _Process(name, work, seconds)
            stack.push(process.close)
            result = Result(name)
            results.append(result)
            try:
                first = process.read()
            except _Failed as error:
                result.error = str(error)
                continue
            result.start_up, result.start_up_cpu = first["start_up"], first["start_up_cpu"]
            result.engine = first.get("choice") or first["engine"]
            running.append((process, result))
        for number in range(rounds):
            # Each round begins with another contender: nobody always follows the same one.
            shift = number % max(1, len(running))
            for process, result in [*running[shift:], *running[:shift]]:
                if result.error:
                    continue
                tell(f"{work.name}: round {number + 1} of {rounds}, {result.contender}")
                try:
                    result.add(process.run_round())
                except _Failed as error:
                    result.error, result.sps = str(error), []
    return Comparison(work, results)


class _Failed(Exception):
    """A contender that can't take part."""


class _Process:
    """The parent's side of a contender."""

    def __init__(self, name: str, work: Work, seconds: float) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        # pygame draws into memory, so that no display is needed.
        quiet = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "agymc.benchmarking._contend"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for us
            env={**quiet, **os.environ, "PYTHONPATH": path},
        )
        self._tell({"name": name, "work": asdict(work), "seconds": seconds})

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # reading says how it ended

    def read(self) -> dict[str, Any]:
        """Its next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise _Failed(f"it ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _Failed(answer["error"])
        return answer

    def run_round(self) -> dict[str, Any]:
        """Have it run a round."""
        self._tell({})
        return self.read()

    def close(self, exception: type[BaseException] | None, *_: Any) -> None:
        """End it: it closes its envs, but where there was an exception."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(0.0 if exception else _CLOSING)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # whoever of the family is left
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process.stdout.close()
