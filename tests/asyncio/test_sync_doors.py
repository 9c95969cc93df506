"""Coroutine envs behind the doors that block: their loop lives in a thread of the pool."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial

import gymnasium
import pytest
from tests.asyncio.envs import AioCounting, AioFailing, fail_to_make, make_counting
from tests.asyncio.helpers import COROUTINE_ENGINES, run

import agymc

DOORS = [agymc.make, agymc.make_vec]
both_doors = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
both_engines = pytest.mark.parametrize("engine", COROUTINE_ENGINES)


def step(envs, actions):
    """The observations of a step, as lists."""
    return [observation.tolist()[:2] for observation in envs.step(actions)[0]]


@both_doors
@both_engines
def test_in_and_outside_of_a_running_loop(door, engine):
    def use():
        with door(partial(AioCounting, length=9), 3, engine=engine) as envs:
            envs.reset()
            assert step(envs, [0, 1, 2]) == [[0, 1]] * 3

    use()

    async def main():
        use()
        await asyncio.to_thread(use)

    run(main)


@both_doors
def test_there_is_one_loop_in_one_thread(door):
    before = set(threading.enumerate())
    with door(AioCounting, 50, engine="asyncio", lag_threshold=None) as envs:
        envs.reset()
        (thread,) = set(threading.enumerate()) - before
        assert "asyncio" in thread.name
        assert thread.daemon
    assert not thread.is_alive()


@both_doors
@both_engines
def test_an_env_function_may_be_a_coroutine_function(door, engine):
    with door([partial(make_counting, length=3)] * 2, engine=engine) as envs:
        envs.reset()
        assert step(envs, [0, 0]) == [[0, 1]] * 2
    with pytest.raises(agymc.EnvError, match="env 1 raised LookupError in construction") as caught:
        door([make_counting, fail_to_make], engine=engine)
    assert "no such level" in str(caught.value.__cause__)


@both_doors
@both_engines
def test_dropped_without_close(door, engine):
    envs = door(AioCounting, 2, engine=engine)
    envs.reset()
    del envs
    gc.collect()  # `nothing_left_behind` looks for what it might have left


@both_doors
@both_engines
def test_a_keyboard_interrupt_of_an_env_is_its_own_affair(door, engine):
    """Ctrl-C goes to the main thread. What an env raises does not end the loop of the others."""
    env_fns = [AioCounting, partial(AioFailing, at=("step", 1), error=KeyboardInterrupt("mine"))]
    with door(env_fns, engine=engine) as envs:
        envs.reset()
        with pytest.raises(agymc.EnvError, match="env 1 raised KeyboardInterrupt in step"):
            envs.step([0, 0])
        envs.reset()
        assert len(step(envs, [0, 0])) == 2


@both_doors
@pytest.mark.parametrize("engine", ["serial", "thread", "process"])
def test_engines_that_cannot_await_say_which_can(door, engine):
    with pytest.raises(Exception, match="expected engine='asyncio' or 'process\\+asyncio'"):
        door(AioCounting, 2, engine=engine).reset()


def test_ordinary_envs_on_the_engine_of_coroutines():
    """They work, one after the other: there is nothing to await in them."""
    expected = gymnasium.make("CartPole-v1").reset(seed=3)[0]
    with agymc.make_vec("CartPole-v1", 2, engine="asyncio") as envs:
        assert envs.reset(seed=3)[0][0].tolist() == expected.tolist()
