"""Arguments that several doors take, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agymc.errors import BatchLengthError, ConfigurationError, NumEnvsError
from agymc.pool import IdArray

__all__ = ["check_env_ids", "check_num_envs", "check_reset_mask", "spread_values"]


def check_num_envs(num_envs: Any) -> int:
    """``num_envs`` as an int; NumEnvsError when it is not a positive integer."""
    if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
        raise NumEnvsError(f"expected num_envs to be a positive integer, got {num_envs!r}")
    return int(num_envs)


def check_env_ids(env_ids: Any, num_envs: int) -> IdArray | None:
    """(k,) int64, k different envs; None for all of them in order.

    Raises:
        ConfigurationError: Not different integers from 0 to ``num_envs`` - 1, or none at all.
    """
    if env_ids is None:
        return None
    ids = np.atleast_1d(np.asarray(env_ids))
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
        raise ConfigurationError(
            f"expected env_ids to be different integers from 0 to {num_envs - 1}, got {env_ids!r}"
        )
    ids = ids.astype(np.int64)
    if ids.min() < 0 or ids.max() >= num_envs or len(np.unique(ids)) != len(ids):
        raise ConfigurationError(
            f"expected env_ids to be different integers from 0 to {num_envs - 1}, "
            f"got {ids.tolist()}"
        )
    if len(ids) == num_envs and (ids == np.arange(num_envs)).all():
        return None
    return ids


def check_reset_mask(mask: Any, num_envs: int) -> IdArray | None:
    """The envs of ``options["reset_mask"]``; None for all. The texts are Gymnasium's."""
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise BatchLengthError(
            f"`options['reset_mask']` must have shape `({num_envs},)`, got {mask.shape}"
        )
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ConfigurationError(
            "`options['reset_mask']` must contain a boolean array with at least one True value, "
            f"got reset_mask={mask}"
        )
    return None if mask.all() else np.flatnonzero(mask)


def spread_values(values: Any, count: int) -> Sequence[Any]:
    """A list or tuple of ``count`` values as it is, any other value for each env."""
    if not isinstance(values, list | tuple):
        return [values] * count
    if len(values) != count:
        raise BatchLengthError(
            "Values must be a list or tuple with length equal to the number of environments. "
            f"Got `{len(values)}` values for {count} environments."
        )
    return values
