"""Who is measured: a plain loop, agymc's engines, and the vector envs of other libraries.

Every contender is made from the same env functions and given the same actions. Each resets an env
whose episode is over as its library has it. Libraries are imported in the contender's own process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from agymc.recipes import Recipe
from agymc.types import EnvFn

__all__ = ["CONTENDERS", "PEERS", "Contender", "Work", "installed"]


@dataclass(frozen=True)
class Work:
    """What every contender does.

    Attributes:
        name: Its name.
        env: An id, or "module:function".
        num_envs: How many.
        kwargs: Arguments of each env.
        render: Whether each step is followed by a frame of each env.
        about: What it shows, in a sentence.
    """

    name: str
    env: str
    num_envs: int
    kwargs: dict[str, Any] = field(default_factory=dict)
    render: bool = False
    about: str = ""

    def recipe(self) -> Recipe:
        """How to make the envs."""
        module, _, attribute = self.env.partition(":")
        source: Any = self.env
        if attribute and attribute.isidentifier():
            source = getattr(importlib.import_module(module), attribute)
        return Recipe(source, self.num_envs, (), None, self.kwargs)


class Contender:
    """What is measured. `run` is the hot loop.

    Args:
        work: The work.
        recipe: How to make its envs.
    """

    def __init__(self, work: Work, recipe: Recipe) -> None:
        self.work = work
        self.num_envs = work.num_envs
        self.has_id = recipe.spec is not None
        self.envs: Any = self.make(recipe.env_fns)

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        """The vector env."""
        raise NotImplementedError

    def reset(self) -> None:
        """Begin all episodes."""
        self.envs.reset(seed=0)

    def step(self, actions: Any) -> None:
        """Step all envs, and reset those that need it."""
        self.envs.step(actions)

    def render(self) -> None:
        """Render all envs."""
        self.envs.render()

    def run(self, steps: int, actions: Sequence[Any]) -> int:
        """So many steps of all envs; how many steps of an env these were."""
        step, render = self.step, self.render if self.work.render else None
        for number in range(steps):
            step(actions[number % len(actions)])
            if render is not None:
                render()
        return steps * self.num_envs

    def close(self) -> None:
        """End it."""
        self.envs.close()


class Loop(Contender):
    """What people write by hand. It resets in the step after the end, as the vector envs do."""

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        self.over = [False] * len(env_fns)
        return [env_fn() for env_fn in env_fns]

    def reset(self) -> None:
        for index, env in enumerate(self.envs):
            env.reset(seed=index)

    def step(self, actions: Any) -> None:
        over = self.over
        for index, env in enumerate(self.envs):
            if over[index]:
                env.reset()
                over[index] = False
            else:
                _, _, terminated, truncated, _ = env.step(actions[index])
                over[index] = terminated or truncated

    def render(self) -> None:
        for env in self.envs:
            env.render()

    def close(self) -> None:
        for env in self.envs:
            env.close()


class Agymc(Contender):
    """An engine of agymc."""

    def __init__(self, work: Work, recipe: Recipe, **options: Any) -> None:
        self._options = options
        super().__init__(work, recipe)

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        import agymc

        if self.has_id:
            return agymc.make_vec(self.work.env, self.num_envs, **self._options, **self.work.kwargs)
        return agymc.make_vec(list(env_fns), **self._options)


class Batches(Agymc):
    """Partial batches: whoever is ready goes on, a quarter of the envs at a time."""

    def reset(self) -> None:
        self.envs.send_reset(seed=0)

    def run(self, steps: int, actions: Sequence[Any]) -> int:
        done = 0
        batches = self.envs.batches(min_ready=max(1, self.num_envs // 4))
        for number, batch in enumerate(batches):
            done += len(batch.env_ids)
            batch.reply(actions[number % len(actions)][batch.env_ids])
            if done >= steps * self.num_envs:
                break
        return done


class Gymnasium(Contender):
    """Gymnasium's own vector envs."""

    def __init__(self, work: Work, recipe: Recipe, name: str) -> None:
        self._name = name
        super().__init__(work, recipe)

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        import gymnasium

        if self._name == "native":
            return gymnasium.make_vec(
                self.work.env, self.num_envs, "vector_entry_point", **self.work.kwargs
            )
        return getattr(gymnasium.vector, self._name)(env_fns)


