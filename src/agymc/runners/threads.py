"""One dedicated thread per slot.

Many simulators are bound to the thread that made them (OpenGL contexts, SQLite connections, sync
Playwright, COM). So a slot has one thread for its whole life: construction, every call and close
happen there. With ``threads=k`` there are k threads and slot i stays on thread i mod k.

Who touches what: the owner (the thread that made the runner) calls the methods of `Runner`; the
env threads only take from their inbox, drive their slot, append to `_ended` and ring the bell.
`deque.append`, `deque.popleft` and attribute reads are atomic; nothing else is shared.

The bell. A waiting owner wants to wake once, when enough has ended, not 200 times for 200 envs. It
says how much in `_wanted` and *then* looks at `_ended` again; a thread appends to `_ended` and
*then* looks at `_wanted`. Whichever comes second sees the other's write, so a wake-up can be
superfluous and can't be missed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from agymc.bells import Bell
from agymc.commands import Command, Completion, Reply
from agymc.runners.base import Runner, drive
from agymc.slot import Slot

__all__ = ["ThreadRunner"]

_NOBODY_WAITS = 1 << 62

_Inbox = SimpleQueue["tuple[Command, int, Any] | None"]


class ThreadRunner(Runner):
    """Drives each slot on a thread of its own.

    Args:
        slots: The slots.
        threads: The number of threads; None for one per slot.
        name: The beginning of the threads' names.
    """

    def __init__(
        self, slots: Sequence[Slot], threads: int | None = None, name: str = "agymc"
    ) -> None:
        super().__init__(slots)
        self.concurrency = len(slots) if threads is None else min(threads, len(slots))
        self._ended: deque[tuple[int, Reply | None]] = deque()
        self._wanted = _NOBODY_WAITS
        self._bell = Bell()
        self._inboxes: list[_Inbox] = [SimpleQueue() for _ in range(self.concurrency)]
        self._threads = [
            threading.Thread(
                target=self._serve,
                args=(inbox,),
                name=f"{name}-env-{slots[number].index}",
                daemon=True,  # a hung env must not keep the interpreter from exiting
            )
            for number, inbox in enumerate(self._inboxes)
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, inbox: _Inbox) -> None:
        slots, ended, bell = self.slots, self._ended, self._bell
        while True:
            order = inbox.get()
            if order is None:
                return
            command, position, payload = order
            slot = slots[position]
            try:
                drive(slot, command, payload)
            except KeyboardInterrupt:
                pass  # the env raised it: Ctrl-C goes to the main thread; it is the slot's reply
            reply, slot.reply = slot.reply, None
            del order, payload, slot
            ended.append((position, reply))
            if len(ended) >= self._wanted:
                bell.ring()

    def submit(self, command: Command, positions: Sequence[int], payloads: Sequence[Any]) -> None:
        inboxes = self._inboxes
        count = len(inboxes)
        for position, payload in zip(positions, payloads, strict=True):
            inboxes[position % count].put((command, position, payload))

    def work(self, need: int, deadline: float | None) -> None:
        """Nothing: the threads do it."""

    @property
    def idle(self) -> bool:
        return True

    def arm(self, need: int) -> int | None:
        self._wanted = need
        if len(self._ended) >= need:
            self._wanted = _NOBODY_WAITS
            return None
        return self._bell.fileno()

    def collect(self) -> Completion | None:
        self._wanted = _NOBODY_WAITS
        self._bell.silence()
        ended = self._ended
        if not ended:
            return None
        positions: list[int] = []
        replies: list[tuple[int, Reply]] = []
        for _ in range(len(ended)):
            position, reply = ended.popleft()
            positions.append(position)
            if reply is not None:
                replies.append((position, reply))
        return Completion(positions, replies)

    def forget(self) -> None:
        for inbox in self._inboxes:
            with contextlib.suppress(Empty):
                while True:
                    inbox.get_nowait()

    def end(self, deadline: float) -> list[int]:
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - perf_counter()))
        hung = {number for number, thread in enumerate(self._threads) if thread.is_alive()}
        abandoned = [p for p in range(len(self.slots)) if p % self.concurrency in hung]
        self._threads.clear()
        if not hung:  # an abandoned thread may still ring
            self._bell.close()
            self.slots.clear()
        return abandoned
