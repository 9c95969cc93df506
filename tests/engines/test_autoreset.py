"""What happens to an env whose episode is over, in each mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tests.engines.conftest import MODES
from tests.support.envs import Counting, Failing, Multi, Reusing
from tests.support.reference import ReferenceLoop, assert_identical, assert_reset, assert_step

import agymc
from agymc import AutoresetMode, BadDataError, EnvError, ResetNeededError

MakeVec = Callable[..., agymc.VectorEnv]
each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)

# Episodes of all sorts: of one step, of different lengths, ending together and apart.
LENGTHS: list[Any] = [1, 2, 3, (1, 3), (4, 1, 2), 7]


def counting(lengths: list[Any] = LENGTHS) -> list[Any]:
    return [
        partial(Counting, length=length, truncate=bool(number % 2))
        for number, length in enumerate(lengths)
    ]


@each_mode
def test_episodes_of_all_lengths(
    variant: dict[str, Any], open_vec: MakeVec, mode: AutoresetMode
) -> None:
    loop = ReferenceLoop(counting(), mode)
    envs = open_vec(counting(), autoreset_mode=mode, **variant)
    space = envs.single_observation_space
    seeds = [5, 6, None, 7, None, 8]
    # Unseeded generators differ from run to run: both sides are given the same ones.
    assert_reset(space, envs.reset(seed=range(6)), loop.reset(range(6)))
    for number in range(20):
        if mode is AutoresetMode.DISABLED:
            over = np.array(loop.now.terminations) | np.array(loop.now.truncations)
            if over.any():
                got = envs.reset(seed=seeds, options={"reset_mask": over})
                assert_reset(space, got, loop.reset(seeds, np.flatnonzero(over).tolist()))
        actions = [(number + i) % 4 for i in range(6)]
        assert_step(space, envs.step(np.array(actions)), loop.step(np.array(actions)))
    # The envs were given these actions and no others, and as many resets.
    assert_identical(list(envs.get_attr("seen")), [env.seen for env in loop.envs])
    assert [len(calls) for calls in envs.get_attr("resets")] == [
        len(env.resets) for env in loop.envs
    ]


@each_mode
def test_numbers_of_episodes_and_steps(make_vec: MakeVec, mode: AutoresetMode) -> None:
    """``episode_ids`` and ``steps`` of partial batches, in whatever order they come."""
    loop = ReferenceLoop(counting(), mode)
    envs = make_vec(counting(), autoreset_mode=mode)
    expected = loop.reset(range(6))
    envs.send_reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(25):
        while envs_in_flight(envs):
            batch = envs.recv(min_ready=int(rng.integers(1, 4)), max_ready=4)
            check_rows(batch, expected)
        if mode is AutoresetMode.DISABLED:
            over = np.flatnonzero(np.array(expected.terminations) | np.array(expected.truncations))
            if len(over):
                envs.send_reset(seed=3, env_ids=over)
                expected = loop.reset(range(3, 9), over.tolist())
                check_rows(envs.recv(), expected)
        order = rng.permutation(6)
        envs.send(order % 4, order)
        expected = loop.step(np.arange(6) % 4)


def envs_in_flight(envs: agymc.VectorEnv) -> bool:
    return bool(envs._pool.in_flight)


def check_rows(batch: agymc.Batch, expected: Any) -> None:
    for row, index in enumerate(batch.env_ids.tolist()):
        assert_identical(batch.observations[row], expected.observations[index], "observation")
        assert batch.rewards[row] == expected.rewards[index]
        assert batch.terminations[row] == expected.terminations[index]
        assert batch.truncations[row] == expected.truncations[index]
        assert batch.episode_ids[row] == expected.episode_ids[index]
        assert batch.steps[row] == expected.steps[index]


def test_disabled_refuses_to_step_on(make_vec: MakeVec) -> None:
    envs = make_vec(
        [partial(Counting, length=n) for n in (9, 1, 9, 1)], autoreset_mode=AutoresetMode.DISABLED
    )
    envs.reset()
    envs.step([0] * 4)
    for attempt in (lambda: envs.step([0] * 4), lambda: envs.send([0, 0, 0], [1, 0, 3])):
        with pytest.raises(
            ResetNeededError,
            match="expected a reset before the next step, as autoreset is disabled: the episode is "
            "over in envs 1 and 3",
        ):
            attempt()
    envs.send([1, 1], [0, 2])  # the others can go on
    assert sorted(envs.recv().env_ids.tolist()) == [0, 2]
    assert [len(actions) for actions in envs.get_attr("seen")] == [2, 1, 2, 1]
    envs.send_reset(env_ids=[3])
    assert envs.recv().steps.tolist() == [0]
    with pytest.raises(ResetNeededError, match="the episode is over in env 1"):
        envs.step([0] * 4)
    envs.reset()
    assert envs.step([0] * 4)[1].tolist() == [1.001, 1.001, 1.001, 2.001]


@each_mode
def test_before_the_first_reset(make_vec: MakeVec, mode: AutoresetMode) -> None:
    """An env made by id says itself that it must be reset, as it does alone."""
    envs = make_vec("CartPole-v1", 2, autoreset_mode=mode)
    with pytest.raises(EnvError, match="env 0 raised ResetNeeded in step: Cannot call"):
        envs.step([0, 0])
    with pytest.raises(ResetNeededError, match="expected a reset before the next step"):
        envs.send([0, 0])
    with suppress(EnvError):  # raised for the other env, if it had not got so far
        list(envs.batches())
    envs.reset(seed=0)
    assert envs.step([0, 0])[1].tolist() == [1.0, 1.0]


@each_mode
def test_case_01_a_reused_buffer_keeps_its_terminal_values(
    make_vec: MakeVec, mode: AutoresetMode
) -> None:
    functions = [partial(Reusing, length=length) for length in (1, 2, 3)]
    loop = ReferenceLoop(functions, mode)
    envs = make_vec(functions, autoreset_mode=mode)
    space = envs.single_observation_space
    got = [envs.reset(seed=0)]
    expected = [loop.reset([0, 1, 2])]
    for _ in range(6):
        over = np.array(loop.now.terminations)
        if mode is AutoresetMode.DISABLED and over.any():
            got.append(envs.reset(options={"reset_mask": over}))
            expected.append(loop.reset([None] * 3, np.flatnonzero(over).tolist()))
        got.append(envs.step([0, 1, 0]))
        expected.append(loop.step([0, 1, 0]))
    # Looked at when all is over: nothing that was handed out has changed since.
    for mine, its in zip(got, expected, strict=True):
        (assert_step if len(mine) == 5 else assert_reset)(space, mine, its)


@each_mode
def test_case_02_vector_rewards(make_vec: MakeVec, mode: AutoresetMode) -> None:
    envs = make_vec([partial(Multi, length=2), partial(Multi, length=4)], autoreset_mode=mode)
    envs.reset()
    envs.step([0, 0])
    _, rewards, terminations, *_ = envs.step([0, 0])
    assert_identical(rewards, np.array([[2.0, -2.0], [2.0, -2.0]]), "rewards")
    assert terminations.tolist() == [True, False]
    if mode is AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": terminations})
    _, rewards, *_ = envs.step([0, 0])
    first = [0.0, 0.0] if mode is AutoresetMode.NEXT_STEP else [1.0, -1.0]
    assert rewards.tolist() == [first, [3.0, -3.0]]
    envs.send([0], [1])
    assert envs.recv().rewards.tolist() == [[4.0, -4.0]]


class Short(Multi):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.float32(self.count), *rest


def test_case_02_a_scalar_is_not_spread_over_a_vector(make_vec: MakeVec) -> None:
    envs = make_vec(Short, 2)
    envs.reset()
    with pytest.raises(BadDataError, match=r"expected an array of shape \(2,\).*at 'reward'"):
        envs.step([0, 0])


def test_case_02_reward_spaces_that_differ(make_vec: MakeVec) -> None:
    with pytest.raises(
        agymc.SpaceMismatchError, match="the reward spaces of the envs differ, env 1"
    ):
        make_vec([Multi, Counting])


class Saying(Counting):
    """`Counting` whose step or reset gives anything at all."""

    def __init__(self, step: Any = None, reset: Any = None) -> None:
        super().__init__(length=99)
        self.say_step, self.say_reset = step, reset

    def reset(self, **kwargs):
        result = super().reset(**kwargs)
        return result if self.say_reset is None else self.say_reset

    def step(self, action):
        result = super().step(action)
        return result if self.say_step is None else self.say_step


@pytest.fixture(scope="module", params=list(agymc.ENGINES))
def saying(request: pytest.FixtureRequest) -> Any:
    """Three `Saying` envs; every test tells them anew what to say."""
    with agymc.make_vec(Saying, 3, engine=request.param) as envs:
        yield envs


def say(envs: agymc.VectorEnv, *steps: Any) -> None:
    """Drop what the last test has left, and reset."""
    list(envs.batches())
    envs.set_attr("say_reset", [None] * 3)
    envs.set_attr("say_step", list(steps))
    envs.reset(seed=5)


GOOD = np.zeros(3)


@pytest.mark.parametrize(
    "reward",
    [1, 0.1, True, np.float32(0.1), np.int8(3), np.float64("nan"), np.array(2.5), float("inf")],
    ids=repr,
)
def test_case_09_rewards_are_float64(saying: agymc.VectorEnv, reward: Any) -> None:
    say(saying, *[(GOOD, reward, False, False, {})] * 3)
    rewards = saying.step([0, 0, 0])[1]
    assert_identical(rewards, np.array([float(reward)] * 3), "rewards")
    saying.send([0], [1])
    assert_identical(saying.recv().rewards, np.array([float(reward)]), "rewards of recv")


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        ("much", "expected a number, got str 'much', at 'reward'"),
        (None, "expected a number, got NoneType None, at 'reward'"),
        (np.zeros(2), "expected a number, got ndarray array([0., 0.]), at 'reward'"),
        ([1.0], "expected a number, got list [1.0], at 'reward'"),
    ],
    ids=repr,
)
def test_rewards_that_are_no_numbers(saying: agymc.VectorEnv, reward: Any, text: str) -> None:
    say(saying, None, (GOOD, reward, False, False, {}), None)
    with pytest.raises(BadDataError, match=re.escape(text)) as caught:
        saying.step([0, 0, 0])
    assert caught.value.env_ids == (1,)
    assert caught.value.operation == "step"
    assert caught.value.seed == 6


BAD_STEPS: dict[str, tuple[Any, str]] = {
    "four elements": (
        (GOOD, 0.0, False, {}),
        "expected step to return (observation, reward, terminated, truncated, info), "
        "got a tuple of 4 elements (ndarray, float, bool, dict)",
    ),
    "no tuple": (7, "expected step to return (observation, reward, terminated, truncated, info)"),
    "a shape that could be broadcast": (
        (np.zeros(1), 0.0, False, False, {}),
        "expected an array of shape (3,) and dtype float64, got an array of shape (1,)",
    ),
    "a scalar": ((1.0, 0.0, False, False, {}), "expected an array of shape (3,)"),
    "another shape": ((np.zeros((3, 1)), 0.0, False, False, {}), "got an array of shape (3, 1)"),
    "text": (("abc", 0.0, False, False, {}), "expected an array of shape (3,)"),
    "None": ((None, 0.0, False, False, {}), "expected an array of shape (3,)"),
    "a flag that is an array": (
        (GOOD, 0.0, np.zeros(2, bool), False, {}),
        "expected a bool, got ndarray",
    ),
    "a flag that is text": (
        (GOOD, 0.0, False, "yes", {}),
        "expected a bool, got str 'yes', at 'truncated'",
    ),
    "info": ((GOOD, 0.0, False, False, "fine"), "expected a dict, got str 'fine', at 'info'"),
}


@pytest.mark.parametrize("name", BAD_STEPS)
def test_bad_data_of_one_env_is_never_anothers(saying: agymc.VectorEnv, name: str) -> None:
    """Law 4, and law 10: expected, got, where."""
    said, text = BAD_STEPS[name]
    envs = saying
    say(envs, None, None, None)
    before = envs.step([0, 1, 2])
    envs.set_attr("say_step", [None, said, None])
    with pytest.raises(BadDataError, match=re.escape(text)) as caught:
        envs.step([0, 1, 2])
    assert str(caught.value).startswith("env 1 returned bad data in step: ")
    assert str(caught.value).endswith(f"(engine {envs.engine!r}, seed 6)")
    assert caught.value.env_ids == (1,)
    batch = envs.recv()
    assert sorted(batch.env_ids.tolist()) == [0, 2]
    assert batch.observations[:, 1].tolist() == [2.0, 2.0]
    episode = int(before[0][0, 0])
    assert batch.rewards.tolist() == [episode + 2 / 1000] * 2
    with pytest.raises(
        ResetNeededError, match="expected a reset before the next step: env 1 failed"
    ):
        envs.step([0, 0, 0])
    envs.set_attr("say_step", [None, None, None])
    envs.send_reset(env_ids=[1])
    assert envs.recv().observations[0, 1] == 0
    assert envs.step([0, 0, 0])[0][:, 1].tolist() == [3.0, 1.0, 3.0]


BAD_RESETS: dict[str, tuple[Any, str]] = {
    "no tuple": (GOOD, "expected reset to return (observation, info), got ndarray"),
    "three elements": ((GOOD, {}, {}), "expected reset to return (observation, info), got a tuple"),
    "no info": ((GOOD, None), "expected reset to return (observation, info)"),
    "another shape": ((np.zeros(2), {}), "expected an array of shape (3,) and dtype float64, got"),
}


@pytest.mark.parametrize("name", BAD_RESETS)
def test_bad_data_in_reset(saying: agymc.VectorEnv, name: str) -> None:
    said, text = BAD_RESETS[name]
    envs = saying
    say(envs, None, None, None)
    envs.set_attr("say_reset", [None, None, said])
    with pytest.raises(BadDataError, match=re.escape(text)) as caught:
        envs.reset()
    assert caught.value.operation == "reset"
    assert caught.value.env_ids == (2,)
    assert sorted(envs.recv().env_ids.tolist()) == [0, 1]
    envs.set_attr("say_reset", [None, None, None])
    envs.reset()


def test_case_03_statistics_wrapper_counts_real_steps(make_vec: MakeVec) -> None:
    """Gymnasium's RecordEpisodeStatistics on top, in all three modes."""
    for mode in MODES:
        lengths = [(3, 1, 2), (2, 5), 1, 4]
        inner = make_vec([partial(Counting, length=n) for n in lengths], autoreset_mode=mode)
        envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(inner, buffer_length=1000)
        envs.reset(seed=0)
        told: list[list[tuple[float, int]]] = [[] for _ in lengths]
        over = np.zeros(4, bool)
        for _ in range(30):
            if mode is AutoresetMode.DISABLED and over.any():
                envs.reset(options={"reset_mask": over})
            _, _, terminations, truncations, infos = envs.step([0] * 4)
            over = terminations | truncations
            for i in np.flatnonzero(infos.get("_episode", [])):
                told[i].append((infos["episode"]["r"][i], int(infos["episode"]["l"][i])))
        for own, length in zip(told, lengths, strict=True):
            cycle = length if isinstance(length, tuple) else (length,)
            assert len(own) > len(cycle)
            for number, (total, steps) in enumerate(own):
                true = cycle[number % len(cycle)]
                rewards = [number + step / 1000 for step in range(1, true + 1)]
                assert steps == true
                assert total == pytest.approx(sum(rewards))
        assert len(envs.length_queue) == sum(map(len, told))


