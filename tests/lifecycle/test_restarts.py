"""Faults that are told as data: the env that failed is restarted, and the others never notice."""

from __future__ import annotations

import functools
import os
import re
import signal

import gymnasium
import numpy as np
import pytest
from tests.lifecycle.helpers import eventually

import agymc
from agymc import Backoff, EnvError, EnvTimeoutError, FaultPolicy, ResetNeededError, WorkerDiedError
from agymc.testing import AsyncFaultyEnv, FaultyEnv, InjectedError, Observation

ALL_ENGINES = list(agymc.ENGINES)
PROCESS = [name for name, (where, _) in agymc.ENGINES.items() if where == "process"]
MODES = ["NextStep", "SameStep", "Disabled"]
QUICK = Backoff(base=0.001, cap=0.01)
RESTART = FaultPolicy(
    on_fault="restart",
    step_timeout=0.3,
    reset_timeout=5,
    startup_timeout=30,
    grace=0.2,
    backoff=QUICK,
)
DEATHS = {
    "exit": "exit code 3",
    "sigkill": "killed by SIGKILL",
    "segfault": "killed by SIGSEGV",
}


def make(engine, env_fns, **options):
    """A pool with two workers, where there are such."""
    options.setdefault("faults", RESTART)
    if agymc.ENGINES[engine][0] == "process" and "envs_per_worker" not in options:
        options.setdefault("num_workers", 2)
    return agymc.make_vec(env_fns, engine=engine, **options)


def faulty(engine, index, fault=(), **options):
    """The env function of an env that fails."""
    cls = AsyncFaultyEnv if engine.endswith("asyncio") else FaultyEnv
    return functools.partial(cls, index, fault, **options)


def one_faulty(engine, fault, count=4, which=1, **options):
    """Env functions, one of which makes an env that fails."""
    options.setdefault("at", 3)
    return [
        faulty(engine, i, fault if i == which else (), **{"length": 6, **options})
        for i in range(count)
    ]


def without_life(observations):
    """What does not differ from run to run."""
    return np.delete(observations, 1, axis=-1)


def fault_of(infos, index):
    """What the infos tell of the fault of one env; None for nothing."""
    if "_fault" not in infos or not infos["_fault"][index]:
        return None
    return {key: column[index] for key, column in infos["fault"].items() if key[0] != "_"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_case_20_a_step_that_raises_reads_truncated_and_siblings_never_notice(engine, mode):
    actions = np.arange(4)
    with (
        make(engine, one_faulty(engine, "raise"), autoreset_mode=mode) as envs,
        make(engine, one_faulty(engine, ()), autoreset_mode=mode) as quiet,
    ):
        envs.reset(seed=3)
        quiet.reset(seed=3)
        siblings = [0, 2, 3]
        for step in range(1, 6):
            if mode == "Disabled" and step == 4:
                observations, infos = envs.reset(
                    options={"reset_mask": np.array([False, True, False, False])}
                )
                assert Observation(observations[1]).step == 0
            results = envs.step(actions)
            expected = quiet.step(actions)
            for one, other in zip(results[:4], expected[:4], strict=True):
                one, other = np.array(one)[siblings], np.array(other)[siblings]
                if one.ndim == 2:
                    one, other = without_life(one), without_life(other)
                assert np.array_equal(one, other)
            observations, rewards, terminations, truncations, infos = results
            seen = Observation(observations[1])
            if step < 3:
                life, last = seen.life, observations[1].copy()
                assert fault_of(infos, 1) is None
            elif step == 3:
                assert (rewards[1], terminations[1], truncations[1]) == (0.0, False, True)
                told = fault_of(infos, 1)
                assert told["kind"] == "error"
                assert told["operation"] == "step"
                assert told["exception"] == "InjectedError: step 3 of env 1"
                assert told["restarts"] == 1
                assert not told["collateral"]
                assert told["traceback"].startswith("Traceback (most recent call last):\n")
                assert told["traceback"].endswith("InjectedError: step 3 of env 1\n")
                assert infos["_fault"].tolist() == [False, True, False, False]
                if mode == "SameStep":
                    assert (seen.step, seen.action, seen.episode) == (0, -1, 0)
                    assert seen.life != life
                    assert np.array_equal(infos["final_obs"][1], last)
                else:
                    assert np.array_equal(observations[1], last)
            else:
                assert seen.life != life
                begun = {"NextStep": 4, "SameStep": 3, "Disabled": 3}[mode]
                assert seen.step == step - begun
                assert not truncations[1]
                assert fault_of(infos, 1) is None
        assert envs.statistics().restarts["error"].tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("fault", ["wrong shape", "wrong reward", "no tuple", "nan"])
@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_bad_data_is_a_fault(engine, fault):
    policy = FaultPolicy(on_fault="restart", check="finite", backoff=QUICK)
    with make(engine, one_faulty(engine, fault, at=1), faults=policy) as envs:
        envs.reset()
        *_, truncations, infos = envs.step([1] * 4)
        assert truncations.tolist() == [False, True, False, False]
        told = fault_of(infos, 1)
        assert told["kind"] == "bad data"
        assert told["exception"].startswith("expected ")
        assert envs.statistics().restarts["bad data"].sum() == 1


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("engine", ["process", "process+thread"])
def test_case_14_a_crash_tells_how_and_where(engine, death):
    # One env per process: nobody is taken along.
    with make(engine, one_faulty(engine, death), envs_per_worker=1) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1, 2, 3, 4])
        _observations, rewards, _, truncations, infos = envs.step([1, 2, 3, 4])
        assert truncations.tolist() == [False, True, False, False]
        assert rewards.tolist() == [1, 0, 3, 4]
        told = fault_of(infos, 1)
        assert (told["kind"], told["operation"], told["collateral"]) == ("crash", "step", False)
        assert told["exception"] == f"its process died ({DEATHS[death]})"
        assert ("string_at" in told["traceback"]) is (death == "segfault")
        assert Observation(envs.step([1] * 4)[0][1]).step == 0


