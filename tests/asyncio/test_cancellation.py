"""Case 44: cancelled at any event, nothing is lost, left or said."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

import numpy as np
import pytest
from tests.asyncio.envs import Hooked
from tests.asyncio.helpers import ENGINES, other_tasks, run, until
from tests.support.envs import Counting, Gated

import agymc

ENVS = [{"length": 10_000}] * 3


async def cancelled_after(count, coroutine):
    """Cancel it after so many turns of the loop; (whether it was, what it gave otherwise)."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(count):
        if task.done():
            return False, task.result()
        await asyncio.sleep(0)
    task.cancel()
    try:
        return False, await task
    except asyncio.CancelledError as error:
        assert error.args == ()
        return True, None


async def at_every_event(operation):
    """Gives, for k = 0, 1, ..., whether ``operation()`` was cancelled at k, until it was not."""
    for k in itertools.count():
        cancelled, result = await cancelled_after(k, operation())
        assert not other_tasks()
        yield cancelled, result
        if not cancelled:
            assert k, "it never waited"
            return


def test_step(make):
    """What was begun can be received, and what was not, has not reached an env."""

    async def main():
        async with make(Counting, ENVS) as envs:
            await envs.reset()
            made = 0
            async for cancelled, result in at_every_event(lambda: envs.step([1, 2, 3])):
                if cancelled and envs.in_flight:
                    assert envs.in_flight == 3
                    batch = await envs.recv()
                    order = np.argsort(batch.env_ids)
                    observations, infos = batch.observations[order], batch.infos["action"][order]
                elif cancelled:
                    continue
                else:
                    observations, infos = result[0], result[4]["action"]
                made += 1
                assert observations[:, 1].tolist() == [made] * 3
                assert infos.tolist() == [1, 2, 3]

    run(main)


def test_recv(make):
    async def main():
        async with make(Counting, ENVS) as envs:
            await envs.reset()
            counts = [0, 0, 0]
            sent = 0

            async def receive():
                batch = await envs.recv(min_ready=2, max_ready=2)
                for row, index in enumerate(batch.env_ids.tolist()):
                    counts[index] += 1
                    assert batch.steps[row] == counts[index]

            while True:
                sent += 1
                envs.send([0, 1, 2])
                cancelled, _ = await cancelled_after(sent - 1, receive())
                while envs.in_flight:
                    await receive()
                assert counts == [sent] * 3
                if not cancelled:
                    break

    run(main)


@pytest.mark.parametrize("name", ["reset", "render", "call", "start_over"])
def test_other_calls(make, name):
    """Given up, their results are dropped; the envs are free again when they are through."""

    async def main():
        async with make(Counting, ENVS) as envs:
            await envs.reset()
            operations = {
                "reset": envs.reset,
                "render": envs.render,
                "call": partial(envs.call, "render"),
                "start_over": lambda: _send_and_start_over(envs),
            }
            async for _ in at_every_event(operations[name]):
                if envs.in_flight:
                    await envs.start_over()
                (frame, *_) = await envs.render()
                assert frame.shape == (2, 3, 3)
            observations, _ = await envs.reset(seed=3)
            assert observations[:, 1].tolist() == [0, 0, 0]
            assert (await envs.step([1, 2, 3]))[4]["action"].tolist() == [1, 2, 3]

    run(main)


async def _send_and_start_over(envs):
    if not envs.in_flight:
        envs.send([0, 0, 0])
    await envs.start_over()


def test_batches_and_rollout(make):
    async def main():
        async with make(Counting, [{"length": 3}] * 3) as envs:

            async def receive_batches():
                await envs.reset()
                envs.send([0, 0, 0])
                seen = 0
                async for batch in envs.batches(min_ready=1):
                    seen += len(batch)
                    if seen < 9:
                        batch.reply([0] * len(batch))

            async def play():
                async for episode in envs.rollout(_thinking, 5):
                    assert len(episode) == 3

            for operation in (receive_batches, play):
                async for _ in at_every_event(operation):
                    pass

    run(main)


