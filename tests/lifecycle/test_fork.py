"""A process that forks while it has envs: they stay its own."""

from __future__ import annotations

from tests.lifecycle.helpers import eventually

FORKING = """
    import gc, os, signal, sys
    import agymc
    from tests.lifecycle.faulty import Probe

    engine, door = sys.argv[1:]
    make = agymc.make if door == "make" else agymc.make_vec
    envs = make([Probe, Probe], engine=engine)
    envs.reset()
    envs.step([0, 0])
    parent = os.getpid()
    child = os.fork()
    if not child:
        calls = [envs.reset, lambda: envs.step([0, 0])]
        if door == "make_vec":
            calls += [lambda: envs.send([0, 0]), envs.recv, lambda: envs.call("pid")]
        for call in calls:
            try:
                call()
            except agymc.ClosedError as error:
                expected = (
                    f"these environments belong to process {parent}, and this is process "
                    f"{os.getpid()}, forked from it: make new ones here"
                )
                assert str(error) == expected, error
            else:
                raise AssertionError("the parent's envs were used")
        envs.close()
        del envs
        gc.collect()
        with make([Probe, Probe], engine=engine) as own:  # it may have its own
            own.reset()
            own.step([0, 0])
        print("child", flush=True)
        sys.exit(0)  # through the interpreter's end, which must not close the parent's envs
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    envs.step([1, 1])
    envs.reset()
    envs.close()
    print("parent")
"""


def test_the_child_leaves_the_envs_alone(engine, script):
    for door in ("make", "make_vec"):
        one = script(FORKING, engine, door, flags=("-W", "ignore::DeprecationWarning"))
        assert one.succeed() == "child\nparent\n"
        assert one.stderr == ""


OUTLIVED = """
    import os, sys, time
    import agymc
    from tests.lifecycle.faulty import Probe

    envs = agymc.make_vec([Probe, Probe], engine=sys.argv[1])
    envs.reset()
    print(*set(envs.call("pid")), flush=True)
    if not os.fork():
        time.sleep(1000)
    os._exit(0)
"""


def test_a_child_that_outlives_its_parent_keeps_no_worker_alive(process_engine, script):
    """It has inherited all descriptors, the workers' lifelines among them."""
    one = script(OUTLIVED, process_engine, flags=("-W", "ignore"))
    workers = one.read_line().split()
    assert workers
    one.process.wait()
    assert eventually(lambda: not any(line.split(":")[0] in workers for line in one.alive()))
    assert len(one.alive()) == 1, "the sleeping child should be all there is"
