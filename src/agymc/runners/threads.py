"""One dedicated thread per slot.

Many simulators are bound to the thread that made them (OpenGL contexts, SQLite connections, sync
Playwright, COM). So a slot has one thread for its whole life: construction, every call and close
happen there. With ``threads=k`` there are k threads and slot i stays on thread i mod k.

Who touches what: the owner (the thread that made the runner) calls the methods of `Runner`; the
env threads only take from their inbox, drive their slot, and put what came of it into the outbox.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from agymc.commands import Command
from agymc.runners._outbox import OutboxRunner
from agymc.runners.base import drive
from agymc.slot import Slot

__all__ = ["ThreadRunner"]

_Inbox = SimpleQueue["tuple[Command, int, Any] | None"]


class ThreadRunner(OutboxRunner):
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
        slots = self.slots
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
            self._outbox.put(position, reply)

    def _submit(self, command: Command, positions: Sequence[int], payloads: Iterable[Any]) -> None:
        inboxes = self._inboxes
        count = len(inboxes)
        chosen = [inboxes[position % count] for position in positions]
        # One call, so that Ctrl-C comes before all of it or after all of it.
        deque(map(_Inbox.put, chosen, zip(repeat(command), positions, payloads)), maxlen=0)

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
            self._outbox.close()
            self.slots.clear()
        return abandoned
