"""Envs and policies for the command, which finds this module in its current directory."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv


def in_command() -> bool:
    """Whether this is the command's own process, not one of its workers."""
    return "agymc.cli" in sys.modules


def mark() -> None:
    """Tell the test that the moment has come."""
    Path(os.environ["STRANGE_MARK"]).touch()


class Plain(gymnasium.Env):
    """20 steps, reward 1, an observation that never changes."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(2, np.float32), 1.0, self.count >= 20, False, {}

    def render(self):
        return np.full((30, 40, 3), 9 * self.count, np.uint8)


class Counts(Plain):
    """Says in the end how often it was called."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.renders = self.steps = self.resets = 0

    def reset(self, **kwargs):
        self.resets += 1
        return super().reset(**kwargs)

    def step(self, action):
        self.steps += 1
        return super().step(action)

    def render(self):
        self.renders += 1
        return super().render()

    def close(self):
        print(f"steps={self.steps} renders={self.renders} resets={self.resets}", flush=True)


class Chatty(Plain):
    """Writes to standard output and standard error, in words and directly."""

    def step(self, action):
        if self.count == 5:
            print(f"hello from {self.np_random_seed}")
        if self.count == 10:
            os.write(2, b"a line of native code\n")
        if self.count == 15:
            print("unfinished", end="")
        return super().step(action)


class Composite(Plain):
    """Dict and Tuple and Text, with random rewards."""

    observation_space = spaces.Dict(
        a=spaces.Box(-1.0, 1.0, (2,)), b=spaces.Tuple((spaces.Discrete(30), spaces.Text(4)))
    )
    action_space = spaces.Dict(x=spaces.Discrete(2), y=spaces.Box(-1.0, 1.0, (1,)))

    def _observe(self):
        return {"a": np.zeros(2, np.float32), "b": (np.int64(self.count % 30), "ab")}

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        over = bool(self.np_random.random() < 0.1)
        return self._observe(), float(action["y"][0]) * int(action["x"]), over, False, {}


class Unseeded(Plain):
    """Rewards that no seed fixes."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(np.random.default_rng().random()), *rest


class SlowInPlainLoop(Plain):
    """Hours of playing, unless in a worker process."""

    def step(self, action):
        if in_command():
            time.sleep(0.2)
        return super().step(action)


class Broken(Plain):
    """Raises in the third episode's fourth step."""

    episode = 0

    def reset(self, **kwargs):
        self.episode += 1
        return super().reset(**kwargs)

    def step(self, action):
        if self.episode == 3 and self.count == 3:
            self.explode("[bold]now[/bold]")
        return super().step(action)

    def explode(self, when):
        raise ValueError(f"boom {when}")


class BrokenInPlainLoop(Plain):
    def step(self, action):
        if in_command():
            raise ValueError("only here")
        return super().step(action)


class BrokenInAProcess(Plain):
    def step(self, action):
        spec = sys.modules["__main__"].__spec__
        if spec is None or spec.name != "agymc.benchmarking._contend":
            raise ValueError("only there")
        return super().step(action)


class Unmakeable(Plain):
    def __init__(self, render_mode=None):
        raise RuntimeError("no licence")


class Dies(Plain):
    def step(self, action):
        if self.count == 3:
            os._exit(7)
        return super().step(action)


class Invisible(Plain):
    """Gives no frames."""

    def render(self):
        return None


class Unrenderable(Plain):
    """Does not take `render_mode`."""

    metadata = {"render_modes": []}

    def __init__(self):
        pass


class MarksMake(Plain):
    """Never gets made."""

    def __init__(self, render_mode=None):
        mark()
        time.sleep(1000)


class MarksStep(Plain):
    """Marks its second episode; goes on slowly."""

    episode = 0

    def reset(self, **kwargs):
        self.episode += 1
        return super().reset(**kwargs)

    def step(self, action):
        if self.episode == 2:
            mark()
            time.sleep(0.01)
        return super().step(action)


class Hangs(Plain):
    """Never ends its third step."""

    def step(self, action):
        if self.count == 2:
            mark()
            time.sleep(1000)
        return super().step(action)


class MarksPlainLoop(Plain):
    def step(self, action):
        if in_command():
            mark()
            time.sleep(0.01)
        return super().step(action)


class MarksClose(Plain):
    """Takes a while to close."""

    def close(self):
        mark()
        time.sleep(0.5)


class NeverCloses(Plain):
    def close(self):
        mark()
        time.sleep(1000)


for _kind in list(globals().values()):
    if isinstance(_kind, type) and issubclass(_kind, Plain):
        gymnasium.register(f"{_kind.__name__}-v0", _kind)


# ---------------------------------------------------------------------- policies


def left(observations):
    assert observations.dtype == np.float32 and observations.shape[1:] == (4,)
    return np.zeros(len(observations), int)


def wise(observations):
    """Plays CartPole well."""
    return (observations[:, 2] + observations[:, 3] > 0).astype(int)


class Object:
    right = staticmethod(lambda observations: [1] * len(observations))

    def __init__(self):
        self.calls = 0

    def __call__(self, observations):
        self.calls += 1
        return [self.calls % 2] * len(observations)


def composite(observations):
    count = len(observations["a"])
    numbers, words = observations["b"]
    assert numbers.shape == (count,) and words == ("ab",) * count
    return {"x": np.ones(count, int), "y": np.full((count, 1), 0.5)}


def too_few(observations):
    return [0]


def fails(observations):
    raise KeyError("what")


number = 3


class Drawn(CartPoleEnv):
    """Draws from a generator that nobody seeds."""

    def step(self, action):
        observation, *rest = super().step(action)
        observation[0] = random.random()
        return observation, *rest
