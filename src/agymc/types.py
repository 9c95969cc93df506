"""Names shared by all layers: the batch, protocols, aliases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

__all__ = [
    "AsyncEnv",
    "AutoresetMode",
    "Batch",
    "BlockedLoop",
    "BlockedLoopWarning",
    "EnvFn",
    "EnvLike",
    "Fairness",
    "ResetSeed",
]

Fairness: TypeAlias = Literal["arrival", "oldest"]
"""Who is handed out first when more envs are ready than ``max_ready``: first come ("arrival"), or
those whose operation was sent first ("oldest")."""

ResetSeed: TypeAlias = Callable[[int, int], "int | None"]
"""``(env index, episode number) -> seed or None`` for the resets that autoreset makes."""


class EnvLike(Protocol):
    """What agymc calls of an environment: the API of `gymnasium.Env`."""

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    render_mode: str | None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; gives (observation, info)."""
        ...

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step; gives (observation, reward, terminated, truncated, info)."""
        ...

    def render(self) -> Any:
        """A frame, in whatever form the env's render mode has."""
        ...

    def close(self) -> None:
        """Free what the env holds."""
        ...


class BlockedLoopWarning(RuntimeWarning):
    """A coroutine env has blocked its event loop."""


@dataclass(frozen=True, slots=True)
class BlockedLoop:
    """A time for which an env blocked the event loop.

    Attributes:
        env_id: The env.
        seconds: For how long, at the least.
        stack: Where, as text.
    """

    env_id: int
    seconds: float
    stack: str


class AsyncEnv(Protocol):
    """A coroutine environment: `gymnasium.Env` with ``async`` in front of what takes time.

    Structural: no base class is needed. ``metadata``, ``render_mode``, ``render`` (``async`` or
    not) and whatever else a `gymnasium.Env` has are optional.
    """

    observation_space: Any
    action_space: Any

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; gives (observation, info)."""
        ...

    async def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step; gives (observation, reward, terminated, truncated, info)."""
        ...

    async def close(self) -> None:
        """Free what the env holds."""
        ...


EnvFn: TypeAlias = Callable[..., Any]
"""A factory of one environment, called with the keyword arguments meant for the env, if any."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What `recv` hands out: the results of k envs, row j of each array for env ``env_ids[j]``.

    Attributes:
        env_ids: (k,) int64, the envs, in the order in which they are handed out.
        observations: The k observations, batched as ``single_observation_space`` says: arrays
            (k, ...), dicts and tuples of such, or tuples of k objects.
        rewards: (k,) float64, or (k, r) for an env with vector rewards. 0.0 after a reset.
        terminations: (k,) bool.
        truncations: (k,) bool.
        infos: Gymnasium's format: a dict of arrays of length k, each with its ``_key`` mask.
        episode_ids: (k,) int64, the number of the episode that each result belongs to, from 0.
        steps: (k,) int64, the steps made in that episode; 0 for an initial observation.
    """

    env_ids: NDArray[np.int64]
    observations: Any
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: Mapping[str, Any]
    episode_ids: NDArray[np.int64]
    steps: NDArray[np.int64]
    _send: Callable[[Any, NDArray[np.int64]], None] = field(repr=False, compare=False)

    def reply(self, actions: Any) -> None:
        """Send these envs on: begin a step of each, with k actions in the order of `env_ids`."""
        self._send(actions, self.env_ids)

    def __len__(self) -> int:
        return len(self.env_ids)
