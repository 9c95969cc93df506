"""Case 12: the state of envs is saved and restored, across workers, with all that belongs to it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import EzPickle
from tests.engines.conftest import MODES
from tests.support.envs import Counting
from tests.support.reference import assert_identical

import agymc
from agymc import AutoresetMode, ConfigurationError, SnapshotError

MakeVec = Callable[..., agymc.VectorEnv]


def play(envs: agymc.VectorEnv, steps: int, seed: int = 0) -> list[Any]:
    """What some steps give; actions depend on ``seed`` alone."""
    envs.action_space.seed(seed)
    results = []
    for _ in range(steps):
        results.append(envs.step(envs.action_space.sample()))
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
            over = results[-1][2] | results[-1][3]
            if over.any():
                results.append(envs.reset(options={"reset_mask": over}))
    return results


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_what_follows_is_as_it_was(make_vec: MakeVec, mode: AutoresetMode) -> None:
    """Also from between two episodes: after a last step, before the autoreset."""
    envs = make_vec("CartPole-v1", 4, autoreset_mode=mode)
    envs.reset(seed=0)
    for steps in (0, 9, 3, 1, 1, 1):
        play(envs, steps)
        saved = envs.snapshot()
        first = play(envs, 40, seed=1)
        envs.restore(saved)
        assert_identical(play(envs, 40, seed=1), first)
        envs.restore(saved)  # and as often as one likes


def test_right_after_an_episode(make_vec: MakeVec) -> None:
    for mode in MODES:
        envs = make_vec([partial(Counting, length=n) for n in (2, 3)], autoreset_mode=mode)
        envs.reset(seed=0)
        envs.step([0, 0])
        envs.step([1, 1])  # env 0 is over now
        saved = envs.snapshot()
        envs.reset(seed=99)
        play(envs, 3)
        envs.restore(saved)
        if mode is AutoresetMode.DISABLED:
            with pytest.raises(agymc.ResetNeededError, match="the episode is over in env 0"):
                envs.step([0, 0])
            envs.send([0], [1])
        else:
            envs.send([0, 0])
        batch = envs.recv()
        rows = dict(zip(batch.env_ids.tolist(), range(2), strict=False))
        assert batch.steps[rows[1]] == 3
        assert batch.episode_ids[rows[1]] == 0
        assert batch.terminations[rows[1]]
        if mode is AutoresetMode.NEXT_STEP:
            assert (batch.steps[rows[0]], batch.episode_ids[rows[0]]) == (0, 1)
        elif mode is AutoresetMode.SAME_STEP:
            assert (batch.steps[rows[0]], batch.episode_ids[rows[0]]) == (1, 1)


def test_from_one_env_into_others(variant: dict[str, Any], open_vec: MakeVec) -> None:
    """Search in many copies of one state: they live in any worker."""
    envs = open_vec("CartPole-v1", 5, **variant)
    envs.reset(seed=0)
    play(envs, 5)
    (saved,) = envs.snapshot([3])
    envs.restore([saved] * 5)
    results = play_alike(envs)
    for observations in results:
        assert all((row == observations[0]).all() for row in observations)
    # Some of them, the others are left alone.
    count = envs.get_attr("steps_beyond_terminated")
    envs.restore([saved, saved], [4, 0])
    assert envs.get_attr("steps_beyond_terminated")[1:4] == count[1:4]
    envs.send([1, 1], [0, 4])
    batch = envs.recv()
    assert batch.observations.tolist() == [results[0][0].tolist()] * 2


def play_alike(envs: agymc.VectorEnv) -> list[Any]:
    return [envs.step([action] * envs.num_envs)[0] for action in (1, 0, 1, 1, 0)]


@pytest.mark.parametrize("other", ["serial", "process+thread"])
def test_from_one_engine_to_another(engine: str, open_vec: MakeVec, other: str) -> None:
    first = open_vec("FrozenLake-v1", 3, engine=engine)
    first.reset(seed=0)
    play(first, 7)
    saved = pickle.loads(pickle.dumps(first.snapshot()))
    expected = play(first, 30)
    second = open_vec("FrozenLake-v1", 3, engine=other)
    second.restore(saved)  # without any reset
    assert_identical(play(second, 30), expected)


def test_what_a_snapshot_says(make_vec: MakeVec) -> None:
    envs = make_vec([partial(Counting, length=n) for n in (1, 9)])
    envs.reset(seed=4)
    observations, *_ = envs.step([0, 0])
    first, second = envs.snapshot()
    assert (first.terminated, first.truncated, first.episode_id, first.steps) == (True, False, 0, 1)
    assert (second.terminated, second.episode_id, second.steps, second.seed) == (False, 0, 1, 5)
    assert_identical(first.observation, observations[0])
    envs.step([0, 0])
    assert_identical(first.observation, observations[0])  # it does not change


def test_observations_after_restore(make_vec: MakeVec) -> None:
    """The last observation is part of the state: a masked reset of another env shows it."""
    envs = make_vec(partial(Counting, length=9), 2)
    envs.reset(seed=0)
    envs.step([0, 0])
    saved = envs.snapshot([1])
    envs.step([0, 0])
    envs.restore(saved, [1])
    observations, _ = envs.reset(options={"reset_mask": np.array([True, False])})
    assert observations[:, 1].tolist() == [0.0, 1.0]


def test_the_number_of_the_episode_is_restored(make_vec: MakeVec) -> None:
    """With it the seeds that `reset_seed` gives."""
    envs = make_vec(partial(Counting, length=1), 2, reset_seed=lambda index, episode: episode)
    envs.reset(seed=0)
    saved = envs.snapshot()
    for _ in range(7):
        envs.step([0, 0])
    envs.restore(saved)
    envs.step([0, 0])
    envs.step([0, 0])
    assert [calls[-1][0] for calls in envs.get_attr("resets")] == [1, 1]


def test_wrappers_are_part_of_the_state(make_vec: MakeVec) -> None:
    envs = make_vec("Pendulum-v1", 2, max_episode_steps=5)
    envs.reset(seed=0)
    play(envs, 3)
    saved = envs.snapshot()
    play(envs, 4)
    envs.restore(saved)
    assert [result[3].tolist() for result in play(envs, 2)] == [[False, False], [True, True]]


class Easy(Counting, EzPickle):
    """Unpickles as a new env: pickling it loses its state without a word."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        EzPickle.__init__(self, length)


