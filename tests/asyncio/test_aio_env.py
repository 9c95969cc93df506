"""The life of an `AioVectorEnv`: opened, used in one loop by one waiter, closed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
from tests.asyncio.envs import AioCounting, Hooked, fail_to_make
from tests.asyncio.helpers import run, until
from tests.support.envs import Counting, Gated

import agymc

ROOT = Path(__file__).parents[2]


def test_it_is_never_awaited_and_not_open_before_async_with(make):
    async def main():
        envs = make(Counting, [{}] * 2)
        assert not hasattr(envs, "__await__")
        assert repr(envs) == f"AioVectorEnv(num_envs=2, engine={envs.engine!r})"
        text = "expected open environments, these are not open yet: use `async with`"
        for call in (envs.reset, lambda: envs.step([0, 0]), envs.recv, envs.render):
            with pytest.raises(agymc.ClosedError, match=text):
                await call()
        with pytest.raises(agymc.ClosedError, match=text):
            envs.send([0, 0])
        await envs.aclose()  # nothing to close

    run(main)


def test_after_the_end(make):
    async def main():
        async with make(Counting, [{}] * 2) as envs:
            await envs.reset()
            with pytest.raises(agymc.BusyError, match="these environments are open already"):
                await envs.open()
        await envs.aclose()
        for call in (envs.reset, lambda: envs.step([0, 0]), envs.recv, envs.render):
            with pytest.raises(agymc.ClosedError, match="these were closed"):
                await call()
        with pytest.raises(agymc.ClosedError, match="that were not closed before"):
            await envs.open()
        assert envs.action_space.shape == (2,)  # what needs no env still works

    run(main)


def test_an_env_function_that_raises_closes_the_others():
    async def main():
        log = []
        with pytest.raises(agymc.EnvError, match="env 1 raised LookupError in construction"):
            async with agymc.make_async([partial(Hooked, 0, log), fail_to_make]):
                pytest.fail("it was entered")
        assert log.count(("closed", 0)) == 1

    run(main)


def test_a_second_task_that_waits(make_concurrent, make_gates):
    gates = make_gates(1)

    async def main():
        async with make_concurrent(Gated, [{"gate": gates[0].path}]) as envs:
            await envs.reset()
            envs.send([0])
            waiter = asyncio.ensure_future(envs.recv())
            await asyncio.sleep(0)
            text = "another task is waiting in 'recv' of these environments"
            for call in (envs.recv, envs.reset, lambda: envs.step([0]), envs.render):
                with pytest.raises(agymc.BusyError, match=text):
                    await call()
            gates[0].open()
            assert (await waiter).env_ids.tolist() == [0]

    run(main)


def test_closed_while_a_task_waits(make_concurrent, make_gates):
    gates = make_gates(1)

    async def main():
        envs = make_concurrent(Gated, [{"gate": gates[0].path}])
        await envs.open()
        await envs.reset()
        envs.send([0])
        waiter = asyncio.ensure_future(envs.recv())
        await asyncio.sleep(0)
        gates[0].open(9)
        await envs.aclose()
        with pytest.raises(agymc.ClosedError, match="these environments were closed during 'recv'"):
            await waiter

    run(main)


def test_closed_by_two_tasks_at_once():
    async def main():
        log = []
        envs = agymc.make_async([partial(Hooked, 0, log)])
        await envs.open()
        await asyncio.gather(envs.aclose(), envs.aclose())
        assert log.count(("closed", 0)) == 1

    run(main)


def test_in_another_loop(make):
    async def opened():
        envs = make(Counting, [{}] * 2)
        await envs.open()
        await envs.reset()
        return envs

    async def use(envs):
        with pytest.raises(agymc.ClosedError, match="the event loop that these were opened in has"):
            await envs.reset()
        await envs.aclose()  # as far as that can be done without its loop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # "asyncio" says that it was not closed
        envs = asyncio.run(opened())
        asyncio.run(use(envs))


def test_from_another_thread_while_its_loop_runs():
    async def main():
        async with agymc.make_async(AioCounting, 2) as envs:
            await envs.reset()

            async def elsewhere():
                with pytest.raises(
                    agymc.ConfigurationError, match="in the event loop that these environments were"
                ):
                    await envs.reset()

            await asyncio.to_thread(asyncio.run, elsewhere())
            await envs.step([0, 0])

    run(main)


def test_dropped_without_aclose(make):
    """The envs are closed, or were; for those in the caller's loop a warning says why not to."""

    async def main():
        envs = make(Counting, [{}] * 2)
        await envs.open()
        await envs.reset()
        here = envs.engine == "asyncio"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del envs
            gc.collect()
            await asyncio.sleep(0.05)
        said = [w for w in caught if "were not closed: expected `async with`" in str(w.message)]
        assert [w.category for w in said] == [ResourceWarning] * here

    run(main)


def test_dropped_envs_in_the_callers_loop_are_closed():
    async def main():
        log = []
        envs = agymc.make_async([partial(Hooked, 0, log)])
        await envs.open()
        with pytest.warns(ResourceWarning, match="1 environments on the engine 'asyncio'"):
            del envs
            gc.collect()
        await until(lambda: ("closed", 0) in log)
        await asyncio.sleep(0.01)

    run(main)


FORGETFUL = """
import asyncio, sys
import agymc
from tests.asyncio.envs import AioCounting

async def main(engine):
    source = AioCounting if engine.endswith("asyncio") else "CartPole-v1"
    envs = agymc.make_async(source, 2, engine=engine)
    await envs.open()
    await envs.reset()
    envs.send([0, 0])
    kept.append(envs)

kept = []
asyncio.run(main(sys.argv[1]))
print("end")
"""


def test_a_program_that_ends_without_aclose(engine):
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, engine],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "never retrieved" not in done.stderr
    assert "was destroyed but it is pending" not in done.stderr
    assert "Traceback" not in done.stderr


def test_arrays_are_the_callers_own_and_outlive_it(make):
    async def main():
        async with make(Counting, [{"length": 99}] * 2) as envs:
            first, _ = await envs.reset(seed=1)
            kept = first.copy()
            second = (await envs.step([0, 0]))[0]
            assert first.tolist() == kept.tolist()
        assert second[:, 1].tolist() == [1, 1]

    run(main)
