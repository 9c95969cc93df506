"""How many coroutines run at the same time, and what is told of them."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.asyncio.envs import AioCounting, AioGated, Hooked
from tests.asyncio.helpers import ENGINES, run, turns, until

import agymc


class Counter:
    """Counts how many coroutines are inside, each until it is let through."""

    def __init__(self):
        self.inside = 0
        self.most = 0
        self.order = []
        self.permits = asyncio.Semaphore(0)

    async def hook(self, env):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(env.index)
        await self.permits.acquire()
        self.inside -= 1

    def let(self, count):
        for _ in range(count):
            self.permits.release()


def hooked(counter, count, operation="step"):
    return [partial(Hooked, index, None, {operation: counter.hook}) for index in range(count)]


def test_operations():
    async def main():
        counter = Counter()
        async with agymc.make_async(hooked(counter, 7), max_in_flight=3) as envs:
            await envs.reset()
            envs.send([0] * 7)
            for gone in range(7):
                await until(lambda gone=gone: counter.inside == min(3, 7 - gone))
                await turns()
                assert counter.inside == min(3, 7 - gone)
                counter.let(1)
            await envs.recv()
            assert counter.most == 3
            assert counter.order == list(range(7)), "who came first begins first"

    run(main)


def test_constructions_have_a_limit_of_their_own():
    class Slow:
        inside = most = 0

        @classmethod
        async def make(cls, counter):
            cls.inside += 1
            cls.most = max(cls.most, cls.inside)
            await turns(5)
            cls.inside -= 1
            return Hooked(0, None, {"step": counter.hook})

    async def main():
        counter = Counter()
        env_fns = [partial(Slow.make, counter)] * 9
        async with agymc.make_async(env_fns, max_constructing=2) as envs:
            assert Slow.most == 2
            await envs.reset()
            envs.send([0] * 9)
            await until(lambda: counter.inside == 9)  # steps have no limit
            counter.let(9)
            await envs.recv()

    run(main)


def test_changing_the_limit_while_envs_run():
    async def main():
        counter = Counter()
        async with agymc.make_async(hooked(counter, 10), max_in_flight=2) as envs:
            await envs.reset()
            envs.send([0] * 10)
            await until(lambda: counter.inside == 2)
            envs.set_limits(max_in_flight=5)
            await until(lambda: counter.inside == 5)
            envs.set_limits(max_in_flight=1)  # who is inside goes on
            for left in (4, 3, 2, 1, 1, 1):
                counter.let(1)
                await until(lambda left=left: counter.inside == left)
                await turns()
                assert counter.inside == left
            envs.set_limits()  # none
            await until(lambda: counter.inside == 4)
            counter.let(10)
            await envs.recv()

    run(main)


def test_an_env_that_raises_gives_its_place_back():
    """Case 19, of permits."""

    async def main():
        async def fail(env):
            raise LookupError("gone")

        env_fns = [partial(Hooked, index, None, {"step": fail}) for index in range(4)]
        async with agymc.make_async(env_fns, max_in_flight=1) as envs:
            await envs.reset()
            with pytest.raises(agymc.EnvError, match="envs 1, 2 and 3 failed too"):
                await envs.step([0] * 4)
            await envs.reset()

    run(main)


def test_in_worker_processes(make_gates):
    """The workers share the limit; one each of these two."""
    gates = make_gates(4)

    async def main():
        env_fns = [partial(AioGated, gate.path, length=9) for gate in gates]
        async with agymc.make_async(
            env_fns, engine="process+asyncio", num_workers=2, max_in_flight=2
        ) as envs:
            await envs.reset()
            envs.send([0] * 4)
            for gate in (gates[1], gates[3]):
                gate.open()  # these two wait for their turn, which needs the others to end
            with pytest.raises(agymc.RecvTimeoutError):
                await envs.recv(min_ready=1, timeout=0.3)
            gates[0].open()
            assert sorted((await envs.recv(min_ready=2)).env_ids.tolist()) == [0, 1]
            envs.set_limits(max_in_flight=4)
            assert (await envs.recv(min_ready=1)).env_ids.tolist() == [3]
            gates[2].open()
            assert (await envs.recv()).env_ids.tolist() == [2]

    run(main)


def test_fewer_than_there_are_workers():
    """From the beginning, there are no more workers then; later it can't be done."""
    options = {"engine": "process+asyncio", "num_workers": 2}

    async def main():
        async with agymc.make_async(AioCounting, 2, max_in_flight=1, **options) as envs:
            await envs.reset()
        async with agymc.make_async(AioCounting, 2, **options) as envs:
            with pytest.raises(agymc.ConfigurationError) as caught:
                envs.set_limits(max_in_flight=1)
            text = "expected max_in_flight to be at least 2, the number of workers, got 1"
            assert str(caught.value) == text
            await envs.reset()

    run(main)


