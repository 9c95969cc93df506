"""The slab: where everything lies, and that both sides agree on it."""

from __future__ import annotations

import mmap
import pickle

import numpy as np
from gymnasium import spaces

from agymc.buffers import BuffersSpec

OBSERVATIONS = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (3, 5), np.uint8),
        "word": spaces.Text(3),
        "nothing": spaces.Box(0, 1, (0,), np.float32),
        "angle": spaces.Box(-1, 1, (), np.float16),
    }
)
ACTIONS = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (7,), np.float32)))


def test_nothing_overlaps_and_everything_is_aligned() -> None:
    buffers = BuffersSpec(5, OBSERVATIONS, ACTIONS, (2,)).allocate()
    assert buffers.rewards.shape == (5, 2)
    arrays = [
        *(
            column
            for column in buffers.observations + buffers.actions
            if not isinstance(column, list)
        ),
        buffers.rewards,
        buffers.terminations,
        buffers.truncations,
        buffers.requested,
        buffers.completed,
    ]
    for number, array in enumerate(arrays):
        assert len(array) == 5
        assert not array.any()
        assert array.flags.writeable
        if array.size:
            assert (
                array.__array_interface__["data"][0] - arrays[0].__array_interface__["data"][0]
            ) % 64 == 0
        array[...] = 1
        for other in arrays[number + 1 :]:
            assert not other.any()
    words = buffers.observations[
        [leaf.path for leaf in buffers.observation_layout.leaves].index(("word",))
    ]
    assert words == [None] * 5


def test_two_sides_of_one_memory() -> None:
    spec = BuffersSpec(4, OBSERVATIONS, ACTIONS)
    memory = mmap.mmap(-1, spec.size)
    ours = spec.allocate(memory)
    theirs = pickle.loads(pickle.dumps(spec)).allocate(memory)
    theirs.observation_layout.writer(theirs.observations, 2)(
        {"image": np.full((3, 5), 7), "word": "abc", "nothing": [], "angle": 0.5}
    )
    theirs.rewards[2] = 2.5
    theirs.terminations_view[3] = True
    batch = ours.observation_layout.batch(ours.observations)
    assert batch["image"][2].tolist() == [[7] * 5] * 3
    assert batch["angle"].tolist() == [0, 0, 0.5, 0]
    assert batch["nothing"].shape == (4, 0)
    assert batch["word"] == (None,) * 4  # objects travel otherwise
    assert ours.rewards.tolist() == [0, 0, 2.5, 0]
    assert ours.terminations.tolist() == [False, False, False, True]
