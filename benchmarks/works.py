"""Environments for the panel that no package has."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Sleep(gymnasium.Env[Any, Any]):
    """Waits 10 ms, as for a network or another process, and computes nothing."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.observation = np.zeros(4, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds())
        return self.observation, 0.0, False, False, {}

    def seconds(self) -> float:
        return 0.01


class HeavyTail(Sleep):
    """Waits 2 ms in most steps, and 100 ms in one of fifty."""

    def seconds(self) -> float:
        return 0.1 if self.np_random.random() < 0.02 else 0.002


class Images(gymnasium.Env[Any, Any]):
    """Cheap, with an observation of 100 KB."""

    observation_space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.full((210, 160, 3), 0, np.uint8), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.full((210, 160, 3), self.count % 256, np.uint8), 0.0, False, False, {}


class Tiny(gymnasium.Env[Any, Any]):
    """A step is one addition: all the rest is overhead."""

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation = np.zeros(2, np.float32)
        return self.observation, {}

    def step(self, action: Any) -> Any:
        self.observation[0] += 1.0
        return self.observation, 1.0, False, False, {}
