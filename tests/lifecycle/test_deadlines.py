"""Envs that hang: interrupted, given up, restarted; what they say afterwards is not heard."""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
import time

import gymnasium
import numpy as np
import psutil
import pytest
from tests.lifecycle.helpers import eventually
from tests.lifecycle.test_restarts import (
    ALL_ENGINES,
    PROCESS,
    QUICK,
    RESTART,
    fault_of,
    faulty,
    make,
    one_faulty,
)

import agymc
from agymc import EnvError, EnvInterrupt, EnvTimeoutError, FaultPolicy, ResetNeededError
from agymc.commands import RemoteTraceback
from agymc.testing import FaultyEnv, Observation

RAISE = FaultPolicy(step_timeout=0.3, reset_timeout=5, grace=0.2)


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_an_env_that_hangs_is_interrupted_where_it_hangs(engine):
    with make(engine, one_faulty(engine, "hang"), faults=RAISE) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1, 2, 3, 4])
        with pytest.raises(EnvTimeoutError) as caught:
            envs.step([1, 2, 3, 4])
        assert str(caught.value) == (
            "env 1 did not answer within 0.3 s in step, and it was interrupted "
            f"(engine '{engine}', seed 4)"
        )
        assert (caught.value.env_id, caught.value.operation) == (1, "step")
        cause = caught.value.__cause__
        if not engine.endswith("asyncio"):  # there the task is cancelled
            assert isinstance(cause, EnvInterrupt)
            lines = agymc.commands.Fault(cause).lines
            assert re.search(r"faulty\.py\", line \d+, in hang\n", lines)
        # Case 17: the others' results are there, and the one that failed can be reset.
        batch = envs.recv()
        assert sorted(batch.env_ids.tolist()) == [0, 2, 3]
        assert sorted(batch.rewards.tolist()) == [1, 3, 4]
        with pytest.raises(ResetNeededError, match="env 1 failed"):
            envs.step([1] * 4)
        _observations, infos = envs.reset()
        assert "fault" not in infos  # it was not restarted: interrupting it was enough
        assert [Observation(one).step for one in envs.step([1] * 4)[0]] == [1] * 4
        assert envs.statistics().timeouts.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("engine", ["process", "process+thread"])
@pytest.mark.parametrize("fault", ["hang in C", "hang holding the GIL", "sigstop"])
def test_a_hang_that_can_not_be_interrupted_ends_with_its_process(engine, fault):
    with make(engine, one_faulty(engine, fault), envs_per_worker=1, faults=RAISE) as envs:
        envs.reset(seed=3)
        pid = envs._pool.shards.of(1).pid
        for _ in range(2):
            envs.step([1, 2, 3, 4])
        with pytest.raises(EnvTimeoutError) as caught:
            envs.step([1, 2, 3, 4])
        assert str(caught.value) == (
            "env 1 did not answer within 0.3 s in step, and its process was killed "
            f"(engine '{engine}', seed 4)"
        )
        cause = caught.value.__cause__
        if fault == "sigstop":
            assert "(its process was stopped)" in str(cause)
        elif engine == "process" or fault == "hang in C":
            assert isinstance(cause, RemoteTraceback)
            assert re.search(r"faulty\.py\", line \d+ in hang_in_c\n", str(cause))
        assert not psutil.pid_exists(pid)
        assert sorted(envs.recv().env_ids.tolist()) == [0, 2, 3]
        _observations, infos = envs.reset()
        assert fault_of(infos, 1)["kind"] == "timeout"
        assert [Observation(one).step for one in envs.step([1] * 4)[0]] == [1] * 4


class HangsAt(FaultyEnv):
    """Hangs in its so manieth step, in C, until the gate is opened."""

    gate = threading.Event()

    def __init__(self, at, index=0, **options):
        self.at = at
        super().__init__(index, **options)

    def step(self, action):
        if self.count == self.at - 1 and self.episode == 0:
            self.gate.wait()  # a lock
        return super().step(action)


