"""Envs that raise, and envs that return what they must not."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import threading
import traceback
import warnings

import numpy as np
import pytest
from tests.lifecycle import faulty
from tests.lifecycle.faulty import RAISERS, Probe, raise_value_error
from tests.lifecycle.helpers import probes

import agymc
from agymc import AutoresetMode, BadDataError, EnvError


@pytest.fixture(scope="module", autouse=True)
def pools():
    """One pool per engine for all tests that leave it usable, which is what they prove."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                agymc.make_vec(
                    probes(3), engine=name, **({"num_workers": 2} if where == "process" else {})
                )
            )
            for name, (where, _) in agymc.ENGINES.items()
        }


@pytest.fixture
def envs(pools, engine):
    """Three probes as good as new, with seeds 1 to 3."""
    envs = pools[engine]
    with contextlib.suppress(agymc.NothingInFlightError):
        envs.recv()
    envs.call("disarm")
    envs.reset(seed=1)
    return envs


def _is_local(engine: str) -> bool:
    return agymc.ENGINES[engine][0] == "local"


def _printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


# ------------------------------------------------------------------ construction


@pytest.mark.parametrize("bad", [0, 2])
def test_a_function_that_raises(engine, bad, tmp_path):
    log = tmp_path / "log"
    env_fns = probes(4, log=log)
    env_fns[bad] = functools.partial(Probe, bad, log, construct=raise_value_error)
    with pytest.raises(EnvError) as caught:
        agymc.make_vec(env_fns, engine=engine)
    error = caught.value
    assert str(error) == (
        f"env {bad} raised ValueError in construction: the wheel came off "
        f"(engine '{engine}', seed None)"
    )
    assert (error.env_id, error.operation, error.engine) == (bad, "construction", engine)
    assert type(error.__cause__) is ValueError
    assert 'raise ValueError("the wheel came off")' in _printed(error)
    lines = log.read_text().splitlines()
    others = sorted({0, 1, 2, 3} - {bad})
    assert sorted(lines) == sorted(
        f"{what} {index}" for what in ("built", "closed") for index in others
    )


def test_several_functions_that_raise(engine):
    def broken(index):
        raise LookupError(f"no level {index}")

    env_fns = [functools.partial(broken, index) for index in range(3)] + probes(2)[1:]
    with pytest.raises(EnvError) as caught:
        agymc.make_vec(env_fns, engine=engine)
    assert str(caught.value) == (
        f"env 0 raised LookupError in construction: no level 0 (engine '{engine}', seed None); "
        "envs 1 and 2 failed too, see `others`"
    )
    assert [other.env_id for other in caught.value.others] == [1, 2]
    assert [str(other.__cause__) for other in caught.value.others] == ["no level 1", "no level 2"]


def test_functions_that_make_no_env(engine):
    with pytest.raises(EnvError) as caught:
        agymc.make_vec([Probe, lambda: None, lambda: "CartPole-v1", lambda: Probe], engine=engine)
    errors = [caught.value, *caught.value.others]
    assert [error.env_id for error in errors] == [1, 2, 3]
    names = "without reset, step, observation_space, action_space"
    for error, got in zip(
        errors, (f"NoneType {names}", f"str {names}", "Probe: call"), strict=True
    ):
        assert "raised TypeError in construction: expected an environment" in str(error)
        assert got in str(error)


# ------------------------------------------------------------------ every exception


def test_every_exception_arrives(make, engine):
    """All at once: each env raises another one, and all of them can go on."""
    envs = make(len(RAISERS))
    envs.reset(seed=5)
    for index, raiser in enumerate(RAISERS.values()):
        envs.call("arm", "step", raiser, env_ids=[index])
    with pytest.raises(EnvError) as caught:
        envs.step([0] * len(RAISERS))
    errors = [caught.value, *caught.value.others]
    assert [error.env_id for error in errors] == list(range(len(RAISERS)))
    for (name, raiser), error in zip(RAISERS.items(), errors, strict=True):
        try:
            raiser(None)
        except BaseException as exception:
            expected = exception
        cause = error.__cause__
        assert type(cause).__name__ == type(expected).__name__, name
        assert error.operation == "step"
        assert error.seed == 5 + error.env_id
        assert f"raise_{name}" in _printed(error), name  # the line of the env's own code
        for kind in type(expected).__mro__:
            if kind.__module__ == "builtins":
                assert isinstance(cause, kind), name
        if name not in ("no_text", "unpicklable_group", "lock_in_args"):
            assert str(cause) == str(expected), name
            assert f"in step{': ' if str(cause) else ''}{cause} (engine" in str(error)
        pickle.loads(pickle.dumps(error))  # an error can go on to another process
    for index in range(len(RAISERS)):
        envs.call("arm", "step", None, env_ids=[index])
    envs.reset()
    envs.step([0] * len(RAISERS))


