"""The slab: the memory of a pool, one row per env.

Heap memory where envs live in the caller's process, one shared segment where they live in worker
processes. A slot writes its row when an operation ends, and the row stays as it is until the next
operation of that slot is sent, which can't happen before the result was received. So rows need no
lock: at any time each row has one owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from agymc.spaces import ArrayLeaf, Columns, Layout

__all__ = ["TIMES", "Buffers", "BuffersSpec", "ShardTimes"]

TIMES = 16
"""How many of the last times of each env are kept, for quantiles."""

_KEPT = 4  # batches
_QUICK = 2e-3  # seconds: what takes longer is worked out at once, for the deadline of an episode
_ALIGNMENT = 64  # a cache line: neighbouring arrays don't share one


@dataclass(slots=True)
class Buffers:
    """The arrays of a pool, row i for env i.

    Attributes:
        observation_layout: How an observation lies in the columns.
        action_layout: The same for actions.
        observations: Columns of the last observations.
        actions: Columns of the actions to take.
        rewards: (num_envs, *reward_shape) float64.
        terminations: (num_envs,) bool.
        truncations: (num_envs,) bool.
        requested: (num_envs,) int64, the number of the last operation sent to each env.
        completed: (num_envs,) int64, the number of the last operation that ended.
        interrupted: (num_envs,) int64, the number of the operation that is to be interrupted.
        operations: (num_envs,) int64, how many operations were timed.
        seconds: (2, num_envs) float64, how long those waited for their turn, `queue_seconds`, and
            how long they took, `env_seconds`.
        episode_base: (num_envs,) float64, what `env_seconds` was when the episode began.
        began: (num_envs,) float64, when the env was last called, by `time.perf_counter`, which
            all processes share. Where operations are timed.
        reset_began: (num_envs,) float64, when the env last began a reset.
        times: (TIMES, 2, num_envs) float64, `queue_seconds` and `env_seconds` of single
            operations, in a ring; 0 for none yet.
    """

    observation_layout: Layout
    action_layout: Layout
    observations: Columns
    actions: Columns
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    requested: NDArray[np.int64]
    completed: NDArray[np.int64]
    interrupted: NDArray[np.int64]
    operations: NDArray[np.int64]
    episode_base: NDArray[np.float64]
    began: NDArray[np.float64]
    reset_began: NDArray[np.float64]
    seconds: NDArray[np.float64]
    times: NDArray[np.float64]

    def __post_init__(self) -> None:
        # Assigning to one element of a memoryview costs half of assigning to one of the array.
        self.rewards_view = _view(self.rewards)
        self.terminations_view = _view(self.terminations)
        self.truncations_view = _view(self.truncations)
        self.began_view = _view(self.began)
        self.reset_began_view = _view(self.reset_began)
        self.episode_base_view = _view(self.episode_base)
        self._time_views = (
            _view(self.operations),
            _view(self.seconds),
            _view(self.times),
        )
        self.queue_seconds, self.env_seconds = self.seconds
        self.env_seconds_view = _view(self.env_seconds)

    def note_times(self, row: int, submitted: float, began: float, ended: float) -> None:
        """Note how long an operation waited for its turn, and how long it took."""
        operations, seconds, times = self._time_views
        count = operations[row]
        times[count % TIMES, 0, row] = queued = began - submitted
        times[count % TIMES, 1, row] = took = ended - began
        seconds[0, row] += queued
        seconds[1, row] += took
        operations[row] = count + 1

    def release(self) -> None:
        """Let go of the memory, and with it of the descriptor that a mapping keeps.

        Observations and actions are gone then; the rest, which is small, stays readable.
        """
        self.observations.clear()
        self.actions.clear()
        for one in fields(self):
            if one.init and isinstance(array := getattr(self, one.name), np.ndarray):
                setattr(self, one.name, array.copy())
        self.__post_init__()

    rewards_view: memoryview[Any] = field(init=False, repr=False)
    terminations_view: memoryview[Any] = field(init=False, repr=False)
    truncations_view: memoryview[Any] = field(init=False, repr=False)
    began_view: memoryview[Any] = field(init=False, repr=False)
    reset_began_view: memoryview[Any] = field(init=False, repr=False)
    episode_base_view: memoryview[Any] = field(init=False, repr=False)
    env_seconds_view: memoryview[Any] = field(init=False, repr=False)
    queue_seconds: NDArray[np.float64] = field(init=False, repr=False)
    env_seconds: NDArray[np.float64] = field(init=False, repr=False)
    _time_views: tuple[memoryview[Any], ...] = field(init=False, repr=False)


def _view(array: Any) -> memoryview[Any]:
    return memoryview(array)


class ShardTimes:
    """Notes the times of a shard whose slots are called in order, all of them in one go.

    Args:
        buffers: Where to.
        rows: The shard.
    """

    def __init__(self, buffers: Buffers, rows: slice) -> None:
        self._buffers = buffers
        self._first = rows.start
        self._began = buffers.began[rows]
        self._seconds = buffers.seconds[:, rows]
        self._operations = buffers.operations[rows]
        self._times = buffers.times[:, :, rows]
        self._place = 0  # in the ring
        # What was noted and not yet worked out: when each slot began, and the batch ended.
        self._bounds = np.zeros((_KEPT, len(self._began) + 1))
        self._begins = [bounds[:-1] for bounds in self._bounds]
        self._ends = self._bounds[:, -1]
        self._submitted = np.zeros((_KEPT, 1))
        self._kept = 0

    def note(self, count: int, submitted: float, ended: float) -> None:
        """The first ``count`` slots have ended an operation; they began as the buffers say.

        Quick batches are worked out a few at a time, so that noting times does not cost much of
        theirs: the buffers may lack the last three.
        """
        kept, began = self._kept, self._began
        if count < len(began):
            bounds = [*began[:count].tolist(), ended]
            for row, (begin, end) in enumerate(pairwise(bounds), self._first):
                self._buffers.note_times(row, submitted, begin, end)
            return
        self._begins[kept][:] = began
        self._ends[kept] = ended
        self._submitted[kept] = submitted
        self._kept = kept = kept + 1
        if kept == _KEPT or ended - submitted > _QUICK:
            self._work_out(kept)

    def _work_out(self, kept: int) -> None:
        """Write the times of the batches kept into the buffers."""
        self._kept = 0
        place = self._place if self._place + kept <= TIMES else 0
        self._place = place + kept
        times = self._times[place : place + kept]
        bounds = self._bounds[:kept]
        np.subtract(bounds[:, :-1], self._submitted[:kept], times[:, 0])
        np.subtract(bounds[:, 1:], bounds[:, :-1], times[:, 1])
        self._seconds += np.add.reduce(times)
        self._operations += kept


class BuffersSpec:
    """How the buffers lie in memory: the same on both sides of a process boundary.

    Args:
        num_envs: The number of rows.
        observation_space: The space of one env's observations.
        action_space: The space of one env's actions.
        reward_shape: () for scalar rewards, (k,) for vector rewards.
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: Space[Any],
        action_space: Space[Any],
        reward_shape: tuple[int, ...] = (),
    ) -> None:
        self.num_envs = num_envs
        self.reward_shape = reward_shape
        self.size = 0  # bytes
        self._layouts = Layout(observation_space), Layout(action_space)
        self._plan: list[tuple[int, tuple[int, ...], np.dtype[Any]] | None] = []
        for layout in self._layouts:
            for leaf in layout.leaves:
                if isinstance(leaf, ArrayLeaf):
                    self._reserve(leaf.shape, leaf.dtype)
                else:
                    self._plan.append(None)
        self._reserve(reward_shape, np.dtype(np.float64))
        for kind in (np.bool_, np.bool_, *[np.int64] * 4, *[np.float64] * 3):
            self._reserve((), np.dtype(kind))
        self._reserve((), np.dtype(np.float64), 2)
        self._reserve((), np.dtype(np.float64), TIMES, 2)

    def _reserve(self, shape: tuple[int, ...], dtype: np.dtype[Any], *before: int) -> None:
        shape = (*before, self.num_envs, *shape)
        self._plan.append((self.size, shape, dtype))
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.size += -(-nbytes // _ALIGNMENT) * _ALIGNMENT

    def allocate(self, memory: Any = None) -> Buffers:
        """The buffers in ``memory`` (a writable buffer of `size` zero bytes), or on the heap."""
        memory = np.zeros(self.size, np.uint8) if memory is None else memory
        columns: Columns = [
            [None] * self.num_envs
            if place is None
            else np.ndarray(place[1], place[2], memory, place[0])
            for place in self._plan
        ]
        observations, actions = self._layouts
        first, second = len(observations.leaves), len(observations.leaves) + len(actions.leaves)
        others: list[Any] = columns[second:]  # the other fields, in order
        return Buffers(observations, actions, columns[:first], columns[first:second], *others)
