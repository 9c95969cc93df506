"""Broadcast views: one attribute or call for all envs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from agymc.commands import Command
from agymc.pool import Pool
from agymc.seeding import spread_seeds

__all__ = ["EnvsView", "SpacesView", "View"]


class View:
    """Many objects seen as one: an attribute gives a tuple, a call gives a list of results.

    ``view[i]`` is the i-th object; ``len(view)`` is their number.
    """

    def __init__(self, objects: Sequence[Any]) -> None:
        self._objects = tuple(objects)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        values = tuple(getattr(one, name) for one in self._objects)
        if all(map(callable, values)):
            return lambda *args, **kwargs: [value(*args, **kwargs) for value in values]
        return values

    def __getitem__(self, key: Any) -> Any:
        """The object with that index; of a view of dicts, also a tuple of the values of a key."""
        if isinstance(key, int | slice):
            return self._objects[key]
        return tuple(one[key] for one in self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._objects)

    def __repr__(self) -> str:
        first = repr(self._objects[0])
        if all(repr(one) == first for one in self._objects):
            return f"<{len(self)} x {first}>"
        return f"<{', '.join(map(repr, self._objects))}>"


class SpacesView(View):
    """A view of the envs' spaces, each with a random generator of its own."""

    def seed(self, seed: Any = None) -> list[Any]:
        """Seed each space: an integer s gives s + i to the i-th, a list one to each."""
        seeds = spread_seeds(seed, len(self))
        return [space.seed(own) for space, own in zip(self._objects, seeds, strict=True)]

    def contains(self, values: Sequence[Any]) -> list[bool]:
        """Whether each value is in the space of its env."""
        return [space.contains(v) for space, v in zip(self._objects, values, strict=True)]


class EnvsView:
    """A view of the envs themselves, wherever they live.

    Reading and setting attributes and calling methods reach all envs; ``view[i]`` is one of them.
    Values of envs in other processes are copies.
    """

    def __init__(self, pool: Pool, index: int | None = None) -> None:
        object.__setattr__(self, "_pool", pool)
        object.__setattr__(self, "_index", index)

    _pool: Pool
    _index: int | None

    def _request(self, command: Command, payload: Any) -> list[Any]:
        if self._index is None:
            return self._pool.request(command, None, [payload] * self._pool.num_envs)
        return self._pool.request(command, np.array([self._index]), [payload])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        answers = self._request(Command.GET, name)
        single = self._index is not None
        if all(is_callable for is_callable, _ in answers):

            def call(*args: Any, **kwargs: Any) -> Any:
                results = self._request(Command.CALL, (name, args, kwargs))
                return results[0] if single else results

            return call
        values = tuple(value for _, value in answers)
        return values[0] if single else values

    def __setattr__(self, name: str, value: Any) -> None:
        self._request(Command.SET, (name, value))

    def __getitem__(self, index: int) -> EnvsView:
        return EnvsView(self._pool, range(self._pool.num_envs)[index])

    def __len__(self) -> int:
        return self._pool.num_envs

    def __iter__(self) -> Iterator[EnvsView]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        which = "all" if self._index is None else self._index
        return f"<EnvsView of {which}, {len(self)} envs>"
