"""Infos of a batch: Gymnasium's format, and no value is lost in it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.support.envs import Counting, Reusing, Telling
from tests.support.reference import assert_identical

import agymc
from agymc import AutoresetMode

MakeVec = Callable[..., agymc.VectorEnv]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Thing:
    """An object of the env's own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


def objects(*values: Any) -> Any:
    column = np.full(len(values), None, object)
    for i, value in enumerate(values):
        column[i] = value
    return column


ABSENT = object()

# What three envs say, and what their batch says.
PROMOTIONS: dict[str, tuple[list[Any], Any]] = {
    "ints": ([1, 2, 3], np.array([1, 2, 3])),
    "floats": ([1.0, 2.5, -0.0], np.array([1.0, 2.5, -0.0])),
    "bools": ([True, False, True], np.array([True, False, True])),
    "int then float": ([1, 0.5, 2], np.array([1.0, 0.5, 2.0])),
    "float then int": ([0.5, 1, 2], np.array([0.5, 1.0, 2.0])),
    "bool then int": ([True, 7, 0], np.array([1, 7, 0])),
    "bool then float": ([True, 0.5, False], np.array([1.0, 0.5, 0.0])),
    "int, absent": ([5, ABSENT, 6], np.array([5, 0, 6])),
    "absent, float": ([ABSENT, 0.5, ABSENT], np.array([0.0, 0.5, 0.0])),
    "int8 then int16": ([np.int8(1), np.int16(300), np.int8(2)], np.array([1, 300, 2], np.int16)),
    "float32": ([np.float32(0.1)] * 3, np.full(3, 0.1, np.float32)),
    "float32 then float": ([np.float32(0.1), 0.2, 1], np.array([np.float32(0.1), 0.2, 1.0])),
    "numpy bools": ([np.True_, np.False_, True], np.array([True, False, True])),
    "uint64 then int": ([np.uint64(2**63), -1, 0], objects(np.uint64(2**63), -1, 0)),
    "big ints": ([2**62 + 1, -(2**62), 0], np.array([2**62 + 1, -(2**62), 0])),
    "big int and float": ([2**53 + 1, 0.5, 1], objects(2**53 + 1, 0.5, 1)),
    "beyond 64 bits": ([2**70, 1, 2], objects(2**70, 1, 2)),
    "complex": ([1j, 1, 0.5], np.array([1j, 1, 0.5])),
    "nan": ([float("nan"), 1, 2], np.array([np.nan, 1, 2])),
    "strings": (["a", "bcd", ""], objects("a", "bcd", "")),
    "string and int": (["a", 1, 2], objects("a", 1, 2)),
    "None": ([None, None, None], objects(None, None, None)),
    "None and int": ([None, 1, 2], objects(None, 1, 2)),
    "int, then None": ([1, None, ABSENT], objects(1, None, None)),
    "lists": ([[1, 2], [3], []], objects([1, 2], [3], [])),
    "lists of one length": ([[1, 2], [3, 4], [5, 6]], objects([1, 2], [3, 4], [5, 6])),
    "tuples": ([(1, "a"), (2, "b"), ()], objects((1, "a"), (2, "b"), ())),
    "sets": ([{1}, {2, 3}, set()], objects({1}, {2, 3}, set())),
    "objects": ([Thing(1), Thing(2), Thing(3)], objects(Thing(1), Thing(2), Thing(3))),
    "arrays": ([np.arange(2.0)] * 3, np.array([[0.0, 1.0]] * 3)),
    "arrays, one absent": (
        [np.arange(2), ABSENT, np.arange(2)],
        np.array([[0, 1], [0, 0], [0, 1]]),
    ),
    "int and float arrays": (
        [np.array([1, 2]), np.array([0.5, 1]), np.array([3, 4])],
        np.array([[1.0, 2.0], [0.5, 1.0], [3.0, 4.0]]),
    ),
    "uint8 images": ([np.full((2, 2), i, np.uint8) for i in range(3)], None),
    "0-d arrays": ([np.array(1), np.array(2.5), np.array(3)], np.array([1, 2.5, 3])),
    "ragged arrays": (
        [np.arange(2), np.arange(3), np.arange(0)],
        objects(np.arange(2), np.arange(3), np.arange(0)),
    ),
    "array and scalar": ([np.arange(2), 1, 2], objects(np.arange(2), 1, 2)),
    "array and None": ([np.arange(2), None, None], objects(np.arange(2), None, None)),
    "array of strings": (
        [np.array(["a", "b"]), np.array(["long", "c"]), np.array(["", ""])],
        np.array([["a", "b"], ["long", "c"], ["", ""]]),
    ),
    "array of objects": (
        [np.array([None, "x"], object)] * 3,
        objects(*[np.array([None, "x"], object)] * 3),
    ),
    "dict and int": ([{"a": 1}, 2, 3], objects({"a": 1}, 2, 3)),
    "dict and None": (
        [{"a": np.arange(2)}, None, ABSENT],
        objects({"a": np.arange(2)}, None, None),
    ),
}
PROMOTIONS["uint8 images"] = (
    PROMOTIONS["uint8 images"][0],
    np.array(PROMOTIONS["uint8 images"][0]),
)


