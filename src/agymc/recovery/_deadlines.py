"""Who is late: looks after what envs do, interrupts, and gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from agymc.commands import Command, Fault, RemoteTraceback, timeouts_of
from agymc.errors import EnvTimeoutError
from agymc.faults import FaultPolicy
from agymc.ledger import Ledger
from agymc.recovery._repairs import Repair
from agymc.runners.base import GivenUp
from agymc.shards import Shards
from agymc.workers.base import Worker

__all__ = ["Deadlines", "Suspect"]

_UNREADY = 60.0  # seconds that a process gets to import what it needs, beyond the startup timeout
_RECHECK = 0.01  # seconds


@dataclass(slots=True)
class Suspect:
    """An operation that has missed its deadline, and was interrupted.

    Attributes:
        number: Of the operation.
        since: When the env was called.
        timeout: What it had missed, in seconds.
        give_up_at: When the grace is over.
        given_up: How it was given up, if it was: "its process was killed", ...
        stack: Where it hung, as far as is known.
    """

    number: int
    since: float
    timeout: float
    give_up_at: float
    given_up: str = ""
    stack: str = ""


class Deadlines:
    """Looks after the operations in flight of a pool.

    Args:
        policy: The deadlines.
        ledger: Knows what is in flight.
        shards: The workers.
        engine: The engine's name, for error texts.

    Attributes:
        timeouts: (num_envs,) how often each env has missed a deadline.
        suspects: Who is late now, by slot.
    """

    def __init__(self, policy: FaultPolicy, ledger: Ledger, shards: Shards, engine: str) -> None:
        self.timeouts = np.zeros(ledger.num_envs, np.int64)
        self.suspects: dict[int, Suspect] = {}
        self._policy = policy
        self._ledger = ledger
        self._shards = shards
        self._engine = engine
        self._limits = np.array(timeouts_of(policy))
        self._shortest = float(min(self._limits.min(), policy.episode_timeout or inf))

    # ------------------------------------------------------------------ what has ended

    def forget(self, ids: Iterable[int]) -> None:
        """These slots have ended what they did."""
        if self.suspects:
            for index in ids:
                self.suspects.pop(index, None)

    def take_suspect(self, index: int, fault: Fault | None) -> Suspect | None:
        """What is known of an operation that has ended with a fault, if it was late. Counts it."""
        suspect = self.suspects.pop(index, None)
        if suspect is None and fault is not None and fault.late:
            # Its runner saw to the deadline.
            suspect = Suspect(0, 0.0, float(self._limits[self._ledger.command(index)]), 0.0)
        if suspect is not None:
            self.timeouts[index] += 1
        return suspect

    def error(
        self, index: int, suspect: Suspect, operation: str, fault: Fault | None = None
    ) -> EnvTimeoutError:
        """What is raised for an env that was late.

        Args:
            index: The env.
            suspect: What is known of it.
            operation: What it was doing.
            fault: How it ended after all, if it did.
        """
        seed = self._ledger.seeds[index]
        then = suspect.given_up or "it was interrupted"
        error = EnvTimeoutError(
            f"env {index} did not answer within {suspect.timeout:g} s in {operation}, and {then} "
            f"(engine {self._engine!r}, seed {seed})",
            env_ids=[index],
            operation=operation,
            engine=self._engine,
            seed=seed,
        )
        if fault is not None:
            error.__cause__ = fault.exception
        elif suspect.stack:
            error.__cause__ = RemoteTraceback(f"It hung in:\n{suspect.stack}")
        return error

    def at_work(self, worker: Worker, doing: list[int]) -> set[int]:
        """Whose env was being called when the worker died: those that may be to blame.

        Args:
            worker: The worker.
            doing: Its slots that have an operation in flight.
        """
        buffers, begun_at = self._ledger.buffers, self._ledger.begun_at
        assert begun_at is not None
        if buffers is None or not doing:
            return set(doing)
        ids = np.array(doing)
        began = buffers.began[ids]
        called = began >= begun_at[ids]
        if not called.any():
            return set(doing)
        if worker.spec.lanes == 1:  # one after the other: the last that was called
            return {int(ids[int(np.where(called, began, -inf).argmax())])}
        return set(ids[called].tolist())

    # ------------------------------------------------------------------ what is in flight

    def look(
        self,
        now: float,
        repairs: Mapping[int, Repair],
        given_up: Callable[[Worker, int, Suspect, GivenUp], None],
    ) -> float:
        """See to operations that have missed their deadlines.

        Args:
            now: The time.
            repairs: Slots that wait for a restart, or for its end.
            given_up: Is told of an env that was given up without its process.

        Returns:
            When to look again.
        """
        if self._shortest == inf:
            return inf
        again = now + self._shortest  # nothing that begins from now on can be late before
        flying = self._ledger.is_flying()
        commands = self._ledger.commands()
        for index, repair in repairs.items():
            flying[index] &= repair.begun
            commands[index] = Command.RESTART
        if not flying.any():
            self.suspects.clear()
            return again
        for worker in list(self._shards.workers):
            if worker.death is None and not worker.looks_after_itself:
                for index, since, timeout in self._running(worker, flying, commands):
                    suspect = self._suspect(worker, index, since, timeout, now)
                    if suspect is None:
                        again = min(again, since + timeout)
                        continue
                    if now >= suspect.give_up_at and not suspect.given_up:
                        self._give_up(worker, index, suspect, given_up)
                        suspect.give_up_at = now + self._policy.grace
                    again = min(again, max(suspect.give_up_at, now + _RECHECK))
        return again

    def _suspect(
        self, worker: Worker, index: int, since: float, timeout: float, now: float
    ) -> Suspect | None:
        """An operation that is late; it is interrupted when that is found. None: it is in time."""
        buffers = self._ledger.buffers
        number = 0 if buffers is None else int(buffers.requested[index])
        suspect = self.suspects.get(index)
        if suspect is not None and (suspect.number, suspect.since) != (number, since):
            del self.suspects[index]  # it has gone on
            suspect = None
        if suspect is None and now >= since + timeout:
            suspect = Suspect(number, since, timeout, now + self._policy.grace)
            self.suspects[index] = suspect
            if buffers is not None:
                buffers.interrupted[index] = number
            worker.interrupt(index - worker.first)
        return suspect

    @staticmethod
    def _give_up(
        worker: Worker,
        index: int,
        suspect: Suspect,
        tell: Callable[[Worker, int, Suspect, GivenUp], None],
    ) -> None:
        given_up = worker.give_up(index - worker.first)
        if not given_up.positions:
            return
        suspect.stack = given_up.stack
        if worker.in_process_of_its_own:
            suspect.given_up = "its process was killed"  # its death is noted like any other
        else:
            suspect.given_up = "it could not be stopped and was abandoned"
            tell(worker, index, suspect, given_up)

    def _running(
        self, worker: Worker, flying: NDArray[np.bool_], commands: NDArray[np.int8]
    ) -> list[tuple[int, float, float]]:
        """What the worker's envs do: (slot, since when, how long it may take)."""
        slots = self._shards.slots_of(worker)
        ids = np.array([index for index in slots if flying[index]], np.int64)
        if not len(ids):
            return []
        ledger, buffers, limits = self._ledger, self._ledger.buffers, self._limits
        assert ledger.begun_at is not None
        begun_at = ledger.begun_at[ids]
        lanes = worker.spec.lanes
        began = np.zeros(len(ids)) if buffers is None else buffers.began[ids]
        called = began >= begun_at
        if buffers is None or not called.any():
            # Nothing is known of its envs: they are built in order, or it does not get to them.
            heard = max(worker.heard_at, worker.ready_at)
            patience = 0.0
            if heard == inf:
                heard, patience = 0.0, _UNREADY
            _, firsts = np.unique((ids - worker.first) % lanes, return_index=True)
            return [
                (
                    int(ids[i]),
                    max(heard, float(begun_at[i])),
                    float(limits[commands[ids[i]]]) + patience,
                )
                for i in firsts
            ]
        timeouts = limits[commands[ids]]
        steps = commands[ids] == Command.STEP
        if self._policy.episode_timeout is not None:
            used = buffers.env_seconds[ids] - buffers.episode_base[ids]
            left = np.maximum(self._policy.episode_timeout - used, 0.0)
            timeouts = np.where(steps, np.minimum(timeouts, left), timeouts)
        reset_began = buffers.reset_began[ids]
        resetting = (reset_began >= began) & (steps | (commands[ids] == Command.RESTART))
        since = np.where(resetting, reset_began, began)
        timeouts = np.where(resetting, limits[Command.RESET], timeouts)
        chosen = np.flatnonzero(called)
        if lanes < worker.count:  # of those that share a lane, the last that was called runs
            order = chosen[np.argsort(began[chosen], kind="stable")]
            by_lane = {int(ids[i] - worker.first) % lanes: int(i) for i in order}
            chosen = np.array(list(by_lane.values()))
        columns = ids[chosen].tolist(), since[chosen].tolist(), timeouts[chosen].tolist()
        return list(zip(*columns, strict=True))
