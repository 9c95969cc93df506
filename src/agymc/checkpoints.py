"""Snapshots of the envs of a pool; and files that hold all that is needed to go on with it.

A checkpoint is a file of three parts: a line that says what it is and of which version, the digest
of what follows (BLAKE2b, 32 bytes), and a pickle. It is written beside its place and then moved
there, so that there is always a whole one: the old or the new.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from agymc.commands import Command
from agymc.engines import EngineOptions
from agymc.errors import CheckpointError, ConfigurationError, EnvError, PickleError
from agymc.pickling import find_unpicklable_in_env_fn
from agymc.pool import IdArray, Pool
from agymc.types import EnvFn

__all__ = [
    "Checkpoint",
    "Snapshot",
    "read_checkpoint",
    "restore",
    "take_snapshots",
    "write_checkpoint",
]

_MAGIC = b"agymc checkpoint 1\n"
_DIGEST = 32  # bytes


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
            int(ledger.episodes.ids[index]),
            int(ledger.episodes.steps[index]),
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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that is needed to make a vector env again, and to go on where it was.

    Attributes:
        env_fns: How to make each env.
        options: The engine, and what belongs to it.
        arguments: The other arguments of the vector env.
        spec: Its spec, or None.
        snapshots: The state of each env.
        spaces: Its spaces by name, with the random generators that sampling them uses.
    """

    env_fns: Sequence[EnvFn]
    options: EngineOptions
    arguments: dict[str, Any]
    spec: Any
    snapshots: Sequence[Snapshot]
    spaces: dict[str, Any]


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint; the file is whole or as it was before.

    Raises:
        PickleError: Something in it can't be pickled; it says what.
        OSError: It can't be written there.
    """
    try:
        data = cloudpickle.dumps(checkpoint)
    except Exception as error:
        for number, env_fn in enumerate(checkpoint.env_fns):
            where = find_unpicklable_in_env_fn(env_fn, f"env_fns[{number}]")
            if where is not None:
                raise PickleError(
                    f"the function that makes env {number} can't be put into a checkpoint: {where}"
                ) from error
        raise PickleError(f"the environments can't be put into a checkpoint: {error}") from error
    path = Path(path)
    digest = hashlib.blake2b(data, digest_size=_DIGEST).digest()
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + digest + data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):  # not every system can open a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the new name outlives a power failure
        finally:
            os.close(folder)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint. It is a pickle: read only files of people whom you trust.

    Raises:
        CheckpointError: The file is no checkpoint, is damaged, or of another version.
        OSError: It can't be read.
    """
    data = Path(path).read_bytes()
    if not data.startswith(_MAGIC):
        what = data[: len(_MAGIC)]
        raise CheckpointError(
            f"expected a checkpoint that begins with {_MAGIC!r}, got {what!r}, in {path}"
        )
    digest, body = data[len(_MAGIC) : len(_MAGIC) + _DIGEST], data[len(_MAGIC) + _DIGEST :]
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
        raise CheckpointError(f"{path} is damaged: its content is not what was written to it")
    try:
        checkpoint = pickle.loads(body)
    except Exception as error:
        raise CheckpointError(
            f"{path} can't be restored here: {type(error).__name__}: {error}"
        ) from error
    assert isinstance(checkpoint, Checkpoint)
    return checkpoint
