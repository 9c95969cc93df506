"""Every error that agymc raises, as one tree.

::

    AgymcError
    ├── ConfigurationError (ValueError)         bad arguments of a door, before anything is built
    │   ├── UnknownEngineError
    │   ├── UnknownOptionError (TypeError)
    │   ├── NumEnvsError
    │   ├── PickleError                         something cannot travel to a worker process
    │   └── SpaceMismatchError (RuntimeError)   the envs' spaces do not fit one batch
    ├── UnknownEnvError (gymnasium.error.UnregisteredEnv)
    ├── MissingExtraError (ImportError)         says the exact ``pip install``
    ├── BatchLengthError (ValueError)           a list of the wrong length
    │   └── NotABatchError (TypeError)          no list or array at all
    ├── ActionError (ValueError)                an action that is not in its space
    ├── ClosedError (gymnasium.error.ClosedEnvironmentError)    you closed it
    ├── BusyError (gymnasium.error.AlreadyPendingCallError)     wait for what is in flight
    ├── NothingInFlightError (gymnasium.error.NoAsyncCallError) nothing to wait for
    ├── ResetNeededError (gymnasium.error.ResetNeeded)          this env's episode is over
    ├── RecvTimeoutError (TimeoutError, multiprocessing.TimeoutError)
    ├── EnvError (RuntimeError)                 an env raised; the original is the ``__cause__``
    │   ├── BadDataError                        an env returned what its spaces do not allow
    │   ├── SnapshotError                       an env's state cannot be copied
    │   ├── EnvTimeoutError                     an env did not answer within its time
    │   └── WorkerDiedError                     the process that held the env is gone
    ├── CheckpointError (ValueError)            a file is no checkpoint, or not of this version
    └── NoDisplayError                          a window was asked for where there is no display

    EnvInterrupt (BaseException)                raised inside of an env that has missed its deadline

*Closed* means that you did it, *died* that the world did it, *busy* that waiting helps. Every text
says what was expected, what came, and where.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

from gymnasium import error as gymnasium_error

__all__ = [
    "ActionError",
    "AgymcError",
    "BadDataError",
    "BatchLengthError",
    "BusyError",
    "CheckpointError",
    "ClosedError",
    "ConfigurationError",
    "EnvError",
    "EnvInterrupt",
    "EnvTimeoutError",
    "MissingExtraError",
    "NoDisplayError",
    "NotABatchError",
    "NothingInFlightError",
    "NumEnvsError",
    "PickleError",
    "RecvTimeoutError",
    "ResetNeededError",
    "SnapshotError",
    "SpaceMismatchError",
    "UnknownEngineError",
    "UnknownEnvError",
    "UnknownOptionError",
    "WorkerDiedError",
]


class AgymcError(Exception):
    """The root of all errors that agymc raises on purpose."""


class ConfigurationError(AgymcError, ValueError):
    """An argument of a door has a value that cannot work; nothing was built."""


class UnknownEngineError(ConfigurationError):
    """No engine has that name; the text lists those that exist."""


class UnknownOptionError(ConfigurationError, TypeError):
    """A keyword is neither an option of the door nor an argument of the env."""


class NumEnvsError(ConfigurationError):
    """``num_envs`` is not a positive integer, or differs from the number of env functions."""


class PickleError(ConfigurationError):
    """An env function or argument can't be sent to a worker process; names the object in it."""


class SpaceMismatchError(ConfigurationError, RuntimeError):
    """The spaces of the envs do not fit one batch; names the first env that differs."""


class UnknownEnvError(AgymcError, gymnasium_error.UnregisteredEnv):
    """No environment is registered under that id."""


class MissingExtraError(AgymcError, ImportError):
    """An optional package is not installed; the text ends with the command that installs it.

    Args:
        package: The package that could not be imported.
        extra: The extra of agymc that brings it.
        purpose: What it is needed for.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra, self.purpose = package, extra, purpose
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: "
            f"pip install 'agymc[{extra}]'"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.package, self.extra, self.purpose)


class BatchLengthError(AgymcError, ValueError):
    """A list or array does not have one element for each env it is meant for."""


class NotABatchError(BatchLengthError, TypeError):
    """Something that has no elements was given where one element per env was expected."""


class ActionError(AgymcError, ValueError):
    """An action is not an element of its space; raised before any env has seen the batch."""


class ClosedError(AgymcError, gymnasium_error.ClosedEnvironmentError):
    """The environments were closed before this call."""


class BusyError(AgymcError, gymnasium_error.AlreadyPendingCallError):
    """An env has an operation in flight, or a result that was not received yet."""

    def __init__(self, message: str, name: str = "operation") -> None:
        super().__init__(message, name)
        self.args = (message,)
        self.name = name


class NothingInFlightError(AgymcError, gymnasium_error.NoAsyncCallError):
    """Results were asked for, and nothing was sent that could give any."""

    def __init__(self, message: str, name: str = "operation") -> None:
        super().__init__(message, name)
        self.args = (message,)
        self.name = name


class ResetNeededError(AgymcError, gymnasium_error.ResetNeeded):
    """An env whose episode is over (or which failed) was to be stepped without a reset."""


class RecvTimeoutError(AgymcError, TimeoutError, multiprocessing.TimeoutError):
    """The time for the whole call is over. Nothing is lost: what is in flight stays receivable."""


class EnvError(AgymcError, RuntimeError):
    """An env raised; its own exception, with its traceback, is the ``__cause__``.

    Attributes:
        env_ids: The envs concerned, usually one.
        operation: What was being done: "construction", "reset", "step", "call 'name'", ...
        engine: The name of the engine.
        seed: The seed of the env's last seeded reset, or None.
        others: The errors of further envs that failed in the same batch.
    """

    def __init__(
        self,
        message: str,
        *,
        env_ids: Sequence[int] = (),
        operation: str = "",
        engine: str = "",
        seed: int | None = None,
        others: Sequence[EnvError] = (),
    ) -> None:
        super().__init__(message)
        self.env_ids = tuple(env_ids)
        self.operation = operation
        self.engine = engine
        self.seed = seed
        self.others = tuple(others)

    @property
    def env_id(self) -> int | None:
        """The env concerned, or None where there is none or more than one."""
        return self.env_ids[0] if len(self.env_ids) == 1 else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[EnvError], args: tuple[Any, ...], state: dict[str, Any]) -> EnvError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class BadDataError(EnvError):
    """An env returned what its spaces or Gymnasium's API do not allow."""


class SnapshotError(EnvError):
    """The state of an env cannot be copied, or does not fit the env it was given to."""


class EnvTimeoutError(EnvError):
    """An env did not answer within the time that the `FaultPolicy` gives it.

    No TimeoutError: that is for who may wait again, see `RecvTimeoutError`.

    The cause is the `EnvInterrupt` that ended it, with the traceback of where it hung; or, where it
    could not be interrupted, its stack.
    """


class WorkerDiedError(EnvError):
    """The process that held these envs is gone.

    Attributes:
        exit_code: The exit code, or None when a signal ended the process.
        signal: The name of the signal ("SIGKILL"), or None.
    """

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        **where: Any,
    ) -> None:
        super().__init__(message, **where)
        self.exit_code = exit_code
        self.signal = signal


class CheckpointError(AgymcError, ValueError):
    """A file is no checkpoint, is damaged, or does not fit what it was to be restored into."""


class EnvInterrupt(BaseException):
    """Raised by agymc inside of an env that has missed its deadline, so that it stops.

    No `Exception`, so that ``except Exception`` in the env does not swallow it.
    """


class NoDisplayError(AgymcError):
    """A window was asked for on a machine without a display."""
