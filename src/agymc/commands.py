"""What travels between a pool and its slots: commands, replies, and exceptions in transit."""

from __future__ import annotations

import enum
import os
import pickle
import traceback
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, cast

import cloudpickle

from agymc.errors import EnvError
from agymc.faults import FaultPolicy
from agymc.types import EnvFn

__all__ = [
    "CLOSED",
    "Command",
    "Completion",
    "EnvReport",
    "Fault",
    "RemoteTraceback",
    "Reply",
    "Restart",
    "text_of",
    "timeouts_of",
]


_PACKAGE = os.path.join(os.path.dirname(__file__), "")

CLOSED = object()
"""The value of CLOSE, which tells its reply from that of an operation that came before."""


class Command(enum.IntEnum):
    """What a slot can be asked to do. The payload of each is named beside it."""

    BUILD = 0  # the env function
    STEP = 1  # the action
    RESET = 2  # (seed, options)
    CALL = 3  # (name, args, kwargs)
    SET = 4  # (name, value)
    RENDER = 5  # None
    SNAPSHOT = 6  # None
    RESTORE = 7  # bytes
    CLOSE = 8  # None
    GET = 9  # name; gives (whether it is callable, the value if it is not)
    RESTART = 10  # a Restart


def timeouts_of(policy: FaultPolicy) -> list[float]:
    """Seconds that each command may take, by its number; infinity where there is no limit."""
    limits = [policy.call_timeout] * len(Command)
    limits[Command.BUILD] = limits[Command.RESTART] = policy.startup_timeout
    limits[Command.STEP] = policy.step_timeout
    limits[Command.RESET] = policy.reset_timeout
    limits[Command.CLOSE] = None
    return [inf if limit is None else limit for limit in limits]


@dataclass(frozen=True, slots=True)
class Restart:
    """How to rebuild an env.

    Attributes:
        env_fn: Makes it.
        seed: Of the reset that follows.
        options: The same.
        episode: The number of the episode that came to its end.
        begin: Whether the slot's row is to show the new episode at once. Else it is what the next
            autoreset begins with.
    """

    env_fn: EnvFn
    seed: int | None
    options: dict[str, Any] | None
    episode: int
    begin: bool


class Fault:
    """An exception on its way from where it was raised to where it is told.

    Inside one process it simply holds the exception. When pickled, it takes along the exception
    where that can be pickled, and in any case its type, text and traceback, from which a stand-in
    of the same name, text and built-in bases is made on the other side, see `_Sent`.

    Attributes:
        operation: What the slot was doing: "step", "autoreset", "construction", ...
        data: Whether agymc refused what the env returned, as opposed to the env raising.
        transit: What did not come through, as a verb's phrase, where it was neither.
        late: Whether the env had missed its deadline by then, and was interrupted.
    """

    __slots__ = ("_exception", "_sent", "data", "late", "operation", "transit")

    def __init__(
        self,
        exception: BaseException,
        operation: str = "",
        *,
        data: bool = False,
        transit: str | None = None,
        late: bool = False,
    ) -> None:
        self._exception: BaseException | None = exception
        self._sent: tuple[Any, ...] = ()
        self.operation = operation
        self.data = data
        self.transit = transit
        self.late = late

    @property
    def exception(self) -> BaseException:
        """The original exception, or its stand-in; a remote one has its traceback as its cause."""
        if self._exception is None:
            self._exception = _received(*self._sent)
        return self._exception

    @property
    def lines(self) -> str:
        """Its traceback, as text."""
        cause = self.exception.__cause__
        return cause.text if isinstance(cause, RemoteTraceback) else _lines(self.exception)

    def __getstate__(self) -> tuple[Any, ...]:
        sent = self._sent if self._exception is None else _sendable(self._exception)
        return sent, self.operation, self.data, self.transit, self.late

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._exception = None
        self._sent, self.operation, self.data, self.transit, self.late = state


