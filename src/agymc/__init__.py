"""agymc: many reinforcement-learning environments at once, behind one batched API."""

import typing as _typing

from agymc._lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from agymc.aio_env import AioVectorEnv
    from agymc.aio_wrappers import AsyncRecordEpisodeStatistics, AsyncTimeLimit, AsyncWrapper
    from agymc.batch_env import BatchEnv
    from agymc.checkpoints import Snapshot
    from agymc.engines import ENGINES
    from agymc.entry import make, make_async, make_vec, register, restore_checkpoint
    from agymc.errors import (
        ActionError,
        AgymcError,
        BadDataError,
        BatchLengthError,
        BusyError,
        CheckpointError,
        ClosedError,
        ConfigurationError,
        EnvError,
        EnvInterrupt,
        EnvTimeoutError,
        MissingExtraError,
        NoDisplayError,
        NotABatchError,
        NothingInFlightError,
        NumEnvsError,
        PickleError,
        RecvTimeoutError,
        ResetNeededError,
        SnapshotError,
        SpaceMismatchError,
        UnknownEngineError,
        UnknownEnvError,
        UnknownOptionError,
        WorkerDiedError,
    )
    from agymc.faults import Backoff, FaultPolicy, FaultRecord
    from agymc.rendering import mosaic
    from agymc.rollouts import Episode
    from agymc.statistics import Statistics
    from agymc.types import AsyncEnv, AutoresetMode, Batch, BlockedLoop, BlockedLoopWarning
    from agymc.vector_env import VectorEnv
    from agymc.workers._processes import warm_workers

__version__ = "0.1.0"

__all__ = [
    "ENGINES",
    "ActionError",
    "AgymcError",
    "AioVectorEnv",
    "AsyncEnv",
    "AsyncRecordEpisodeStatistics",
    "AsyncTimeLimit",
    "AsyncWrapper",
    "AutoresetMode",
    "Backoff",
    "BadDataError",
    "Batch",
    "BatchEnv",
    "BatchLengthError",
    "BlockedLoop",
    "BlockedLoopWarning",
    "BusyError",
    "CheckpointError",
    "ClosedError",
    "ConfigurationError",
    "EnvError",
    "EnvInterrupt",
    "EnvTimeoutError",
    "Episode",
    "FaultPolicy",
    "FaultRecord",
    "MissingExtraError",
    "NoDisplayError",
    "NotABatchError",
    "NothingInFlightError",
    "NumEnvsError",
    "PickleError",
    "RecvTimeoutError",
    "ResetNeededError",
    "Snapshot",
    "SnapshotError",
    "SpaceMismatchError",
    "Statistics",
    "UnknownEngineError",
    "UnknownEnvError",
    "UnknownOptionError",
    "VectorEnv",
    "WorkerDiedError",
    "make",
    "make_async",
    "make_vec",
    "mosaic",
    "register",
    "restore_checkpoint",
    "warm_workers",
]

__getattr__, __dir__ = _names_of(
    __name__,
    {
        "ActionError": "errors",
        "AgymcError": "errors",
        "AioVectorEnv": "aio_env",
        "AsyncEnv": "types",
        "AsyncRecordEpisodeStatistics": "aio_wrappers",
        "AsyncTimeLimit": "aio_wrappers",
        "AsyncWrapper": "aio_wrappers",
        "AutoresetMode": "types",
        "Backoff": "faults",
        "BadDataError": "errors",
        "Batch": "types",
        "BatchEnv": "batch_env",
        "BatchLengthError": "errors",
        "BlockedLoop": "types",
        "BlockedLoopWarning": "types",
        "BusyError": "errors",
        "CheckpointError": "errors",
        "ClosedError": "errors",
        "ConfigurationError": "errors",
        "ENGINES": "engines",
        "EnvError": "errors",
        "EnvInterrupt": "errors",
        "EnvTimeoutError": "errors",
        "Episode": "rollouts",
        "FaultPolicy": "faults",
        "FaultRecord": "faults",
        "MissingExtraError": "errors",
        "NoDisplayError": "errors",
        "NotABatchError": "errors",
        "NothingInFlightError": "errors",
        "NumEnvsError": "errors",
        "PickleError": "errors",
        "RecvTimeoutError": "errors",
        "ResetNeededError": "errors",
        "Snapshot": "checkpoints",
        "SnapshotError": "errors",
        "SpaceMismatchError": "errors",
        "Statistics": "statistics",
        "UnknownEngineError": "errors",
        "UnknownEnvError": "errors",
        "UnknownOptionError": "errors",
        "VectorEnv": "vector_env",
        "WorkerDiedError": "errors",
        "make": "entry",
        "make_async": "entry",
        "make_vec": "entry",
        "mosaic": "rendering",
        "register": "entry",
        "restore_checkpoint": "entry",
        "warm_workers": "workers._processes",
    },
)
