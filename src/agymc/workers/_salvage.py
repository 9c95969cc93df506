"""Unpickles what can be unpickled of something that can't as a whole.

Replies of many slots travel in one pickle. When one of them holds an object that doesn't come back
(its class can't be imported here, its ``__setstate__`` raises), the others must not be lost with
it. This is the slow way, which is gone only then.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Broken", "find_broken", "salvage"]


class Broken:
    """What stands for an object that could not be had.

    Attributes:
        error: Why not.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def _ignore(self, *_: Any, **__: Any) -> Broken:
        return self

    # What the pickle goes on to do with the object.
    __call__ = __setstate__ = __setitem__ = append = extend = add = update = _ignore


def find_broken(value: Any) -> Broken | None:
    """The first `Broken` in dicts, lists, tuples and sets."""
    if isinstance(value, Broken):
        return value
    parts: Any = ()
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    return next((broken for part in parts if (broken := find_broken(part)) is not None), None)


def salvage(pickled: bytes, buffers: Sequence[Any]) -> tuple[Any, list[Exception]]:
    """What is in the pickle, with `Broken` where it must be; and every reason for one."""
    unpickler = _Salvager(io.BytesIO(pickled), buffers=buffers)
    return unpickler.load(), unpickler.errors


def _guarded(load: Callable[[Any], None], *, replaces: bool) -> Callable[[Any], None]:
    """The loader of one opcode, which leaves a `Broken` on the stack when it fails."""

    def guarded(self: Any) -> None:
        try:
            load(self)
        except Exception as error:
            self.errors.append(error)
            if replaces:  # what the object was to be made from is still there, in its place
                self.stack.pop()
            self.append(Broken(error))

    return guarded


class _Salvager(pickle._Unpickler):
    """The unpickler in Python, whose opcodes can be guarded one by one."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: io.BytesIO, *, buffers: Sequence[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self.errors: list[Exception] = []


for _opcode, _replaces in (
    (pickle.GLOBAL, False),
    (pickle.STACK_GLOBAL, False),
    (pickle.NEWOBJ, False),
    (pickle.NEWOBJ_EX, False),
    (pickle.REDUCE, True),
    (pickle.BUILD, True),
):
    _load = _Salvager.dispatch[_opcode[0]]
    _Salvager.dispatch[_opcode[0]] = _guarded(_load, replaces=_replaces)