@pytest.mark.parametrize("mode", MODES)
def test_siblings_in_a_process_that_died_say_so(mode):
    with make("process", one_faulty("process", "exit"), autoreset_mode=mode) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1, 2, 3, 4])
        _observations, rewards, _, truncations, infos = envs.step([1, 2, 3, 4])
        assert truncations.tolist() == [True, True, False, False]
        assert rewards.tolist() == [0, 0, 3, 4]
        mine, its = fault_of(infos, 1), fault_of(infos, 0)
        assert (mine["collateral"], its["collateral"]) == (False, True)
        assert its["exception"] == "its process died (exit code 3)"
        statistics = envs.statistics()
        assert statistics.restarts["crash"].tolist() == [0, 1, 0, 0]
        assert statistics.collateral.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("engine", PROCESS)
def test_an_env_that_was_idle_when_its_process_died_says_so_with_its_next_step(engine):
    env_fns = [faulty(engine, i, length=9) for i in range(4)]
    pid = functools.partial(_pid_of, engine)
    with make(engine, env_fns) as envs:
        envs.reset(seed=3)
        envs.step([1] * 4)
        os.kill(pid(envs, 0), signal.SIGKILL)
        # The others go on as if nothing had happened.
        envs.send([5, 5], [2, 3])
        assert sorted(envs.recv().env_ids.tolist()) == [2, 3]
        assert eventually(lambda: _dead(envs))
        with pytest.raises(
            EnvError,
            match=re.escape(
                "can't do 'call': envs 0 and 1 not running (its process died (killed by SIGKILL)); "
                "step or reset restarts it"
            ),
        ):
            envs.call("length")
        envs.send([6, 6], [0, 1])
        batch = envs.recv()
        assert batch.truncations.tolist() == [True, True]
        assert batch.rewards.tolist() == [0.0, 0.0]
        assert batch.infos["fault"]["kind"].tolist() == ["crash", "crash"]
        assert batch.infos["fault"]["collateral"].tolist() == [True, True]
        observations, *_ = envs.step([1] * 4)
        assert [Observation(one).step for one in observations] == [0, 0, 3, 3]


def _pid_of(engine, envs, index):
    return envs._pool.shards.of(index).pid


