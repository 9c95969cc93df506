"""The classic door: episodes, in lists, on every engine."""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.doors.envs import CtrlC, OwnDice, Pair, Rooms, Walk

import agymc


def make(cls: Any, kwargs: Any, engine: str) -> agymc.BatchEnv:
    """One env of the class for each dict of arguments."""
    return agymc.make([functools.partial(cls, **own) for own in kwargs], engine=engine)


def walks(engine: str, *lengths: int, **common: Any) -> agymc.BatchEnv:
    """One `Walk` per length, labelled 0, 1, 2, ..."""
    return make(Walk, [{"length": n, "label": i, **common} for i, n in enumerate(lengths)], engine)


# ---------------------------------------------------------------------- episodes


def test_each_env_runs_to_its_own_end_and_is_not_stepped_after_it(engine):
    lengths = (1, 4, 2)
    with walks(engine, *lengths) as envs:
        for episode in range(2):
            observations = envs.reset()
            assert [o.tolist() for o in observations] == [[0, 0], [1, 0], [2, 0]]
            dones = [False] * 3
            steps = 0
            while not all(dones):
                before = dones
                observations, rewards, dones, infos = envs.step([steps % 3] * 3)
                steps += 1
                for env, length in enumerate(lengths):
                    assert observations[env].tolist() == [env, min(steps, length)]
                    assert dones[env] is (steps >= length)
                    if before[env]:
                        assert (rewards[env], infos[env]) == (0.0, {})
                    else:
                        assert rewards[env] == env + steps / 1000
                        assert infos[env] == {"count": steps}
            assert steps == 4
            # Once more, now that all are done. `Walk` raises if it is stepped after its end.
            again = envs.step([0, 0, 0])
            assert [o.tolist() for o in again[0]] == [[0, 1], [1, 4], [2, 2]]
            assert again[1:] == ([0.0] * 3, [True] * 3, [{}] * 3)
            assert envs.unwrapped.total == tuple((episode + 1) * n for n in lengths)
            assert envs.unwrapped[1].actions[-4:] == [0, 1, 2, 0]


def test_types_are_plain(engine):
    with walks(engine, 2, 2) as envs:
        assert type(envs.reset()) is list
        observations, rewards, dones, infos = envs.step([0, 0])
        for part in (observations, rewards, dones, infos):
            assert type(part) is list and len(part) == len(envs) == envs.num_envs == 2
        assert {type(reward) for reward in rewards} == {float}
        assert {type(done) for done in dones} == {bool}
        assert {type(info) for info in infos} == {dict}
        assert all(o.dtype == np.int64 and o.shape == (2,) for o in observations)


def test_truncation_is_told_as_classic_gym_told_it(engine):
    ends = [
        {"truncate": True, "terminate": False},
        {"truncate": False, "terminate": True},
        {"truncate": True, "terminate": True},
    ]
    with make(Walk, [{"length": 2, **end} for end in ends], engine) as envs:
        envs.reset()
        assert [info.get("TimeLimit.truncated") for info in envs.step([0] * 3)[3]] == [None] * 3
        *_, dones, infos = envs.step([0] * 3)
        assert dones == [True] * 3
        assert [info.get("TimeLimit.truncated") for info in infos] == [True, None, False]


def test_time_limit_of_an_id(engine):
    with agymc.make("CartPole-v1", 2, engine=engine, max_episode_steps=3) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            *_, dones, infos = envs.step([0, 1])
        assert dones == [True, True]
        assert infos == [{"TimeLimit.truncated": True}] * 2


