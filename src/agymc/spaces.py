"""How one env's data lies in a batch: spaces as trees of leaves, leaves as columns.

A space is flattened into *leaves*. A leaf of fixed shape and dtype (Box, Discrete, MultiDiscrete,
MultiBinary) is an *array leaf*: its column is an array ``(num_envs, *shape)``. Any other space
(Text, Graph, Sequence, OneOf, custom ones) is an *object leaf*: its column is a list of
``num_envs`` objects. Dict and Tuple are the inner nodes. Batches have the form that
`gymnasium.vector.utils` gives them: arrays, dicts and tuples of arrays, tuples of objects.

Everything that enters a column goes through `cast`, so an observation of the wrong shape can't be
broadcast into a row, and an action that would lose its value in the space's dtype is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from agymc.errors import ActionError, BatchLengthError, NotABatchError

__all__ = [
    "ArrayLeaf",
    "Columns",
    "Layout",
    "Misfit",
    "ObjectLeaf",
    "any_true",
    "cast",
    "checker_of",
    "detach",
    "flat_view",
]

Columns: TypeAlias = "list[NDArray[Any] | list[Any]]"
"""One column per leaf: an array ``(num_envs, *shape)``, or a list of ``num_envs`` objects."""

Rows: TypeAlias = "slice | NDArray[np.int64]"
"""Which rows of the columns: all of them, or those of some envs in this order."""

_Path: TypeAlias = tuple[str | int, ...]


class Misfit(ValueError):
    """A value does not fit where it was to be written: "expected X, got Y, at Z"."""


@dataclass(frozen=True, slots=True)
class ArrayLeaf:
    """A leaf with a fixed shape and dtype."""

    path: _Path
    space: Space[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    lowest: NDArray[Any]
    highest: NDArray[Any]

    def outside(self, values: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Which of k ``values`` (k, *shape) are not in the space: a (k,) mask, None for none."""
        inside = (values >= self.lowest) & (values <= self.highest)
        if b"\0" not in inside.tobytes():  # `all`, four times as fast for a small batch
            return None
        outside: NDArray[np.bool_] = ~inside
        return np.asarray(outside.reshape(len(values), -1).any(axis=1), np.bool_)


@dataclass(frozen=True, slots=True)
class ObjectLeaf:
    """A leaf whose values are objects."""

    path: _Path
    space: Space[Any]

    def contains(self, value: object) -> bool:
        """Whether ``value`` is in the space; a space that can't tell is taken at its word."""
        try:
            return bool(self.space.contains(value))
        except Exception:  # a custom space whose `contains` has no answer for this value
            return True


def _array_leaf(path: _Path, space: Space[Any]) -> ArrayLeaf | None:
    lowest: NDArray[Any]
    highest: NDArray[Any]
    match space:
        case spaces.Box():
            lowest, highest = space.low, space.high
        case spaces.Discrete():
            lowest = np.asarray(space.start, dtype=space.dtype)
            highest = np.asarray(space.start + space.n - 1, dtype=space.dtype)
        case spaces.MultiDiscrete():
            lowest, highest = space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            lowest, highest = np.asarray(0, space.dtype), np.asarray(1, space.dtype)
        case _:
            return None
    shape = tuple(space.shape or ())
    return ArrayLeaf(path, space, shape, np.dtype(space.dtype), lowest, highest)


class _Picker:
    """Gives the i-th value of each leaf."""

    __slots__ = ("_parts", "_row")

    def __init__(self, parts: list[list[Any]], row: int) -> None:
        self._parts = parts
        self._row = row

    def __call__(self, leaf: int) -> Any:
        return self._parts[leaf][self._row]


