"""What type checkers know of the public API. Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import gymnasium
import numpy as np
from numpy.typing import NDArray

import agymc
from agymc import compat


def one_env() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def classic_door() -> None:
    envs = agymc.make("CartPole-v1", 3, engine="serial", show_max_hz=20.0, sutton_barto_reward=True)
    assert_type(envs, agymc.BatchEnv)
    assert_type(envs.num_envs, int)
    assert_type(len(envs), int)
    assert_type(envs.reset(seed=3), list[Any])
    assert_type(envs.step([0, 1, 0]), tuple[list[Any], list[Any], list[bool], list[dict[str, Any]]])
    assert_type(envs.action_space.sample(), list[Any])
    assert_type(envs.observation_space.contains([1, 2, 3]), list[bool])
    assert_type(envs.render(), list[Any] | None)
    assert_type(envs.seed(1), list[list[int | None]])
    assert_type(envs.parallel(print, [[1, 2, 3]], {"end": ["", "", ""]}), list[Any])
    assert_type(envs.closed, bool)
    assert_type(envs.render_mode, str | None)
    envs.step(np.zeros(3, np.int64))
    envs.close(timeout=1.0)
    with agymc.make(one_env) as entered:
        assert_type(entered, agymc.BatchEnv)


def vector_door() -> None:
    envs = agymc.make_vec("CartPole-v1", 3, autoreset_mode="SameStep", wrappers=[one_wrapper])
    assert_type(envs, agymc.VectorEnv)
    _, infos = envs.reset(seed=[1, None, 3], options={"x": 1})
    assert_type(infos, dict[str, Any])
    _, rewards, terminations, truncations, infos = envs.step(np.zeros(3, np.int64))
    assert_type(rewards, NDArray[np.float64])
    assert_type(terminations, NDArray[np.bool_])
    assert_type(truncations, NDArray[np.bool_])
    envs.send(np.zeros(2, np.int64), [0, 2])
    batch = envs.recv(min_ready=1, timeout=3)
    assert_type(batch, agymc.Batch)
    assert_type(batch.env_ids, NDArray[np.int64])
    assert_type(batch.steps, NDArray[np.int64])
    assert_type(envs.batches(min_ready=2), Iterator[agymc.Batch])
    assert_type(envs.call("render"), tuple[Any, ...])
    assert_type(envs.render(), tuple[Any, ...])
    assert_type(envs.snapshot(), list[agymc.Snapshot])
    with agymc.make_vec([one_env, one_env], env_kwargs=[{}, {"a": 1}]) as entered:
        assert_type(entered, agymc.VectorEnv)
    any_vector_env: gymnasium.vector.VectorEnv[Any, Any, Any] = envs
    any_vector_env.close()


def one_wrapper(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env


def compatible() -> None:
    assert_type(compat.SyncVectorEnv([one_env]).envs, list[Any])
    compat.AsyncVectorEnv([one_env], True, True, "spawn", autoreset_mode="Disabled")


def errors(error: agymc.EnvError, death: agymc.WorkerDiedError) -> None:
    assert_type(error.env_ids, tuple[int, ...])
    assert_type(error.env_id, int | None)
    assert_type(error.seed, int | None)
    assert_type(death.exit_code, int | None)
    value: ValueError = agymc.ConfigurationError()
    timeout: TimeoutError = agymc.RecvTimeoutError()
    del value, timeout


def mistakes() -> None:
    """Each of these must be seen: an ignore that is not needed is an error."""
    agymc.make(3)  # type: ignore[arg-type]
    agymc.make("CartPole-v1", "3")  # type: ignore[arg-type]
    agymc.make_vec("CartPole-v1", fairness="luck")  # type: ignore[arg-type]
    agymc.make("CartPole-v1").step(3)  # type: ignore[arg-type]
    agymc.make("CartPole-v1").parallel(3)  # type: ignore[arg-type]
