"""Laws 7 and 8: what is handed out is the caller's, and what the caller gives is never changed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.support.envs import Counting, Reusing, Telling
from tests.support.reference import ReferenceLoop, assert_identical, assert_step

import agymc
from agymc import AutoresetMode

MakeVec = Callable[..., agymc.VectorEnv]


def arrays_in(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        inner = arrays_in(list(value.flat)) if value.dtype.hasobject else []
        return [value, *inner]
    if isinstance(value, dict):
        return [array for part in value.values() for array in arrays_in(part)]
    if isinstance(value, list | tuple):
        return [array for part in value for array in arrays_in(part)]
    return []


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_case_06_everything_is_an_own_copy(make_vec: MakeVec, mode: AutoresetMode) -> None:
    """Results neither change later nor share memory, and writing to them changes nothing."""
    functions = [partial(Reusing, length=n) for n in (2, 3)]
    envs = make_vec(functions, autoreset_mode=mode)
    loop = ReferenceLoop(functions, mode)
    handed_out = [envs.reset(seed=0)]
    loop.reset([0, 1])
    expected = []
    for _ in range(2 if mode is AutoresetMode.DISABLED else 7):
        handed_out.append(envs.step([0, 1]))
        expected.append(loop.step([0, 1]))
    kept = deepcopy(handed_out)
    arrays = [array for part in handed_out for array in arrays_in(part)]
    for number, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[:number])
    for got, its in zip(handed_out[1:], expected, strict=True):
        assert_step(envs.single_observation_space, got, its)

    for array in arrays:  # overwrite all of it
        assert array.flags.writeable
        if not array.dtype.hasobject:
            array[...] = 77
    if mode is not AutoresetMode.DISABLED:
        assert_step(envs.single_observation_space, envs.step([0, 1]), loop.step([0, 1]))
    # What a masked reset does not touch is handed out again: as it was, not as it was overwritten.
    before = envs.step([0, 1]) if mode is not AutoresetMode.DISABLED else kept[-1]
    last = deepcopy(before)
    for array in arrays_in(before):
        if not array.dtype.hasobject:
            array[...] = 78
    observations, _ = envs.reset(options={"reset_mask": np.array([True, False])})
    assert_identical(observations["image"][1], last[0]["image"][1])
    assert_identical(observations["state"][1], last[0]["state"][1])


def test_partial_batches_are_own_copies(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Reusing, length=2), 3)
    envs.send_reset(seed=0)
    batches = []
    for _ in range(8):
        batches.append(envs.recv())
        envs.send([0] * 3, batches[-1].env_ids)
    for number, batch in enumerate(batches, start=1):
        assert batch.observations["image"].tolist() == [[[number] * 2] * 2] * 3
        assert batch.infos["list"].tolist() == [[number]] * 3
    arrays = [
        array
        for batch in batches
        for name in batch.__dataclass_fields__
        for array in arrays_in(getattr(batch, name))
    ]
    for number, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[:number])
    for array in arrays:
        if not array.dtype.hasobject:
            array[...] = 77
    assert envs.recv().observations["image"].tolist() == [[[9] * 2] * 2] * 3


OBJECTS = spaces.Dict(
    {
        "stack": spaces.Sequence(spaces.Box(0, 99, (1,), np.float32), stack=True),
        "graph": spaces.Graph(spaces.Box(0, 99, (1,)), None),
    }
)


class ReusingObjects(Counting):
    """Fills the same arrays again and again, in leaves that have no fixed shape."""

    observation_space = OBJECTS
    action_space = spaces.Sequence(spaces.Box(0, 99, (1,), np.float32), stack=True)

    def __init__(self) -> None:
        super().__init__(length=99)
        self.calls = 0
        self.stack = np.zeros((2, 1), np.float32)
        self.graph = spaces.GraphInstance(np.zeros((2, 1), np.float32), None, None)

    def _observe(self):
        self.calls += 1
        self.stack[:] = self.calls
        self.graph.nodes[:] = self.calls
        return {"stack": self.stack, "graph": self.graph}

    def scribble(self):
        self.stack[:] = 99

    def step(self, action):
        result = super().step(action.copy())
        action += 1  # an env may do so with what it was given
        return result


def test_objects_are_own_copies_too(make_vec: MakeVec) -> None:
    envs = make_vec(ReusingObjects, 2)
    first, _ = envs.reset()
    action = np.ones((3, 1), np.float32)
    second, *_ = envs.step((action, action))
    assert (action == 1).all(), "the env changed the caller's action"
    for number, observations in enumerate([first, second], start=1):
        assert [stack.tolist() for stack in observations["stack"]] == [[[number]] * 2] * 2
        assert [graph.nodes.tolist() for graph in observations["graph"]] == [[[number]] * 2] * 2
    # Nor is the memory shared the other way, and an env may go on with its own.
    second["stack"][1][:] = 77
    envs.call("scribble")
    third, _ = envs.reset(options={"reset_mask": np.array([True, False])})
    assert third["stack"][1].tolist() == [[2], [2]]
    assert third["stack"][0].tolist() == [[3], [3]]


def test_an_action_that_changes_after_it_was_sent(make_vec: MakeVec) -> None:
    """The env sees the action as it was when it was sent, whenever it gets to run."""
    envs = make_vec(ReusingObjects, 2)
    envs.reset()
    actions = [np.ones((1, 1), np.float32), np.ones((1, 1), np.float32)]
    envs.send(actions)
    for action in actions:
        action[:] = 50
    envs.recv()
    assert [seen[0].tolist() for seen in envs.get_attr("seen")] == [[[1]], [[1]]]

    plain = make_vec(Counting, 2)
    plain.reset()
    array = np.array([1, 2])
    plain.send(array)
    array[:] = 3
    assert sorted(plain.recv().infos["action"].tolist()) == [1, 2]


def test_copy_false_hands_out_the_buffers(make_vec: MakeVec) -> None:
    """The lease of ``copy=False``: valid until the next operation."""
    envs = make_vec(partial(Reusing, length=9), 2, copy=False)
    first, _ = envs.reset()
    assert first["image"].tolist() == [[[1, 1]] * 2] * 2
    second, *_ = envs.step([0, 0])
    assert np.shares_memory(first["image"], second["image"])
    assert first["image"].tolist() == [[[2, 2]] * 2] * 2
    rewards = envs.step([0, 0])[1]
    envs.step([0, 0])
    assert rewards.tolist() == [3.0, 3.0]  # only observations are lent
    envs.send([0, 0])
    batch = envs.recv()
    envs.step([0, 0])
    assert batch.observations["state"].tolist() == [[5.0], [5.0]]


def test_law_8_arguments_are_never_changed(make_vec: MakeVec) -> None:
    label = {"list": [1, 2], "array": np.zeros(2)}
    env_kwargs = [{"label": label, "length": n} for n in (2, 3)]
    kept = deepcopy(env_kwargs)
    envs = make_vec(Counting, 2, env_kwargs=env_kwargs)
    assert_identical(env_kwargs, kept)

    seeds: list[int | None] = [4, None]
    options = {"reset_mask": np.array([True, True]), "level": [1]}
    kept_options = deepcopy(options)
    envs.reset(seed=seeds, options=options)
    assert seeds == [4, None]
    assert_identical(options, kept_options)
    mask = options["reset_mask"]
    assert envs.get_attr("resets")[0][-1] == (4, {"level": [1]})
    assert options["reset_mask"] is mask

    actions = np.array([1, 2])
    ids = np.array([1, 0])
    for _ in range(4):
        envs.step(actions)
    envs.send(actions, ids)
    envs.recv()
    assert actions.tolist() == [1, 2]
    assert ids.tolist() == [1, 0]
    del options["reset_mask"], kept_options["reset_mask"]
    envs.send_reset(seed=[7, 8], options=options, env_ids=ids)
    envs.recv()
    assert_identical(options, kept_options)


class Greedy(Counting):
    """Takes apart the options that it is given."""

    def reset(self, *, seed=None, options=None):
        if options is not None:
            options.pop("level")
            options["list"].append("mine")
            options["array"][:] = 9
        return super().reset(seed=seed)


def test_options_that_an_env_takes_apart(make_vec: MakeVec) -> None:
    """Neither the caller nor a sibling notices."""
    envs = make_vec(Greedy, 3)
    options = {"level": 1, "list": [], "array": np.zeros(2)}
    for _ in range(2):
        envs.reset(options=options)
        envs.send_reset(options=options)
        envs.recv()
    assert_identical(options, {"level": 1, "list": [], "array": np.zeros(2)})


def test_infos_are_own_copies(make_vec: MakeVec) -> None:
    info = {"list": [[1]], "tuple": ({"a": np.zeros(1)},), "set": {1}, "ragged": np.zeros(2)}
    other = {**info, "ragged": np.zeros(3)}
    envs = make_vec([partial(Telling, [info]), partial(Telling, [other])])
    _, first = envs.reset()
    first["list"][0][0].append(5)
    first["tuple"][0][0]["a"][:] = 5
    first["set"][0].add(5)
    first["ragged"][0][:] = 5
    _, second = envs.reset()
    assert second["list"].tolist() == [[[1]], [[1]]]
    assert second["tuple"][0][0]["a"].tolist() == [0.0]
    assert second["set"][0] == {1}
    assert second["ragged"][0].tolist() == [0.0, 0.0]
