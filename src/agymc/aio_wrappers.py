"""The wrappers that coroutine envs need most; Gymnasium's can't wrap them.

They behave like Gymnasium's wrappers of the same names.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from agymc.types import AsyncEnv

__all__ = ["AsyncRecordEpisodeStatistics", "AsyncTimeLimit", "AsyncWrapper"]


class AsyncWrapper:
    """Passes everything on to the env that it wraps. A base for wrappers of coroutine envs.

    Args:
        env: A coroutine env.
    """

    def __init__(self, env: AsyncEnv) -> None:
        self.env = env

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; gives (observation, info)."""
        return await self.env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step; gives (observation, reward, terminated, truncated, info)."""
        return await self.env.step(action)

    async def close(self) -> None:
        """Free what the env holds."""
        await self.env.close()

    @property
    def unwrapped(self) -> Any:
        """The env inside of all wrappers."""
        return getattr(self.env, "unwrapped", self.env)

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # while being unpickled
            raise AttributeError(name)
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self.env!r}>"


class AsyncTimeLimit(AsyncWrapper):
    """Truncates an episode after a number of steps.

    Args:
        env: A coroutine env.
        max_episode_steps: The number of steps.
    """

    def __init__(self, env: AsyncEnv, max_episode_steps: int) -> None:
        super().__init__(env)
        if isinstance(max_episode_steps, bool) or not isinstance(max_episode_steps, int):
            raise TypeError(
                f"expected max_episode_steps to be an integer, got {max_episode_steps!r}"
            )
        if max_episode_steps < 1:
            raise ValueError(f"expected max_episode_steps to be positive, got {max_episode_steps}")
        self.max_episode_steps = max_episode_steps
        self._steps = 0

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and its count."""
        self._steps = 0
        return await self.env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step; the last one allowed is truncated."""
        observation, reward, terminated, truncated, info = await self.env.step(action)
        self._steps += 1
        if self._steps >= self.max_episode_steps:
            truncated = True
        return observation, reward, terminated, truncated, info


class AsyncRecordEpisodeStatistics(AsyncWrapper):
    """Adds ``info["episode"]`` to the last step: "r" the return, "l" the length, "t" seconds.

    Args:
        env: A coroutine env.
    """

    def __init__(self, env: AsyncEnv) -> None:
        super().__init__(env)
        self._return = 0.0
        self._length = 0
        self._begin = 0.0

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and its statistics."""
        result = await self.env.reset(seed=seed, options=options)
        self._return, self._length, self._begin = 0.0, 0, time.perf_counter()
        return result

    async def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        observation, reward, terminated, truncated, info = await self.env.step(action)
        self._return += float(reward)
        self._length += 1
        if terminated or truncated:
            seconds = round(time.perf_counter() - self._begin, 6)
            episode = {"r": np.float64(self._return), "l": self._length, "t": seconds}
            info = {**info, "episode": episode}
        return observation, reward, terminated, truncated, info
