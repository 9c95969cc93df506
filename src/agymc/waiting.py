"""Two ways to wait for the same thing: block the thread, or await in an event loop.

What a pool does in a call is written once, as a *plan*: a generator that yields a `Wait` wherever
somebody has to wait for workers, is told whether the wait was worth it, and returns the result of
the call. `block_on` carries out a plan by blocking in one `poll`; `await_on` by awaiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from time import perf_counter
from typing import NamedTuple, TypeAlias, TypeVar

from agymc.bells import wait_readable

__all__ = ["Plan", "Wait", "await_on", "block_on"]

T = TypeVar("T")


class Wait(NamedTuple):
    """What a plan waits for.

    Attributes:
        descriptors: Until one of them is readable. None at all: for nothing, go on at once.
        deadline: Or until this time of `time.perf_counter`; None for no limit.
    """

    descriptors: Sequence[int]
    deadline: float | None


Plan: TypeAlias = Generator[Wait, bool, T]
"""A call of a pool. It is sent False when the deadline of a `Wait` has passed, else True."""


def block_on(plan: Plan[T]) -> T:
    """Carry out a plan, blocking the thread where it waits."""
    try:
        wait = next(plan)
        while True:
            descriptors, deadline = wait
            wait = plan.send(not descriptors or wait_readable(descriptors, deadline))
    except StopIteration as end:
        result: T = end.value
        return result
    except BaseException:
        # Ctrl-C in the wait: what the plan does then (a pool that is being built closes) is done
        # now, not when the traceback, which holds the plan, is dropped.
        plan.close()
        raise


async def await_on(plan: Plan[T]) -> T:
    """Carry out a plan, letting other tasks run where it waits.

    Cancelling it cancels the wait, and nothing else: what the plan waited for stays to be had.
    """
    try:
        wait = next(plan)
        while True:
            descriptors, deadline = wait
            if descriptors:
                in_time = await _readable(descriptors, deadline)
            else:
                await asyncio.sleep(0)  # envs run in this thread: let others have a turn
                in_time = True
            wait = plan.send(in_time)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        plan.close()


async def _readable(descriptors: Sequence[int], deadline: float | None) -> bool:
    """Await a descriptor to be readable, or the deadline; False for the deadline."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()

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
