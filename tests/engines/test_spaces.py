"""Every space, of observations and of actions, lies in a batch as Gymnasium has it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space, iterate
from tests.engines.conftest import MODES
from tests.support.envs import Sampling, fingerprint
from tests.support.reference import assert_identical

import agymc
from agymc import AutoresetMode, SpaceMismatchError

MakeVec = Callable[..., agymc.VectorEnv]


class Colours(gymnasium.Space):
    """A space that neither Gymnasium nor agymc knows: names of colours."""

    names = ("red", "green", "blue")

    def __init__(self) -> None:
        super().__init__(None, None)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask=None, probability=None):
        return self.names[int(self.np_random.integers(3))]

    def contains(self, x):
        return x in self.names

    def __eq__(self, other):
        return isinstance(other, Colours)


BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
DISCRETE = spaces.Discrete(5, start=-2)

SPACES: dict[str, gymnasium.Space] = {
    "box-float32": BOX,
    "box-float64-unbounded": spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    "box-half-bounded": spaces.Box(np.array([0.0, -np.inf]), np.array([np.inf, 1.0]), dtype=float),
    "box-0d": spaces.Box(-2.0, 3.0, (), np.float32),
    "box-0d-int": spaces.Box(-2, 3, (), np.int32),
    "box-zero-length": spaces.Box(0.0, 1.0, (0,), np.float32),
    "box-zero-length-2d": spaces.Box(0, 9, (3, 0), np.int64),
    "box-float16": spaces.Box(-1.0, 1.0, (2,), np.float16),
    "box-image": spaces.Box(0, 255, (6, 5, 3), np.uint8),
    "box-int8": spaces.Box(-128, 127, (2, 2), np.int8),
    "box-uint64": spaces.Box(0, 2**40, (2,), np.uint64),
    "discrete": spaces.Discrete(3),
    "discrete-start": DISCRETE,
    "discrete-int32": spaces.Discrete(4, dtype=np.int32),
    "multi-discrete": spaces.MultiDiscrete([3, 5]),
    "multi-discrete-2d": spaces.MultiDiscrete([[3, 5], [2, 7]]),
    "multi-discrete-start": spaces.MultiDiscrete([3, 5], start=[-1, 10]),
    "multi-discrete-int8": spaces.MultiDiscrete([3, 5], dtype=np.int8),
    "multi-binary": spaces.MultiBinary(4),
    "multi-binary-2d": spaces.MultiBinary((2, 3)),
    "dict": spaces.Dict({"position": BOX, "gear": DISCRETE}),
    "tuple": spaces.Tuple((BOX, DISCRETE, spaces.MultiBinary(2))),
    "nested": spaces.Dict(
        {
            "inner": spaces.Dict({"a": BOX, "b": spaces.Tuple((DISCRETE, BOX))}),
            "outer": spaces.Tuple((spaces.Dict({"c": spaces.MultiDiscrete([2, 2])}), DISCRETE)),
        }
    ),
    "text": spaces.Text(8),
    "graph": spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3)),
    "graph-without-edges": spaces.Graph(spaces.Discrete(4), None),
    "sequence": spaces.Sequence(BOX),
    "sequence-stacked": spaces.Sequence(BOX, stack=True),
    "sequence-of-dicts": spaces.Sequence(spaces.Dict({"a": BOX, "b": spaces.Text(3)})),
    "one-of": spaces.OneOf((BOX, DISCRETE)),
    "custom": Colours(),
    "dict-with-objects": spaces.Dict({"text": spaces.Text(4), "box": BOX, "colour": Colours()}),
    "tuple-with-objects": spaces.Tuple((spaces.Sequence(DISCRETE), DISCRETE)),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_space(engine: str, make_vec: MakeVec, space: gymnasium.Space) -> None:
    """As the space of observations and of actions, whole and in parts, against Gymnasium."""
    # The mode goes round with space and engine: together the engines have each space in both.
    turn = list(SPACES.values()).index(space) + list(agymc.ENGINES).index(engine)
    mode = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)[turn % 2]
    functions = [partial(Sampling, deepcopy(space), deepcopy(space)) for _ in range(4)]
    theirs = SyncVectorEnv(deepcopy(functions), autoreset_mode=mode)
    ours = make_vec(functions, autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_action_space == theirs.single_action_space

    observations, _ = ours.reset(seed=4)
    assert_identical(observations, theirs.reset(seed=4)[0], "observations")
    assert observations in ours.observation_space
    ours.action_space.seed(5)
    for _ in range(5):
        actions = ours.action_space.sample()
        got, expected = ours.step(actions), theirs.step(actions)
        for name, mine, its in zip(("observations", "rewards"), got, expected, strict=False):
            assert_identical(mine, its, name)
        assert got[0] in ours.observation_space
        assert got[4].get("in_space", np.array(True)).all()
        assert_identical(got[4], expected[4], "infos")

    # A list of single actions is a batch too, also for some of the envs.
    single = deepcopy(space)
    single.seed(3)
    actions = [single.sample() for _ in range(3)]
    ours.reset(seed=6)
    ours.send(actions, [3, 0, 2])
    batch = ours.recv()
    assert sorted(batch.env_ids.tolist()) == [0, 2, 3]
    assert batch.infos["in_space"].all()
    for row, index in enumerate(batch.env_ids.tolist()):
        action = actions[[3, 0, 2].index(index)]
        assert batch.rewards[row] == fingerprint(arriving(action))

    # And initial observations that are received in parts are those of the whole.
    whole = elements(ours.observation_space, ours.reset(seed=9)[0])
    ours.send_reset(seed=9)
    seen: list[int] = []
    while len(seen) < 4:
        batch = ours.recv(min_ready=1, max_ready=3)
        seen += batch.env_ids.tolist()
        rows = elements(batch_space(space, len(batch)), batch.observations)
        assert_identical(rows, [whole[i] for i in batch.env_ids], "observations in parts")
    assert sorted(seen) == [0, 1, 2, 3]


def elements(batched: gymnasium.Space, batch: Any) -> list[Any]:
    parts = list(iterate(batched, batch))
    return [dict(element) if isinstance(element, dict) else element for element in parts]


def arriving(action: Any) -> Any:
    """What an env gets of a single action: of an array (), its scalar."""
    return action[()] if isinstance(action, np.ndarray) and action.shape == () else action


def test_different_bounds(make_vec: MakeVec) -> None:
    boxes = [spaces.Box(-i, i, (2,), np.float32) for i in (1.0, 2.0, 3.0)]
    functions = [partial(Sampling, deepcopy(box), spaces.Discrete(2)) for box in boxes]
    with pytest.raises(
        SpaceMismatchError,
        match=r"env 1: expected Box\(-1.0, 1.0, \(2,\), float32\), got Box\(-2.0, 2.0",
    ):
        make_vec(functions)
    theirs = SyncVectorEnv(functions, observation_mode="different")
    ours = make_vec(functions, observation_mode="different")
    assert ours.observation_space == theirs.observation_space
    assert ours.single_observation_space == theirs.single_observation_space
    for seed in range(3):
        assert_identical(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])


def test_a_space_of_ones_own(make_vec: MakeVec) -> None:
    boxes = [spaces.Box(-i, i, (2,), np.float32) for i in (1.0, 2.0)]
    single = spaces.Box(-9.0, 9.0, (2,), np.float32)
    batched = spaces.Box(-9.0, 9.0, (2, 2), np.float32)
    envs = make_vec(
        [partial(Sampling, deepcopy(box), spaces.Discrete(2)) for box in boxes],
        observation_mode=(batched, single),
    )
    assert envs.observation_space == batched
    assert envs.single_observation_space == single
    assert envs.reset(seed=0)[0] in batched


@pytest.mark.parametrize("mode", ["same", "different"])
@pytest.mark.parametrize(
    "other",
    [spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Box(-1.0, 1.0, (3,), np.float64), DISCRETE],
    ids=["shape", "dtype", "kind"],
)
def test_spaces_that_fit_no_batch(make_vec: MakeVec, mode: str, other: gymnasium.Space) -> None:
    functions = [partial(Sampling, deepcopy(s), spaces.Discrete(2)) for s in (BOX, BOX, other)]
    with pytest.raises(SpaceMismatchError, match="env 2: expected Box"):
        make_vec(functions, observation_mode=mode)


def test_action_spaces_that_differ(make_vec: MakeVec) -> None:
    functions = [partial(Sampling, deepcopy(BOX), spaces.Discrete(n)) for n in (2, 2, 3)]
    with pytest.raises(
        SpaceMismatchError, match=r"env 2: expected Discrete\(2\), got Discrete\(3\)"
    ):
        make_vec(functions)


def test_modes_that_do_not_exist(make_vec: MakeVec) -> None:
    functions = [partial(Sampling, deepcopy(BOX), spaces.Discrete(2))]
    with pytest.raises(ValueError, match=r"expected: 'same' or 'different'.*actual got equal"):
        make_vec(functions, observation_mode="equal")
    with pytest.raises(TypeError, match="both elements of observation_mode to be spaces"):
        make_vec(functions, observation_mode=(BOX, "box"))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_metadata_of_the_class_is_never_modified(make_vec: MakeVec, mode: AutoresetMode) -> None:
    """Case 8."""
    before = dict(Sampling.metadata)
    envs = make_vec([partial(Sampling, BOX, DISCRETE)] * 2, autoreset_mode=mode)
    assert envs.metadata == {**before, "autoreset_mode": mode}
    assert Sampling.metadata == before
    assert gymnasium.Env.metadata.get("autoreset_mode") is None
