"""Which env gets which seed, and that seeds decide everything."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.support.envs import Counting
from tests.support.reference import assert_identical

import agymc
from agymc import AutoresetMode, BatchLengthError, ConfigurationError, EnvError

MakeVec = Callable[..., agymc.VectorEnv]


def seeds_of(envs: agymc.VectorEnv, reset: int = -1) -> list[Any]:
    return [calls[reset][0] for calls in envs.get_attr("resets")]


def test_forms_of_a_seed(variant: dict[str, Any], open_vec: MakeVec) -> None:
    envs = open_vec(Counting, 4, **variant)
    for seed, expected in [
        (None, [None] * 4),
        (7, [7, 8, 9, 10]),
        (np.int32(7), [7, 8, 9, 10]),
        (0, [0, 1, 2, 3]),
        ([4, 3, 2, 1], [4, 3, 2, 1]),
        ((4, None, 2, None), [4, None, 2, None]),
        (np.array([1, 2, 3, 4], np.uint8), [1, 2, 3, 4]),
        (range(4), [0, 1, 2, 3]),
        (2**40, [2**40 + i for i in range(4)]),
    ]:
        envs.reset(seed=seed)
        assert seeds_of(envs) == expected
        assert all(type(own) is int or own is None for own in seeds_of(envs))
        envs.send_reset(seed=seed)
        envs.recv()
        assert seeds_of(envs) == expected
    # For some of the envs: an int counts on from env 0, a list has one for each of them.
    envs.send_reset(seed=50, env_ids=[3, 1])
    envs.recv()
    assert seeds_of(envs) == [2**40, 51, 2**40 + 2, 53]
    envs.send_reset(seed=[60, 61], env_ids=[3, 1])
    envs.recv()
    assert seeds_of(envs) == [2**40, 61, 2**40 + 2, 60]
    envs.reset(seed=70, options={"reset_mask": np.array([False, True, False, True])})
    assert seeds_of(envs) == [2**40, 71, 2**40 + 2, 73]
    assert envs.np_random_seed == (2**40, 71, 2**40 + 2, 73)


def test_wrong_seeds(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 3)
    text = "expected a non-negative integer, a list of them, or None, got "
    for seed, where in [
        (-1, "-1, at seed"),
        (1.0, "1.0, at seed"),
        (True, "True, at seed"),
        ("12", "'12', at seed"),
        ([1, -2, 3], "-2, at seed[1]"),
        ([1, 2, 3.5], "3.5, at seed[2]"),
    ]:
        with pytest.raises(ConfigurationError, match=re.escape(text + where)):
            envs.reset(seed=seed)
    for seed in ([], [1, 2], np.arange(4)):
        with pytest.raises(
            BatchLengthError, match=f"expected 3 seeds, one per env, got {len(seed)}"
        ):
            envs.reset(seed=seed)
    assert envs.get_attr("resets") == ([], [], [])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_case_04_autoresets_can_be_seeded(
    variant: dict[str, Any], open_vec: MakeVec, mode: AutoresetMode
) -> None:
    def reset_seed(index: int, episode: int) -> int | None:
        return None if index == 1 else 1000 * index + episode

    envs = open_vec(
        [partial(Counting, length=n) for n in (1, 1, 2, 3)],
        autoreset_mode=mode,
        reset_seed=reset_seed,
        **variant,
    )
    envs.reset(seed=5)
    for _ in range(8):
        envs.step([0] * 4)
    for index, calls in enumerate(envs.get_attr("resets")):
        seeds = [seed for seed, _ in calls]
        assert len(seeds) > 2
        assert seeds[0] == 5 + index
        assert seeds[1:] == [reset_seed(index, episode) for episode in range(1, len(seeds))]
    # A reset by hand begins an episode too, whose number the next one counts on from.
    numbers = [len(calls) for calls in envs.get_attr("resets")]
    envs.reset()
    for _ in range(4):
        envs.step([0] * 4)
    for index, calls in enumerate(envs.get_attr("resets")):
        assert calls[numbers[index]][0] is None
        assert calls[numbers[index] + 1][0] == reset_seed(index, numbers[index] + 1)


def test_case_04_an_episode_can_be_played_again(make_vec: MakeVec) -> None:
    """The same seed gives the same episode, be it an autoreset's or a reset's."""
    envs = make_vec("CartPole-v1", 2, reset_seed=lambda index, episode: 10 * index + episode)
    envs.reset(seed=[0, 10])
    played: list[list[Any]] = [[], []]
    steps = np.zeros(2, int)
    for _ in range(60):
        observations, *_ = envs.step(steps % 2)
        for index in range(2):
            played[index].append(observations[index])
        steps += 1
    _, infos = envs.reset()
    assert infos == {}
    starts = {
        tuple(envs.reset(seed=[episode, 10 + episode])[0][index].tolist()): episode
        for episode in range(5)
        for index in range(2)
    }
    found = [starts[key] for own in played for row in own if (key := tuple(row.tolist())) in starts]
    assert found[:1] == [1]
    assert 1 in found[1:]


def test_a_reset_seed_of_numpys(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Counting, length=1), 2, reset_seed=partial(constant, np.uint8(3)))
    envs.reset()
    envs.step([0, 0])
    envs.step([0, 0])
    assert seeds_of(envs) == [3, 3]


def constant(value: Any, index: int, episode: int) -> Any:
    return value


def wrong(index: int, episode: int) -> Any:
    return (-1, 1.5, "3")[index]


def test_a_reset_seed_that_is_none(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Counting, length=1), 3, reset_seed=wrong)
    envs.reset()
    envs.step([0, 0, 0])
    with pytest.raises(EnvError, match="env 0 raised Error in autoreset: Seed must be") as caught:
        envs.step([0, 0, 0])
    causes = [type(error.__cause__) for error in caught.value.others]
    assert causes == [TypeError, TypeError]


def test_a_reset_seed_that_raises(make_vec: MakeVec) -> None:
    def reset_seed(index: int, episode: int) -> int:
        raise LookupError(f"no seed for env {index}, episode {episode}")

    envs = make_vec(
        [partial(Counting, length=1), partial(Counting, length=9)], reset_seed=reset_seed
    )
    envs.reset()
    envs.step([0, 0])
    with pytest.raises(
        EnvError, match="env 0 raised LookupError in autoreset: no seed for env 0, episode 1"
    ):
        envs.step([0, 0])
    assert envs.recv().env_ids.tolist() == [1]


def test_a_reset_seed_that_is_no_function(make_vec: MakeVec) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"expected reset_seed to be a function \(env index, episode number\) -> seed or None",
    ):
        make_vec(Counting, 2, reset_seed=7)


def test_unseeded_envs_differ(make_vec: MakeVec) -> None:
    """Also those of one process, and those of workers that were started together."""
    envs = make_vec(Counting, 8)
    observations, _ = envs.reset()
    assert len(set(observations[:, 2].tolist())) == 8


def test_case_11_arguments_of_each_env(variant: dict[str, Any], open_vec: MakeVec) -> None:
    envs = open_vec(Counting, 5, env_kwargs=[{"label": i} for i in range(5)], length=2, **variant)
    assert envs.get_attr("label") == (0, 1, 2, 3, 4)
    assert envs.get_attr("lengths") == ([2],) * 5


def test_case_11_arguments_for_ids(make_vec: MakeVec) -> None:
    gravities = [{"g": 9.81}, {"g": 1.62}, {"max_episode_steps": 2}]
    envs = make_vec("Pendulum-v1", 3, env_kwargs=gravities)
    assert envs.get_attr("g") == (9.81, 1.62, 10.0)
    envs.reset(seed=0)
    singles = [gymnasium.make("Pendulum-v1", **kwargs) for kwargs in gravities]
    for i, env in enumerate(singles):
        env.reset(seed=i)
    for _ in range(2):
        observations, rewards, _, truncations, _ = envs.step(np.full((3, 1), 0.5, np.float32))
        for i, env in enumerate(singles):
            observation, reward, _, truncated, _ = env.step(np.array([0.5], np.float32))
            assert_identical(observations[i], observation)
            assert rewards[i] == reward
            assert truncations[i] == truncated
    assert truncations.tolist() == [False, False, True]


def test_case_11_wrong_arguments(make_vec: MakeVec) -> None:
    with pytest.raises(BatchLengthError, match="expected 3 env_kwargs, one per env, got 2"):
        make_vec(Counting, 3, env_kwargs=[{}, {}])
    with pytest.raises(
        ConfigurationError, match=r"expected a dict of arguments, got 3, at env_kwargs\[1\]"
    ):
        make_vec(Counting, 2, env_kwargs=[{}, 3])


def train(envs: agymc.VectorEnv) -> Any:
    """Evolution of a linear policy for CartPole; gives all that is learnt."""
    rng = np.random.default_rng(0)
    mean, spread = np.zeros(4), np.ones(4)
    returns = []
    for generation in range(6):
        candidates = mean + spread * rng.normal(size=(envs.num_envs, 4))
        observations, _ = envs.reset(seed=100 * generation)
        total = np.zeros(envs.num_envs)
        playing = np.ones(envs.num_envs, bool)
        for _ in range(100):
            actions = ((observations * candidates).sum(axis=1) > 0).astype(np.int64)
            observations, rewards, terminations, truncations, _ = envs.step(actions)
            total += rewards * playing
            playing &= ~(terminations | truncations)
        best = candidates[np.argsort(-total, kind="stable")[:4]]
        mean, spread = best.mean(axis=0), best.std(axis=0)
        returns.append(total)
    return mean, spread, np.array(returns)


@pytest.fixture(scope="module")
def trained() -> Any:
    functions = [partial(gymnasium.make, "CartPole-v1")] * 12
    with closing(gymnasium.vector.SyncVectorEnv(functions)) as envs:
        return train(envs)


def test_case_13_training_gives_the_same_results(make_vec: MakeVec, trained: Any) -> None:
    """As on Gymnasium's own loop, bit for bit."""
    mean, spread, returns = trained
    assert returns[-1].max() > 2 * returns[0].mean(), "nothing was learnt: the test is pointless"
    got = train(make_vec("CartPole-v1", 12))
    assert_identical(got, (mean, spread, returns))
