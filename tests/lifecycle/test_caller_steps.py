"""One shard in the caller's process, the others in workers."""

from __future__ import annotations

import os

import numpy as np
import pytest
from tests.lifecycle.faulty import kill_self, raise_value_error
from tests.lifecycle.helpers import probes

import agymc
from agymc.errors import ConfigurationError, EnvError, WorkerDiedError


def pids(envs: agymc.VectorEnv) -> list[int]:
    return list(envs.call("pid"))


def test_the_first_shard_is_here():
    with agymc.make_vec(probes(5), engine="process", caller_steps=True, num_workers=2) as envs:
        found = pids(envs)
        assert found[0] == os.getpid()
        assert found.count(os.getpid()) == 1  # 5 envs on 3 shards: 1, 2 and 2
        assert len(set(found)) == 3


def test_by_default_there_is_one_worker_less():
    with agymc.make_vec(probes(4), engine="process", caller_steps=True) as envs:
        assert len(set(pids(envs))) == min(4, max(2, agymc.engines.available_cpus()))


def test_a_single_env_is_here():
    with agymc.make_vec(probes(1), engine="process", caller_steps=True) as envs:
        assert pids(envs) == [os.getpid()]
        envs.reset(seed=3)
        envs.step([1])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_trajectories_are_those_of_serial(mode):
    options = {"autoreset_mode": mode}
    with (
        agymc.make_vec("CartPole-v1", 7, engine="serial", **options) as one,
        agymc.make_vec("CartPole-v1", 7, engine="process", caller_steps=True, **options) as other,
    ):
        np.testing.assert_array_equal(one.reset(seed=5)[0], other.reset(seed=5)[0])
        actions = np.random.default_rng(0).integers(0, 2, (120, 7))
        for action in actions:
            expected, got = one.step(action), other.step(action)
            for a, b in zip(expected[:4], got[:4], strict=True):
                np.testing.assert_array_equal(a, b)
            assert expected[4].keys() == got[4].keys()
            if mode == "Disabled" and (expected[2] | expected[3]).any():
                options_ = {"reset_mask": expected[2] | expected[3]}
                np.testing.assert_array_equal(
                    one.reset(options=options_)[0], other.reset(options=options_)[0]
                )


def test_partial_batches():
    with agymc.make_vec(probes(6), engine="process", caller_steps=True, num_workers=2) as envs:
        envs.send_reset(seed=0)
        seen: list[int] = []
        while len(seen) < 6:
            seen += envs.recv(min_ready=1).env_ids.tolist()
        assert sorted(seen) == list(range(6))
        # Polling gets somewhere, though nobody else steps the envs of this process.
        envs.send([1] * 6)
        seen = []
        while len(seen) < 6:
            try:
                seen += envs.recv(min_ready=1, timeout=0).env_ids.tolist()
            except agymc.RecvTimeoutError:
                continue
        assert sorted(seen) == list(range(6))


@pytest.mark.parametrize("index", [0, 3])
def test_an_env_that_raises(index):
    with agymc.make_vec(probes(4), engine="process", caller_steps=True, num_workers=1) as envs:
        envs.reset(seed=0)
        envs.call("arm", "step", raise_value_error, env_ids=[index])
        with pytest.raises(EnvError, match=f"env {index} raised ValueError in step"):
            envs.step([1] * 4)
        assert sorted(envs.recv().env_ids.tolist()) == sorted({0, 1, 2, 3} - {index})
        envs.call("disarm")
        envs.reset(seed=0)
        envs.step([1] * 4)


def test_a_worker_that_dies_leaves_the_callers_shard():
    with agymc.make_vec(probes(4), engine="process", caller_steps=True, num_workers=1) as envs:
        envs.reset(seed=0)
        envs.call("arm", "step", kill_self, env_ids=[2])
        with pytest.raises(WorkerDiedError, match="envs 2 and 3 died"):
            envs.step([1] * 4)
        assert envs.recv().env_ids.tolist() == [0, 1]
        envs.send([1, 1], [0, 1])
        assert envs.recv().env_ids.tolist() == [0, 1]


def test_a_worker_that_dies_is_restarted():
    faults = agymc.FaultPolicy(on_fault="restart", step_timeout=30.0)
    options = {"engine": "process", "caller_steps": True, "num_workers": 1, "faults": faults}
    with agymc.make_vec(probes(4), **options) as envs:
        envs.reset(seed=0)
        envs.call("arm", "step", kill_self, env_ids=[2])
        _, _, _, truncations, infos = envs.step([1] * 4)
        assert truncations.tolist() == [False, False, True, True]
        assert infos["_fault"].tolist() == [False, False, True, True]
        envs.step([1] * 4)


def test_only_for_the_engine_process():
    with pytest.raises(ConfigurationError, match="expected caller_steps=True with engine='proc"):
        agymc.make_vec(probes(2), engine="thread", caller_steps=True)
    with pytest.raises(ConfigurationError, match="and envs_per_worker=1"):
        agymc.make_vec(probes(2), engine="process", caller_steps=True, envs_per_worker=1)
