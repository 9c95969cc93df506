"""Which object inside of a function can't be pickled."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import cloudpickle

__all__ = ["find_unpicklable", "find_unpicklable_in_env_fn"]

_DEPTH = 6


def find_unpicklable(obj: Any, name: str) -> str | None:
    """The innermost object within ``obj`` that can't be pickled, and the way to it.

    Args:
        obj: What can't be pickled.
        name: What to call it.

    Returns:
        "PATH is a TYPE: REASON", or None when ``obj`` can be pickled after all.
    """
    reason = _reason(obj)
    if reason is None:
        return None
    path = name
    seen = {id(obj)}
    for _ in range(_DEPTH):
        for step, part in _parts(obj):
            if id(part) in seen:
                continue
            seen.add(id(part))
            inner = _reason(part)
            if inner is not None:
                obj, reason, path = part, inner, f"{path}{step}"
                break
        else:
            break
    return f"{path} is a {type(obj).__module__}.{type(obj).__qualname__} ({reason})"


def _reason(obj: Any) -> str | None:
    try:
        cloudpickle.dumps(obj)
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds that is pickled along with it."""
    if isinstance(obj, functools.partial):
        yield ".func", obj.func
        yield from ((f".args[{i}]", part) for i, part in enumerate(obj.args))
        yield from ((f".keywords[{key!r}]", part) for key, part in obj.keywords.items())
    elif inspect.ismethod(obj):
        yield ".__self__", obj.__self__
    elif inspect.isfunction(obj):
        variables = inspect.getclosurevars(obj)
        yield from ((f" -> variable {key!r}", part) for key, part in variables.nonlocals.items())
        yield from ((f" -> global {key!r}", part) for key, part in variables.globals.items())
        yield from ((f" -> default {i}", part) for i, part in enumerate(obj.__defaults__ or ()))
    elif isinstance(obj, dict):
        yield from ((f"[{key!r}]", part) for key, part in obj.items())
    elif isinstance(obj, list | tuple | set | frozenset):
        yield from ((f"[{i}]", part) for i, part in enumerate(obj))
    else:
        attributes = getattr(obj, "__dict__", None)
        if isinstance(attributes, dict):
            yield from ((f".{key}", part) for key, part in attributes.items())


def find_unpicklable_in_env_fn(env_fn: Any, name: str) -> str | None:
    """The same for an env function: what the user gave lies in what a door made of it."""
    source = getattr(env_fn, "source", env_fn)
    return find_unpicklable(source, name) or find_unpicklable(env_fn, name)
