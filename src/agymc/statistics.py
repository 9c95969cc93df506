"""What a pool can tell about itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agymc.types import BlockedLoop

__all__ = ["Statistics"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """A record of what has happened so far; it does not change any more.

    Attributes:
        received: (num_envs,) int64, results of steps and resets handed out, per env.
        episodes: (num_envs,) int64, episodes begun, per env.
        in_flight: Steps and resets sent and not received.
        waiting_for: The envs that are at work now.
        stale_replies: Replies dropped because nobody wanted them any more.
        queue_seconds: (num_envs,) float64, how long each env's operations waited for a limit
            (``max_in_flight``), in all. Coroutines only; zeros for other engines.
        env_seconds: (num_envs,) float64, how long they took from their beginning to their end, in
            all. Coroutines only.
        operations: (num_envs,) int64, how many have ended. Coroutines only.
        blocked: Where envs have blocked the event loop.
    """

    received: NDArray[np.int64]
    episodes: NDArray[np.int64]
    in_flight: int
    waiting_for: tuple[int, ...]
    stale_replies: int
    queue_seconds: NDArray[np.float64]
    env_seconds: NDArray[np.float64]
    operations: NDArray[np.int64]
    blocked: tuple[BlockedLoop, ...]
