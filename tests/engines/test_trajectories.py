"""Every engine gives, bit for bit, what a loop over single envs gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled
from tests.engines.conftest import MODES
from tests.support.reference import (
    Expected,
    ReferenceLoop,
    assert_reset,
    assert_step,
    stacked,
)

import agymc
from agymc import AutoresetMode

GYMNASIUM_IDS = sorted(
    spec.id
    for spec in gymnasium.registry.values()
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs")
)
ATARI_IDS = ["ALE/Breakout-v5", "ALE/Pong-v5"]

# Drawn with pygame.gfxdraw, whose polygons share static memory: two of them in two threads of one
# process get each other's pixels, whoever runs the threads.
NOT_THREAD_SAFE = {"CarRacing-v3"}

_Recording = list[tuple[list[Any], list[int], Expected]]


@pytest.fixture(autouse=True)
def _where_logs_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo writes its warnings into a file in the working directory."""
    monkeypatch.chdir(tmp_path)


@cache
def recorded(
    id: str, mode: AutoresetMode, num_envs: int, steps: int, length: int | None
) -> _Recording:
    """What a loop over single envs gives: (actions, envs to reset first, result) of each step.

    The first result is that of the reset, with seeds 100, 101, ... In mode DISABLED, envs whose
    episode is over are reset before the next step, with seeds of their own.
    """
    make = partial(gymnasium.make, id)
    loop = ReferenceLoop([partial(make, max_episode_steps=length)] * num_envs, mode)
    action_space = loop.envs[0].action_space
    action_space.seed(7)
    recording: _Recording = [([], [], loop.reset(range(100, 100 + num_envs)))]
    for number in range(steps):
        over: list[int] = []
        if mode is AutoresetMode.DISABLED:
            now = loop.now
            over = [i for i in range(num_envs) if now.terminations[i] or now.truncations[i]]
            if over:
                seeds = [1000 * number + i for i in range(num_envs)]
                recording.append(([], over, loop.reset(seeds, over)))
        actions = [action_space.sample() for _ in range(num_envs)]
        recording.append((actions, [], loop.step(actions)))
    loop.close()
    return recording


def replay(envs: agymc.VectorEnv, recording: _Recording, seeds: Callable[[int], list[int]]) -> None:
    """Do with ``envs`` what was recorded; every result must be identical."""
    space = envs.single_observation_space
    assert_reset(space, envs.reset(seed=100), recording[0][2])
    number = -1
    for actions, over, expected in recording[1:]:
        if over:
            mask = np.isin(np.arange(envs.num_envs), over)
            got = envs.reset(seed=seeds(number + 1), options={"reset_mask": mask})
            assert_reset(space, got, expected)
        else:
            number += 1
            assert_step(space, envs.step(stacked(envs.single_action_space, actions)), expected)


def check(
    make: Callable[..., agymc.VectorEnv],
    id: str,
    mode: AutoresetMode,
    num_envs: int,
    steps: int,
    length: int | None,
) -> None:
    recording = recorded(id, mode, num_envs, steps, length)
    assert any(
        any(expected.terminations) or any(expected.truncations) for *_, expected in recording
    ), "no episode ends in this recording: choose more steps"
    kwargs = {} if length is None else {"max_episode_steps": length}
    envs = make(id, num_envs, autoreset_mode=mode, **kwargs)
    replay(envs, recording, lambda number: [1000 * number + i for i in range(num_envs)])


@pytest.mark.parametrize("id", GYMNASIUM_IDS)
def test_every_env_of_gymnasium(
    engine: str, make_vec: Callable[..., agymc.VectorEnv], id: str
) -> None:
    # The mode goes round with id and engine: together the engines run each id in every mode.
    turn = GYMNASIUM_IDS.index(id) + list(agymc.ENGINES).index(engine)
    try:
        gymnasium.make(id).close()
    except (ImportError, DependencyNotInstalled) as error:
        pytest.skip(f"{id} can't be made here: {error}")
    make = make_vec
    if id in NOT_THREAD_SAFE and agymc.ENGINES[engine][1] == "thread":
        make = partial(make, threads=1)
    check(make, id, MODES[turn % 3], num_envs=3, steps=8, length=3)


@pytest.mark.parametrize("id", ATARI_IDS)
def test_atari(engine: str, make_vec: Callable[..., agymc.VectorEnv], id: str) -> None:
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    turn = ATARI_IDS.index(id) + list(agymc.ENGINES).index(engine)
    check(make_vec, id, MODES[turn % 3], num_envs=2, steps=6, length=3)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("id", "num_envs", "length"),
    [
        ("CartPole-v1", 1, None),
        ("CartPole-v1", 2, None),
        ("CartPole-v1", 19, None),
        ("Blackjack-v1", 2, None),
        ("FrozenLake-v1", 19, None),
        ("Taxi-v4", 5, 4),
        ("Pendulum-v1", 5, 10),
    ],
)
def test_modes_and_numbers(
    make_vec: Callable[..., agymc.VectorEnv],
    id: str,
    num_envs: int,
    length: int | None,
    mode: AutoresetMode,
) -> None:
    check(make_vec, id, mode, num_envs, steps=60, length=length)


def test_numbers_of_workers_and_threads(
    variant: dict[str, Any], open_vec: Callable[..., agymc.VectorEnv]
) -> None:
    mode = AutoresetMode.SAME_STEP
    check(partial(open_vec, **variant), "CartPole-v1", mode, 7, steps=60, length=None)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_many_envs(make_vec: Callable[..., agymc.VectorEnv], mode: AutoresetMode) -> None:
    check(make_vec, "CartPole-v1", mode, num_envs=257, steps=12, length=5)


def test_very_many_envs(engine: str, make_vec: Callable[..., agymc.VectorEnv]) -> None:
    mode = MODES[list(agymc.ENGINES).index(engine) % 3]
    check(make_vec, "CartPole-v1", mode, num_envs=1024, steps=12, length=5)
