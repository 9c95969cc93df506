"""`BatchEnv.parallel`: one call per env, all at the same time.

A coroutine function is awaited on one event loop in a background thread, shared by all calls. A
plain function gets a thread per call, and that thread runs an event loop of its own whose callback
the function is. So it may block, for the others have their own threads, and
``asyncio.create_task`` inside it works: the task runs on that loop when the function has returned,
and goes on until it is done or `close`.

What a plain function returns is awaited if it can be: a coroutine (``lambda x: fetch(x)``) on the
shared loop, as if the coroutine function itself had been given; a task or future, which belongs to
the loop that made it, there.

Guarantees:

- `Loops.run` returns, or raises, when every call has ended, whatever some of them raised. Only an
  exception in the waiting thread itself (Ctrl-C) ends it earlier; coroutines are cancelled then,
  plain functions can't be.
- Nothing but `close` ends a loop: not ``SystemExit`` in a call, not one in a background task.
- The threads are daemons: one that a function blocks for ever does not keep the interpreter alive.
- An idle loop holds no file descriptor, so that hundreds fit below the usual limit of 1024. Its
  thread sleeps on a lock until it registers its first descriptor, see `_Sleep`.
- There are as many threads as calls at once, unless the system refuses to start so many. Then calls
  share threads, and those that share one run one after the other.

Who touches what: `Loops.run` and `Loops.close` belong to one thread at a time. The loops' threads
touch only their own `_LoopThread`, the `_Calls` that they were given, and `Loops.shared`, whose
making is locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import selectors
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from agymc.bells import Bell
from agymc.errors import (
    BatchLengthError,
    BusyError,
    ClosedError,
    ConfigurationError,
    NotABatchError,
)

__all__ = ["Loops"]

_Function = Callable[..., Any]
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class _Sleep(selectors.BaseSelector):
    """Waits for descriptors, and for `wake`, which needs none as long as there are no others.

    The lock is held by nobody in particular: it is unlocked exactly while a wake-up is pending.
    `wake` unlocks it and *then* looks for a bell; the loop's thread makes the bell and *then*, in
    its next `select`, looks at the lock. Whichever comes second sees the other's write, so that no
    wake-up is missed.
    """

    def __init__(self) -> None:
        # Poll instead of epoll where possible: it needs no descriptor of its own.
        self._inner: selectors.BaseSelector = getattr(
            selectors, "PollSelector", selectors.DefaultSelector
        )()
        self._pending = threading.Lock()
        self._pending.acquire()
        self._bell: Bell | None = None

    def wake(self) -> None:
        """Let the running `select`, or the next one, return. Any thread may call it."""
        try:
            self._pending.release()
        except RuntimeError:
            pass  # a wake-up is pending already
        bell = self._bell
        if bell is not None:
            bell.ring()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        pending, bell = self._pending, self._bell
        if bell is None:
            if timeout is None:
                pending.acquire()
            elif timeout <= 0:
                pending.acquire(blocking=False)
            else:
                pending.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
            return []
        if pending.acquire(blocking=False):
            timeout = 0
        events = self._inner.select(timeout)
        bell.silence()
        return [event for event in events if event[0].fd != bell.fileno()]

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._bell is None:
            bell = Bell()
            self._inner.register(bell.fileno(), selectors.EVENT_READ)
            self._bell = bell
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()
        if self._bell is not None:
            self._bell.close()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that is woken through its selector instead of through a pair of sockets.

    These three methods are where asyncio's selector loops keep that pair, since Python 3.4.
    """

    def __init__(self) -> None:
        self._sleep = _Sleep()
        super().__init__(self._sleep)

    def _make_self_pipe(self) -> None:
        pass

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        self._sleep.wake()


