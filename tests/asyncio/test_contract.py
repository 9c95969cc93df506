"""To port a Gymnasium env is to add ``async``: its trajectories stay the same, bit for bit.

Each door and engine against a loop over single envs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from tests.asyncio.envs import AioCounting, Ported
from tests.asyncio.helpers import (
    COROUTINE_ENGINES,
    ENGINES,
    Recording,
    record,
    replay,
    run,
    value_of,
)
from tests.support.envs import Counting, Multi, Reusing, Sampling, Telling
from tests.support.reference import assert_identical, stacked

import agymc
from agymc import AutoresetMode

MODES = tuple(AutoresetMode)
DOORS = [("make_vec", engine) for engine in COROUTINE_ENGINES]
DOORS += [("make_async", engine) for engine in ENGINES]
HERE = [door for door in DOORS if agymc.ENGINES[door[1]][0] == "local"]
ELSEWHERE = [door for door in DOORS if door not in HERE]  # costs a start of two processes
every_door = pytest.mark.parametrize("door", DOORS, ids="-".join)

# (id, its steps per episode at the most, how many steps to make)
IDS = [
    ("CartPole-v1", None, 40),
    ("MountainCarContinuous-v0", 5, 12),
    ("Acrobot-v1", 4, 10),
    ("Pendulum-v1", 5, 12),
    ("FrozenLake-v1", None, 30),
    ("Taxi-v4", 4, 10),
    ("Blackjack-v1", None, 20),
    ("CliffWalking-v1", 3, 8),
    ("LunarLander-v3", 12, 30),
]


def on_doors(names: list[str], others: int = 1) -> Any:
    """Each name with each door that costs little and some of those that cost much, in turn.

    The autoreset mode goes round with them.
    """
    cases = []
    for number, name in enumerate(names):
        doors = HERE + [ELSEWHERE[(number + i) % len(ELSEWHERE)] for i in range(others)]
        for door in doors:
            mode = MODES[(number + DOORS.index(door)) % 3]
            cases.append(pytest.param(name, door, mode, id="-".join([name, *door, mode.name])))
    return pytest.mark.parametrize(("name", "door", "mode"), cases)


def opened(door: tuple[str, str], env_fns: list[Callable[[], Any]], **options: Any) -> Any:
    """A door's envs; coroutine envs where its engine runs coroutines."""
    name, engine = door
    where, how = agymc.ENGINES[engine]
    if where == "process":
        options["num_workers"] = 2
    if how == "asyncio":
        env_fns = [functools.partial(Ported, env_fn) for env_fn in env_fns]
    return getattr(agymc, name)(env_fns, engine=engine, **options)


def check(
    door: tuple[str, str], env_fns: list[Callable[[], Any]], recording: Recording, **options: Any
) -> None:
    async def main() -> None:
        envs = opened(door, env_fns, **options)
        if door[0] == "make_vec":
            with envs:
                await replay(envs, recording)
        else:
            async with envs:
                await replay(envs, recording)

    assert any(any(e.terminations) or any(e.truncations) for *_, e in recording), "no episode ends"
    run(main)


@functools.cache
def recorded(id: str, mode: AutoresetMode) -> tuple[list[Any], Recording]:
    [(length, steps)] = [(length, steps) for name, length, steps in IDS if name == id]
    kwargs = {} if length is None else {"max_episode_steps": length}
    env_fns: list[Any] = [functools.partial(gymnasium.make, id, **kwargs)] * 3
    return env_fns, record(env_fns, mode, steps)[0]


@on_doors([id for id, *_ in IDS])
def test_envs_of_gymnasium(name: str, door: tuple[str, str], mode: AutoresetMode) -> None:
    try:
        gymnasium.make(name).close()
    except (ImportError, DependencyNotInstalled) as error:
        pytest.skip(f"{name} can't be made here: {error}")
    env_fns, recording = recorded(name, mode)
    check(door, env_fns, recording, autoreset_mode=mode)


@every_door
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_mode(door: tuple[str, str], mode: AutoresetMode) -> None:
    lengths = [1, 2, 3, (2, 1), 4]
    env_fns = [
        functools.partial(Counting, length=length, truncate=i % 2 == 1)
        for i, length in enumerate(lengths)
    ]
    check(door, env_fns, record(env_fns, mode, 12)[0], autoreset_mode=mode)


def sampling(observation_space: Any, action_space: Any, length: int) -> Sampling:
    """Each env has spaces, and so random generators, of its own."""
    return Sampling(deepcopy(observation_space), deepcopy(action_space), length)


def samplings(observation_space: Any, action_space: Any) -> list[Callable[[], Any]]:
    return [functools.partial(sampling, observation_space, action_space, i) for i in (1, 2, 3)]


OBSERVATIONS: dict[str, list[Callable[[], Any]]] = {
    "reused dict": [functools.partial(Reusing, length) for length in (1, 2, 3)],
    "dict of tuples": samplings(
        spaces.Dict(
            {
                "a": spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1, (2,), np.float32)]),
                "b": spaces.MultiBinary(3),
            }
        ),
        spaces.Dict({"x": spaces.Discrete(3), "y": spaces.Box(0, 1, (2,), np.float64)}),
    ),
    "text": samplings(spaces.Text(9), spaces.Text(5)),
    "tuple with a sequence": samplings(
        spaces.Tuple([spaces.Text(3), spaces.Sequence(spaces.Discrete(4))]),
        spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 3])]),
    ),
    "infos": [
        functools.partial(Telling, [{"x": 1, "n": {"y": np.ones(2)}}, {"x": 0.5}, {}, {"x": i}], 2)
        for i in (1, 2, 3)
    ],
}


