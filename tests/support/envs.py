"""Small environments whose every move is known beforehand.

Worker processes import them from here by name, so they need no cloudpickle.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counting(gymnasium.Env):
    """Counts episodes and steps, and tells all of it in observation, reward and info.

    The observation is ``(episode, step, random)``: the number of the episode from 0, that of the
    step in it, and a number of the env's own generator. The reward is ``episode + step / 1000``.

    Args:
        length: The steps of an episode; one per episode when it is a sequence, repeated in turn.
        truncate: Whether episodes end by truncation.
        label: Any value, for tests of arguments; see the info.

    Attributes:
        seen: The actions that the env was given.
        resets: The (seed, options) of each reset.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(4)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    render_mode = "rgb_array"

    def __init__(self, length: Any = 3, truncate: bool = False, label: Any = None) -> None:
        self.lengths = list(length) if isinstance(length, tuple | list) else [length]
        self.truncate = truncate
        self.label = label
        self.episode = -1
        self.count = 0
        self.seen: list[Any] = []
        self.resets: list[Any] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self.episode += 1
        self.count = 0
        return self._observe(), {"episode_number": self.episode}

    def step(self, action):
        self.seen.append(action)
        self.count += 1
        over = self.count >= self.lengths[self.episode % len(self.lengths)]
        reward = self.episode + self.count / 1000
        info = {"step_number": self.count, "action": action}
        return self._observe(), reward, over and not self.truncate, over and self.truncate, info

    def render(self):
        return np.full((2, 3, 3), self.count, np.uint8)

    def _observe(self):
        return np.array([self.episode, self.count, self.np_random.random()])


class Continuous(Counting):
    """`Counting` with actions in [-1, 1]^2, float32."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Reusing(gymnasium.Env):
    """Gives the same observation, the same info and the same arrays in them, over and over.

    The observation is {"image": (2, 2) uint8, "state": (1,) float32}, all filled with the count of
    the env's calls.
    """

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "state": spaces.Box(-np.inf, np.inf, (1,), np.float32),
        }
    )
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 2) -> None:
        self.length = length
        self.calls = 0
        self.count = 0
        self.observation = {
            "image": np.zeros((2, 2), np.uint8),
            "state": np.zeros(1, np.float32),
        }
        self.info: dict[str, Any] = {
            "array": np.zeros(2),
            "list": [0],
            "nested": {"array": np.zeros(1)},
        }

    def _fill(self):
        self.calls += 1
        self.observation["image"][:] = self.calls
        self.observation["state"][:] = self.calls
        self.info["array"][:] = self.calls
        self.info["list"][0] = self.calls
        self.info["nested"]["array"][:] = self.calls
        return self.observation, self.info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._fill()

    def step(self, action):
        self.count += 1
        observation, info = self._fill()
        return observation, float(self.calls), self.count >= self.length, False, info


class Telling(gymnasium.Env):
    """Gives the infos that it was told to give, one per call, the last one again and again.

    Args:
        infos: The infos, that of the first reset first.
        length: The steps of an episode.
    """

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, infos: Any, length: int = 1000) -> None:
        self.infos = list(infos)
        self.length = length
        self.count = 0

    def _next(self):
        return self.infos.pop(0) if len(self.infos) > 1 else self.infos[0]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), self._next()

    def step(self, action):
        self.count += 1
        return np.zeros(1, np.float32), 0.0, self.count >= self.length, False, self._next()


class Failing(Counting):
    """`Counting` that raises at a given call.

    Args:
        at: ("step" or "reset", n): which call raises, n counted from 1 over the env's life.
        error: The exception.
    """

    def __init__(
        self, at: tuple[str, int] | None = None, error: Exception | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.at = at
        self.error = error or ValueError("the wheel came off")
        self.calls = {"step": 0, "reset": 0}

    def _maybe_fail(self, name):
        self.calls[name] += 1
        if self.at == (name, self.calls[name]):
            raise self.error

    def reset(self, *, seed=None, options=None):
        self._maybe_fail("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self._maybe_fail("step")
        return super().step(action)


class Gated(Counting):
    """`Counting` whose steps wait at a gate, in whatever thread or process it lives.

    Args:
        gate: The path of a `Gate`.
    """

    def __init__(self, gate: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate

    def step(self, action):
        with open(self.gate, "rb", buffering=0) as pipe:
            pipe.read(1)
        return super().step(action)


class Gate:
    """Lets steps of a `Gated` env through, one per permit; a named pipe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def open(self, permits: int = 1) -> None:
        os.write(self._pipe, b"." * permits)

    def close(self) -> None:
        """Let everybody through: who waits reads the permits, or the end of the pipe."""
        self.open(1000)
        os.close(self._pipe)


class Awaited:
    """Makes coroutines of an env's `reset` and `step`; while they wait, other envs may run."""

    def __init__(self, env_fn: Any) -> None:
        self.env = env_fn()

    async def reset(self, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self.env.reset, **kwargs)

    async def step(self, action: Any) -> Any:
        return await asyncio.to_thread(self.env.step, action)

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


class Sampling(gymnasium.Env):
    """Any spaces: observations are seeded samples, the reward is a fingerprint of the action.

    Args:
        observation_space: The one space.
        action_space: The other.
        length: The steps of an episode.
    """

    def __init__(self, observation_space: Any, action_space: Any, length: int = 2) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.length = length
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        # Batches of scalars give scalars, as Gymnasium has it, where a sample is an array ().
        value = np.asarray(action) if isinstance(action, np.floating | np.int32) else action
        info = {"in_space": bool(self.action_space.contains(value))}
        over = self.count >= self.length
        return self.observation_space.sample(), fingerprint(action), over, False, info


def fingerprint(value: Any) -> float:
    """A number that depends on every value, dtype and shape in ``value``."""
    digest = hashlib.sha256(repr(_canonical(value)).encode()).digest()
    return float(int.from_bytes(digest[:6], "little"))


def _canonical(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), np.shape(value), np.asarray(value).tobytes()
    if isinstance(value, Mapping):
        return [(key, _canonical(value[key])) for key in sorted(value)]
    if isinstance(value, tuple | list):
        return [_canonical(part) for part in value]
    return type(value).__name__, value


class Multi(Counting):
    """`Counting` with a reward of two parts, as MO-Gymnasium has it: the count, and minus that."""

    reward_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        reward = np.array([self.count, -self.count], np.float32)
        return observation, reward, terminated, truncated, info
