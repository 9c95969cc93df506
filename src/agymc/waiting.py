"""Two ways to wait for the same thing: block the thread, or await in an event loop.

What a pool does in a call is written once, as a *plan*: a generator that yields a `Wait` wherever
somebody has to wait for workers, is told whether the wait was worth it, and returns the result of
the call. `block_on` carries out a plan by blocking in one `poll`; `await_on` by awaiting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from agymc.bells import wait_readable

if TYPE_CHECKING:
    import asyncio  # at run time only where something is awaited: most workers never do

__all__ = ["Look", "Plan", "Wait", "await_on", "block_on", "in_thread", "look", "wait_looking_up"]

_LOOK_UP = 1.0  # seconds

T = TypeVar("T")


class Wait(NamedTuple):
    """What a plan waits for.

    Attributes:
        descriptors: Until one of them is readable. An empty sequence: for nothing, go on at once.
            None: for the deadline alone.
        deadline: Or until this time of `time.perf_counter`; None for no limit.
        look: Seconds for which who blocks looks before it does, see `Look`.
    """

    descriptors: Sequence[int] | None
    deadline: float | None
    look: float = 0.0


class Look:
    """Looking again and again before blocking, for a while and as long as that pays.

    To be woken costs about 100 us on an idle virtual CPU, and less than 10 us to who is looking.
    But who looks needs a CPU that nobody else could use, so it is for short waits only: when the
    last one was much longer than a look, the next begins with blocking.

    Args:
        longest: Seconds of a look.
    """

    __slots__ = ("_longest", "seconds")

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self.seconds = 0.0
        """How long to look next time."""

    def note(self, waited: float) -> None:
        """That is how long the last wait was, in seconds."""
        self.seconds = self._longest if waited < 2 * self._longest else 0.0


def look(descriptors: Sequence[int], seconds: float) -> bool:
    """Look for a descriptor that is readable, for so long; whether there is one."""
    until = perf_counter() + seconds
    while perf_counter() < until:
        if wait_readable(descriptors, 0.0):
            return True
        os.sched_yield()
    return False


Plan: TypeAlias = Generator[Wait, bool, T]
"""A call of a pool. It is sent False when the deadline of a `Wait` has passed, else True."""


def block_on(plan: Plan[T]) -> T:
    """Carry out a plan, blocking the thread where it waits."""
    try:
        wait = next(plan)
        while True:
            descriptors, deadline, seconds = wait
            at_once = descriptors is not None and not descriptors
            if seconds and not at_once:
                at_once = look(descriptors or (), seconds)
            wait = plan.send(at_once or wait_looking_up(descriptors or (), deadline))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        plan.close()


def wait_looking_up(descriptors: Sequence[int], deadline: float | None) -> bool:
    """`wait_readable`, looking up now and then.

    A signal that comes right before the system call begins does not interrupt it, so its handler
    would have to wait for the envs: a Ctrl-C without effect.
    """
    while True:
        soon = perf_counter() + _LOOK_UP
        if deadline is not None and deadline <= soon:
            return wait_readable(descriptors, deadline)
        if wait_readable(descriptors, soon):
            return True


async def await_on(plan: Plan[T], watch: Callable[[asyncio.Future[bool]], None] | None = None) -> T:
    """Carry out a plan, letting other tasks run where it waits.

    Cancelling it cancels the wait, and nothing else: what the plan waited for stays to be had.

    Args:
        plan: The plan.
        watch: Is told each future that is awaited; an exception set on it ends the waiting.
    """
    import asyncio

    try:
        wait = next(plan)
        while True:
            descriptors, deadline, _ = wait
            if descriptors is None or descriptors:
                in_time = await _readable(descriptors or (), deadline, watch)
            else:
                await asyncio.sleep(0)  # envs run in this thread: let others have a turn
                in_time = True
            wait = plan.send(in_time)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        plan.close()


async def _readable(
    descriptors: Sequence[int],
    deadline: float | None,
    watch: Callable[[asyncio.Future[bool]], None] | None,
) -> bool:
    """Await a descriptor to be readable, or the deadline; False for the deadline."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()
    if watch is not None:
        watch(future)

    def answer(in_time: bool) -> None:
        if not future.done():
            future.set_result(in_time)

    for descriptor in descriptors:
        loop.add_reader(descriptor, answer, True)
    timer = None
    if deadline is not None:
        timer = loop.call_later(max(0.0, deadline - perf_counter()), answer, False)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()
        for descriptor in descriptors:
            loop.remove_reader(descriptor)


async def in_thread(function: Callable[[], T]) -> T:
    """Await a function that blocks, in a thread that is its own.

    `asyncio.to_thread` waits until one of a few threads is free, which other blocking functions may
    hold for ever, and leaves its thread behind.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def run() -> None:
        setter: Callable[[Any], None] = future.set_result
        value: Any
        try:
            value = function()
        except BaseException as error:
            setter, value = future.set_exception, error
        try:
            loop.call_soon_threadsafe(tell, setter, value)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more

    thread = threading.Thread(target=run, name="agymc-closing", daemon=True)
    thread.start()
    result = await future
    thread.join()
    return result
