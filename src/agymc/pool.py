"""The pool: it drives the workers, and keeps the ledger. The heart.

A call of a door becomes operations of slots. The pool asks the ledger whether they may begin, has
the workers prepare them (which can still fail, on an argument that can't be pickled, say), notes
that they have begun, and dispatches them. Later it collects what has ended, waits where the caller
wants to wait, and hands out what is ready.

What may have to wait is written as a plan (see `agymc.waiting`), which the sync doors carry out by
blocking and the asyncio door by awaiting: `plan_receive` and its like. Waiting is in one place,
`_plan_wait`: it lends the calling thread to envs that live in it, or yields what to wait for, all
workers at once, so that completion, death and deadline wake it alike.

A pool belongs to the process that made it and is used by one thread at a time; nothing here is
locked. After a fork, the child's copy refuses to work and lets go of its descriptors.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agymc.batching import ObservationMode, PoolSpaces, unite
from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, EnvReport, RemoteTraceback
from agymc.endings import CLOSE_TIMEOUT, end
from agymc.errors import (
    BusyError,
    ClosedError,
    NothingInFlightError,
    RecvTimeoutError,
    WorkerDiedError,
)
from agymc.faults import FaultPolicy
from agymc.forks import in_forked_child
from agymc.infos import merge
from agymc.ledger import IdArray, Ledger, Line, listed, name_of
from agymc.recovery import Recovery
from agymc.shards import Order, Shards
from agymc.spaces import detach
from agymc.statistics import Statistics, quantiles
from agymc.types import AutoresetMode, Batch, EnvFn, Fairness, ResetSeed
from agymc.waiting import Look, Plan, Wait, await_on, block_on, in_thread
from agymc.workers.base import Worker, share_limit

__all__ = ["CLOSE_TIMEOUT", "IdArray", "Pool"]

RESET_PATIENCE = 5.0
"""Seconds that a reset of all envs waits for what is in flight."""

_LOOK = 5e-4  # seconds
_SEND_SECONDS = 0.02  # after which a worker that has noted an end has surely told it


class Pool:
    """Runs the operations of ``num_envs`` slots on workers.

    Args:
        workers: The workers, whose shards cover the slots in order. The pool owns them.
        resources: What to close after the workers.
        engine: The engine's name, for error texts.
        autoreset_mode: As the workers have it.
        fairness: Whose results are handed out first.
        faults: What to do about faults; None: nothing but to raise them.
        reset_seed: As the workers have it.

    Attributes:
        num_envs: The number of slots.
        closed: Whether `close` was called.
        ledger: The bookkeeping.
        shards: Which worker has which slot.
        recovery: What is done about faults, or None.
        reports: What each env said of itself when it was built.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        resources: Sequence[Any],
        *,
        engine: str,
        autoreset_mode: AutoresetMode,
        fairness: Fairness = "arrival",
        faults: FaultPolicy | None = None,
        reset_seed: ResetSeed | None = None,
    ) -> None:
        self.shards = Shards(workers)
        self.workers = self.shards.workers
        self.engine = engine
        self.num_envs = sum(worker.count for worker in workers)
        self.ledger = Ledger(
            self.num_envs,
            engine,
            autoreset_mode,
            fairness,
            timed=faults is not None,
            keep_last=faults is not None and faults.restarts,
        )
        self.recovery = (
            None
            if faults is None
            else Recovery(faults, self.ledger, self.shards, engine, reset_seed)
        )
        self.reports: list[EnvReport] = []
        self.closed = False
        self._pid = os.getpid()
        in_forked_child(self, _disown)  # which then need not ask for the process each time
        self._finalizer = weakref.finalize(self, end, self.workers, resources, self._pid)
        self._dead: list[Worker] = []
        self._torn = False  # whether the last `_collect` was interrupted
        self._waited = 0.0  # seconds
        # Where a shard lives in this thread, its CPU is ours while the others still work.
        self._looks = len(workers) > 1 and any(worker.looks_after_itself for worker in workers)
        self._look = Look(_LOOK)
        self._waiting = False  # whether somebody waits for what the workers were armed for

    @property
    def buffers(self) -> Buffers:
        """The buffers; there are none before `build`."""
        assert self.ledger.buffers is not None
        return self.ledger.buffers

    def local_envs(self) -> list[Any]:
        """The envs that live in the caller's process."""
        return [env for worker in self.workers for env in worker.local_envs()]

    # ------------------------------------------------------------------ construction

    def build(self, env_fns: Sequence[EnvFn], mode: ObservationMode, name: str) -> PoolSpaces:
        """Build all envs, concurrently, and lay out the buffers.

        Args:
            env_fns: One function per env.
            mode: How observation spaces may differ.
            name: The door's, for error texts.

        Raises:
            EnvError: An env function raised; its exception is the cause. Everything is closed.
            SpaceMismatchError: The envs do not fit one batch. Everything is closed.
        """
        try:
            return block_on(self.plan_build(env_fns, mode, name))
        except BaseException:
            self.close()
            raise

    def plan_build(
        self, env_fns: Sequence[EnvFn], mode: ObservationMode, name: str
    ) -> Plan[PoolSpaces]:
        """The plan of `build`, but that closing after an error is left to who carries it out."""
        if self.recovery is not None:
            self.recovery.env_fns = env_fns
        self.reports = yield from self.plan_request(Command.BUILD, None, env_fns)
        spaces = unite(self.reports, mode, name, coroutines=self.engine.endswith("asyncio"))
        spec = BuffersSpec(
            self.num_envs,
            spaces.single_observation_space,
            spaces.single_action_space,
            spaces.reward_shape,
        )
        self.ledger.buffers = self.shards.attach(spec)
        return spaces

    # ------------------------------------------------------------------ sending

    def submit_steps(
        self, actions: Any, env_ids: IdArray | None = None, *, check: bool = True
    ) -> None:
        """Write the actions and begin the steps; or raise and begin none.

        Args:
            actions: A batch of k actions, see `Layout.write_batch`.
            env_ids: (k,) different envs; None for all.
            check: Whether to refuse actions that are outside of their space.

        Raises:
            ActionError: And whatever `submit` raises.
        """
        self._check(Command.STEP, env_ids)
        buffers = self.buffers
        buffers.action_layout.write_batch(
            buffers.actions,
            actions,
            env_ids,
            self.num_envs,
            check=check,
            unused=self.ledger.about_to_reset(env_ids),
        )
        self._begin(Command.STEP, env_ids, None)

    def submit_resets(
        self,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        env_ids: IdArray | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Begin resets, with one seed per env; each env gets its own copy of the options.

        With ``alone``, nothing else may be in flight: all rows of the buffers are to be read.
        """
        if alone and self.ledger.transitions.flying:
            busy = self.ledger.flying(self.ledger.transitions)
            raise BusyError(f"can't reset: {listed(busy)} busy; receive the results first", "step")
        payloads = [(seed, detach(options)) for seed in seeds]
        ids = range(self.num_envs) if env_ids is None else env_ids.tolist()
        self.submit(Command.RESET, env_ids, payloads)
        if self.recovery is not None:
            self.recovery.note_resets(ids, payloads)
        for index, seed in zip(ids, seeds, strict=True):
            if seed is not None:
                self.ledger.seeds[index] = seed

    def submit(self, command: Command, env_ids: IdArray | None, payloads: Sequence[Any]) -> None:
        """Begin an operation of some envs; or raise and begin none.

        Args:
            command: What to do.
            env_ids: (k,) different envs; None for all.
            payloads: One per env.

        Raises:
            ClosedError: The pool is closed.
            WorkerDiedError: An env's worker is gone.
            ResetNeededError: A step of an env that must be reset first.
            BusyError: An env has an operation in flight, or its result was not received.
        """
        self._check(command, env_ids)
        self._begin(command, env_ids, payloads)

    def request(
        self, command: Command, env_ids: IdArray | None, payloads: Sequence[Any]
    ) -> list[Any]:
        """Do something that is neither step nor reset with each env; one result per env."""
        return block_on(self.plan_request(command, env_ids, payloads))

    def plan_request(
        self, command: Command, env_ids: IdArray | None, payloads: Sequence[Any]
    ) -> Plan[list[Any]]:
        """The plan of `request`."""
        yield from self.plan_settle(env_ids)
        self.submit(command, env_ids, payloads)
        yield from self.plan_receive_requests(None)
        return [reply.value for reply in self.ledger.take_replies(env_ids)]

    def check_open(self) -> None:
        """Raise ClosedError when the pool was closed, or belongs to another process."""
        if os.getpid() != self._pid:
            raise ClosedError(
                f"these environments belong to process {self._pid}, and this is process "
                f"{os.getpid()}, forked from it: make new ones here"
            )
        if self.closed:
            raise ClosedError("expected open environments, these were closed by close()")

    def _check(self, command: Command, env_ids: IdArray | None) -> None:
        self.check_open()
        if self.ledger.unwanted and not self._waiting:  # who waits collects, and is not to miss it
            self._collect()
        for worker in self._dead if self.recovery is None else ():
            last = worker.first + worker.count - 1
            if env_ids is None or ((env_ids >= worker.first) & (env_ids <= last)).any():
                raise self._death_error(worker, name_of(command))
        if self.recovery is not None and self.recovery.any_lost:
            self.recovery.check_request(command, env_ids)
        self.ledger.check(command, env_ids)

    def _begin(
        self, command: Command, env_ids: IdArray | None, payloads: Sequence[Any] | None
    ) -> None:
        recovery = self.recovery
        lost = recovery.lost(env_ids) if recovery is not None and recovery.any_lost else ()
        if lost:
            orders = self._orders_without(lost, command, env_ids, payloads)
        else:
            orders = self.shards.prepare(command, env_ids, payloads)
        # From here on nothing can fail. Ctrl-C can come, and must not leave it half done: what the
        # ledger waits for and no worker has begun would be waited for until the end of time.
        begun = self.ledger.begun
        try:
            self.ledger.begin(command, env_ids)
            self._dispatch(orders, lost)
        except BaseException:
            if self.ledger.begun == begun:
                self.ledger.begin(command, env_ids)
            self._dispatch(orders, lost)
            raise

    def _orders_without(
        self,
        lost: Sequence[int],
        command: Command,
        env_ids: IdArray | None,
        payloads: Sequence[Any] | None,
    ) -> list[Order]:
        """The orders for slots that have an env."""
        ids = np.arange(self.num_envs) if env_ids is None else env_ids
        there = np.flatnonzero(~np.isin(ids, lost))
        if not len(there):
            return []
        part = None if payloads is None else [payloads[int(i)] for i in there]
        return self.shards.prepare(command, ids[there], part)

    def _dispatch(self, orders: Sequence[Order], lost: Sequence[int]) -> None:
        """Can be done again, which does what was not done yet."""
        for worker, order in orders:
            worker.dispatch(order)
        if lost:
            assert self.recovery is not None
            self.recovery.begin_lost(lost)

    # ------------------------------------------------------------------ receiving

    @property
    def in_flight(self) -> int:
        """The transitions that were sent and not received."""
        return len(self.ledger.transitions)

    def receive(
        self, min_ready: int | None, max_ready: int | None, timeout: float | None
    ) -> IdArray:
        """Wait for transitions and hand out their envs; the data is in the buffers.

        Args:
            min_ready: Wait for so many; None, or more than are in flight: for all in flight.
            max_ready: Hand out no more than so many; None for no limit.
            timeout: Seconds for the whole call; None for no limit.

        Returns:
            (k,) the envs, in the order in which they are handed out.

        Raises:
            NothingInFlightError: Nothing was sent.
            RecvTimeoutError: The time is over; nothing is lost.
            EnvError: An env failed. The other results stay ready.
        """
        return block_on(self.plan_receive(min_ready, max_ready, timeout))

    def plan_receive(
        self, min_ready: int | None, max_ready: int | None, timeout: float | None
    ) -> Plan[IdArray]:
        """The plan of `receive`."""
        self.check_open()
        line = self.ledger.transitions
        if not len(line):
            raise NothingInFlightError(
                "expected something in flight, got recv() before send() or send_reset()"
            )
        need = len(line) if min_ready is None else min(min_ready, len(line))
        yield from self._plan_wait(line, need, timeout)
        self._raise_errors(line)
        return self.ledger.take(max_ready)

    def receive_all(self, timeout: float | None, only: IdArray | None = None) -> IdArray | None:
        """Wait for all transitions in flight, and hand them out.

        Other than in `receive`, errors are raised only when everything has ended.

        Args:
            timeout: Seconds for the whole call; None for no limit.
            only: (k,) hand out only those of these envs; what else is ready stays so.

        Returns:
            (k,) the envs, in order; None when these are all envs of the pool.
        """
        return block_on(self.plan_receive_all(timeout, only))

    def plan_receive_all(
        self, timeout: float | None, only: IdArray | None = None
    ) -> Plan[IdArray | None]:
        """The plan of `receive_all`."""
        if self.closed:
            self.check_open()
        line = self.ledger.transitions
        yield from self._plan_wait(line, len(line), timeout, barrier=True)
        self._raise_errors(line)
        if only is None and self.ledger.take_all():
            return None
        return np.sort(self.ledger.take(None, only))

    def receive_requests(self, timeout: float | None) -> None:
        """Wait for all requests in flight; the ledger's `take_replies` has what they gave.

        Raises:
            RecvTimeoutError: The time is over; nothing is lost.
            EnvError: An env raised; what the others gave is dropped.
        """
        block_on(self.plan_receive_requests(timeout))

    def plan_receive_requests(self, timeout: float | None) -> Plan[None]:
        """The plan of `receive_requests`."""
        self.check_open()
        line = self.ledger.requests
        try:
            yield from self._plan_wait(line, len(line), timeout, barrier=True)
        except RecvTimeoutError:
            raise
        except BaseException:  # given up: Ctrl-C, or a cancellation. Nobody can ask for them again
            self.ledger.drop_requests()
            raise
        ids = np.array(line.ready, np.int64)
        error = self.ledger.take_errors(line)
        self.ledger.take_requests()
        if error is not None:
            self.ledger.take_replies(ids)
            raise error

    def plan_settle(self, env_ids: IdArray | None, deadline: float | None = None) -> Plan[None]:
        """Wait until no env does what was asked for in a call that was given up.

        Args:
            env_ids: (k,) which envs; None for all.
            deadline: When to stop waiting; None for never.
        """
        in_time = True
        while in_time and self.ledger.is_unwanted(env_ids):
            lent = self._lend_thread(1, deadline)
            self._collect()
            if self.recovery is not None:
                lent |= self.recovery.tend()
            if not lent and self.ledger.is_unwanted(env_ids):
                in_time = yield from self._plan_wake(1, deadline)

    def start_over(self, timeout: float | None = RESET_PATIENCE) -> None:
        """Wait for what is in flight, and drop all that was not received: a reset follows.

        Args:
            timeout: Seconds; None for no limit.

        Raises:
            BusyError: The time is over. Nothing is dropped.
        """
        block_on(self.plan_start_over(timeout))

    def plan_start_over(self, timeout: float | None = RESET_PATIENCE) -> Plan[None]:
        """The plan of `start_over`."""
        self.check_open()
        line = self.ledger.transitions
        if line.flying or self.ledger.unwanted:
            deadline = None if timeout is None else perf_counter() + timeout
            yield from self.plan_settle(None, deadline)
            left = None if deadline is None else max(0.0, deadline - perf_counter())
            try:
                yield from self._plan_wait(line, len(line), left, barrier=True)
            except RecvTimeoutError:
                busy = self.ledger.flying(line)
                doing = self.ledger.doing(busy[0])
                raise BusyError(
                    f"can't reset: {doing!r} is still in flight after {timeout} s, for "
                    f"{listed(busy)}; receive it first",
                    doing,
                ) from None
        self.discard()

    def batch(self, env_ids: IdArray, send: Callable[[Any, IdArray], None]) -> Batch:
        """What `receive` handed out, as the caller's own.

        Args:
            env_ids: (k,) what it returned.
            send: What `Batch.reply` calls with actions and these envs.
        """
        buffers, ledger = self.buffers, self.ledger
        return Batch(
            env_ids,
            buffers.observation_layout.batch(buffers.observations, env_ids),
            buffers.rewards[env_ids],
            buffers.terminations[env_ids],
            buffers.truncations[env_ids],
            merge(ledger.take_infos(env_ids), len(env_ids)),
            ledger.episodes.ids[env_ids],
            ledger.episodes.steps[env_ids],
            send,
        )

    def discard(self) -> None:
        """Drop transitions that are ready and were not received."""
        self._collect()
        self.ledger.discard()

    def _raise_errors(self, line: Line) -> None:
        error = self.ledger.take_errors(line)
        if error is not None:
            raise error

    # ------------------------------------------------------------------ waiting

    def _plan_wait(
        self, line: Line, need: int, timeout: float | None, *, barrier: bool = False
    ) -> Plan[None]:
        """Wait until ``need`` operations of the line have ended, or one of them with an error.

        With ``barrier`` an error does not end the wait.
        """
        deadline = None if timeout is None else perf_counter() + timeout
        in_time = True
        while True:
            lent = self._lend_thread(need - len(line.ready), deadline)
            self._collect()
            if self.recovery is not None:
                lent |= self.recovery.tend()
            missing = need - len(line.ready)
            if missing <= 0 or (not barrier and self.ledger.has_errors(line)):
                return
            if in_time:
                if lent:
                    in_time = deadline is None or perf_counter() < deadline
                else:
                    in_time = yield from self._plan_wake(missing, deadline)
                continue
            raise RecvTimeoutError(
                f"expected {need} results within {timeout} s, got {len(line.ready)}; waiting for "
                f"{listed(self.ledger.flying(line))}. Nothing is lost: receive again"
            )

    def _plan_wake(self, missing: int, deadline: float | None) -> Plan[bool]:
        """Wait until so many operations can have ended; False when the deadline passed first."""
        descriptors: list[int] | None = self._arm(missing)
        look = None
        if self.recovery is not None:
            look = self.recovery.next_look()
            if not descriptors and self.recovery.busy:
                descriptors = None
        if descriptors is not None and not descriptors:
            # Nothing runs and nothing is about to: Ctrl-C came between a runner and its work.
            self.ledger.lose(self.ledger.flying_in(0, self.num_envs))
            return True
        self._waiting = True
        begin = perf_counter()
        try:
            if look is None or (deadline is not None and deadline <= look):
                return (yield Wait(descriptors, deadline, self._look.seconds))
            yield Wait(descriptors, None if look == inf else look, self._look.seconds)
            return True
        finally:
            self._waiting = False
            waited = perf_counter() - begin
            self._waited += waited
            if self._looks:
                self._look.note(waited)

    def _lend_thread(self, missing: int, deadline: float | None) -> bool:
        """Run envs that live in this thread; False when there are none with work to do."""
        lent = False
        if missing > 0:
            for worker in self.workers:
                lent |= worker.work(missing, deadline)
        return lent

    def _arm(self, missing: int) -> list[int]:
        """Descriptors that are readable when something may have happened."""
        ledger = self.ledger
        flying = ledger.transitions.flying + ledger.requests.flying + len(ledger.unwanted)
        descriptors: list[int] = []
        for worker in self.workers:
            if worker.death is not None:
                continue
            # Wake when the missing results can be there, however they are spread over the workers.
            others = flying - min(worker.count, flying)
            descriptors += worker.arm(max(1, missing - others))
        return descriptors

    def _collect(self) -> None:
        """Take in what has ended. Never blocks."""
        ended: NDArray[np.int64] | None = None
        if self._torn and self.ledger.buffers is not None:
            ended = self.buffers.completed.copy()
            sleep(_SEND_SECONDS)
        self._torn = True  # until the end: Ctrl-C may come anywhere
        for worker in self.workers:
            for completion in worker.collect():
                if self.recovery is not None:
                    worker.heard_at = perf_counter()
                self.ledger.note(worker.first, worker.count, completion)
            if worker.death is None or worker in self._dead:
                continue
            if self.recovery is not None:
                slots, flying = self.shards.slots_of(worker), self.ledger.is_flying()
                doing = [index for index in slots if flying[index]]
                error = self._death_error(worker, self.ledger.doing((doing or slots)[0]))
                self._dead.append(worker)
                self.recovery.on_death(worker, doing, error)
            else:
                self._dead.append(worker)
                self._dead.sort(key=lambda dead: dead.first)
                lost = self.ledger.flying_in(worker.first, worker.count)
                if lost:
                    error = self._death_error(worker, self.ledger.doing(lost[0]))
                    self.ledger.note_death(lost, error)
        if self._dead and self.recovery is not None:
            self._dead = [worker for worker in self._dead if worker in self.workers]
        if ended is not None:
            self.ledger.reconcile(ended)
        self._torn = False

    def _death_error(self, worker: Worker, operation: str) -> WorkerDiedError:
        death = worker.death
        assert death is not None
        ids = self.shards.slots_of(worker)
        gone = "Its env is" if len(ids) == 1 else "Its envs are"
        error = WorkerDiedError(
            f"the worker process of {listed(ids)} died ({death}) in {operation} "
            f"(engine {self.engine!r}). {gone} gone; the others can go on",
            exit_code=death.exit_code,
            signal=death.signal,
            env_ids=list(ids),
            operation=operation,
            engine=self.engine,
        )
        stack = worker.crash_stack()
        if stack:
            error.__cause__ = RemoteTraceback(f"It died in:\n{stack}")
        return error

    # ------------------------------------------------------------------ state

    def statistics(self) -> Statistics:
        """What has happened so far."""
        ledger, buffers, recovery = self.ledger, self.buffers, self.recovery
        queue_p50, queue_p99 = quantiles(buffers.times[:, 0])
        env_p50, env_p99 = quantiles(buffers.times[:, 1])
        nothing = np.zeros(self.num_envs, np.int64)
        return Statistics(
            received=ledger.episodes.received,
            steps=ledger.episodes.steps_taken,
            episodes=ledger.episodes.ids + 1,
            in_flight=len(ledger.transitions),
            waiting_for=tuple(ledger.flying(ledger.transitions)),
            stragglers=() if recovery is None else tuple(sorted(recovery.deadlines.suspects)),
            stale_replies=ledger.stale_replies + sum(one.stale_replies for one in self.workers),
            waiting_seconds=self._waited,
            operations=buffers.operations.copy(),
            queue_seconds=buffers.queue_seconds.copy(),
            queue_p50=queue_p50,
            queue_p99=queue_p99,
            env_seconds=buffers.env_seconds.copy(),
            env_p50=env_p50,
            env_p99=env_p99,
            restarts={}
            if recovery is None
            else {kind: counts.copy() for kind, counts in recovery.budget.restarts.items()},
            collateral=nothing if recovery is None else recovery.budget.collateral.copy(),
            timeouts=nothing.copy() if recovery is None else recovery.deadlines.timeouts.copy(),
            abandoned=sum(worker.abandoned_alive() for worker in self.workers),
            blocked=tuple(found for worker in self.workers for found in worker.blocked),
        )

    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        """Change how many coroutines may run at the same time, in all workers together.

        Raises:
            ConfigurationError: A limit is less than the number of workers.
        """
        self.check_open()
        count = len(self.workers)
        shares = zip(
            share_limit("max_in_flight", max_in_flight, count),
            share_limit("max_constructing", max_constructing, count),
            strict=True,
        )
        for worker, (operations, constructions) in zip(self.workers, shares, strict=True):
            worker.set_limits(operations, constructions)

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all envs, give them ``timeout`` seconds for it, then end by force. Idempotent."""
        self.closed = True
        detached = self._finalizer.detach()
        if detached is not None:
            workers, resources, pid = detached[2]
            try:
                problems = end(workers, resources, pid, timeout)
            finally:
                if self.ledger.buffers is not None:
                    self.ledger.buffers.release()
            for problem in problems:
                warnings.warn(f"agymc: {problem}", RuntimeWarning, stacklevel=3)

    async def aclose(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Like `close`, for a pool that lives in the running event loop. Never blocks the loop."""
        self.closed = True
        if not self._finalizer.alive:
            return
        deadline = perf_counter() + timeout
        problems: list[str] = []
        try:
            for worker in self.workers:
                problems += await await_on(worker.plan_close(deadline))
        finally:
            detached = self._finalizer.detach()
            if detached is not None:
                workers, resources, pid = detached[2]
                left = max(0.0, deadline - perf_counter())
                try:
                    problems += await in_thread(lambda: end(workers, resources, pid, left))
                finally:
                    if self.ledger.buffers is not None:
                        self.ledger.buffers.release()
        for problem in problems:
            warnings.warn(f"agymc: {problem}", RuntimeWarning, stacklevel=2)


def _disown(pool: Pool) -> None:
    pool.closed = True
