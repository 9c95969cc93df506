"""One dedicated thread per slot.

Many simulators are bound to the thread that made them (OpenGL contexts, SQLite connections, sync
Playwright, COM). So a slot has one thread for its whole life: construction, every call and close
happen there. With ``threads=k`` there are k threads and slot i stays on thread i mod k.

Who touches what: the owner (the thread that made the runner) calls the methods of `Runner`; the
env threads only take from their inbox, drive their slot, and put what came of it into the outbox.

A thread that hangs can't be killed. It is asked to stop by an exception that the interpreter raises
in it, as soon as it runs Python again. If that does not help, the thread is abandoned with the
slots that it has: new ones take their place, on a new thread. What an abandoned thread does later
must not be seen, so that it takes its lane's lock before it touches a row of the buffers.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from queue import Empty, SimpleQueue
from time import perf_counter
from types import CoroutineType
from typing import Any

from agymc.commands import Command, Reply
from agymc.errors import EnvInterrupt
from agymc.runners._interrupts import interrupt_thread, thread_stack
from agymc.runners._outbox import OutboxRunner
from agymc.runners.base import GivenUp, drive, refuse_coroutine
from agymc.slot import Slot

__all__ = ["ThreadRunner"]

_Order = tuple[Command, int, Any, float]
_Inbox = SimpleQueue["_Order | None"]

_CHECKS = 10
_PATIENCE = 1.0  # seconds for a lane's lock, which is held while a row is written


class _Lane:
    """A thread, and what it has.

    Attributes:
        slots: Its slots, by position.
        inbox: What it is asked for; None ends it.
        thread: The thread.
        lock: Held while a result is written, and while the lane is abandoned or interrupted.
        calling: Whether an env is being called.
        interrupted: Whether it was interrupted in this call.
        retired: Whether it was abandoned.
    """

    def __init__(self, serve: Callable[[_Lane], None], slots: dict[int, Slot], name: str) -> None:
        self.slots = slots
        self.inbox: _Inbox = SimpleQueue()
        self.lock = threading.Lock()
        self.calling = False
        self.interrupted = False
        self.retired = False
        # A hung env must not keep the interpreter from exiting.
        self.thread = threading.Thread(target=serve, args=(self,), name=name, daemon=True)
        self.thread.start()


class ThreadRunner(OutboxRunner):
    """Drives each slot on a thread of its own.

    Args:
        slots: The slots.
        threads: The number of threads; None for one per slot.
        timed: See `Runner`; with that, threads can be interrupted and abandoned.
        name: The beginning of the threads' names.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        threads: int | None = None,
        timed: bool = False,
        name: str = "agymc",
    ) -> None:
        super().__init__(slots, timed)
        self.concurrency = len(slots) if threads is None else min(threads, len(slots))
        self._name = name
        self._retired: list[_Lane] = []
        self._stale = 0
        self._lanes = [
            self._open(dict(list(enumerate(self.slots))[number :: self.concurrency]))
            for number in range(self.concurrency)
        ]

    def _open(self, slots: dict[int, Slot]) -> _Lane:
        first = next(iter(slots.values()))
        return _Lane(self._serve, slots, f"{self._name}-env-{first.index}")

    # ------------------------------------------------------------------ in the lane's thread

    def _serve(self, lane: _Lane) -> None:
        work = self._drive_timed if self._timed else self._drive
        while True:
            order = lane.inbox.get()
            if order is None:
                return
            command, position, payload, submitted = order
            slot = lane.slots[position]
            work(lane, slot, command, payload, submitted)
            if lane.retired:
                self._stale += 1
                return
            reply: Reply | None
            reply, slot.reply = slot.reply, None
            del order, payload, slot
            self._outbox.put(position, reply)

    @staticmethod
    def _drive(_lane: _Lane, slot: Slot, command: Command, payload: Any, _submitted: float) -> None:
        try:
            drive(slot, command, payload)
        except KeyboardInterrupt:
            pass  # the env raised it: Ctrl-C goes to the main thread; it is the slot's reply

    def _drive_timed(
        self, lane: _Lane, slot: Slot, command: Command, payload: Any, submitted: float
    ) -> None:
        """The same for envs that may be interrupted or abandoned meanwhile."""
        began = perf_counter()
        if self._buffers is not None:
            self._buffers.began[slot.index] = began
        try:
            lane.calling = True
            function: Callable[[Any], Any] | None = slot.begin(command, payload)
            while function is not None:
                result = function(payload)
                if result.__class__ is CoroutineType:
                    result = refuse_coroutine(result, command)
                with lane.lock:
                    if lane.retired:
                        return
                    function = slot.finish(result)
        except BaseException as exception:
            slot.fail(exception)
        _stop_calling(lane, slot)
        if self._buffers is not None and not lane.retired:
            self._buffers.note_times(slot.index, submitted, began, perf_counter())

    # ------------------------------------------------------------------ called by the owner

    def _submit(self, command: Command, positions: Sequence[int], payloads: Iterable[Any]) -> None:
        lanes = self._lanes
        count = len(lanes)
        chosen = [lanes[position % count].inbox for position in positions]
        orders = zip(repeat(command), positions, payloads, repeat(perf_counter()))
        # One call, so that Ctrl-C comes before all of it or after all of it.
        deque(map(_Inbox.put, chosen, orders), maxlen=0)

    def interrupt(self, position: int) -> None:
        lane = self._lanes[position % self.concurrency]
        if lane.lock.acquire(timeout=_PATIENCE):
            try:
                if lane.calling and lane.slots[position].to_be_interrupted:
                    lane.interrupted = True
                    interrupt_thread(lane.thread.ident)
            finally:
                lane.lock.release()

    def abandon(self, position: int) -> GivenUp:
        number = position % self.concurrency
        lane = self._lanes[number]
        stack = thread_stack(lane.thread.ident)
        if not lane.lock.acquire(timeout=_PATIENCE):
            return GivenUp([], stack)
        try:
            lane.retired = True
        finally:
            lane.lock.release()
        lane.inbox.put(None)
        self._retired.append(lane)
        renewed = {position: slot.renewed() for position, slot in lane.slots.items()}
        for position, slot in renewed.items():
            self.slots[position] = slot
        self._lanes[number] = self._open(renewed)
        return GivenUp(list(renewed), stack)

    def abandoned_alive(self) -> int:
        return sum(lane.thread.is_alive() for lane in self._retired)

    @property
    def stale_replies(self) -> int:
        return self._stale

    def forget(self) -> None:
        for lane in self._lanes:
            with contextlib.suppress(Empty):
                while True:
                    lane.inbox.get_nowait()

    def end(self, deadline: float) -> list[int]:
        for lane in self._lanes:
            lane.inbox.put(None)
        for lane in self._lanes:
            if lane.thread is not threading.current_thread():
                lane.thread.join(max(0.0, deadline - perf_counter()))
        hung = {number for number, lane in enumerate(self._lanes) if lane.thread.is_alive()}
        abandoned = [p for p in range(len(self.slots)) if p % self.concurrency in hung]
        self._lanes.clear()
        if not hung:  # an abandoned thread may still ring
            self._outbox.close()
            self.slots.clear()
        return abandoned


def _stop_calling(lane: _Lane, slot: Slot) -> None:
    """The env is not called any more; an interruption that is still on its way ends here."""
    while True:
        try:
            with lane.lock:
                lane.calling = False
            if lane.interrupted:
                for _ in range(_CHECKS):
                    pass  # the interpreter looks for it in each round
                lane.interrupted = False
            return
        except EnvInterrupt as exception:
            if slot.reply is None:
                slot.fail(exception)
