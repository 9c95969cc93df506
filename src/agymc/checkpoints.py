"""Snapshots of the envs of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agymc.commands import Command
from agymc.errors import ConfigurationError, EnvError
from agymc.pool import IdArray, Pool

__all__ = ["Snapshot", "restore", "take_snapshots"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one env, its random generators included, and of its episode. Can be pickled.

    Attributes:
        state: The env, as the slot saved it.
        observation: The last observation.
        terminated: Whether the episode had been terminated.
        truncated: Whether it had been truncated.
        episode_id: The number of the episode.
        steps: The steps made in it.
        seed: The seed of the last seeded reset.
    """

    state: Any
    observation: Any
    terminated: bool
    truncated: bool
    episode_id: int
    steps: int
    seed: int | None


def take_snapshots(pool: Pool, env_ids: IdArray | None) -> list[Snapshot]:
    """The state of these envs; None for all."""
    buffers, ledger = pool.buffers, pool.ledger
    ids = np.arange(pool.num_envs) if env_ids is None else env_ids
    states = pool.request(Command.SNAPSHOT, env_ids, [None] * len(ids))
    observations = buffers.observation_layout.elements(buffers.observations, ids)
    return [
        Snapshot(
            state,
            observation,
            bool(buffers.terminations[index]),
            bool(buffers.truncations[index]),
            int(ledger.episode_ids[index]),
            int(ledger.steps[index]),
            ledger.seeds[index],
        )
        for index, state, observation in zip(ids.tolist(), states, observations, strict=True)
    ]


def restore(pool: Pool, snapshots: Sequence[Snapshot], env_ids: IdArray | None) -> None:
    """Put these envs into the states of the snapshots.

    Raises:
        ConfigurationError: Something is no snapshot. Nothing was restored.
        SnapshotError: A snapshot is not of such an env, which stays as it was. The others of
            ``env_ids`` are restored.
    """
    for number, snapshot in enumerate(snapshots):
        if not isinstance(snapshot, Snapshot):
            raise ConfigurationError(
                f"expected a snapshot, got {snapshot!r}, at snapshots[{number}]"
            )
    buffers = pool.buffers
    failed: set[int] = set()
    problem: EnvError | None = None
    try:
        pool.request(Command.RESTORE, env_ids, [snapshot.state for snapshot in snapshots])
    except EnvError as error:
        problem = error
        failed.update(*(one.env_ids for one in (error, *error.others)))
    ids = np.arange(pool.num_envs) if env_ids is None else env_ids
    for index, snapshot in zip(ids.tolist(), snapshots, strict=True):
        if index in failed:
            continue
        write = buffers.observation_layout.writer(buffers.observations, index)
        write(snapshot.observation)
        buffers.terminations[index] = snapshot.terminated
        buffers.truncations[index] = snapshot.truncated
        pool.ledger.restored(index, snapshot.episode_id, snapshot.steps, snapshot.seed)
    if problem is not None:
        raise problem