@each_mode
def test_case_05_reset_mask(make_vec: MakeVec, mode: AutoresetMode) -> None:
    envs = make_vec(counting(), autoreset_mode=mode)
    loop = ReferenceLoop(counting(), mode)
    space = envs.single_observation_space
    assert_reset(space, envs.reset(seed=0), loop.reset(range(6)))
    if mode is not AutoresetMode.DISABLED:
        assert_step(space, envs.step([1] * 6), loop.step(np.array([1] * 6)))
    mask = np.array([True, False, False, True, True, False])
    options = {"reset_mask": mask, "level": 3}
    seeds = [None, 9, 9, 11, 12, 9]  # those of envs that are not reset are not used
    got = envs.reset(seed=[10, 9, 9, 11, 12, 9], options=options)
    assert_reset(space, got, loop.reset([10, *seeds[1:]], [0, 3, 4]))
    # The caller's dict is as it was, the envs saw it without the mask.
    assert list(options) == ["reset_mask", "level"]
    assert options["reset_mask"] is mask
    resets = envs.get_attr("resets")
    assert resets[0][-1] == (10, {"level": 3})
    assert [len(calls) for calls in resets] == [len(env.resets) for env in loop.envs]
    if mode is not AutoresetMode.DISABLED:
        for _ in range(6):
            assert_step(space, envs.step([1] * 6), loop.step(np.array([1] * 6)))


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        ([True, False, True], TypeError, "must be a numpy array, got <class 'list'>"),
        (np.array([1, 0, 1]), TypeError, "must have `dtype=np.bool_`, got int64"),
        (np.array([True]), ValueError, "must have shape `(3,)`, got (1,)"),
        (np.array([[True, False, True]]), ValueError, "must have shape `(3,)`, got (1, 3)"),
        (np.array([False] * 3), ValueError, "at least one True value"),
    ],
    ids=["list", "ints", "length", "shape", "none"],
)
def test_case_05_bad_reset_masks(saying: agymc.VectorEnv, mask: Any, error: Any, text: str) -> None:
    envs = saying
    say(envs, None, None, None)
    before = envs.get_attr("resets")
    options = {"reset_mask": mask}
    with pytest.raises(error, match=re.escape(text)):
        envs.reset(options=options)
    assert list(options) == ["reset_mask"]
    assert envs.get_attr("resets") == before


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_reset_mask_ends_the_wait_for_an_autoreset(make_vec: MakeVec, where: str) -> None:
    """NEXT_STEP: an env that was reset by hand is not reset again by the next step."""
    index = {"first": 0, "last": 2}[where]
    envs = make_vec([partial(Counting, length=1 if i == index else 9) for i in range(3)])
    envs.reset()
    _, _, terminations, *_ = envs.step([0, 0, 0])
    assert terminations[index]
    envs.reset(options={"reset_mask": terminations})
    _, rewards, terminations, *_ = envs.step([3, 3, 3])
    assert rewards[index] == 1.001
    assert envs.get_attr("seen")[index] == [0, 3]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_error_in_an_autoreset(make_vec: MakeVec, mode: AutoresetMode) -> None:
    envs = make_vec(
        [partial(Counting, length=9), partial(Failing, ("reset", 2), length=1)],
        autoreset_mode=mode,
    )
    envs.reset(seed=1)
    if mode is AutoresetMode.NEXT_STEP:
        envs.step([0, 0])
    with pytest.raises(
        EnvError, match=r"env 1 raised ValueError in autoreset: the wheel came off \(engine '"
    ) as caught:
        envs.step([0, 0])
    assert caught.value.operation == "autoreset"
    assert isinstance(caught.value.__cause__, ValueError)
    assert envs.recv().env_ids.tolist() == [0]
    with pytest.raises(ResetNeededError, match="env 1 failed"):
        envs.step([0, 0])
    envs.send_reset(env_ids=[1])
    batch = envs.recv()
    assert batch.episode_ids.tolist() == [1]
    assert batch.steps.tolist() == [0]
    assert envs.step([0, 0])[1][1] == 1.001


def test_scalar_observations_of_toy_text(make_vec: MakeVec) -> None:
    """Discrete observations are Python ints in Gymnasium's toy texts; the batch is int64."""
    envs = make_vec("CliffWalking-v1", 3)
    observations, _ = envs.reset(seed=0)
    assert_identical(observations, np.array([36, 36, 36]), "observations")
    assert envs.observation_space == spaces.MultiDiscrete([48, 48, 48])
    assert observations in envs.observation_space