@pytest.fixture
def gate():
    """Keeps envs that hang hanging until the end of the test."""
    HangsAt.gate.clear()
    yield HangsAt.gate
    HangsAt.gate.set()


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_case_20_a_hang_is_told_as_data(engine, gate):
    fault = "swallow cancellation" if engine.endswith("asyncio") else "hang"
    env_fns = one_faulty(engine, fault)
    if engine == "thread":
        env_fns[1] = functools.partial(HangsAt, 3, 1)
    with make(engine, env_fns) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1, 2, 3, 4])
        observations, _rewards, _, truncations, infos = envs.step([1, 2, 3, 4])
        assert truncations[1] and not truncations[2:].any()
        told = fault_of(infos, 1)
        assert told["kind"] == "timeout"
        assert told["exception"].startswith("no answer within 0.3 s")
        assert Observation(observations[1]).step == 2
        assert Observation(envs.step([1] * 4)[0][1]).step == 0


def test_case_27_a_late_reply_of_an_abandoned_thread_is_never_heard(gate, tmp_path):
    """The old call still runs while the env's place is taken by a new one, and then ends."""
    before = threading.active_count()
    env_fns = [faulty("thread", i, length=50) for i in range(3)]
    env_fns[1] = functools.partial(_hangs_once, tmp_path / "once", 3)
    with make("thread", env_fns) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1, 2, 3])
        # An event is waited for in C: the interruption takes effect only when it is over.
        *_, truncations, infos = envs.step([1, 2, 3])
        assert truncations.tolist() == [False, True, False]
        assert fault_of(infos, 1)["exception"] == (
            "no answer within 0.3 s; it could not be stopped and was abandoned"
        )
        assert envs.statistics().abandoned == 1
        life = None
        for step in range(20):
            if step == 10:
                gate.set()
                assert eventually(lambda: envs.statistics().abandoned == 0)
            observations, rewards, *_ = envs.step([step % 8, step % 8, step % 8])
            seen = Observation(observations[1])
            assert life is None or seen.life == life
            life = seen.life
            assert seen.step == step
            assert rewards[1] == (step % 8 if step else 0)
        assert envs.statistics().stale_replies == 1
    assert eventually(lambda: threading.active_count() == before)


def _hangs_once(path, at):
    if path.exists():
        return FaultyEnv(1, length=50)
    path.touch()
    return HangsAt(at, 1, length=50)


def test_case_26_abandoned_threads_are_counted_and_capped(gate):
    policy = FaultPolicy(
        on_fault="restart", step_timeout=0.1, grace=0.05, backoff=QUICK, max_abandoned=2
    )
    env_fns = one_faulty("thread", ())
    env_fns[1] = functools.partial(HangsAt, 1, 1)
    with make("thread", env_fns, faults=policy) as envs:
        envs.reset(seed=3)
        for abandoned in (1, 2):
            *_, infos = envs.step([1] * 4)
            assert fault_of(infos, 1)["kind"] == "timeout"
            assert envs.statistics().abandoned == abandoned
            envs.step([1] * 4)
        with pytest.raises(EnvTimeoutError) as caught:
            envs.step([1] * 4)
        assert str(caught.value).endswith(
            "it is not restarted: more than 2 threads that hang were abandoned and still run "
            "(max_abandoned)"
        )
        assert sorted(envs.recv().env_ids.tolist()) == [0, 2, 3]


def test_envs_that_share_a_thread_with_one_that_hangs(gate):
    env_fns = one_faulty("thread", ())
    env_fns[1] = functools.partial(HangsAt, 3, 1)
    with make("thread", env_fns, threads=2) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1] * 4)
        *_, truncations, infos = envs.step([1] * 4)
        # Env 3 waits for its turn behind env 1.
        assert truncations.tolist() == [False, True, False, True]
        assert not fault_of(infos, 1)["collateral"]
        assert fault_of(infos, 3)["collateral"]
        assert fault_of(infos, 3)["exception"] == "it shared a thread with env 1, which hung"
        observations, *_ = envs.step([1] * 4)
        assert [Observation(one).step for one in observations] == [4, 0, 4, 0]


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_waiting_for_ones_turn_is_no_hang(engine):
    """Eight envs of 0.1 s in one thread take 0.8 s; none of them has missed 0.4 s."""
    policy = FaultPolicy(step_timeout=0.4, grace=0.1)
    env_fns = [faulty(engine, i, "sleep", probability=1.0, seconds=0.1) for i in range(8)]
    options = {"threads": 1} if engine.endswith("thread") else {}
    if engine.endswith("asyncio"):
        options = {"max_in_flight": 2}
    with make(engine, env_fns, faults=policy, **options) as envs:
        envs.reset()
        assert envs.step([1] * 8)[1].tolist() == [1.0] * 8
        statistics = envs.statistics()
        assert not statistics.timeouts.any()
        assert (statistics.env_p50 > 0).all()
        assert statistics.queue_seconds.max() > 0.1


