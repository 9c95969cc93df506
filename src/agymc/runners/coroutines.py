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
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from agymc.commands import Command
from agymc.runners._interrupts import env_stack, thread_stack
from agymc.runners._lag import LagMonitor
from agymc.runners._outbox import OutboxRunner
from agymc.runners.base import GivenUp
from agymc.slot import Slot
from agymc.types import BlockedLoop

__all__ = ["CoroutineRunner"]

_Order = tuple[Command, int, Any, float]

_CONSTRUCTIONS = Command.BUILD, Command.RESTART
_PATIENCE = 1.0  # seconds in which a loop that is not blocked has answered


class CoroutineRunner(OutboxRunner):
    """Drives the slots as coroutines.

    Args:
        slots: The slots.
        loop: The running loop to use; None for one in a thread of the runner's own.
        max_in_flight: The most operations that run at the same time; None for no limit. The others
            wait in the order in which they came.
        max_constructing: The same for constructions.
        lag_threshold: Seconds for which an env may block the loop before it is told; None: never.
        timed: See `Runner`. (How long coroutines take is noted in any case.)
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
        timed: bool = False,
        name: str = "agymc-asyncio",
    ) -> None:
        super().__init__(slots, timed)
        self.concurrency = len(slots)
        self._tasks: list[asyncio.Task[None] | None] = [None] * len(slots)
        self._limits = {True: max_constructing, False: max_in_flight}
        self._running = {True: 0, False: 0}  # by whether it is a construction
        self._constructing = [False] * len(slots)  # what the last operation of each slot was
        self._queues: dict[bool, deque[_Order]] = {True: deque(), False: deque()}
        self._thread: threading.Thread | None = None
        self._name = name
        if loop is None:
            loop = self._open_loop()
        self._loop = loop
        self._closing: list[asyncio.Task[None]] = []
        self._lag_threshold = lag_threshold
        self._monitor = self._open_monitor()
        self._orphans: list[asyncio.Task[None]] = []
        self._retired: list[threading.Thread] = []  # of loops that an env blocks
        self._lock = threading.Lock()  # held while a result is written, and while loops change
        self._stale = 0

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        loop = _new_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(loop,), name=self._name, daemon=True
        )
        self._thread.start()
        return loop

    def _open_monitor(self) -> LagMonitor | None:
        if self._lag_threshold is None:
            return None
        return LagMonitor(self._loop, self._lag_threshold, self._env_of)

    # ------------------------------------------------------------------ called by the owner

    def _submit(self, command: Command, positions: Sequence[int], payloads: Iterable[Any]) -> None:
        orders = zip(repeat(command), positions, payloads, repeat(perf_counter()))
        if self._thread is None:
            self._accept(self._loop, orders)
        else:
            self._loop.call_soon_threadsafe(self._accept, self._loop, orders)

    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        if self._thread is None:
            self._set_limits(max_in_flight, max_constructing)
        else:
            self._loop.call_soon_threadsafe(self._set_limits, max_in_flight, max_constructing)

    @property
    def blocked(self) -> Sequence[BlockedLoop]:
        return () if self._monitor is None else tuple(self._monitor.found)

    def interrupt(self, position: int) -> None:
        if self._thread is None:
            self._interrupt(position)
        else:
            self._loop.call_soon_threadsafe(self._interrupt, position)

    def abandon(self, position: int) -> GivenUp:
        if self._thread is None:
            return self._abandon(position)
        answers: SimpleQueue[GivenUp] = SimpleQueue()
        loop = self._loop

        def answer() -> None:
            if loop is self._loop:
                answers.put(self._abandon(position))

        loop.call_soon_threadsafe(answer)
        try:
            return answers.get(timeout=_PATIENCE)
        except Empty:
            return self._abandon_loop()

    def _abandon_loop(self) -> GivenUp:
        """An env blocks the loop: all go on with a new one."""
        assert self._thread is not None
        stack = thread_stack(self._thread.ident)
        if not self._lock.acquire(timeout=_PATIENCE):
            return GivenUp([], stack)
        try:
            old, self._retired = self._loop, [*self._retired, self._thread]
            self._loop = self._open_loop()
            self.slots[:] = [slot.renewed() for slot in self.slots]
        finally:
            self._lock.release()
        old.call_soon_threadsafe(old.stop)
        self.forget()
        self._tasks = [None] * len(self.slots)
        self._running = {True: 0, False: 0}
        if self._monitor is not None:
            found = self._monitor.found
            self._monitor.stop()
            self._monitor = self._open_monitor()
            assert self._monitor is not None
            self._monitor.found.extend(found)
        return GivenUp(list(range(len(self.slots))), stack)

    def abandoned_alive(self) -> int:
        threads = sum(thread.is_alive() for thread in self._retired)
        return threads + sum(not task.done() for task in self._orphans)

    @property
    def stale_replies(self) -> int:
        return self._stale

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

    def _interrupt(self, position: int) -> None:
        task = self._tasks[position]
        if task is not None and self.slots[position].to_be_interrupted:
            task.cancel()

    def _abandon(self, position: int) -> GivenUp:
        """The env swallows its cancellation: its task goes on, and nobody waits for it."""
        task = self._tasks[position]
        if task is None:
            return GivenUp([], "")
        frames = [frame for frame in task.get_stack() if frame is not None]
        summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
        self.slots[position] = self.slots[position].renewed()
        self._orphans = [orphan for orphan in self._orphans if not orphan.done()] + [task]
        self._leave(position, self._constructing[position])
        return GivenUp([position], env_stack(summary))

    def _accept(self, loop: asyncio.AbstractEventLoop, orders: Iterable[_Order]) -> None:
        if loop is not self._loop:
            return  # it was blocked, and has been given up
        started: list[_Order] = []
        for order in orders:
            constructing = order[0] in _CONSTRUCTIONS
            limit = self._limits[constructing]
            if limit is None or self._running[constructing] < limit:
                self._start(order)
                started.append(order)
            else:
                self._queues[constructing].append(order)
        self._loop.call_soon(self._check_begun, started)

    def _start(self, order: _Order) -> None:
        command, position, payload, submitted = order
        constructing = self._constructing[position] = command in _CONSTRUCTIONS
        self._running[constructing] += 1
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
                self._note_end(slot, position, submitted, perf_counter())

    async def _drive(self, command: Command, position: int, payload: Any, submitted: float) -> None:
        slot = self.slots[position]
        begin = perf_counter()
        if self._buffers is not None:
            self._buffers.began_view[slot.index] = begin
        try:
            function = slot.begin(command, payload)
            while True:
                result = function(payload)
                if hasattr(result, "__await__"):
                    result = await result
                timed = self._timed
                after = self._finish(slot, position, result) if timed else slot.finish(result)
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
            self._note_end(slot, position, submitted, begin)

    def _finish(self, slot: Slot, position: int, result: Any) -> Callable[[Any], Any] | None:
        """Write what an env gave, unless it was given up meanwhile."""
        with self._lock:
            return slot.finish(result) if self.slots[position] is slot else None

    def _note_end(self, slot: Slot, position: int, submitted: float, begin: float) -> None:
        if self._timed and self.slots and self.slots[position] is not slot:
            self._stale += 1
            return
        if self._buffers is not None:
            self._buffers.note_times(slot.index, submitted, begin, perf_counter())
        reply, slot.reply = slot.reply, None
        self._leave(position, self._constructing[position])
        self._outbox.put(position, reply)

    def _leave(self, position: int, constructing: bool) -> None:
        """The slot does nothing any more: another may take its place."""
        self._tasks[position] = None
        self._running[constructing] -= 1
        if self._queues[constructing]:
            self._start_queued(constructing)
        if self._monitor is not None and not (self._running[True] or self._running[False]):
            self._monitor.rest()

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
        for orphan in self._orphans:
            orphan.cancel()
        self._closing = [
            self._loop.create_task(self._close(position, task))
            for position, task in enumerate(self._tasks)
        ]

    async def _close(self, position: int, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._tasks[position] = asyncio.current_task()
        self._constructing[position] = False
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
