"""Cases of crashes, hangs and timeouts that have no test of that name elsewhere.

Others: 14, 20 in test_restarts; 16, 17 in tests/engines/test_partial_batches; 21, 22, 26, 27 in
test_deadlines; 24 in test_signals.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import time

import pytest
from tests.lifecycle.faulty import Probe, raise_value_error
from tests.lifecycle.helpers import probes
from tests.lifecycle.test_restarts import fault_of, faulty, make

import agymc
from agymc import BatchLengthError, EnvError, FaultPolicy, WorkerDiedError
from agymc.testing import InjectedError


@pytest.mark.parametrize("engine", list(agymc.ENGINES))
def test_case_15_a_constructor_that_fails_shows_its_own_exception(engine):
    env_fns = [faulty(engine, 0), faulty(engine, 1, "raise", operation="construct", at=1)]
    for policy in (None, FaultPolicy(on_fault="restart", startup_timeout=30)):
        with pytest.raises(EnvError, match="env 1 raised InjectedError in construction") as caught:
            make(engine, env_fns, faults=policy)
        assert isinstance(caught.value.__cause__, InjectedError)


def test_case_18_a_kill_is_noticed_at_once(process_engine):
    """While everybody waits: by the hang-up, not by the next call or a timeout."""
    hook = functools.partial(_sleep, 30)
    env_fns = [functools.partial(Probe, 0, step=hook), *probes(2)]
    with agymc.make_vec(env_fns, engine=process_engine, num_workers=3) as envs:
        envs.reset()
        (pid,) = envs.call("pid", env_ids=[0])
        envs.send([0, 0, 0])
        envs.recv(min_ready=2)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"env 0 died \(killed by SIGKILL\) in step"):
            envs.recv(timeout=20)  # the env would have answered later than that


def _sleep(seconds, _env):
    time.sleep(seconds)


@pytest.mark.parametrize("engine", ["asyncio", "process+asyncio"])
@pytest.mark.parametrize("fault", ["hang", "swallow cancellation"])
def test_case_19_an_env_that_hangs_gives_its_permit_back(engine, fault):
    policy = FaultPolicy(on_fault="restart", step_timeout=0.2, grace=0.1)
    env_fns = [faulty(engine, i, fault if i == 0 else (), at=1) for i in range(4)]
    options = {"max_in_flight": 1}
    if engine == "process+asyncio":
        options["num_workers"] = 1
    with make(engine, env_fns, faults=policy, **options) as envs:
        envs.reset()
        *_, truncations, infos = envs.step([1] * 4)
        assert truncations[0]
        assert fault_of(infos, 0)["kind"] == "timeout"
        for _ in range(3):
            envs.step([1] * 4)


def test_case_23_too_few_or_too_many_actions(make, engine):
    envs = make(3)
    envs.reset()
    for actions, count in (([0, 0], 2), ([0] * 4, 4), ([], 0)):
        text = f"expected 3 actions, one per env, got {count}"
        with pytest.raises(BatchLengthError, match=re.escape(text)):
            envs.step(actions)
        assert isinstance(BatchLengthError(""), ValueError)
    assert envs.step([1, 2, 3])[1].tolist() == [1, 2, 3]


def test_case_25_a_second_handle_that_goes_away_closes_nothing(engine, tmp_path):
    log = tmp_path / "log"
    options = {"num_workers": 2} if engine.startswith("process") else {}
    envs = agymc.make(
        [functools.partial(Probe, i, log) for i in range(2)], engine=engine, **options
    )
    with envs:
        envs.reset()
        view = envs.unwrapped
        one = view[1]
        assert one.index == 1
        copy = iter(view)
        del view, one, copy
        gc.collect()
        envs.step([1, 2])
        assert "closed" not in log.read_text()
    assert sorted(log.read_text().split("\n")[-3:-1]) == ["closed 0", "closed 1"]


def test_case_25_an_error_that_is_kept_does_not_keep_the_envs(make, engine):
    envs = make(2)
    envs.reset()
    envs.call("arm", "step", raise_value_error, env_ids=[0])
    with pytest.raises(EnvError) as caught:
        envs.step([0, 0])
    envs.recv()
    envs.close()
    assert "ValueError" in str(caught.value)
