"""Classes from before Gymnasium, by function and by id, through both doors."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.doors.envs import Old

import agymc


# An old env is adapted where it lives; how it runs there makes no difference.
@pytest.fixture(params=["serial", "process"])
def engine(request: pytest.FixtureRequest) -> str:
    """Here and elsewhere."""
    name: str = request.param
    return name


@pytest.fixture(params=["function", "id", "id of a class"])
def source(request: pytest.FixtureRequest) -> Any:
    """An old env, in each way to name it."""
    if request.param == "function":
        yield Old
        return
    name = "agymc-test/Old-v0"
    entry_point = Old if request.param == "id of a class" else "tests.doors.envs:Old"
    gymnasium.register(name, entry_point)
    yield name
    del gymnasium.registry[name]


def expected(seed: int, actions: list[int], **kwargs: Any) -> list[Any]:
    """What the env itself gives: (observation, reward, done, info) of each step."""
    env = Old(**kwargs)
    env.seed(seed)
    steps: list[Any] = [env.reset()]
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][2]:
            break
    return steps


def test_lists(source, engine):
    actions = [0, 1, 1, 0]
    with agymc.make(source, 2, engine=engine, length=3) as envs:
        observations = envs.reset(seed=5)
        singles = [expected(5 + i, actions, length=3) for i in range(2)]
        assert np.array_equal(observations, [single[0] for single in singles])
        for step, action in enumerate(actions[:3], 1):
            observations, rewards, dones, infos = envs.step([action, action])
            for i, single in enumerate(singles):
                observation, reward, done, info = single[step]
                assert np.array_equal(observations[i], observation)
                assert (rewards[i], dones[i], infos[i]) == (reward, done, info)
        assert dones == [True, True]
        assert envs.step([0, 0])[1:] == ([0.0, 0.0], [True, True], [{}, {}])


def test_truncation(source, engine):
    with agymc.make(source, 1, engine=engine, length=9, limit=2) as envs:
        envs.reset()
        envs.step([0])
        _, _, dones, infos = envs.step([0])
        assert (dones, infos) == ([True], [{"count": 2, "TimeLimit.truncated": True}])
    with agymc.make_vec(source, 1, engine=engine, length=9, limit=2) as envs:
        envs.reset()
        envs.step([0])
        _, _, terminations, truncations, _ = envs.step([0])
        assert (terminations.tolist(), truncations.tolist()) == ([False], [True])


def test_vector(source, engine):
    actions = [1, 0, 1]
    with agymc.make_vec(source, 2, engine=engine, autoreset_mode="SameStep", length=3) as envs:
        observations, _ = envs.reset(seed=5)
        singles = [expected(5 + i, actions, length=3) for i in range(2)]
        assert np.array_equal(observations, [single[0] for single in singles])
        for step, action in enumerate(actions, 1):
            observations, rewards, terminations, truncations, infos = envs.step([action] * 2)
            assert rewards.tolist() == [float(action)] * 2
            assert terminations.tolist() == [step == 3] * 2
            assert not truncations.any()
        assert observations[:, 0].tolist() == [0.0, 0.0]
        last = np.stack(infos["final_obs"])
        assert np.array_equal(last, [single[3][0] for single in singles])


def test_what_is_the_envs_own(source, engine):
    with agymc.make(source, 2, engine=engine, length=3) as envs:
        assert envs.unwrapped.length == (3, 3)
        envs.unwrapped.length = 1
        envs.reset()
        assert envs.step([0, 0])[2] == [True, True]
        assert envs.metadata["render_fps"] == (25, 25)
        assert envs.render_mode == "rgb_array"
        assert envs.render("rgb_array")[1].max() == 1


def test_time_limit_of_an_id(engine):
    gymnasium.register("agymc-test/Limited-v0", "tests.doors.envs:Old", max_episode_steps=2)
    try:
        with agymc.make("agymc-test/Limited-v0", 1, engine=engine, length=9) as envs:
            envs.reset()
            envs.step([0])
            _, _, dones, infos = envs.step([0])
            assert (dones, infos[0]["TimeLimit.truncated"]) == ([True], True)
    finally:
        del gymnasium.registry["agymc-test/Limited-v0"]


def test_no_env_at_all(engine):
    for door in (agymc.make, agymc.make_vec):
        with pytest.raises(
            agymc.EnvError, match="env 0 raised TypeError in construction"
        ) as caught:
            door(dict, 1, engine=engine)
        assert "got dict without reset, step, observation_space" in str(caught.value)
