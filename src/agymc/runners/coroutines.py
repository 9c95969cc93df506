"""Coroutines on one event loop: thousands of envs that wait, in one thread.

An env whose ``reset`` and ``step`` are ``async def`` costs nothing while it waits: no thread, no
poll. There is one task per operation in flight and none per idle env.

The loop is the caller's where the caller has one (`make_async`), and otherwise one in a background
thread of the runner's own. In the first case everything here runs in the loop's thread. In the
second the owner's thread calls the methods of `Runner`, the rest runs in the loop's thread, and
what has ended passes through the outbox.

Ordinary envs work too, but while one of them computes nothing else does.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from time import perf_counter
from typing import Any

from agymc.buffers import Buffers
from agymc.commands import Command
from agymc.runners._lag import LagMonitor
from agymc.runners._outbox import OutboxRunner
from agymc.slot import Slot
from agymc.types import BlockedLoop

__all__ = ["CoroutineRunner"]

_Order = tuple[Command, int, Any, float]


class CoroutineRunner(OutboxRunner):
    """Drives the slots as coroutines.

    Args:
        slots: The slots.
        loop: The running loop to use; None for one in a thread of the runner's own.
        max_in_flight: The most operations that run at the same time; None for no limit. The others
            wait in the order in which they came.
        max_constructing: The same for constructions.
        lag_threshold: Seconds for which an env may block the loop before it is told; None: never.
        name: The name of the thread.
    """

    abandoned = "its task was cancelled and goes on"

    def __init__(
        self,
        slots: Sequence[Slot],
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        max_in_flight: int | None = None,
        max_constructing: int | None = None,
        lag_threshold: float | None = None,
        name: str = "agymc-asyncio",
    ) -> None:
        super().__init__(slots)
        self.concurrency = len(slots)
        self._tasks: list[asyncio.Task[None] | None] = [None] * len(slots)
        self._limits = {True: max_constructing, False: max_in_flight}
        self._running = {True: 0, False: 0}  # by whether it is a construction
        self._queues: dict[bool, deque[_Order]] = {True: deque(), False: deque()}
        self._thread: threading.Thread | None = None
        if loop is None:
            loop = _new_loop()
            self._thread = threading.Thread(target=_run_loop, args=(loop,), name=name, daemon=True)
            self._thread.start()
        self._loop = loop
        self._closing: list[asyncio.Task[None]] = []
        self._buffers: Buffers | None = None
        self._monitor = (
            None if lag_threshold is None else LagMonitor(loop, lag_threshold, self._env_of)
        )

    def attach(self, buffers: Buffers) -> None:
        super().attach(buffers)
        self._buffers = buffers

    # ------------------------------------------------------------------ called by the owner

    def _submit(self, command: Command, positions: Sequence[int], payloads: Iterable[Any]) -> None:
        orders = zip(repeat(command), positions, payloads, repeat(perf_counter()))
        if self._thread is None:
            self._accept(orders)
        else:
            self._loop.call_soon_threadsafe(self._accept, orders)

    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        if self._thread is None:
            self._set_limits(max_in_flight, max_constructing)
        else:
            self._loop.call_soon_threadsafe(self._set_limits, max_in_flight, max_constructing)

    @property
    def blocked(self) -> Sequence[BlockedLoop]:
        return () if self._monitor is None else tuple(self._monitor.found)

    # ------------------------------------------------------------------ in the loop's thread

    def _set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        self._limits = {True: max_constructing, False: max_in_flight}
        for constructing in (True, False):
            self._start_queued(constructing)

    def _env_of(self, task: asyncio.Task[Any]) -> int | None:
        for position, mine in enumerate(self._tasks):
            if mine is task:
                return self.slots[position].index
        return None

    def _accept(self, orders: Iterable[_Order]) -> None:
        started: list[_Order] = []
        for order in orders:
            constructing = order[0] is Command.BUILD
            limit = self._limits[constructing]
            if limit is None or self._running[constructing] < limit:
                self._start(order)
                started.append(order)
            else:
                self._queues[constructing].append(order)
        self._loop.call_soon(self._check_begun, started)

    def _start(self, order: _Order) -> None:
        command, position, payload, submitted = order
        self._running[command is Command.BUILD] += 1
        if self._monitor is not None:
            self._monitor.wake()
        self._tasks[position] = self._loop.create_task(
            self._drive(command, position, payload, submitted)
        )

    def _check_begun(self, orders: Sequence[_Order]) -> None:
        """Of a task that somebody cancels before its first turn nothing runs, and nobody knows.

        (Who ends a program by cancelling all tasks, say.) By now each of these had its first turn.
        """
        for command, position, payload, submitted in orders:
            task = self._tasks[position]
            if task is not None and task.done():
                slot = self.slots[position]
                slot.begin(command, payload)
                slot.fail(asyncio.CancelledError())
                self._note_end(command, position, submitted, perf_counter())

    async def _drive(self, command: Command, position: int, payload: Any, submitted: float) -> None:
        slot = self.slots[position]
        begin = perf_counter()
        try:
            function = slot.begin(command, payload)
            while True:
                result = function(payload)
                if hasattr(result, "__await__"):
                    result = await result
                after = slot.finish(result)
                if after is None:
                    break
                function = after
        except KeyboardInterrupt as exception:
            slot.fail(exception)
            if self._thread is None:
                # Out of the loop, as it would go from a coroutine of the caller's own. (As this
                # task's exception it would be told of a second time, as never retrieved.)
                self._loop.call_soon(_raise, exception)
        except BaseException as exception:
            slot.fail(exception)
        finally:
            self._note_end(command, position, submitted, begin)

    def _note_end(self, command: Command, position: int, submitted: float, begin: float) -> None:
        slot = self.slots[position]
        buffers = self._buffers
        if buffers is not None:
            row = slot.index
            buffers.operations[row] += 1
            buffers.queue_seconds[row] += begin - submitted
            buffers.env_seconds[row] += perf_counter() - begin
        reply, slot.reply = slot.reply, None
        self._tasks[position] = None
        constructing = command is Command.BUILD
        self._running[constructing] -= 1
        if self._queues[constructing]:
            self._start_queued(constructing)
        if self._monitor is not None and not (self._running[True] or self._running[False]):
            self._monitor.rest()
        self._outbox.put(position, reply)

    def _start_queued(self, constructing: bool) -> None:
        """Begin what the limit allows of what waits for it."""
        queue = self._queues[constructing]
        limit = self._limits[constructing]
        started: list[_Order] = []
        while queue and (limit is None or self._running[constructing] < limit):
            started.append(queue.popleft())
            self._start(started[-1])
        self._loop.call_soon(self._check_begun, started)

    # ------------------------------------------------------------------ the end

    def forget(self) -> None:
        for queue in self._queues.values():
            queue.clear()

    def begin_closing(self) -> None:
        """Cancel what every env is doing, and have it closed after that."""
        self.forget()
        self.collect()
        if self._thread is None:
            self._cancel_and_close()
        else:
            self._loop.call_soon_threadsafe(self._cancel_and_close)

    def _cancel_and_close(self) -> None:
        self._closing = [
            self._loop.create_task(self._close(position, task))
            for position, task in enumerate(self._tasks)
        ]

    async def _close(self, position: int, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._tasks[position] = asyncio.current_task()
        self._running[False] += 1
        await self._drive(Command.CLOSE, position, None, perf_counter())

    def leave(self) -> bool:
        """In a loop that is not ours: nobody can wait for it here, and it may have ended."""
        if self._thread is not None:
            return False
        warnings.warn(
            f"{len(self.slots)} environments on the engine 'asyncio' were not closed: expected "
            "`async with`, or `await envs.aclose()`",
            ResourceWarning,
            stacklevel=2,
        )
        self.forget()
        if self._monitor is not None:
            self._monitor.stop()
        try:
            self._loop.call_soon_threadsafe(self._cancel_and_close)
        except RuntimeError:  # the loop is closed: there is no way to await anything any more
            for task in self._tasks:
                _silence(task)
                if task is not None:
                    task.get_coro().close()
        else:
            for task in self._tasks:
                _silence(task)
        return True

    def end(self, deadline: float) -> list[int]:
        # Where an env blocks the loop in a thread, the closing has not even begun.
        closing: Sequence[asyncio.Task[None] | None] = self._closing or [None] * len(self.slots)
        late = [p for p, task in enumerate(closing) if task is None or not task.done()]
        if self._monitor is not None:
            self._monitor.stop()
        if self._thread is None:
            for task in self._closing:
                task.cancel()
            if not late:  # who is late may still ring
                self._outbox.close()
                self.slots.clear()
            return late
        loop = self._loop
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(loop.stop)
        self._thread.join(max(0.0, deadline - perf_counter()))
        if self._thread.is_alive():
            return late
        self._outbox.close()
        self.slots.clear()
        return late


def _silence(task: asyncio.Task[None] | None) -> None:
    """Let it go unfinished, without a word from asyncio: we have said so ourselves."""
    if task is not None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def _raise(exception: BaseException) -> None:
    raise exception


def _new_loop() -> asyncio.AbstractEventLoop:
    """One of uvloop where that is installed (extra "uvloop"), else one of asyncio."""
    if importlib.util.find_spec("uvloop") is not None:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
