"""Cases 35 to 39 for the asyncio door, on every engine."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tests.asyncio.helpers import other_tasks, run, turns
from tests.support.envs import Counting, Failing, Gated

import agymc


def by_env(batch, values):
    return dict(zip(batch.env_ids.tolist(), np.asarray(values).tolist(), strict=True))


def test_case_35_who_is_ready_is_received(make_concurrent, make_gates):
    gates = make_gates(3)

    async def main():
        async with make_concurrent(Gated, [{"gate": gate.path} for gate in gates]) as envs:
            await envs.reset()
            envs.send([1, 2, 3])
            gates[1].open()
            batch = await envs.recv(min_ready=1)
            assert by_env(batch, batch.infos["action"]) == {1: 2}
            batch.reply([0])
            gates[2].open()
            gates[1].open()
            batch = await envs.recv(min_ready=2)
            assert by_env(batch, batch.infos["action"]) == {1: 0, 2: 3}
            envs.send_reset(env_ids=[1])  # a reset is an operation like any other
            assert (await envs.recv(min_ready=1)).env_ids.tolist() == [1]
            gates[0].open()
            batch = await envs.recv()
            assert by_env(batch, batch.infos["action"]) == {0: 1}

    run(main)


def test_case_36_receiving_without_having_sent(make):
    async def main():
        async with make(Counting, [{}] * 2) as envs:
            text = r"expected something in flight, got recv\(\) before send\(\) or send_reset\(\)"
            for _ in range(2):
                with pytest.raises(agymc.NothingInFlightError, match=text):
                    await envs.recv()
                assert [batch async for batch in envs.batches()] == []
                await envs.reset()

    run(main)


def test_case_37_all_initial_observations_can_be_collected(make):
    async def main():
        async with make(Counting, [{}] * 3) as envs:
            expected = (await envs.reset(seed=5))[0]
            envs.send_reset(seed=5)
            seen = {}
            async for batch in envs.batches(min_ready=1, max_ready=2):
                assert batch.steps.tolist() == [0] * len(batch)
                assert batch.rewards.tolist() == [0.0] * len(batch)
                seen.update(by_env(batch, batch.observations[:, 2]))
            assert seen == dict(enumerate(expected[:, 2].tolist()))

    run(main)


def test_case_38_a_timeout_bounds_the_call_and_loses_nothing(make_concurrent, make_gates):
    gates = make_gates(2)

    async def main():
        async with make_concurrent(Gated, [{"gate": gate.path} for gate in gates]) as envs:
            await envs.reset()
            envs.send([1, 2])
            gates[0].open()
            for _ in range(2):
                with pytest.raises(agymc.RecvTimeoutError, match=r"waiting for env 1\. Nothing is"):
                    await envs.recv(min_ready=2, timeout=0.5)
            with pytest.raises(agymc.RecvTimeoutError, match="expected 2 results within 0 s"):
                await envs.recv(timeout=0)
            gates[1].open()
            batch = await envs.recv()
            assert by_env(batch, batch.infos["action"]) == {0: 1, 1: 2}

    run(main)


def test_case_39_nobody_is_crowded_out(make):
    """With one result per batch, each env is handed out as often as any other."""

    async def main():
        async with make(Counting, [{"length": 999}] * 4, fairness="oldest") as envs:
            envs.send_reset()
            counts = np.zeros(4, np.int64)
            async for batch in envs.batches(min_ready=1, max_ready=1):
                counts[batch.env_ids] += 1
                await turns(3)
                if counts.sum() < 80:
                    batch.reply([0])
            assert counts.sum() == 83
            assert envs.statistics().received.tolist() == counts.tolist()
            if envs.engine in ("serial", "asyncio"):  # elsewhere who is ready depends on time
                assert counts.max() - counts.min() <= 1

    run(main)


def test_batches_in_parts(make):
    async def main():
        async with make(Counting, [{"length": 999}] * 5) as envs:
            await envs.reset()
            made = np.zeros(5, np.int64)
            envs.send([0] * 5)
            async for batch in envs.batches(min_ready=2, max_ready=3):
                assert len(batch) in (1, 2, 3)
                made[batch.env_ids] += 1
                assert batch.steps.tolist() == made[batch.env_ids].tolist()
                again = batch.env_ids[made[batch.env_ids] < 6]
                if len(again):
                    envs.send([1] * len(again), again)
            assert made.tolist() == [6] * 5

    run(main)


def test_one_task_receives_and_another_sends(make_concurrent):
    async def main():
        async with make_concurrent(Counting, [{"length": 9999}] * 3) as envs:
            await envs.reset()
            free: asyncio.Queue[int] = asyncio.Queue()
            for index in range(3):
                free.put_nowait(index)
            received = np.zeros(3, np.int64)

            async def send():
                for _ in range(60):
                    envs.send([1], [await free.get()])

            async def receive():
                while received.sum() < 60:
                    if not envs.in_flight:
                        await asyncio.sleep(0)
                        continue
                    batch = await envs.recv(min_ready=1)
                    received[batch.env_ids] += 1
                    assert batch.steps.tolist() == received[batch.env_ids].tolist()
                    for index in batch.env_ids.tolist():
                        free.put_nowait(index)

            async with asyncio.TaskGroup() as group:
                group.create_task(send())
                group.create_task(receive())
            assert received.sum() == 60
            assert not other_tasks()

    run(main)


def test_an_env_that_fails_does_not_keep_the_others(make):
    async def main():
        arguments = [{"length": 99, "at": ("step", 2) if i == 1 else None} for i in range(3)]
        async with make(Failing, arguments) as envs:
            await envs.reset()
            await envs.step([0] * 3)
            envs.send([1, 2, 3])
            seen = {}
            while envs.in_flight:
                try:
                    batch = await envs.recv(min_ready=1)
                except agymc.EnvError as error:
                    assert list(error.env_ids) == [1]
                    assert str(error.__cause__) == "the wheel came off"
                else:
                    seen.update(by_env(batch, batch.infos["action"]))
            assert seen == {0: 1, 2: 3}
            with pytest.raises(agymc.ResetNeededError, match="env 1 failed"):
                envs.send([0], [1])
            envs.send_reset(env_ids=[1])
            await envs.recv()
            assert (await envs.step([0] * 3))[0][:, 1].tolist() == [3, 1, 3]

    run(main)
