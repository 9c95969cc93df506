"""What is taken for an action, and what is refused before any env sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.support.envs import Continuous, Counting, Sampling

import agymc
from agymc import ActionError, AutoresetMode, BatchLengthError, NotABatchError

MakeVec = Callable[..., agymc.VectorEnv]


class Tensor:
    """What numpy sees of a tensor of another library."""

    def __init__(self, values: Any, dtype: Any = None) -> None:
        self.values = np.array(values, dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values.astype(dtype or self.values.dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __int__(self) -> int:
        return int(self.values)

    def __float__(self) -> float:
        return float(self.values)


@pytest.fixture(scope="module", params=list(agymc.ENGINES))
def counting(request: pytest.FixtureRequest) -> Iterator[agymc.VectorEnv]:
    """Three `Counting` envs; the tests that use them leave them as they were."""
    with agymc.make_vec(Counting, 3, engine=request.param) as envs:
        envs.reset()
        yield envs


@pytest.fixture(scope="module", params=list(agymc.ENGINES))
def continuous(request: pytest.FixtureRequest) -> Iterator[agymc.VectorEnv]:
    """Two `Continuous` envs."""
    with agymc.make_vec(Continuous, 2, engine=request.param) as envs:
        envs.reset()
        yield envs


@pytest.fixture(scope="module", params=list(agymc.ENGINES))
def composite(request: pytest.FixtureRequest) -> Iterator[agymc.VectorEnv]:
    """Two envs with actions of a composite space, never stepped."""
    env_fn = partial(Sampling, spaces.Discrete(2), COMPOSITE)
    with agymc.make_vec(env_fn, 2, engine=request.param) as envs:
        envs.reset()
        yield envs


def seen(envs: agymc.VectorEnv) -> list[Any]:
    """The last action that each env was given."""
    return [actions[-1] for actions in envs.get_attr("seen")]


@pytest.mark.parametrize(
    "actions",
    [
        np.array([2, 0, 3]),
        np.array([2, 0, 3], np.int8),
        np.array([2, 0, 3], np.uint64),
        np.array([2.0, 0.0, 3.0], np.float32),
        np.array([2, 0, 3], ">i4"),
        np.array([9, 2, 9, 0, 9, 3])[1::2],
        [2, 0, 3],
        (2, 0, 3),
        [2.0, 0.0, 3.0],
        [np.int64(2), np.int32(0), np.float64(3)],
        [np.array(2), np.array(0), np.array(3)],
        Tensor([2, 0, 3]),
        Tensor([2.0, 0.0, 3.0]),
        [Tensor(2), Tensor(0), Tensor(3)],
        memoryview(np.array([2, 0, 3])),
    ],
    ids=lambda actions: type(actions).__name__,
)
def test_taken_for_discrete(counting: agymc.VectorEnv, actions: Any) -> None:
    envs = counting
    envs.reset()
    envs.step(actions)
    for got, expected in zip(seen(envs), [2, 0, 3], strict=True):
        assert got == expected
        assert type(got) is np.int64


@pytest.mark.parametrize(
    "actions",
    [
        np.array([[0.5, -1.0], [1.0, 0.0]], np.float32),
        np.array([[0.5, -1.0], [1.0, 0.0]], np.float64),
        np.array([[0.5, -1.0], [1.0, 0.0]], np.float16),
        np.asfortranarray(np.array([[0.5, -1.0], [1.0, 0.0]], np.float32)),
        [[0.5, -1], [1, 0]],
        ((0.5, -1.0), (1.0, 0.0)),
        [np.array([0.5, -1.0]), (1.0, 0.0)],
        [Tensor([0.5, -1.0]), Tensor([1.0, 0.0], np.float32)],
        Tensor([[0.5, -1.0], [1.0, 0.0]]),
    ],
    ids=lambda actions: type(actions).__name__,
)
def test_taken_for_a_box(continuous: agymc.VectorEnv, actions: Any) -> None:
    envs = continuous
    envs.reset()
    envs.step(actions)
    for got, expected in zip(seen(envs), [[0.5, -1.0], [1.0, 0.0]], strict=True):
        assert got.dtype == np.float32
        assert got.tolist() == expected


def test_float64_is_rounded_to_float32(make_vec: MakeVec) -> None:
    envs = make_vec(Continuous, 1)
    envs.reset()
    envs.step(np.array([[0.1, 1.0 + 1e-12]]))
    assert seen(envs)[0].tolist() == [np.float32(0.1), 1.0]


def test_integers_for_a_float_box(make_vec: MakeVec) -> None:
    envs = make_vec(Continuous, 2)
    envs.reset()
    envs.step(np.array([[1, 0], [-1, 1]]))
    assert [action.tolist() for action in seen(envs)] == [[1.0, 0.0], [-1.0, 1.0]]


COUNT = "expected 3 actions, one per env, got "
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "too few": ([0, 1], BatchLengthError, COUNT + "2"),
    "too many": (np.zeros(4, int), BatchLengthError, COUNT + "4"),
    "none at all": ([], BatchLengthError, COUNT + "0"),
    "a scalar": (1, NotABatchError, COUNT + "int 1"),
    "a numpy scalar": (np.int64(1), NotABatchError, COUNT + "int64"),
    "a 0-d array": (np.array(1), NotABatchError, COUNT + "an array of shape () and dtype int64"),
    "None": (None, NotABatchError, COUNT + "NoneType None"),
    "a generator": ((x for x in [0, 1, 0]), NotABatchError, COUNT + "generator"),
    "a set": ({0, 1, 2}, ActionError, "expected an array of shape (3,) and dtype int64, got set"),
    "a dict": ({0: 0, 1: 1, 2: 2}, ActionError, "expected an array of shape (3,)"),
    "text": ("012", ActionError, "got str '012'"),
    "texts": (["0", "1", "2"], ActionError, "got list ['0', '1', '2']"),
    "bytes": (b"\0\1\2", ActionError, "got bytes"),
    "a None": ([0, None, 1], ActionError, "got list [0, None, 1]"),
    "an object": ([0, object(), 1], ActionError, "expected an array of shape (3,)"),
    "complex": (np.zeros(3, complex), ActionError, "dtype complex128"),
    "a column": (np.zeros((3, 1), int), ActionError, "got an array of shape (3, 1)"),
    "ragged": ([0, [1], 2], ActionError, "got list [0, [1], 2]"),
    "lossy": ([0, 1.5, 1], ActionError, "expected values that dtype int64 can hold"),
    "NaN": ([0.0, np.nan, 1.0], ActionError, "expected values that dtype int64 can hold"),
    "infinite": ([0.0, np.inf, 1.0], ActionError, "expected values that dtype int64 can hold"),
    "too big for int64": (np.array([0, 2**63, 1], np.uint64), ActionError, "dtype int64 can hold"),
    "an int beyond 64 bits": ([0, 2**70, 1], ActionError, "expected an array of shape (3,)"),
    "too high": ([0, 1, 4], ActionError, "the action of env 2 is outside of its space"),
    "too low": ([0, -1, 9], ActionError, "the action of env 1 is outside of its space"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_any_env_sees_it(counting: agymc.VectorEnv, name: str) -> None:
    actions, error, text = REFUSED[name]
    envs = counting
    envs.reset()
    before = envs.get_attr("seen")
    for way in (envs.step, envs.send, envs.step_async):
        with pytest.raises(error, match=re.escape(text)):
            way(actions)
    assert envs.get_attr("seen") == before
    # Nothing is in flight, and nothing is broken.
    observations, *_ = envs.step([0, 1, 2])
    assert observations[:, 1].tolist() == [1.0, 1.0, 1.0]


BOX_REFUSED: dict[str, tuple[Any, str]] = {
    "NaN": ([[0.0, np.nan], [0, 0]], "the action of env 0 is outside of its space"),
    "out of bounds": ([[0, 0], [0, 1.5]], "the action of env 1 is outside of its space"),
    "infinite": ([[0, 0], [np.inf, 0]], "the action of env 1 is outside of its space"),
    "beyond float32": ([[0, 0], [0, 1e300]], "expected values that dtype float32 can hold"),
    "one axis too few": (np.zeros(2), "got an array of shape (2,)"),
    "one axis too many": (np.zeros((2, 2, 1)), "got an array of shape (2, 2, 1)"),
    "could be broadcast": (np.zeros((2, 1)), "got an array of shape (2, 1)"),
    "transposed": (np.zeros((2, 3)), "got an array of shape (2, 3)"),
    "empty": (np.zeros((2, 0)), "got an array of shape (2, 0)"),
    "ragged": ([[0, 0], [0]], "expected an array of shape (2, 2)"),
    "texts": ([["a", "b"], ["c", "d"]], "expected an array of shape (2, 2)"),
}


@pytest.mark.parametrize("name", BOX_REFUSED)
def test_refused_for_a_box(continuous: agymc.VectorEnv, name: str) -> None:
    actions, text = BOX_REFUSED[name]
    envs = continuous
    envs.reset()
    before = repr(envs.get_attr("seen"))
    with pytest.raises(ActionError, match=re.escape(text)):
        envs.step(actions)
    assert repr(envs.get_attr("seen")) == before


def test_the_error_names_the_env_of_a_partial_batch(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 9)
    envs.reset()
    with pytest.raises(
        ActionError,
        match=r"the action of env 7 is outside of its space: expected an element of Discrete\(4\), "
        r"got .*4",
    ):
        envs.send([3, 4], [5, 7])
    with pytest.raises(BatchLengthError, match="expected 2 actions, one per env, got 9"):
        envs.send(np.zeros(9, int), [5, 7])
    assert envs.get_attr("seen") == tuple([] for _ in range(9))


COMPOSITE = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3))),
        "word": spaces.Text(4),
    }
)
KEYS = "expected a dict with the keys ['arm', 'word'], got "
COMPOSITE_REFUSED: dict[str, tuple[Any, str]] = {
    "no dict": ([1, 2], KEYS + "int 1"),
    "a key is missing": ({"arm": (np.zeros((2, 2)), [0, 1])}, KEYS + "one with the keys ['arm']"),
    "a key is missing in one": (
        [{"arm": ([0, 0], 1), "word": "a"}, {"word": "b"}],
        KEYS + "one with the keys ['word']",
    ),
    "too few in a tuple": (
        {"arm": (np.zeros((2, 2)),), "word": ("a", "b")},
        "expected a tuple of 2 elements, got tuple (array",
    ),
    "deep": (
        [{"arm": ([0, 0], 1), "word": "a"}, {"arm": ([0, 2], 1), "word": "a"}],
        "the action of env 1 is outside of its space: expected an element of Box(-1.0, 1.0, (2,), "
        "float32), got array([0., 2.], dtype=float32), at 'arm.0'",
    ),
    "deep shape": (
        {"arm": (np.zeros((2, 3)), [0, 1]), "word": ("a", "b")},
        "got an array of shape (2, 3) and dtype float64",
    ),
    "deep length": (
        {"arm": (np.zeros((2, 2)), [0, 1, 1]), "word": ("a", "b")},
        "expected 2 actions, one per env, got 3, at 'arm.1'",
    ),
    "an object": (
        {"arm": (np.zeros((2, 2)), [0, 1]), "word": ("a", "too long")},
        "the action of env 1 is outside of its space: expected an element of Text(1, 4",
    ),
    "no texts": (
        {"arm": (np.zeros((2, 2)), [0, 1]), "word": ("a", None)},
        "the action of env 1 is outside of its space: expected an element of Text(1, 4",
    ),
}


@pytest.mark.parametrize("name", COMPOSITE_REFUSED)
def test_refused_for_a_composite_space(composite: agymc.VectorEnv, name: str) -> None:
    actions, text = COMPOSITE_REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(text)):
        composite.step(actions)
    assert composite.get_attr("count") == (0, 0)


def test_forms_of_a_composite_batch(make_vec: MakeVec) -> None:
    envs = make_vec([partial(Sampling, spaces.Discrete(2), COMPOSITE, length=99)] * 2)
    envs.reset()
    arms = [(np.array([0.5, 0.25], np.float32), 1), (np.array([-1.0, 0.0], np.float32), 2)]
    single = [{"arm": arms[0], "word": "abc"}, {"arm": arms[1], "word": "d"}]
    forms = [
        single,
        tuple(single),
        np.array(single, dtype=object),
        {"arm": (np.array([arms[0][0], arms[1][0]]), [1, 2]), "word": ("abc", "d")},
        {"word": ["abc", "d"], "arm": [[arms[0][0], arms[1][0]], np.array([1.0, 2.0])]},
        {"word": ["abc", "d"], "arm": (Tensor([arms[0][0], arms[1][0]]), Tensor([1, 2]))},
    ]
    rewards = [envs.step(form)[1].tolist() for form in forms]
    assert all(reward == rewards[0] for reward in rewards[1:])
    assert rewards[0][0] != rewards[0][1]


def test_a_list_of_tuples_is_a_batch_of_a_tuple_space(make_vec: MakeVec) -> None:
    space = spaces.Tuple((spaces.Discrete(3), spaces.Discrete(5)))
    envs = make_vec([partial(Sampling, spaces.Discrete(2), space, length=99)] * 2)
    envs.reset()
    batched = envs.step((np.array([0, 2]), np.array([4, 1])))[1]
    listed = envs.step([(0, 4), (2, 1)])[1]
    assert batched.tolist() == listed.tolist()


def test_unchecked_actions_may_be_outside(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 2, check_actions=False)
    envs.reset()
    envs.step([-7, 99])
    assert seen(envs) == [-7, 99]
    for wrong in ([0], [0, 1.5], [0, "a"], [[0], [1]]):
        with pytest.raises(ValueError, match="actions"):
            envs.step(wrong)
    assert [len(actions) for actions in envs.get_attr("seen")] == [1, 1]


def test_the_action_of_an_env_that_is_about_to_be_reset_is_not_looked_at(make_vec: MakeVec) -> None:
    """Many algorithms leave rubbish in the rows of envs whose episode is over."""
    envs = make_vec([partial(Continuous, length=1), partial(Continuous, length=9)])
    envs.reset()
    envs.step(np.zeros((2, 2)))
    with pytest.raises(ActionError, match="the action of env 1 is outside"):
        envs.step([[0, 0], [7, 7]])
    _, rewards, *_ = envs.step([[np.nan, 99.0], [1, 1]])
    assert rewards.tolist() == [0.0, 0.002]
    assert [len(actions) for actions in envs.get_attr("seen")] == [1, 2]
    # In the next step it counts again.
    with pytest.raises(ActionError, match="the action of env 0 is outside"):
        envs.step([[np.nan, 99.0], [1, 1]])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_elsewhere_every_action_is_looked_at(make_vec: MakeVec, mode: AutoresetMode) -> None:
    envs = make_vec(partial(Continuous, length=1), 2, autoreset_mode=mode)
    envs.reset()
    envs.step(np.zeros((2, 2)))
    if mode is AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": np.array([True, True])})
    with pytest.raises(ActionError, match="the action of env 0 is outside"):
        envs.step([[np.nan, 0.0], [0.0, 0.0]])


def test_actions_belong_to_the_env(make_vec: MakeVec) -> None:
    """An env may keep an action and change it; neither the caller nor a sibling notices."""
    envs = make_vec(Scaling, 3)
    envs.reset()
    actions = np.full((3, 2), 0.5, np.float32)
    for number in range(1, 3):
        envs.step(actions)
        assert (actions == 0.5).all()
        kept = envs.get_attr("kept")
        assert [len(own) for own in kept] == [number] * 3
        assert all((action == 5.0).all() for own in kept for action in own)


class Scaling(Continuous):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def step(self, action):
        action *= 10
        self.kept.append(action)
        return super().step(0)
