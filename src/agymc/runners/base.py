"""The contract of all runners.

A runner owns the slots of one shard and drives their operations. The thread that made the runner
calls all of its methods; whether the envs run there too is the runner's affair. A runner never
raises what an env raises: that is the reply of the slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from agymc.bells import wait_readable
from agymc.buffers import Buffers
from agymc.commands import Command, Completion
from agymc.slot import Slot

__all__ = ["Runner", "drive"]


class Runner(ABC):
    """Drives the slots of one shard.

    Args:
        slots: The slots, by position in the shard.
    """

    #: The most slots whose envs can be running at the same time.
    concurrency: int

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = list(slots)

    @abstractmethod
    def submit(self, command: Command, positions: Sequence[int], payloads: Sequence[Any]) -> None:
        """Begin an operation of each of these slots, which have none in flight. Never blocks."""

    @abstractmethod
    def work(self, need: int, deadline: float | None) -> None:
        """Lend the calling thread to the envs, where they need it.

        Returns as soon as ``need`` operations have ended since the last `collect`, or the deadline
        (of `time.perf_counter`) has passed, but not before one operation was run where there is
        one to run: whoever polls with a deadline of now must get somewhere.
        """

    @abstractmethod
    def collect(self) -> Completion | None:
        """The operations that have ended since the last call, or None. Never blocks."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether there is nothing for `work` to do."""

    def arm(self, need: int) -> int | None:
        """A descriptor that becomes readable when ``need`` operations have ended.

        None means that there is nothing to wait for: they have ended already, or only `work` ends
        them.
        """
        return None

    def attach(self, buffers: Buffers) -> None:
        """Give each slot its row of the buffers; all are built by then."""
        for slot in self.slots:
            slot.attach(buffers, slot.index)

    @abstractmethod
    def forget(self) -> None:
        """Drop the operations that have not begun; their slots count as idle."""

    def begin_closing(self) -> None:
        """Have every env closed, after what it is doing now."""
        self.forget()
        self.collect()
        self.submit(Command.CLOSE, range(len(self.slots)), [None] * len(self.slots))

    def end_closing(self, deadline: float) -> list[str]:
        """Wait until the envs are closed or the deadline is over, then end the runner.

        Returns:
            What went wrong, for a warning.
        """
        problems: list[str] = []
        waiting = {slot.index for slot in self.slots}
        first = min(waiting, default=0)
        while waiting:
            self.work(len(waiting), deadline)
            descriptor = self.arm(1)
            if descriptor is not None and not wait_readable([descriptor], deadline):
                break
            completion = self.collect()
            if completion is None and self.idle and descriptor is None:
                break  # the deadline has passed before all had their turn
            if completion is not None:
                for position, reply in completion.replies:
                    if reply.fault is not None and reply.fault.operation == "close":
                        error = reply.fault.exception
                        what = f"{type(error).__name__} in close: {error}"
                        problems.append(f"env {first + position} raised {what}")
                ended = completion.positions
                waiting -= {first + p for p in (range(len(self.slots)) if ended is None else ended)}
        return problems + [
            f"env {first + position} did not answer in time; its thread can't be killed and was "
            "abandoned"
            for position in self.end(deadline)
        ]

    @abstractmethod
    def end(self, deadline: float) -> list[int]:
        """End the runner's threads and forget the slots; idempotent.

        Returns:
            The positions of slots that were still busy at the deadline and had to be abandoned.
        """


def drive(slot: Slot, command: Command, payload: Any) -> None:
    """Run one operation of one slot to its end, calling its env from this thread."""
    try:
        function: Callable[[Any], Any] | None = slot.begin(command, payload)
        while function is not None:
            function = slot.finish(function(payload))
    except KeyboardInterrupt as exception:
        slot.fail(exception)
        raise
    except BaseException as exception:
        slot.fail(exception)