class StableBaselines(Contender):
    """Stable-Baselines3."""

    def __init__(self, work: Work, recipe: Recipe, name: str) -> None:
        self._name = name
        super().__init__(work, recipe)

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        vec_env = importlib.import_module("stable_baselines3.common.vec_env")
        return getattr(vec_env, self._name)(list(env_fns))

    def reset(self) -> None:
        self.envs.seed(0)
        self.envs.reset()

    def render(self) -> None:
        self.envs.get_images()


class Tianshou(Contender):
    """Tianshou: the caller resets what is over."""

    def __init__(self, work: Work, recipe: Recipe, name: str) -> None:
        self._name = name
        super().__init__(work, recipe)

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        return getattr(importlib.import_module("tianshou.env"), self._name)(list(env_fns))

    def reset(self) -> None:
        self.envs.seed(0)
        self.envs.reset()

    def step(self, actions: Any) -> None:
        _, _, terminations, truncations, _ = self.envs.step(actions)
        over = np.flatnonzero(terminations | truncations)
        if len(over):
            self.envs.reset(over)


class TorchRL(Contender):
    """TorchRL."""

    def __init__(self, work: Work, recipe: Recipe, name: str) -> None:
        self._name = name
        super().__init__(work, recipe)

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        envs = importlib.import_module("torchrl.envs")

        def make(env_fn: EnvFn) -> Any:
            return envs.GymWrapper(env_fn(), categorical_action_encoding=True)

        functions = [partial(make, env_fn) for env_fn in env_fns]
        return getattr(envs, self._name)(len(functions), functions)

    def reset(self) -> None:
        self._data = self.envs.reset()

    def step(self, actions: Any) -> None:
        self._data["action"] = importlib.import_module("torch").as_tensor(actions)
        _, self._data = self.envs.step_and_maybe_reset(self._data)


class EnvPool(Contender):
    """EnvPool, where it has the env."""

    def make(self, env_fns: Sequence[EnvFn]) -> Any:
        envpool = importlib.import_module("envpool")
        return envpool.make(
            self.work.env.removeprefix("ALE/"), env_type="gymnasium", num_envs=self.num_envs
        )

    def reset(self) -> None:
        self.envs.reset()

    def step(self, actions: Any) -> None:
        self.envs.step(np.asarray(actions))


CONTENDERS: dict[str, Callable[[Work, Recipe], Contender]] = {
    "loop": Loop,
    "serial": partial(Agymc, engine="serial"),
    "thread": partial(Agymc, engine="thread"),
    "process": partial(Agymc, engine="process"),
    "process, caller steps": partial(Agymc, engine="process", caller_steps=True),
    "process+thread": partial(Agymc, engine="process+thread"),
    "auto": partial(Agymc, engine="auto"),
    **{
        f"process, {count} workers": partial(Agymc, engine="process", num_workers=count)
        for count in range(1, 9)
    },
    "process, batches": partial(Batches, engine="process"),
    "thread, batches": partial(Batches, engine="thread"),
    "gym-sync": partial(Gymnasium, name="SyncVectorEnv"),
    "gym-async": partial(Gymnasium, name="AsyncVectorEnv"),
    "gym-native": partial(Gymnasium, name="native"),
    "sb3-dummy": partial(StableBaselines, name="DummyVecEnv"),
    "sb3-subproc": partial(StableBaselines, name="SubprocVecEnv"),
    "tianshou-dummy": partial(Tianshou, name="DummyVectorEnv"),
    "tianshou-subproc": partial(Tianshou, name="SubprocVectorEnv"),
    "tianshou-shmem": partial(Tianshou, name="ShmemVectorEnv"),
    "torchrl-serial": partial(TorchRL, name="SerialEnv"),
    "torchrl-parallel": partial(TorchRL, name="ParallelEnv"),
    "envpool": EnvPool,
}
"""Makes each contender, by name."""

PEERS = {
    "gym": "gymnasium",
    "sb3": "stable_baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
    "envpool": "envpool",
}
"""The module that a contender needs, by the first part of its name."""


def installed(name: str) -> bool:
    """Whether what a contender needs is there."""
    module = PEERS.get(name.partition("-")[0])
    return module is None or importlib.util.find_spec(module) is not None
