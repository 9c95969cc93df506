"""What was played, and what it took."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from agymc.types import Batch

__all__ = ["Part", "Stopwatch", "Tally"]


class Tally:
    """What was played so far.

    Args:
        num_envs: The number of envs.
        episodes: How many each is to play.

    Attributes:
        num_envs: The number of envs.
        episodes: How many each is to play.
        played: (num_envs,) int64, how many each has played.
        returns: (num_envs, episodes) float64, the sum of the rewards of each played episode.
        lengths: (num_envs, episodes) int64, its steps.
        steps: The steps of all envs, those of unfinished episodes included.
    """

    def __init__(self, num_envs: int, episodes: int) -> None:
        self.num_envs, self.episodes = num_envs, episodes
        self.played = np.zeros(num_envs, np.int64)
        self.returns = np.zeros((num_envs, episodes))
        self.lengths = np.zeros((num_envs, episodes), np.int64)
        self.steps = 0
        self._sums = np.zeros(num_envs)  # of the rewards of the running episodes

    @property
    def finished(self) -> int:
        """The number of episodes that were played to their end."""
        return int(self.played.sum())

    @property
    def total(self) -> int:
        """The number of episodes that are to be played."""
        return self.num_envs * self.episodes

    def mask(self) -> NDArray[np.bool_]:
        """(num_envs, episodes) which episodes were played to their end."""
        mask: NDArray[np.bool_] = np.arange(self.episodes) < self.played[:, np.newaxis]
        return mask

    def note(self, batch: Batch) -> NDArray[np.bool_] | None:
        """Count the results of a batch.

        Returns:
            (k,) whose episode is over, or None where that is nobody's.
        """
        ids, rewards = batch.env_ids, batch.rewards
        self.steps += int(np.count_nonzero(batch.steps))
        self._sums[ids] += rewards if rewards.ndim == 1 else rewards.sum(axis=1)
        over = batch.terminations | batch.truncations
        if not over.any():
            return None
        ended = ids[over]
        self.note_episodes(ended, self._sums[ended], batch.steps[over])
        self._sums[ended] = 0.0
        return over

    def note_episodes(
        self,
        envs: NDArray[np.int64] | list[int],
        returns: NDArray[np.float64] | list[float],
        lengths: NDArray[np.int64] | list[int],
    ) -> None:
        """Count one finished episode of each of these envs, but not its steps."""
        numbers = self.played[envs]
        self.returns[envs, numbers] = returns
        self.lengths[envs, numbers] = lengths
        self.played[envs] += 1


class Stopwatch:
    """Wall seconds, and CPU seconds of this process, since it was made; can be paused."""

    def __init__(self) -> None:
        self._wall, self._cpu = perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        """The wall seconds so far."""
        return perf_counter() - self._wall

    @property
    def cpu(self) -> float:
        """The CPU seconds so far, of all threads of this process."""
        return time.process_time() - self._cpu

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in here is not measured."""
        wall, cpu = perf_counter(), time.process_time()
        try:
            yield
        finally:
            self._wall += perf_counter() - wall
            self._cpu += time.process_time() - cpu


@dataclass
class Part:
    """One way of playing: what it was, what it has played, what that took.

    Attributes:
        tally: What it has played.
        engine: The engine's name; None for the plain loop.
        num_workers: Worker processes; None where there are none.
        envs: The number of envs that played.
        making: Seconds that making the envs took.
        playing: Seconds from the first reset to the last result.
        cpu: CPU seconds of this process, from making to closing the envs.
        worker_cpu: CPU seconds of worker processes in all of their lives, and of what they started.
        notes: What the user should know besides.
    """

    tally: Tally
    engine: str | None = None
    num_workers: int | None = None
    envs: int = 0
    making: float = 0.0
    playing: float = 0.0
    cpu: float = 0.0
    worker_cpu: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def sps(self) -> float | None:
        """Steps per second of playing; None before the first."""
        return self.tally.steps / self.playing if self.tally.steps and self.playing else None

    @contextmanager
    def measured(self) -> Iterator[Stopwatch]:
        """Measures the CPU seconds; the envs must be made and closed in here."""
        watch = Stopwatch()
        before = os.times()  # a child counts when it has ended and was waited for
        try:
            yield watch
        finally:
            after = os.times()
            self.cpu = watch.cpu
            self.worker_cpu = (after.children_user - before.children_user) + (
                after.children_system - before.children_system
            )
