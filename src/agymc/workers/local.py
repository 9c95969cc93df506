"""A shard in the caller's own process."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, Completion
from agymc.runners.base import GivenUp
from agymc.types import BlockedLoop
from agymc.waiting import Plan, block_on
from agymc.workers.base import ShardSpec, Worker

__all__ = ["LocalWorker"]


class LocalWorker(Worker):
    """Hands everything to a runner.

    Args:
        spec: The shard.
        loop: For coroutines: the caller's running loop, or None for one in a thread.
    """

    def __init__(self, spec: ShardSpec, loop: AbstractEventLoop | None = None) -> None:
        super().__init__(spec)
        self.looks_after_itself = spec.runner == "serial"
        self._loop = loop
        self._runner = spec.make_runner(loop, watched=True)
        self._everything = range(self.count)
        self._buffers: Buffers | None = None
        self._orders: deque[tuple[Command, Sequence[int], Iterator[Any]]] = deque()
        self._closing = False
        self._closed = False

    def attach(self, spec: BuffersSpec, buffers: Buffers) -> None:
        self._buffers = buffers
        self._rows = slice(self.first, self.first + self.count)
        self._runner.attach(buffers)

    def prepare(
        self, command: Command, positions: Sequence[int] | None, payloads: Sequence[Any] | None
    ) -> Any:
        if payloads is None:
            assert self._buffers is not None
            rows = self._rows if positions is None else np.asarray(positions) + self.first
            payloads = self._buffers.action_layout.elements(self._buffers.actions, rows)
        chosen = self._everything if positions is None else positions
        # Iterators: they are used up by being dispatched, so that nothing begins twice.
        return iter([(command, chosen, iter(payloads))])

    def dispatch(self, order: Any) -> None:
        orders = self._orders
        orders.extend(order)
        while orders:
            self._runner.submit(*orders[0])
            orders.popleft()

    def work(self, need: int, deadline: float | None) -> bool:
        return self._runner.work(need, deadline)

    def arm(self, need: int) -> Sequence[int]:
        descriptor = self._runner.arm(need)
        return () if descriptor is None else (descriptor,)

    def collect(self) -> list[Completion]:
        completion = self._runner.collect()
        return [] if completion is None else [completion]

    def interrupt(self, position: int) -> None:
        self._runner.interrupt(position)

    def give_up(self, position: int) -> GivenUp:
        return self._runner.abandon(position)

    def renewed(self, spec: ShardSpec) -> LocalWorker:
        return LocalWorker(spec, self._loop)

    def abandoned_alive(self) -> int:
        return self._runner.abandoned_alive()

    @property
    def stale_replies(self) -> int:
        return self._runner.stale_replies

    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        self._runner.set_limits(max_in_flight, max_constructing)

    @property
    def blocked(self) -> Sequence[BlockedLoop]:
        return self._runner.blocked

    def local_envs(self) -> list[Any]:
        return [slot.env for slot in self._runner.slots]

    def begin_close(self) -> None:
        if not self._closing:
            self._closing = True
            self._closed = self._runner.leave()
            if not self._closed:
                self._runner.begin_closing()

    def end_close(self, deadline: float) -> list[str]:
        if self._closed:
            return []
        self._closed = True
        return block_on(self._runner.plan_closing(deadline))

    def plan_close(self, deadline: float) -> Plan[list[str]]:
        if self._closing:
            return []
        self._closing = self._closed = True
        self._runner.begin_closing()
        return (yield from self._runner.plan_closing(deadline))

    def abandon(self) -> None:
        self._closing = self._closed = True
