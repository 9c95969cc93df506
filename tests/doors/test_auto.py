"""engine="auto": what is measured, what is chosen, and that the choice changes no result."""

from __future__ import annotations

import asyncio
import math
import os
import random
import threading
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import agymc
from agymc.choosing import Figures, candidates, choose, figures_of
from agymc.choosing import _choose as choosing
from agymc.engines import available_cpus
from agymc.recipes import Recipe

COMPUTES = Figures(step=1e-3, cpu=1e-3, reset=1e-3, operations=100)
WAITS = Figures(step=10e-3, cpu=50e-6, reset=10e-3, operations=25)
CHEAP = Figures(step=5e-6, cpu=5e-6, reset=5e-6, operations=1000)


class Env(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, path: Any = None) -> None:
        self.path = path
        self.note(f"built in {os.getpid()}")

    def note(self, text: str) -> None:
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(text + "\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.note("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        self.note("closed")


class Waits(Env):
    def step(self, action):
        time.sleep(0.01)
        return super().step(action)


class Computes(Env):
    def step(self, action):
        sum(range(20_000))
        return super().step(action)


class GlobalRandom(Waits):
    def step(self, action):
        random.random()
        return super().step(action)


class Refuses(Env):
    metadata = {"agymc.probe": False}

    def reset(self, *, seed=None, options=None):
        raise AssertionError("it was reset")

    def step(self, action):
        raise AssertionError("it was stepped")


class NeverEnds(Env):
    def step(self, action):
        threading.Event().wait()


class Raises(Env):
    def step(self, action):
        raise ZeroDivisionError("in step")


class Dies(Env):
    def reset(self, *, seed=None, options=None):
        os._exit(7)


class Coroutine:
    observation_space = Env.observation_space
    action_space = Env.action_space

    async def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    async def step(self, action):
        await asyncio.sleep(0)
        return np.zeros(2, np.float32), 0.0, False, False, {}

    async def close(self):
        pass


def recipe(env: Any, num_envs: int = 4) -> Recipe:
    return Recipe(env, num_envs, (), None, {})


@pytest.fixture(autouse=True)
def nothing_remembered():
    choosing._memory.clear()
    yield
    choosing._memory.clear()


# ---------------------------------------------------------------------- what is chosen


def chosen(figures: Figures, num_envs: int, cpus: int, **options: Any) -> str:
    found = candidates(figures, num_envs, cpus, **options)
    return choosing.fastest(found).label


def test_few_cheap_envs_are_stepped_here():
    assert chosen(CHEAP, 4, 2) == "serial"
    assert chosen(CHEAP, 4, 64) == "serial"


def test_many_cheap_envs_are_divided_with_the_caller():
    assert chosen(CHEAP, 512, 2) == "process, caller_steps=True"


def test_envs_that_compute_get_processes():
    assert chosen(COMPUTES, 16, 2) == "process"
    assert chosen(COMPUTES, 16, 8) == "process"


def test_envs_that_wait_get_threads():
    assert "thread" in chosen(WAITS, 16, 2)
    assert "thread" in chosen(WAITS, 16, 1)


def test_one_cpu_has_nothing_to_divide():
    assert chosen(COMPUTES, 16, 1) == "serial"


def test_an_env_that_fills_all_cpus_by_itself_is_not_multiplied():
    assert chosen(Figures(step=1e-3, cpu=4e-3, operations=9), 16, 4) == "serial"


def test_isolation_is_never_given_up():
    for figures in (CHEAP, COMPUTES, WAITS):
        found = candidates(figures, 16, 2, isolated="because")
        assert choosing.fastest(found).engine.startswith("process")
        for one in found:
            inside = one.engine.startswith("process") and not one.options
            assert inside or (one.seconds == math.inf and one.reason == "because")


def test_threads_never_share_a_global_generator():
    shared = Figures(step=10e-3, cpu=50e-6, operations=25, global_random=True)
    for one in candidates(shared, 16, 2):
        if "thread" in one.engine:
            assert one.seconds == math.inf
            assert "global random generator" in one.reason


# ---------------------------------------------------------------------- what is measured


def test_the_figures_of_an_env_that_waits():
    figures = figures_of(recipe(Waits))
    assert figures.operations >= 5
    assert figures.step > 0.005
    assert figures.waiting > 0.5
    assert not figures.global_random
    choice = choose(recipe(Waits, 16), {})
    assert "thread" in choice.engine
    assert choice.figures == figures


def test_the_figures_of_an_env_that_computes():
    figures = figures_of(recipe(Computes))
    assert figures.waiting < 0.5
    assert figures.cpu > 0
    assert not figures.unknown


def test_global_generators_are_noticed():
    assert figures_of(recipe(GlobalRandom)).global_random


def test_one_env_is_made_elsewhere_and_closed(tmp_path):
    log = tmp_path / "log"
    with agymc.make_vec(Env, 3, path=log) as envs:
        lines = log.read_text().splitlines()
        assert lines[0].startswith("built in ")
        assert lines[0] != f"built in {os.getpid()}"
        closed = lines.index("closed")
        assert sum(line.startswith("built") for line in lines[:closed]) == 1
        assert sum(line.startswith("built") for line in lines[closed:]) == 3
        assert envs.choice is not None


def test_an_env_that_refuses_is_not_touched():
    with agymc.make_vec(Refuses, 2) as envs:
        assert envs.engine == "process"
        assert envs.choice.reason == (
            "nothing is known of it: its metadata say that it is not to be probed"
        )


def test_what_goes_wrong_in_the_probe_is_no_error():
    for env, text in (
        (NeverEnds, "it did not get through a few steps in 1.5 seconds"),
        (Raises, "ZeroDivisionError in call 'measure': in step"),
        (Dies, "died (exit code 7)"),
    ):
        choice = choose(recipe(env), {})
        assert choice.engine == "process"
        assert text in choice.reason


def test_a_constructor_that_raises_is_told_once_and_whole():
    with pytest.raises(agymc.EnvError, match="env 0 raised ValueError in construction: no"):
        agymc.make_vec(_refuse, 2)


def _refuse() -> Any:
    raise ValueError("no")


def test_envs_that_cannot_be_sent_stay_here():
    lock = threading.Lock()

    def make() -> Any:
        assert lock is not None
        return Computes()

    with agymc.make_vec(make, 4) as envs:
        assert envs.engine == "serial"
        assert envs.choice.figures.here
        envs.reset(seed=0)


def test_coroutine_envs_get_a_loop():
    for num_envs in (1, 3):
        with agymc.make_vec(Coroutine, num_envs) as envs:
            assert envs.engine == "asyncio"
            envs.reset(seed=0)
            envs.step([0] * num_envs)


def test_it_is_measured_once(monkeypatch):
    first = choose(recipe(Computes), {})
    monkeypatch.setattr(choosing, "_probe", None)  # would raise
    assert choose(recipe(Computes), {}) == first
    assert choose(recipe(Computes, 100), {}).figures == first.figures
    choose(Recipe("CartPole-v1", 1, (), None, {}), {})  # one env of a class: nothing to measure
    with pytest.raises(TypeError):
        choose(recipe(lambda: Computes()), {})


# ---------------------------------------------------------------------- what users say


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ({"threads": 2}, "thread"),
        ({"threads": 2, "num_workers": 2}, "process+thread"),
        ({"max_in_flight": 4}, "asyncio"),
        ({"num_workers": 2}, "process"),
        ({"envs_per_worker": 1}, "process"),
        ({"caller_steps": True}, "process"),
        ({"faults": agymc.FaultPolicy(step_timeout=30.0)}, "process"),
    ],
)
def test_options_that_belong_to_an_engine(options, engine):
    assert choose(recipe(Computes), options).engine == engine


