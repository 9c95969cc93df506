"""`AioVectorEnv.rollout`: whole episodes out of partial batches."""

from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest
from tests.asyncio.helpers import run, until
from tests.support.envs import Counting, Failing, Gated

import agymc


def by_number(episodes):
    return sorted(episodes, key=lambda episode: episode.number)


def assert_is_an_episode_of(episode, length):
    """`Counting` says which step of which episode each observation is of."""
    assert len(episode) == length
    assert len(episode.observations) == length + 1
    assert [observation[1] for observation in episode.observations] == list(range(length + 1))
    assert len({observation[0] for observation in episode.observations}) == 1
    assert np.round(episode.rewards % 1, 6).tolist() == [n / 1000 for n in range(1, length + 1)]
    assert (episode.terminated, episode.truncated) == (True, False)
    assert episode.error is None


def one_by_one(observation):
    assert observation.shape == (3,)
    return int(observation[1]) % 4


def batched(observations):
    assert observations.ndim == 2
    return (observations[:, 1] % 4).astype(np.int64)


async def thinking(observation):
    await asyncio.sleep(0)
    return one_by_one(observation)


async def thinking_batched(observations):
    await asyncio.sleep(0)
    return batched(observations)


POLICIES = [one_by_one, batched, thinking, thinking_batched]


@pytest.mark.parametrize("mode", [agymc.AutoresetMode.NEXT_STEP, agymc.AutoresetMode.DISABLED])
def test_every_sort_of_policy(make, mode):
    async def main():
        async with make(Counting, [{"length": n} for n in (1, 2, 5)], autoreset_mode=mode) as envs:
            for policy in POLICIES:
                for ordered in (False, True):
                    episodes = [
                        episode
                        async for episode in envs.rollout(
                            policy, 8, ordered=ordered, batched="batched" in policy.__name__
                        )
                    ]
                    numbers = [episode.number for episode in episodes]
                    assert sorted(numbers) == list(range(8))
                    assert not ordered or numbers == sorted(numbers)
                    for episode in episodes:
                        assert_is_an_episode_of(episode, (1, 2, 5)[episode.env_id])
                        assert episode.actions == [n % 4 for n in range(len(episode))]
                    # Each env has begun one at once: the short ones did not crowd out the long.
                    first = by_number(episodes)[:3]
                    assert [episode.env_id for episode in first] == [0, 1, 2]

    run(main)


def test_seeds_are_those_of_the_numbers(make):
    """So an episode does not depend on which env has played it, nor when."""

    async def main():
        async with make(Counting, [{"length": 2}, {"length": 2}]) as envs:
            episodes = [episode async for episode in envs.rollout(one_by_one, 5, seed=40)]
            for episode in by_number(episodes):
                drawn = [observation[2] for observation in episode.observations]
                generator = np.random.Generator(np.random.PCG64(40 + episode.number))
                assert drawn == [generator.random() for _ in drawn]

    run(main)


def test_fewer_episodes_than_envs(make):
    async def main():
        async with make(Counting, [{"length": 2}] * 3) as envs:
            episodes = [episode async for episode in envs.rollout(one_by_one, 1)]
            assert [episode.env_id for episode in episodes] == [0]
            assert not envs.in_flight

    run(main)


def test_breaking_off_and_beginning_anew(make):
    async def main():
        async with make(Counting, [{"length": n} for n in (1, 3, 9)]) as envs:
            for _ in range(3):
                rollout = envs.rollout(thinking, 50)
                async for _ in rollout:
                    break
                await rollout.aclose()
                episodes = [episode async for episode in envs.rollout(one_by_one, 4)]
                assert len(episodes) == 4
                for episode in episodes:
                    assert_is_an_episode_of(episode, (1, 3, 9)[episode.env_id])
            rollout = envs.rollout(thinking, 50)
            async for _ in rollout:
                break
            await rollout.aclose()
            observations, _ = await envs.reset()
            assert observations[:, 1].tolist() == [0, 0, 0]

    run(main)


def test_a_slow_env_does_not_keep_the_others_from_playing(make_concurrent, make_gates):
    gates = make_gates(2)
    gates[1].open(1000)

    async def main():
        arguments = [{"gate": gate.path, "length": 2} for gate in gates]
        async with make_concurrent(Gated, arguments) as envs:
            seen = []
            async for episode in envs.rollout(one_by_one, 6):
                seen.append(episode.env_id)
                if len(seen) == 5:  # all but the one that stands at its gate
                    assert seen == [1] * 5
                    gates[0].open(1000)
            assert seen == [1] * 5 + [0]

    run(main)


# ---------------------------------------------------------------------- errors


def test_an_env_that_raises_ends_the_rollout(make):
    async def main():
        arguments = [{"length": 3}, {"length": 3, "at": ("step", 4)}]
        async with make(Failing, arguments) as envs:
            with pytest.raises(agymc.EnvError, match="env 1 raised ValueError in step") as caught:
                async for _ in envs.rollout(one_by_one, 10):
                    pass
            assert str(caught.value.__cause__) == "the wheel came off"
            # It has played on: the next rollout begins at once.
            assert len([episode async for episode in envs.rollout(one_by_one, 4)]) == 4

    run(main)