def test_envs_that_pickle_as_new_ones(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Easy, 99), 2)
    envs.reset(seed=0)
    play(envs, 3)
    saved = pickle.loads(pickle.dumps(envs.snapshot()))
    expected = play(envs, 3)
    envs.restore(saved)
    assert_identical(play(envs, 3), expected)


@pytest.mark.parametrize("id", ["LunarLander-v3", "BipedalWalker-v3", "InvertedPendulum-v5"])
def test_envs_that_cannot_be_copied_say_so(make_vec: MakeVec, id: str) -> None:
    """Either the state comes back whole, or there is an error: never a silent restart."""
    pytest.importorskip("Box2D" if id[0] in "LB" else "mujoco")
    envs = make_vec(id, 2)
    envs.reset(seed=0)
    play(envs, 3)
    try:
        saved = envs.snapshot()
    except SnapshotError as error:
        assert error.operation == "snapshot"
        assert error.env_id == 0
        assert "can't be copied: " in str(error)
    else:
        expected = play(envs, 5)
        envs.restore(saved)
        assert_identical(play(envs, 5), expected)
    play(envs, 3)  # and it can go on in any case


class Locked(Counting):
    def __init__(self) -> None:
        super().__init__(length=99)
        self.lock = threading.Lock()


def test_the_error_names_what_cannot_be_copied(make_vec: MakeVec) -> None:
    envs = make_vec([Counting, Locked])
    envs.reset()
    with pytest.raises(
        SnapshotError,
        match=r"env 1 raised TypeError in snapshot: the state of .* can't be copied: "
        r"TypeError: cannot pickle '_thread.lock' object",
    ) as caught:
        envs.snapshot()
    assert caught.value.env_ids == (1,)
    assert len(envs.snapshot([0])) == 1
    assert envs.step([0, 0])[1].tolist() == [0.001, 0.001]


def test_a_state_of_another_kind_of_env_is_refused(make_vec: MakeVec) -> None:
    """Before anything was changed."""
    other = make_vec("Pendulum-v1", 1)
    other.reset()
    envs = make_vec("CartPole-v1", 2)
    envs.reset(seed=0)
    twin = make_vec("CartPole-v1", 2)
    twin.reset(seed=0)
    text = "env 1 raised ValueError in restore: expected the state of an env with the observation_s"
    with pytest.raises(SnapshotError, match=text):
        envs.restore(other.snapshot(), [1])
    with pytest.raises(ConfigurationError, match=r"expected a snapshot, got 2, at snapshots\[1\]"):
        envs.restore([envs.snapshot()[0], 2])
    assert_identical(play(envs, 5), play(twin, 5))


def test_those_that_fit_are_restored(make_vec: MakeVec) -> None:
    other = make_vec("Pendulum-v1", 1)
    other.reset()
    envs = make_vec("CartPole-v1", 2)
    envs.reset(seed=0)
    play(envs, 3)
    first, _ = envs.snapshot()
    play(envs, 3)
    with pytest.raises(SnapshotError, match="env 1 raised"):
        envs.restore([first, *other.snapshot()])
    envs.send([0, 0])
    batch = envs.recv()
    assert batch.steps[batch.env_ids.argsort()].tolist() == [4, 7]


def test_single_envs_say_the_same(make_vec: MakeVec) -> None:
    """A restored env is the env that a loop over single envs would have."""
    single = gymnasium.make("CartPole-v1")
    single.reset(seed=3)
    envs = make_vec("CartPole-v1", 1)
    envs.reset(seed=3)
    envs.step([1])
    single.step(1)
    saved = envs.snapshot()
    envs.reset()
    envs.restore(saved)
    for action in (0, 1, 1):
        assert_identical(envs.step([action])[0][0], single.step(action)[0])
