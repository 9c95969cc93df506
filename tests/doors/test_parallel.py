"""`BatchEnv.parallel`: calls that overlap, tasks that go on, and no clock in any proof."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.doors.envs import Walk

import agymc

N = 12


@pytest.fixture
def envs() -> Iterator[agymc.BatchEnv]:
    """`parallel` does not depend on the engine."""
    with agymc.make(Walk, N, engine="serial") as envs:
        yield envs


# ---------------------------------------------------------------------- arguments


def test_columns_and_what_all_calls_have_in_common(envs):
    def function(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    columns = [list(range(N)), np.arange(N) * 2]
    for called in (function, coroutine):
        results = envs.parallel(called, columns, {"k": "abcdefghijkl"}, "all", x=1)
        assert results == [((i, 2 * i, "all"), {"k": "abcdefghijkl"[i], "x": 1}) for i in range(N)]
        assert envs.parallel(called) == [((), {})] * N
        assert envs.parallel(called, [envs.action_space]) == [
            ((space,), {}) for space in envs.action_space
        ]


def test_it_works_with_any_engine(engine):
    with agymc.make(Walk, 2, engine=engine) as envs:
        envs.reset()
        assert envs.parallel(lambda a, b: a + b, [[1, 2], [10, 20]]) == [11, 22]
        envs.step([0, 0])


@pytest.mark.parametrize(
    ("arguments", "kwarguments", "error", "text"),
    [
        ([[1, 2]], None, agymc.BatchLengthError, r"12 values, one per env, got 2, at arguments\[0"),
        ([[1] * N, [1] * 13], None, agymc.BatchLengthError, r"got 13, at arguments\[1\]"),
        ([1] * N, None, agymc.NotABatchError, r"12 values, one per env, got 1, at arguments\[0\]"),
        (5, None, agymc.NotABatchError, r"columns of 12 values each, got 5, at arguments"),
        ([set(range(N))], None, agymc.NotABatchError, r"per env, got \{0, 1.*at arguments\[0\]"),
        ((), {"a": [1]}, agymc.BatchLengthError, r"got 1, at kwarguments\['a'\]"),
        ((), [1], agymc.NotABatchError, r"dict from names to columns, got \[1\], at kwarguments"),
    ],
)  # fmt: skip
def test_wrong_columns_call_nothing(envs, arguments, kwarguments, error, text):
    called = []
    with pytest.raises(error, match=text):
        envs.parallel(lambda *a, **k: called.append(a), arguments, kwarguments)
    assert called == []


def test_other_wrong_arguments(envs):
    with pytest.raises(agymc.ConfigurationError, match="expected a function to call in parallel"):
        envs.parallel(None)
    with pytest.raises(agymc.ConfigurationError, match="each keyword once, got 'x' in kwarguments"):
        envs.parallel(print, [], {"x": [1] * N}, x=2)


# ---------------------------------------------------------------------- concurrency


def test_coroutines_are_awaited_all_at_once(envs):
    arrived = 0
    everybody = None

    async def meet(number: int) -> int:
        nonlocal arrived, everybody
        everybody = everybody or asyncio.Event()
        arrived += 1
        if arrived == N:
            everybody.set()
        await everybody.wait()  # nobody gets on before all have come
        return number

    assert envs.parallel(meet, [list(range(N))]) == list(range(N))


def test_plain_functions_overlap(envs):
    barrier = threading.Barrier(N)
    assert sorted(envs.parallel(barrier.wait)) == list(range(N))
    assert sorted(envs.parallel(barrier.wait)) == list(range(N))


def test_to_thread_overlaps_too(envs):
    """asyncio's own default is a few threads more than there are CPUs."""
    barrier = threading.Barrier(N)

    async def blocking() -> int:
        return await asyncio.to_thread(barrier.wait)

    assert sorted(envs.parallel(blocking)) == list(range(N))


