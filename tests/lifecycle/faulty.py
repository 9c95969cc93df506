"""An env that does on purpose what envs do by accident, and the accidents.

Worker processes import this module by name.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Hook = Callable[["Probe"], Any]


class Probe(gymnasium.Env):
    """Does as it is told, where it is told.

    The observation is ``(episode, step, random)``. A hook is called at the beginning of the
    operation it is named after: "construct", "reset", "step", "call" (of `act`), "render", "set",
    "close". What it returns, unless it is None, is returned instead of the true result.

    Args:
        index: The env's index, for the log.
        log: A file to which "built INDEX" and "closed INDEX" are appended.
        length: The steps of an episode.
        hooks: The hooks.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(4)
    metadata = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    value = 0

    def __init__(self, index: int = 0, log: Any = None, length: int = 100, **hooks: Hook) -> None:
        self.index = index
        self.log = log
        self.length = length
        self.hooks = dict(hooks)
        self.episode = -1
        self.count = 0
        self._hook("construct")
        self._write("built")

    def arm(self, operation: str, hook: Hook | None) -> None:
        """Have a hook from now on."""
        self.hooks[operation] = hook

    def disarm(self) -> None:
        """Have no hook any more."""
        self.hooks.clear()

    def _hook(self, operation: str) -> Any:
        hook = self.hooks.get(operation)
        return None if hook is None else hook(self)

    def _write(self, what: str) -> None:
        if self.log is not None:
            with open(self.log, "a") as file:
                file.write(f"{what} {self.index}\n")

    def _observe(self) -> np.ndarray:
        return np.array([self.episode, self.count, self.np_random.random()])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        instead = self._hook("reset")
        self.episode += 1
        self.count = 0
        return (self._observe(), {}) if instead is None else instead

    def step(self, action):
        instead = self._hook("step")
        if instead is not None:
            return instead
        self.count += 1
        return self._observe(), float(action), self.count >= self.length, False, {}

    def act(self, *args: Any) -> Any:
        """Something to call; gives its arguments back."""
        instead = self._hook("call")
        return args if instead is None else instead

    def pid(self) -> int:
        """The process that the env lives in."""
        return os.getpid()

    def thread(self) -> int:
        """The thread that calls it."""
        return threading.get_ident()

    def render(self):
        instead = self._hook("render")
        return np.zeros((2, 3, 3), np.uint8) if instead is None else instead

    def close(self):
        self._hook("close")
        self._write("closed")


# ------------------------------------------------------------------ exceptions


class TwoArguments(Exception):
    """Pickled as ``TwoArguments(text)``, which is not how it can be made."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class WithLock(Exception):
    """Holds what can't be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()
        self.answer = 42


class LockInArgs(Exception):
    """The same, in its args."""

    def __init__(self) -> None:
        super().__init__("the lock is held", threading.Lock())


def _refuse() -> Any:
    raise RuntimeError("I won't be unpickled")


class OneWay(Exception):
    """Can be pickled and not unpickled."""

    def __reduce__(self):
        return _refuse, ()


class NoText(Exception):
    """Has a text that can't be had."""

    def __str__(self) -> str:
        raise ValueError("no text for you")


class Fatal(BaseException):
    """No `Exception`."""


class KeyAndAttribute(KeyError, AttributeError):
    """Two built-in bases; and it can't be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()

    def __reduce__(self):
        raise TypeError("I won't be pickled")


class UnpicklableGroup(ExceptionGroup):
    """A group that can't be pickled."""

    def __reduce__(self):
        raise TypeError("I won't be pickled")


def raise_value_error(_env: Probe) -> None:
    raise ValueError("the wheel came off")


def raise_without_text(_env: Probe) -> None:
    raise ValueError


def raise_many_lines(_env: Probe) -> None:
    raise ValueError("first line\nsecond line")


def raise_two_arguments(_env: Probe) -> None:
    raise TwoArguments(7, "seven")


def raise_with_lock(_env: Probe) -> None:
    raise WithLock("held")


def raise_lock_in_args(_env: Probe) -> None:
    raise LockInArgs


def raise_one_way(_env: Probe) -> None:
    raise OneWay("there and not back")


def raise_no_text(_env: Probe) -> None:
    raise NoText("x")


def raise_local(_env: Probe) -> None:
    class Local(LookupError):
        pass

    raise Local("from inside of a function")


def raise_group(_env: Probe) -> None:
    raise ExceptionGroup("two things", [ValueError("one"), KeyError("two")])


def raise_unpicklable_group(_env: Probe) -> None:
    raise UnpicklableGroup("three things", [ValueError("one"), WithLock("two"), NoText("three")])


def raise_system_exit(_env: Probe) -> None:
    raise SystemExit(3)


def raise_generator_exit(_env: Probe) -> None:
    raise GeneratorExit("stop")


def raise_fatal(_env: Probe) -> None:
    raise Fatal("no Exception")


def raise_stop_iteration(_env: Probe) -> None:
    next(iter(()))


def raise_os_error(_env: Probe) -> None:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/no/such/file")


def raise_unicode_error(_env: Probe) -> None:
    b"\xff".decode("utf-8")


def raise_two_bases(_env: Probe) -> None:
    raise KeyAndAttribute("two bases")


def raise_chained(_env: Probe) -> None:
    try:
        {}["engine oil"]
    except KeyError as error:
        raise RuntimeError("the engine stopped") from error


def raise_with_note(_env: Probe) -> None:
    error = ValueError("noted")
    error.add_note("have you looked at the wheel?")
    raise error


def raise_recursion_error(env: Probe) -> None:
    raise_recursion_error(env)


def raise_memory_error(_env: Probe) -> None:
    raise MemoryError("no more")


def raise_cancelled(_env: Probe) -> None:
    raise asyncio.CancelledError("cancelled")


def raise_surrogate(_env: Probe) -> None:
    raise ValueError("a file named \udcff")


def raise_keyboard_interrupt(_env: Probe) -> None:
    raise KeyboardInterrupt("not from a keyboard")


RAISERS: dict[str, Hook] = {
    name.removeprefix("raise_"): function
    for name, function in list(globals().items())
    if name.startswith("raise_") and name != "raise_keyboard_interrupt"
}


# ------------------------------------------------------------------ ways to die


def exit_3(_env: Probe) -> None:
    os._exit(3)


def exit_0(_env: Probe) -> None:
    os._exit(0)


def kill_self(_env: Probe) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(_env: Probe) -> None:
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def abort(_env: Probe) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


DEATHS: dict[str, tuple[Hook, str]] = {
    "exit 3": (exit_3, "exit code 3"),
    "exit 0": (exit_0, "exit code 0"),
    "kill": (kill_self, "killed by SIGKILL"),
    "segfault": (segfault, "killed by SIGSEGV"),
    "abort": (abort, "killed by SIGABRT"),
}
