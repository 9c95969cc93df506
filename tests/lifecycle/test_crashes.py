"""Workers that die, and envs that do to their process what no env should."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import time

import numpy as np
import psutil
import pytest
from tests.lifecycle.faulty import DEATHS, Probe, exit_3, kill_self
from tests.lifecycle.helpers import eventually, probes

import agymc
from agymc import WorkerDiedError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def _kill_worker(envs, index):
    os.kill(envs.call("pid", env_ids=[index])[0], signal.SIGKILL)


def _check_deaths(error, operation, engine, number=0):
    """The error names a worker of one env per way to die, in order."""
    errors = [error, *error.others]
    assert len(errors) == len(DEATHS)
    for index, (one, (_, text)) in enumerate(zip(errors, DEATHS.values(), strict=True)):
        assert isinstance(one, WorkerDiedError)
        assert str(one).removesuffix("; envs 1, 2, 3 and 4 failed too, see `others`") == (
            f"the worker process of env {index} died ({text}) in {operation} (engine '{engine}'). "
            "Its env is gone; the others can go on"
        )
        assert one.env_ids == (index,)
        code, _, name = text.rpartition(" ")
        assert (one.exit_code, one.signal) == (
            (int(name), None) if code == "exit code" else (None, name)
        )


@pytest.mark.parametrize("operation", ["step", "reset", "call"])
def test_dying(process_engine, operation):
    count = len(DEATHS) + 1
    with agymc.make_vec(probes(count), engine=process_engine, num_workers=count) as envs:
        envs.reset(seed=1)
        for index, (death, _) in enumerate(DEATHS.values()):
            envs.call("arm", operation, death, env_ids=[index])
        with pytest.raises(WorkerDiedError) as caught:
            match operation:
                case "step":
                    envs.step([2] * count)
                case "reset":
                    envs.reset()
                case "call":
                    envs.call("act")
        _check_deaths(caught.value, operation, process_engine)
        last = count - 1
        if operation != "call":
            batch = envs.recv()
            assert batch.env_ids.tolist() == [last]
            assert batch.rewards.tolist() == [2.0 if operation == "step" else 0.0]
        # The dead stay dead, and say so at once; the others go on.
        with pytest.raises(WorkerDiedError, match=r"env 0 died \(exit code 3\) in "):
            envs.step([0] * count)
        with pytest.raises(WorkerDiedError, match=r"env 2 died \(killed by SIGKILL\)"):
            envs.send([0], [2])
        envs.send([3], [last])
        assert envs.recv().rewards.tolist() == [3.0]
        assert envs.call("act", 5, env_ids=[last]) == ((5,),)


def test_dying_in_construction(process_engine, tmp_path):
    count = len(DEATHS) + 1
    log = tmp_path / "log"
    env_fns = [
        functools.partial(Probe, index, log, construct=death)
        for index, (death, _) in enumerate(DEATHS.values())
    ]
    env_fns.append(functools.partial(Probe, count - 1, log))
    with pytest.raises(WorkerDiedError) as caught:
        agymc.make_vec(env_fns, engine=process_engine, num_workers=count)
    _check_deaths(caught.value, "construction", process_engine)
    assert log.read_text().splitlines() == [f"built {count - 1}", f"closed {count - 1}"]


def test_dying_in_close(process_engine, tmp_path):
    log = tmp_path / "log"
    envs = agymc.make_vec(probes(4, log=log), engine=process_engine, num_workers=2)
    envs.call("arm", "close", exit_3, env_ids=[0])
    with pytest.warns(RuntimeWarning) as caught:
        envs.close()
    assert [str(warning.message) for warning in caught] == [
        "agymc: the worker process of envs 0 to 1 died (exit code 3) before its envs were closed"
    ]
    assert "closed 2" in log.read_text()
    assert "closed 3" in log.read_text()


def test_dying_with_siblings(process_engine):
    """Envs that lived together die together and each is named; those of others see nothing."""
    options = {"engine": process_engine, "num_workers": 2}
    with agymc.make_vec(probes(4), **options) as envs, agymc.make_vec(probes(4), **options) as twin:
        envs.reset(seed=9)
        expected, *_ = twin.reset(seed=9)
        envs.call("arm", "step", kill_self, env_ids=[1])
        with pytest.raises(WorkerDiedError) as caught:
            envs.step([1, 1, 1, 1])
        assert str(caught.value) == (
            "the worker process of envs 0 and 1 died (killed by SIGKILL) in step "
            f"(engine '{process_engine}'). Its envs are gone; the others can go on"
        )
        assert caught.value.env_ids == (0, 1)
        assert caught.value.others == ()
        expected, *_ = twin.step([1, 1, 1, 1])
        batch = envs.recv()
        order = np.argsort(batch.env_ids)
        # In threads env 0 may have ended its step before the process died: that result stands.
        told = batch.env_ids[order].tolist()
        assert told[-2:] == [2, 3]
        assert told[:-2] == [] or (told[:-2] == [0] and process_engine != "process")
        np.testing.assert_array_equal(batch.observations[order], expected[told])
        for _ in range(3):
            expected, *_ = twin.step([2, 2, 2, 2])
            envs.send([2, 2], [2, 3])
            batch = envs.recv()
            np.testing.assert_array_equal(
                batch.observations[np.argsort(batch.env_ids)], expected[2:]
            )


def test_dying_while_idle(process_engine):
    with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
        envs.reset()
        _kill_worker(envs, 0)
        with pytest.raises(WorkerDiedError, match=r"env 0 died \(killed by SIGKILL\) in step"):
            envs.step([1, 1])
        assert envs.recv().env_ids.tolist() == [1]


def test_dying_while_idle_and_closed(process_engine):
    envs = agymc.make_vec(probes(2), engine=process_engine, num_workers=1)
    _kill_worker(envs, 0)
    with pytest.warns(RuntimeWarning, match=r"envs 0 to 1 died \(killed by SIGKILL\) before its"):
        envs.close()


def test_results_that_were_there_before_the_death_arrive(process_engine):
    """What a worker had sent before it died is received, however large."""
    with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
        envs.reset()
        big = np.arange(3_000_000)
        envs.call("arm", "call", functools.partial(_give_and_die_later, big))
        results = envs.call("act")
        for result in results:
            np.testing.assert_array_equal(result, big)
        workers = [psutil.Process(worker.pid) for worker in envs._pool.workers]
        assert eventually(lambda: all(w.status() == psutil.STATUS_ZOMBIE for w in workers))
        with pytest.raises(WorkerDiedError, match="exit code 4"):
            envs.step([0, 0])


def _give_and_die_later(value, _env):
    import threading

    threading.Timer(0.3, os._exit, [4]).start()
    return value


def test_a_stopped_worker_is_no_dead_one(process_engine):
    """Law 3: the wait is bounded, and when the worker goes on, nothing was lost."""
    with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
        envs.reset()
        (pid,) = envs.call("pid", env_ids=[1])
        os.kill(pid, signal.SIGSTOP)
        envs.send([1, 2])
        with pytest.raises(agymc.RecvTimeoutError, match=r"waiting for env 1\. Nothing is lost"):
            envs.recv(timeout=0.3)
        assert envs.recv(min_ready=1).env_ids.tolist() == [0]
        os.kill(pid, signal.SIGCONT)
        assert envs.recv().rewards.tolist() == [2.0]


def test_a_stopped_worker_is_killed_by_close(process_engine):
    envs = agymc.make_vec(probes(2), engine=process_engine, num_workers=2)
    (pid,) = envs.call("pid", env_ids=[1])
    os.kill(pid, signal.SIGSTOP)
    with pytest.warns(RuntimeWarning) as caught:
        envs.close(timeout=0.3)
    assert [str(warning.message) for warning in caught] == [
        f"agymc: the worker process of env 1 (pid {pid}) did not close in time and was killed"
    ]


# ------------------------------------------------------------------ forks and descriptors


def _fork_and_die(path, new_session, _env):
    if os.fork() == 0:
        if new_session:
            os.setsid()
        path.with_suffix(".new").write_text(str(os.getpid()))
        path.with_suffix(".new").rename(path)
        time.sleep(50)
        os._exit(0)
    while not path.exists():
        time.sleep(0.01)
    kill_self(None)


@pytest.mark.parametrize("new_session", [False, True])
def test_a_forked_child_holds_the_socket_of_a_dead_worker(process_engine, new_session, tmp_path):
    path = tmp_path / "pid"
    with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
        envs.reset()
        fork = functools.partial(_fork_and_die, path, new_session)
        envs.call("arm", "step", fork, env_ids=[0])
        with pytest.raises(WorkerDiedError, match="killed by SIGKILL"):
            envs.step([0, 0])
        pid = int(path.read_text())
        if new_session:  # it has left our reach on purpose
            os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: _is_gone(pid))
        assert envs.recv().env_ids.tolist() == [1]


def _is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _close_descriptors(_env):
    os.closerange(3, 1000)
    time.sleep(50)


def test_closing_all_descriptors(process_engine):
    with agymc.make_vec(probes(2), engine=process_engine, num_workers=2) as envs:
        envs.reset()
        envs.call("arm", "step", _close_descriptors, env_ids=[0])
        with pytest.raises(WorkerDiedError) as caught:
            envs.step([0, 0])
        # Killed by us, or by its own surprise: whoever comes first.
        assert re.search(
            r"env 0 died \((it closed its connection and was killed|exit code 1)\) in step",
            str(caught.value),
        )
        assert envs.recv().env_ids.tolist() == [1]


def test_a_worker_cannot_leave_its_process_group(process_engine):
    """So whatever it has started can be ended with it."""
    with agymc.make_vec(probes(1), engine=process_engine) as envs:
        envs.call("arm", "call", _try_to_leave)
        ((answers, group, session),) = envs.call("act")
        assert answers == ["PermissionError"] * 3
        assert group == session == envs.call("pid")[0]


def _try_to_leave(_env):
    answers = []
    for leave in (os.setsid, os.setpgrp, lambda: os.setpgid(0, os.getppid())):
        try:
            leave()
            answers.append("left")
        except OSError as error:
            answers.append(type(error).__name__)
    return answers, os.getpgrp(), os.getsid(0)


# ------------------------------------------------------------------ rude envs

RUDE = """
    import ctypes, faulthandler, gc, locale, multiprocessing, os, signal, socket, subprocess, sys
    import threading, time, warnings
    import numpy as np
    import agymc
    from tests.lifecycle.faulty import Probe

    class Lazy:  # a lock that travels: each process has its own
        def __init__(self):
            self.lock = threading.Lock()
        def __reduce__(self):
            return Lazy, ()
        def __enter__(self):
            self.lock.acquire()
        def __exit__(self, *error):
            self.lock.release()

    one_at_a_time = Lazy()

    def never_mind(number, frame):
        pass

    def sleep():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(1000)

    class Rude(Probe):
        '''Does to its process whatever it likes.'''

        def __init__(self, index):
            super().__init__(index)
            for name in ("SIGINT", "SIGTERM", "SIGCHLD", "SIGIO", "SIGALRM", "SIGPIPE", "SIGHUP"):
                if threading.current_thread() is threading.main_thread():
                    signal.signal(getattr(signal, name), never_mind)
            if threading.current_thread() is threading.main_thread():
                signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            os.chdir("/")
            os.environ.clear()
            os.umask(0o077)
            socket.setdefaulttimeout(1e-6)
            sys.setrecursionlimit(5000)
            sys.path.clear()
            sys.argv[:] = ["rude"]
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)  # of the sleeper
            np.seterr(all="raise")
            gc.disable()
            faulthandler.enable()
            assert sys.stdin.read() == ""
            assert os.read(0, 10) == b""
            threading.Thread(target=time.sleep, args=[1000], daemon=True).start()
            with one_at_a_time:  # a child forked while another thread is in Popen hangs that one
                self.sleeper = subprocess.Popen(["/bin/sleep", "1000"])
                context = multiprocessing.get_context("fork")
                self.child = context.Process(target=sleep, daemon=True)
                self.child.start()

        def step(self, action):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGIO})
            print("x" * 1_000_000)
            os.write(1, bytes(range(256)) * 100)
            os.write(2, bytes(range(256)) * 100)
            if self.count == 3 and threading.current_thread() is threading.main_thread():
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGIO)
            if self.count == 5 and threading.current_thread() is threading.main_thread():
                sys.stdout.close()
                os.close(1)
                os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
                sys.stdout = open("/dev/null", "w")
            return super().step(action)

    if __name__ == "__main__":
        engine = sys.argv[1]
        envs = agymc.make_vec([lambda i=i: Rude(i) for i in range(4)], engine=engine, num_workers=2)
        twin = agymc.make_vec([lambda i=i: Probe(i) for i in range(4)], engine="serial")
        a, _ = envs.reset(seed=1)
        b, _ = twin.reset(seed=1)
        assert (a == b).all()
        for step in range(10):
            a, *_ = envs.step([step % 4] * 4)
            b, *_ = twin.step([step % 4] * 4)
            assert (a == b).all()
        envs.close()
        print("survived", file=sys.stderr)
