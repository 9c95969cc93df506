"""One after the other, in the thread that asks for the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from agymc.commands import Command, Completion, Reply
from agymc.runners.base import Runner, drive
from agymc.slot import Slot

__all__ = ["SerialRunner"]


class SerialRunner(Runner):
    """Operations are queued, and run when somebody waits for them.

    So ``recv(min_ready=k)`` runs k operations and no more, and a serial engine behaves like any
    other to whoever sends and receives in parts.
    """

    concurrency = 1

    def __init__(self, slots: Sequence[Slot]) -> None:
        super().__init__(slots)
        self._queue: deque[tuple[Command, int, Any]] = deque()
        self._steps: Sequence[Any] | None = None  # the actions of a step of all slots, in order
        self._ended: list[int] = []
        self._all_ended = False
        self._replies: list[tuple[int, Reply]] = []

    def submit(self, command: Command, positions: Sequence[int], payloads: Sequence[Any]) -> None:
        if command is Command.STEP and len(positions) == len(self.slots) and not self._queue:
            self._steps = payloads
            if not self._in_order(positions):
                self._steps = None
        if self._steps is None:
            self._queue.extend(zip([command] * len(positions), positions, payloads, strict=True))

    @staticmethod
    def _in_order(positions: Sequence[int]) -> bool:
        return isinstance(positions, range) or all(i == p for i, p in enumerate(positions))

    def work(self, need: int, deadline: float | None) -> None:
        if self._steps is not None:
            actions, self._steps = self._steps, None
            if need >= len(actions):
                self._step_all(actions, deadline)
                return
            positions = range(len(actions))
            self._queue.extend(zip([Command.STEP] * len(actions), positions, actions, strict=True))
        queue, ended = self._queue, self._ended
        while queue:
            command, position, payload = queue.popleft()
            ended.append(position)
            try:
                self._run(position, command, payload)
            finally:
                self._note(position)
            if len(ended) >= need or (deadline is not None and perf_counter() >= deadline):
                return

    def _run(self, position: int, command: Command, payload: Any) -> None:
        drive(self.slots[position], command, payload)

    def _note(self, position: int) -> None:
        slot = self.slots[position]
        if slot.reply is not None:
            self._replies.append((position, slot.reply))
            slot.reply = None

    def _step_all(self, actions: Sequence[Any], deadline: float | None) -> None:
        """The loop that cheap envs live in: `drive` and `_note`, without their calls."""
        replies = self._replies
        slots = self.slots
        slot = slots[0]
        first = slot.index
        try:
            for slot, action in zip(slots, actions, strict=True):
                try:
                    function = slot.finish(slot.step_call(action))
                    while function is not None:
                        function = slot.finish(function(action))
                except KeyboardInterrupt as exception:
                    slot.fail(exception)
                    raise
                except BaseException as exception:
                    slot.fail(exception)
                if slot.reply is not None:
                    replies.append((slot.index - first, slot.reply))
                    slot.reply = None
                if deadline is not None and perf_counter() >= deadline:
                    break
            else:
                self._all_ended = True
                return
        except KeyboardInterrupt:
            self._note(slot.index - first)
            raise
        finally:
            if not self._all_ended:
                self._resume_after(slot.index - first, actions)

    def _resume_after(self, position: int, actions: Sequence[Any]) -> None:
        """The loop stopped after this position: the rest is queued, one by one."""
        self._ended.extend(range(position + 1))
        self._queue.extend(
            (Command.STEP, number, actions[number]) for number in range(position + 1, len(actions))
        )

    def collect(self) -> Completion | None:
        if self._all_ended:
            completion = Completion(None, self._replies)
            self._all_ended = False
        elif self._ended:
            completion = Completion(self._ended, self._replies)
            self._ended = []
        else:
            return None
        self._replies = []
        return completion

    @property
    def idle(self) -> bool:
        return self._steps is None and not self._queue

    def forget(self) -> None:
        self._queue.clear()
        self._steps = None

    def end(self, deadline: float) -> list[int]:
        self.forget()
        self.slots.clear()
        return []
