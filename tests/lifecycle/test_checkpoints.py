"""Files from which envs go on as if nothing had been interrupted."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading

import gymnasium
import numpy as np
import pytest
from tests.lifecycle.test_restarts import ALL_ENGINES, faulty, make, one_faulty, without_life

import agymc
from agymc import BusyError, CheckpointError, FaultPolicy, PickleError, SnapshotError
from agymc.testing import Observation


def play(envs, steps, seed):
    """Some steps with actions of one's own."""
    actions = np.random.default_rng(seed)
    return [envs.step(actions.integers(0, 2, envs.num_envs)) for _ in range(steps)]


def same(results, others):
    """Whether two runs gave the same, bit by bit."""
    return all(
        np.array_equal(a, b)
        for one, other in zip(results, others, strict=True)
        for a, b in zip(one[:4], other[:4], strict=True)
    )


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("engine", ["serial", "thread", "process", "process+thread"])
def test_going_on_is_as_not_having_stopped(engine, mode, tmp_path):
    path = tmp_path / "envs.ckpt"
    options = {"autoreset_mode": mode, "engine": engine}
    with agymc.make_vec("CartPole-v1", 5, **options) as envs:
        envs.reset(seed=11)
        envs.action_space.seed(5)
        play(envs, 40, seed=1)
        envs.action_space.sample()
        envs.checkpoint(path)
        sampled = [envs.action_space.sample().tolist() for _ in range(3)]
        expected = play(envs, 60, seed=2)
        assert any(result[2].any() for result in expected)
    other = "process" if engine == "serial" else "serial"
    for restored_engine in (engine, other):
        with agymc.restore_checkpoint(path, engine=restored_engine) as envs:
            assert envs.engine == restored_engine
            assert envs.metadata["autoreset_mode"].value == mode
            assert envs.spec.id == "CartPole-v1"
            assert [envs.action_space.sample().tolist() for _ in range(3)] == sampled
            assert same(play(envs, 60, seed=2), expected)
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["envs.ckpt"]


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_numbers_of_episodes_go_on(engine, tmp_path):
    env_fns = [faulty(engine, i, length=3 + i) for i in range(3)]
    with make(engine, env_fns, faults=None) as envs:
        envs.reset(seed=4)
        for _ in range(9):
            envs.step([1] * 3)
        envs.checkpoint(tmp_path / "x")
        envs.send([1] * 3)
        expected = envs.recv(3)
    with agymc.restore_checkpoint(tmp_path / "x") as envs:
        envs.send([1] * 3)
        batch = envs.recv(3)
    for one in (expected, batch):
        order = np.argsort(one.env_ids)
        one.episode_ids[:] = one.episode_ids[order]
        one.steps[:] = one.steps[order]
        one.observations[:] = one.observations[order]
    assert batch.episode_ids.tolist() == expected.episode_ids.tolist()
    assert batch.steps.tolist() == expected.steps.tolist()
    assert np.array_equal(without_life(batch.observations), without_life(expected.observations))


@pytest.mark.parametrize("engine", ["serial", "process"])
def test_an_env_that_was_restarted_and_not_yet_stepped(engine, tmp_path):
    policy = FaultPolicy(on_fault="restart")
    with make(engine, one_faulty(engine, "raise"), faults=policy) as envs:
        envs.reset(seed=4)
        for _ in range(3):
            *_, truncations, _ = envs.step([1] * 4)
        assert truncations[1]
        envs.checkpoint(tmp_path / "x")
        expected = [envs.step([1] * 4)[0] for _ in range(2)]
    with agymc.restore_checkpoint(tmp_path / "x") as envs:
        for one in expected:
            assert np.array_equal(without_life(envs.step([1] * 4)[0]), without_life(one))
        assert Observation(one[1]).step == 1


class Uncopied(gymnasium.Env):
    """Holds what can't be copied."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.lock = threading.Lock()

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_what_can_not_be_saved_says_so(engine, tmp_path):
    with agymc.make_vec(Uncopied, 2, engine=engine) as envs:
        envs.reset()
        with pytest.raises(
            SnapshotError, match=r"env 0 .* can't be copied: TypeError: cannot pickle"
        ):
            envs.checkpoint(tmp_path / "x")
    assert not any(one.name.startswith(".x") for one in tmp_path.iterdir())
    lock = threading.Lock()
    with agymc.make_vec([functools.partial(_cartpole, lock)], engine="thread") as envs:
        envs.reset()
        with pytest.raises(PickleError, match=r"env 0 can't be put into a checkpoint: .*lock"):
            envs.checkpoint(tmp_path / "x")
    with agymc.make_vec("CartPole-v1", 2, engine=engine) as envs:
        envs.reset()
        envs.send([0, 0])
        with pytest.raises(BusyError, match="can't begin 'snapshot'"):
            envs.checkpoint(tmp_path / "x")
        envs.recv()
        with pytest.raises(FileNotFoundError):
            envs.checkpoint(tmp_path / "missing" / "x")


def _cartpole(_lock):
    return gymnasium.make("CartPole-v1")


def test_files_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="expected a checkpoint that begins with"):
        agymc.restore_checkpoint(path)
    with agymc.make_vec("CartPole-v1", 1, engine="serial") as envs:
        envs.reset()
        envs.checkpoint(path)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:200] + b"?" + whole[201:], whole[:20]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="x is damaged"):
            agymc.restore_checkpoint(path)
    path.write_bytes(whole)
    with pytest.raises(agymc.UnknownOptionError, match=r"expected options out of .* got colour"):
        agymc.restore_checkpoint(path, colour="red")
    with pytest.raises(agymc.UnknownEngineError):
        agymc.restore_checkpoint(path, engine="warp")
    agymc.restore_checkpoint(path).close()


WRITES_FOR_EVER = """
import sys, agymc
envs = agymc.make_vec("CartPole-v1", 8, engine="serial")
envs.reset(seed=1)
while True:
    envs.step(envs.action_space.sample())
    envs.checkpoint(sys.argv[1])
    print("written", flush=True)
"""


def test_a_kill_in_the_middle_of_writing_leaves_a_whole_file(tmp_path):
    path = tmp_path / "envs.ckpt"
    for number in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES_FOR_EVER, str(path)], stdout=subprocess.PIPE
        )
        for _ in range(3 + number):
            assert process.stdout.readline() == b"written\n"
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        with agymc.restore_checkpoint(path) as envs:
            play(envs, 3, seed=0)
