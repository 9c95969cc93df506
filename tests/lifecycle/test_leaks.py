"""Many pools in a row: nothing grows. (That nothing is left after one is proven by every test.)"""

from __future__ import annotations

import gc
import os
import resource
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.lifecycle.faulty import Probe, exit_3, raise_value_error
from tests.lifecycle.helpers import eventually, probes

import agymc
from agymc import EnvError


def _counts():
    return (
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        len(psutil.Process().children(recursive=True)),
    )


def _rss():
    return psutil.Process().memory_info().rss


def test_many_pools_in_a_row(engine):
    count = 150 if agymc.ENGINES[engine][0] == "local" else 10
    for _ in range(3):
        with agymc.make_vec(probes(2), engine=engine) as envs:
            envs.reset()
    del envs
    gc.collect()
    before, memory = _counts(), _rss()
    options = {} if agymc.ENGINES[engine][0] == "local" else {"num_workers": 1}
    for number in range(count):
        with agymc.make_vec(probes(2), engine=engine, **options) as envs:
            envs.reset(seed=number)
            envs.step([0, 1])
    del envs
    gc.collect()
    assert _counts() == before
    assert _rss() - memory < 30e6


def test_many_pools_that_fail(engine):
    """Where construction fails, nothing is left of it either."""
    count = 50 if agymc.ENGINES[engine][0] == "local" else 5
    before = _counts()
    for _ in range(count):
        with pytest.raises(EnvError):
            agymc.make_vec([Probe, lambda: 1 / 0], engine=engine)
    gc.collect()
    assert _counts() == before


def test_many_steps_and_errors_in_a_row(make, engine):
    """Of errors, infos, frames, large results and resets nothing is kept."""
    envs = make(4)
    envs.reset()

    def play():
        for _ in range(25):
            envs.step([0, 1, 2, 3])
            envs.render()
            envs.call("act", np.zeros(30_000))
            envs.reset(options={"reset_mask": np.array([True, False, False, True])})
            envs.call("arm", "step", raise_value_error, env_ids=[1])
            with pytest.raises(EnvError):
                envs.step([0, 0, 0, 0])
            envs.call("disarm", env_ids=[1])
            envs.recv()
            envs.reset()

    play()
    gc.collect()
    before = _counts()
    tracemalloc.start()
    try:
        play()
        gc.collect()
        first, _ = tracemalloc.get_traced_memory()
        play()
        gc.collect()
        second, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert second - first < 200_000
    assert _counts() == before


def test_many_deaths(process_engine):
    before = _counts()
    for _ in range(3):
        with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
            envs.reset()
            envs.call("arm", "step", exit_3)
            with pytest.raises(agymc.WorkerDiedError):
                envs.step([0, 0])
    del envs
    gc.collect()
    assert _counts() == before


# ------------------------------------------------------------------ when something runs out


@pytest.mark.parametrize("spare", range(0, 14, 2))
def test_too_few_descriptors(engine, spare):
    """Wherever they run out, the error is the system's and nothing is left behind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, hard))
    try:
        agymc.make_vec(probes(2), engine=engine).close()
    except OSError as error:
        assert "Too many open files" in str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptors_above_1023(process_engine):
    """`select` can't take them, so nobody may use it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("the limit of open files can't be raised")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    try:
        with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
            envs.reset()
            big = b"x" * 5_000_000
            assert envs.call("act", big) == ((big,), (big,))
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _shared_names():
    return {
        line.split(maxsplit=5)[5]
        for process in (psutil.Process(), *psutil.Process().children(recursive=True))
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        if " rw-s " in line
    }


def test_shared_memory_has_no_name(process_engine):
    """Neither in /dev/shm nor anywhere: no crash can leave it behind."""
    before, children = _shared_names(), psutil.Process().children()
    with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
        envs.reset()
        assert _shared_names() - before == {"/memfd:agymc (deleted)"}
    assert eventually(lambda: psutil.Process().children() == children)