class RemoteTraceback(Exception):
    """The traceback of an exception that was raised in another process, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def text_of(exception: BaseException) -> str:
    """``str(exception)``, or what can be said instead where that raises."""
    try:
        return str(exception)
    except Exception as error:
        return f"<no text: its __str__ raised {type(error).__name__}>"


class _Sent(NamedTuple):
    """An exception in transit: several ways to have it again, the best first.

    Attributes:
        whole: Its pickle, where that gives the same again.
        parts: The pickle of its class, args and attributes: many exceptions are pickled as a call
            of their class with ``args``, which is not how they were made.
        module: Where its class was defined.
        qualname: The name of its class.
        bases: The built-in classes among the bases of its class.
        members: The exceptions of a group.
        text: Its text.
        lines: Its traceback.
    """

    whole: bytes | None
    parts: bytes | None
    module: str
    qualname: str
    bases: tuple[type[BaseException], ...]
    members: list[_Sent]
    text: str
    lines: str


def _sendable(exception: BaseException) -> _Sent:
    kind = type(exception)
    text = text_of(exception)
    bases: list[type[BaseException]] = []
    for base in kind.__mro__:
        if (
            base.__module__ == "builtins"
            and issubclass(base, BaseException)
            and not any(issubclass(other, base) for other in bases)
        ):
            bases.append(base)
    members = exception.exceptions if isinstance(exception, BaseExceptionGroup) else ()
    # Only what comes back whole is worth sending; many exceptions pickle and don't unpickle.
    whole = _pickled(exception, text)
    parts = None if whole is not None or members else _pickled_parts(exception, text)
    return _Sent(
        whole,
        parts,
        kind.__module__,
        kind.__qualname__,
        tuple(bases),
        [] if whole is not None else [_sendable(member) for member in members],
        text,
        _lines(exception),
    )


def _lines(exception: BaseException) -> str:
    return "".join(traceback.format_exception(type(exception), exception, _of_the_env(exception)))


def _of_the_env(exception: BaseException) -> TracebackType | None:
    """Its traceback without our own frames, down to the first of the env."""
    frames = exception.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return frames or exception.__traceback__


def _pickled(exception: BaseException, text: str) -> bytes | None:
    try:
        pickled = bytes(cloudpickle.dumps(exception))
        again = pickle.loads(pickled)
        return pickled if type(again) is type(exception) and text_of(again) == text else None
    except Exception:
        return None


def _pickled_parts(exception: BaseException, text: str) -> bytes | None:
    args = exception.args if _travels(exception.args) else (text,)
    state = {key: value for key, value in vars(exception).items() if _travels(value)}
    try:
        pickled = bytes(cloudpickle.dumps((type(exception), args, state)))
        return pickled if text_of(_assembled(pickled)) == text else None
    except Exception:
        return None


def _travels(value: Any) -> bool:
    try:
        pickle.loads(cloudpickle.dumps(value))
    except Exception:
        return False
    return True


def _assembled(pickled: bytes) -> BaseException:
    kind, args, state = pickle.loads(pickled)
    exception: BaseException = kind.__new__(kind, *args)
    exception.args = args
    exception.__dict__.update(state)
    return exception


def _received(*sent: Any) -> BaseException:
    this = _Sent(*sent)
    exception: BaseException | None = None
    try:
        if this.whole is not None:
            exception = pickle.loads(this.whole)
        elif this.parts is not None:
            exception = _assembled(this.parts)
    except Exception:
        pass  # its class can't be imported here: the stand-in says as much as it can
    if not isinstance(exception, BaseException):
        exception = _stand_in(this)
    exception.__cause__ = RemoteTraceback(this.lines)
    return exception


def _stand_in(this: _Sent) -> BaseException:
    text = this.text
    name = this.qualname.rpartition(".")[2]
    members = {"__module__": this.module, "__qualname__": this.qualname, "__str__": lambda _: text}
    kind: Any = type(name, this.bases, members)
    if this.members:
        return cast("BaseException", kind(text, [_received(*member) for member in this.members]))
    exception: BaseException = kind.__new__(kind)
    exception.args = (text,)
    return exception


@dataclass(slots=True)
class Reply:
    """What a slot has to say beyond its row of the buffers. Most steps say nothing.

    Attributes:
        info: The env's info, or None for an empty one.
        objects: The values of the observation's object leaves, or None where there are none.
        value: The result of a call, a frame, a snapshot, an `EnvReport`.
        fault: What went wrong, or None.
        error: What is to be raised for that, where the caller's side knows better.
    """

    info: dict[str, Any] | None = None
    objects: list[Any] | None = None
    value: Any = None
    fault: Fault | None = None
    error: EnvError | None = None


@dataclass(slots=True)
class Completion:
    """Operations that ended: the slots, and the replies of those that have something to say.

    Attributes:
        positions: Positions within the shard; None for all slots of the shard.
        replies: ``(position, reply)`` pairs.
    """

    positions: list[int] | None
    replies: list[tuple[int, Reply]]


@dataclass(slots=True)
class EnvReport:
    """What a pool must know of an env once it is built."""

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    render_mode: str | None
    reward_space: Any
    is_coroutine: bool = False
