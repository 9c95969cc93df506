"""`agymc.compat`: the classes of `gymnasium.vector`, by the same names and arguments."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_differing_spaces
from tests.doors.envs import Pair, Rooms, Walk

import agymc
from agymc import compat

FNS = [functools.partial(Walk, label=label) for label in range(3)]

both = pytest.mark.parametrize("name", ["SyncVectorEnv", "AsyncVectorEnv"])


@both
def test_the_constructors_take_gymnasiums_arguments(name):
    ours = inspect.signature(getattr(compat, name)).parameters
    theirs = inspect.signature(getattr(gymnasium.vector, name)).parameters
    assert list(ours) == list(theirs)
    for parameter in theirs:
        assert ours[parameter].kind == theirs[parameter].kind
        assert ours[parameter].default == theirs[parameter].default


@both
def test_they_are_vector_envs(name):
    with getattr(compat, name)(FNS) as envs:
        assert isinstance(envs, gymnasium.vector.VectorEnv)
        assert isinstance(envs, agymc.VectorEnv)
        assert envs.env_fns is FNS
        assert envs.num_envs == 3
        assert envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
        assert repr(envs) == f"{name}(num_envs=3)"


@both
def test_the_same_as_gymnasiums(name):
    """Data, dtypes, infos, over autoresets, in each mode."""
    env_fns = [functools.partial(gymnasium.make, "CartPole-v1")] * 2
    for mode in agymc.AutoresetMode:
        expected = gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode)
        with getattr(compat, name)(env_fns, autoreset_mode=mode) as envs:
            assert envs.observation_space == expected.observation_space
            assert envs.action_space == expected.action_space
            steps: list[Any] = [(envs.reset(seed=4), expected.reset(seed=4))]
            for step in range(40):
                actions = np.array([step % 2, 1])
                steps.append((envs.step(actions), expected.step(actions)))
                over = steps[-1][0][2] | steps[-1][0][3]
                if mode is agymc.AutoresetMode.DISABLED and over.any():
                    mask = {"reset_mask": over}
                    steps.append((envs.reset(options=mask), expected.reset(options=dict(mask))))
        expected.close()
        assert sum(np.sum(ours[2]) for ours, _ in steps if len(ours) == 5) >= 2
        for ours, theirs in steps:
            for a, b in zip(ours[:-1], theirs[:-1], strict=True):
                assert a.dtype == b.dtype
                assert a.tobytes() == b.tobytes()
            assert set(ours[-1]) == set(theirs[-1])
            for key in set(ours[-1]) & {"final_obs", "_final_obs"}:
                for a, b in zip(ours[-1][key], theirs[-1][key], strict=True):
                    assert np.array_equal(a, b)


def test_by_position():
    mode = agymc.AutoresetMode.DISABLED
    with compat.SyncVectorEnv(FNS, False, "different", mode) as envs:
        assert (envs.copy, envs.observation_mode, envs.autoreset_mode) == (False, "different", mode)
    args = (FNS, False, False, "spawn", False, None, "different", "SameStep", 2)
    with compat.AsyncVectorEnv(*args) as envs:
        assert (envs.shared_memory, envs.copy) == (False, False)
        assert envs.observation_mode == "different"
        assert envs.autoreset_mode is agymc.AutoresetMode.SAME_STEP


def test_the_envs_themselves():
    with compat.SyncVectorEnv(FNS) as envs:
        assert [env.label for env in envs.envs] == [0, 1, 2]
        envs.envs[1].label = 10
        assert envs.get_attr("label") == (0, 10, 2)


def test_copy_false_hands_out_the_buffers():
    with compat.SyncVectorEnv(FNS, copy=False) as envs:
        first, _ = envs.reset()
        second, *_ = envs.step(np.array([0, 0, 0]))
        assert first is second or np.shares_memory(first, second)
    with compat.SyncVectorEnv(FNS) as envs:
        first, _ = envs.reset()
        second, *_ = envs.step(np.array([0, 0, 0]))
        assert not np.shares_memory(first, second)


class Bounded(Walk):
    def __init__(self, high: int) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1000, high, (2,), np.int64)


@both
def test_observation_modes(name):
    cls = getattr(compat, name)
    env_fns = [functools.partial(Bounded, high) for high in (1000, 2000)]
    with pytest.raises(agymc.SpaceMismatchError, match=r"env 1: expected Box\(-1000, 1000"):
        cls(env_fns)
    with cls(env_fns, observation_mode="different") as envs:
        assert envs.observation_space.high[:, 0].tolist() == [1000, 2000]
    wide = spaces.Box(-5000, 5000, (2,), np.int64)
    both_spaces = (batch_differing_spaces([wide, wide]), wide)
    with cls(env_fns, observation_mode=both_spaces) as envs:
        assert envs.single_observation_space == wide
        assert envs.observation_space == both_spaces[0]
        assert envs.reset()[0].tolist() == [[0, 0], [0, 0]]


@both
def test_spaces_that_gymnasium_cannot_share(name):
    """Text in an observation needs ``shared_memory=False`` there."""
    with getattr(compat, name)([Rooms, Rooms]) as envs:
        observations, _ = envs.reset()
        assert observations["sign"] == ("room0", "room0")
    with getattr(compat, name)([Pair, Pair]) as envs:
        envs.reset()
        assert envs.step(np.array([0, 1]))[1].tolist() == [[1.0, -1.0], [1.0, -1.0]]


def test_max_concurrency():
    with compat.AsyncVectorEnv(FNS, max_concurrency=1) as envs:
        assert len(set(envs.call("process_id"))) == 1
    for wrong in (0, -1, True, 1.5, "1"):
        with pytest.raises(agymc.ConfigurationError) as caught:
            compat.AsyncVectorEnv(FNS, max_concurrency=wrong)
        assert str(caught.value) == (
            f"`max_concurrency` must be a positive integer or None, got {wrong!r}"
        )


def test_what_is_refused():
    with pytest.raises(agymc.ConfigurationError) as caught:
        compat.AsyncVectorEnv(FNS, worker=print)
    assert str(caught.value) == (
        "a custom `worker` function is not supported by agymc: its workers have their own command "
        "loop; use a wrapper around each env, or reset_seed of agymc.make_vec"
    )
    for cls in (compat.SyncVectorEnv, compat.AsyncVectorEnv):
        with pytest.raises(agymc.NumEnvsError, match="positive integer, got 0"):
            cls([])
        with pytest.raises(
            agymc.ConfigurationError, match=r"autoreset_mode 'NextStep', .* got 'x'"
        ):
            cls(FNS, autoreset_mode="x")


@both
def test_split_calls(name):
    with getattr(compat, name)(FNS) as envs:
        envs.reset_async(seed=3)
        assert envs.reset_wait()[0].tolist() == [[0, 0], [1, 0], [2, 0]]
        envs.step_async(np.array([0, 0, 0]))
        with pytest.raises(gymnasium.error.AlreadyPendingCallError):
            envs.reset()
        assert envs.step_wait(timeout=30)[0].tolist() == [[0, 1], [1, 1], [2, 1]]
        with pytest.raises(gymnasium.error.NoAsyncCallError):
            envs.step_wait()
        envs.call_async("add", 5, b=1)
        assert envs.call_wait() == (6, 7, 8)
        envs.set_attr("label", [7, 8, 9])
        assert envs.get_attr("label") == (7, 8, 9)
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset()