def _dead(envs):
    envs._pool._collect()
    return bool(envs._pool.recovery.lost(None))


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_a_reset_that_fails_is_made_again_with_its_seed(engine, tmp_path):
    once = tmp_path / "once"
    env_fns = one_faulty(engine, "raise", operation="reset", at=1, once=once)
    with (
        make(engine, env_fns) as envs,
        make(engine, one_faulty(engine, ())) as quiet,
    ):
        observations, infos = envs.reset(seed=[7, 8, 9, 10])
        expected, _ = quiet.reset(seed=[7, 8, 9, 10])
        assert np.array_equal(without_life(observations), without_life(expected))
        told = fault_of(infos, 1)
        assert (told["kind"], told["operation"]) == ("error", "reset")
        results, expected = envs.step([1] * 4), quiet.step([1] * 4)
        assert np.array_equal(without_life(results[0]), without_life(expected[0]))
        assert not results[3].any()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_an_autoreset_that_fails(engine, mode, tmp_path):
    env_fns = one_faulty(engine, "raise", operation="reset", at=2, length=2, once=tmp_path / "x")
    with make(engine, env_fns, autoreset_mode=mode) as envs:
        envs.reset(seed=3)
        envs.step([1] * 4)
        observations, rewards, terminations, truncations, infos = envs.step([2] * 4)
        if mode == "SameStep":  # the step itself was done, and nothing of it is lost
            assert rewards.tolist() == [2.0] * 4
            assert terminations.all() and not truncations.any()
            final = [Observation(one) for one in infos["final_obs"]]
            assert [(one.step, one.action, one.total) for one in final] == [(2, 2, 3)] * 4
        else:
            assert fault_of(infos, 1) is None
            observations, rewards, terminations, truncations, infos = envs.step([2] * 4)
            assert not rewards.any() and not truncations.any()
        told = fault_of(infos, 1)
        assert (told["kind"], told["operation"]) == ("error", "autoreset")
        assert [Observation(one).step for one in observations] == [0] * 4
        assert [Observation(one).step for one in envs.step([1] * 4)[0]] == [1] * 4


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_a_budget_that_is_used_up(engine):
    policy = FaultPolicy(on_fault="restart", max_restarts=2, backoff=QUICK)
    with make(engine, one_faulty(engine, "raise", probability=1.0), faults=policy) as envs:
        envs.reset(seed=3)
        for restarts in (1, 2):
            *_, truncations, infos = envs.step([1] * 4)
            assert truncations.tolist() == [False, True, False, False]
            assert fault_of(infos, 1)["restarts"] == restarts
            envs.step([1] * 4)
        with pytest.raises(EnvError) as caught:
            envs.step([1] * 4)
        assert re.fullmatch(
            r"env 1 raised InjectedError in step: step 1 of env 1 \(engine "
            rf"'{re.escape(engine)}', seed 4\); it is not restarted: env 1 was restarted 2 times "
            r"within an hour \(max_restarts\)",
            str(caught.value),
        )
        assert isinstance(caught.value.__cause__, InjectedError)
        # The pool is usable: the others' results are there, and the env can be reset.
        assert sorted(envs.recv().env_ids.tolist()) == [0, 2, 3]
        with pytest.raises(ResetNeededError, match="env 1 failed"):
            envs.step([1] * 4)
        envs.send([1] * 3, [0, 2, 3])
        assert len(envs.recv()) == 3
        observations, _ = envs.reset()
        assert [Observation(one).step for one in observations] == [0] * 4


def test_a_process_that_dies_again_and_again():
    policy = FaultPolicy(on_fault="restart", max_restarts=2, backoff=QUICK, isolate_after=None)
    env_fns = one_faulty("process", "exit", probability=1.0)
    with make("process", env_fns, faults=policy) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            *_, truncations, _infos = envs.step([1] * 4)
            assert truncations[1]
            envs.step([1] * 4)
        with pytest.raises(WorkerDiedError) as caught:
            envs.step([1] * 4)
        assert str(caught.value).endswith(
            "it is not restarted: env 1 was restarted 2 times within an hour (max_restarts)"
        )
        assert caught.value.env_ids == (1,)
        assert sorted(envs.recv().env_ids.tolist()) == [0, 2, 3]
        for _ in range(3):  # the others go on, the one that shared its process too
            envs.send([1] * 3, [0, 2, 3])
            assert len(envs.recv()) == 3
        with pytest.raises(EnvError, match=r"env 1 .* restarted 2 times within an hour"):
            envs.reset()
        assert sorted(envs.recv().env_ids.tolist()) == [0, 2, 3]


