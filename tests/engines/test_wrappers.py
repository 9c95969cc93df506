"""Gymnasium's vector wrappers do on agymc what they do on Gymnasium's own vector envs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import vector as wrappers
from tests.engines.conftest import MODES
from tests.support.envs import Counting
from tests.support.reference import assert_identical

import agymc
from agymc import AutoresetMode

MakeVec = Callable[..., agymc.VectorEnv]

CARTPOLE: dict[str, Callable[[Any], Any]] = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "DictInfoToList": wrappers.DictInfoToList,
    "FlattenObservation": wrappers.FlattenObservation,
    "TransformObservation": lambda envs: wrappers.TransformObservation(envs, np.negative),
    "TransformReward": lambda envs: wrappers.TransformReward(envs, lambda reward: reward * 2),
    "ClipReward": lambda envs: wrappers.ClipReward(envs, 0.0, 0.5),
    "DtypeObservation": lambda envs: wrappers.DtypeObservation(envs, np.float64),
    "RescaleObservation": lambda envs: wrappers.RescaleObservation(
        wrappers.TransformObservation(
            envs,
            lambda observations: np.clip(observations, -1, 1),
            single_observation_space=gymnasium.spaces.Box(-1, 1, (4,), np.float32),
            observation_space=gymnasium.spaces.Box(-1, 1, (3, 4), np.float32),
        ),
        0.0,
        1.0,
    ),
    "a stack of them": lambda envs: wrappers.DictInfoToList(
        wrappers.NormalizeReward(
            wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(envs))
        )
    ),
}


def without_times(infos: Any) -> Any:
    for info in infos if isinstance(infos, list) else [infos]:
        if "episode" in info:
            info["episode"].pop("t", None)
            info["episode"].pop("_t", None)
    return infos


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize("name", CARTPOLE)
def test_wrapper(engine: str, make_vec: MakeVec, name: str) -> None:
    # The mode goes round with wrapper and engine.
    turn = list(CARTPOLE).index(name) + list(agymc.ENGINES).index(engine)
    mode = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)[turn % 2]
    if "Observation" in name or name == "a stack of them":
        mode = AutoresetMode.NEXT_STEP  # these refuse SAME_STEP, because of `final_obs`
    env_fn = partial(gymnasium.make, "CartPole-v1", max_episode_steps=12)
    theirs = CARTPOLE[name](SyncVectorEnv([env_fn] * 3, autoreset_mode=mode))
    ours = CARTPOLE[name](make_vec(env_fn, 3, autoreset_mode=mode))
    assert ours.observation_space == theirs.observation_space
    got, expected = ours.reset(seed=3), theirs.reset(seed=3)
    assert_identical(got[0], expected[0], "observations")
    for number in range(30):
        actions = np.array([number % 2, 1, 0])
        got, expected = ours.step(actions), theirs.step(actions)
        assert_identical(got[:4], tuple(expected[:4]), "step")
        assert_identical(without_times(got[4]), without_times(expected[4]), "infos")
    ours.close()
    theirs.close()


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")
@pytest.mark.parametrize(
    "wrap",
    [
        lambda envs: wrappers.ClipAction(envs),
        lambda envs: wrappers.RescaleAction(envs, -1.0, 1.0),
        lambda envs: wrappers.TransformAction(envs, lambda actions: actions * 0.5),
        lambda envs: wrappers.NormalizeObservation(wrappers.ClipAction(envs)),
    ],
    ids=["ClipAction", "RescaleAction", "TransformAction", "two"],
)
def test_action_wrapper(make_vec: MakeVec, wrap: Callable[[Any], Any]) -> None:
    theirs = wrap(SyncVectorEnv([partial(gymnasium.make, "Pendulum-v1")] * 2))
    ours = wrap(make_vec("Pendulum-v1", 2))
    assert_identical(ours.reset(seed=0)[0], theirs.reset(seed=0)[0])
    assert ours.action_space == theirs.action_space
    for number in range(10):
        actions = np.array([[np.sin(number)], [np.cos(number)]], np.float32)
        assert_identical(ours.step(actions)[:4], tuple(theirs.step(actions)[:4]))
    theirs.close()


def test_single_wrappers(make_vec: MakeVec) -> None:
    """``wrappers=``, applied to each env where it lives."""
    each = [
        partial(gymnasium.wrappers.FrameStackObservation, stack_size=2),
        gymnasium.wrappers.FlattenObservation,
    ]
    theirs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync", wrappers=each)
    ours = make_vec("CartPole-v1", 2, wrappers=each)
    assert ours.observation_space == theirs.observation_space
    assert_identical(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
    for _ in range(12):
        assert_identical(ours.step([1, 0])[:4], tuple(theirs.step(np.array([1, 0]))[:4]))
    theirs.close()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_attributes_through_wrappers(make_vec: MakeVec, mode: AutoresetMode) -> None:
    inner = make_vec(partial(Counting, label="x"), 2, autoreset_mode=mode)
    envs = wrappers.NormalizeReward(wrappers.RecordEpisodeStatistics(inner))
    inner.set_attr("label", ["a", "b"])
    assert envs.unwrapped.get_attr("label") == ("a", "b")
    assert [frame.shape for frame in envs.render()] == [(2, 3, 3)] * 2
    assert envs.render_mode == "rgb_array"
    assert envs.unwrapped is inner
    assert envs.num_envs == 2
    assert envs.metadata["autoreset_mode"] is mode
    envs.close()
    assert inner.closed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_record_video(make_vec: MakeVec, tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    inner = make_vec("CartPole-v1", 2, render_mode="rgb_array", max_episode_steps=4)
    envs = wrappers.RecordVideo(
        inner,
        str(tmp_path / "videos"),
        episode_trigger=lambda episode: episode == 0,
        disable_logger=True,
    )
    envs.reset(seed=0)
    for _ in range(8):
        envs.step(np.array([0, 1]))
    envs.close()
    assert list(tmp_path.glob("videos/*.mp4"))