class Callable:
    def __init__(self) -> None:
        self.loops: set[Any] = set()

    async def method(self, number: int) -> int:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return number

    async def __call__(self, number: int) -> int:
        return await self.method(number)


class Awaitable:
    def __init__(self, coroutine: Any) -> None:
        self.coroutine = coroutine

    def __await__(self) -> Any:
        return self.coroutine.__await__()


def test_whatever_can_be_awaited_is(envs):
    it = Callable()
    functions = [
        it.method,
        it,
        functools.partial(it.method),
        functools.partial(it),
        lambda number: it(number),
        lambda number: Awaitable(it(number)),
    ]
    for function in functions:
        assert envs.parallel(function, [list(range(N))]) == list(range(N))
    assert len(it.loops) == 1  # so they may share asyncio's locks, sessions and so on
    # A task belongs to the loop of the thread that made it.
    it.loops.clear()
    made = envs.parallel(lambda number: asyncio.create_task(it(number)), [list(range(N))])
    assert made == list(range(N))
    assert len(it.loops) == N


def test_the_callers_context_is_seen(envs):
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    variable.set(7)

    async def coroutine() -> int:
        return variable.get()

    assert envs.parallel(variable.get) == [7] * N
    assert envs.parallel(coroutine) == [7] * N


def test_inside_of_a_running_loop(envs):
    """As in a notebook, or in somebody's `asyncio.run`."""

    async def main() -> Any:
        async def coroutine(number: int) -> int:
            await asyncio.sleep(0)
            return number

        numbers = [list(range(N))]
        return (
            envs.parallel(coroutine, numbers),
            envs.parallel(lambda n: n, numbers),
            asyncio.get_running_loop().is_running(),
        )

    assert asyncio.run(main()) == (list(range(N)), list(range(N)), True)


def test_a_call_within_a_call_would_wait_for_ever(envs):
    async def coroutine() -> Any:
        return envs.parallel(print)

    text = r"parallel\(\) was called inside of a call of parallel\(\) of the same environments"
    with pytest.raises(agymc.BusyError, match=text):
        envs.parallel(lambda: envs.parallel(print))
    with pytest.raises(agymc.BusyError, match=text):
        envs.parallel(coroutine)
    with agymc.make(Walk, 2, engine="serial") as others:
        assert envs.parallel(lambda: others.num_envs) == [2] * N


# ---------------------------------------------------------------------- tasks in the background


def test_tasks_do_not_block_and_go_on_until_they_are_done(envs):
    ended: list[int] = []
    all_ended = threading.Event()
    go_on = threading.Event()

    async def later(number: int) -> None:
        while not go_on.is_set():
            await asyncio.sleep(0.001)
        ended.append(number)
        if len(ended) == N:
            all_ended.set()

    def function(number: int) -> None:
        asyncio.create_task(later(number))  # noqa: RUF006 - it is kept

    envs.parallel(function, [list(range(N))])
    assert ended == []  # `parallel` has returned, and no task has ended, as none could
    gc.collect()  # nobody but the loop holds the tasks
    envs.reset()
    envs.step([0] * N)
    go_on.set()
    assert all_ended.wait(30)
    assert sorted(ended) == list(range(N))


def test_tasks_live_on_between_calls(envs):
    async def wait_for(future: Any) -> None:
        results.append(await future)

    results: list[int] = []
    futures: dict[Any, Any] = {}

    def begin(number: int) -> None:
        loop = asyncio.get_running_loop()
        futures[number] = loop.create_future()
        asyncio.create_task(wait_for(futures[number]))  # noqa: RUF006

    def end(number: int) -> Any:
        futures[number].set_result(number)  # in the same thread, on the same loop, as `begin`
        return asyncio.sleep(0)

    envs.parallel(begin, [list(range(N))])
    envs.parallel(end, [list(range(N))])
    envs.parallel(lambda: None)  # each loop has had its turn
    envs.parallel(lambda: None)
    assert sorted(results) == list(range(N))


