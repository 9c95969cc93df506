"""What a pool can tell about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agymc.faults import FaultKind
from agymc.types import BlockedLoop

__all__ = ["Statistics", "quantiles"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """A record of what has happened so far; it does not change any more.

    Times are measured with a `FaultPolicy`, and for coroutines in any case; else they are zeros,
    and their quantiles NaN. Quantiles are those of each env's last operations (16 of them).

    Attributes:
        received: (num_envs,) int64, results of steps and resets handed out, per env.
        steps: (num_envs,) int64, how many of them were steps, and not a reset in place of one.
        episodes: (num_envs,) int64, episodes begun, per env.
        in_flight: Steps and resets sent and not received.
        waiting_for: The envs that are at work now.
        stragglers: Those of them that have missed a deadline.
        stale_replies: Replies dropped because nobody wanted them any more.
        waiting_seconds: How long the caller has waited for results, in all.
        operations: (num_envs,) int64, how many operations were timed.
        queue_seconds: (num_envs,) float64, how long they waited for their turn (in a shard that
            steps its envs one after the other, or for ``max_in_flight``), in all.
        queue_p50: (num_envs,) float64, the median of that, in seconds.
        queue_p99: (num_envs,) float64, the 99th percentile.
        env_seconds: (num_envs,) float64, how long they took from their beginning to their end, in
            all.
        env_p50: (num_envs,) float64, the median of that, in seconds.
        env_p99: (num_envs,) float64, the 99th percentile.
        restarts: By kind of fault, (num_envs,) int64: how often each env was restarted for a fault
            of its own.
        collateral: (num_envs,) int64, how often it was restarted because it shared a process or
            thread with an env that failed.
        timeouts: (num_envs,) int64, how often each env missed a deadline.
        abandoned: Threads and tasks that could not be stopped, were given up and still run.
        blocked: Where envs have blocked the event loop.
    """

    received: NDArray[np.int64]
    steps: NDArray[np.int64]
    episodes: NDArray[np.int64]
    in_flight: int
    waiting_for: tuple[int, ...]
    stragglers: tuple[int, ...]
    stale_replies: int
    waiting_seconds: float
    operations: NDArray[np.int64]
    queue_seconds: NDArray[np.float64]
    queue_p50: NDArray[np.float64]
    queue_p99: NDArray[np.float64]
    env_seconds: NDArray[np.float64]
    env_p50: NDArray[np.float64]
    env_p99: NDArray[np.float64]
    restarts: Mapping[FaultKind, NDArray[np.int64]]
    collateral: NDArray[np.int64]
    timeouts: NDArray[np.int64]
    abandoned: int
    blocked: tuple[BlockedLoop, ...]

    def in_all(self) -> dict[str, float]:
        """The sums over all envs, and the medians of their quantiles; by name."""
        sums = {
            name: float(getattr(self, name).sum())
            for name in (
                "received",
                "steps",
                "episodes",
                "operations",
                "queue_seconds",
                "env_seconds",
                "collateral",
                "timeouts",
            )
        }
        restarts = {
            f"restarts: {kind}": float(counts.sum()) for kind, counts in self.restarts.items()
        }
        medians = {
            name: float(np.median(known)) if len(known := _known(getattr(self, name))) else np.nan
            for name in ("queue_p50", "queue_p99", "env_p50", "env_p99")
        }
        return sums | restarts | medians


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]


def quantiles(times: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(num_envs,) the medians and 99th percentiles of rings of times; NaN where there are none.

    Args:
        times: (TIMES, num_envs) the rings; 0 for no time.
    """
    known = np.where(times > 0, times, np.nan)
    median, high = np.full((2, times.shape[1]), np.nan)
    some = (times > 0).any(axis=0)
    if some.any():
        median[some], high[some] = np.nanquantile(known[:, some], [0.5, 0.99], axis=0)
    return median, high
