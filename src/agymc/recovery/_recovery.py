"""The recovery of a pool: sees faults, and decides what becomes of them."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agymc.commands import Command, Fault, Reply, text_of
from agymc.errors import EnvError, WorkerDiedError
from agymc.faults import FaultKind, FaultPolicy, FaultRecord
from agymc.ledger import Ledger, Replies, listed, name_of
from agymc.recovery._budget import Budget
from agymc.recovery._deadlines import Deadlines, Suspect
from agymc.recovery._repairs import Repair, ResetArguments, ending_of, new_repair, restart_of
from agymc.runners.base import GivenUp
from agymc.shards import Shards
from agymc.types import EnvFn, ResetSeed
from agymc.workers.base import Worker

__all__ = ["Recovery"]

_TRANSITIONS = Command.STEP, Command.RESET
# Raised by whoever waits for the env, not by the env.
_NOT_THE_ENVS = KeyboardInterrupt, CancelledError, gymnasium.error.ResetNeeded


class Recovery:
    """Looks after the faults of one pool.

    Args:
        policy: What to do.
        ledger: The pool's bookkeeping.
        shards: Its workers.
        engine: The engine's name, for error texts.
        reset_seed: Gives the seeds of autoresets.

    Attributes:
        policy: As above.
        env_fns: How to make each env; set before anything is built.
        budget: How often each env was restarted, and may be.
        deadlines: Who is late.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        ledger: Ledger,
        shards: Shards,
        engine: str,
        reset_seed: ResetSeed | None,
    ) -> None:
        self.policy = policy
        self.env_fns: Sequence[EnvFn] = ()
        self.budget = Budget(policy, ledger.num_envs, shards.workers)
        self.deadlines = Deadlines(policy, ledger, shards, engine)
        self._ledger = ledger
        self._shards = shards
        self._engine = engine
        self._reset_seed = reset_seed
        self._next_look = -inf
        self._repairs: dict[int, Repair] = {}
        self._lost: dict[int, FaultRecord] = {}
        self._resets: dict[int, ResetArguments] = {}
        ledger.take_over = self.take_over
        ledger.mending = self._repairs.keys
        ledger.late = self.deadlines.suspects.keys

    # ------------------------------------------------------------------ asked by the pool

    @property
    def any_lost(self) -> bool:
        """Whether there are slots that have no env now."""
        return bool(self._lost)

    def lost(self, env_ids: NDArray[np.int64] | None) -> list[int]:
        """Which of these slots have no env now; None for all."""
        if env_ids is None:
            return sorted(self._lost)
        return [index for index in env_ids.tolist() if index in self._lost]

    def check_request(self, command: Command, env_ids: NDArray[np.int64] | None) -> None:
        """Raise where something else than a step or reset is asked of a slot without an env."""
        lost = self.lost(env_ids)
        if lost and command not in _TRANSITIONS:
            record = self._lost[lost[0]]
            then = "step or reset" if self.policy.restarts else "reset"
            raise EnvError(
                f"can't do {name_of(command)!r}: {listed(lost)} not running ({record.exception}); "
                f"{then} restarts it",
                env_ids=lost,
                operation=name_of(command),
                engine=self._engine,
            )

    def note_resets(self, ids: Sequence[int], payloads: Sequence[ResetArguments]) -> None:
        """Remember what these resets were asked with."""
        self._resets.update(zip(ids, payloads, strict=True))

    def begin_lost(self, ids: Sequence[int]) -> None:
        """Begin steps or resets of slots that have no env. Again is no more than once."""
        for index in ids:
            if index in self._lost and self._ledger.is_flying()[index]:
                record = self._lost[index]
                if not self._repair(index, record):
                    fault = Fault(RuntimeError(f"it was lost: {record.exception}"))
                    error = self._ledger.error_of(index, fault)
                    self.budget.refuse(error, index)
                    self._ledger.end(index, Reply(fault=fault, error=error))

    @property
    def busy(self) -> bool:
        """Whether there are repairs, for which no descriptor may tell when to go on."""
        return bool(self._repairs)

    def next_look(self) -> float:
        """When `tend` has something to do next, by `time.perf_counter`."""
        return self._next_look

    def tend(self) -> bool:
        """Begin the repairs that are due, and see to operations that have missed their deadlines.

        Costs one look at the clock where there is nothing to do.

        Returns:
            Whether something was begun: envs that live in the calling thread want it.
        """
        now = perf_counter()
        if now < self._next_look:
            return False
        began = False
        for index, repair in list(self._repairs.items()):
            if not repair.begun and repair.not_before <= now:
                self._start(index, repair)
                began = True
        look = self.deadlines.look(now, self._repairs, self._on_given_up)
        for repair in self._repairs.values():
            if not repair.begun:
                look = min(look, repair.not_before)
        self._next_look = look
        return began

    # ------------------------------------------------------------------ envs that tell of a fault

    def take_over(self, ids: Sequence[int], replies: Replies) -> set[int]:
        """See to faults among operations that have ended; those to be repaired are in flight still.

        Args:
            ids: The slots.
            replies: What they had to say. May be changed.
        """
        kept: set[int] = set()
        faulty = [index for index, reply in replies.items() if reply.fault is not None]
        if self._repairs:
            restarted = [i for i in ids if i in self._repairs and self._repairs[i].begun]
            for index in restarted:
                reply = replies.get(index) or Reply()
                if reply.fault is None:
                    repair = self._repairs.pop(index)
                    replies[index] = ending_of(self._ledger, index, repair, reply)
        for index in faulty:
            reply = replies[index]
            if self._ledger.command(index) not in _TRANSITIONS:
                suspect = self.deadlines.take_suspect(index, reply.fault)
                if suspect is not None:
                    doing = self._ledger.doing(index)
                    reply.error = self.deadlines.error(index, suspect, doing, reply.fault)
            elif self._is_to_be_repaired(index, reply):
                del replies[index]
                kept.add(index)
        self.deadlines.forget(ids)
        return kept

    def _is_to_be_repaired(self, index: int, reply: Reply) -> bool:
        """An env has told of a fault in a step, reset or restart: what becomes of it?"""
        fault = reply.fault
        assert fault is not None
        repair = self._repairs.pop(index, None)
        suspect = self.deadlines.take_suspect(index, fault)
        operation = fault.operation or self._ledger.doing(index)
        text = text_of(fault.exception)
        kind: FaultKind = "bad data" if fault.data else "error"
        if suspect is not None:
            kind, text = "timeout", f"no answer within {suspect.timeout:g} s"
            reply.error = self.deadlines.error(index, suspect, operation, fault)
        elif not fault.data:
            text = f"{type(fault.exception).__name__}: {text}"
        record = FaultRecord(kind, operation, text, fault.lines)
        command = self._ledger.command(index)
        may_be = self.policy.restarts and (
            repair is not None or command is Command.RESET or self._ledger.episodes.ids[index] >= 0
        )
        if may_be and (suspect is not None or not isinstance(fault.exception, _NOT_THE_ENVS)):
            if self._repair(index, record, again=repair, info=reply.info):
                return True
            reply.error = reply.error or self._ledger.error_of(index, fault)
            self.budget.refuse(reply.error, index)
        if repair is not None:
            self._lose(index, record)
        return False

    # ------------------------------------------------------------------ envs that are gone

    def on_death(self, worker: Worker, doing: list[int], error: WorkerDiedError) -> None:
        """A worker process has died.

        Args:
            worker: It, with its `death`.
            doing: Its slots that have an operation in flight.
            error: What is said of it.
        """
        suspects = self.deadlines.suspects
        hung = {i: suspects[i] for i in doing if i in suspects and suspects[i].given_up}
        culprits = set(hung) or self.deadlines.at_work(worker, doing)
        error.env_ids = tuple(index for index in error.env_ids if index not in hung)
        slots = self._shards.slots_of(worker)
        if len(slots) > 1 and len(culprits) == 1:
            self.budget.blame(*culprits)
        died = f"its process died ({worker.death})"
        for index in slots:
            own = index in culprits
            operation = self._doing(index) if index in doing else "idle"
            told: EnvError = error
            if index in hung:
                record = _timed_out(operation, hung[index])
                told = self.deadlines.error(index, hung[index], operation)
            else:
                stack = worker.crash_stack() if own else ""
                record = FaultRecord("crash", operation, died, stack, collateral=not own)
            if index in doing:
                self._cut_off(index, record, told)
            else:
                self._lose(index, record)

    def _on_given_up(
        self, worker: Worker, culprit: int, suspect: Suspect, given_up: GivenUp
    ) -> None:
        """An env that hangs was given up here, with those that need its thread."""
        flying = self._ledger.is_flying()
        for position in given_up.positions:
            index = worker.first + position
            operation = self._doing(index) if flying[index] else "idle"
            record = _timed_out(operation, suspect)
            error = self.deadlines.error(index, suspect, operation)
            if index != culprit:
                shared = f"it shared a thread with env {culprit}, which hung"
                record = FaultRecord("timeout", operation, shared, "", collateral=True)
                text = self.deadlines.error(culprit, suspect, self._doing(culprit)).args[0]
                error.args = (f"env {index} was lost: {shared}: {text}",)
            if flying[index]:
                self._cut_off(index, record, error)
            else:
                self._lose(index, record)

    def _doing(self, index: int) -> str:
        repair = self._repairs.get(index)
        return "restart" if repair is not None and repair.begun else self._ledger.doing(index)

    def _cut_off(self, index: int, record: FaultRecord, error: EnvError) -> None:
        """The env of a slot is gone in the middle of an operation."""
        ledger = self._ledger
        self.deadlines.take_suspect(index, None)
        repair = self._repairs.get(index)
        if repair is not None and not repair.begun:
            return  # it waits for its backoff, and had no env anyway
        self._repairs.pop(index, None)
        if ledger.command(index) not in _TRANSITIONS or index in ledger.unwanted:
            self._lose(index, record)
            ledger.note_death([index], error)
            return
        if self.policy.restarts:
            if self._repair(index, record, again=repair):
                return
            error = _copy_of(error, index)
            self.budget.refuse(error, index)
        self._lose(index, record)
        ledger.note_death([index], error)
        ledger.must_reset(index)

    def _lose(self, index: int, record: FaultRecord) -> None:
        self._lost.setdefault(index, record)
        if not self.policy.restarts:
            self._ledger.must_reset(index)

    # ------------------------------------------------------------------ repairs

    def _repair(
        self,
        index: int,
        record: FaultRecord,
        *,
        again: Repair | None = None,
        info: dict[str, Any] | None = None,
    ) -> bool:
        """Have the env of a slot restarted, if its budget allows that."""
        delay = 0.0
        if record.collateral:
            self.budget.collateral[index] += 1
        else:
            episode = int(self._ledger.episodes.ids[index])
            charged = self.budget.charge(index, record.kind, episode, again is not None)
            if charged is None:
                return False
            delay = charged
        record = replace(record, restarts=self.budget.count(index))
        not_before = perf_counter() + delay
        if again is not None:
            repair = replace(again, record=record, not_before=not_before, begun=False)
        else:
            repair = new_repair(self._ledger, index, record, not_before, info)
        repair.alone = self.budget.is_to_be_moved(index)
        self._lost.pop(index, None)
        self._repairs[index] = repair
        self._next_look = -inf
        return True

    def _start(self, index: int, repair: Repair) -> None:
        """Send the RESTART of a slot whose backoff is over."""
        ledger = self._ledger
        try:
            worker = self._shards.of(index)
            if repair.alone and len(self._shards.slots_of(worker)) > 1:
                worker = self._shards.move(index)
            elif worker.death is not None:
                worker = self._shards.renew(index)
            reset = self._resets.get(index, (None, None))
            env_fn = self.env_fns[index]
            restart = restart_of(ledger, index, repair, env_fn, reset, self._reset_seed)
            order = worker.prepare(Command.RESTART, [index - worker.first], [restart])
        except Exception as error:  # no process can be started, say
            del self._repairs[index]
            self._lose(index, repair.record)
            fault = Fault(error, "restart")
            told = ledger.error_of(index, fault)
            ledger.end(index, Reply(fault=fault, error=told))
            return
        ledger.renumber(index)
        repair.begun = True
        worker.dispatch(order)


def _timed_out(operation: str, suspect: Suspect) -> FaultRecord:
    text = f"no answer within {suspect.timeout:g} s; {suspect.given_up}"
    return FaultRecord("timeout", operation, text, suspect.stack)


def _copy_of(error: EnvError, index: int) -> EnvError:
    """An error that slots share, as that of one of them."""
    kind, args, state = error.__reduce__()[1]
    own: EnvError = kind.__new__(kind, *args)
    own.args = args
    own.__dict__.update(state)
    own.__cause__ = error.__cause__
    own.env_ids = (index,)
    return own
