"""`BatchEnv.parallel`: one call per env, all at the same time.

A coroutine function is awaited on one event loop in a background thread. A plain function gets a
thread, and that thread runs an event loop of its own whose callback the function is. So it may
block, for the others have their own threads, and ``asyncio.create_task`` inside it works: the task
runs on that loop when the function has returned, and goes on until it is done or `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from agymc.errors import BatchLengthError, ClosedError

__all__ = ["Loops"]


class _LoopThread:
    """A daemon thread that runs an event loop until it is told to stop."""

    def __init__(self, name: str) -> None:
        # Poll instead of epoll where possible: one descriptor less for each of many loops.
        kind = getattr(selectors, "PollSelector", selectors.DefaultSelector)
        self._loop = asyncio.SelectorEventLoop(kind())
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Call ``function`` in the thread, inside of the running loop."""
        future: Future[Any] = Future()
        self._loop.call_soon_threadsafe(_fulfil, future, function)
        return future

    def await_(self, coroutine: Any) -> Future[Any]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Ask the loop to end its tasks and itself."""
        with contextlib.suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, timeout: float) -> bool:
        """Wait for the thread; False when it did not end in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _fulfil(future: Future[Any], function: Callable[[], Any]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


class Loops:
    """The threads and loops of one `BatchEnv`, made when they are first needed."""

    def __init__(self) -> None:
        self._threads: list[_LoopThread] = []
        self._shared: _LoopThread | None = None
        self._closed = False

    def run(
        self,
        function: Callable[..., Any],
        count: int,
        arguments: Sequence[Sequence[Any]],
        kwarguments: Mapping[str, Sequence[Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> list[Any]:
        """Call ``function`` ``count`` times at once; see `BatchEnv.parallel`."""
        if self._closed:
            raise ClosedError("expected open environments, these were closed by close()")
        columns = [_checked(column, count, f"arguments[{i}]") for i, column in enumerate(arguments)]
        named = {k: _checked(c, count, f"kwarguments[{k!r}]") for k, c in kwarguments.items()}
        calls = [
            (
                (*(column[i] for column in columns), *args),
                {**{name: column[i] for name, column in named.items()}, **kwargs},
            )
            for i in range(count)
        ]
        if inspect.iscoroutinefunction(function):
            if self._shared is None:
                self._shared = _LoopThread("agymc-parallel")
            shared = self._shared
            futures = [shared.await_(function(*a, **k)) for a, k in calls]
        else:
            while len(self._threads) < count:
                self._threads.append(_LoopThread(f"agymc-parallel-{len(self._threads)}"))
            futures = [
                thread.call(lambda a=a, k=k: function(*a, **k))  # type: ignore[misc]
                for thread, (a, k) in zip(self._threads, calls, strict=False)
            ]
        return _results(futures)

    def close(self, timeout: float = 5.0) -> None:
        """End all tasks and threads, those that block within ``timeout`` seconds. Idempotent."""
        self._closed = True
        threads = [*self._threads, *([self._shared] if self._shared else [])]
        for thread in threads:
            thread.stop()
        deadline = time.perf_counter() + timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.perf_counter()))
        self._threads.clear()
        self._shared = None


def _results(futures: Sequence[Future[Any]]) -> list[Any]:
    """All results, when all calls have ended; or the first exception, naming its call."""
    results = []
    first: BaseException | None = None
    failed = []
    for index, future in enumerate(futures):
        error = future.exception()
        if error is not None:
            failed.append(index)
            first = first or error
        else:
            results.append(future.result())
    if first is not None:
        first.add_note(
            f"raised by call {failed[0]} of parallel()"
            + (f"; {len(failed) - 1} more calls raised too" if len(failed) > 1 else "")
        )
        raise first
    return results


def _checked(column: Sequence[Any], count: int, where: str) -> Sequence[Any]:
    try:
        length = len(column)
    except TypeError:
        raise BatchLengthError(
            f"expected a list of {count} values, one per env, got {column!r}, at {where}"
        ) from None
    if length != count:
        raise BatchLengthError(
            f"expected a list of {count} values, one per env, got {length}, at {where}"
        )
    return column
