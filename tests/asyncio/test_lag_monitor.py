"""Case 41: an env that blocks the event loop is found, with the place where it does."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from tests.asyncio.envs import AioCounting, Blocking
from tests.asyncio.helpers import COROUTINE_ENGINES, run

import agymc

PLACES = {"sleep": "sleep_synchronously", "socket": "wait_for_a_socket"}


def blocking(how, count=3):
    return [partial(Blocking, how)] * count


@pytest.mark.parametrize("how", PLACES)
def test_in_the_callers_loop(how):
    async def main():
        async with agymc.make_async(blocking(how), lag_threshold=0.05) as envs:
            await envs.reset()
            await envs.step([0, 1, 2])
            assert envs.statistics().blocked == ()
            with pytest.warns(agymc.BlockedLoopWarning, match="env 1 blocks the event loop, for"):
                await envs.step([0, 3, 2])
            (blocked,) = envs.statistics().blocked
            assert blocked.env_id == 1
            assert blocked.seconds > 0.05
            assert PLACES[how] in blocked.stack
            assert "envs.py" in blocked.stack
            # It is said once, and counted each time.
            await envs.step([0, 3, 2])
            assert [found.env_id for found in envs.statistics().blocked] == [1, 1]

    run(main)


@pytest.mark.parametrize("engine", COROUTINE_ENGINES)
def test_behind_the_sync_door(engine, capfd):
    options = {"num_workers": 1} if engine.startswith("process") else {}
    with agymc.make_vec(blocking("sleep"), engine=engine, lag_threshold=0.05, **options) as envs:
        envs.reset()
        if engine == "asyncio":
            with pytest.warns(agymc.BlockedLoopWarning, match="env 2 blocks the event loop"):
                envs.step([0, 1, 3])
        else:
            envs.step([0, 1, 3])
        # What a worker has seen comes with its next results.
        envs.step([0, 1, 2])
        (blocked,) = envs.statistics().blocked
        assert blocked.env_id == 2
        assert "sleep_synchronously" in blocked.stack
    if engine != "asyncio":
        assert "env 2 blocks the event loop" in capfd.readouterr().err


def test_many_busy_envs_are_no_env_that_blocks():
    """The loop is late then, but there is nobody to blame."""

    async def main():
        async with agymc.make_async(
            partial(AioCounting, turns=40), 400, lag_threshold=0.02
        ) as envs:
            await envs.reset()
            for _ in range(5):
                await envs.step([0] * 400)
            assert envs.statistics().blocked == ()

    run(main)


def test_a_task_of_the_callers_own_is_not_blamed_on_an_env():
    async def main():
        async with agymc.make_async(partial(AioCounting, turns=3), 4, lag_threshold=0.02) as envs:
            await envs.reset()
            envs.send([0] * 4)
            await asyncio.sleep(0)
            time.sleep(0.2)
            await envs.recv()
            assert envs.statistics().blocked == ()

    run(main)


def test_off():
    async def main():
        async with agymc.make_async(blocking("sleep", 1), lag_threshold=None) as envs:
            await envs.reset()
            await envs.step([3])
            assert envs.statistics().blocked == ()

    run(main)


@pytest.mark.parametrize("door", [agymc.make_vec, agymc.make_async])
@pytest.mark.parametrize("value", [0, -1.0, "soon"])
def test_bad_thresholds(door, value):
    with pytest.raises(agymc.ConfigurationError, match="expected lag_threshold to be"):
        door(AioCounting, 1, engine="asyncio", lag_threshold=value)
