"""What the asyncio tests have in common, beside fixtures and envs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
import psutil
from tests.support.reference import (
    Expected,
    ReferenceLoop,
    assert_reset,
    assert_step,
    stacked,
)

import agymc
from agymc import AutoresetMode

T = TypeVar("T")

ENGINES = list(agymc.ENGINES)
COROUTINE_ENGINES = [name for name, (_, how) in agymc.ENGINES.items() if how == "asyncio"]
ORDINARY_ENGINES = [name for name in ENGINES if name not in COROUTINE_ENGINES]
CONCURRENT_ENGINES = [name for name, pair in agymc.ENGINES.items() if pair != ("local", "serial")]

PATIENCE = 20.0  # seconds; a bound for polling, nothing is asserted about it


def run(main: Callable[[], Coroutine[Any, Any, T]], *, debug: bool = False) -> T:
    """Run a test in an event loop of its own, which must have nothing to complain of.

    No task may be left, and none may have failed without anybody noticing.
    """
    complaints: list[dict[str, Any]] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left: {left}"
        return result

    result = asyncio.run(watched(), debug=debug)
    gc.collect()
    assert not complaints, complaints
    return result


async def value_of(result: Any) -> Any:
    """The result of a call of any door: awaited where it must be."""
    return await result if inspect.isawaitable(result) else result


async def until(condition: Callable[[], Any]) -> None:
    """Let others have turns until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Give all others that many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def other_tasks() -> set[asyncio.Task[Any]]:
    """All tasks of the loop but this one."""
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


def eventually(condition: Callable[[], Any]) -> bool:
    """Whether the condition becomes true before patience is at an end."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return bool(condition())
        time.sleep(0.02)
    return True


def footprint() -> set[str]:
    """The processes, threads and descriptors that this process holds, in words."""
    found = {f"thread {thread.name}" for thread in threading.enumerate()}
    for process in psutil.Process().children(recursive=True):
        found.add(f"process {process.pid}")
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"descriptor {name}: {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            pass  # the one of the listing
    return found


# ------------------------------------------------------------------ recordings

Recording = list[tuple[str, Any, Any, Expected]]
"""("reset", seeds, envs or None, expected) or ("step", actions, None, expected)."""


def record(
    env_fns: Sequence[Callable[[], Any]],
    mode: AutoresetMode,
    steps: int,
    seed: int = 100,
    reset_seed: Callable[[int, int], int | None] | None = None,
) -> tuple[Recording, Any]:
    """What a loop over single envs gives, and the space of their observations.

    In mode DISABLED, envs whose episode is over are reset before the next step, with seeds of
    their own.
    """
    loop = ReferenceLoop(env_fns, mode)
    if reset_seed is not None:
        loop.envs = [_Reseeded(env, i, reset_seed) for i, env in enumerate(loop.envs)]
    count = len(loop.envs)
    action_space = deepcopy(loop.envs[0].action_space)
    action_space.seed(7)
    seeds: list[int | None] = [seed + i for i in range(count)]
    recording: Recording = [("reset", seeds, None, loop.reset(seeds))]
    for number in range(steps):
        now = loop.now
        if mode is AutoresetMode.DISABLED:
            over = [i for i in range(count) if now.terminations[i] or now.truncations[i]]
            if over:
                seeds = [1000 * number + i for i in range(count)]
                recording.append(("reset", seeds, over, loop.reset(seeds, over)))
        actions = [action_space.sample() for _ in range(count)]
        recording.append(("step", actions, None, loop.step(actions)))
    space = deepcopy(loop.envs[0].observation_space)
    loop.close()
    return recording, space


class _Reseeded:
    """Seeds those resets that nobody seeds, by a function (env index, episode number) -> seed."""

    def __init__(self, env: Any, index: int, reset_seed: Callable[[int, int], int | None]) -> None:
        self._env = env
        self._index = index
        self._reset_seed = reset_seed
        self._episode = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, seed: int | None = None) -> Any:
        self._episode += 1
        if seed is None:
            seed = self._reset_seed(self._index, self._episode)
        return self._env.reset(seed=seed)


async def replay(envs: Any, recording: Recording) -> None:
    """Do with the vector door or the asyncio door what was recorded; all must be identical."""
    space = envs.single_observation_space
    count = envs.num_envs
    for kind, argument, only, expected in recording:
        if kind == "reset":
            options = None if only is None else {"reset_mask": np.isin(np.arange(count), only)}
            kept = deepcopy(options)
            got = await value_of(envs.reset(seed=argument, options=options))
            assert_reset(space, got, expected)
            if options is not None:
                assert list(options) == ["reset_mask"]
                assert (options["reset_mask"] == kept["reset_mask"]).all()
        else:
            actions = stacked(envs.single_action_space, argument)
            assert_step(space, await value_of(envs.step(actions)), expected)


async def gather_all(envs: Any) -> Awaitable[Any]:
    """Everything that is in flight, as one batch."""
    return await envs.recv()
