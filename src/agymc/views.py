"""Broadcast views: one attribute or call for all envs."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from agymc.commands import Command
from agymc.errors import BatchLengthError, ConfigurationError, EnvError
from agymc.pool import Pool
from agymc.seeding import spread_seeds

__all__ = ["EnvView", "EnvsView", "SpacesView", "View"]


class View:
    """Many objects seen as one: an attribute gives a tuple, a call gives a list of results.

    ``view[i]`` is the i-th object; ``len(view)`` is their number. Of a view of dicts, ``view[key]``
    is a tuple of the values of that key.
    """

    def __init__(self, objects: Sequence[Any]) -> None:
        self._objects = tuple(objects)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_objects":
            raise AttributeError(name)
        values = tuple(getattr(one, name) for one in self._objects)
        if all(map(callable, values)):
            return lambda *args, **kwargs: [value(*args, **kwargs) for value in values]
        return values

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._objects[key]
        try:
            index = operator.index(key)
        except TypeError:
            return tuple(one[key] for one in self._objects)
        return self._objects[index]

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._objects)

    def __repr__(self) -> str:
        texts = list(map(repr, self._objects))
        if texts.count(texts[0]) == len(texts):
            return f"<{len(texts)} x {texts[0]}>"
        return f"<{', '.join(texts)}>"


class SpacesView(View):
    """A view of the envs' spaces, each with a random generator of its own."""

    def sample(self) -> list[Any]:
        """One sample of each space."""
        return [space.sample() for space in self._objects]

    def seed(self, seed: Any = None) -> list[Any]:
        """Seed each space: an integer s gives s + i to the i-th, a list one to each."""
        seeds = spread_seeds(seed, len(self))
        return [space.seed(own) for space, own in zip(self._objects, seeds, strict=True)]

    def contains(self, values: Sequence[Any]) -> list[bool]:
        """Whether each value is in the space of its env.

        Raises:
            BatchLengthError: Not one value per env.
        """
        if len(values) != len(self):
            raise BatchLengthError(f"expected {len(self)} values, one per env, got {len(values)}")
        return [
            bool(space.contains(value)) for space, value in zip(self._objects, values, strict=True)
        ]


class EnvsView:
    """A view of the envs themselves, wherever they live; ``view[i]`` is one of them.

    An attribute is looked up in each env, through its wrappers: ``view.gravity`` is a tuple of
    values, ``view.method(x)`` a list of results, all envs at work at the same time;
    ``view.gravity = 9.8`` sets it in all. What comes from envs in other processes are copies.

    Raises:
        AttributeError: An env has no such attribute.
        EnvError: An env raised.
    """

    def __init__(self, pool: Pool) -> None:
        object.__setattr__(self, "_pool", pool)

    _pool: Pool

    def __getattr__(self, name: str) -> Any:
        is_callable, values = _get(self._pool, None, name)
        if not is_callable:
            return values

        def call(*args: Any, **kwargs: Any) -> list[Any]:
            return _call(self._pool, None, name, args, kwargs)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        self._pool.request(Command.SET, None, [(name, value)] * self._pool.num_envs)

    @overload
    def __getitem__(self, index: int) -> EnvView: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[EnvView, ...]: ...
    def __getitem__(self, index: int | slice) -> EnvView | tuple[EnvView, ...]:
        """The view of one env, or a tuple of such."""
        ids = range(self._pool.num_envs)
        if isinstance(index, slice):
            return tuple(EnvView(self._pool, i) for i in ids[index])
        try:
            return EnvView(self._pool, ids[index])
        except IndexError:
            raise IndexError(f"expected an env from 0 to {len(ids) - 1}, got {index}") from None

    def __len__(self) -> int:
        return self._pool.num_envs

    def __iter__(self) -> Iterator[EnvView]:
        return iter(self[:])

    def __repr__(self) -> str:
        return f"<view of {len(self)} envs>"


class EnvView:
    """A view of one env, wherever it lives: as `EnvsView`, with single values."""

    def __init__(self, pool: Pool, index: int) -> None:
        object.__setattr__(self, "_pool", pool)
        object.__setattr__(self, "_index", index)

    _pool: Pool
    _index: int

    def __getattr__(self, name: str) -> Any:
        is_callable, values = _get(self._pool, self._index, name)
        if not is_callable:
            return values[0]

        def call(*args: Any, **kwargs: Any) -> Any:
            return _call(self._pool, self._index, name, args, kwargs)[0]

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        self._pool.request(Command.SET, np.array([self._index]), [(name, value)])

    def __repr__(self) -> str:
        return f"<view of env {self._index}>"


_KEPT: dict[str, str] = {
    "reset": "the episode would begin without the batch knowing",
    "step": "the batch would miss the step",
    "close": "the env would be gone",
}


def _request(pool: Pool, index: int | None, command: Command, payload: Any) -> list[Any]:
    if index is None:
        return pool.request(command, None, [payload] * pool.num_envs)
    return pool.request(command, np.array([index]), [payload])


def _get(pool: Pool, index: int | None, name: str) -> tuple[bool, tuple[Any, ...]]:
    """Whether an attribute is a method in all envs, and its values if it is not.

    A method that only some of the envs have is None in the values of those.
    """
    # Special methods are looked for by copy, pickle and others: they are the view's own affair.
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        answers = _request(pool, index, Command.GET, name)
    except EnvError as error:
        if isinstance(error.__cause__, AttributeError):  # so that hasattr() works
            raise AttributeError(str(error)) from error
        raise
    return all(is_callable for is_callable, _ in answers), tuple(value for _, value in answers)


def _call(
    pool: Pool, index: int | None, name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[Any]:
    if name in _KEPT:
        raise ConfigurationError(f"call {name}() of the batch, not of `unwrapped`: {_KEPT[name]}")
    return _request(pool, index, Command.CALL, (name, tuple(args), kwargs))