@pytest.mark.parametrize("policy", [one_by_one, thinking_batched])
def test_case_45_errors_are_data_when_asked_for(make, policy):
    async def main():
        arguments = [
            {"length": 3},
            {"length": 3, "at": ("step", 2)},
            {"length": 3, "at": ("reset", 2)},
        ]
        async with make(Failing, arguments) as envs:
            episodes = by_number(
                [
                    episode
                    async for episode in envs.rollout(
                        policy, 60, errors="keep", batched=policy is thinking_batched
                    )
                ]
            )
            assert [episode.number for episode in episodes] == list(range(60))
            failed = [episode for episode in episodes if episode.error is not None]
            assert sorted(episode.env_id for episode in failed) == [1, 2]
            in_step, in_reset = sorted(failed, key=lambda episode: episode.env_id)
            assert "env 1 raised ValueError in step: the wheel came off" in str(in_step.error)
            assert (len(in_step), len(in_step.actions), len(in_step.observations)) == (1, 2, 2)
            assert "env 2 raised ValueError in reset: the wheel came off" in str(in_reset.error)
            assert (len(in_reset), len(in_reset.observations)) == (0, 0)
            for episode in episodes:
                if episode.error is None:
                    assert_is_an_episode_of(episode, 3)
            # Both went on after that.
            for failure in failed:
                later = [e.env_id for e in episodes if e.number > failure.number]
                assert failure.env_id in later

    run(main)


class Mortal(Counting):
    """Its process dies in its second step."""

    def __init__(self, mortal: bool) -> None:
        super().__init__(length=3)
        self.mortal = mortal

    def step(self, action):
        if self.mortal and self.count == 1:
            os._exit(3)
        return super().step(action)


@pytest.mark.parametrize("policy", [one_by_one, thinking])
def test_a_worker_that_dies_plays_no_more(policy):
    async def main():
        env_fns = [lambda: Mortal(False), lambda: Mortal(True)]
        async with agymc.make_async(env_fns, engine="process", num_workers=2) as envs:
            episodes = [e async for e in envs.rollout(policy, 6, errors="keep")]
            assert sorted(episode.number for episode in episodes) == list(range(6))
            (lost,) = [episode for episode in episodes if episode.error is not None]
            assert isinstance(lost.error, agymc.WorkerDiedError)
            assert lost.env_id == 1
            # The next has one env less from the beginning.
            episodes = [e async for e in envs.rollout(policy, 3, errors="keep")]
            assert [episode.env_id for episode in episodes] == [0, 0, 0]
            with pytest.raises(agymc.WorkerDiedError):
                async for _ in envs.rollout(policy, 3):
                    pass

    run(main)


def test_no_env_is_left():
    async def main():
        async with agymc.make_async([lambda: Mortal(True)], engine="process") as envs:
            with pytest.raises(agymc.WorkerDiedError, match=r"exit code 3\) in step"):
                async for episode in envs.rollout(one_by_one, 3, errors="keep"):
                    assert isinstance(episode.error, agymc.WorkerDiedError)

    run(main)


def test_a_policy_that_raises(make):
    async def main():
        async def fails(observation):
            await asyncio.sleep(0)
            raise LookupError("no idea")

        async with make(Counting, [{"length": 2}] * 2) as envs:
            for policy in (fails, lambda observation: {}[0]):
                with pytest.raises(LookupError):
                    async for _ in envs.rollout(policy, 3, errors="keep"):
                        pass
            assert len([episode async for episode in envs.rollout(one_by_one, 3)]) == 3

    run(main)


def test_cancelled(make_concurrent, make_gates):
    """No task is left, and the envs can be used on."""
    gates = make_gates(2)

    async def main():
        arguments = [{"gate": gate.path, "length": 2} for gate in gates]
        async with make_concurrent(Gated, arguments) as envs:

            async def play():
                async for _ in envs.rollout(thinking, 6):
                    pass

            task = asyncio.ensure_future(play())
            await until(lambda: envs.statistics().received.sum() == 2 and envs.in_flight == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for gate in gates:
                gate.open(1000)
            assert len([episode async for episode in envs.rollout(thinking, 3)]) == 3

    run(main)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"episodes": 0}, "expected episodes to be a positive integer, got 0"),
        ({"episodes": True}, "expected episodes to be a positive integer, got True"),
        ({"episodes": 2, "errors": "drop"}, "expected errors to be 'raise' or 'keep', got 'drop'"),
    ],
)
def test_bad_arguments(arguments, text):
    async def main():
        async with agymc.make_async("CartPole-v1", 1, engine="serial") as envs:
            with pytest.raises(agymc.ConfigurationError) as caught:
                async for _ in envs.rollout(one_by_one, **arguments):
                    pass
            assert str(caught.value) == text

    run(main)


def test_same_step_begins_episodes_by_itself():
    async def main():
        mode = agymc.AutoresetMode.SAME_STEP
        async with agymc.make_async("CartPole-v1", 1, engine="serial", autoreset_mode=mode) as envs:
            with pytest.raises(agymc.ConfigurationError, match="got SAME_STEP, which begins"):
                async for _ in envs.rollout(one_by_one, 2):
                    pass

    run(main)
