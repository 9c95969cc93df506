"""Environments that fail on purpose, for tests of what has to live with those that do by accident.

Each fault is the real thing: a process that is killed is killed by a signal, a hang in C can't be
interrupted, a segmentation fault reads address 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agymc.errors import ConfigurationError

__all__ = [
    "DEADLY_FAULTS",
    "AsyncFaultName",
    "AsyncFaultyEnv",
    "FaultName",
    "FaultyEnv",
    "InjectedError",
    "Observation",
]

FaultName: TypeAlias = Literal[
    "raise",
    "hang",
    "hang in C",
    "hang holding the GIL",
    "sleep",
    "exit",
    "sigkill",
    "sigstop",
    "segfault",
    "allocate",
    "wrong shape",
    "wrong dtype",
    "wrong reward",
    "no tuple",
    "nan",
]
"""What can go wrong in an operation."""

AsyncFaultName: TypeAlias = Literal[
    "raise",
    "hang",
    "sleep",
    "swallow cancellation",
    "block the loop",
    "wrong shape",
    "wrong reward",
    "no tuple",
    "nan",
    "exit",
    "sigkill",
]
"""The same for a coroutine env."""

DEADLY_FAULTS = frozenset({"hang holding the GIL", "exit", "sigkill", "sigstop", "segfault"})
"""Faults that end or stop the process that the env lives in: for envs in worker processes only."""

Operation: TypeAlias = Literal["construct", "reset", "step", "render", "close"]

_HEADROOM = 256 << 20  # bytes that "allocate" gets


class InjectedError(RuntimeError):
    """What "raise" raises."""


class Observation:
    """What the observation of a `FaultyEnv` says.

    Attributes:
        index: The env.
        life: A number that no other env object has.
        episode: The number of the episode in this life, from 0.
        step: The steps made in it.
        action: The last action; -1 after a reset.
        total: The sum of the actions in this episode.
        draw: A random number of the env's own generator.
    """

    __slots__ = ("action", "draw", "episode", "index", "life", "step", "total")

    def __init__(self, observation: NDArray[np.float64]) -> None:
        self.index, self.life, self.episode, self.step, self.action, self.total = map(
            int, observation[:6]
        )
        self.draw = float(observation[6])


class _Faults:
    """Decides when something goes wrong.

    Args: see `FaultyEnv`.
    """

    def __init__(
        self,
        index: int,
        fault: str | Sequence[str],
        operation: Operation,
        at: int | None,
        probability: float,
        once: str | os.PathLike[str] | None,
        seed: int | None,
        log: str | os.PathLike[str] | None,
        known: tuple[str, ...],
    ) -> None:
        self.choose_from(fault, known)
        if not 0 <= probability <= 1:
            raise ConfigurationError(f"expected a probability between 0 and 1, got {probability!r}")
        self.index = index
        self.operation = operation
        self.at = at
        self.probability = probability
        self.once = None if once is None else Path(once)
        self.log = None if log is None else Path(log)
        self.random = Random(seed)
        self.count = 0  # of operations of that sort in this life

    def choose_from(self, fault: str | Sequence[str], known: tuple[str, ...]) -> None:
        """What goes wrong; ConfigurationError for what is not known."""
        self.names = [fault] if isinstance(fault, str) else list(fault)
        for name in self.names:
            if name not in known:
                raise ConfigurationError(f"expected a fault out of {known}, got {name!r}")

    def next(self, operation: Operation) -> str | None:
        """What goes wrong in this operation, which has begun; None for nothing."""
        if operation != self.operation or not self.names:
            return None
        self.count += 1
        if self.count != self.at and self.random.random() >= self.probability:
            return None
        if self.once is not None:
            try:
                self.once.touch(exist_ok=False)
            except FileExistsError:
                return None
        name = self.random.choice(self.names)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{self.index} {name}\n")
        return name


class FaultyEnv(gymnasium.Env[NDArray[np.float64], np.int64]):
    """An env that fails when it is told to.

    Its observation says what it belongs to, see `Observation`, so that a test can tell whether a
    result is the right one. Its reward is the action.

    Args:
        index: The env's index.
        fault: What goes wrong, or several of which one is chosen at random; () for nothing.
        operation: Where: "construct", "reset", "step", "render" or "close".
        at: In the how manieth operation of that sort in this env's life, from 1.
        probability: Or with which probability each time.
        once: A path: once a fault has happened and made this file, none happens any more, in any
            env that was given the path.
        seconds: How long "sleep" takes.
        length: The steps of an episode.
        exception: Makes the exception of "raise".
        seed: Of the faults' probability; None: from the system.
        log: A file to which "INDEX FAULT" is appended for each fault, before it happens.
        close_badly: Whether `close` raises.
    """

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(-np.inf, np.inf, (7,), np.float64)
    action_space = spaces.Discrete(8)
    render_mode = "rgb_array"

    def __init__(
        self,
        index: int = 0,
        fault: FaultName | Sequence[FaultName] = (),
        *,
        operation: Operation = "step",
        at: int | None = None,
        probability: float = 0.0,
        once: str | os.PathLike[str] | None = None,
        seconds: float = 0.05,
        length: int = 20,
        exception: Callable[[], BaseException] | None = None,
        seed: int | None = None,
        log: str | os.PathLike[str] | None = None,
        close_badly: bool = False,
    ) -> None:
        self.index = index
        self.life = int.from_bytes(os.urandom(6), "little")
        self.length = length
        self.seconds = seconds
        self.exception = exception
        self.close_badly = close_badly
        self.faults = _Faults(
            index, fault, operation, at, probability, once, seed, log, get_args(FaultName)
        )
        self.episode = -1
        self.count = self.total = 0
        self.action = -1
        self._act("construct")

    def _observe(self) -> NDArray[np.float64]:
        return np.array(
            [
                self.index,
                self.life,
                self.episode,
                self.count,
                self.action,
                self.total,
                self.np_random.random(),
            ]
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        fault = self._act("reset")
        self.episode += 1
        self.count = self.total = 0
        self.action = -1
        result: Any = self._observe(), {}
        return _spoilt(fault, result)  # type: ignore[no-any-return]

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Add the action to the total."""
        fault = self._act("step")
        self.count += 1
        self.action = int(action)
        self.total += self.action
        over = self.count >= self.length
        result: Any = self._observe(), float(action), over, False, {}
        return _spoilt(fault, result)  # type: ignore[no-any-return]

    def render(self) -> Any:
        """A small frame of the env's own shade."""
        self._act("render")
        return np.full((2, 2, 3), self.index % 256, np.uint8)

    def close(self) -> None:
        """End."""
        self._act("close")
        if self.close_badly:
            raise InjectedError(f"env {self.index} does not close well")

    def _act(self, operation: Operation) -> str | None:
        fault = self.faults.next(operation)
        match fault:
            case None:
                return None
            case "raise":
                where = f"{operation} {self.faults.count} of env {self.index}"
                raise InjectedError(where) if self.exception is None else self.exception()
            case "hang":
                hang()
            case "hang in C":
                hang_in_c(ctypes.CDLL(None))
            case "hang holding the GIL":
                hang_in_c(ctypes.PyDLL(None))
            case "sleep":
                time.sleep(self.seconds)
            case "exit":
                os._exit(3)
            case "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "sigstop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "segfault":
                ctypes.string_at(0)
            case "allocate":
                allocate_without_end()
        return fault