class _LoopThread:
    """A daemon thread that runs an event loop until it is told to stop.

    Args:
        name: The thread's.
        executor_threads: How many threads ``asyncio.to_thread`` may have on this loop; asyncio's
            own default is a few more than there are CPUs.

    Raises:
        RuntimeError: The system starts no more threads.
    """

    def __init__(self, name: str, executor_threads: int) -> None:
        self._stopping = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = _Loop()
        self._loop.set_task_factory(self._make_task)
        # It starts its threads only when they are needed.
        self._executor = ThreadPoolExecutor(executor_threads, thread_name_prefix=f"{name}-to")
        self._loop.set_default_executor(self._executor)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._loop.close()
            raise

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        # A loop by itself holds tasks only weakly; these go on until they are done.
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            while not self._stopping:
                try:
                    loop.run_forever()
                except (KeyboardInterrupt, SystemExit):
                    pass  # of a background task; in a thread they end nothing but what raised them
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
            loop.run_until_complete(loop.shutdown_asyncgens())
            self._executor.shutdown(cancel_futures=True)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this loop."""
        return threading.current_thread() is self._thread

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        """Call ``function`` in the thread, inside of the running loop."""
        self._loop.call_soon_threadsafe(function, *args)

    def start(self, awaitable: Any, outcomes: _Calls, index: int) -> None:
        """Await one call's result in a task. Only called inside of the running loop."""
        outcomes.tasks.append(self._loop.create_task(_outcome_of(awaitable, outcomes, index)))

    def stop(self) -> None:
        """Ask the loop to end its tasks and itself."""
        self._stopping = True
        with contextlib.suppress(RuntimeError, OSError):  # it is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, deadline: float) -> bool:
        """Wait for the thread; False when it did not end in time."""
        if not self.is_current:  # it is, when the last reference was dropped there
            self._thread.join(max(0.0, deadline - perf_counter()))
        return not self._thread.is_alive()


class _Calls:
    """The outcomes of the calls of one `parallel`, noted by many threads, awaited by one."""

    def __init__(self, count: int) -> None:
        self._values: list[Any] = [None] * count
        self._errors: dict[int, BaseException] = {}
        self._missing = count
        self._counting = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self.tasks: list[asyncio.Task[None]] = []

    def note(self, index: int, value: Any, error: BaseException | None = None) -> None:
        """The outcome of one call."""
        if error is None:
            self._values[index] = value
        else:
            self._errors[index] = error
        with self._counting:
            self._missing -= 1
            last = self._missing == 0
        if last:
            self._done.release()

    def results(self) -> list[Any]:
        """All results, when all calls have ended; or the first exception, naming its call."""
        self._done.acquire()
        if not self._errors:
            return self._values
        failed = sorted(self._errors)
        error = self._errors[failed[0]]
        note = f"raised by call {failed[0]} of parallel()"
        if len(failed) > 1:
            note += f"; {len(failed)} of {len(self._values)} calls raised"
        error.add_note(note)
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame
            self._errors.clear()