@on_doors(list(OBSERVATIONS), others=2)
def test_observations_and_infos_of_all_kinds(
    name: str, door: tuple[str, str], mode: AutoresetMode
) -> None:
    env_fns = OBSERVATIONS[name]
    check(door, env_fns, record(env_fns, mode, 5)[0], autoreset_mode=mode)


@on_doors(["all", "of", "them"])
def test_vector_rewards(name: str, door: tuple[str, str], mode: AutoresetMode) -> None:
    env_fns: list[Any] = [functools.partial(Multi, length=length) for length in (1, 3)]
    recording = record(env_fns, mode, 4)[0]
    for entry in recording:  # a reset's reward, as the reference has it, is that of a scalar env
        rewards = entry[3].rewards
        rewards[:] = [np.zeros(2) if np.ndim(reward) == 0 else reward for reward in rewards]
    check(door, env_fns, recording, autoreset_mode=mode)


@on_doors(["all", "of", "them"], others=2)
def test_reset_seed_seeds_the_autoresets(
    name: str, door: tuple[str, str], mode: AutoresetMode
) -> None:
    if mode is AutoresetMode.DISABLED:
        pytest.skip("there are no autoresets")

    def reset_seed(index: int, episode: int) -> int | None:
        return None if (index + episode) % 3 == 0 else 1000 * index + episode

    env_fns = [functools.partial(Counting, length=length) for length in (1, 2, 3)]
    seeded = record(env_fns, mode, 9, reset_seed=reset_seed)[0]
    unseeded = record(env_fns, mode, 9)[0]
    assert repr(seeded) != repr(unseeded), "this hook changes nothing"
    check(door, env_fns, seeded, autoreset_mode=mode, reset_seed=reset_seed)


@pytest.mark.parametrize("door", HERE, ids="-".join)
def test_a_seed_or_none_per_env(door: tuple[str, str]) -> None:
    async def main() -> None:
        envs = opened(door, [Counting] * 3)
        if door[0] == "make_async":
            await envs.open()
        first, _ = await value_of(envs.reset(seed=[5, None, 5]))
        again, _ = await value_of(envs.reset(seed=5))
        assert first[0, 2] == first[2, 2] != first[1, 2]
        assert again[0, 2] == first[0, 2]
        assert len(set(again[:, 2])) == 3
        await value_of(envs.aclose() if door[0] == "make_async" else envs.close())

    run(main)


@pytest.mark.parametrize("engine", COROUTINE_ENGINES)
@pytest.mark.parametrize("id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_lists_of_classic_gym(engine: str, id: str) -> None:
    """The door `make`: no autoreset, an env that is done is not stepped."""
    singles = [gymnasium.make(id) for _ in range(3)]
    action_space = singles[0].action_space
    action_space.seed(3)
    env_fns = [functools.partial(Ported, functools.partial(gymnasium.make, id))] * 3
    with agymc.make(env_fns, engine=engine) as envs:
        expected = [env.reset(seed=40 + i)[0] for i, env in enumerate(singles)]
        observations = envs.reset(seed=40)
        dones = [False] * 3
        for _ in range(200):
            assert isinstance(observations, list)
            assert_identical(
                stacked(singles[0].observation_space, observations),
                stacked(singles[0].observation_space, expected),
            )
            if all(dones):
                break
            actions = [action_space.sample() for _ in singles]
            observations, rewards, got_dones, infos = envs.step(actions)
            for i, env in enumerate(singles):
                if dones[i]:
                    assert (rewards[i], infos[i]) == (0.0, {})
                    continue
                expected[i], reward, terminated, truncated, info = env.step(actions[i])
                dones[i] = terminated or truncated
                assert rewards[i] == float(reward)
                if truncated:
                    info["TimeLimit.truncated"] = not terminated
                assert_identical(infos[i], info)
            assert got_dones == dones
        assert all(dones), "no end: choose more steps"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_handed_out_belongs_to_the_caller(engine: str) -> None:
    async def main() -> None:
        async with opened(("make_async", engine), [Reusing] * 2) as envs:
            first, _ = await envs.reset()
            step = await envs.step([0, 0])
            await envs.step([0, 0])
            assert first["image"].max() == 1
            assert step[0]["image"].max() == 2
            envs.send([0, 0])
            batch = await envs.recv()
            kept = batch.observations["state"].copy()
            batch.observations["image"][:] = 77
            await envs.step([0, 0])
            assert (batch.observations["state"] == kept).all()

    run(main)


@pytest.mark.parametrize("engine", COROUTINE_ENGINES)
def test_different_engines_give_the_same_batches(engine: str) -> None:
    """The same envs by way of partial batches, whatever the order in which they end."""

    async def play(how: str, min_ready: int) -> list[Any]:
        env_fns = [functools.partial(AioCounting, turns=1 + i % 4, length=2 + i) for i in range(7)]
        got: list[list[Any]] = [[] for _ in env_fns]
        async with agymc.make_async(env_fns, engine=how) as envs:
            envs.send_reset(seed=9)
            async for batch in envs.batches(min_ready=min_ready):
                rows = [row for row, i in enumerate(batch.env_ids) if len(got[i]) < 12]
                for row, i in enumerate(batch.env_ids):
                    got[i].append(
                        (
                            batch.observations[row].tolist(),
                            batch.rewards[row],
                            batch.episode_ids[row],
                            batch.steps[row],
                        )
                    )
                if rows:
                    envs.send([len(got[i]) % 4 for i in batch.env_ids[rows]], batch.env_ids[rows])
        return got

    assert run(lambda: play(engine, 1)) == run(lambda: play("asyncio", 7))