@pytest.mark.parametrize("name", ["two_arguments", "with_lock", "lock_in_args", "os_error"])
def test_an_exception_keeps_its_class_and_what_it_holds(envs, name):
    envs.call("arm", "step", RAISERS[name], env_ids=[1])
    with pytest.raises(EnvError) as caught:
        envs.step([0, 0, 0])
    cause = caught.value.__cause__
    match name:
        case "two_arguments":
            assert isinstance(cause, faulty.TwoArguments)
            assert cause.code == 7
        case "with_lock":
            assert isinstance(cause, faulty.WithLock)
            assert cause.answer == 42
        case "lock_in_args":
            assert type(cause).__name__ == "LockInArgs"
            assert "the lock is held" in str(cause)
        case "os_error":
            assert isinstance(cause, FileNotFoundError)
            assert cause.filename == "/no/such/file"


def test_a_group_can_be_taken_apart(envs):
    envs.call("arm", "step", RAISERS["unpicklable_group"], env_ids=[0])
    with pytest.raises(EnvError) as caught:
        envs.step([0, 0, 0])
    cause = caught.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert [type(member).__name__ for member in cause.exceptions] == [
        "ValueError",
        "WithLock",
        "NoText",
    ]
    matching, _ = cause.split(ValueError)
    assert matching is not None


def test_an_exception_without_a_text(envs, engine):
    envs.call("arm", "step", RAISERS["no_text"], env_ids=[0])
    envs.call("arm", "step", RAISERS["without_text"], env_ids=[1])
    with pytest.raises(EnvError) as caught:
        envs.step([0, 0, 0])
    (other,) = caught.value.others
    assert str(caught.value) == (
        "env 0 raised NoText in step: <no text: its __str__ raised ValueError> "
        f"(engine '{engine}', seed 1); env 1 failed too, see `others`"
    )
    assert str(other) == f"env 1 raised ValueError in step (engine '{engine}', seed 2)"


def test_a_keyboard_interrupt_of_an_env(envs, engine):
    """In the thread of the caller it is one; anywhere else it is the env's affair."""
    envs.call("arm", "step", faulty.raise_keyboard_interrupt, env_ids=[1])
    if engine == "serial":
        with pytest.raises(KeyboardInterrupt, match="not from a keyboard"):
            envs.step([1, 2, 3])
    with pytest.raises(EnvError, match="env 1 raised KeyboardInterrupt in step") as caught:
        envs.recv() if engine == "serial" else envs.step([1, 2, 3])
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)
    batch = envs.recv()
    assert sorted(batch.env_ids) == [0, 2]
    assert sorted(batch.rewards) == [1.0, 3.0]


# ------------------------------------------------------------------ every operation


