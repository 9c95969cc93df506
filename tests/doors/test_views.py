"""Broadcast views: what `action_space`, `spec`, `metadata` and `unwrapped` give."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tests.doors.envs import Walk

import agymc
from agymc.views import SpacesView, View


def walks(engine: str, **common: Any) -> agymc.BatchEnv:
    return agymc.make(
        [functools.partial(Walk, label=label, **common) for label in (5, 6, 7)], engine=engine
    )


# ---------------------------------------------------------------------- of plain objects


def test_an_attribute_gives_a_tuple_and_a_call_a_list():
    view = View([1 + 2j, 3 - 4j])
    assert view.real == (1.0, 3.0)
    assert view.conjugate() == [1 - 2j, 3 + 4j]
    assert View(["a,b", "c"]).split(",", maxsplit=1) == [["a", "b"], ["c"]]
    with pytest.raises(AttributeError, match="'complex' object has no attribute 'length'"):
        _ = view.length


def test_it_is_a_sequence():
    view = View("abc")
    assert len(view) == 3
    assert list(view) == ["a", "b", "c"]
    assert (view[0], view[np.int64(1)], view[-1]) == ("a", "b", "c")
    assert view[1:] == ("b", "c")
    assert "b" in view
    with pytest.raises(IndexError):
        _ = view[3]


def test_a_key_gives_a_tuple():
    assert View([{"fps": 5}, {"fps": 6}])["fps"] == (5, 6)
    with pytest.raises(KeyError):
        _ = View([{"fps": 5}])["modes"]


def test_repr():
    assert repr(View([1, 1, 1])) == "<3 x 1>"
    assert repr(View([1, 2])) == "<1, 2>"


# ---------------------------------------------------------------------- of the envs' own


def test_spaces(engine):
    with walks(engine) as envs:
        assert isinstance(envs.action_space, SpacesView)
        assert envs.action_space.n == (3, 3, 3)
        assert envs.action_space[1] == spaces.Discrete(3)
        assert repr(envs.action_space) == "<3 x Discrete(3)>"
        assert len(envs.observation_space) == 3
        assert [space.shape for space in envs.observation_space] == [(2,)] * 3
        assert envs.observation_space.contains(envs.reset()) == [True] * 3
        assert envs.action_space.contains([0, 5, 1]) == [True, False, True]
        with pytest.raises(agymc.BatchLengthError, match="expected 3 values, one per env, got 1"):
            envs.action_space.contains([0])


def test_samples_are_drawn_for_each_env_and_can_be_seeded(engine):
    with agymc.make("Pendulum-v1", 3, engine=engine) as envs:
        samples = envs.action_space.sample()
        assert type(samples) is list and [s.shape for s in samples] == [(1,)] * 3
        assert len({float(s) for [s] in samples}) == 3
        envs.action_space.seed(4)
        first = envs.action_space.sample()
        envs.action_space.seed([4, 5, 6])
        assert np.array_equal(first, envs.action_space.sample())
        single = gymnasium.make("Pendulum-v1").action_space
        single.seed(5)
        assert np.array_equal(first[1], single.sample())


def test_spec_and_metadata(engine):
    with agymc.make("CartPole-v1", 2, engine=engine, sutton_barto_reward=True) as envs:
        assert envs.spec.id == ("CartPole-v1", "CartPole-v1")
        assert envs.spec[0].max_episode_steps == 500
        assert envs.metadata["render_fps"] == (50, 50)
        assert envs.metadata[1]["render_modes"] == ["human", "rgb_array"]
        assert envs.metadata.get("nonsense", 3) == [3, 3]
    with walks(engine) as envs:
        assert list(envs.spec) == [None] * 3


# ---------------------------------------------------------------------- of the envs themselves


def test_read_write_call(engine):
    with walks(engine) as envs:
        assert envs.unwrapped.label == (5, 6, 7)
        assert envs.unwrapped.add(10, b=100) == [115, 116, 117]
        envs.unwrapped.label = 1
        assert envs.unwrapped.add(0) == [1, 1, 1]
        assert len(envs.unwrapped) == 3
        assert repr(envs.unwrapped) == "<view of 3 envs>"


def test_one_env(engine):
    with walks(engine) as envs:
        one = envs.unwrapped[1]
        assert one.label == 6
        assert one.add(1) == 7
        one.label = 60
        assert envs.unwrapped.label == (5, 60, 7)
        assert envs.unwrapped[-1].label == 7
        assert [env.label for env in envs.unwrapped] == [5, 60, 7]
        assert [env.label for env in envs.unwrapped[:2]] == [5, 60]
        assert repr(one) == "<view of env 1>"
        with pytest.raises(IndexError, match="expected an env from 0 to 2, got 3"):
            _ = envs.unwrapped[3]


def test_through_wrappers(engine):
    with agymc.make("CartPole-v1", 2, engine=engine, max_episode_steps=9) as envs:
        assert envs.unwrapped.gravity == (9.8, 9.8)
        envs.unwrapped.gravity = 3.7
        assert envs.unwrapped[0].gravity == 3.7
        envs.reset(seed=0)
        fast = envs.step([0, 0])[0]
        envs.unwrapped[1].gravity = 9.8
        envs.reset(seed=0)
        mixed = envs.step([0, 0])[0]
        assert np.array_equal(fast[0], mixed[0])
        assert not np.array_equal(fast[1], mixed[1])  # it was really set, where the env lives


def test_the_envs_can_be_asked_in_the_middle_of_an_episode(engine):
    with walks(engine) as envs:
        envs.reset()
        envs.step([1, 1, 1])
        assert envs.unwrapped.count == (1, 1, 1)
        assert [o.tolist() for o in envs.step([2, 2, 2])[0]] == [[5, 2], [6, 2], [7, 2]]


def test_what_is_not_there_is_an_attribute_error(engine):
    with walks(engine) as envs:
        assert not hasattr(envs.unwrapped, "altitude")
        assert not hasattr(envs.unwrapped[0], "altitude")
        assert not hasattr(envs.unwrapped, "__array__")
        with pytest.raises(AttributeError, match="env 0 raised AttributeError in get 'altitude'"):
            _ = envs.unwrapped.altitude
        assert envs.unwrapped.label == (5, 6, 7)


def test_a_method_that_raises(engine):
    with walks(engine) as envs:
        with pytest.raises(agymc.EnvError, match="env 0 raised OSError in call 'complain': no"):
            envs.unwrapped.complain()
        with pytest.raises(agymc.EnvError, match="env 2 raised OSError in call 'complain': no"):
            envs.unwrapped[2].complain()
        with pytest.raises(agymc.EnvError, match=r"TypeError in call 'add'.*missing 1 required"):
            envs.unwrapped.add()
        envs.reset()
        envs.step([0, 0, 0])


def test_what_the_batch_must_do_itself(engine):
    with walks(engine) as envs:
        for name in ("reset", "step", "close"):
            with pytest.raises(
                agymc.ConfigurationError, match=rf"call {name}\(\) of the batch, not of"
            ):
                getattr(envs.unwrapped, name)()