class Layout:
    """The leaves of a space, and how batches of its elements are written and read.

    Args:
        space: The space of one env (not of the batch).

    Attributes:
        space: The space.
        leaves: Its leaves.
        object_leaves: The numbers of the object leaves among them.
        array: The leaf, where the space is one array leaf and nothing else; or None.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space = space
        self.leaves: list[ArrayLeaf | ObjectLeaf] = []
        self._tree = self._flatten(space, ())
        self.object_leaves = [
            number for number, leaf in enumerate(self.leaves) if isinstance(leaf, ObjectLeaf)
        ]
        only = self.leaves[0] if isinstance(self._tree, int) else None
        self.array = only if isinstance(only, ArrayLeaf) else None

    def _flatten(self, space: Space[Any], path: _Path) -> Any:
        """A tree like the space's, with the number of the leaf in place of each leaf."""
        if isinstance(space, spaces.Dict):
            return {key: self._flatten(sub, (*path, key)) for key, sub in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._flatten(sub, (*path, i)) for i, sub in enumerate(space.spaces))
        self.leaves.append(_array_leaf(path, space) or ObjectLeaf(path, space))
        return len(self.leaves) - 1

    # ------------------------------------------------------------------ writing single elements

    def writer(self, columns: Columns, row: int) -> Callable[[Any], None]:
        """A function that writes one element of the space into ``row`` of the columns.

        It raises Misfit, "expected X, got Y, at Z", when the element does not fit.
        """
        writers = [
            self._leaf_writer(leaf, column, row)
            for leaf, column in zip(self.leaves, columns, strict=True)
        ]
        if isinstance(self._tree, int):
            return writers[0]

        def write(value: Any) -> None:
            for number, part in self._parts(self._tree, value, ()):
                writers[number](part)

        return write

    @staticmethod
    def _leaf_writer(
        leaf: ArrayLeaf | ObjectLeaf, column: NDArray[Any] | list[Any], row: int
    ) -> Callable[[Any], None]:
        if isinstance(leaf, ObjectLeaf):

            def write_object(value: Any) -> None:
                column[row] = detach(value)  # the env may fill the same one again

            return write_object

        shape, dtype, path = leaf.shape, leaf.dtype, leaf.path
        assert isinstance(column, np.ndarray)
        view = column[row, ...]  # an array also for shape (), where column[row] is a scalar
        array = np.ndarray
        flat = flat_view(column)
        if flat is not None:
            place = slice(row * shape[0], (row + 1) * shape[0])

            def write_vector(value: Any) -> None:
                try:
                    flat[place] = value
                except (TypeError, ValueError):
                    view[...] = cast(value, shape, dtype, path)

            return write_vector

        # The hot path: an array of the right kind costs three comparisons and one assignment.
        def write_array(value: Any) -> None:
            if value.__class__ is array and value.dtype is dtype and value.shape == shape:
                view[...] = value
            else:
                view[...] = cast(value, shape, dtype, path)

        return write_array

    def parts(self, value: Any) -> Iterator[tuple[int, Any]]:
        """The (leaf number, part) pairs of one element; Misfit where it is built otherwise."""
        return self._parts(self._tree, value, ())

    def _parts(self, tree: Any, value: Any, path: _Path) -> Iterator[tuple[int, Any]]:
        """The (leaf number, part) pairs of ``value``, which must be built like ``tree``."""
        if isinstance(tree, int):
            yield tree, value
        elif isinstance(tree, dict):
            if not isinstance(value, Mapping):
                raise Misfit(
                    f"expected a dict with the keys {sorted(map(str, tree))}, "
                    f"got {_describe(value)}{_at(path)}"
                )
            for key, sub in tree.items():
                if key not in value:
                    raise Misfit(
                        f"expected a dict with the keys {sorted(map(str, tree))}, "
                        f"got one with the keys {sorted(map(str, value))}{_at(path)}"
                    )
                yield from self._parts(sub, value[key], (*path, key))
        else:
            if not isinstance(value, Sequence | np.ndarray) or len(value) != len(tree):
                raise Misfit(
                    f"expected a tuple of {len(tree)} elements, got {_describe(value)}{_at(path)}"
                )
            for number, (sub, part) in enumerate(zip(tree, value, strict=True)):
                yield from self._parts(sub, part, (*path, number))

    # ------------------------------------------------------------------ reading batches

    def batch(self, columns: Columns, rows: Rows = slice(None), *, copy: bool = True) -> Any:
        """The elements of some rows as one batch.

        Args:
            columns: The columns to read.
            rows: Which rows, in which order; all of them by default.
            copy: False hands out the columns themselves where ``rows`` is a slice.
        """
        if self.array is not None:
            array = columns[0]
            return array[rows] if not (copy and isinstance(rows, slice)) else array[rows].copy()

        def read(number: int) -> Any:
            column = columns[number]
            if isinstance(column, list):
                chosen = column[rows] if isinstance(rows, slice) else [column[i] for i in rows]
                return tuple(map(detach, chosen) if copy else chosen)
            part = column[rows]
            return part.copy() if copy and isinstance(rows, slice) else part

        return self._map(self._tree, read)

    def columns_of(self, batch: Any) -> Columns:
        """The columns that a batched element consists of."""
        columns: Columns = [[] for _ in self.leaves]
        for number, part in self._parts(self._tree, batch, ()):
            columns[number] = part if isinstance(part, np.ndarray) else list(part)
        return columns

    def elements(self, columns: Columns, rows: Rows = slice(None)) -> list[Any]:
        """The elements of some rows, one by one, as a batch of actions is handed to single envs.

        They are copies: an env may keep what it was given. A leaf of shape () gives scalars of
        the space's dtype.
        """
        if self.array is not None:
            column = columns[0]
            assert isinstance(column, np.ndarray)
            return list(column[rows].copy() if isinstance(rows, slice) else column[rows])
        parts: list[list[Any]] = []
        for column in columns:
            if isinstance(column, np.ndarray):
                parts.append(list(column[rows].copy() if isinstance(rows, slice) else column[rows]))
            else:
                chosen = column[rows] if isinstance(rows, slice) else [column[i] for i in rows]
                parts.append([detach(value) for value in chosen])
        if parts:
            count = len(parts[0])
        else:  # a dict or tuple of nothing
            count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        return [self._map(self._tree, _Picker(parts, i)) for i in range(count)]

    def _map(self, tree: Any, function: Callable[[int], Any]) -> Any:
        if isinstance(tree, int):
            return function(tree)
        if isinstance(tree, dict):
            return {key: self._map(sub, function) for key, sub in tree.items()}
        return tuple(self._map(sub, function) for sub in tree)

    # ------------------------------------------------------------------ writing batches of actions

    def write_batch(
        self,
        columns: Columns,
        batch: Any,
        env_ids: NDArray[np.int64] | None,
        num_envs: int,
        *,
        check: bool = True,
        unused: NDArray[np.bool_] | None = None,
    ) -> None:
        """Write a batch of actions into the rows of the envs that they are for, or change nothing.

        Args:
            columns: Where to write.
            batch: A batched element (arrays ``(k, *shape)``, dicts or tuples of them), or a list
                of k single elements.
            env_ids: (k,) the envs; None for all ``num_envs``.
            num_envs: The number of rows of the columns.
            check: Whether to refuse actions that are outside of the space.
            unused: (k,) which actions nobody will look at; they may be outside.

        Raises:
            BatchLengthError: ``batch`` has not k elements.
            ActionError: An action does not fit its space; it names env, leaf and value.
        """
        count = num_envs if env_ids is None else len(env_ids)
        rows: Rows = slice(None) if env_ids is None else env_ids
        if self.array is not None:
            values = self._batched_leaf(self.array, batch, count, env_ids, check, unused)
            columns[0][rows] = values
            return
        ready: list[tuple[int, Any]] = []
        for number, part in self._batched_parts(batch, count):
            leaf = self.leaves[number]
            if isinstance(leaf, ArrayLeaf):
                ready.append(
                    (number, self._batched_leaf(leaf, part, count, env_ids, check, unused))
                )
                continue
            part = list(part)  # not copied here: `elements` does
            _check_length(part, count, leaf.path)
            for i, value in enumerate(part):
                if check and not leaf.contains(value) and (unused is None or not unused[i]):
                    raise _outside(leaf, value, i, env_ids)
            ready.append((number, part))
        for number, values in ready:  # nothing was refused: now write
            column = columns[number]
            if isinstance(column, np.ndarray):
                column[rows] = values
            else:
                for i, value in zip(
                    range(count) if env_ids is None else env_ids, values, strict=True
                ):
                    column[i] = value

    def _batched_parts(self, batch: Any, count: int) -> Iterable[tuple[int, Any]]:
        """The (leaf number, k values) pairs of a batch, or of a list of k single elements."""
        try:
            if isinstance(self._tree, int):
                return [(self._tree, batch)]
            if self._is_list_of_elements(batch):
                _check_length(batch, count, ())
                values: dict[int, list[Any]] = {n: [] for n in range(len(self.leaves))}
                for element in batch:
                    for number, part in self._parts(self._tree, element, ()):
                        values[number].append(part)
                return values.items()
            return list(self._parts(self._tree, batch, ()))
        except Misfit as error:
            raise ActionError(f"actions do not fit {self.space}: {error}") from None

    def _is_list_of_elements(self, batch: Any) -> bool:
        """Whether this is a sequence of single elements rather than one batched element.

        A batched Tuple is a tuple of batches, so only other sequences are taken as lists of
        single tuples, and only when each element is a tuple of the right length.
        """
        if isinstance(self._tree, dict):
            return not isinstance(batch, Mapping) and isinstance(batch, Sequence | np.ndarray)
        return isinstance(batch, list) and all(
            isinstance(element, tuple) and len(element) == len(self._tree) for element in batch
        )

    @staticmethod
    def _batched_leaf(
        leaf: ArrayLeaf,
        part: Any,
        count: int,
        env_ids: NDArray[np.int64] | None,
        check: bool,
        unused: NDArray[np.bool_] | None,
    ) -> NDArray[Any]:
        shape = (count, *leaf.shape)
        if part.__class__ is np.ndarray and part.dtype is leaf.dtype and part.shape == shape:
            values: NDArray[Any] = part
        else:
            _check_length(part, count, leaf.path)
            try:
                values = cast(part, shape, leaf.dtype, leaf.path)
            except Misfit as error:
                raise ActionError(f"actions do not fit {leaf.space}: {error}") from None
        if check:
            outside = leaf.outside(values)
            if outside is not None and unused is not None:
                outside &= ~unused
            if outside is not None and outside.any():
                first = int(outside.argmax())
                raise _outside(leaf, values[first], first, env_ids)
        return values