class _Body(FaultyEnv):
    """What a coroutine env computes with; things go wrong around it."""

    def _act(self, operation: Operation) -> str | None:
        return None


class AsyncFaultyEnv:
    """`FaultyEnv` as a coroutine env, with what can go wrong in an event loop.

    Args:
        index: The env's index.
        fault: As in `FaultyEnv`, but "hang" waits for ever, "swallow cancellation" does that and
            can be cancelled the second time only, and "block the loop" sleeps for ``seconds``
            without giving way.
        turns: How many turns of the loop an operation takes.
        **options: As in `FaultyEnv`.
    """

    observation_space = FaultyEnv.observation_space
    action_space = FaultyEnv.action_space

    def __init__(
        self,
        index: int = 0,
        fault: AsyncFaultName | Sequence[AsyncFaultName] = (),
        *,
        turns: int = 1,
        **options: Any,
    ) -> None:
        self._env = _Body(index, (), **options)
        self._turns = turns
        self._faults = self._env.faults
        self._faults.choose_from(fault, get_args(AsyncFaultName))
        if self._faults.next("construct") is not None:
            raise InjectedError(f"construct of env {index}")

    async def _act(self, operation: Operation) -> str | None:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        fault = self._faults.next(operation)
        match fault:
            case "raise":
                where = f"{operation} {self._faults.count} of env {self._env.index}"
                make = self._env.exception
                raise InjectedError(where) if make is None else make()
            case "hang":
                await asyncio.Event().wait()
            case "swallow cancellation":
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                await asyncio.Event().wait()
            case "block the loop":
                time.sleep(self._env.seconds)
            case "sleep":
                await asyncio.sleep(self._env.seconds)
            case "exit":
                os._exit(3)
            case "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
        return fault

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode."""
        fault = await self._act("reset")
        return _spoilt(fault, self._env.reset(seed=seed))  # type: ignore[no-any-return]

    async def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Add the action to the total."""
        fault = await self._act("step")
        return _spoilt(fault, self._env.step(action))  # type: ignore[no-any-return]

    async def close(self) -> None:
        """End."""
        await self._act("close")
        self._env.close()


def _spoilt(fault: str | None, result: Any) -> Any:
    """The result, or what a fault makes of it."""
    observation = result[0]
    match fault:
        case "wrong shape":
            return observation[:3], *result[1:]
        case "wrong dtype":
            return np.array(["x"] * len(observation)), *result[1:]
        case "wrong reward" if len(result) == 5:
            return observation, "a lot", *result[2:]
        case "nan":
            return np.full_like(observation, np.nan), *result[1:]
        case "no tuple":
            return None
        case _:
            return result


def hang() -> None:
    """Hang in Python, for ever."""
    while True:
        time.sleep(0.005)


def hang_in_c(library: Any) -> None:
    """Hang in a function of C that no signal ends, for ever: in a mutex that is locked already.

    Args:
        library: ``ctypes.CDLL(None)``, or ``ctypes.PyDLL(None)`` to hold the interpreter lock.
    """
    mutex = ctypes.create_string_buffer(256)
    library.pthread_mutex_init(mutex, None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def allocate_without_end() -> None:
    """Allocate until there is no more, which is soon: MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _HEADROOM, before[1]))
    try:
        kept = []
        while True:
            kept.append(bytearray(1 << 24))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
