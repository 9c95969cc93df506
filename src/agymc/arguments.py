"""Arguments that several doors take, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agymc.errors import BatchLengthError, ConfigurationError, NumEnvsError
from agymc.ledger import IdArray
from agymc.seeding import spread_seeds
from agymc.types import AutoresetMode

__all__ = [
    "check_autoreset_mode",
    "check_call_name",
    "check_env_ids",
    "check_max_concurrency",
    "check_no_worker",
    "check_num_envs",
    "check_ready_counts",
    "check_reset_mask",
    "spread_reset",
    "spread_values",
]


def check_num_envs(num_envs: Any) -> int:
    """``num_envs`` as an int; NumEnvsError when it is not a positive integer."""
    if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
        raise NumEnvsError(f"expected num_envs to be a positive integer, got {num_envs!r}")
    return int(num_envs)


def check_autoreset_mode(mode: Any) -> AutoresetMode:
    """An `AutoresetMode`, or the value of one ("NextStep"); else ConfigurationError."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        values = ", ".join(repr(known.value) for known in AutoresetMode)
        raise ConfigurationError(
            f"expected autoreset_mode {values}, or a gymnasium.vector.AutoresetMode, got {mode!r}"
        ) from None


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


def check_max_concurrency(value: Any) -> int | None:
    """The argument of Gymnasium's `AsyncVectorEnv`; ConfigurationError when it can't be meant."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigurationError(
            f"`max_concurrency` must be a positive integer or None, got {value!r}"
        )
    return int(value)


def check_no_worker(worker: Any) -> None:
    """Raise ConfigurationError for the custom worker that Gymnasium's `AsyncVectorEnv` takes."""
    if worker is not None:
        raise ConfigurationError(
            "a custom `worker` function is not supported by agymc: its workers have their own "
            "command loop; use a wrapper around each env, or reset_seed of agymc.make_vec"
        )


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


def spread_reset(
    seed: Any, options: dict[str, Any] | None, num_envs: int, env_ids: IdArray | None = None
) -> tuple[Sequence[int | None], dict[str, Any] | None, IdArray | None]:
    """What a reset is asked for: (a seed per env, options without a mask, the envs).

    Args:
        seed: None, an integer s (env i gets s + i), or one per env: of all ``num_envs``, or of
            ``env_ids`` where those are given.
        options: May have the key "reset_mask"; it is not modified.
        num_envs: The number of envs.
        env_ids: Checked env ids; None for all, or those of the mask.

    Raises:
        ConfigurationError: There are env ids and a mask.
    """
    if env_ids is not None and options is not None and "reset_mask" in options:
        raise ConfigurationError(
            "expected either env_ids or `options['reset_mask']`, got both: they may contradict"
        )
    if env_ids is not None and isinstance(seed, Sequence | np.ndarray):
        return spread_seeds(seed, len(env_ids)), options, env_ids
    seeds: Sequence[int | None] = spread_seeds(seed, num_envs)
    if env_ids is None and options is not None and "reset_mask" in options:
        env_ids = check_reset_mask(options["reset_mask"], num_envs)
        options = {key: value for key, value in options.items() if key != "reset_mask"}
    if env_ids is not None:
        seeds = [seeds[i] for i in env_ids]
    return seeds, options, env_ids


def check_ready_counts(min_ready: Any, max_ready: Any) -> None:
    """Raise ConfigurationError unless these are positive integers or None, and in order."""
    for name, value in (("min_ready", min_ready), ("max_ready", max_ready)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1
        ):
            raise ConfigurationError(
                f"expected {name} to be a positive integer or None, got {value!r}"
            )
    if min_ready is not None and max_ready is not None and min_ready > max_ready:
        raise ConfigurationError(
            f"expected min_ready <= max_ready, got min_ready={min_ready} and max_ready={max_ready}"
        )


def check_call_name(name: str) -> None:
    """Raise ConfigurationError for methods that are not to be called behind the pool's back."""
    if name in ("reset", "step", "close"):
        raise ConfigurationError(
            f"Trying to call function `{name}` with `call`, use `{name}` directly instead."
        )
