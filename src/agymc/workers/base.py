"""The contract of all workers.

A worker owns a shard: a run of neighbouring slots. The pool talks to it with `dispatch`
and `collect`, waits for it through `arm`, and lends it the calling thread with `work`. No method
blocks but `work` and `end_close`, and no method raises what an env raised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, Completion
from agymc.runners.base import Runner
from agymc.runners.serial import SerialRunner
from agymc.runners.threads import ThreadRunner
from agymc.slot import Slot
from agymc.types import AutoresetMode, ResetSeed

__all__ = ["Death", "ShardSpec", "Worker"]


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """What a worker must know to make its shard, wherever it lives.

    Attributes:
        first: The index of the shard's first env in the pool.
        count: The number of its envs.
        runner: "serial" or "thread".
        threads: For "thread": how many threads; None for one per env.
        autoreset_mode: See `Slot`.
        reset_seed: See `Slot`.
    """

    first: int
    count: int
    runner: str
    threads: int | None
    autoreset_mode: AutoresetMode
    reset_seed: ResetSeed | None

    def make_runner(self) -> Runner:
        """The runner, with its slots, none of which is built."""
        slots = [
            Slot(self.first + position, self.autoreset_mode, self.reset_seed)
            for position in range(self.count)
        ]
        if self.runner == "thread":
            return ThreadRunner(slots, self.threads)
        return SerialRunner(slots)


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker process ended when it should not have.

    Attributes:
        exit_code: The exit code, None when a signal ended it.
        signal: The name of that signal, or None.
    """

    exit_code: int | None
    signal: str | None

    def __str__(self) -> str:
        return f"killed by {self.signal}" if self.signal else f"exit code {self.exit_code}"


class Worker(ABC):
    """Owns the slots ``first`` to ``first + count - 1`` of a pool."""

    #: Set once the worker can answer no more.
    death: Death | None = None

    def __init__(self, spec: ShardSpec) -> None:
        self.spec = spec
        self.first = spec.first
        self.count = spec.count

    @abstractmethod
    def prepare(
        self, command: Command, positions: Sequence[int] | None, payloads: Sequence[Any] | None
    ) -> Any:
        """Make an order of an operation, for `dispatch`. All that can fail fails here.

        Args:
            command: What to do.
            positions: Positions within the shard; None for all.
            payloads: One per slot; None for STEP, whose actions are in the buffers.
        """

    @abstractmethod
    def dispatch(self, order: Any) -> None:
        """Begin what was prepared."""

    def allocate(self, spec: BuffersSpec) -> Buffers:
        """The buffers of the whole pool, in memory that all workers of this kind can reach."""
        return spec.allocate()

    @abstractmethod
    def attach(self, spec: BuffersSpec, buffers: Buffers) -> None:
        """Let the slots write into the buffers of the pool; all are built by then."""

    @abstractmethod
    def collect(self) -> list[Completion]:
        """The operations that have ended since the last call. Sets `death` when there is one."""

    def work(self, need: int, deadline: float | None) -> None:  # noqa: B027 - most need no thread
        """Lend the calling thread to the envs, where they need it; see `Runner.work`."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing for `work` to do."""
        return True

    @abstractmethod
    def arm(self, need: int) -> Sequence[int]:
        """Descriptors of which one becomes readable when ``need`` operations have ended.

        An empty sequence means that there is nothing to wait for: call `collect` or `work`.
        """

    def local_envs(self) -> list[Any]:
        """The envs, where they live in the caller's process; else none."""
        return []

    @abstractmethod
    def begin_close(self) -> None:
        """Ask the envs to close after what they are doing; idempotent."""

    @abstractmethod
    def end_close(self, deadline: float) -> list[str]:
        """Wait for the envs to close until the deadline, then end by force; idempotent.

        Returns:
            What went wrong, for a warning.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Forget everything without touching what belongs to another process, after a fork."""
