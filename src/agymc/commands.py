"""What travels between a pool and its slots: commands, replies, and exceptions in transit."""

from __future__ import annotations

import enum
import pickle
import traceback
from dataclasses import dataclass
from typing import Any

import cloudpickle

__all__ = ["Command", "Completion", "EnvReport", "Fault", "RemoteTraceback", "Reply"]


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


class Fault:
    """An exception on its way from where it was raised to where it is told.

    Inside one process it simply holds the exception. When pickled, it takes along the exception
    where that can be pickled, and in any case its type, text and traceback, from which a stand-in
    of the same name, text and built-in bases is made on the other side.

    Attributes:
        operation: What the slot was doing: "step", "autoreset", "construction", ...
        data: Whether agymc refused what the env returned, as opposed to the env raising.
    """

    __slots__ = ("_exception", "_sent", "data", "operation")

    def __init__(self, exception: BaseException, operation: str, *, data: bool = False) -> None:
        self._exception: BaseException | None = exception
        self._sent: tuple[Any, ...] = ()
        self.operation = operation
        self.data = data

    @property
    def exception(self) -> BaseException:
        """The original exception, or its stand-in; a remote one has its traceback as its cause."""
        if self._exception is None:
            self._exception = _received(*self._sent)
        return self._exception

    def __getstate__(self) -> tuple[Any, ...]:
        sent = self._sent if self._exception is None else _sendable(self._exception)
        return sent, self.operation, self.data

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._exception = None
        self._sent, self.operation, self.data = state


class RemoteTraceback(Exception):
    """The traceback of an exception that was raised in another process, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def _sendable(exception: BaseException) -> tuple[Any, ...]:
    lines = "".join(traceback.format_exception(exception))
    try:
        text = str(exception)
    except Exception as error:
        text = f"<its text can't be had: {error!r}>"
    kind = type(exception)
    bases = [base for base in kind.__mro__ if base.__module__ == "builtins" and base is not object]
    try:
        # Only what comes back whole is worth sending; many exceptions pickle and don't unpickle.
        pickled = cloudpickle.dumps(exception)
        if str(pickle.loads(pickled)) != text:
            pickled = None
    except Exception:
        pickled = None
    return pickled, kind.__module__, kind.__qualname__, bases[0], text, lines


def _received(
    pickled: bytes | None,
    module: str,
    qualname: str,
    base: type[BaseException],
    text: str,
    lines: str,
) -> BaseException:
    exception: BaseException | None = None
    if pickled is not None:
        try:
            loaded = pickle.loads(pickled)
            exception = loaded if isinstance(loaded, BaseException) else None
        except Exception:
            exception = (
                None  # its class can't be imported here: the stand-in says as much as it can
            )
    if exception is None:
        stand_in: type[BaseException] = type(
            qualname.rpartition(".")[2],
            (base,),
            {"__module__": module, "__qualname__": qualname, "__str__": lambda self: text},
        )
        exception = stand_in.__new__(stand_in)
        exception.args = (text,)
    exception.__cause__ = RemoteTraceback(lines)
    return exception


@dataclass(slots=True)
class Reply:
    """What a slot has to say beyond its row of the buffers. Most steps say nothing.

    Attributes:
        info: The env's info, or None for an empty one.
        objects: The values of the observation's object leaves, or None where there are none.
        value: The result of a call, a frame, a snapshot, an `EnvReport`.
        fault: What went wrong, or None.
    """

    info: dict[str, Any] | None = None
    objects: list[Any] | None = None
    value: Any = None
    fault: Fault | None = None


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