@pytest.fixture(scope="module", params=list(agymc.ENGINES))
def telling(request: pytest.FixtureRequest) -> Any:
    """Three `Telling` envs, which say what a test has them say."""
    with agymc.make_vec(partial(Telling, [{}]), 3, engine=request.param) as envs:
        yield envs


@pytest.mark.parametrize("name", PROMOTIONS)
def test_case_07_promotion(telling: agymc.VectorEnv, name: str) -> None:
    values, expected = PROMOTIONS[name]
    telling.set_attr("infos", [[{} if v is ABSENT else {"x": v}] for v in values])
    mask = np.array([value is not ABSENT for value in values])
    _, at_reset = telling.reset()
    *_, at_step = telling.step([0, 1, 0])
    telling.send([0, 1, 0])
    batch = telling.recv()
    order = np.argsort(batch.env_ids)
    for infos in (at_reset, at_step):
        assert_identical(infos, {"x": expected, "_x": mask}, "infos")
    assert_identical(batch.infos["x"][order], expected, "infos of recv")
    assert_identical(batch.infos["_x"][order], mask, "mask of recv")


def test_nested_dicts(telling: agymc.VectorEnv) -> None:
    telling.set_attr(
        "infos",
        [
            [{"a": {"b": {"c": 1}, "d": "x"}}],
            [{"a": {"b": {"c": 0.5}}}],
            [{"e": {}}],
        ],
    )
    _, infos = telling.reset()
    yes, no = True, False
    expected = {
        "a": {
            "b": {"c": np.array([1, 0.5, 0]), "_c": np.array([yes, yes, no])},
            "_b": np.array([yes, yes, no]),
            "d": objects("x", None, None),
            "_d": np.array([yes, no, no]),
        },
        "_a": np.array([yes, yes, no]),
        "e": {},
        "_e": np.array([no, no, yes]),
    }
    assert_identical(infos, expected, "infos")


def test_no_infos(telling: agymc.VectorEnv) -> None:
    telling.set_attr("infos", [[{}], [{}], [{}]])
    assert telling.reset()[1] == {}
    assert telling.step([0, 0, 0])[4] == {}


def test_keys_of_any_kind(telling: agymc.VectorEnv) -> None:
    telling.set_attr("infos", [[{1: 2, (3, 4): "x"}]] * 3)
    _, infos = telling.reset()
    assert infos[1].tolist() == [2, 2, 2]
    assert infos["_1"].all()
    assert infos[3, 4].tolist() == ["x"] * 3