def test_equal_to_single_envs(engine):
    singles = [gymnasium.make("Acrobot-v1", max_episode_steps=20 + i) for i in range(3)]
    expected = [env.reset(seed=7 + i)[0] for i, env in enumerate(singles)]
    kwargs = [{"max_episode_steps": 20 + i} for i in range(3)]
    rng = np.random.default_rng(0)
    with agymc.make("Acrobot-v1", 3, engine=engine, env_kwargs=kwargs) as envs:
        assert np.array_equal(envs.reset(seed=7), expected)
        over = [False] * 3
        for _ in range(25):
            actions = rng.integers(3, size=3)
            observations, rewards, dones, _ = envs.step(actions)
            for i, env in enumerate(singles):
                if not over[i]:
                    expected[i], reward, terminated, truncated, _ = env.step(actions[i])
                    over[i] = terminated or truncated
                    assert rewards[i] == reward
                assert np.array_equal(observations[i], expected[i])
                assert observations[i].dtype == expected[i].dtype
            assert dones == over
    for env in singles:
        env.close()


def test_seeds(engine):
    with walks(engine, 2, 2, 2) as envs:
        assert envs.seed(5) == [[5], [6], [7]]
        envs.reset()
        assert envs.seed([1, None, np.int64(3)]) == [[1], [None], [3]]
        assert envs.seed() == [[None], [None], [None]]
        envs.seed([1, None, 3])
        envs.reset()
        envs.reset()  # seeds are for one reset
        envs.reset(seed=9)
        expected = ([5, 1, None, 9], [6, None, None, 10], [7, 3, None, 11])
        assert envs.unwrapped.seeds == expected
        with pytest.raises(agymc.BatchLengthError, match="expected 3 seeds, one per env, got 2"):
            envs.seed([1, 2])
        with pytest.raises(agymc.ConfigurationError, match="got -1, at seed"):
            envs.reset(seed=-1)


def test_options_reach_each_env(engine):
    options = {"level": [1]}
    with walks(engine, 2, 2) as envs:
        envs.reset(options=options)
        assert envs.unwrapped.options == (options, options)


# ---------------------------------------------------------------------- data


def test_what_is_handed_out_is_the_callers_own(engine):
    with make(Rooms, [{}, {}], engine) as envs:
        kept = envs.reset()
        action = (1, np.array([0.5, -0.5], np.float32))
        first, _, _, infos = envs.step([action, action])
        first[0]["picture"][:] = 99
        second, _, _, _ = envs.step([action, action])
        assert [o["picture"].max() for o in kept] == [0, 0]
        assert [o["picture"].max() for o in first] == [99, 1]
        assert [o["picture"].max() for o in second] == [2, 2]
        assert [info["picture"].max() for info in infos] == [1, 1]
        assert [o["sign"] for o in kept + first + second] == [
            "room0",
            "room0",
            "room1",
            "room1",
            "room2",
            "room2",
        ]


def test_observations_and_actions_of_all_sorts(engine):
    with make(Rooms, [{}] * 3, engine) as envs:
        envs.reset()
        actions = envs.action_space.sample()
        observations, rewards, dones, _ = envs.step(actions)
        for i in range(3):
            assert envs.observation_space[i].contains(observations[i])
            taken = envs.unwrapped[i].actions[0]
            assert taken[0] == actions[i][0]
            assert np.array_equal(taken[1], actions[i][1])
        assert envs.observation_space.contains(observations) == [True] * 3
        assert rewards == [1.0] * 3
        assert dones == [False] * 3


def test_vector_rewards(engine):
    with make(Pair, [{"length": 1}, {"length": 2}], engine) as envs:
        assert envs.reset() == [0, 0]
        _, rewards, dones, _ = envs.step([0, 1])
        assert [r.tolist() for r in rewards] == [[1.0, -1.0], [1.0, -1.0]]
        assert dones == [True, False]
        rewards[0][:] = 5.0
        observations, rewards, dones, _ = envs.step([0, 1])
        assert [r.tolist() for r in rewards] == [[0.0, 0.0], [1.0, -2.0]]
        assert [r.dtype for r in rewards] == [np.float64] * 2
        assert observations == [1, 2]
        assert dones == [True, True]
        _, rewards, _, _ = envs.step([0, 1])  # none is stepped
        assert [r.tolist() for r in rewards] == [[0.0, 0.0], [0.0, 0.0]]


