"""Finds the env that blocks the event loop.

A ``time.sleep`` or a blocking socket inside of ``async def`` stops all envs of the loop, and
nothing shows which one did it. While operations are in flight, a thread asks the loop for a sign of
life; if none comes in time, it looks at which env's task is running, and at its stack.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from agymc.types import BlockedLoop, BlockedLoopWarning

__all__ = ["LagMonitor"]


class LagMonitor:
    """Watches one loop.

    Args:
        loop: The loop.
        threshold: Seconds without a sign of life that count as blocked.
        env_of: Gives the index of the env that a task drives, or None.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threshold: float,
        env_of: Callable[[asyncio.Task[object]], int | None],
    ) -> None:
        self._loop = loop
        self._threshold = threshold
        self._env_of = env_of
        self._active = threading.Event()
        self._beat = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self.found: list[BlockedLoop] = []

    def wake(self) -> None:
        """Operations are in flight. Called in the loop's thread."""
        if not self._active.is_set():
            self._active.set()
            if self._thread is None and not self._ended:
                self._loop_thread = threading.get_ident()
                self._thread = threading.Thread(
                    target=self._watch, name="agymc-lag-monitor", daemon=True
                )
                self._thread.start()

    def rest(self) -> None:
        """Nothing is in flight: the thread sleeps until `wake`."""
        self._active.clear()

    def stop(self) -> None:
        """End the thread; idempotent. It notices soon, whatever it is doing."""
        self._ended = True
        self._active.set()
        self._beat.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self._threshold + 1.0)

    def _watch(self) -> None:
        while True:
            self._active.wait()
            if self._expired(0.0):
                return
            try:
                self._loop.call_soon_threadsafe(self._beat.set)
            except RuntimeError:  # the loop is closed
                return
            if not self._beat.wait(self._threshold / 2):
                self._look()
            elif self._expired(self._threshold):
                return
            # In time. Ask again after a while, for as long as something is in flight.

    def _expired(self, seconds: float) -> bool:
        """Sleep for so long, unless `stop` comes first; whether it came."""
        self._beat.clear()  # first: `stop` sets it after it has set `_ended`
        if not self._ended and seconds:
            self._beat.wait(seconds)
            self._beat.clear()
        return self._ended

    def _look(self) -> None:
        """The loop is late. Is it one task that holds it, or are there just many of them?"""
        suspect: asyncio.Task[object] | None = None
        since = perf_counter()
        number: int | None = None  # of what was found
        while not self._beat.wait(self._threshold / 10) and not self._ended:
            task = asyncio.current_task(self._loop)
            if task is None or task is not suspect:
                if number is not None:
                    break
                suspect, since = task, perf_counter()
            elif number is None and perf_counter() - since >= self._threshold:
                env_id = self._env_of(suspect)
                frame = sys._current_frames().get(self._loop_thread)
                if env_id is None or frame is None:
                    continue
                stack = "".join(traceback.format_stack(frame))
                del frame
                # Now, as it may go on for ever.
                number = self._tell(BlockedLoop(env_id, perf_counter() - since, stack))
        if number is not None:
            self.found[number] = replace(self.found[number], seconds=perf_counter() - since)

    def _tell(self, blocked: BlockedLoop) -> int:
        known = any(other.env_id == blocked.env_id for other in self.found)
        self.found.append(blocked)
        if not known:
            try:
                warnings.warn(
                    f"env {blocked.env_id} blocks the event loop, for {blocked.seconds:.2f} s by "
                    "now, and with it every env there: `await` instead, or use engine='thread'. "
                    f"It is here:\n{blocked.stack}",
                    BlockedLoopWarning,
                    stacklevel=1,
                )
            except BlockedLoopWarning as error:  # the filters say that warnings are errors
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(_raise, error)
        return len(self.found) - 1


def _raise(error: BaseException) -> None:
    raise error