@pytest.mark.parametrize("engine", ["process", "serial"])
def test_engines_without_limits(engine):
    with agymc.make_vec("CartPole-v1", 1, engine=engine) as envs:
        with pytest.raises(agymc.ConfigurationError, match=f"the engine '{engine}' has no max_in_"):
            envs.set_limits(max_in_flight=1)
        with pytest.raises(agymc.ConfigurationError, match=f"'{engine}' has no limits to set"):
            envs.set_limits()
        envs.reset()


def test_behind_the_sync_doors():
    env_fns = [partial(Gauge, 3)] * 8
    for door in (agymc.make, agymc.make_vec):
        with door(env_fns, engine="asyncio", max_in_flight=3, max_constructing=3) as envs:
            envs.reset()
            for _ in range(3):
                envs.step([0] * 8)
            assert Gauge.most == 3
            if door is agymc.make_vec:
                envs.set_limits(max_in_flight=2)
                Gauge.most = 0
                envs.step([0] * 8)
                assert Gauge.most == 2


class Gauge(AioCounting):
    """How many of them are in a step."""

    inside = most = 0

    def __init__(self, turns):
        super().__init__(turns=turns, length=99)

    async def step(self, action):
        Gauge.inside += 1
        Gauge.most = max(Gauge.most, Gauge.inside)
        try:
            return await super().step(action)
        finally:
            Gauge.inside -= 1


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many"])
def test_bad_limits(value):
    for name in ("max_in_flight", "max_constructing"):
        with pytest.raises(agymc.ConfigurationError, match=f"expected {name} to be a positive"):
            agymc.make_async(AioCounting, 2, **{name: value})


def test_time_in_the_queue_is_told_apart_from_time_in_the_env():
    async def main():
        counter = Counter()
        async with agymc.make_async(hooked(counter, 2), max_in_flight=1) as envs:
            await envs.reset()
            before = envs.statistics()
            assert before.operations.tolist() == [1, 1]
            envs.send([0, 0])
            await until(lambda: counter.inside == 1)
            await asyncio.sleep(0.2)  # env 0 is in its step, env 1 in the queue
            counter.let(1)
            await until(lambda: counter.order == [0, 1])
            counter.let(1)
            await envs.recv()
            after = envs.statistics()
            queued = after.queue_seconds - before.queue_seconds
            inside = after.env_seconds - before.env_seconds
            assert inside[0] > 0.19 > queued[0]
            assert queued[1] > 0.19 > inside[1]
            assert (after.operations - before.operations).tolist() == [1, 1]

    run(main)


@pytest.mark.parametrize("engine", ENGINES)
def test_counts(engine):
    env = AioCounting if engine.endswith("asyncio") else "CartPole-v1"

    async def main():
        async with agymc.make_async(env, 2, engine=engine) as envs:
            await envs.reset()
            await envs.step([0, 0])
            envs.send([1], [1])
            statistics = envs.statistics()
            assert statistics.in_flight == 1
            await envs.recv()
            statistics = envs.statistics()
            assert statistics.received.tolist() == [2, 3]
            assert statistics.episodes.tolist() == [1, 1]
            assert (statistics.in_flight, statistics.waiting_for) == (0, ())
            assert statistics.stale_replies == 0
            assert statistics.blocked == ()
            statistics.received[:] = 0  # the caller's own
            assert envs.statistics().received.tolist() == [2, 3]

    run(main)
