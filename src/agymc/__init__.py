"""agymc: many reinforcement-learning environments at once, behind one batched API."""

from agymc.batch_env import BatchEnv
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
from agymc.make import make, make_vec
from agymc.pool import Snapshot
from agymc.rendering import mosaic
from agymc.types import AutoresetMode, Batch
from agymc.vector_env import VectorEnv

__version__ = "0.1.0"

__all__ = [
    "ENGINES",
    "ActionError",
    "AgymcError",
    "AutoresetMode",
    "BadDataError",
    "Batch",
    "BatchEnv",
    "BatchLengthError",
    "BusyError",
    "ClosedError",
    "ConfigurationError",
    "EnvError",
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
    "UnknownEngineError",
    "UnknownEnvError",
    "UnknownOptionError",
    "VectorEnv",
    "WorkerDiedError",
    "make",
    "make_vec",
    "mosaic",
]