OPERATIONS = {
    "reset": lambda envs: envs.reset(seed=[3, 4, 5]),
    "step": lambda envs: envs.step([0, 0, 0]),
    "call": lambda envs: envs.call("act", 1),
    "render": lambda envs: envs.render(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_raising_in(envs, engine, operation):
    envs.reset(seed=[7, 8, 9])
    envs.call("arm", operation, raise_value_error, env_ids=[1])
    with pytest.raises(EnvError) as caught:
        OPERATIONS[operation](envs)
    error = caught.value
    name = "call 'act'" if operation == "call" else operation
    seed = 4 if operation == "reset" else 8
    assert str(error) == (
        f"env 1 raised ValueError in {name}: the wheel came off (engine '{engine}', seed {seed})"
    )
    assert (error.env_ids, error.operation, error.engine, error.seed) == ((1,), name, engine, seed)
    printed = _printed(error)
    assert 'raise ValueError("the wheel came off")' in printed
    assert ", in raise_value_error" in printed
    # The error of a call or a frame leaves the episode alone; any other needs a reset.
    envs.call("arm", operation, None, env_ids=[1])
    if operation in ("reset", "step"):
        envs.recv()
        with pytest.raises(agymc.ResetNeededError) as needed:
            envs.step([0, 0, 0])
        assert str(needed.value) == "expected a reset before the next step: env 1 failed"
        envs.reset(options={"reset_mask": np.array([False, True, False])})
    envs.step([0, 0, 0])


def test_raising_in_a_missing_attribute(envs, engine):
    with pytest.raises(EnvError, match="env 0 raised AttributeError in call 'no_such_thing': "):
        envs.call("no_such_thing")
    with pytest.raises(EnvError, match="env 1 raised TypeError in call 'act'"):
        envs.call("act", no_such_argument=1, env_ids=[1])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_raising_in_autoreset(make, engine, mode):
    envs = make(probes(2, length=2), autoreset_mode=mode)
    envs.reset(seed=1)
    envs.call("arm", "reset", raise_value_error, env_ids=[1])
    with pytest.raises(EnvError) as caught:
        for _ in range(4):
            envs.step([0, 0])
    assert str(caught.value) == (
        f"env 1 raised ValueError in autoreset: the wheel came off (engine '{engine}', seed 2)"
    )
    batch = envs.recv()
    assert batch.env_ids.tolist() == [0]
    envs.call("arm", "reset", None, env_ids=[1])
    envs.reset(options={"reset_mask": np.array([False, True])})
    for _ in range(6):
        envs.step([0, 0])


def test_raising_in_close(make, engine):
    envs = make(3)
    envs.reset()
    envs.call("arm", "close", raise_value_error, env_ids=[1])
    with pytest.warns(RuntimeWarning) as caught:
        envs.close()
    assert [str(warning.message) for warning in caught] == [
        "agymc: env 1 raised ValueError in close: the wheel came off"
    ]
    envs.close()


@pytest.mark.parametrize("name", ["no_text", "keyboard_interrupt"])
def test_raising_in_close_does_not_keep_others_from_it(make, engine, name, tmp_path):
    log = tmp_path / "log"
    raiser = getattr(faulty, f"raise_{name}")
    envs = make(probes(4, log=log))
    envs.call("arm", "close", raiser, env_ids=[0])
    envs.call("arm", "close", raiser, env_ids=[2])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            envs.close()
        except KeyboardInterrupt:
            assert (engine, name) == ("serial", "keyboard_interrupt")
        else:
            assert len(caught) == 2
    lines = log.read_text().splitlines()
    assert sorted(line for line in lines if "closed" in line) == ["closed 1", "closed 3"]


def test_raising_in_close_while_in_flight(make, engine, tmp_path):
    """The end of the step that was in flight is not taken for that of close."""
    gate = tmp_path / "gate"

    def wait(_env):
        while not gate.exists():
            pass

    envs = make(2)
    envs.reset()
    envs.call("arm", "close", raise_value_error)
    if engine != "serial":
        envs.call("arm", "step", wait)
    envs.send([0, 0])
    threading.Timer(0.2, gate.touch).start()
    with pytest.warns(RuntimeWarning) as caught:
        envs.close()
    assert sorted(str(warning.message) for warning in caught) == [
        f"agymc: env {index} raised ValueError in close: the wheel came off" for index in (0, 1)
    ]


# ------------------------------------------------------------------ the siblings


def test_siblings_go_on_bit_by_bit(make, engine):
    """Law 4: what the others give is what they would have given."""
    count = 4
    envs, alone = make(count), make(count, engine="serial")
    expected, _ = alone.reset(seed=11)
    observations, _ = envs.reset(seed=11)
    np.testing.assert_array_equal(observations, expected)
    for step in range(12):
        actions = [(step + index) % 4 for index in range(count)]
        expected, rewards, *_ = alone.step(actions)
        if step % 3 == 1:
            victim = step % count
            envs.call("arm", "step", raise_value_error, env_ids=[victim])
            with pytest.raises(EnvError, match=f"^env {victim} raised"):
                envs.step(actions)
            batch = envs.recv()
            others = sorted(set(range(count)) - {victim})
            assert sorted(batch.env_ids) == others
            np.testing.assert_array_equal(batch.observations, expected[batch.env_ids])
            np.testing.assert_array_equal(batch.rewards, rewards[batch.env_ids])
            with pytest.raises(agymc.NothingInFlightError):
                envs.recv()
            envs.call("arm", "step", None, env_ids=[victim])
            mask = np.arange(count) == victim
            first, _ = envs.reset(seed=100 + step, options={"reset_mask": mask})
            fresh, _ = alone.reset(seed=100 + step, options={"reset_mask": mask})
            first[victim, 0] = fresh[victim, 0]  # the number of the episode is the env's own
            np.testing.assert_array_equal(first, fresh)
        else:
            observations, got, *_ = envs.step(actions)
            np.testing.assert_array_equal(observations[:, 1:], expected[:, 1:])
            np.testing.assert_array_equal(got, rewards)


def test_partial_batches_with_one_that_raises(envs):
    envs.call("arm", "step", raise_value_error, env_ids=[2])
    envs.send([0, 1, 2])
    received: list[int] = []
    failures = 0
    while len(received) + failures < 3:
        try:
            received += envs.recv(min_ready=1).env_ids.tolist()
        except EnvError as error:
            assert error.env_id == 2
            failures += 1
    assert sorted(received) == [0, 1]
    assert failures == 1


# ------------------------------------------------------------------ what can't be sent


def _lock(_env):
    return threading.Lock()


def _lock_in_info(_env):
    return np.zeros(3), 0.0, False, False, {"lock": threading.Lock()}


class _Treacherous:
    """Can be pickled, and not unpickled."""

    def __reduce__(self):
        return faulty._refuse, ()


def _treacherous_info(_env):
    return np.zeros(3), 0.0, False, False, {"bad": _Treacherous()}


def test_results_that_cannot_be_sent(envs, engine):
    if _is_local(engine):
        envs.call("arm", "call", _lock)
        assert all(hasattr(lock, "acquire") for lock in envs.call("act"))
        return
    envs.call("arm", "call", _lock, env_ids=[1])
    with pytest.raises(EnvError) as caught:
        envs.call("act")
    assert str(caught.value) == (
        "env 1 gave what can't be sent from its process, in call: the result is a "
        f"_thread.lock (cannot pickle '_thread.lock' object) (engine '{engine}', seed 2)"
    )
    assert envs.call("act", 1, env_ids=[0, 2]) == ((1,), (1,))


def test_infos_that_cannot_be_sent(envs, engine):
    envs.call("arm", "step", _lock_in_info, env_ids=[1])
    if _is_local(engine):
        *_, infos = envs.step([0, 0, 0])
        assert infos["_lock"].tolist() == [False, True, False]
        return
    with pytest.raises(EnvError) as caught:
        envs.step([1, 2, 3])
    assert str(caught.value) == (
        "env 1 gave what can't be sent from its process, in step: info['lock'] is a _thread.lock "
        f"(cannot pickle '_thread.lock' object) (engine '{engine}', seed 2)"
    )
    assert sorted(envs.recv().rewards) == [1.0, 3.0]
    envs.call("arm", "step", None)
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    envs.step([1, 2, 3])


def test_infos_that_cannot_be_received(envs, engine):
    """Law 4: those of the others, of the same worker too, arrive."""
    envs.call("arm", "step", _treacherous_info, env_ids=[1])
    envs.call("arm", "step", _good_info, env_ids=[2])
    if _is_local(engine):
        envs.step([0] * 3)
        return
    with pytest.raises(EnvError) as caught:
        envs.step([1, 2, 3])
    assert str(caught.value) == (
        "env 1 gave what can't be received from its process, in step: RuntimeError: "
        f"I won't be unpickled (engine '{engine}', seed 2)"
    )
    batch = envs.recv()
    assert sorted(batch.env_ids) == [0, 2]
    assert batch.infos["x"][batch.env_ids.tolist().index(2)] == 7


def _good_info(_env):
    return np.zeros(3), 0.0, False, False, {"x": 7}


def test_arguments_that_cannot_be_sent(envs, engine):
    lock = threading.Lock()
    if _is_local(engine):
        assert envs.call("act", lock) == ((lock,),) * 3
        return
    with pytest.raises(agymc.PickleError) as caught:
        envs.call("act", {"a": [lock]})
    assert str(caught.value) == (
        "an argument of 'act' can't be sent to a worker process: args[0]['a'][0] is a _thread.lock "
        "(cannot pickle '_thread.lock' object)"
    )
    with pytest.raises(
        agymc.PickleError, match=r"the value of 'value' .*: value is a _thread.lock"
    ):
        envs.set_attr("value", [1, 2, lock])
    with pytest.raises(agymc.PickleError, match=r"the options of reset .*: options\['lock'\] is a"):
        envs.reset(options={"lock": lock})
    assert envs.call("act", 1) == ((1,),) * 3
    envs.step([0, 0, 0])


def test_arguments_that_cannot_be_received(envs, engine):
    """The worker reads one command after the other: a bad one must not end it."""
    if _is_local(engine):
        return
    with pytest.raises(EnvError) as caught:
        envs.call("act", _Treacherous())
    assert str(caught.value) == (
        "env 0 was given what can't be received in its process, in call: RuntimeError: I won't be "
        f"unpickled (engine '{engine}', seed 1); envs 1 and 2 failed too, see `others`"
    )
    assert envs.call("act", 1) == ((1,),) * 3


# ------------------------------------------------------------------ bad data


def _returning(value):
    return lambda _env: value


_O = np.zeros(3)

BAD_STEPS = {
    "four": ((_O, 0.0, False, {}), "a tuple of 4 elements (ndarray, float, bool, dict)"),
    "a number": (7, "int 7"),
    "a text": ("abcdef", "str 'abcdef'"),
    "shape": ((np.zeros(4), 0.0, False, False, {}), "array of shape (3,)"),
    "scalar": ((0.5, 0.0, False, False, {}), "array of shape (3,)"),
    "no observation": ((None, 0.0, False, False, {}), "got NoneType None"),
    "complex": ((np.zeros(3, complex), 0.0, False, False, {}), "dtype complex128"),
    "text reward": ((_O, "1.0", False, False, {}), "expected a number, got str '1.0', at 'reward'"),
    "no reward": ((_O, None, False, False, {}), "expected a number, got NoneType None, at 'rew"),
    "array reward": ((_O, np.zeros(2), False, False, {}), "expected a number, got"),
    "info": ((_O, 0.0, False, False, [1]), "expected a dict, got list [1], at 'info'"),
}


def test_bad_data_of_a_step(make, engine):
    count = len(BAD_STEPS)
    envs = make(count + 1)
    envs.reset(seed=3)
    for index, (value, _) in enumerate(BAD_STEPS.values()):
        envs.call("arm", "step", _returning(value), env_ids=[index])
    with pytest.raises(BadDataError) as caught:
        envs.step([2] * (count + 1))
    errors = [caught.value, *caught.value.others]
    assert [error.env_id for error in errors] == list(range(count))
    for index, (error, (_, text)) in enumerate(zip(errors, BAD_STEPS.values(), strict=True)):
        message = str(error).removesuffix(
            f"; envs {', '.join(map(str, range(1, 7)))}, ... ({count - 1} in all) failed too, "
            "see `others`"
        )
        assert message.startswith(f"env {index} returned bad data in step: expected ")
        assert message.endswith(f" (engine '{engine}', seed {3 + index})")
        assert text in message
    batch = envs.recv()
    assert batch.env_ids.tolist() == [count]
    assert batch.rewards.tolist() == [2.0]


BAD_RESETS = {
    "observation only": _O,
    "three": (_O, {}, 1),
    "info": (_O, None),
    "shape": (np.zeros(2), {}),
    "a number": 7,
}


def test_bad_data_of_a_reset(make, engine):
    count = len(BAD_RESETS)
    envs = make(count + 1)
    for index, value in enumerate(BAD_RESETS.values()):
        envs.call("arm", "reset", _returning(value), env_ids=[index])
    with pytest.raises(BadDataError) as caught:
        envs.reset()
    errors = [caught.value, *caught.value.others]
    assert [error.env_id for error in errors] == list(range(count))
    for index, error in enumerate(errors):
        assert str(error).startswith(f"env {index} returned bad data in reset: expected ")
    assert envs.recv().env_ids.tolist() == [count]


def test_what_a_space_allows_is_no_bad_data(envs):
    """NaN is a float, numbers of numpy are numbers, 0 and 1 are flags."""
    value = (np.full(3, np.nan), np.float32(np.nan), np.bool_(False), 0, {})
    envs.call("arm", "step", _returning(value))
    observations, rewards, terminations, truncations, _ = envs.step([0, 0, 0])
    assert np.isnan(observations).all()
    assert np.isnan(rewards).all()
    assert not terminations.any()
    assert not truncations.any()


# ------------------------------------------------------------------ as it is printed


def test_how_it_is_printed(envs, engine):
    """The env's own lines are there, once, and nothing of another process but them."""
    envs.call("arm", "step", RAISERS["chained"], env_ids=[1])
    with pytest.raises(EnvError) as caught:
        envs.step([0, 0, 0])
    printed = _printed(caught.value)
    assert printed.count("KeyError: 'engine oil'") == 1
    assert printed.count('raise RuntimeError("the engine stopped") from error') == 1
    assert printed.count("The above exception was the direct cause") in (2, 3)
    assert printed.rstrip().endswith(
        "agymc.errors.EnvError: env 1 raised RuntimeError in step: the engine stopped "
        f"(engine '{engine}', seed 2)"
    )
    if not _is_local(engine):
        remote = printed.partition('"""')[2].partition('"""')[0]
        assert os.path.join("agymc", "runners") not in remote
