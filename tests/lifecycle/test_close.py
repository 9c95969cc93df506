"""The end of a pool: by close, by garbage collection, with envs that hang."""

from __future__ import annotations

import functools
import gc
import os
import threading
import time
import warnings

import numpy as np
import pytest
from tests.lifecycle.faulty import Probe
from tests.lifecycle.helpers import eventually, probes

import agymc
from agymc import ClosedError

CALLS = {
    "reset": lambda envs: envs.reset(),
    "reset_async": lambda envs: envs.reset_async(),
    "reset_wait": lambda envs: envs.reset_wait(),
    "step": lambda envs: envs.step([0, 0]),
    "step_async": lambda envs: envs.step_async([0, 0]),
    "step_wait": lambda envs: envs.step_wait(),
    "send": lambda envs: envs.send([0, 0]),
    "send_reset": lambda envs: envs.send_reset(),
    "recv": lambda envs: envs.recv(),
    "call": lambda envs: envs.call("act"),
    "call_async": lambda envs: envs.call_async("act"),
    "call_wait": lambda envs: envs.call_wait(),
    "get_attr": lambda envs: envs.get_attr("value"),
    "set_attr": lambda envs: envs.set_attr("value", 1),
    "render": lambda envs: envs.render(),
    "snapshot": lambda envs: envs.snapshot(),
}


def _texts(caught):
    return [str(warning.message) for warning in caught]


# ------------------------------------------------------------------ in good order


def test_closing_closes_each_env_once(make, tmp_path):
    log = tmp_path / "log"
    envs = make(probes(5, log=log))
    envs.reset()
    for _ in range(3):
        envs.close()
    lines = log.read_text().splitlines()
    assert sorted(line for line in lines if "closed" in line) == [f"closed {i}" for i in range(5)]


def test_calls_after_close(make):
    envs = make(2)
    envs.reset()
    envs.close()
    assert envs.closed
    for name, call in CALLS.items():
        with pytest.raises(ClosedError) as caught:
            call(envs)
        assert str(caught.value) == ("expected open environments, these were closed by close()"), (
            name
        )
    assert list(envs.batches()) == []
    envs.close()


def test_calls_after_close_with_something_in_flight(make):
    """What was in flight is gone: closed is closed, for all calls alike."""
    envs = make(2)
    envs.reset()
    envs.send([0, 0])
    envs.close()
    for call in CALLS.values():
        with pytest.raises(ClosedError):
            call(envs)


def test_closing_while_a_split_call_waits(make):
    envs = make(2)
    envs.reset()
    envs.step_async([0, 0])
    with pytest.warns(UserWarning, match="`close` while waiting for a pending call to `step`"):
        envs.close()
    assert envs.closed
    with pytest.raises(ClosedError):
        envs.step_wait()


def test_with(engine, tmp_path):
    log = tmp_path / "log"
    with (
        pytest.raises(ZeroDivisionError),
        agymc.make_vec(probes(2, log=log), engine=engine) as envs,
    ):
        envs.reset()
        raise ZeroDivisionError
    assert "closed 0" in log.read_text()
    assert envs.closed


def test_the_classic_door(engine, tmp_path):
    log = tmp_path / "log"
    with agymc.make(probes(2, log=log), engine=engine) as envs:
        envs.reset()
        envs.parallel(time.sleep, [[0.01, 0.01]])
    assert envs.closed
    envs.close()
    for call in (
        envs.reset,
        lambda: envs.step([0, 0]),
        lambda: envs.render("rgb_array"),
        lambda: envs.unwrapped.value,
        lambda: envs.parallel(time.sleep, [[0, 0]]),
    ):
        with pytest.raises(ClosedError, match="these were closed by close"):
            call()
    assert log.read_text().count("closed") == 2


def test_arrays_outlive_the_pool(make):
    """Law 7: what was handed out belongs to the caller, also after close."""
    for copy in (True, False):
        envs = make(2, copy=copy)
        first, _ = envs.reset(seed=1)
        expected = first.copy()
        envs.close()
        del envs
        gc.collect()
        np.testing.assert_array_equal(first, expected)
        first[:] = 0
        del first


# ------------------------------------------------------------------ garbage


@pytest.mark.parametrize("in_flight", [False, True])
def test_garbage(engine, in_flight, tmp_path):
    log = tmp_path / "log"
    envs = agymc.make_vec(probes(3, log=log), engine=engine)
    envs.reset()
    if in_flight:
        envs.send([0, 0, 0])
    del envs
    gc.collect()
    assert eventually(lambda: log.read_text().count("closed") == 3)


