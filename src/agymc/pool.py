"""The pool: it drives the workers, and keeps the ledger. The heart.

A call of a door becomes operations of slots. The pool asks the ledger whether they may begin, has
the workers prepare them (which can still fail, on an argument that can't be pickled, say), notes
that they have begun, and dispatches them. Later it collects what has ended, waits where the caller
wants to wait, and hands out what is ready.

Waiting is in one place, `_wait`: it lends the calling thread to envs that live in it, or blocks in
one `poll` over all workers, which wakes for completion, death and deadline alike.

A pool belongs to the process that made it and is used by one thread at a time; nothing here is
locked. After a fork, the child's copy refuses to work and lets go of its descriptors.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from agymc.batching import ObservationMode, PoolSpaces, unite
from agymc.bells import wait_readable
from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, EnvReport
from agymc.errors import ClosedError, NothingInFlightError, RecvTimeoutError, WorkerDiedError
from agymc.ledger import IdArray, Ledger, Line, listed, name_of
from agymc.spaces import detach
from agymc.types import AutoresetMode, EnvFn, Fairness
from agymc.workers.base import Worker

__all__ = ["CLOSE_TIMEOUT", "IdArray", "Pool", "Snapshot"]

CLOSE_TIMEOUT = 5.0
"""Seconds that `close` gives the envs, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one env, its random generators included, and of its episode. Can be pickled.

    Attributes:
        state: The env, as the slot saved it.
        observation: The last observation.
        terminated: Whether the episode had been terminated.
        truncated: Whether it had been truncated.
        episode_id: The number of the episode.
        steps: The steps made in it.
        seed: The seed of the last seeded reset.
    """

    state: Any
    observation: Any
    terminated: bool
    truncated: bool
    episode_id: int
    steps: int
    seed: int | None


class Pool:
    """Runs the operations of ``num_envs`` slots on workers.

    Args:
        workers: The workers, whose shards cover the slots in order. The pool owns them.
        resources: What to close after the workers.
        engine: The engine's name, for error texts.
        autoreset_mode: As the workers have it.
        fairness: Whose results are handed out first.

    Attributes:
        num_envs: The number of slots.
        ledger: The bookkeeping.
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
    ) -> None:
        self.workers = list(workers)
        self.engine = engine
        self.num_envs = sum(worker.count for worker in workers)
        self.ledger = Ledger(self.num_envs, engine, autoreset_mode, fairness)
        self.reports: list[EnvReport] = []
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self.workers, resources, self._pid)
        self._bounds = np.array([worker.first for worker in self.workers[1:]], np.int64)
        self._dead: list[Worker] = []

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
            self.reports = self.request(Command.BUILD, None, env_fns)
            spaces = unite(self.reports, mode, name)
            spec = BuffersSpec(
                self.num_envs,
                spaces.single_observation_space,
                spaces.single_action_space,
                spaces.reward_shape,
            )
            self.ledger.buffers = self.workers[0].allocate(spec)
            for worker in self.workers:
                worker.attach(spec, self.ledger.buffers)
        except BaseException:
            self.close()
            raise
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
    ) -> None:
        """Begin resets, with one seed per env; each env gets its own copy of the options."""
        self.submit(Command.RESET, env_ids, [(seed, detach(options)) for seed in seeds])
        ids = range(self.num_envs) if env_ids is None else env_ids.tolist()
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
        self.submit(command, env_ids, payloads)
        self.receive_requests(None)
        return [reply.value for reply in self.ledger.take_replies(env_ids)]

    def check_open(self) -> None:
        """Raise ClosedError when the pool was closed, or belongs to another process."""
        if not self._finalizer.alive:
            raise ClosedError("expected open environments, these were closed by close()")
        if os.getpid() != self._pid:
            raise ClosedError(
                f"these environments belong to process {self._pid}, and this is process "
                f"{os.getpid()}, forked from it: make new ones here"
            )

    def _check(self, command: Command, env_ids: IdArray | None) -> None:
        self.check_open()
        for worker in self._dead:
            last = worker.first + worker.count - 1
            if env_ids is None or ((env_ids >= worker.first) & (env_ids <= last)).any():
                raise self._death_error(worker, name_of(command))
        self.ledger.check(command, env_ids)

    def _begin(
        self, command: Command, env_ids: IdArray | None, payloads: Sequence[Any] | None
    ) -> None:
        workers: Sequence[Worker] = self.workers
        orders: list[Any] = []
        if env_ids is None:
            for worker in workers:
                rows = slice(worker.first, worker.first + worker.count)
                part = None if payloads is None else payloads[rows]
                orders.append(worker.prepare(command, None, part))
        else:
            shards = np.searchsorted(self._bounds, env_ids, side="right")
            numbers = np.unique(shards)
            workers = [self.workers[number] for number in numbers]
            for number, worker in zip(numbers, workers, strict=True):
                chosen = np.flatnonzero(shards == number)
                part = None if payloads is None else [payloads[int(i)] for i in chosen]
                positions = (env_ids[chosen] - worker.first).tolist()
                orders.append(worker.prepare(command, positions, part))
        # From here on nothing can fail.
        self.ledger.begin(command, env_ids)
        for worker, order in zip(workers, orders, strict=True):
            worker.dispatch(order)

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
        self.check_open()
        line = self.ledger.transitions
        if not len(line):
            raise NothingInFlightError(
                "expected something in flight, got recv() before send() or send_reset()"
            )
        need = len(line) if min_ready is None else min(min_ready, len(line))
        self._wait(line, need, timeout)
        self._raise_errors(line)
        return self.ledger.take(max_ready)

    def receive_all(self, timeout: float | None) -> IdArray | None:
        """Wait for all transitions in flight, and hand them out.

        Other than in `receive`, errors are raised only when everything has ended.

        Returns:
            (k,) the envs, in order; None when these are all envs of the pool.
        """
        self.check_open()
        line = self.ledger.transitions
        self._wait(line, len(line), timeout, barrier=True)
        self._raise_errors(line)
        return None if self.ledger.take_all() else np.sort(self.ledger.take(None))

    def receive_requests(self, timeout: float | None) -> None:
        """Wait for all requests in flight; the ledger's `take_replies` has what they gave.

        Raises:
            RecvTimeoutError: The time is over; nothing is lost.
            EnvError: An env raised; what the others gave is dropped.
        """
        self.check_open()
        line = self.ledger.requests
        self._wait(line, len(line), timeout, barrier=True)
        ids = np.array(line.ready, np.int64)
        error = self.ledger.take_errors(line)
        self.ledger.take_requests()
        if error is not None:
            self.ledger.take_replies(ids)
            raise error

    def discard(self) -> None:
        """Drop transitions that are ready and were not received."""
        self._collect()
        self.ledger.discard()

    def _raise_errors(self, line: Line) -> None:
        error = self.ledger.take_errors(line)
        if error is not None:
            raise error

    # ------------------------------------------------------------------ waiting

    def _wait(self, line: Line, need: int, timeout: float | None, *, barrier: bool = False) -> None:
        """Wait until ``need`` operations of the line have ended, or one of them with an error.

        With ``barrier`` an error does not end the wait.
        """
        deadline = None if timeout is None else perf_counter() + timeout
        in_time = True
        while True:
            lent = self._lend_thread(need - len(line.ready), deadline)
            self._collect()
            missing = need - len(line.ready)
            if missing <= 0 or (not barrier and self.ledger.has_errors(line)):
                return
            if in_time:
                if lent:
                    in_time = deadline is None or perf_counter() < deadline
                else:
                    in_time = self._block(missing, deadline)
                continue
            raise RecvTimeoutError(
                f"expected {need} results within {timeout} s, got {len(line.ready)}; waiting for "
                f"env {listed(self.ledger.flying(line))}. Nothing is lost: receive again"
            )

    def _lend_thread(self, missing: int, deadline: float | None) -> bool:
        """Run envs that live in this thread; False when there are none with work to do."""
        lent = False
        if missing > 0:
            for worker in self.workers:
                if not worker.idle:
                    worker.work(missing, deadline)
                    lent = True
        return lent

    def _block(self, missing: int, deadline: float | None) -> bool:
        """Block until something may have happened; False when the deadline passed first."""
        flying = self.ledger.transitions.flying + self.ledger.requests.flying
        descriptors: list[int] = []
        for worker in self.workers:
            if worker.death is not None:
                continue
            # Wake when the missing results can be there, however they are spread over the workers.
            others = flying - min(worker.count, flying)
            armed = worker.arm(max(1, missing - others))
            if not armed:
                return True
            descriptors += armed
        return wait_readable(descriptors, deadline)

    def _collect(self) -> None:
        """Take in what has ended. Never blocks."""
        for worker in self.workers:
            for completion in worker.collect():
                self.ledger.note(worker.first, worker.count, completion)
            if worker.death is not None and worker not in self._dead:
                self._dead.append(worker)
                lost = self.ledger.flying_in(worker.first, worker.count)
                if lost:
                    error = self._death_error(worker, self.ledger.doing(lost[0]))
                    self.ledger.note_death(lost, error)

    def _death_error(self, worker: Worker, operation: str) -> WorkerDiedError:
        death = worker.death
        assert death is not None
        ids = range(worker.first, worker.first + worker.count)
        return WorkerDiedError(
            f"the worker process of env {listed(ids)} died ({death}) in {operation} "
            f"(engine {self.engine!r}). Its envs are gone; the others can go on",
            exit_code=death.exit_code,
            signal=death.signal,
            env_ids=list(ids),
            operation=operation,
            engine=self.engine,
        )

    # ------------------------------------------------------------------ snapshots

    def snapshot(self, env_ids: IdArray | None) -> list[Snapshot]:
        """The state of these envs, see `Snapshot`."""
        buffers, ledger = self.buffers, self.ledger
        ids = np.arange(self.num_envs) if env_ids is None else env_ids
        states = self.request(Command.SNAPSHOT, env_ids, [None] * len(ids))
        observations = buffers.observation_layout.elements(buffers.observations, ids)
        return [
            Snapshot(
                state,
                observation,
                bool(buffers.terminations[index]),
                bool(buffers.truncations[index]),
                int(ledger.episode_ids[index]),
                int(ledger.steps[index]),
                ledger.seeds[index],
            )
            for index, state, observation in zip(ids.tolist(), states, observations, strict=True)
        ]

    def restore(self, snapshots: Sequence[Snapshot], env_ids: IdArray | None) -> None:
        """Put these envs into the states of the snapshots."""
        buffers = self.buffers
        self.request(Command.RESTORE, env_ids, [snapshot.state for snapshot in snapshots])
        ids = np.arange(self.num_envs) if env_ids is None else env_ids
        for index, snapshot in zip(ids.tolist(), snapshots, strict=True):
            write = buffers.observation_layout.writer(buffers.observations, index)
            write(snapshot.observation)
            buffers.terminations[index] = snapshot.terminated
            buffers.truncations[index] = snapshot.truncated
            self.ledger.restored(index, snapshot.episode_id, snapshot.steps, snapshot.seed)

    # ------------------------------------------------------------------ the end

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._finalizer.alive

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all envs, give them ``timeout`` seconds for it, then end by force. Idempotent."""
        detached = self._finalizer.detach()
        if detached is not None:
            workers, resources, pid = detached[2]
            for problem in _end(workers, resources, pid, timeout):
                warnings.warn(f"agymc: {problem}", RuntimeWarning, stacklevel=3)


def _end(
    workers: Sequence[Worker],
    resources: Sequence[Any],
    pid: int,
    timeout: float = CLOSE_TIMEOUT,
) -> list[str]:
    """Close workers, all at once. A plain function: the pool may be garbage already."""
    if os.getpid() != pid:
        for worker in workers:
            worker.abandon()
        return []
    deadline = perf_counter() + timeout
    problems: list[str] = []
    try:
        for worker in workers:
            worker.begin_close()
    finally:
        try:
            for worker in workers:
                problems += worker.end_close(deadline)
        finally:
            for resource in resources:
                resource.close()
    return problems
