"""Layouts, casts and copies, without any env."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from agymc.errors import ActionError, BatchLengthError
from agymc.spaces import Layout, Misfit, any_true, cast, detach

F32, F64, I64, U8 = map(np.dtype, (np.float32, np.float64, np.int64, np.uint8))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, F64, 1.0),
        (True, I64, 1),
        (0.1, F32, np.float32(0.1)),
        (1e-300, F32, 0.0),
        (2.0, I64, 2),
        (255, U8, 255),
        (np.float16(0.5), F64, 0.5),
        (float("inf"), F32, np.inf),
        (2**53, F64, 2.0**53),
        (np.uint64(2**63), F64, 2.0**63),
        (2**24, F32, 2.0**24),
    ],
    ids=repr,
)
def test_cast_without_loss(value: Any, dtype: Any, expected: Any) -> None:
    result = cast(value, (), dtype)
    assert result.dtype == dtype
    assert result == expected


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.5, I64),
        (256, U8),
        (-1, U8),
        (float("nan"), I64),
        (float("inf"), I64),
        (2.0**63, I64),
        (np.uint64(2**63), I64),
        (1e39, F32),
        (2**53 + 1, F64),
        (2**63 - 1, F64),
        (2**24 + 1, F32),
        (70000, np.dtype(np.float16)),
    ],
    ids=repr,
)
def test_cast_with_loss(value: Any, dtype: Any) -> None:
    with pytest.raises(Misfit, match=f"expected values that dtype {dtype} can hold, got .*, at 'a"):
        cast(value, (), dtype, ("a", 0))


@pytest.mark.parametrize(
    "value",
    ["1", None, b"1", 1j, object(), [1, [2]], {}, [[1, 2]], [1], np.zeros((2, 1))],
    ids=lambda value: "object" if type(value) is object else repr(value),
)
def test_cast_of_something_else(value: Any) -> None:
    with pytest.raises(Misfit, match=r"expected an array of shape \(2,\) and dtype float64, got "):
        cast(value, (2,), F64)


SPACE = spaces.Dict(
    {
        "a": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3))),
        "b": spaces.Text(5),
    }
)


def columns_for(layout: Layout, count: int) -> Any:
    return [
        np.zeros((count, *leaf.shape), leaf.dtype) if hasattr(leaf, "shape") else [None] * count
        for leaf in layout.leaves
    ]


def test_leaves() -> None:
    layout = Layout(SPACE)
    assert [leaf.path for leaf in layout.leaves] == [("a", 0), ("a", 1), ("b",)]
    assert layout.object_leaves == [2]


def test_write_and_read() -> None:
    layout = Layout(SPACE)
    columns = columns_for(layout, 3)
    element = {"a": (np.array([0.5, 1], np.float32), 2), "b": "xy", "more": "is ignored"}
    layout.writer(columns, 1)(element)
    batch = layout.batch(columns)
    assert batch["a"][0].tolist() == [[0, 0], [0.5, 1], [0, 0]]
    assert batch["a"][1].tolist() == [0, 2, 0]
    assert batch["b"] == (None, "xy", None)
    batch = layout.batch(columns, np.array([1, 0]))
    assert batch["a"][1].tolist() == [2, 0]
    assert batch["b"] == ("xy", None)
    first, second = layout.elements(columns, slice(0, 2))
    assert first["b"] is None
    assert second["a"][0].tolist() == [0.5, 1]
    assert layout.batch(columns, copy=False)["a"][0] is not columns[0]
    assert np.shares_memory(layout.batch(columns, copy=False)["a"][0], columns[0])
    assert not np.shares_memory(layout.batch(columns)["a"][0], columns[0])


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (3, "expected a dict with the keys ['a', 'b'], got int 3"),
        (
            {"a": ([0, 0], 1)},
            "expected a dict with the keys ['a', 'b'], got one with the keys ['a']",
        ),
        ({"a": 1, "b": ""}, "expected a tuple of 2 elements, got int 1, at 'a'"),
        ({"a": (1, 2, 3), "b": ""}, "expected a tuple of 2 elements, got tuple (1, 2, 3), at 'a'"),
        (
            {"a": ([0, 0, 0], 1), "b": ""},
            "expected an array of shape (2,) and dtype float32, got list [0, 0, 0], at 'a.0'",
        ),
        (
            {"a": ([0, 0], 0.5), "b": ""},
            "expected values that dtype int64 can hold, got float 0.5, at 'a.1'",
        ),
    ],
    ids=["no dict", "key", "no tuple", "length", "shape", "loss"],
)
def test_elements_that_do_not_fit(element: Any, text: str) -> None:
    layout = Layout(SPACE)
    with pytest.raises(Misfit) as caught:
        layout.writer(columns_for(layout, 1), 0)(element)
    assert str(caught.value) == text


def test_a_refused_batch_changes_nothing() -> None:
    layout = Layout(SPACE)
    columns = columns_for(layout, 2)
    for batch in (
        {"a": (np.ones((2, 2)), [1, 1]), "b": ("x", "much too long")},
        {"a": (np.ones((2, 2)), [1, 3]), "b": ("x", "y")},
        {"a": (np.ones((2, 2)), [1, 1]), "b": ("x",)},
    ):
        with pytest.raises((ActionError, BatchLengthError)):
            layout.write_batch(columns, batch, None, 2)
        assert not columns[0].any()
        assert not columns[1].any()
        assert columns[2] == [None, None]


def test_write_batch_of_some_rows() -> None:
    layout = Layout(spaces.Discrete(9))
    columns = columns_for(layout, 4)
    layout.write_batch(columns, [5, 7], np.array([3, 1]), 4)
    assert columns[0].tolist() == [0, 7, 0, 5]
    with pytest.raises(ActionError, match="the action of env 1 is outside of its space"):
        layout.write_batch(columns, [5, 9], np.array([3, 1]), 4)
    layout.write_batch(columns, [5, 9], np.array([3, 1]), 4, unused=np.array([False, True]))
    layout.write_batch(columns, [-5, 9], np.array([3, 1]), 4, check=False)
    assert columns[0].tolist() == [0, 9, 0, -5]


def test_dict_of_nothing() -> None:
    layout = Layout(spaces.Dict({}))
    assert layout.leaves == []
    assert layout.batch([]) == {}
    assert layout.elements([], slice(2, 5)) == [{}, {}, {}]
    assert layout.elements([], np.array([4, 1])) == [{}, {}]


def test_any_true() -> None:
    assert any_true(np.array([False, True]))
    assert not any_true(np.zeros(3, bool))
    assert not any_true(np.zeros(0, bool))


Point = namedtuple("Point", "x y")


class Row(list):  # type: ignore[type-arg]
    """A list whose constructor takes something else."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__([first, second])


