"""Which worker has which slot, also after workers were replaced and envs were moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command
from agymc.workers.base import ShardSpec, Worker

__all__ = ["Order", "Shards"]

Order = tuple[Worker, Any]
"""A worker, and what it has prepared to be dispatched."""


class Shards:
    """The workers of a pool.

    Args:
        workers: Their shards cover the slots in order.

    Attributes:
        workers: The workers. Whoever ends the pool holds this very list.
        owner: (num_envs,) int64, the number of each slot's worker.
        moved: The slots that have left the shard they were in, for a worker of their own.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = list(workers)
        self.owner = np.repeat(
            np.arange(len(self.workers)), [worker.count for worker in self.workers]
        )
        self.moved: set[int] = set()
        self._attached: tuple[BuffersSpec, Buffers] | None = None

    def attach(self, spec: BuffersSpec) -> Buffers:
        """Lay out the buffers and give them to all workers."""
        # What processes can reach, a shard of the caller can reach too.
        allocator = next((one for one in self.workers if one.in_process_of_its_own), None)
        buffers = (allocator or self.workers[0]).allocate(spec)
        self._attached = spec, buffers
        for worker in self.workers:
            worker.attach(spec, buffers)
        return buffers

    def of(self, index: int) -> Worker:
        """The worker of a slot."""
        return self.workers[int(self.owner[index])]

    def slots_of(self, worker: Worker) -> list[int]:
        """The slots that a worker has, without those that were moved."""
        number = self.workers.index(worker)
        ids = range(worker.first, worker.first + worker.count)
        return [index for index in ids if self.owner[index] == number]

    def prepare(
        self, command: Command, env_ids: NDArray[np.int64] | None, payloads: Sequence[Any] | None
    ) -> list[Order]:
        """Orders of an operation for the workers that have these slots; None for all."""
        if env_ids is None and not self.moved:
            return [
                (
                    worker,
                    worker.prepare(
                        command,
                        None,
                        None
                        if payloads is None
                        else payloads[worker.first : worker.first + worker.count],
                    ),
                )
                for worker in self.workers
            ]
        orders: list[Order] = []
        everything = env_ids is None
        ids = np.arange(len(self.owner)) if env_ids is None else env_ids
        owners = self.owner[ids]
        for number in np.unique(owners):
            worker = self.workers[number]
            chosen = np.flatnonzero(owners == number)
            part = None if payloads is None else [payloads[int(i)] for i in chosen]
            positions = (ids[chosen] - worker.first).tolist()
            whole = everything and len(positions) == worker.count
            orders.append((worker, worker.prepare(command, None if whole else positions, part)))
        return orders

    def renew(self, index: int) -> Worker:
        """Start a worker in the place of the dead one that a slot has; its envs are not built.

        Raises:
            OSError: A process can't be started.
        """
        number = int(self.owner[index])
        dead = self.workers[number]
        worker = self.workers[number] = self._started(dead, dead.spec)
        return worker

    def move(self, index: int) -> Worker:
        """Start a worker that has this slot alone; its env is not built. Raises as `renew`."""
        old = self.of(index)
        worker = self._started(old, replace(old.spec, first=index, count=1))
        self.workers.append(worker)
        self.owner[index] = len(self.workers) - 1
        self.moved.add(index)
        return worker

    def _started(self, like: Worker, spec: ShardSpec) -> Worker:
        assert self._attached is not None
        worker = like.renewed(spec)
        worker.attach(*self._attached)
        return worker