def test_garbage_in_a_cycle(engine, tmp_path):
    log = tmp_path / "log"
    holder = {"envs": agymc.make_vec(probes(2, log=log), engine=engine)}
    holder["self"] = holder
    del holder
    gc.collect()
    assert eventually(lambda: log.read_text().count("closed") == 2)


def test_garbage_of_the_classic_door(engine, tmp_path):
    log = tmp_path / "log"
    envs = agymc.make(probes(2, log=log), engine=engine)
    envs.parallel(time.sleep, [[0, 0]])
    view = envs.unwrapped
    assert view.value == (0, 0)
    del envs, view
    gc.collect()
    assert eventually(lambda: log.read_text().count("closed") == 2)


# ------------------------------------------------------------------ envs that hang


def _hang(gate, _env):
    gate.with_suffix(".reached").touch()
    while not os.path.exists(gate):
        time.sleep(0.01)


def _check_hung(engine, caught, index):
    """The warning that closing gives for a hung env; the workers have one env each."""
    if agymc.ENGINES[engine][0] == "local":
        assert _texts(caught) == [
            f"agymc: env {index} did not close in time; its thread can't be killed and was "
            "abandoned"
        ]
    else:
        (text,) = _texts(caught)
        assert text.startswith(f"agymc: the worker process of env {index} (pid ")
        assert text.endswith(") did not close in time and was killed")


@pytest.mark.parametrize("operation", ["step", "close"])
def test_closing_envs_that_hang(make, engine, operation, tmp_path):
    """Bounded in time; what hangs is killed or abandoned, and named; the others are closed."""
    if engine == "serial":
        pytest.skip("an env that hangs in the caller's thread hangs the caller")
    gate, log = tmp_path / "gate", tmp_path / "log"
    envs = make(probes(3, log=log), **({"num_workers": 3} if "process" in engine else {}))
    envs.reset()
    envs.call("arm", operation, functools.partial(_hang, gate), env_ids=[1])
    if operation == "step":
        envs.send([0, 0, 0])
    reached = gate.with_suffix(".reached")
    assert operation == "close" or eventually(reached.exists)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        envs.close(timeout=1.0)
    _check_hung(engine, [w for w in caught if w.category is RuntimeWarning], 1)
    closed = [line for line in log.read_text().splitlines() if "closed" in line]
    assert sorted(closed) == ["closed 0", "closed 2"]
    gate.touch()  # an abandoned thread ends when its env lets it, and closes the env
    if agymc.ENGINES[engine][0] == "local":
        assert eventually(lambda: "closed 1" in log.read_text())


def test_a_constructor_that_hangs_beside_one_that_raises(engine, tmp_path):
    """The error comes when all have had their turn: here, when the slow one is done."""
    gate = tmp_path / "gate"

    def fail():
        raise ValueError("no")

    def slow():
        _hang(gate, None)
        return Probe()

    threading.Timer(0.2, gate.touch).start()
    with pytest.raises(agymc.EnvError, match="env 0 raised ValueError in construction: no"):
        agymc.make_vec([fail, slow], engine=engine)


def test_terminate(make, engine):
    """Gymnasium's word for no patience at all."""
    envs = make(3)
    envs.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        envs.close(terminate=True)
    assert envs.closed


def test_a_full_socket_does_not_keep_close_from_ending(process_engine, tmp_path):
    """The worker hangs and reads nothing, so not even "close" can be sent to it."""
    envs = agymc.make_vec(probes(1), engine=process_engine, num_workers=1)
    envs.reset()
    envs.call("arm", "step", functools.partial(_hang, tmp_path / "gate"))
    (pid,) = envs.call("pid")
    os.kill(pid, 19)  # SIGSTOP: also the main thread of process+thread does not read
    sender = threading.Thread(target=_send_much, args=(envs,), daemon=True)
    sender.start()
    sender.join(0.5)
    with pytest.warns(RuntimeWarning, match="did not close in time and was killed"):
        envs.close(timeout=0.5)
    sender.join(20)
    assert not sender.is_alive()


def _send_much(envs):
    try:
        envs.call_async("act", b"x" * 10_000_000)
    except Exception:
        pass  # the pool is closed under our feet, which is what this is about


# ------------------------------------------------------------------ idle


def test_an_idle_pool_uses_no_cpu(make):
    """Law 9. Clock ticks of all threads and processes, while another process would need many."""
    import psutil

    envs = make(8)
    envs.reset()
    for _ in range(50):
        envs.step([0] * 8)

    def used():
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        times = [process.cpu_times() for process in family]
        return sum(time.user + time.system for time in times)

    time.sleep(0.1)
    before = used()
    time.sleep(1.0)
    assert used() - before < 0.2
