"""Every engine under fire, against a model that knows what each result must be."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from tests.lifecycle.helpers import eventually
from tests.lifecycle.test_restarts import ALL_ENGINES, QUICK, fault_of, make, one_faulty

import agymc
from agymc import FaultPolicy
from agymc.testing import DEADLY_FAULTS, Observation, chaos

# Together a minute.
SECONDS = {"serial": 6, "thread": 6, "asyncio": 6}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_chaos(engine):
    # In threads, what hangs in C goes on for ever: there is a test of its own for such.
    names = [
        name for name in chaos.faults_for(engine) if name != "hang in C" or "process" in engine
    ]
    report = chaos.run(engine, SECONDS.get(engine, 14), seed=1, probability=0.02, names=names)
    assert report.wrong == []
    assert report.lost == report.duplicate == 0
    assert report.clean
    assert report.compared > 100
    assert sum(report.injected.values()) > 10
    assert sum(report.told.values()) > 10


def test_the_model_would_notice(monkeypatch):
    """A pool that confuses two envs, or loses a step, is found out."""
    received = agymc.VectorEnv.recv

    def confused(self, *arguments, **options):
        batch = received(self, *arguments, **options)
        if len(batch) > 1:
            batch.observations[[0, 1]] = batch.observations[[1, 0]]
        return batch

    monkeypatch.setattr(agymc.VectorEnv, "recv", confused)
    report = chaos.run("serial", 0.5, num_envs=6, probability=0.0)
    assert not report.clean
    assert any("got an observation of env" in text for text in report.wrong)

    def late(self, *arguments, **options):
        batch = received(self, *arguments, **options)
        late.kept, batch.rewards[:] = batch.rewards.copy(), getattr(late, "kept", [0.0])[0]
        return batch

    monkeypatch.setattr(agymc.VectorEnv, "recv", late)
    report = chaos.run("serial", 0.5, num_envs=6, probability=0.0)
    assert any("expected" in text for text in report.wrong)


def test_faults_that_an_engine_survives():
    for engine in ALL_ENGINES:
        names = set(chaos.faults_for(engine))
        assert {"raise", "hang", "nan"} <= names
        if agymc.ENGINES[engine][0] == "local":
            assert not names & DEADLY_FAULTS
        else:
            assert {"exit", "sigkill"} <= names


def test_the_command(capsys):
    arguments = ["--seconds", "1", "--engine", "serial", "--num-envs", "6"]
    assert chaos.main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("serial: ")
    assert "wrong: 0, lost: 0, duplicate: 0\n" in out
    assert chaos.main([*arguments, "--json"]) == 0
    assert '"clean": true' in capsys.readouterr().out


def test_a_kill_in_mid_step_and_the_pool_steps_on():
    """The others' results arrive, and with restarts the step itself comes to its end."""
    env_fns = one_faulty("process", "sleep", at=3, seconds=1.0, length=50)
    with make("process", env_fns, faults=FaultPolicy(on_fault="restart", backoff=QUICK)) as envs:
        envs.reset(seed=1)
        for _ in range(2):
            envs.step([1, 2, 3, 4])
        envs.send([1, 2, 3, 4])
        batch = envs.recv(min_ready=2, timeout=30)
        assert sorted(batch.env_ids.tolist()) == [2, 3]
        ledger, buffers = envs._pool.ledger, envs._pool.buffers
        assert eventually(lambda: buffers.began[1] >= ledger.begun_at[1])
        os.kill(envs._pool.shards.of(1).pid, signal.SIGKILL)
        batch = envs.recv(timeout=30)
        assert sorted(batch.env_ids.tolist()) == [0, 1]
        assert batch.truncations.all()
        own = dict(
            zip(batch.env_ids.tolist(), batch.infos["fault"]["collateral"].tolist(), strict=True)
        )
        assert own == {0: True, 1: False}
        observations, *_ = envs.step([1, 2, 3, 4])
        assert [Observation(one).step for one in observations] == [0, 0, 4, 4]


# ------------------------------------------------------------------ nothing grows


def _counts():
    gc.collect()
    return (
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        len(psutil.Process().children(recursive=True)),
    )


@pytest.mark.timeout(180)
def test_two_hundred_pools_with_and_without_faults():
    engines = ["serial", "thread", "asyncio"]

    def one(number):
        engine = engines[number % 3] if number % 10 else "process"
        policy = FaultPolicy(on_fault="restart", step_timeout=20, backoff=QUICK)
        fault = "raise" if number % 2 else ()
        if engine == "process" and number % 20 == 0:
            fault = "exit"
        with make(engine, one_faulty(engine, fault, count=2, at=1), faults=policy) as envs:
            envs.reset(seed=number)
            *_, infos = envs.step([1, 1])
            assert (fault_of(infos, 1) is not None) == bool(fault)

    for number in range(11):
        one(number)
    before, memory = _counts(), psutil.Process().memory_info().rss
    for number in range(200):
        one(number)
    assert eventually(lambda: _counts() == before)
    assert psutil.Process().memory_info().rss - memory < 30e6


UNDER_FIRE = """
import sys
from agymc.testing import chaos
print("begins", flush=True)
chaos.run(sys.argv[1], 600, num_envs=8, probability=0.05)
"""


@pytest.mark.parametrize("engine", ["process", "process+thread"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_caller_under_fire(engine, how, tmp_path):
    """Processes that are being restarted at that moment end too."""
    process = subprocess.Popen(
        [sys.executable, "-c", UNDER_FIRE, engine],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # SIGKILL leaves the log of the chaos there
    )
    try:
        assert process.stdout.readline() == b"begins\n"
        caller = psutil.Process(process.pid)
        seen: dict[int, psutil.Process] = {}

        def enough_were_born():
            seen.update((child.pid, child) for child in caller.children(recursive=True))
            return len(seen) > 4

        assert eventually(enough_were_born)
        for _ in range(4):  # a Ctrl-C that hits a `__del__` is swallowed by Python: press it again
            process.send_signal(how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)
                break
        assert process.returncode is not None
        assert eventually(lambda: not any(child.is_running() for child in seen.values()))
    finally:
        process.kill()
        process.communicate()