def cast(
    value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], path: _Path = ()
) -> NDArray[Any]:
    """``value`` as an array of this shape and dtype, without changing what it says.

    Floating-point numbers may be rounded to a narrower floating dtype (not beyond its range);
    any other conversion must give back an equal value.

    Raises:
        Misfit: "expected X, got Y, at Z".
    """
    try:
        array = np.asarray(value)
    except Exception as error:
        raise Misfit(
            f"expected an array of shape {shape} and dtype {dtype}, "
            f"got {_describe(value)} ({error}){_at(path)}"
        ) from None
    if array.shape != shape or array.dtype.kind not in "biuf":
        raise Misfit(
            f"expected an array of shape {shape} and dtype {dtype}, "
            f"got {_describe(value)}{_at(path)}"
        )
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
    if dtype.kind == "f" and array.dtype.kind == "f":
        exact = bool((np.isfinite(result) == np.isfinite(array)).all())
    elif dtype.kind == "f" and array.dtype.kind in "iu":
        with np.errstate(all="ignore"):  # beyond 2**53 there are integers that float64 lacks
            exact = bool((result.astype(array.dtype) == array).all())
    else:
        exact = np.can_cast(array.dtype, dtype, "safe") or bool((result == array).all())
    if not exact:
        raise Misfit(
            f"expected values that dtype {dtype} can hold, got {_describe(value)}{_at(path)}"
        )
    return result


