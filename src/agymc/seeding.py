"""Seeds: one argument into one seed per env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agymc.errors import BatchLengthError, ConfigurationError

__all__ = ["spread_seeds"]


def spread_seeds(seed: Any, count: int) -> list[int | None]:
    """One seed per env.

    Args:
        seed: None (no env is seeded), an integer s (env j gets s + j, Gymnasium's rule), or a
            sequence of ``count`` integers and Nones.
        count: The number of envs.

    Raises:
        BatchLengthError: The sequence has not ``count`` elements.
        ConfigurationError: A seed is no integer, or is negative.
    """
    if seed is None:
        return [None] * count
    if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes):
        if len(seed) != count:
            raise BatchLengthError(f"expected {count} seeds, one per env, got {len(seed)}")
        return [None if s is None else _checked(s, f"seed[{i}]") for i, s in enumerate(seed)]
    first = _checked(seed, "seed")
    return [first + j for j in range(count)]


def _checked(seed: Any, where: str) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigurationError(
            f"expected a non-negative integer, a list of them, or None, got {seed!r}, at {where}"
        )
    return int(seed)