def test_close_cancels_what_still_runs():
    cancelled: list[str] = []

    async def for_ever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # it may take its time for cleaning up
            cancelled.append(name)
            raise

    def function() -> None:
        asyncio.create_task(for_ever("of a function"))  # noqa: RUF006
        return asyncio.sleep(0)  # so that it has begun

    async def coroutine() -> None:
        asyncio.create_task(for_ever("of a coroutine"))  # noqa: RUF006
        await asyncio.sleep(0)

    with agymc.make(Walk, 2, engine="serial") as envs:
        envs.parallel(function)
        envs.parallel(lambda: None)
        envs.parallel(coroutine)
        assert cancelled == []
    assert sorted(cancelled) == ["of a coroutine"] * 2 + ["of a function"] * 2
    assert not [t for t in threading.enumerate() if t.name.startswith("agymc")]


def test_close_ends_threads_of_to_thread(envs):
    async def blocking() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    names = envs.parallel(blocking)
    assert all(name.startswith("agymc-parallel") for name in names)
    envs.close()
    assert not {t.name for t in threading.enumerate()} & set(names)


def test_close_does_not_wait_for_ever_for_a_blocked_thread():
    blocked, go_on = threading.Event(), threading.Event()

    async def block() -> None:
        blocked.set()
        go_on.wait()

    def function(number: int) -> None:
        if number == 0:
            asyncio.create_task(block())  # noqa: RUF006 - it blocks its loop

    envs = agymc.make(Walk, 3, engine="serial")
    envs.parallel(function, [[0, 1, 2]])
    assert blocked.wait(30)
    with pytest.warns(RuntimeWarning, match=r"1 calls of parallel\(\) did not end in time"):
        envs.close(timeout=0.05)
    go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("agymc"):
            thread.join(30)


# ---------------------------------------------------------------------- exceptions


def test_the_first_exception_is_raised_when_all_calls_have_ended(envs):
    ended: list[int] = []
    barrier = threading.Barrier(N - 2)

    def function(number: int) -> None:
        if number in (3, 5):
            raise ValueError(f"no {number}")
        barrier.wait()  # the others can't have ended before these have raised
        ended.append(number)

    with pytest.raises(ValueError, match="no 3") as caught:
        envs.parallel(function, [list(range(N))])
    assert caught.value.__notes__ == ["raised by call 3 of parallel(); 2 of 12 calls raised"]
    assert sorted(ended) == [0, 1, 2, 4, 6, 7, 8, 9, 10, 11]
    frames = [frame.name for frame in caught.traceback]
    assert frames[-1] == "function"  # its own traceback
    assert envs.parallel(lambda: 1) == [1] * N


def test_exceptions_of_coroutines(envs):
    ended: list[int] = []

    async def coroutine(number: int) -> None:
        if number == 1:
            raise LookupError("nothing")
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append(number)

    with pytest.raises(LookupError) as caught:
        envs.parallel(coroutine, [list(range(N))])
    assert caught.value.__notes__ == ["raised by call 1 of parallel()"]
    assert len(ended) == N - 1
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        envs.parallel(coroutine)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        envs.parallel(lambda number: number)


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration]
)
def test_no_exception_ends_a_loop(envs, kind):
    def function() -> None:
        raise kind

    async def coroutine() -> None:
        raise kind

    def background() -> None:
        asyncio.get_running_loop().call_soon(function)

    for called in (function, coroutine):
        expected = RuntimeError if (kind, called) == (StopIteration, coroutine) else kind
        with pytest.raises(expected):  # a coroutine can't raise StopIteration
            envs.parallel(called)
        assert envs.parallel(lambda: 1) == [1] * N
    if kind in (SystemExit, KeyboardInterrupt):
        envs.parallel(background)
        assert envs.parallel(lambda: 1) == [1] * N
    assert envs.parallel(coroutine_of_one) == [1] * N


async def coroutine_of_one() -> int:
    return 1


