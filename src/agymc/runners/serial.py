"""One after the other, in the thread that asks for the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from agymc.buffers import Buffers, ShardTimes
from agymc.commands import Command, Completion, Reply
from agymc.faults import FaultPolicy
from agymc.runners._watchdog import Watchdog
from agymc.runners.base import Runner, drive
from agymc.slot import Slot
from agymc.spaces import flat_view

__all__ = ["SerialRunner"]


_ndarray = np.ndarray


@dataclass(slots=True)
class _PlainRows:
    """The rows of a shard, where observations are one array each and rewards are numbers.

    Attributes:
        flat: The observations of the pool, see `flat_view`; None where they are no vectors.
        places: Where the observation of each slot goes: in ``flat``, or its row.
        shape: Of an observation.
        dtype: Of an observation; None where observations are not plain, so that none fits.
        rewards: The rewards of the pool, by slot index.
        flags: The terminations and truncations of the shard.
    """

    flat: Any
    places: Sequence[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    rewards: Any
    flags: Sequence[Any]

    @classmethod
    def of(cls, slots: Sequence[Slot], buffers: Buffers) -> _PlainRows:
        leaf = buffers.observation_layout.array
        if leaf is None or buffers.rewards.ndim > 1 or slots[0].checks:
            return cls(None, [None] * len(slots), (), None, None, ())
        first = slots[0].index
        rows = slice(first, first + len(slots))
        column: Any = buffers.observations[0]
        flat, places = flat_view(column), [column[slot.index, ...] for slot in slots]
        if flat is not None:
            length = leaf.shape[0]
            places = [slice(slot.index * length, (slot.index + 1) * length) for slot in slots]
        return cls(
            flat,
            places,
            leaf.shape,
            leaf.dtype,
            buffers.rewards_view,
            (buffers.terminations[rows], buffers.truncations[rows]),
        )

    def clear_flags(self) -> None:
        """A step that ends nothing leaves them as they are here."""
        for flags in self.flags:
            flags.fill(False)


class SerialRunner(Runner):
    """Operations are queued, and run when somebody waits for them.

    So ``recv(min_ready=k)`` runs k operations and no more, and a serial engine behaves like any
    other to whoever sends and receives in parts.

    Args:
        slots: The slots.
        timed: See `Runner`.
        watched: The deadlines, where nobody else can look after them.
    """

    concurrency = 1

    def __init__(
        self, slots: Sequence[Slot], timed: bool = False, watched: FaultPolicy | None = None
    ) -> None:
        super().__init__(slots, timed)
        watchdog = None if watched is None else Watchdog(watched, self._running_now)
        self._watchdog = watchdog if watchdog is not None and watchdog.needed else None
        self._queue: deque[tuple[Command, int, Any]] = deque()
        self._submitted = 0.0
        self._times: ShardTimes | None = None
        self._running: tuple[Slot, Command, float] | None = None
        self._running_all = False
        self._steps: Sequence[Any] | None = None  # the actions of a step of all slots, in order
        self._done: list[int] = []
        self._all_done = False
        self._replies: list[tuple[int, Reply]] = []
        self._plain: _PlainRows | None = None

    def _submit(self, command: Command, positions: Sequence[int], payloads: Iterable[Any]) -> None:
        if self._timed:
            self._submitted = perf_counter()
        whole = isinstance(positions, range) and len(positions) == len(self.slots)
        if whole and command is Command.STEP:
            self._steps = list(payloads) or self._steps
        else:
            self._queue.extend(zip(repeat(command), positions, payloads))

    def work(self, need: int, deadline: float | None) -> bool:
        if self._watchdog is None or (self._steps is None and not self._queue):
            return self._work(need, deadline)
        try:
            self._watchdog.enter()
            return self._work(need, deadline)
        finally:
            self._watchdog.leave()

    def _work(self, need: int, deadline: float | None) -> bool:
        if self._steps is not None:
            actions, self._steps = self._steps, None
            if need >= len(actions):
                self._step_all(actions, deadline)
                return True
            positions = range(len(actions))
            self._queue.extend(zip([Command.STEP] * len(actions), positions, actions, strict=True))
        queue, done = self._queue, self._done
        if not queue:
            return False
        while queue:
            command, position, payload = queue.popleft()
            done.append(position)
            try:
                self._run(position, command, payload)
            except BaseException as exception:
                self._fail(position, exception)
                raise
            finally:
                self._note(position)
            if len(done) >= need or (deadline is not None and perf_counter() >= deadline):
                break
        return True

    def _run(self, position: int, command: Command, payload: Any) -> None:
        slot = self.slots[position]
        if not self._timed:
            drive(slot, command, payload)
            return
        began = perf_counter()
        if self._buffers is not None:
            self._buffers.began[slot.index] = began
        self._running_all, self._running = False, (slot, command, began)
        try:
            drive(slot, command, payload)
        finally:
            self._running = None
            if self._buffers is not None:
                self._buffers.note_times(slot.index, self._submitted, began, perf_counter())

    def _fail(self, position: int, exception: BaseException) -> None:
        """Ctrl-C came around the call of this env, if not in it."""
        slot = self.slots[position]
        if slot.reply is None:
            slot.fail(exception)

    def _note(self, position: int) -> None:
        slot = self.slots[position]
        if slot.reply is not None:
            self._replies.append((position, slot.reply))
            slot.reply = None

    def attach(self, buffers: Buffers) -> None:
        super().attach(buffers)
        self._plain = _PlainRows.of(self.slots, buffers)
        if self._timed:
            first = self.slots[0].index
            self._times = ShardTimes(buffers, slice(first, first + len(self.slots)))

    def _step_all(self, actions: Sequence[Any], deadline: float | None) -> None:
        """The loop that cheap envs live in: `drive` and `_note`, without their calls.

        Most steps of most envs end no episode, have no info, and give an observation that is one
        array as its space says. There is nothing to decide about such a step: it is written into
        its row right here. Everything else is for the slot to judge, from the same result.
        """
        replies = self._replies
        plain = self._plain
        assert plain is not None
        flat, rewards, shape, dtype = plain.flat, plain.rewards, plain.shape, plain.dtype
        plain.clear_flags()
        began: Any = None
        if self._times is not None:
            assert self._buffers is not None
            began = self._buffers.began_view
            self._running_all = True
            self._running = self.slots[0], Command.STEP, perf_counter()
        timed, limited = began is not None, deadline is not None
        limit = inf if deadline is None else deadline
        slots = self.slots
        first = slots[0].index
        numbers = range(first, first + len(slots))
        index, slot, clean = first, slots[0], False
        try:
            for index, slot, action, place in zip(
                numbers, slots, actions, plain.places, strict=True
            ):
                if limited and perf_counter() >= limit and index > first:
                    index, slot = index - 1, slots[index - first - 1]
                    return
                if timed:
                    began[index] = perf_counter()
                try:
                    result = slot.step_call(action)
                    try:
                        if len(result) == 5:  # and no reset, which NEXT_STEP makes of a step
                            observation, reward, terminated, truncated, info = result
                            if (
                                not (terminated or truncated or info)
                                and observation.__class__ is _ndarray
                            ):
                                if flat is not None:
                                    flat[place] = observation  # it has that shape and dtype, or ...
                                    rewards[index] = reward
                                    continue
                                if observation.dtype is dtype and observation.shape == shape:
                                    place[...] = observation
                                    rewards[index] = reward
                                    continue
                    except Exception:
                        pass  # whatever it is, the slot says it better
                    function = slot.finish(result)
                    while function is not None:
                        function = slot.finish(function(action))
                except KeyboardInterrupt as exception:
                    slot.fail(exception)
                    raise
                except BaseException as exception:
                    slot.fail(exception)
                if slot.reply is not None:
                    replies.append((index - first, slot.reply))
                    slot.reply = None
            clean = True
        except BaseException as exception:
            self._fail(slot.index - first, exception)
            raise
        finally:
            if self._times is not None:
                self._running = None
                self._times.note(slot.index - first + 1, self._submitted, perf_counter())
            if clean:
                self._all_done = True
            else:
                self._note(slot.index - first)
                self._resume_after(slot.index - first, actions)

    def _running_now(self) -> tuple[Slot, Command, float] | None:
        """What runs, and since when; asked by another thread."""
        running, everything = self._running, self._running_all
        if running is None or not everything or self._buffers is None:
            return running
        slot, command, since = running
        began = self._buffers.began[slot.index : slot.index + len(self.slots)]
        position = int(began.argmax())
        if began[position] < since:
            return running
        return self.slots[position], command, float(began[position])

    def _resume_after(self, position: int, actions: Sequence[Any]) -> None:
        """The loop stopped after this position: the rest is queued, one by one."""
        self._done.extend(range(position + 1))
        self._queue.extend(
            (Command.STEP, number, actions[number]) for number in range(position + 1, len(actions))
        )

    def _ended(self) -> Completion | None:
        if self._all_done:
            return Completion(None, self._replies)
        return Completion(self._done, self._replies) if self._done else None

    def _forget_ended(self) -> None:
        self._all_done, self._done, self._replies = False, [], []

    def forget(self) -> None:
        self._queue.clear()
        self._steps = None

    def end(self, deadline: float) -> list[int]:
        self.forget()
        if self._watchdog is not None:
            self._watchdog.close()
        self.slots.clear()
        return []