def test_samples_leave_the_envs_own_generators_alone(engine):
    def play(sampling: bool) -> list[Any]:
        with make(OwnDice, [{}, {}], engine) as envs:
            played = [envs.reset(seed=3)]
            for _ in range(3):
                if sampling:
                    envs.action_space.seed(1)
                    envs.action_space.sample()
                played.append(envs.step([0, 0])[0])
        return played

    assert play(sampling=True) == play(sampling=False)


# ---------------------------------------------------------------------- mistakes


def test_wrong_actions_step_no_env(engine):
    with walks(engine, 3, 3) as envs:
        envs.reset()
        with pytest.raises(agymc.BatchLengthError, match="expected 2 actions, one per env, got 3"):
            envs.step([0, 1, 2])
        with pytest.raises(
            agymc.NotABatchError, match=r"expected a list of 2 actions, one per env, got 1$"
        ):
            envs.step(1)
        with pytest.raises(agymc.ActionError, match=r"action of env 1 .*Discrete\(3\), got .*7"):
            envs.step([0, 7])
        with pytest.raises(agymc.ActionError):
            envs.step([0, "left"])
        with pytest.raises(agymc.ActionError):
            envs.step([0.5, 1])
        assert envs.unwrapped.total == (0, 0)
        envs.step([0, 2])
        assert envs.unwrapped.actions == ([0], [2])


def test_actions_of_envs_that_are_done_are_ignored(engine):
    with walks(engine, 1, 3) as envs:
        envs.reset()
        envs.step([0, 0])
        observations, *_ = envs.step([None, 2])
        assert [o.tolist() for o in observations] == [[0, 1], [1, 2]]
        with pytest.raises(agymc.ActionError, match="the action of env 1 is outside"):
            envs.step([0, 3])


def test_unchecked_actions():
    envs = agymc.make(functools.partial(Walk, length=2), 1, engine="serial", check_actions=False)
    with envs:
        envs.reset()
        envs.step([17])
        assert envs.unwrapped.actions == ([17],)


def test_step_before_reset(engine):
    with walks(engine, 2) as envs:
        with pytest.raises(
            agymc.ResetNeededError,
            match=r"not reset yet: expected reset\(\) before step\(\)",
        ):
            envs.step([0])
        assert envs.unwrapped.total == (0,)


def test_an_env_that_raises_hurts_no_other(engine):
    kwargs = [{"length": 5}, {"length": 5, "fail_at": 2}, {"length": 5}]
    with make(Walk, kwargs, engine) as envs:
        envs.reset(seed=11)
        envs.step([0, 0, 0])
        with pytest.raises(agymc.EnvError) as caught:
            envs.step([0, 1, 2])
        error = caught.value
        assert str(error) == (
            f"env 1 raised OSError in step: the simulator has gone (engine {engine!r}, seed 12)"
        )
        assert type(error.__cause__) is OSError
        assert (error.env_id, error.operation, error.engine) == (1, "step", engine)
        assert envs.unwrapped.total == (2, 2, 2)  # the others were stepped, and can be asked
        with pytest.raises(
            agymc.ResetNeededError,
            match=r"step\(\) failed for env 1: expected reset\(\) before step\(\)",
        ):
            envs.step([0, 0, 0])
        assert envs.unwrapped.total == (2, 2, 2)
        assert [o.tolist() for o in envs.reset()] == [[0, 0]] * 3
        observations, rewards, dones, infos = envs.step([0, 0, 0])
        assert [o.tolist() for o in observations] == [[0, 1]] * 3
        assert (rewards, dones) == ([0.001] * 3, [False] * 3)
        assert infos == [{"count": 1}] * 3


def test_a_reset_that_raises(engine):
    with make(Walk, [{"fail_at": "reset"}, {}], engine) as envs:
        envs.reset()
        with pytest.raises(agymc.EnvError, match="env 0 raised OSError in reset: the simulator"):
            envs.reset()
        with pytest.raises(agymc.ResetNeededError, match=r"reset\(\) failed for env 0"):
            envs.step([0, 0])
        envs.reset()
        assert [o.tolist() for o in envs.step([0, 0])[0]] == [[0, 1], [0, 1]]