@pytest.mark.parametrize("engine", ["process", "process+thread", "process+asyncio"])
def test_case_22_a_constructor_that_hangs(engine):
    policy = FaultPolicy(startup_timeout=0.5, grace=0.2)
    env_fns = [faulty(engine, i) for i in range(3)] + [_hangs_at_build]
    with pytest.raises(EnvTimeoutError) as caught:
        make(engine, env_fns, faults=policy)
    assert str(caught.value).startswith(
        "env 3 did not answer within 0.5 s in construction, and its process was killed"
    )
    assert "_hangs_at_build" in str(caught.value.__cause__)


def _hangs_at_build():
    time.sleep(3600)


@pytest.mark.parametrize("engine", ["serial", "thread", "asyncio"])
def test_case_22_a_constructor_that_hangs_here(engine):
    policy = FaultPolicy(startup_timeout=0.3, grace=0.2)
    env_fns = [faulty(engine, i) for i in range(2)] + [_spins_at_build]
    with pytest.raises(
        EnvTimeoutError, match=r"env 2 did not answer within 0\.3 s in construction"
    ):
        make(engine, env_fns, faults=policy)


def _spins_at_build():
    until = time.perf_counter() + 3
    while time.perf_counter() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_a_reset_has_a_time_of_its_own(engine):
    policy = FaultPolicy(step_timeout=30, reset_timeout=0.3, grace=0.2)
    env_fns = one_faulty(engine, "hang", operation="reset", at=2, length=2)
    with make(engine, env_fns, faults=policy, autoreset_mode="SameStep") as envs:
        envs.reset()
        envs.step([1] * 4)
        with pytest.raises(EnvTimeoutError, match=r"within 0\.3 s in autoreset|within 30 s"):
            envs.step([1] * 4)
        assert sorted(envs.recv().env_ids.tolist()) == [0, 2, 3]


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_an_episode_has_a_time_of_its_own(engine):
    policy = FaultPolicy(
        on_fault="restart", episode_timeout=0.5, grace=0.1, backoff=QUICK, reset_timeout=30
    )
    env_fns = [
        faulty(engine, i, "sleep" if i == 1 else (), probability=1.0, seconds=0.2, length=1000)
        for i in range(3)
    ]
    with make(engine, env_fns, faults=policy) as envs:
        envs.reset()
        time.sleep(0.6)  # the caller's time does not count
        kinds = []
        for _ in range(4):
            *_, infos = envs.step([1] * 3)
            told = fault_of(infos, 1)
            kinds.append(told and told["kind"])
        assert kinds[:2] == [None, None]
        assert "timeout" in kinds
        timeouts = envs.statistics().timeouts
        assert timeouts[1] and not timeouts[[0, 2]].any()


@pytest.mark.parametrize("engine", ["process", "thread"])
def test_everything_else_has_a_time_too(engine):
    policy = FaultPolicy(call_timeout=0.3, grace=0.2)
    env_fns = one_faulty(engine, "hang", operation="render", at=1)
    with make(engine, env_fns, faults=policy) as envs:
        envs.reset()
        with pytest.raises(EnvTimeoutError, match=r"env 1 did not answer within 0\.3 s in render"):
            envs.render()
        assert len(envs.render()) == 4
        envs.step([1] * 4)


class Stubborn(FaultyEnv):
    """Catches the interruption and goes on."""

    def step(self, action):
        if self.count == 2 and self.index == 1:
            try:
                time.sleep(3600)
            except EnvInterrupt:
                pass
        return super().step(action)


@pytest.mark.parametrize("engine", ["serial", "process"])
def test_an_answer_within_the_grace_is_an_answer(engine):
    with make(engine, [functools.partial(Stubborn, i) for i in range(3)]) as envs:
        envs.reset()
        for _ in range(2):
            envs.step([1] * 3)
        _observations, rewards, _, _truncations, infos = envs.step([1, 2, 3])
        assert rewards.tolist() == [1, 2, 3]
        assert "fault" not in infos
        assert [Observation(one).step for one in envs.step([1] * 3)[0]] == [4] * 3


