"""Workers that are forked from a template, and workers that are not."""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import psutil
import pytest
from tests.lifecycle.faulty import Probe
from tests.lifecycle.helpers import eventually, probes
from tests.lifecycle.test_restarts import QUICK, fault_of, one_faulty

import agymc
from agymc import FaultPolicy, WorkerDiedError
from agymc.workers import _processes
from agymc.workers._processes import Launcher

RESTART = FaultPolicy(on_fault="restart", backoff=QUICK)


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    """Without the template that the other tests share."""
    monkeypatch.setattr(_processes._warm, "template", None)
    monkeypatch.setattr(_processes._warm, "users", 0)


needs_forks = pytest.mark.skipif(not Launcher.forks, reason="workers are not forked here")


@pytest.fixture(params=[pytest.param(True, marks=needs_forks), False], ids=["forked", "spawned"])
def forks(request, monkeypatch):
    """Both ways to start workers."""
    monkeypatch.setattr(Launcher, "forks", request.param)
    return request.param


def test_the_life_of_workers(forks):
    with agymc.make_vec(probes(4), engine="process", num_workers=2) as envs:
        envs.reset(seed=1)
        assert envs.step([0, 1, 2, 3])[1].tolist() == [0, 1, 2, 3]
        pids = envs.call("pid")
        assert len(set(pids)) == 2
        parents = {psutil.Process(pid).ppid() for pid in pids}
        if forks:
            (template,) = parents
            assert psutil.Process(template).ppid() == os.getpid()
        else:
            assert parents == {os.getpid()}
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"envs 0 and 1 died \(killed by SIGKILL\)"):
            envs.step([0, 0, 0, 0])
        envs.recv()
    assert not any(map(psutil.pid_exists, [*pids, *parents - {os.getpid()}]))


@pytest.mark.parametrize("fault", ["exit", "segfault"])
def test_restarts(forks, fault):
    env_fns = one_faulty("process", fault)
    with agymc.make_vec(env_fns, engine="process", envs_per_worker=1, faults=RESTART) as envs:
        envs.reset(seed=1)
        for _ in range(3):
            *_, infos = envs.step([1] * 4)
        text = "exit code 3" if fault == "exit" else "killed by SIGSEGV"
        assert fault_of(infos, 1)["exception"] == f"its process died ({text})"
        assert not envs.step([1] * 4)[3].any()


class Draws(gymnasium.Env):
    """Says what the generators of its process give, which nobody seeded."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.array([random.random(), np.random.random()]), {}


def test_workers_are_no_twins(forks):
    with agymc.make_vec(Draws, 3, engine="process", num_workers=3) as envs:
        observations, _ = envs.reset()
    assert len(set(observations[:, 0])) == len(set(observations[:, 1])) == 3


def test_nothing_of_the_caller_is_in_a_worker(forks):
    """The caller is not forked: a variable that it has set is not there."""
    agymc.ENGINES["of the caller"] = ("local", "serial")
    try:
        with agymc.make_vec([_Looks], engine="process", num_workers=1) as envs:
            envs.reset()
            assert envs.call("look") == (False,)
    finally:
        del agymc.ENGINES["of the caller"]


class _Looks(Probe):
    def look(self):
        return "of the caller" in agymc.ENGINES


@needs_forks
def test_a_template_that_was_killed_is_replaced():
    env_fns = one_faulty("process", "exit", at=3)
    with agymc.make_vec(env_fns, engine="process", envs_per_worker=1, faults=RESTART) as envs:
        envs.reset(seed=1)
        template = psutil.Process(psutil.Process(envs._pool.workers[0].pid).ppid())
        template.kill()
        assert eventually(lambda: not template.is_running() or template.status() == "zombie")
        for _ in range(3):
            *_, truncations, infos = envs.step([1] * 4)
        assert truncations.tolist() == [False, True, False, False]
        # It was the parent, and the only one who could have known.
        assert fault_of(infos, 1)["exception"] == "its process died (nobody knows how)"
        for _ in range(4):  # the first begins the new episode
            *_, infos = envs.step([1] * 4)
        assert fault_of(infos, 1)["exception"] == "its process died (exit code 3)"


@needs_forks
def test_a_template_uses_no_cpu_and_few_descriptors():
    with agymc.make_vec(probes(2), engine="process", num_workers=2) as envs:
        envs.reset()
        template = psutil.Process(psutil.Process(envs._pool.workers[0].pid).ppid())
        before = template.cpu_times()
        for _ in range(50):
            envs.step([0, 0])
        after = template.cpu_times()
        assert after.user + after.system - before.user - before.system <= 0.02
        # Standard ones, its socket, its lifeline.
        assert template.num_fds() <= 6


# ------------------------------------------------------------------ warm workers


class Surroundings(Probe):
    """Says what its process took over."""

    def surroundings(self):
        return os.environ.get("AGYMC_TEST_VARIABLE"), os.getcwd(), sys.path[-1], os.getppid()


def _surroundings():
    with agymc.make_vec(Surroundings, 2, engine="process", num_workers=2) as envs:
        envs.reset()
        first, second = envs.call("surroundings")
    assert first == second
    return first


@needs_forks
def test_warm_workers_take_over_what_there_is_now(monkeypatch, tmp_path):
    with agymc.warm_workers("tests.lifecycle.faulty", "no_such_module"), agymc.warm_workers():
        *_, template = _surroundings()
        monkeypatch.setenv("AGYMC_TEST_VARIABLE", "blue")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        sys.path.append("/the/last")
        try:
            assert _surroundings() == ("blue", str(tmp_path), "/the/last", template)
        finally:
            sys.path.remove("/the/last")
        monkeypatch.delenv("AGYMC_TEST_VARIABLE")
        assert _surroundings()[0] is None
    assert eventually(lambda: not psutil.pid_exists(template))
    assert _surroundings()[-1] != template


@needs_forks
def test_envs_that_live_longer_than_their_template():
    with agymc.warm_workers():
        envs = agymc.make_vec(
            one_faulty("process", "exit"), engine="process", envs_per_worker=1, faults=RESTART
        )
        envs.reset(seed=1)
    with envs:
        for _ in range(3):
            *_, infos = envs.step([1] * 4)
        assert fault_of(infos, 1)["exception"] == "its process died (nobody knows how)"
        for _ in range(4):
            *_, infos = envs.step([1] * 4)
        assert fault_of(infos, 1)["exception"] == "its process died (exit code 3)"


@needs_forks
def test_pools_of_many_threads_share_a_template():
    def one(number):
        with agymc.make_vec(Probe, 2, engine="process", num_workers=2) as envs:
            envs.reset(seed=number)
            return envs.step([1, 2])[1].tolist()

    with agymc.warm_workers(), ThreadPoolExecutor(8) as executor:
        assert list(executor.map(one, range(24))) == [[1.0, 2.0]] * 24


@needs_forks
def test_what_warm_workers_print_goes_where_it_goes_now(capfd):
    with agymc.warm_workers():
        for text in ("first", "second"):
            with agymc.make_vec(Probe, 1, engine="process") as envs:
                envs.call("arm", "call", functools.partial(_print, text))
                envs.call("act")
            assert capfd.readouterr() == (f"{text}\n", "")


def _print(text, _env):
    print(text, flush=True)
