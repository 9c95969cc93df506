"""What `agymc.testing` offers to others: envs that fail, and checks that find something."""

from __future__ import annotations

import asyncio
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import agymc
from agymc.testing import (
    AsyncFaultyEnv,
    FaultyEnv,
    Finding,
    InjectedError,
    Observation,
    check_env,
    check_vector_env,
)


def cartpole():
    return gymnasium.make("CartPole-v1")


def checks_of(findings):
    return {finding.check for finding in findings}


# ------------------------------------------------------------------ vector envs


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("engine", list(agymc.ENGINES))
def test_ours_keep_the_laws(engine, mode):
    envs = agymc.make_vec("CartPole-v1", 3, engine=engine, autoreset_mode=mode)
    assert check_vector_env(envs) == []
    assert envs.closed


def test_gymnasiums_breaks_some():
    found = check_vector_env(SyncVectorEnv([cartpole] * 3))
    assert checks_of(found) == {"arguments", "close"}
    assert str(found[0]) == (
        "arguments: reset has changed the options that it was given: 'reset_mask' is gone. The "
        "next reset with the same dict resets other envs: give it a copy"
    )


class Slow(gymnasium.Env):
    """Takes its time, and gives its action as its reward."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(1000)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1), {}

    def step(self, action):
        threading.Event().wait(0.002)
        self.count += 1
        return np.array([float(self.count)]), float(action), False, False, {}


@pytest.mark.parametrize("shared_memory", [True, False])
def test_gymnasiums_off_by_one_after_a_timeout_is_found(shared_memory):
    envs = AsyncVectorEnv([Slow] * 3, shared_memory=shared_memory)
    (found,) = [one for one in check_vector_env(envs) if one.check == "timeouts"]
    assert found.severity == "error"
    assert found.text.startswith("after a timeout of step_wait, step ")
    if not shared_memory:
        assert found.text.endswith(
            "gave the result of an earlier step: from then on every observation belongs to an "
            "earlier action"
        )


class Broken(SyncVectorEnv):
    """Does several things wrong."""

    def step(self, actions):
        actions[:] = 0
        observations, rewards, terminations, truncations, _ = super().step(actions)
        return observations, rewards[:-1], terminations.astype(int), truncations, {"x": [1]}


def test_what_else_can_be_found():
    found = check_vector_env(Broken([cartpole] * 3, copy=False))
    assert {"terminations", "rewards", "arguments", "infos", "ownership"} <= checks_of(found)
    shared = check_vector_env(SyncVectorEnv([Unseeded] * 2))
    assert "determinism" in checks_of(shared)


# ------------------------------------------------------------------ envs


class Unseeded(gymnasium.Env):
    """Draws from nowhere, and gives the same array again and again."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._observation = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        self._observation[:] = np.random.random(2)
        return self._observation, {}

    def step(self, action):
        self._observation[:] = np.random.random(2)
        return self._observation, 0.0, False, False, {}


class Reused(FaultyEnv):
    """Gives the same array again and again."""

    def reset(self, **options):
        self.array, info = super().reset(**options)
        self.array[1] = 0
        return self.array, info

    def step(self, action):
        observation, *rest = super().step(action)
        observation[1] = 0
        self.array[:] = observation
        return self.array, *rest


class SharesAGlobal(gymnasium.Env):
    """Counts the steps of all envs of its process."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed == 0:
            type(self).total = 0
        return np.array([float(type(self).total)]), {}

    def step(self, action):
        type(self).total += 1
        return np.array([float(type(self).total)]), 0.0, False, False, {}


def test_an_env_that_fits():
    told = []
    found = check_env(cartpole, steps=30, tell=told.append)
    assert {finding.severity for finding in found} <= {"warning"}
    assert told[0] == "construction" and told[-1] == "engine process+thread"


def test_envs_that_do_not_fit():
    found = check_env(Unseeded, steps=20)
    assert "determinism" in checks_of(found)
    found = {one.check: one for one in check_env(Reused, steps=20)}
    assert found["data reuse"].severity == "warning"
    found = {one.check: one for one in check_env(SharesAGlobal, steps=40)}
    assert found["engine process"].text == (
        "4 envs differ from those on engine 'serial', from step 1 on"
    )
    lock = threading.Lock()

    def locked():
        assert lock is not None
        env = cartpole()
        env.lock = lock
        return env

    found = {one.check: one for one in check_env(locked, steps=20)}
    assert "lock" in found["picklability"].text
    assert found["picklability"].remedy.endswith("or use engine='thread'")
    assert "can't be copied" in found["snapshots"].text
    assert "engine process" not in found
    (only,) = check_env(lambda: 1 / 0)
    assert only == Finding(
        "construction", "error", "making it raised ZeroDivisionError: division by zero"
    )


# ------------------------------------------------------------------ envs that fail


def test_faults_come_when_they_are_told_to():
    env = FaultyEnv(5, "raise", at=2)
    env.reset(seed=0)
    observation, reward, *_ = env.step(np.int64(3))
    seen = Observation(observation)
    assert (seen.index, seen.episode, seen.step, seen.action, seen.total) == (5, 0, 1, 3, 3)
    assert reward == 3.0
    with pytest.raises(InjectedError, match="step 2 of env 5"):
        env.step(np.int64(1))
    assert FaultyEnv().life != FaultyEnv().life
    with pytest.raises(agymc.ConfigurationError, match="expected a fault out of"):
        FaultyEnv(0, "explode")
    with pytest.raises(agymc.ConfigurationError, match="between 0 and 1, got 2"):
        FaultyEnv(0, "raise", probability=2)
    with pytest.raises(InjectedError, match="construct 1 of env 0"):
        FaultyEnv(0, "raise", operation="construct", at=1)
    with pytest.raises(InjectedError, match="does not close well"):
        FaultyEnv(close_badly=True).close()
    env = FaultyEnv(0, "raise", at=1, exception=lambda: KeyError("mine"))
    env.reset()
    with pytest.raises(KeyError, match="mine"):
        env.step(np.int64(0))


def test_a_probability_is_one():
    env = FaultyEnv(0, "wrong reward", probability=0.3, seed=1, length=10**6)
    env.reset()
    count = sum(isinstance(env.step(np.int64(0))[1], str) for _ in range(1000))
    assert 240 < count < 360


def test_once_is_once(tmp_path):
    path, log = tmp_path / "once", tmp_path / "log"
    for expected in (True, False, False):
        env = FaultyEnv(0, "no tuple", at=1, once=path, log=log)
        env.reset()
        assert (env.step(np.int64(0)) is None) is expected
    assert log.read_text() == "0 no tuple\n"


def test_memory_that_is_used_up_is_an_error():
    env = FaultyEnv(0, "allocate", at=1)
    env.reset()
    with pytest.raises(MemoryError):
        env.step(np.int64(0))
    assert len(bytearray(1 << 28)) == 1 << 28  # the limit is gone


def test_coroutines_fail_too():
    async def main():
        env = AsyncFaultyEnv(3, ["raise"], at=2)
        await env.reset(seed=1)
        observation, *_ = await env.step(np.int64(2))
        assert Observation(observation).action == 2
        with pytest.raises(InjectedError, match="step 2 of env 3"):
            await env.step(np.int64(0))
        deaf = AsyncFaultyEnv(0, "swallow cancellation", at=1)
        await deaf.reset()
        task = asyncio.create_task(deaf.step(np.int64(0)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