class NoTrace(FaultyEnv):
    """Raises something else when it is interrupted."""

    def step(self, action):
        try:
            return super().step(action)
        except EnvInterrupt:
            raise ConnectionError("the simulator is gone") from None


@pytest.mark.parametrize("engine", ["serial", "thread", "process"])
def test_case_21_the_real_cause_is_told(engine):
    def env_fns(**options):
        return [functools.partial(NoTrace, i, **(options if i == 1 else {})) for i in range(3)]

    with make(engine, env_fns(fault="hang", at=1), faults=RAISE) as envs:
        envs.reset()
        with pytest.raises(EnvTimeoutError) as caught:
            envs.step([1] * 3)
        assert isinstance(caught.value.__cause__, ConnectionError)
    # An error that comes in time is no timeout.
    with make(engine, env_fns(fault="raise", at=1), faults=RAISE) as envs:
        envs.reset()
        with pytest.raises(EnvError, match="env 1 raised InjectedError in step") as caught:
            envs.step([1] * 3)
        assert not isinstance(caught.value, EnvTimeoutError)


@pytest.mark.parametrize("engine", PROCESS)
def test_a_process_that_is_stopped_between_its_envs_steps(engine):
    env_fns = [faulty(engine, i, length=99) for i in range(4)]
    with make(engine, env_fns) as envs:
        envs.reset()
        envs.step([1] * 4)
        os.kill(envs._pool.shards.of(0).pid, signal.SIGSTOP)
        *_, truncations, infos = envs.step([1] * 4)
        assert truncations.tolist() == [True, True, False, False]
        assert infos["fault"]["kind"].tolist()[:2].count("timeout") >= 1
        assert [Observation(one).step for one in envs.step([1] * 4)[0]] == [0, 0, 3, 3]


def test_a_loop_that_an_env_blocks_is_replaced():
    env_fns = one_faulty("asyncio", "block the loop", seconds=3.0)
    with make("asyncio", env_fns, lag_threshold=None) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1] * 4)
        *_, truncations, infos = envs.step([1] * 4)
        assert truncations[1]
        assert fault_of(infos, 1)["kind"] == "timeout"
        for _ in range(3):
            observations, *_ = envs.step([1] * 4)
        assert Observation(observations[1]).step == 2
        assert envs.statistics().abandoned == 1
        assert eventually(lambda: envs.statistics().abandoned == 0)


def test_the_handler_of_the_signal_is_put_back():
    from agymc.runners._interrupts import SIGNAL

    def mine(_signum, _frame):
        pass

    before = signal.signal(SIGNAL, mine)
    try:
        with make("serial", one_faulty("serial", "hang", at=1)) as envs:
            envs.reset()
            envs.step([1] * 4)
            with make("serial", one_faulty("serial", ())) as others:
                others.reset()
            assert signal.getsignal(SIGNAL) is not mine
        assert signal.getsignal(SIGNAL) is mine
    finally:
        signal.signal(SIGNAL, before)


def test_what_can_not_be_interrupted_on_serial_is_said():
    policy = FaultPolicy(step_timeout=0.1, grace=0.1)
    with make("serial", [_Deaf], faults=policy) as envs:
        envs.reset()
        with (
            pytest.warns(
                RuntimeWarning, match="env 0 hangs in step and can't be interrupted"
            ) as said,
            pytest.raises(EnvTimeoutError),
        ):
            envs.step([0])
        assert "in _wait_deaf\n" in str(said[0].message)


class _Deaf(gymnasium.Env):
    """Does not hear interruptions for a second."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._wait_deaf(time.perf_counter() + 1.0)
        time.sleep(60)

    def _wait_deaf(self, until):
        while time.perf_counter() < until:
            try:
                time.sleep(0.01)
            except EnvInterrupt:
                pass


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_law_9_a_pool_with_deadlines_uses_no_cpu_while_it_waits(engine):
    env_fns = [faulty(engine, i, "sleep", probability=1.0, seconds=1.0) for i in range(2)]
    policy = FaultPolicy(step_timeout=30)
    with make(engine, env_fns, faults=policy, **_one_each(engine)) as envs:
        envs.reset()
        before = time.process_time()
        envs.step([1, 1])
        assert time.process_time() - before < 0.2


def _one_each(engine):
    return {"num_workers": 2} if engine.startswith("process") else {}


def test_restart_policy_is_used():
    assert RESTART.restarts and not RAISE.restarts
