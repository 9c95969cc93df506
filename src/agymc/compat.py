"""Gymnasium's vector classes by name, for code that names them.

``from agymc.compat import AsyncVectorEnv, SyncVectorEnv`` takes the place of the same import from
`gymnasium.vector`. The constructors take Gymnasium's arguments; what they return is an
`agymc.VectorEnv`, with its semantics (docs/semantics.md says where they differ).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agymc.arguments import (
    check_autoreset_mode,
    check_max_concurrency,
    check_no_worker,
    check_num_envs,
)
from agymc.batching import ObservationMode
from agymc.engines import EngineOptions, available_cpus
from agymc.types import AutoresetMode, EnvFn
from agymc.vector_env import VectorEnv

__all__ = ["AsyncVectorEnv", "SyncVectorEnv"]


class SyncVectorEnv(VectorEnv):
    """`gymnasium.vector.SyncVectorEnv` on the engine "serial".

    Args:
        env_fns: One function per env.
        copy: As in Gymnasium.
        observation_mode: As in Gymnasium.
        autoreset_mode: As in Gymnasium.

    Attributes:
        envs: The envs themselves.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.env_fns = env_fns
        check_num_envs(len(env_fns))
        options = EngineOptions("serial", autoreset_mode=check_autoreset_mode(autoreset_mode))
        super().__init__(env_fns, options, observation_mode=observation_mode, copy=copy)

    @property
    def envs(self) -> list[Any]:
        """The envs, in the caller's process."""
        return self._pool.local_envs()


class AsyncVectorEnv(VectorEnv):
    """`gymnasium.vector.AsyncVectorEnv` on worker processes.

    Gymnasium starts one process per env. Here there are as many as CPUs, and the envs of each have
    threads of their own, so that envs which wait overlap as they do in Gymnasium.

    Args:
        env_fns: One function per env.
        shared_memory: Ignored: what has a fixed shape is in shared memory, other spaces work too.
        copy: As in Gymnasium.
        context: Ignored: workers are plain processes, see docs/engines.md.
        daemon: Ignored: envs may start processes of their own in any case.
        worker: Not supported; an error says so.
        observation_mode: As in Gymnasium.
        autoreset_mode: As in Gymnasium.
        max_concurrency: The most envs that run at the same time.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Any = None,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
    ) -> None:
        check_no_worker(worker)
        limit = check_max_concurrency(max_concurrency)
        self.env_fns = env_fns
        self.shared_memory = shared_memory
        check_num_envs(len(env_fns))
        engine, workers, threads = "process+thread", None, None
        if limit is not None:
            # Whole workers first: w workers of t threads run w * t <= max_concurrency envs.
            workers = min(limit, available_cpus(), len(env_fns))
            threads = max(1, limit // workers)
        options = EngineOptions(
            engine,
            num_workers=workers,
            threads=threads,
            autoreset_mode=check_autoreset_mode(autoreset_mode),
        )
        super().__init__(env_fns, options, observation_mode=observation_mode, copy=copy)
