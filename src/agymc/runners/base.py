"""The contract of all runners.

A runner owns the slots of one shard and drives their operations. The thread that made the runner
calls all of its methods; whether the envs run there too is the runner's affair. A runner never
raises what an env raises: that is the reply of the slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from types import CoroutineType
from typing import Any, NamedTuple

import numpy as np

from agymc.buffers import Buffers
from agymc.commands import CLOSED, Command, Completion, Fault, Reply, text_of
from agymc.slot import Slot
from agymc.types import BlockedLoop
from agymc.waiting import Plan, Wait

__all__ = ["GivenUp", "Runner", "drive", "refuse_coroutine"]


class GivenUp(NamedTuple):
    """What giving up an env came to.

    Attributes:
        positions: The slots that are to be restarted; none where the env can't be given up.
        stack: Where the env hung, as far as is known.
    """

    positions: list[int]
    stack: str


class Runner(ABC):
    """Drives the slots of one shard.

    Args:
        slots: The slots, by position in the shard.
        timed: Whether to note in the buffers when envs are called and how long they take.
    """

    #: The most slots whose envs can be running at the same time.
    concurrency: int
    #: What is said of an env that did not close in time.
    abandoned = "its thread can't be killed and was abandoned"

    def __init__(self, slots: Sequence[Slot], timed: bool = False) -> None:
        self.slots = list(slots)
        self._timed = timed
        self._buffers: Buffers | None = None
        # The numbers of the operations, see `agymc.ledger`: asked for, being done, done.
        self._requested = self._completed = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int64)

    def submit(self, command: Command, positions: Sequence[int], payloads: Iterable[Any]) -> None:
        """Begin an operation of each of these slots, which have none in flight. Never blocks.

        Args:
            command: What to do.
            positions: The slots.
            payloads: One per slot. If an iterator, it is used up in one piece: Ctrl-C leaves all
                of it or nothing, and calling this again after that begins nothing twice.
        """
        self._numbers[:] = self._requested
        self._submit(command, positions, payloads)

    @abstractmethod
    def _submit(self, command: Command, positions: Sequence[int], payloads: Iterable[Any]) -> None:
        """See `submit`."""

    @abstractmethod
    def work(self, need: int, deadline: float | None) -> bool:
        """Lend the calling thread to the envs, where they need it.

        Ends as soon as ``need`` operations have ended since the last `collect`, or the deadline
        (of `time.perf_counter`) has passed, but not before one operation was run where there is
        one to run: whoever polls with a deadline of now must get somewhere.

        Returns:
            Whether there was anything to do.
        """

    def collect(self) -> Completion | None:
        """The operations that have ended since the last call, or None. Never blocks.

        By the time that they are given, the buffers say so too: where Ctrl-C keeps them from
        arriving, that is known.
        """
        completion = self._ended()
        if completion is not None:
            self._mark(completion)
            self._forget_ended()
        return completion

    def refuse(self, positions: Sequence[int], fault: Fault) -> Completion:
        """The end of operations that can't even begin."""
        self._numbers[:] = self._requested
        completion = Completion(list(positions), [(p, Reply(fault=fault)) for p in positions])
        self._mark(completion)
        return completion

    def _mark(self, completion: Completion) -> None:
        """Note in the buffers that these operations have ended."""
        if not len(self._numbers):
            pass  # there are no buffers yet
        elif completion.positions is None:
            self._completed[:] = self._numbers
        else:
            self._completed[completion.positions] = self._numbers[completion.positions]

    @abstractmethod
    def _ended(self) -> Completion | None:
        """What has ended, again and again until `_forget_ended`."""

    @abstractmethod
    def _forget_ended(self) -> None:
        """Forget what `_ended` gave last."""

    def arm(self, need: int) -> int | None:
        """A descriptor that becomes readable when ``need`` operations have ended.

        None means that there is nothing to wait for: only `work` ends them.
        """
        return None

    def attach(self, buffers: Buffers) -> None:
        """Give each slot its row of the buffers; all are built by then, or to be restarted."""
        self._buffers = buffers
        rows = slice(self.slots[0].index, self.slots[-1].index + 1)
        self._requested, self._completed = buffers.requested[rows], buffers.completed[rows]
        self._numbers = np.zeros(len(self.slots), np.int64)
        for slot in self.slots:
            slot.attach(buffers, slot.index)

    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        """Change how many operations and constructions may run at the same time."""
        raise NotImplementedError(f"{type(self).__name__} has no limits")

    def interrupt(self, position: int) -> None:
        """Have the env of this slot stop what it is doing, as far as it lets itself be stopped."""
        return  # who runs envs in the owner's thread is not asked in time

    def abandon(self, position: int) -> GivenUp:
        """Give up the env of this slot, which hangs. Its slot is a new one, to be restarted.

        So are those of envs that can't go on without it. Whatever they do later is not heard.
        """
        return GivenUp([], "")

    def abandoned_alive(self) -> int:
        """How many threads and tasks that were given up go on."""
        return 0

    @property
    def stale_replies(self) -> int:
        """How many results came from envs that were given up."""
        return 0

    @property
    def blocked(self) -> Sequence[BlockedLoop]:
        """Where envs have blocked the event loop."""
        return ()

    @abstractmethod
    def forget(self) -> None:
        """Drop the operations that have not begun; their slots count as idle."""

    def begin_closing(self) -> None:
        """Have every env closed, after what it is doing now."""
        self.forget()
        self.collect()
        self.submit(Command.CLOSE, range(len(self.slots)), [None] * len(self.slots))

    def plan_closing(self, deadline: float) -> Plan[list[str]]:
        """Wait until the envs are closed or the deadline is over, then end the runner.

        Returns:
            What went wrong, for a warning.
        """
        problems: list[str] = []
        waiting = {slot.index for slot in self.slots}
        first = min(waiting, default=0)
        interrupt: KeyboardInterrupt | None = None
        try:
            while waiting:
                try:
                    worked = self.work(len(waiting), deadline)
                except KeyboardInterrupt as error:
                    # It has ended the closing of one env; the others are still to be closed.
                    interrupt, worked = error, True
                descriptor = self.arm(1)
                if descriptor is not None and not (yield Wait([descriptor], deadline)):
                    break
                completion = self.collect()
                if completion is None and not worked and descriptor is None:
                    break  # what is missing was never begun
                for position, reply in completion.replies if completion is not None else ():
                    fault = reply.fault
                    if fault is not None and fault.operation == "close":
                        raised = fault.exception
                        what = f"{type(raised).__name__} in close: {text_of(raised)}"
                        problems.append(f"env {first + position} raised {what}")
                    elif reply.value is not CLOSED:
                        continue  # what the env was doing when we began
                    waiting.discard(first + position)
        except BaseException:
            self.end(0.0)
            raise
        busy = {first + position for position in self.end(deadline)}
        if interrupt is not None:
            raise interrupt
        return problems + [
            f"env {index} did not close in time; {self.abandoned}"
            for index in sorted(waiting & busy)
        ]

    def leave(self) -> bool:
        """Close without waiting, where waiting would keep the envs from being closed.

        Returns:
            False where it would not: use `begin_closing`.
        """
        return False

    @abstractmethod
    def end(self, deadline: float) -> list[int]:
        """End the runner's threads and forget the slots; idempotent.

        Returns:
            The positions of slots whose threads were still busy at the deadline and had to be
            abandoned.
        """


def drive(slot: Slot, command: Command, payload: Any) -> None:
    """Run one operation of one slot to its end, calling its env from this thread."""
    try:
        function: Callable[[Any], Any] | None = slot.begin(command, payload)
        while function is not None:
            result = function(payload)
            if result.__class__ is CoroutineType:
                result = refuse_coroutine(result, command)
            function = slot.finish(result)
    except KeyboardInterrupt as exception:
        slot.fail(exception)
        raise
    except BaseException as exception:
        slot.fail(exception)


def refuse_coroutine(coroutine: CoroutineType[Any, Any, Any], command: Command) -> Any:
    """A coroutine env on a runner that can't await; its ``close`` has nothing to close."""
    coroutine.close()
    if command is not Command.CLOSE:
        raise TypeError(
            f"{coroutine.__qualname__} is a coroutine function: expected engine='asyncio' or "
            "'process+asyncio' for coroutine environments"
        )
    return None
