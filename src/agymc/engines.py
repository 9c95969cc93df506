"""Names of engines, and the workers that they mean.

An engine is a pair: where a shard lives, and how its slots run inside.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from agymc.errors import ConfigurationError, UnknownEngineError
from agymc.faults import FaultPolicy
from agymc.pool import Pool
from agymc.types import AutoresetMode, Fairness, ResetSeed
from agymc.workers._cpus import available_cpus
from agymc.workers.base import ShardSpec, Worker, share_limit
from agymc.workers.local import LocalWorker
from agymc.workers.process import ProcessWorker, SharedResources

__all__ = [
    "DEFAULT_ENGINE",
    "ENGINES",
    "EngineOptions",
    "available_cpus",
    "set_limits",
    "start_pool",
]

ENGINES: dict[str, tuple[str, str]] = {
    "serial": ("local", "serial"),
    "thread": ("local", "thread"),
    "process": ("process", "serial"),
    "process+thread": ("process", "thread"),
    "asyncio": ("local", "asyncio"),
    "process+asyncio": ("process", "asyncio"),
}
"""(where, how) of each engine."""

DEFAULT_ENGINE = "auto"
"""The engine that is measured to be the fastest, see `agymc.choosing`."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a user can say of an engine.

    Attributes:
        engine: A key of `ENGINES`.
        num_workers: For processes: how many; None for as many as CPUs that this process may use.
        threads: For threads: how many per worker; None for one per env.
        max_in_flight: For coroutines: how many operations run at the same time, at the most.
        max_constructing: The same for constructions.
        lag_threshold: For coroutines: seconds for which an env may block the loop before it is told
            with a `BlockedLoopWarning`; None: never.
        autoreset_mode: When an env whose episode is over is reset.
        reset_seed: The seeds of autoresets.
        fairness: Whose results are handed out first.
        faults: What to do about faults; None: nothing but to raise them.
        envs_per_worker: For processes: how many envs each of them has, at the most.
        caller_steps: For "process": whether one shard lives in the caller's process, which steps it
            while the workers step theirs. By default there is one worker less then.
    """

    engine: str = "process"
    num_workers: int | None = None
    threads: int | None = None
    max_in_flight: int | None = None
    max_constructing: int | None = None
    lag_threshold: float | None = 0.1
    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    reset_seed: ResetSeed | None = None
    fairness: Fairness = "arrival"
    faults: FaultPolicy | None = None
    envs_per_worker: int | None = None
    caller_steps: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            known = ", ".join(map(repr, [DEFAULT_ENGINE, *ENGINES]))
            raise UnknownEngineError(f"expected an engine out of {known}, got {self.engine!r}")
        where, how = ENGINES[self.engine]
        _check_count("num_workers", self.num_workers, where == "process", self.engine)
        _check_count("envs_per_worker", self.envs_per_worker, where == "process", self.engine)
        if self.num_workers is not None and self.envs_per_worker is not None:
            raise ConfigurationError(
                f"expected num_workers or envs_per_worker, got both: {self.num_workers} and "
                f"{self.envs_per_worker}"
            )
        if self.caller_steps and (self.engine != "process" or self.envs_per_worker is not None):
            raise ConfigurationError(
                "expected caller_steps=True with engine='process' and without envs_per_worker, got "
                f"engine={self.engine!r} and envs_per_worker={self.envs_per_worker}"
            )
        if self.faults is not None and not isinstance(self.faults, FaultPolicy):
            raise ConfigurationError(
                f"expected faults to be an agymc.FaultPolicy or None, got {self.faults!r}"
            )
        _check_count("threads", self.threads, how == "thread", self.engine)
        _check_count("max_in_flight", self.max_in_flight, how == "asyncio", self.engine)
        _check_count("max_constructing", self.max_constructing, how == "asyncio", self.engine)
        if self.lag_threshold is not None and (
            isinstance(self.lag_threshold, bool)
            or not isinstance(self.lag_threshold, int | float)
            or not self.lag_threshold > 0
        ):
            raise ConfigurationError(
                "expected lag_threshold to be a positive number of seconds or None, got "
                f"{self.lag_threshold!r}"
            )
        if self.fairness not in ("arrival", "oldest"):
            raise ConfigurationError(
                f"expected fairness 'arrival' or 'oldest', got {self.fairness!r}"
            )
        if self.reset_seed is not None and not callable(self.reset_seed):
            raise ConfigurationError(
                "expected reset_seed to be a function (env index, episode number) -> seed or None, "
                f"got {self.reset_seed!r}"
            )


def set_limits(pool: Pool, max_in_flight: int | None, max_constructing: int | None) -> None:
    """Change how many coroutines of a pool may run at the same time; None for no limit.

    Raises:
        ConfigurationError: As `EngineOptions`; or a limit is less than the number of workers.
    """
    EngineOptions(pool.engine, max_in_flight=max_in_flight, max_constructing=max_constructing)
    if ENGINES[pool.engine][1] != "asyncio":
        raise ConfigurationError(f"the engine {pool.engine!r} has no limits to set")
    pool.set_limits(max_in_flight, max_constructing)


def start_pool(
    options: EngineOptions, num_envs: int, loop: AbstractEventLoop | None = None
) -> Pool:
    """A pool whose envs are not built yet. Processes are started.

    Args:
        options: The engine.
        num_envs: The number of slots.
        loop: The caller's running loop, for local coroutines; None for one in a thread.
    """
    where, how = ENGINES[options.engine]
    workers: list[Worker] = []
    resources: list[Any] = []
    count = 1
    if where == "process":
        limits = [limit for limit in (options.max_in_flight, options.max_constructing) if limit]
        wanted = options.num_workers or available_cpus()
        if options.envs_per_worker is not None:
            wanted = -(-num_envs // options.envs_per_worker)
        if options.caller_steps:
            wanted = max(2, wanted + (options.num_workers is not None))
        count = min(num_envs, wanted, *limits)
        resources.append(SharedResources())
    in_flight = share_limit("max_in_flight", options.max_in_flight, count)
    constructing = share_limit("max_constructing", options.max_constructing, count)
    try:
        for number, (first, size) in enumerate(_shards(num_envs, count)):
            spec = ShardSpec(
                first,
                size,
                how,
                options.threads,
                in_flight[number],
                constructing[number],
                options.lag_threshold,
                options.autoreset_mode,
                options.reset_seed,
                options.faults,
            )
            if where == "process" and not (options.caller_steps and number == 0):
                workers.append(ProcessWorker(spec, resources[0]))
            else:
                workers.append(LocalWorker(spec, loop))
        return Pool(
            workers,
            resources,
            engine=options.engine,
            autoreset_mode=options.autoreset_mode,
            fairness=options.fairness,
            faults=options.faults,
            reset_seed=options.reset_seed,
        )
    except BaseException:
        for worker in workers:
            worker.begin_close()
        for worker in workers:
            worker.end_close(0.0)
        for resource in resources:
            resource.close()
        raise


def _shards(num_envs: int, count: int) -> list[tuple[int, int]]:
    """(first, size) of ``count`` runs of neighbours whose sizes differ by one at most."""
    bounds = [num_envs * number // count for number in range(count + 1)]
    return [(a, b - a) for a, b in pairwise(bounds)]


def _check_count(name: str, value: Any, applies: bool, engine: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"expected {name} to be a positive integer or None, got {value!r}")
    if not applies:
        raise ConfigurationError(f"the engine {engine!r} has no {name}: got {name}={value}")