def test_ctrl_c_cancels_coroutines(envs):
    """The caller is interrupted while it waits: what it waits for is given up."""
    main = threading.main_thread().ident
    heard = threading.Event()
    cancelled = threading.Semaphore(0)

    def on_ctrl_c(signum: int, frame: Any) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    async def coroutine(number: int) -> None:
        try:
            if number == N - 1:  # all others have begun
                # One that comes just before the caller begins to wait is heard with the next.
                while not heard.is_set():
                    signal.pthread_kill(main, signal.SIGINT)
                    await asyncio.sleep(0.05)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.release()
            raise

    before = signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        with pytest.raises(KeyboardInterrupt):
            envs.parallel(coroutine, [list(range(N))])
    finally:
        signal.signal(signal.SIGINT, before)
    for _ in range(N):
        assert cancelled.acquire(timeout=30)
    assert envs.parallel(lambda: 1) == [1] * N


# ---------------------------------------------------------------------- inside


def test_sockets_work_on_the_loops_of_plain_functions(envs):
    """The loops have no descriptor until they need one."""

    def function(number: int) -> Any:
        async def echo() -> bytes:
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=ours)
            with theirs:
                theirs.setblocking(False)
                writer.write(bytes([number]))
                data = await asyncio.get_running_loop().sock_recv(theirs, 10)
                await asyncio.get_running_loop().sock_sendall(theirs, data * 2)
                back = await reader.readexactly(2)
            writer.close()
            await writer.wait_closed()
            return back

        return asyncio.create_task(echo())

    for _ in range(3):
        results = envs.parallel(function, [list(range(N))])
        assert results == [bytes([n, n]) for n in range(N)]
        assert envs.parallel(lambda: 1) == [1] * N  # woken from another thread, now by a bell


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_512_at_once_below_the_usual_limit_of_descriptors():
    result = run(
        """
        import asyncio, os, resource, threading
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        import agymc
        envs = agymc.make("CartPole-v1", 512, engine="serial")
        before = len(os.listdir("/dev/fd"))
        barrier = threading.Barrier(512)
        assert sorted(envs.parallel(barrier.wait)) == list(range(512))
        async def coroutine(n): return n
        assert envs.parallel(coroutine, [range(512)]) == list(range(512))
        def function(): asyncio.create_task(asyncio.sleep(1000))
        envs.parallel(function)
        assert len(os.listdir("/dev/fd")) == before
        envs.close()
        assert threading.active_count() == 1, threading.enumerate()
        print("done")
        """
    )
    assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)


def test_calls_share_threads_if_the_system_has_no_more(envs, monkeypatch):
    real = threading.Thread.start
    started: list[str] = []

    def start(thread: threading.Thread) -> None:
        if len(started) == 5:
            raise RuntimeError("can't start new thread")
        started.append(thread.name)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    threads = envs.parallel(lambda number: (number, threading.get_ident()), [list(range(N))])
    assert [number for number, _ in threads] == list(range(N))
    assert len({thread for _, thread in threads}) == 5
    barrier = threading.Barrier(5)
    envs.parallel(lambda n: n < 5 and barrier.wait(), [list(range(N))])


def test_it_is_quiet_at_the_interpreters_exit():
    """Without `close`, with tasks that run and a thread that is blocked for ever."""
    result = run(
        """
        import asyncio, threading
        import agymc
        envs = agymc.make("CartPole-v1", 3, engine="serial")
        async def coroutine(): asyncio.create_task(asyncio.sleep(1000))
        def function(): asyncio.create_task(asyncio.sleep(1000))
        envs.parallel(coroutine)
        envs.parallel(function)
        print("done")
        """
    )
    assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)


def test_threads_are_kept_for_later_calls(envs):
    first = envs.parallel(threading.get_ident)
    assert envs.parallel(threading.get_ident) == first
    assert len(set(first)) == N
    names = envs.parallel(lambda: threading.current_thread().name)
    assert names == [f"agymc-parallel-{i}" for i in range(N)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.close()
