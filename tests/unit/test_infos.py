"""Merging of infos, beyond what tests/engines says of whole batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agymc.errors import BatchLengthError, ConfigurationError
from agymc.infos import merge
from agymc.seeding import spread_seeds


def test_nothing() -> None:
    assert merge([], 3) == {}
    assert merge([(0, {}), (2, {})], 3) == {}


def test_rows_in_any_order() -> None:
    merged = merge([(2, {"x": 3}), (0, {"x": 1.5})], 4)
    assert merged["x"].tolist() == [1.5, 0.0, 3.0, 0.0]
    assert merged["x"].dtype == np.float64
    assert merged["_x"].tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    "values", [[1, 0.5], [0.5, 1], [True, 2.5, 3]], ids=["int, float", "float, int", "bool too"]
)
def test_no_value_depends_on_the_order(values: list[Any]) -> None:
    merged = merge(list(enumerate({"x": value} for value in values)), len(values))
    assert merged["x"].tolist() == values


def test_arrays_are_copied() -> None:
    array = np.zeros(2)
    merged = merge([(0, {"x": array, "y": [array]})], 1)
    array[:] = 1
    assert merged["x"].tolist() == [[0.0, 0.0]]
    assert merged["y"][0][0].tolist() == [0.0, 0.0]


def test_the_infos_are_not_changed() -> None:
    info = {"x": {"y": [1]}}
    merged = merge([(0, info)], 1)
    merged["x"]["y"][0].append(2)
    assert info == {"x": {"y": [1]}}


def test_final_obs_is_never_taken_apart() -> None:
    merged = merge([(1, {"final_obs": {"a": np.zeros(2)}}), (2, {"final_obs": np.ones(1)})], 3)
    assert merged["final_obs"][0] is None
    assert merged["final_obs"][1]["a"].tolist() == [0.0, 0.0]
    assert merged["final_obs"][2].tolist() == [1.0]


def test_spread_seeds() -> None:
    assert spread_seeds(None, 2) == [None, None]
    assert spread_seeds(3, 2) == [3, 4]
    assert spread_seeds([3, None], 2) == [3, None]
    assert [type(seed) for seed in spread_seeds(np.array([1, 2]), 2)] == [int, int]
    with pytest.raises(BatchLengthError, match="expected 2 seeds, one per env, got 3"):
        spread_seeds(range(3), 2)
    with pytest.raises(ConfigurationError, match=r"got -1, at seed\[1\]"):
        spread_seeds([0, -1], 2)
