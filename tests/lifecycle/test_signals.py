"""Ctrl-C, and callers that end in every way: scripts in processes of their own."""

from __future__ import annotations

import os
import signal

import pytest

WHERE = {
    "step": "envs.step([0, 0])",
    "recv": "envs.send([0, 0]); envs.recv()",
    "call": "envs.call('act')",
    "construct": "make(construct=hang)",
    "close": "envs.close()",
    "idle": "say(); time.sleep(50)",
}

INTERRUPTED = """
    import functools, sys, time
    import agymc
    from tests.lifecycle.faulty import Probe

    where, engine = sys.argv[1:]

    def say():
        print("ready", flush=True)

    def hang(env):
        if env.index == 1:
            say()
            time.sleep(50)

    def make(**hooks):
        env_fns = [functools.partial(Probe, index, **hooks) for index in range(2)]
        return agymc.make_vec(env_fns, engine=engine)

    envs = make()
    envs.reset()
    if where != "idle":
        envs.call("arm", {"recv": "step"}.get(where, where), hang)
    try:
        WHERE
    finally:
        envs.close(timeout=0.3)
"""


@pytest.mark.parametrize("where", WHERE)
def test_ctrl_c(engine, where, script):
    """Prompt, and one traceback: the caller's. (Case 24.)

    As a terminal does it, the signal goes to the whole process group of the caller.
    """
    source = INTERRUPTED.replace("WHERE", WHERE[where])
    one = script(source, where, engine, flags=("-W", "ignore"), start_new_session=True)
    assert one.read_line() == "ready"
    os.killpg(one.process.pid, signal.SIGINT)
    code = one.wait()
    assert code == -signal.SIGINT, (code, one.stderr)
    assert one.stderr.rstrip().endswith("KeyboardInterrupt"), one.stderr
    assert one.stderr.count("Traceback (most recent call last)") == 1, one.stderr
    # In the caller's thread it is the env that is interrupted.
    assert ("in hang" in one.stderr) == (engine == "serial" and where != "idle")
    one.assert_gone()


# ------------------------------------------------------------------ the end of the interpreter

ENDINGS = {
    "falls off the end": ("pass", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "an exception": ("1 / 0", 1, "ZeroDivisionError"),
    "os._exit": ("os._exit(4)", 4, ""),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    "SIGHUP": ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP, ""),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    "abort": ("os.abort()", -signal.SIGABRT, ""),
    "exec": ("os.execv('/bin/true', ['true'])", 0, ""),
}

ENDING = """
    import functools, os, resource, signal, sys, threading
    import agymc
    from tests.lifecycle.faulty import Probe

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def start(number=0):
        global envs  # the pool is kept alive to the very end
        env_fns = [functools.partial(Probe, index, sys.argv[2]) for index in range(4)]
        envs = agymc.make_vec(env_fns, engine=sys.argv[1])
        envs.reset()
        envs.step([0] * 4)
        if "in flight" in sys.argv:
            envs.send([0] * 4)

    def end():
        ENDING

    if "thread" in sys.argv:
        thread = threading.Thread(target=start, daemon=True)
        thread.start()
        thread.join()
    else:
        start()
    print("ready", flush=True)
    end()
"""


@pytest.mark.parametrize("how", ENDINGS)
def test_the_end_of_the_caller(engine, how, script, tmp_path):
    """Without close: quiet, with the exit code that it has anyway, and nothing is left."""
    statement, expected, text = ENDINGS[how]
    source = ENDING.replace("ENDING", statement)
    for number, more in enumerate((["in flight"], ["thread"])):
        log = tmp_path / f"log {number}"
        one = script(source, engine, str(log), *more)
        code = one.wait()
        assert code == expected, one.stderr
        assert one.stdout == "ready\n"
        assert one.stderr.count("Traceback") == bool(text)
        assert one.stderr.rstrip().rpartition("\n")[2].startswith(text)
        if how != "an exception":
            assert one.stderr == ""
        one.assert_gone()
        if how in ("falls off the end", "sys.exit", "an exception"):
            assert log.read_text().count("closed") == 4


# ------------------------------------------------------------------ SIGKILL at its worst

STUBBORN = """
    import ctypes, functools, multiprocessing, os, signal, subprocess, sys, time
    import agymc
    from tests.lifecycle.faulty import Probe

    def hold_the_interpreter_lock(env):
        ctypes.PyDLL(None).sleep(100)

    def block_all_signals(env):
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        time.sleep(100)

    def ignore_all_signals(env):
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        time.sleep(100)

    def start_processes(env):
        env.one = subprocess.Popen(["/bin/sleep", "100"])
        env.two = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        env.three = multiprocessing.get_context("fork").Process(target=time.sleep, args=[100])
        env.three.start()
        time.sleep(100)

    def stop(env):
        os.kill(os.getpid(), signal.SIGSTOP)

    def nest(env):
        env.inner = agymc.make_vec([Probe, Probe], engine="process", num_workers=2)
        env.inner.reset()
        env.inner.call("arm", "step", hold_the_interpreter_lock)
        env.inner.send([0, 0])
        time.sleep(100)

    hooks = [hold_the_interpreter_lock, block_all_signals, ignore_all_signals, start_processes,
             stop, nest]
    envs = agymc.make_vec(
        [functools.partial(Probe, index) for index in range(len(hooks))],
        engine=sys.argv[1], num_workers=len(hooks),
    )
    envs.reset()
    for index, hook in enumerate(hooks):
        envs.call("arm", "step", hook, env_ids=[index])
    envs.send([0] * len(hooks))
    time.sleep(1.5)
    if sys.argv[2] == "forked":  # a child that has all our descriptors, and outlives us
        if os.fork() == 0:
            time.sleep(4)
            os._exit(0)
    print(len(hooks), flush=True)
    time.sleep(50)
"""


@pytest.mark.parametrize("forked", ["alone", "forked"])
def test_sigkill_with_stubborn_envs(process_engine, forked, script):
    """Law 6: whatever the envs are doing, no worker and nothing that they started survives."""
    one = script(STUBBORN, process_engine, forked)
    count = int(one.read_line())
    assert len(one.alive()) >= 1 + count + 3 + 2
    one.signal(signal.SIGKILL)
    one.process.wait()
    one.assert_gone()


@pytest.mark.parametrize("engine", ["process", "process+thread"])
def test_close_with_stubborn_envs(engine, script):
    """The same, closed: killed by us, each with a warning."""
    source = STUBBORN.replace("time.sleep(50)", "envs.close(timeout=0.5)")
    one = script(source, engine, "alone")
    count = int(one.read_line())
    assert one.wait() == 0, one.stderr
    assert one.stderr.count("RuntimeWarning: agymc: the worker process of env ") == count
    one.assert_gone()
