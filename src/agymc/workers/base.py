"""The contract of all workers.

A worker owns a shard: a run of neighbouring slots. The pool talks to it with `dispatch`
and `collect`, waits for it through `arm`, and lends it the calling thread with `work`. No method
blocks but `work` and `end_close`, and no method raises what an env raised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, Completion
from agymc.errors import ConfigurationError
from agymc.faults import Check, FaultPolicy
from agymc.runners.base import GivenUp, Runner
from agymc.runners.serial import SerialRunner
from agymc.runners.threads import ThreadRunner
from agymc.slot import Slot
from agymc.types import AutoresetMode, BlockedLoop, ResetSeed
from agymc.waiting import Plan

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["Death", "ShardSpec", "Worker", "share_limit"]


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """What a worker must know to make its shard, wherever it lives.

    Attributes:
        first: The index of the shard's first env in the pool.
        count: The number of its envs.
        runner: "serial", "thread" or "asyncio".
        threads: For "thread": how many threads; None for one per env.
        max_in_flight: For "asyncio": how many operations run at the same time, at the most.
        max_constructing: For "asyncio": the same for constructions.
        lag_threshold: For "asyncio": how long an env may block the loop before it is told.
        autoreset_mode: See `Slot`.
        reset_seed: See `Slot`.
        faults: What is to be done about faults; None: nothing.
    """

    first: int
    count: int
    runner: str
    threads: int | None
    max_in_flight: int | None
    max_constructing: int | None
    lag_threshold: float | None
    autoreset_mode: AutoresetMode
    reset_seed: ResetSeed | None
    faults: FaultPolicy | None = None

    @property
    def lanes(self) -> int:
        """How many of the slots can be at work at the same time: slot i has lane i mod lanes."""
        if self.runner == "thread":
            return self.count if self.threads is None else min(self.threads, self.count)
        return self.count if self.runner == "asyncio" else 1

    def make_runner(
        self, loop: AbstractEventLoop | None = None, *, watched: bool = False
    ) -> Runner:
        """The runner, with its slots, none of which is built.

        Args:
            loop: For coroutines: the running loop to use; None for one in a thread.
            watched: Whether the runner has to look after deadlines itself, as the pool can't.
        """
        timed = self.faults is not None
        check: Check = "shape" if self.faults is None else self.faults.check
        slots = [
            Slot(self.first + position, self.autoreset_mode, self.reset_seed, check)
            for position in range(self.count)
        ]
        if self.runner == "thread":
            return ThreadRunner(slots, self.threads, timed)
        if self.runner == "asyncio":
            from agymc.runners.coroutines import CoroutineRunner  # imports asyncio

            return CoroutineRunner(
                slots,
                loop,
                max_in_flight=self.max_in_flight,
                max_constructing=self.max_constructing,
                lag_threshold=self.lag_threshold,
                timed=timed,
            )
        return SerialRunner(slots, timed, self.faults if watched else None)


def share_limit(name: str, limit: int | None, count: int) -> list[int | None]:
    """What each of ``count`` workers may do so that all together keep the limit.

    Raises:
        ConfigurationError: There would be workers that may do nothing.
    """
    if limit is None:
        return [None] * count
    if limit < count:
        raise ConfigurationError(
            f"expected {name} to be at least {count}, the number of workers, got {limit}"
        )
    return [limit // count + (number < limit % count) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker process ended when it should not have.

    Attributes:
        exit_code: The exit code, None when a signal ended it.
        signal: The name of that signal, or None.
        reason: What else is known of its end, or None.
    """

    exit_code: int | None
    signal: str | None
    reason: str | None = None

    def __str__(self) -> str:
        if self.reason is not None:
            return self.reason
        return f"killed by {self.signal}" if self.signal else f"exit code {self.exit_code}"


class Worker(ABC):
    """Owns the slots ``first`` to ``first + count - 1`` of a pool."""

    #: Set once the worker can answer no more.
    death: Death | None = None
    #: Since when it can build envs, by `time.perf_counter`; infinity for not yet.
    ready_at = 0.0
    #: When it last told of something that has ended.
    heard_at = 0.0
    #: Whether it sees to deadlines itself, as the pool is not waiting while its envs run.
    looks_after_itself = False
    #: Whether its envs can be ended by force, all together.
    in_process_of_its_own = False

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
        """Begin what was prepared. An order begins once, however often it is given."""

    def allocate(self, spec: BuffersSpec) -> Buffers:
        """The buffers of the whole pool, in memory that all workers of this kind can reach."""
        return spec.allocate()

    @abstractmethod
    def attach(self, spec: BuffersSpec, buffers: Buffers) -> None:
        """Let the slots write into the buffers of the pool; all are built by then."""

    @abstractmethod
    def collect(self) -> list[Completion]:
        """The operations that have ended since the last call. Sets `death` when there is one."""

    def work(self, need: int, deadline: float | None) -> bool:
        """Lend the calling thread to the envs, where they need it; see `Runner.work`."""
        return False

    @abstractmethod
    def arm(self, need: int) -> Sequence[int]:
        """Descriptors of which one becomes readable when ``need`` operations have ended.

        An empty sequence means that there is nothing to wait for: call `collect` or `work`.
        """

    @abstractmethod
    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        """Change how many coroutines may run at the same time; see `Runner.set_limits`."""

    @abstractmethod
    def interrupt(self, position: int) -> None:
        """Have this env stop what it is doing, as far as it lets itself be stopped."""

    @abstractmethod
    def give_up(self, position: int) -> GivenUp:
        """End what this env is doing by force, see `Runner.abandon`. May set `death`."""

    @abstractmethod
    def renewed(self, spec: ShardSpec) -> Worker:
        """Another worker of this kind, whose envs are to be restarted. May raise OSError."""

    def crash_stack(self) -> str:
        """Where the worker was when a signal killed it, as far as it could say so."""
        return ""

    def abandoned_alive(self) -> int:
        """How many threads and tasks that were given up go on."""
        return 0

    @property
    def stale_replies(self) -> int:
        """How many results of envs that were given up came after all."""
        return 0

    @property
    def blocked(self) -> Sequence[BlockedLoop]:
        """Where envs have blocked an event loop, as far as it is known here."""
        return ()

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

    def plan_close(self, deadline: float) -> Plan[list[str]]:
        """Begin to close, and do as much of the waiting as an event loop must do itself.

        `end_close` follows. Gives what went wrong.
        """
        self.begin_close()
        return []
        yield  # a generator, like those that do wait

    @abstractmethod
    def abandon(self) -> None:
        """Forget everything without touching what belongs to another process, after a fork."""
