"""Many infos into one, in Gymnasium's format, without losing what they say.

The format is that of `gymnasium.vector.VectorEnv`: each key gives an array with one element per
env, next to a boolean mask ``_key`` that says which envs had the key; nested dicts give nested
dicts. Where Gymnasium takes the dtype of the first value and forces the others into it, dtypes are
promoted here (``1`` then ``0.5`` is float64), and values of different shapes or kinds give an
object array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agymc.spaces import detach

__all__ = ["merge"]

_EXACT_INTEGER = 2**53  # beyond this a float64 can't hold every integer


def merge(infos: Iterable[tuple[int, Mapping[Any, Any]]], length: int) -> dict[str, Any]:
    """Merge single infos into one.

    Args:
        infos: ``(row, info)`` pairs; rows without an info are left out.
        length: The number of rows of the batch.

    Returns:
        ``{key: array (length, ...), "_key": mask (length,) bool}``, nested for nested dicts. The
        arrays share nothing with the infos.
    """
    columns: dict[Any, tuple[list[int], list[Any]]] = {}
    for row, info in infos:
        for key, value in info.items():
            column = columns.get(key)
            if column is None:
                columns[key] = ([row], [value])
            else:
                column[0].append(row)
                column[1].append(value)
    merged: dict[str, Any] = {}
    for key, (rows, values) in columns.items():
        if key != "final_obs" and all(isinstance(value, dict) for value in values):
            merged[key] = merge(zip(rows, values, strict=True), length)
        else:
            merged[key] = _column(rows, values, length, as_objects=key == "final_obs")
        mask = np.zeros(length, np.bool_)
        mask[rows] = True
        merged[f"_{key}"] = mask
    return merged


def _column(rows: list[int], values: list[Any], length: int, as_objects: bool) -> NDArray[Any]:
    dtype = None if as_objects else _common_dtype(values)
    if dtype is not None:
        column = np.zeros((length, *np.shape(values[0])), dtype)
        if len(rows) == length:  # every env has it: one conversion instead of one per env
            column[rows] = values
        else:
            for row, value in zip(rows, values, strict=True):
                column[row] = value
        return column
    column = np.full(length, None, dtype=object)
    for row, value in zip(rows, values, strict=True):
        column[row] = detach(value)
    return column


def _common_dtype(values: list[Any]) -> np.dtype[Any] | None:
    """The dtype that holds all values without loss, or None where only objects do."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return np.dtype(np.float64)
    if kinds == {bool}:
        return np.dtype(np.bool_)
    if any(issubclass(kind, np.ndarray) for kind in kinds):
        if not all(issubclass(kind, np.ndarray) for kind in kinds):
            return None
        if len({value.shape for value in values}) > 1:
            return None
    elif not all(issubclass(kind, int | float | complex | np.number | np.bool_) for kind in kinds):
        return None
    try:
        dtypes = {_dtype(value) for value in values}
        dtype = np.result_type(*dtypes)
    except (TypeError, OverflowError):  # no common dtype; an integer beyond 64 bits
        return None
    if len(dtypes) > 1 and dtype.kind in "fc":
        for value in values:
            if _dtype(value).kind in "iu" and np.any(
                np.abs(np.asarray(value, object)) > _EXACT_INTEGER
            ):
                return None
    return None if dtype.hasobject else dtype


def _dtype(value: Any) -> np.dtype[Any]:
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    if isinstance(value, int) and not isinstance(value, np.generic):
        np.int64(value)  # raises OverflowError
        return np.dtype(np.int64)
    return np.asarray(value).dtype