def test_wrong_options_are_told_as_ever():
    with pytest.raises(agymc.ConfigurationError, match="expected num_workers to be a positive"):
        agymc.make_vec(Computes, 2, num_workers=0)
    with pytest.raises(agymc.UnknownEngineError, match=r"out of 'auto', 'serial', .*got 'fast'"):
        agymc.make_vec(Computes, 2, engine="fast")


def test_a_named_engine_is_not_questioned():
    with agymc.make_vec(Computes, 2, engine="serial") as envs:
        assert envs.choice is None


def test_the_classic_door():
    envs = agymc.make("CartPole-v1", 2)
    assert envs.engine == envs.choice.engine
    envs.reset()
    envs.close()


def test_the_asyncio_door_never_steps_in_the_loop():
    async def main() -> str:
        async with agymc.make_async("CartPole-v1", 2, engine="auto") as envs:
            await envs.reset(seed=0)
            return envs.engine

    assert asyncio.run(main()) in ("process", "thread", "process+thread")


@pytest.mark.parametrize("num_envs", [1, 3, 40])
def test_the_choice_changes_no_trajectory(num_envs):
    actions = np.random.default_rng(0).integers(0, 2, (60, num_envs))
    results = []
    for engine in ("auto", "serial"):
        with agymc.make_vec("CartPole-v1", num_envs, engine=engine) as envs:
            got = [envs.reset(seed=1)[0]]
            got += [np.concatenate(list(map(np.ravel, envs.step(a)[:4]))) for a in actions]
            results.append(got)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_knows_how_many_cpus_there_are():
    choice = choose(recipe(Computes, 16), {})
    if available_cpus() == 1:
        assert choice.engine == "serial"
    else:
        assert choice.engine == "process"