def checker_of(check: str, layout: Layout) -> Callable[[Any, Any], None] | None:
    """A function of (observation, reward) that raises Misfit; None where writing checks enough.

    Args:
        check: See `agymc.faults.Check`.
        layout: Of the observation.
    """
    if check == "shape":
        return None

    def check_space(observation: Any, _reward: Any) -> None:
        for number, part in layout.parts(observation):
            leaf = layout.leaves[number]
            if isinstance(leaf, ObjectLeaf):
                inside = leaf.contains(part)
            else:
                values = cast(part, leaf.shape, leaf.dtype, leaf.path)
                inside = leaf.outside(values[None]) is None
            if not inside:
                raise Misfit(
                    f"expected an element of {leaf.space}, got {_describe(part)}{_at(leaf.path)}"
                )

    def check_finite(observation: Any, reward: Any) -> None:
        for number, part in layout.parts(observation):
            leaf = layout.leaves[number]
            if isinstance(leaf, ArrayLeaf) and leaf.dtype.kind == "f":
                values = cast(part, leaf.shape, leaf.dtype, leaf.path)
                if not np.isfinite(values).all():
                    raise Misfit(f"expected finite numbers, got {_describe(part)}{_at(leaf.path)}")
        try:
            finite = np.isfinite(reward).all()
        except TypeError:
            return  # no number: writing it says so
        if not finite:
            raise Misfit(f"expected a finite number, got {_describe(reward)}, at 'reward'")

    return check_space if check == "space" else check_finite


