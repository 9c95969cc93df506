"""From the envs of a pool to the spaces of their batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from agymc.commands import EnvReport
from agymc.errors import ConfigurationError, SpaceMismatchError

__all__ = ["ObservationMode", "PoolSpaces", "check_observation_mode", "unite"]

ObservationMode = str | tuple[Space[Any], Space[Any]]
"""Gymnasium's: "same", "different", or (observation_space, single_observation_space)."""


@dataclass(frozen=True, slots=True)
class PoolSpaces:
    """The spaces of a batch and of one env, and what else the envs have in common."""

    single_observation_space: Space[Any]
    observation_space: Space[Any]
    single_action_space: Space[Any]
    action_space: Space[Any]
    reward_shape: tuple[int, ...]
    metadata: dict[str, Any]
    render_mode: str | None


def check_observation_mode(mode: Any) -> None:
    """Raise ConfigurationError or TypeError for a mode that Gymnasium does not define."""
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise TypeError(
                "expected both elements of observation_mode to be spaces, "
                f"got {type(mode[0])} and {type(mode[1])}"
            )
    elif mode not in ("same", "different"):
        raise ConfigurationError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and "
            f"batch observation space, actual got {mode}"
        )


def unite(
    reports: Sequence[EnvReport], mode: ObservationMode, name: str, *, coroutines: bool = False
) -> PoolSpaces:
    """The spaces of the batch, after checking that every env fits it.

    Args:
        reports: One per env.
        mode: How observation spaces may differ.
        name: The caller's, for error texts.
        coroutines: Whether the engine can run coroutine envs.

    Raises:
        SpaceMismatchError: An env's spaces do not fit; it names the first such env.
    """
    first = reports[0]
    for index, report in enumerate(reports):
        if report.is_coroutine and not coroutines:
            raise ConfigurationError(
                f"env {index} is a coroutine environment (its step is `async def`): expected "
                "engine='asyncio' or 'process+asyncio'"
            )
    single: Space[Any] = mode[1] if isinstance(mode, tuple) else first.observation_space
    reward_shape = _reward_shape(first)
    for index, report in enumerate(reports):
        space = report.observation_space
        if mode == "same":
            if space != single:
                raise SpaceMismatchError(
                    f"{name}(..., observation_mode='same') however the sub-environments "
                    f"observation spaces are not equivalent. env {index}: expected {single}, "
                    f"got {space}. If this is intentional, use `observation_mode='different'` "
                    "instead."
                )
        elif not is_space_dtype_shape_equiv(space, single):
            raise SpaceMismatchError(
                f"{name}(..., observation_mode='different' or custom space) however the "
                "sub-environments observation spaces do not share a common shape and dtype. "
                f"env {index}: expected {single}, got {space}."
            )
        if report.action_space != first.action_space:
            raise SpaceMismatchError(
                f"the action spaces of the envs differ, env {index}: "
                f"expected {first.action_space}, got {report.action_space}"
            )
        if _reward_shape(report) != reward_shape:
            raise SpaceMismatchError(
                f"the reward spaces of the envs differ, env {index}: "
                f"expected {first.reward_space}, got {report.reward_space}"
            )
    count = len(reports)
    batched: Space[Any]
    if isinstance(mode, tuple):
        batched = mode[0]
    elif mode == "same":
        batched = batch_space(single, count)
    else:
        batched = batch_differing_spaces([report.observation_space for report in reports])
    return PoolSpaces(
        single,
        batched,
        first.action_space,
        batch_space(first.action_space, count),
        reward_shape,
        first.metadata,
        first.render_mode,
    )


def _reward_shape(report: EnvReport) -> tuple[int, ...]:
    """MO-Gymnasium's convention: an env with vector rewards has a Box as its ``reward_space``."""
    return tuple(getattr(report.reward_space, "shape", None) or ())