async def _thinking(observation):
    await asyncio.sleep(0)
    return 0


@pytest.mark.parametrize("turns", [0, 2])
def test_the_whole_life_of_coroutine_envs(turns):
    """Whatever was built is closed, once."""

    async def main():
        logs = [[]]

        async def live():
            log = []
            logs.append(log)
            env_fns = [partial(Hooked, index, log, turns=turns) for index in range(2)]
            async with agymc.make_async(env_fns) as envs:
                await envs.reset()
                await envs.step([0, 0])
                envs.send([0, 0])  # left in flight

        async for _ in at_every_event(live):
            events = logs[-1]
            for index in range(2):
                assert events.count(("built", index)) == events.count(("closed", index)) <= 1
        assert logs[-1].count(("closed", 0)) == 1

    run(main)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "asyncio"])
def test_the_whole_life_elsewhere(engine):
    """`nothing_left_behind` looks for what it might have left."""
    env = "CartPole-v1" if not engine.endswith("asyncio") else Hooked

    async def main():
        async def live():
            async with agymc.make_async(env, 2, engine=engine) as envs:
                await envs.reset()
                await envs.step([0, 0])
                envs.send([0, 0])

        for count in (0, 1, 2, 3, 5, 8, 30, 200):
            await cancelled_after(count, live())
            assert not other_tasks()

    run(main)


def test_a_timeout_of_asyncio_loses_nothing(make_concurrent, make_gates):
    gates = make_gates(2)

    async def main():
        async with make_concurrent(Gated, [{"gate": gate.path} for gate in gates]) as envs:
            await envs.reset()
            envs.send([1, 2])
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await envs.recv()
                assert envs.in_flight == 2
            for gate in gates:
                gate.open()
            batch = await envs.recv()
            said = dict(zip(batch.env_ids.tolist(), batch.infos["action"].tolist(), strict=True))
            assert said == {0: 1, 1: 2}

    run(main)


def test_siblings_in_a_task_group():
    """A task that fails cancels the one that waits for envs; both errors are the caller's own."""

    async def main():
        log = []

        async def wait_forever(env):
            await asyncio.Event().wait()

        env_fns = [partial(Hooked, 0, log, {"step": wait_forever})]
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:

                async def use():
                    async with agymc.make_async(env_fns) as envs:
                        await envs.reset()
                        await envs.step([0])

                async def fail():
                    await until(lambda: ("step begins", 0) in log)
                    raise LookupError("elsewhere")

                group.create_task(use())
                group.create_task(fail())
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        assert log.count(("closed", 0)) == 1

    run(main)


@pytest.mark.parametrize("operation", ["reset", "step"])
def test_keyboard_interrupt_of_an_env_comes_as_itself(operation):
    log = []

    async def interrupt(env):
        raise KeyboardInterrupt

    async def main():
        env_fns = [
            partial(Hooked, 0, log, {operation: interrupt}),
            partial(Hooked, 1, log),
        ]
        async with agymc.make_async(env_fns) as envs:
            await envs.reset()
            await envs.step([0, 0])

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert log.count(("closed", 0)) == log.count(("closed", 1)) == 1


def test_an_env_that_swallows_its_cancellation():
    """It is given its time, and then left; the others are closed all the same."""

    async def main():
        log = []
        let_go = asyncio.Event()

        async def swallow(env):
            while not let_go.is_set():
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    log.append("swallowed")

        env_fns = [partial(Hooked, 0, log, {"step": swallow}), partial(Hooked, 1, log)]
        envs = agymc.make_async(env_fns)
        await envs.open()
        await envs.reset()
        envs.send([0, 0])
        await until(lambda: ("step begins", 0) in log)
        with pytest.warns(RuntimeWarning, match="env 0 did not close in time"):
            await envs.aclose(timeout=0.1)
        assert "swallowed" in log
        assert log.count(("closed", 1)) == 1
        let_go.set()
        for task in other_tasks():
            task.cancel()
        await asyncio.wait(other_tasks())

    run(main)