def flat_view(column: NDArray[Any] | list[Any]) -> memoryview[Any] | None:
    """The memory of a column whose rows are vectors, as one vector; None for any other column.

    ``flat_view(column)[i * k : (i + 1) * k] = array`` writes row i of a column (n, k). It raises
    ValueError or TypeError unless ``array`` has the shape (k,) and the dtype of the column, and
    costs less than half of ``column[i] = array`` after looking at both.
    """
    if isinstance(column, np.ndarray) and column.ndim == 2 and column.size:
        return memoryview(column.reshape(-1))  # type: ignore[arg-type]
    return None


def any_true(mask: NDArray[np.bool_]) -> bool:
    """``mask.any()``, four times as fast for the small masks of a batch."""
    return b"\1" in mask.tobytes()


def detach(value: Any) -> Any:
    """A copy of ``value`` that shares no array, list, dict, set or tuple with the original.

    Other objects are shared. So are instances of subclasses of these that can't be deep-copied.
    """
    kind = type(value)
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    if kind is dict:
        return {key: detach(part) for key, part in value.items()}
    if kind is list or kind is set or kind is frozenset or kind is tuple:
        return kind(map(detach, value))
    if isinstance(value, tuple) and hasattr(kind, "_make"):  # a named tuple
        return kind._make(map(detach, value))
    if isinstance(value, np.ndarray | dict | list | set | frozenset | tuple):
        try:
            return copy.deepcopy(value)
        except Exception:
            return value
    return value


def _check_length(part: Any, count: int, path: _Path) -> None:
    try:
        length = len(part)
    except TypeError:
        raise NotABatchError(
            f"expected {count} actions, one per env, got {_describe(part)}{_at(path)}"
        ) from None
    if length != count:
        raise BatchLengthError(f"expected {count} actions, one per env, got {length}{_at(path)}")


def _outside(
    leaf: ArrayLeaf | ObjectLeaf, value: Any, position: int, env_ids: NDArray[np.int64] | None
) -> ActionError:
    env = position if env_ids is None else int(env_ids[position])
    return ActionError(
        f"the action of env {env} is outside of its space: "
        f"expected an element of {leaf.space}, got {value!r}{_at(leaf.path)}"
    )


def _at(path: _Path) -> str:
    return f", at {'.'.join(map(str, path))!r}" if path else ""


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        text = f"an array of shape {value.shape} and dtype {value.dtype}"
        return f"{text} ({value})" if value.size <= 8 else text
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