def test_an_int_enum_keeps_its_value(telling: agymc.VectorEnv) -> None:
    telling.set_attr("infos", [[{"level": Level.LOW}], [{"level": Level.HIGH}], [{"level": 3}]])
    assert telling.reset()[1]["level"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_infos_of_the_last_step_are_not_said_again(make_vec: MakeVec, mode: AutoresetMode) -> None:
    tell = partial(Telling, [{}, {"x": 1}, {}, {"y": 2}, {}])
    envs = make_vec(tell, 2, autoreset_mode=mode)
    assert envs.reset()[1] == {}
    said = [sorted(envs.step([0, 0])[4]) for _ in range(5)]
    assert said == [["_x", "x"], [], ["_y", "y"], [], []]


def test_final_info_and_the_info_of_the_reset(make_vec: MakeVec) -> None:
    env_fns = [
        partial(Telling, [{"start": 0}, {"last": 1.5}, {"start": 1}], length=1),
        partial(Telling, [{"start": 0}, {"going": "on"}], length=9),
    ]
    envs = make_vec(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset()
    *_, infos = envs.step([0, 0])
    yes, no = True, False
    zero = np.zeros(1, np.float32)
    expected = {
        "final_obs": objects(zero, None),
        "_final_obs": np.array([yes, no]),
        "final_info": {"last": np.array([1.5, 0.0]), "_last": np.array([yes, no])},
        "_final_info": np.array([yes, no]),
        "start": np.array([1, 0]),
        "_start": np.array([yes, no]),
        "going": objects(None, "on"),
        "_going": np.array([no, yes]),
    }
    assert_identical(infos, expected, "infos")


def test_an_empty_final_info(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Telling, [{}], length=1), 2, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset()
    *_, infos = envs.step([0, 0])
    assert infos["final_info"] == {}
    assert infos["_final_info"].tolist() == [True, True]
    assert infos["_final_obs"].tolist() == [True, True]


def test_case_10_action_masks_ride_with_the_step(make_vec: MakeVec) -> None:
    envs = make_vec([partial(Masked, 2), partial(Masked, 0)])
    _, infos = envs.reset()
    assert infos["action_mask"].dtype == np.int8
    assert infos["action_mask"].tolist() == [[1, 1, 0, 1], [0, 1, 1, 1]]
    *_, infos = envs.step([1, 1])
    assert infos["action_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 1, 1]]
    # They are what a space's `sample` takes.
    envs.single_action_space.seed(0)
    for mask in infos["action_mask"]:
        assert all(mask[envs.single_action_space.sample(mask)] for _ in range(20))


class Masked(Counting):
    """The action ``first + count`` mod 4 is forbidden."""

    def __init__(self, first: int) -> None:
        super().__init__(length=99)
        self.first = first

    def reset(self, **kwargs):
        observation, _ = super().reset(**kwargs)
        return observation, {"action_mask": self._mask()}

    def step(self, action):
        assert self._mask()[action], "a forbidden action"
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"action_mask": self._mask()}

    def _mask(self):
        mask = np.ones(4, np.int8)
        mask[(self.first + self.count) % 4] = 0
        return mask


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_reused_infos_are_the_callers_own(make_vec: MakeVec, mode: AutoresetMode) -> None:
    """Cases 1 and 6, for infos: an env fills the same dict and arrays again and again."""
    envs = make_vec(partial(Reusing, length=2), 2, autoreset_mode=mode)
    kept = [envs.reset()[1], *(envs.step([0, 0])[4] for _ in range(2))]
    said = kept[2]["final_info"] if mode is AutoresetMode.SAME_STEP else kept[2]
    for number, infos in enumerate([kept[0], kept[1], said], start=1):
        assert infos["array"].tolist() == [[number, number]] * 2
        assert infos["list"].tolist() == [[number]] * 2
        assert infos["nested"]["array"].tolist() == [[number]] * 2
    if mode is AutoresetMode.SAME_STEP:
        assert kept[2]["array"].tolist() == [[4, 4]] * 2
        assert [final["state"].tolist() for final in kept[2]["final_obs"]] == [[3.0], [3.0]]
        assert kept[2]["final_obs"][0]["image"].tolist() == [[3, 3], [3, 3]]


def test_objects_of_two_envs_are_never_mixed_up(make_vec: MakeVec) -> None:
    """Infos travel with their env, whichever envs speak and in whatever order they are stepped."""
    envs = make_vec([partial(Counting, length=99, label=i) for i in range(5)])
    envs.reset()
    for ids in ([4, 1], [0], [3, 2, 1], [2, 4, 0, 3, 1]):
        envs.send([i % 4 for i in ids], ids)
        batch = envs.recv()
        assert batch.infos["action"].tolist() == [i % 4 for i in batch.env_ids]
        assert batch.infos["step_number"].tolist() == batch.steps.tolist()


def test_infos_are_no_dict(make_vec: MakeVec) -> None:
    envs = make_vec(Listing, 2)
    envs.reset()
    with pytest.raises(
        agymc.BadDataError, match=r"env 0 returned bad data in step: .*expected a d"
    ):
        envs.step([0, 0])


class Listing(Counting):
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def step(self, action):
        return (*super().step(action)[:4], ["not", "a", "dict"])
