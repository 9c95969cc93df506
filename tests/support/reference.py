"""What a vector env must do, written down once more: a plain loop over single envs.

It follows Gymnasium's documentation of the autoreset modes
(https://farama.org/Vector-Autoreset-Mode) and shares no code with agymc. Everything that an env
gives is copied at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from agymc import AutoresetMode


@dataclass
class Expected:
    """What a batch must say, one element per env."""

    observations: list[Any]
    rewards: list[Any]
    terminations: list[bool]
    truncations: list[bool]
    infos: list[dict[str, Any]]
    episode_ids: list[int]
    steps: list[int]


class ReferenceLoop:
    """Steps single envs one after the other."""

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], mode: AutoresetMode = AutoresetMode.NEXT_STEP
    ) -> None:
        self.envs = [env_fn() for env_fn in env_fns]
        self.mode = mode
        count = len(self.envs)
        none: list[Any] = [None] * count
        self.now = Expected(
            list(none), [0.0] * count, [False] * count, [False] * count, none, [-1] * count, none
        )

    def reset(self, seeds: Sequence[int | None], only: Sequence[int] | None = None) -> Expected:
        """Reset all envs, or only some; ``seeds`` has one element for each env."""
        now = self.now
        now.infos = [{} for _ in self.envs]
        now.steps = list(now.steps)
        for i in range(len(self.envs)) if only is None else only:
            observation, info = self.envs[i].reset(seed=seeds[i])
            now.observations[i], now.infos[i] = deepcopy(observation), deepcopy(info)
            now.rewards[i] = 0.0
            now.terminations[i] = now.truncations[i] = False
            now.steps[i] = 0
            now.episode_ids[i] += 1
        return deepcopy(now)

    def step(self, actions: Sequence[Any]) -> Expected:
        now = self.now
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            over = now.terminations[i] or now.truncations[i]
            if over and self.mode is AutoresetMode.NEXT_STEP:
                observation, info = env.reset()
                now.observations[i], now.infos[i] = deepcopy(observation), deepcopy(info)
                now.rewards[i], now.terminations[i], now.truncations[i] = 0.0, False, False
                now.episode_ids[i] += 1
                now.steps[i] = 0
                continue
            assert not (over and self.mode is AutoresetMode.DISABLED)
            if over:  # SAME_STEP: the new episode began with the last observation
                now.episode_ids[i] += 1
                now.steps[i] = 0
            observation, reward, terminated, truncated, info = deepcopy(env.step(action))
            now.steps[i] += 1
            now.rewards[i] = reward
            now.terminations[i], now.truncations[i] = bool(terminated), bool(truncated)
            if (terminated or truncated) and self.mode is AutoresetMode.SAME_STEP:
                final = {"final_obs": observation, "final_info": info}
                observation, info = deepcopy(env.reset())
                info = {**final, **info}
            now.observations[i], now.infos[i] = observation, info
        return deepcopy(now)

    def close(self) -> None:
        for env in self.envs:
            env.close()


def stacked(space: Space[Any], elements: Sequence[Any]) -> Any:
    """The batch of these elements of a space, in the form that Gymnasium gives batches."""
    match space:
        case spaces.Box() | spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return np.array(list(elements), dtype=space.dtype).reshape(
                (len(elements), *(space.shape or ()))
            )
        case spaces.Dict():
            return {
                key: stacked(part, [element[key] for element in elements])
                for key, part in space.spaces.items()
            }
        case spaces.Tuple():
            return tuple(
                stacked(part, [element[i] for element in elements])
                for i, part in enumerate(space.spaces)
            )
        case _:
            return tuple(elements)


def stacked_infos(infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The infos of all envs in one, with dtypes that hold every value."""
    result: dict[str, Any] = {}
    for key in dict.fromkeys(key for info in infos for key in info):
        mask = np.array([key in info for info in infos])
        values = [info[key] for info in infos if key in info]
        if key != "final_obs" and all(isinstance(value, dict) for value in values):
            result[key] = stacked_infos([info.get(key, {}) for info in infos])
        elif key != "final_obs" and all(_is_numeric(value) for value in values):
            dtype = np.result_type(*[np.asarray(value) for value in values])
            result[key] = np.zeros((len(infos), *np.shape(values[0])), dtype)
            for i in np.flatnonzero(mask):
                result[key][i] = infos[i][key]
        else:
            result[key] = np.full(len(infos), None, object)
            for i in np.flatnonzero(mask):
                result[key][i] = infos[i][key]
        result[f"_{key}"] = mask
    return result


def _is_numeric(value: Any) -> bool:
    return isinstance(value, int | float | np.ndarray | np.generic)


def assert_identical(got: Any, expected: Any, where: str = "value") -> None:
    """The same types, dtypes, shapes and bits, all the way down."""
    if isinstance(expected, np.ndarray):
        assert isinstance(got, np.ndarray), f"{where}: {type(got)} instead of an array"
        assert got.dtype == expected.dtype, f"{where}: {got.dtype} instead of {expected.dtype}"
        assert got.shape == expected.shape, f"{where}: {got.shape} instead of {expected.shape}"
        if expected.dtype.hasobject:
            for i, (mine, its) in enumerate(zip(got.flat, expected.flat, strict=True)):
                assert_identical(mine, its, f"{where}[{i}]")
        else:
            assert got.tobytes() == expected.tobytes(), f"{where}: {got} instead of {expected}"
    elif isinstance(expected, dict):
        assert isinstance(got, dict), f"{where}: {type(got)} instead of a dict"
        assert sorted(map(str, got)) == sorted(map(str, expected)), f"{where}: other keys"
        for key, its in expected.items():
            assert_identical(got[key], its, f"{where}[{key!r}]")
    elif isinstance(expected, tuple | list):
        assert type(got) is type(expected), f"{where}: {type(got)} instead of {type(expected)}"
        assert len(got) == len(expected), f"{where}: {len(got)} elements, not {len(expected)}"
        for i, (mine, its) in enumerate(zip(got, expected, strict=True)):
            assert_identical(mine, its, f"{where}[{i}]")
    elif isinstance(expected, float | np.floating):
        assert type(got) is type(expected), f"{where}: {type(got)} instead of {type(expected)}"
        assert np.asarray(got).tobytes() == np.asarray(expected).tobytes(), f"{where}: {got}"
    else:
        assert type(got) is type(expected), f"{where}: {type(got)} instead of {type(expected)}"
        assert got == expected, f"{where}: {got!r} instead of {expected!r}"


def assert_reset(space: Space[Any], got: tuple[Any, Any], expected: Expected) -> None:
    observations, infos = got
    assert_identical(observations, stacked(space, expected.observations), "observations")
    assert_identical(infos, stacked_infos(expected.infos), "infos")


def assert_step(space: Space[Any], got: tuple[Any, ...], expected: Expected) -> None:
    observations, rewards, terminations, truncations, infos = got
    assert_identical(observations, stacked(space, expected.observations), "observations")
    assert_identical(rewards, np.array(expected.rewards, np.float64), "rewards")
    assert_identical(terminations, np.array(expected.terminations), "terminations")
    assert_identical(truncations, np.array(expected.truncations), "truncations")
    assert_identical(infos, stacked_infos(expected.infos), "infos")
