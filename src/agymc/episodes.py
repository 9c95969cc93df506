"""Which episode each env is in, and how far: counted from the results that were handed out.

Almost every batch is one step of all envs, so counting it must not cost one addition per count and
env. A clock counts those batches; per env there is only what differs from the clock, which changes
when an episode ends, or when some envs are stepped without the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agymc.buffers import Buffers
from agymc.spaces import any_true
from agymc.types import AutoresetMode

__all__ = ["Episodes"]


class Episodes:
    """The episodes of ``num_envs`` slots, as the caller has seen them.

    Args:
        num_envs: The number of slots.
        autoreset_mode: As the slots have it.

    Attributes:
        ids: (num_envs,) int64, the episode of each env's last result, -1 before the first.
        over: (num_envs,) bool, whether that result ended it.
        any_over: Whether one did.
    """

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode) -> None:
        self.ids = np.full(num_envs, -1, np.int64)
        self.over = np.zeros(num_envs, np.bool_)
        self.any_over = False
        self._autoreset = autoreset_mode is not AutoresetMode.DISABLED
        # A step after the end: NEXT_STEP drops the action and resets. In SAME_STEP the next episode
        # has begun with the last result's observation, and this is its first step.
        self._after_end = 1 if autoreset_mode is AutoresetMode.SAME_STEP else 0
        self._clock = 0
        self._began = np.zeros(num_envs, np.int64)  # the clock, when steps were 0
        self._received = np.zeros(num_envs, np.int64)
        self._taken = np.zeros(num_envs, np.int64)

    @property
    def steps(self) -> NDArray[np.int64]:
        """(num_envs,) the steps made in the episode; a copy."""
        return self._clock - self._began

    @property
    def received(self) -> NDArray[np.int64]:
        """(num_envs,) how many results were handed out; a copy."""
        return self._clock + self._received

    @property
    def steps_taken(self) -> NDArray[np.int64]:
        """(num_envs,) how many of them were steps of an env; a copy."""
        return self._clock + self._taken

    def count_steps(self, buffers: Buffers) -> None:
        """All slots have made a step, whose flags are in the buffers."""
        self._clock += 1
        if self.any_over and self._autoreset:
            over = self.over.nonzero()[0]
            if not self._after_end:
                self._taken[over] -= 1
            self._began[over] = self._clock - self._after_end
            self.ids[over] += 1
        self.over = buffers.terminations | buffers.truncations
        self.any_over = any_true(self.over)

    def count(
        self, buffers: Buffers, env_ids: NDArray[np.int64] | None, resets: NDArray[np.bool_]
    ) -> None:
        """These slots, None for all, have made a step or, where ``resets`` says so, a reset."""
        whole: Any = slice(None) if env_ids is None else env_ids
        self._received[whole] += 1
        was_over = self.over[whole] & self._autoreset
        steps = self._clock - self._began[whole] + 1
        steps[was_over] = self._after_end
        steps[resets] = 0
        self._began[whole] = self._clock - steps
        self._taken[whole] += steps > 0
        # A reset after the end makes one new episode, or two where one had begun already.
        began = resets.astype(np.int64) + was_over if self._after_end else resets | was_over
        self.ids[whole] += began
        self.over[whole] = buffers.terminations[whole] | buffers.truncations[whole]
        self.any_over = any_true(self.over)

    def put(self, index: int, episode_id: int, steps: int, over: bool) -> None:
        """A slot was put into another state."""
        self.ids[index] = episode_id
        self._began[index] = self._clock - steps
        self.over[index] = over
        self.any_over = any_true(self.over)
