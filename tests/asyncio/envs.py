"""Coroutine envs whose every move is known beforehand, and some that misbehave.

Worker processes import them from here by name.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.envs import Counting


class Ported:
    """Any Gymnasium env with ``async`` in front of what takes time.

    Args:
        make: Makes the Gymnasium env.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.env = make()
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space
        self.metadata = self.env.metadata
        self.render_mode = self.env.render_mode

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    async def reset(self, *, seed=None, options=None):
        await asyncio.sleep(0)
        return self.env.reset(seed=seed, options=options)

    async def step(self, action):
        await asyncio.sleep(0)
        return self.env.step(action)

    async def render(self):
        await asyncio.sleep(0)
        return self.env.render()

    async def close(self):
        await asyncio.sleep(0)
        self.env.close()


class AioCounting(Counting):
    """`Counting`, ported. Every call takes ``turns`` turns of the event loop."""

    def __init__(self, turns: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.turns = turns

    async def _turn(self) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)

    async def reset(self, *, seed=None, options=None):
        await self._turn()
        return super().reset(seed=seed, options=options)

    async def step(self, action):
        await self._turn()
        return super().step(action)

    async def render(self):
        await self._turn()
        return super().render()

    async def echo(self, value: Any) -> Any:
        await self._turn()
        return value

    async def close(self):
        await self._turn()


class Hooked(AioCounting):
    """`AioCounting` that awaits hooks, which live in the test's own process.

    Args:
        hooks: Coroutine functions of the env, called at the beginning of the operation that they
            are named after: "reset", "step", "echo", "close".
        log: What is built and closed, and when which operation begins and ends.
    """

    def __init__(
        self, index: int = 0, log: list[Any] | None = None, hooks: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.index = index
        self.log = [] if log is None else log
        self.hooks = {} if hooks is None else hooks
        self.log.append(("built", index))

    async def _hook(self, name: str) -> None:
        self.log.append((f"{name} begins", self.index))
        hook = self.hooks.get(name)
        if hook is not None:
            await hook(self)
        self.log.append((f"{name} goes on", self.index))

    async def reset(self, *, seed=None, options=None):
        await self._hook("reset")
        return await super().reset(seed=seed, options=options)

    async def step(self, action):
        await self._hook("step")
        return await super().step(action)

    async def echo(self, value: Any) -> Any:
        await self._hook("echo")
        return await super().echo(value)

    async def close(self):
        await self._hook("close")
        await super().close()
        self.log.append(("closed", self.index))


class AioGated(Counting):
    """`tests.support.envs.Gated`, ported: its steps wait at a gate without blocking the loop."""

    def __init__(self, gate: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate

    async def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)

    async def step(self, action):
        loop = asyncio.get_running_loop()
        pipe = os.open(self.gate, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while True:
                readable = loop.create_future()
                loop.add_reader(pipe, lambda f=readable: f.done() or f.set_result(None))
                try:
                    await readable
                finally:
                    loop.remove_reader(pipe)
                try:
                    os.read(pipe, 1)
                except BlockingIOError:
                    continue
                break
        finally:
            os.close(pipe)
        return super().step(action)

    async def close(self):
        pass


class AioFailing(AioCounting):
    """`tests.support.envs.Failing`, ported."""

    def __init__(
        self, at: tuple[str, int] | None = None, error: BaseException | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.at = at
        self.error = error or ValueError("the wheel came off")
        self.calls = {"step": 0, "reset": 0}

    async def _maybe_fail(self, name):
        await asyncio.sleep(0)
        self.calls[name] += 1
        if self.at == (name, self.calls[name]):
            raise self.error

    async def reset(self, *, seed=None, options=None):
        await self._maybe_fail("reset")
        return await super().reset(seed=seed, options=options)

    async def step(self, action):
        await self._maybe_fail("step")
        return await super().step(action)


class Blocking(AioCounting):
    """Blocks the loop when its action is 3, in ``time.sleep`` or in a socket.

    Args:
        how: "sleep" or "socket".
        seconds: For how long.
    """

    def __init__(self, how: str = "sleep", seconds: float = 0.4, **kwargs: Any) -> None:
        super().__init__(length=100, **kwargs)
        self.how = how
        self.seconds = seconds

    async def step(self, action):
        if action == 3:
            if self.how == "sleep":
                self.sleep_synchronously()
            else:
                self.wait_for_a_socket()
        return await super().step(action)

    def sleep_synchronously(self):
        time.sleep(self.seconds)

    def wait_for_a_socket(self):
        reader, writer = socket.socketpair()
        with reader, writer:
            reader.settimeout(self.seconds)
            try:
                reader.recv(1)
            except TimeoutError:
                pass


async def make_counting(**kwargs: Any) -> AioCounting:
    """An env function that is a coroutine function."""
    await asyncio.sleep(0)
    return AioCounting(**kwargs)


async def fail_to_make() -> Any:
    await asyncio.sleep(0)
    raise LookupError("no such level")


def observation_of(seed: int, episode: int = 0, count: int = 0) -> np.ndarray:
    """The initial observation of a `Counting` env after a seeded reset."""
    from gymnasium.utils import seeding

    return np.array([episode, count, seeding.np_random(seed)[0].random()])
