"""The wrappers of coroutine envs, and ids for them."""

from __future__ import annotations

import asyncio
import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from tests.asyncio.envs import AioCounting, Ported, make_counting
from tests.asyncio.helpers import COROUTINE_ENGINES, run
from tests.support.envs import Counting

import agymc


def test_time_limit_and_statistics_are_those_of_gymnasium():
    """On an env that ends by itself, too, before, at and after the limit."""

    async def main():
        for length in (2, 3, 4):
            theirs = RecordEpisodeStatistics(TimeLimit(Counting(length=length), 3))
            ours = agymc.AsyncRecordEpisodeStatistics(
                agymc.AsyncTimeLimit(Ported(partial(Counting, length=length)), 3)
            )
            for seed in range(2):
                expected, got = theirs.reset(seed=seed), await ours.reset(seed=seed)
                assert got[0].tolist() == expected[0].tolist()
                over = False
                while not over:
                    expected, got = theirs.step(1), await ours.step(1)
                    assert got[0].tolist() == expected[0].tolist()
                    assert got[1:4] == expected[1:4]
                    over = got[2] or got[3]
                for key in ("r", "l"):
                    assert got[4]["episode"][key] == expected[4]["episode"][key]
                assert got[4]["episode"]["t"] >= 0
            await ours.close()

    run(main)


@pytest.mark.parametrize(("limit", "error"), [(0, ValueError), (2.5, TypeError), (True, TypeError)])
def test_bad_time_limits(limit, error):
    with pytest.raises(error, match="expected max_episode_steps to be"):
        agymc.AsyncTimeLimit(AioCounting(), limit)


def test_wrappers_pass_on_what_they_do_not_know():
    env = AioCounting(label="mine")
    wrapped = agymc.AsyncTimeLimit(agymc.AsyncWrapper(env), 3)
    assert wrapped.label == "mine"
    assert wrapped.unwrapped is env
    assert wrapped.observation_space is env.observation_space
    assert repr(wrapped).startswith("<AsyncTimeLimit<AsyncWrapper<")
    with pytest.raises(AttributeError, match="missing"):
        _ = wrapped.missing
    assert pickle.loads(pickle.dumps(wrapped)).max_episode_steps == 3


class Doubling(agymc.AsyncWrapper):
    """A wrapper of the user's own."""

    async def step(self, action):
        observation, reward, *rest = await super().step(action)
        return observation, 2 * reward, *rest


@pytest.mark.parametrize("engine", COROUTINE_ENGINES)
def test_wrappers_given_to_a_door(engine):
    wrappers = [Doubling, partial(agymc.AsyncTimeLimit, max_episode_steps=2)]
    options = {"num_workers": 1} if engine.startswith("process") else {}
    with agymc.make_vec(
        partial(AioCounting, length=9), 2, engine=engine, wrappers=wrappers, **options
    ) as envs:
        envs.reset()
        assert envs.step([0, 0])[1].tolist() == [0.002, 0.002]
        assert envs.step([0, 0])[3].tolist() == [True, True]


@pytest.fixture
def registry():
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.parametrize("engine", COROUTINE_ENGINES)
@pytest.mark.parametrize("how", ["class", "function", "string", "of gymnasium"])
def test_ids(registry, engine, how):
    entry_points = {
        "class": AioCounting,
        "function": make_counting,
        "string": "tests.asyncio.envs:AioCounting",
        "of gymnasium": AioCounting,
    }
    register = gymnasium.register if how == "of gymnasium" else agymc.register
    register("Waits-v0", entry_points[how], max_episode_steps=2, kwargs={"length": 9})
    options = {"num_workers": 1} if engine.startswith("process") else {}
    with agymc.make_vec("Waits-v0", 2, engine=engine, label="given", **options) as envs:
        envs.reset()
        assert envs.get_attr("label") == ("given", "given")
        assert envs.step([0, 0])[3].tolist() == [False, False]
        assert envs.step([0, 0])[3].tolist() == [True, True]
    with agymc.make("Waits-v0", 1, engine=engine) as envs:
        envs.reset()
        assert envs.spec[0].id == "Waits-v0"
        assert not envs.step([0])[2][0]
        assert envs.step([0])[2][0]
        assert envs.step([0])[3] == [{}], "its episode is over"

    async def main():
        async with agymc.make_async("Waits-v0", 2, engine=engine, **options) as envs:
            await envs.reset()
            assert (await envs.step([0, 0]))[1].tolist() == [0.001, 0.001]

    asyncio.run(main())


def test_an_unknown_id():
    with pytest.raises(agymc.UnknownEnvError, match="Waits-v9"):
        agymc.make_async("Waits-v9", 2)


def test_a_registered_env_is_like_the_one_it_was_ported_from(registry):
    agymc.register("Ported-v0", partial(Ported, partial(gymnasium.make, "CartPole-v1")))
    single = gymnasium.make("CartPole-v1")
    with agymc.make_vec("Ported-v0", 1, engine="asyncio") as envs:
        assert np.array_equal(envs.reset(seed=1)[0][0], single.reset(seed=1)[0])
        for action in (0, 1, 1, 0):
            assert np.array_equal(envs.step([action])[0][0], single.step(action)[0])