"""


def test_rude_envs(process_engine, script):
    """No signal, print, timeout or child of an env gets between it and the pool."""
    rude = script(RUDE, process_engine, text=False)
    code = rude.wait()
    assert code == 0, rude.stderr[-2000:]
    assert rude.stderr.rstrip().endswith(b"survived")
    assert b"Traceback" not in rude.stderr
    assert b"Warning" not in rude.stderr
    rude.assert_gone()


LINGERING = """
    import multiprocessing, subprocess, sys, threading, time
    import agymc
    from tests.lifecycle.faulty import Probe

    class Lingering(Probe):
        def __init__(self, how):
            super().__init__()
            if how == "thread":
                threading.Thread(target=time.sleep, args=[1000], daemon=False).start()
            elif how == "process":
                self.child = multiprocessing.get_context("fork").Process(
                    target=time.sleep, args=[1000]
                )
                self.child.start()

    envs = agymc.make_vec([lambda h=h: Lingering(h) for h in ("thread", "process", "none")],
                          engine=sys.argv[1], num_workers=3)
    envs.reset()
    envs.close(timeout=1.0)
"""


def test_envs_that_leave_threads_and_processes_behind(process_engine, script):
    """They are ended, and the user is told why it took so long."""
    lingering = script(LINGERING, process_engine)
    lingering.succeed()
    for index in (0, 1):
        assert f"RuntimeWarning: agymc: the worker process of env {index} (pid " in lingering.stderr
    reason = "closed its envs and did not end: a thread or process that they had started went on"
    assert lingering.stderr.count(reason) == 2
    assert "of env 2" not in lingering.stderr
