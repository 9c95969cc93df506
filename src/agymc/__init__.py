"""agymc: many reinforcement-learning environments at once, behind one batched API."""

from agymc.aio_env import AioVectorEnv
from agymc.aio_wrappers import AsyncRecordEpisodeStatistics, AsyncTimeLimit, AsyncWrapper
from agymc.batch_env import BatchEnv
from agymc.checkpoints import Snapshot
from agymc.engines import ENGINES
from agymc.errors import (
    ActionError,
    AgymcError,
    BadDataError,
    BatchLengthError,
    BusyError,
    ClosedError,
    ConfigurationError,
    EnvError,
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
from agymc.make import make, make_async, make_vec, register
from agymc.rendering import mosaic
from agymc.rollouts import Episode
from agymc.statistics import Statistics
from agymc.types import AsyncEnv, AutoresetMode, Batch, BlockedLoop, BlockedLoopWarning
from agymc.vector_env import VectorEnv

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
    "BadDataError",
    "Batch",
    "BatchEnv",
    "BatchLengthError",
    "BlockedLoop",
    "BlockedLoopWarning",
    "BusyError",
    "ClosedError",
    "ConfigurationError",
    "EnvError",
    "Episode",
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
]