def test_an_env_that_keeps_killing_its_process_gets_one_of_its_own():
    env_fns = one_faulty("process", "exit", length=99)
    with make("process", env_fns) as envs:
        envs.reset(seed=3)
        pids, collateral = [], []
        for _ in range(20):
            *_, infos = envs.step([1] * 4)
            if fault_of(infos, 1) is not None:
                pids.append([_pid_of("process", envs, i) for i in range(4)])
                collateral.append(fault_of(infos, 0) is not None)
        assert collateral == [True, True, False, False, False]
        first, second, third = pids[:3]
        assert first[0] == first[1] and first[2] == first[3]
        assert second[0] != second[1]
        assert third[0] == second[0] and third[1] != second[1]
        # All that goes to everybody still does.
        assert envs.get_attr("index") == (0, 1, 2, 3)
        assert [frame[0, 0, 0] for frame in envs.render()] == [0, 1, 2, 3]
        observations, _ = envs.reset(seed=5)
        assert [Observation(one).index for one in observations] == [0, 1, 2, 3]


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_the_seed_of_a_restart_is_documented(engine):
    def after_the_fault(seed, reset_seed=None):
        env_fns = one_faulty(engine, "raise")
        with make(engine, env_fns, autoreset_mode="SameStep", reset_seed=reset_seed) as envs:
            envs.reset(seed=seed)
            for _ in range(3):
                observations, *_ = envs.step([1] * 4)
            return Observation(observations[1]).draw

    def drawn(seed):
        return gymnasium.utils.seeding.np_random(seed)[0].random()

    entropy = [31, 1, 1, 1]  # seed, env, episode, restart
    assert after_the_fault(30) == drawn(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
    assert after_the_fault(30, _hundreds) == drawn(101)
    assert after_the_fault(None) != after_the_fault(None)


def _hundreds(index, episode):
    return 100 * index + episode


def test_an_env_that_was_never_reset_is_no_fault(engine):
    with make(engine, [_cartpole] * 2) as envs:
        with pytest.raises(EnvError) as caught:
            envs.step([0, 0])
        assert isinstance(caught.value.__cause__, gymnasium.error.ResetNeeded)
        assert envs.statistics().restarts["error"].sum() == 0


def _cartpole():
    return gymnasium.make("CartPole-v1")


@pytest.mark.parametrize("engine", PROCESS)
def test_with_on_fault_raise_a_reset_restarts_what_died(engine):
    policy = FaultPolicy(on_fault="raise", step_timeout=60)
    env_fns = one_faulty(engine, "exit" if engine != "process" else "segfault")
    with make(engine, env_fns, faults=policy) as envs:
        envs.reset(seed=3)
        envs.step([1] * 4)
        envs.step([1] * 4)
        with pytest.raises(WorkerDiedError, match="the worker process of envs 0 and 1 died"):
            envs.step([1] * 4)
        # With threads, the sibling may have been quicker.
        assert set(envs.recv().env_ids.tolist()) - {0} == {2, 3}
        with pytest.raises(ResetNeededError, match="envs 0 and 1 failed"):
            envs.step([1] * 4)
        envs.send([1, 1], [2, 3])
        envs.recv()
        observations, infos = envs.reset(seed=3)
        assert [Observation(one).step for one in observations] == [0] * 4
        assert infos["_fault"].tolist() == [True, True, False, False]
        envs.step([1] * 4)


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_with_on_fault_raise_an_env_that_raised_is_not_restarted(engine):
    policy = FaultPolicy(step_timeout=60)
    with make(engine, one_faulty(engine, "raise"), faults=policy) as envs:
        observations, _ = envs.reset(seed=3)
        life = Observation(observations[1]).life
        for _ in range(2):
            envs.step([1] * 4)
        with pytest.raises(EnvError, match="env 1 raised InjectedError in step"):
            envs.step([1] * 4)
        observations, infos = envs.reset()
        assert Observation(observations[1]).life == life
        assert "fault" not in infos


def test_the_classic_door_too(engine):
    env_fns = one_faulty(engine, "raise")
    with agymc.make(env_fns, engine=engine, faults=RESTART) as envs:
        envs.reset()
        for _ in range(2):
            envs.step([1, 2, 3, 4])
        _, rewards, dones, infos = envs.step([1, 2, 3, 4])
        assert rewards == [1.0, 0.0, 3.0, 4.0]
        assert dones == [False, True, False, False]
        assert infos[1]["fault"]["exception"] == "InjectedError: step 3 of env 1"
        assert "fault" not in infos[0]
        envs.step([1, 2, 3, 4])
        assert Observation(envs.reset()[1]).step == 0


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_the_asyncio_door_too(engine):
    import asyncio

    async def main():
        env_fns = one_faulty(engine, ["raise", "hang"])
        async with agymc.make_async(env_fns, engine=engine, faults=RESTART) as envs:
            await envs.reset(seed=3)
            kinds = []
            for _ in range(9):
                *_, infos = await envs.step([1] * 4)
                told = fault_of(infos, 1)
                kinds += [] if told is None else [told["kind"]]
            assert len(kinds) == 2
            assert set(kinds) <= {"error", "timeout"}

    asyncio.run(main())


@pytest.mark.parametrize("engine", ALL_ENGINES)
def test_a_constructor_that_fails_in_a_restart_is_tried_again(engine, tmp_path):
    env_fns = [faulty(engine, 0), functools.partial(_fails_at_build, engine, tmp_path / "built")]
    with make(engine, env_fns) as envs:
        envs.reset(seed=3)
        *_, truncations, infos = envs.step([1, 1])
        assert truncations.tolist() == [False, True]
        told = fault_of(infos, 1)
        assert told["restarts"] == 3
        assert told["operation"] == "restart"
        assert told["exception"] == "OSError: no port is free"


def _fails_at_build(engine, path):
    """Fails when it is built the second and third time."""
    with path.open("a") as file:
        file.write("x")
    if path.stat().st_size in (2, 3):
        raise OSError("no port is free")
    return faulty(engine, 1, "raise" if path.stat().st_size == 1 else (), at=1)()


def test_the_backoff_doubles_up_to_its_cap():
    from random import Random

    backoff = Backoff(base=0.5, cap=3.0, jitter=0.0)
    assert [backoff.seconds(failures, Random(0)) for failures in range(1, 6)] == [0.5, 1, 2, 3, 3]
    jittered = Backoff(base=1.0, cap=1.0, jitter=0.25)
    times = [jittered.seconds(1, Random(seed)) for seed in range(200)]
    assert 0.75 <= min(times) < 0.8 and 1.2 < max(times) <= 1.25


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"step_timeout": 0}, "expected step_timeout to be a positive number of seconds or None"),
        ({"reset_timeout": "1"}, "expected reset_timeout to be a positive number"),
        ({"grace": None}, "expected grace to be a positive number of seconds, got None"),
        ({"on_fault": "ignore"}, "expected on_fault 'raise' or 'restart', got 'ignore'"),
        ({"check": "all"}, "expected check 'shape', 'space' or 'finite', got 'all'"),
        ({"max_restarts": -1}, "expected max_restarts to be an integer of at least 0, got -1"),
        ({"isolate_after": 0}, "expected isolate_after to be an integer of at least 1, got 0"),
        ({"backoff": 1.0}, "expected backoff to be a Backoff, got 1.0"),
    ],
)
def test_a_policy_that_can_not_be_meant(options, text):
    with pytest.raises(agymc.ConfigurationError, match=re.escape(text)):
        FaultPolicy(**options)


def test_options_that_can_not_be_meant():
    with pytest.raises(
        agymc.ConfigurationError, match=r"expected faults to be an agymc\.FaultPolicy"
    ):
        agymc.make_vec("CartPole-v1", 2, faults="restart")
    with pytest.raises(agymc.ConfigurationError, match="num_workers or envs_per_worker, got both"):
        agymc.make_vec("CartPole-v1", 2, num_workers=2, envs_per_worker=1)
    with pytest.raises(agymc.ConfigurationError, match="'thread' has no envs_per_worker"):
        agymc.make_vec("CartPole-v1", 2, engine="thread", envs_per_worker=1)
    with pytest.raises(agymc.ConfigurationError, match="0 <= base <= cap"):
        Backoff(base=2.0, cap=1.0)


def test_a_timeout_is_an_error_of_its_own():
    assert issubclass(EnvTimeoutError, EnvError)
    assert not issubclass(EnvTimeoutError, TimeoutError)  # that says: wait again
    assert not issubclass(agymc.EnvInterrupt, Exception)