class Loops:
    """The threads and loops of one `BatchEnv`, made when they are first needed.

    Args:
        count: The most calls at the same time.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: list[_LoopThread] = []
        self._shared: _LoopThread | None = None
        self._making_shared = threading.Lock()
        self._closed = False

    def run(
        self,
        function: _Function,
        arguments: Sequence[Sequence[Any]],
        kwarguments: Mapping[str, Sequence[Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> list[Any]:
        """Call ``function`` once for each row of the columns; see `BatchEnv.parallel`."""
        if self._closed:
            raise ClosedError("expected open environments, these were closed by close()")
        if not callable(function):
            raise ConfigurationError(f"expected a function to call in parallel, got {function!r}")
        calls = _calls(self._count, arguments, kwarguments, args, kwargs)
        self._check_not_inside()
        outcomes = _Calls(len(calls))
        if _is_coroutine_function(function):
            shared = self._shared_loop()
            shared.submit(self._start_all, outcomes, function, calls)
        else:
            threads = self._enough_threads()
            for index, (positional, named) in enumerate(calls):
                thread = threads[index % len(threads)]
                thread.submit(self._call, thread, outcomes, index, function, positional, named)
        try:
            return outcomes.results()
        except BaseException:
            if self._shared is not None and outcomes.tasks:
                self._shared.submit(_cancel, outcomes.tasks)  # Ctrl-C; else they have ended
            raise

    def _check_not_inside(self) -> None:
        # Its threads wait for their calls to end, and those would wait for these.
        if any(thread.is_current for thread in self._all_threads()):
            raise BusyError(
                "parallel() was called inside of a call of parallel() of the same environments, "
                "whose threads are taken: call it outside, or use asyncio.gather",
                "parallel",
            )

    def _all_threads(self) -> list[_LoopThread]:
        return [*self._threads, *([self._shared] if self._shared is not None else [])]

    def _enough_threads(self) -> list[_LoopThread]:
        threads = self._threads
        while len(threads) < self._count:
            try:
                threads.append(_LoopThread(f"agymc-parallel-{len(threads)}", self._count))
            except RuntimeError:  # the system has no more: calls share those that there are
                if not threads:
                    raise
                break
        return threads

    def _shared_loop(self) -> _LoopThread:
        with self._making_shared:
            if self._shared is None:
                self._shared = _LoopThread("agymc-parallel", self._count)
            return self._shared

    # ------------------------------------------------------------------ on the loops

    def _start_all(self, outcomes: _Calls, function: _Function, calls: list[_Arguments]) -> None:
        """On the shared loop: begin one task per call."""
        assert self._shared is not None
        for index, (positional, named) in enumerate(calls):
            try:
                awaitable = function(*positional, **named)
            except BaseException as error:  # a call that does not fit the signature, say
                outcomes.note(index, None, error)
                continue
            self._shared.start(awaitable, outcomes, index)

    def _call(
        self,
        thread: _LoopThread,
        outcomes: _Calls,
        index: int,
        function: _Function,
        positional: tuple[Any, ...],
        named: dict[str, Any],
    ) -> None:
        """On a loop of its own: one call of a plain function."""
        try:
            value = function(*positional, **named)
            if value is not None and inspect.isawaitable(value):
                if asyncio.isfuture(value):  # it belongs to this loop
                    thread.start(value, outcomes, index)
                else:
                    shared = self._shared_loop()
                    shared.submit(shared.start, value, outcomes, index)
                return
        except BaseException as error:
            outcomes.note(index, None, error)
            return
        outcomes.note(index, value)

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float = 5.0) -> list[str]:
        """End all tasks and threads, those that block within ``timeout`` seconds. Idempotent.

        Returns:
            What went wrong, for a warning.
        """
        self._closed = True
        threads = self._all_threads()
        for thread in threads:
            thread.stop()
        deadline = perf_counter() + timeout
        hung = sum(not thread.join(deadline) for thread in threads if not thread.is_current)
        self._threads.clear()
        self._shared = None
        if not hung:
            return []
        return [
            f"{hung} calls of parallel() did not end in time; their threads can't be killed and "
            "were abandoned"
        ]


async def _outcome_of(awaitable: Any, outcomes: _Calls, index: int) -> None:
    try:
        value = await awaitable
    # BaseException: a SystemExit that leaves a task leaves its loop, too, and ends it for all.
    except BaseException as error:
        outcomes.note(index, None, error)
    else:
        outcomes.note(index, value)


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _is_coroutine_function(function: _Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )


def _calls(
    count: int,
    arguments: Sequence[Sequence[Any]],
    kwarguments: Mapping[str, Sequence[Any]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> list[_Arguments]:
    """The arguments of each call: row i of the columns, and what all calls have in common."""
    try:
        columns = [_checked(column, count, f"arguments[{i}]") for i, column in enumerate(arguments)]
    except TypeError as error:
        if isinstance(error, NotABatchError):
            raise
        raise NotABatchError(
            f"expected a list of columns of {count} values each, got {arguments!r}, at arguments"
        ) from None
    if not isinstance(kwarguments, Mapping):
        raise NotABatchError(
            f"expected a dict from names to columns, got {kwarguments!r}, at kwarguments"
        )
    named = {
        name: _checked(column, count, f"kwarguments[{name!r}]")
        for name, column in kwarguments.items()
    }
    twice = named.keys() & kwargs.keys()
    if twice:
        raise ConfigurationError(
            f"expected each keyword once, got {min(twice)!r} in kwarguments and as a keyword"
        )
    return [
        (
            (*(column[i] for column in columns), *args),
            {**{name: column[i] for name, column in named.items()}, **kwargs},
        )
        for i in range(count)
    ]


def _checked(column: Any, count: int, where: str) -> Sequence[Any]:
    if (
        not hasattr(column, "__len__")
        or not hasattr(column, "__getitem__")
        or isinstance(column, Mapping | Set)
    ):
        raise NotABatchError(
            f"expected a list of {count} values, one per env, got {column!r}, at {where}"
        )
    if len(column) != count:
        raise BatchLengthError(
            f"expected a list of {count} values, one per env, got {len(column)}, at {where}"
        )
    values: Sequence[Any] = column
    return values