def test_several_that_raise_are_all_told(engine):
    with make(Walk, [{"fail_at": 1}, {}, {"fail_at": 1}], engine) as envs:
        envs.reset()
        with pytest.raises(agymc.EnvError) as caught:
            envs.step([0, 0, 0])
        assert caught.value.env_id == 0
        assert [other.env_id for other in caught.value.others] == [2]
        with pytest.raises(agymc.ResetNeededError, match=r"failed for envs 0 and 2"):
            envs.step([0, 0, 0])


def test_after_ctrl_c_a_reset_puts_all_right(engine, tmp_path):
    if agymc.ENGINES[engine] == ("local", "serial"):
        pytest.skip("the env itself is interrupted there, see the next test")
    heard = tmp_path / "heard"

    def on_ctrl_c(signum, frame):
        if not heard.exists():
            heard.touch()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        env_fns = [functools.partial(CtrlC, os.getpid(), str(tmp_path)), Walk]
        with agymc.make(env_fns, engine=engine) as envs:
            envs.reset()
            with pytest.raises(KeyboardInterrupt):
                envs.step([0, 0])
            with pytest.raises(agymc.ResetNeededError, match=r"step\(\) was interrupted, and its"):
                envs.step([0, 0])
            # The reset has to wait for the end of the step.
            timer = threading.Timer(0.1, (tmp_path / "go_on").touch)
            timer.start()
            assert [o.tolist() for o in envs.reset()] == [[0, 0], [0, 0]]
            timer.join()
            assert [o.tolist() for o in envs.step([0, 0])[0]] == [[0, 1], [0, 1]]
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupted(Walk):
    def step(self, action):
        result = super().step(action)
        if self.total == 1:
            raise KeyboardInterrupt
        return result


def test_ctrl_c_in_an_env_of_the_serial_engine():
    with agymc.make([Interrupted, Walk], engine="serial") as envs:
        envs.reset()
        with pytest.raises(KeyboardInterrupt):
            envs.step([0, 0])
        with pytest.raises(agymc.ResetNeededError, match="was interrupted"):
            envs.step([0, 0])
        envs.reset()
        assert [o.tolist() for o in envs.step([0, 0])[0]] == [[0, 1], [0, 1]]


# ---------------------------------------------------------------------- the end


def test_closed_envs_say_so(engine):
    envs = walks(engine, 1, 1)
    envs.reset()
    envs.step([0, 0])  # now all are done, so that a step would ask no env
    assert not envs.closed
    envs.close()
    envs.close()
    assert envs.closed
    for call in (
        envs.reset,
        lambda: envs.step([0, 0]),
        envs.render,
        lambda: envs.render("rgb_array"),
        lambda: envs.unwrapped.total,
        lambda: envs.parallel(print, [[1, 2]]),
    ):
        with pytest.raises(agymc.ClosedError, match=r"these were closed by close\(\)"):
            call()
    assert len(envs.action_space.sample()) == 2  # what needs no env still works


def test_the_context_manager_closes_also_after_an_error(engine):
    with pytest.raises(ZeroDivisionError), walks(engine, 1) as envs:
        raise ZeroDivisionError
    assert envs.closed


def test_dropped_envs_are_closed(engine):
    envs = walks(engine, 1, 1)
    envs.reset()
    envs.parallel(lambda: None)
    del envs  # `nothing_left` looks for what it might have left


def test_repr():
    with agymc.make("CartPole-v1", 2, engine="serial") as envs:
        assert repr(envs) == "BatchEnv(CartPole-v1, num_envs=2, engine='serial')"
    with walks("serial", 1) as envs:
        assert repr(envs) == "BatchEnv(env functions, num_envs=1, engine='serial')"
