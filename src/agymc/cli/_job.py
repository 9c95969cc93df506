"""What is to be played.

There are two ways of playing a job, in `agymc.cli._concurrent` and `agymc.cli._plain`, and both
count alike. A step is one call of an env's ``step``. The seconds of playing begin with the first
reset; all resets, the policy and rendering are within, making and closing the envs and writing a
film are not. Env i is seeded with seed + i at its first reset and not after that, so episode j of
env i is the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agymc.cli._policy import PolicyFactory

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """What is to be played.

    Attributes:
        env_id: The id of the envs.
        num_envs: How many.
        episodes: How many each of them plays.
        seed: The seed.
        policy: Makes the policy.
        engine: As in `agymc.make_vec`.
        num_workers: As in `agymc.make_vec`.
        min_ready: The policy acts when so many envs are ready; None for all of them.
        render: Whether each env is rendered before each of its steps.
    """

    env_id: str
    num_envs: int
    episodes: int
    seed: int
    policy: PolicyFactory
    engine: str | None
    num_workers: int | None
    min_ready: int | None
    render: bool

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of each env."""
        return {"render_mode": "rgb_array"} if self.render else {}
