"""How envs come to be: concurrently, from any kind of program, with children of their own."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pytest
from tests.lifecycle.faulty import Probe

import agymc


class Together(Probe):
    """Is built when as many are being built."""

    def __init__(self, index: int, folder: Path, count: int) -> None:
        super().__init__(index)
        (folder / str(index)).touch()
        while len(list(folder.iterdir())) < count:
            time.sleep(0.01)


def test_case_28_built_at_the_same_time(engine, tmp_path):
    where, how = agymc.ENGINES[engine]
    if (where, how) == ("local", "serial"):
        pytest.skip("there is one thread")
    count = 2 if how == "serial" else 6
    folder = tmp_path / "here"
    folder.mkdir()
    options = {"num_workers": 2} if where == "process" else {}
    env_fns = [partial(Together, index, folder, count) for index in range(count)]
    with agymc.make_vec(env_fns, engine=engine, **options) as envs:
        envs.reset()


UNGUARDED = """
    import sys
    import agymc
    import gymnasium
    import numpy as np
    from gymnasium.spaces import Box, Discrete

    print("top of the script")

    class Mine(gymnasium.Env):
        observation_space = Box(0, 9, (), int)
        action_space = Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.count = 0
            return np.array(0), {"where": __name__}

        def step(self, action):
            self.count += helper(action)
            return np.array(self.count), 0.0, False, False, {}

    def helper(action):
        return int(action) + OFFSET

    OFFSET = 1
    gymnasium.register("Mine-v0", Mine)
    for source in (Mine, "Mine-v0"):
        envs = agymc.make_vec(source, 3, engine=sys.argv[-1])
        print(envs.reset()[1]["where"].tolist())
        print(envs.step([0, 1, 1])[0].tolist())
        envs.close()
"""


@pytest.mark.parametrize("how", ["file", "-c", "-"])
def test_case_29_a_program_without_a_main_guard(engine, how, script):
    one = script(UNGUARDED, engine, how=how)
    results = [str(["__main__"] * 3), "[1, 2, 2]"] * 2
    assert one.succeed().splitlines() == ["top of the script", *results]
    assert one.stderr == ""


def test_case_30_a_function_that_holds_a_lock(engine):
    lock = threading.Lock()
    tools = {"locks": [lock]}

    def make():
        assert tools["locks"]
        return Probe()

    if agymc.ENGINES[engine][0] == "local":
        agymc.make_vec([make, make], engine=engine).close()
        return
    with pytest.raises(agymc.PickleError) as caught:
        agymc.make_vec([Probe, make], engine=engine)
    text = str(caught.value)
    assert text.startswith("the function that makes env 1 can't be sent to a worker process: ")
    assert "env_fns[1] -> variable 'tools'['locks'][0] is a _thread.lock" in text
    assert text.endswith("Make that object inside of the function, or use engine='thread'")


WITH_CHILDREN = """
    import concurrent.futures, multiprocessing, subprocess, sys
    import agymc
    from tests.lifecycle.faulty import Probe

    def square(x):
        return x * x

    class Parent(Probe):
        def step(self, action):
            answers = []
            for method in multiprocessing.get_all_start_methods():
                context = multiprocessing.get_context(method)
                with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                    answers.append(pool.submit(abs, -3).result())
            answers.append(subprocess.run(["true"]).returncode)
            self.left_running = subprocess.Popen(["sleep", "1000"])
            result = super().step(action)
            return *result[:4], {"answers": answers}

        def close(self):
            self.left_running.poll()

    if __name__ == "__main__":  # multiprocessing itself wants one, for its own children
        with agymc.make_vec([Parent, Parent], engine=sys.argv[1], num_workers=2) as envs:
            envs.reset()
            print(envs.step([0, 0])[4]["answers"].tolist())
"""


def test_case_31_envs_that_start_processes(process_engine, script):
    """By every method of multiprocessing; those that go on end with the pool."""
    # multiprocessing has sockets there, whose paths may not be long.
    environment = {"TMPDIR": "/tmp"}
    one = script(WITH_CHILDREN, process_engine, flags=("-W", "ignore"), env=environment)
    assert one.succeed() == "[[3, 3, 3, 0], [3, 3, 3, 0]]\n"


ON_ONE_CPU = """
    import os, sys
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import agymc
    from tests.lifecycle.faulty import Probe

    with agymc.make_vec(Probe, 5, engine=sys.argv[1]) as envs:
        print(len(set(envs.call("pid"))))
"""


def test_case_32_as_many_workers_as_cpus(process_engine, script):
    """See tests/unit/test_cpus.py for the limits of cgroups."""
    assert script(ON_ONE_CPU, process_engine).succeed() == "1\n"


def test_never_more_workers_than_envs(process_engine):
    with agymc.make_vec(Probe, 2, engine=process_engine, num_workers=5) as envs:
        assert len(set(envs.call("pid"))) == 2
