"""Looks after envs that run in the caller's own thread, where the pool can't: it waits for them.

A thread that sleeps while nothing runs. When an env has missed its deadline it is interrupted,
where that is possible: in the main thread by a signal. What can't be interrupted is said.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable
from time import perf_counter

from agymc.commands import Command, timeouts_of
from agymc.faults import FaultPolicy
from agymc.runners._interrupts import SIGNAL, install, thread_stack, uninstall
from agymc.slot import Slot

__all__ = ["Watchdog"]

Running = Callable[[], "tuple[Slot, Command, float] | None"]


class Watchdog:
    """Interrupts what runs too long between `enter` and `leave`.

    Args:
        policy: The deadlines.
        running: Tells which slot runs which command, and since when.
    """

    def __init__(self, policy: FaultPolicy, running: Running) -> None:
        self._running = running
        self._timeouts = timeouts_of(policy)
        self._episode_timeout = policy.episode_timeout
        self._grace = policy.grace
        self._shortest = min(*self._timeouts, policy.episode_timeout or float("inf"))
        self._interval = min(self._shortest / 4, self._grace / 2, 1.0)
        self._entered = 0  # how often; odd while envs are called
        self._awake = threading.Event()
        self._ended = threading.Event()
        self._ident = 0
        self._installed = False
        self._thread: threading.Thread | None = None

    @property
    def needed(self) -> bool:
        """Whether there is any deadline."""
        return self._shortest < float("inf")

    def enter(self) -> None:
        """The calling thread is about to call envs."""
        self._entered += 1
        if not self._awake.is_set():
            self._begin()

    def leave(self) -> None:
        """It does so no more."""
        self._entered += 1

    def _begin(self) -> None:
        self._ident = threading.get_ident()
        if not self._installed:
            self._installed = install()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="agymc-watch", daemon=True)
            self._thread.start()
        self._awake.set()

    def close(self) -> None:
        """End the thread; idempotent."""
        self._ended.set()
        self._awake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None
        if self._installed:
            self._installed = False
            uninstall()

    def _watch(self) -> None:
        told: float | None = None  # the beginning of the operation that was told of
        while True:
            self._awake.wait()
            entered = self._entered
            if self._ended.wait(self._interval):
                return
            if entered == self._entered and not entered % 2:
                self._awake.clear()  # nothing happens: sleep until something does
                if self._entered != entered:
                    self._awake.set()
                continue
            running = self._running()
            if running is None:
                continue
            slot, command, since = running
            timeout, since = self._timeout_of(slot, command, since)
            late = perf_counter() - since - timeout
            if late < 0:
                continue
            self._interrupt(slot)
            if late > self._grace and told != since:
                told = since
                warnings.warn(
                    f"agymc: env {slot.index} hangs in {command.name.lower()} and can't be "
                    "interrupted on the engine 'serial'; in a process it would be killed "
                    f"(engine='process'). It hangs in:\n{thread_stack(self._ident)}",
                    RuntimeWarning,
                    stacklevel=1,
                )

    def _timeout_of(self, slot: Slot, command: Command, since: float) -> tuple[float, float]:
        timeout = self._timeouts[command]
        reset_began = slot.reset_began
        if reset_began > since:
            return self._timeouts[Command.RESET], reset_began
        if self._episode_timeout is not None and command is Command.STEP:
            timeout = min(timeout, self._episode_timeout - slot.episode_seconds)
        return timeout, since

    def _interrupt(self, slot: Slot) -> None:
        slot.want_interrupt()
        if self._installed:
            signal.pthread_kill(self._ident, SIGNAL)
