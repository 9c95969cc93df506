"""How often an env may be restarted, how long to wait before, and who is to blame for what."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from time import perf_counter

import numpy as np

from agymc.errors import EnvError
from agymc.faults import FAULT_KINDS, FaultKind, FaultPolicy
from agymc.workers.base import Worker

__all__ = ["Budget"]

_HOUR = 3600.0


class Budget:
    """The restarts of the envs of a pool.

    Args:
        policy: What it allows.
        num_envs: The number of envs.
        workers: The pool's workers, as they are at any time.

    Attributes:
        restarts: By kind of fault, (num_envs,) how often each env was restarted for its own.
        collateral: (num_envs,) how often it was restarted for the fault of another.
    """

    def __init__(self, policy: FaultPolicy, num_envs: int, workers: Sequence[Worker]) -> None:
        self.restarts: dict[FaultKind, np.ndarray] = {
            kind: np.zeros(num_envs, np.int64) for kind in FAULT_KINDS
        }
        self.collateral = np.zeros(num_envs, np.int64)
        self._policy = policy
        self._workers = workers
        self._recent: dict[int, deque[float]] = {}  # when an env was restarted for its own faults
        self._streaks: dict[int, tuple[int, int]] = {}  # failures in a row, the last one's episode
        self._deaths: dict[int, int] = {}  # of processes with several envs, by who was to blame
        self._random = Random(num_envs)

    def charge(self, index: int, kind: FaultKind, episode: int, again: bool) -> float | None:
        """Take a restart from an env's budget.

        Args:
            index: The env.
            kind: Of its fault.
            episode: The number of its episode.
            again: Whether it failed in a restart.

        Returns:
            Seconds to wait before, or None: there is none left.
        """
        now = perf_counter()
        recent = self._recent.setdefault(index, deque())
        while recent and recent[0] < now - _HOUR:
            recent.popleft()
        if len(recent) >= self._policy.max_restarts or self._too_many_abandoned():
            return None
        recent.append(now)
        failures, failed_in = self._streaks.get(index, (0, -1))
        if episode > failed_in + 1 and not again:
            failures = 0  # it has got through an episode since
        self._streaks[index] = failures + 1, episode
        self.restarts[kind][index] += 1
        return self._policy.backoff.seconds(failures + 1, self._random)

    def count(self, index: int) -> int:
        """How often an env was restarted, for whatever reason."""
        own = sum(int(counts[index]) for counts in self.restarts.values())
        return own + int(self.collateral[index])

    def refuse(self, error: EnvError, index: int) -> None:
        """Have an error say why the env is not restarted."""
        if self._too_many_abandoned():
            why = (
                f"more than {self._policy.max_abandoned} threads that hang were abandoned and "
                "still run (max_abandoned)"
            )
        else:
            why = (
                f"env {index} was restarted {self._policy.max_restarts} times within an hour "
                "(max_restarts)"
            )
        error.args = (f"{error.args[0]}; it is not restarted: {why}",)

    def _too_many_abandoned(self) -> bool:
        alive = sum(worker.abandoned_alive() for worker in self._workers)
        return alive > self._policy.max_abandoned

    def blame(self, index: int) -> None:
        """An env has taken others with it."""
        self._deaths[index] = self._deaths.get(index, 0) + 1

    def is_to_be_moved(self, index: int) -> bool:
        """Whether an env has done so often enough to get a worker of its own."""
        limit = self._policy.isolate_after
        return limit is not None and self._deaths.get(index, 0) >= limit