class Strange(tuple):  # type: ignore[type-arg]
    def __new__(cls, a: Any, b: Any) -> Any:
        return super().__new__(cls, (a, b))


@pytest.mark.parametrize(
    "make",
    [
        lambda part: [part],
        lambda part: {"key": part},
        lambda part: (part, 1),
        lambda part: Point(part, 2),
        lambda part: [{"deep": ([part],)}],
        lambda part: Row(part, 1),
        lambda part: OrderedDict(key=part),
        lambda part: defaultdict(list, key=part),
        lambda part: np.array([part, None], object),
    ],
    ids=[
        "list",
        "dict",
        "tuple",
        "namedtuple",
        "deep",
        "Row",
        "OrderedDict",
        "defaultdict",
        "array",
    ],
)
def test_detach(make: Any) -> None:
    part = np.zeros(2)
    value = make(part)
    detached = detach(value)
    assert type(detached) is type(value)
    part[:] = 5
    assert "5." not in repr(detached)
    assert "0." in repr(detached)


def test_detach_shares_what_it_does_not_know() -> None:
    lock = threading.Lock()
    assert detach(lock) is lock
    assert detach([lock])[0] is lock
    row = Row(lock, 1)
    assert detach(row) is row  # it can't be copied
    strange = Strange(1, 2)
    assert detach(strange) is strange
    array = np.array([lock], object)
    assert detach(array)[0] is lock
    assert detach({1, 2}) == {1, 2}
    assert detach(frozenset({1})) == frozenset({1})
