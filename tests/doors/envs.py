"""Environments of the doors' tests. Worker processes import them from here by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FRAME = (120, 200, 3)  # 72,000 bytes: more than what is sent in a pickle


class Walk(gymnasium.Env):
    """Counts its steps, draws what it has counted, and complains when it is stepped after its end.

    The observation is (label, step). The reward is label + step / 1000.

    Args:
        length: The steps of an episode.
        label: A number of its own.
        truncate: Whether episodes end by truncation,
        terminate: or by termination.
        fail_at: The step that raises, or "reset", or None.
    """

    observation_space = spaces.Box(-1000, 1000, (2,), np.int64)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 7}

    def __init__(
        self,
        length: int = 3,
        label: int = 0,
        truncate: bool = False,
        terminate: bool = True,
        fail_at: Any = None,
        render_mode: str | None = None,
    ) -> None:
        self.length, self.label = length, label
        self.truncate, self.terminate = truncate, terminate
        self.fail_at = fail_at
        self.render_mode = render_mode
        self.count = -1
        self.total = 0
        self.actions: list[int] = []
        self.seeds: list[int | None] = []
        self.options: Any = None
        self._canvas = np.zeros(FRAME, np.uint8)

    def _observation(self):
        return np.array([self.label, self.count], np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options = options
        if self.fail_at == "reset" and len(self.seeds) == 2:
            raise OSError("the simulator has gone")
        self.count = 0
        return self._observation(), {"hello": self.label}

    def step(self, action):
        if self.count >= self.length:
            raise AssertionError("stepped after the end of the episode")
        self.count += 1
        self.total += 1
        self.actions.append(int(action))
        if self.count == self.fail_at:
            raise OSError("the simulator has gone")
        over = self.count == self.length
        return (
            self._observation(),
            self.label + self.count / 1000,
            over and self.terminate,
            over and self.truncate,
            {"count": self.count},
        )

    def render(self):
        if self.render_mode == "ansi":
            return f"step {self.count} of env {self.label}"
        self._canvas[:] = self.label
        self._canvas[:, : self.count + 1] = 200 + self.count
        return self._canvas  # the same array each time

    def add(self, a, b=0):
        return self.label + a + b

    def process_id(self):
        return os.getpid()

    def complain(self):
        raise OSError("no")


class TransposedFrames(Walk):
    """Gives transposed views, as pygame's envs do."""

    def render(self):
        return np.transpose(super().render(), (1, 0, 2))


class Rooms(gymnasium.Env):
    """Observations and actions of all sorts; the observation is the same objects every time."""

    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (2, 2), np.uint8),
            "room": spaces.Discrete(5, start=1),
            "sign": spaces.Text(10),
            "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.Discrete(3))),
        }
    )
    action_space = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)))

    def __init__(self) -> None:
        self.count = 0
        self.actions: list[Any] = []
        self.picture = np.zeros((2, 2), np.uint8)

    def _observation(self):
        self.picture[:] = self.count
        return {
            "picture": self.picture,
            "room": 1 + self.count % 5,
            "sign": f"room{self.count}",
            "pair": (np.array([0, self.count % 2], np.int8), self.count % 3),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observation(), {}

    def step(self, action):
        self.count += 1
        self.actions.append(action)
        return self._observation(), 1, False, False, {"picture": self.picture}


class Pair(gymnasium.Env):
    """Two rewards per step, as in MO-Gymnasium. Each episode has `length` steps."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(2)
    reward_space = spaces.Box(-10, 10, (2,), np.float32)

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action):
        self.count += 1
        reward = np.array([1.0, -self.count], np.float32)
        return self.count, reward, self.count >= self.length, False, {}


class OwnDice(gymnasium.Env):
    """Draws from its own action space, which it has seeded."""

    observation_space = spaces.Discrete(1000)

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(1000)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.action_space.seed(seed)
        return int(self.action_space.sample()), {}

    def step(self, action):
        return int(self.action_space.sample()), 0.0, False, False, {}


class CtrlC(Walk):
    """In its first step, the process `pid` gets a SIGINT, until it has heard it.

    It says so with a file "heard" in the folder; the step ends when there is a file "go_on".
    """

    def __init__(self, pid: int, folder: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pid, self.folder = pid, Path(folder)

    def step(self, action):
        if self.total == 0:
            # One that comes just before a system call that waits is heard at the next one.
            while not (self.folder / "heard").exists():
                os.kill(self.pid, signal.SIGINT)
                time.sleep(0.1)
            while not (self.folder / "go_on").exists():
                time.sleep(0.01)
        return super().step(action)


class Old:
    """From before Gymnasium: seed, reset without arguments, four values from step."""

    metadata = {"render.modes": ["human", "rgb_array"], "video.frames_per_second": 25}
    observation_space = spaces.Box(0.0, 100.0, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 4, limit: int | None = None) -> None:
        self.length, self.limit = length, limit
        self.rng = np.random.RandomState(0)
        self.count = 0

    def seed(self, seed=None):
        self.rng = np.random.RandomState(seed)
        return [seed]

    def reset(self):
        self.count = 0
        return self._observation()

    def _observation(self):
        return np.array([self.count, self.rng.uniform(0, 100)])

    def step(self, action):
        self.count += 1
        info: dict[str, Any] = {"count": self.count}
        done = self.count >= self.length
        if self.limit is not None and self.count >= self.limit:
            info["TimeLimit.truncated"] = not done
            done = True
        return self._observation(), float(action), done, info

    def render(self, mode="human"):
        assert mode == "rgb_array"
        return np.full((4, 6, 3), self.count, np.uint8)

    def close(self):
        pass
