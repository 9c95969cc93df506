"""send, recv, send_reset and batches: who is handed out when, and that nothing is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.envs import Continuous, Counting, Failing, Gate, Gated
from tests.support.reference import (
    ReferenceLoop,
    assert_identical,
    assert_reset,
    assert_step,
    stacked_infos,
)

import agymc
from agymc import (
    BatchLengthError,
    BusyError,
    ClosedError,
    ConfigurationError,
    EnvError,
    NothingInFlightError,
    RecvTimeoutError,
    ResetNeededError,
)

MakeVec = Callable[..., agymc.VectorEnv]
MakeGates = Callable[[int], list[Gate]]


def gated(gates: list[Gate], **kwargs: Any) -> list[Any]:
    return [partial(Gated, gate.path, **{"length": 99, **kwargs}) for gate in gates]


def ids_of(batch: agymc.Batch) -> list[int]:
    return batch.env_ids.tolist()


# ---------------------------------------------------------------- what a batch says


def test_a_batch(make_vec: MakeVec) -> None:
    functions = [partial(Counting, length=n) for n in (1, 2, 9, 9)]
    loop = ReferenceLoop(functions)
    envs = make_vec(functions)
    loop.reset(range(4))
    envs.reset(seed=0)
    expected = loop.step([3, 0, 2, 1])
    envs.send([1, 3, 2], [3, 0, 2])
    batch = envs.recv()
    ids = batch.env_ids
    assert len(batch) == 3
    assert sorted(ids_of(batch)) == [0, 2, 3]
    assert_identical(batch.observations, np.array([expected.observations[i] for i in ids]))
    assert_identical(batch.rewards, np.array([expected.rewards[i] for i in ids]))
    assert_identical(batch.terminations, np.array([expected.terminations[i] for i in ids]))
    assert_identical(batch.truncations, np.array([expected.truncations[i] for i in ids]))
    assert_identical(batch.infos, stacked_infos([expected.infos[i] for i in ids]))
    assert_identical(batch.episode_ids, np.zeros(3, np.int64))
    assert_identical(batch.steps, np.ones(3, np.int64))
    assert batch.env_ids.dtype == np.int64
    with pytest.raises(AttributeError):
        batch.rewards = None  # type: ignore[misc]


def test_case_37_all_initial_observations_can_be_collected(
    variant: dict[str, Any], open_vec: MakeVec
) -> None:
    envs = open_vec([partial(Counting, label=i) for i in range(7)], **variant)
    expected = envs.reset(seed=3)[0]
    envs.send_reset(seed=3)
    seen = []
    for batch in envs.batches(min_ready=2, max_ready=3):
        assert 1 <= len(batch) <= 3
        seen += ids_of(batch)
        assert batch.observations[:, 2].tolist() == expected[batch.env_ids, 2].tolist()
        assert batch.rewards.tolist() == [0.0] * len(batch)
        assert not (batch.terminations | batch.truncations).any()
        assert batch.steps.tolist() == [0] * len(batch)
        assert batch.episode_ids.tolist() == [1] * len(batch)
    assert sorted(seen) == list(range(7))


def test_trajectories_do_not_depend_on_how_they_are_received(
    variant: dict[str, Any], open_vec: MakeVec
) -> None:
    """Law 5: in batches of any size and order, each env plays as it plays alone."""
    functions = [partial(Continuous, length=n) for n in (1, 2, 3, 4, 5, 6, 7)]
    rng = np.random.default_rng(1)
    actions = np.clip(rng.normal(size=(7, 15, 2)), -1, 1).astype(np.float32)
    loop = ReferenceLoop(functions)
    loop.reset(range(7))
    expected = [loop.step(actions[:, number]) for number in range(15)]

    envs = open_vec(functions, **variant)
    envs.send_reset(seed=0)
    made = np.zeros(7, int)
    for batch in envs.batches(min_ready=2, max_ready=5):
        for row, index in enumerate(ids_of(batch)):
            if made[index]:
                its = expected[made[index] - 1]
                assert_identical(batch.observations[row], its.observations[index])
                assert batch.rewards[row] == its.rewards[index]
                assert batch.steps[row] == its.steps[index]
                assert batch.episode_ids[row] == its.episode_ids[index]
        ids = rng.permutation(batch.env_ids[made[batch.env_ids] < 15])
        if len(ids):
            envs.send(actions[ids, made[ids]], ids)
            made[ids] += 1
    assert made.tolist() == [15] * 7


def test_forms_of_env_ids(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 3)
    for env_ids in ((2, 0), np.array([2, 0], np.uint8), range(2, -1, -2), [np.int32(2), 0]):
        envs.send_reset(env_ids=env_ids)
        assert sorted(ids_of(envs.recv())) == [0, 2]
        envs.send([1, 3], env_ids)
        batch = envs.recv()
        assert dict(zip(ids_of(batch), batch.infos["action"].tolist(), strict=True)) == {2: 1, 0: 3}


def test_bad_env_ids(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 3)
    envs.reset()
    text = "expected env_ids to be different integers from 0 to 2, got "
    for env_ids in ([], [3], [-1], [0, 0], [0.0], ["0"], [[0, 1]], "01", np.array([True, False])):
        for attempt in (
            lambda ids=env_ids: envs.send([0] * len(ids), ids),
            lambda ids=env_ids: envs.send_reset(env_ids=ids),
            lambda ids=env_ids: envs.call("render", env_ids=ids),
        ):
            with pytest.raises(ConfigurationError, match=text):
                attempt()
    with pytest.raises(NothingInFlightError):
        envs.recv()
    assert envs.get_attr("seen") == ([], [], [])


# ---------------------------------------------------------------- how many, and who first


def test_min_and_max_ready(variant: dict[str, Any], open_vec: MakeVec) -> None:
    envs = open_vec(partial(Counting, length=99), 6, **variant)
    envs.reset()
    for min_ready, max_ready in [(1, 1), (2, 2), (1, 4), (6, 6), (3, None), (None, 2), (99, None)]:
        envs.send([0] * 6)
        left = 6
        while left:
            size = len(envs.recv(min_ready, max_ready))
            low = min(left, min_ready or max_ready or 6)
            assert low <= size <= min(left, max_ready or 6)
            left -= size
        with pytest.raises(NothingInFlightError):
            envs.recv(min_ready, max_ready)


def test_serial_runs_no_more_than_is_waited_for(open_vec: MakeVec) -> None:
    ran: list[int] = []
    envs = open_vec([partial(Noting, ran, i) for i in range(4)], engine="serial")
    envs.reset()
    envs.send([0, 0, 0], [2, 0, 3])
    assert ran == []
    for count in (1, 2, 3):
        assert ids_of(envs.recv(min_ready=1)) == [[2, 0, 3][count - 1]]
        assert ran == [2, 0, 3][:count]


class Noting(Counting):
    def __init__(self, ran: list[int], index: int) -> None:
        super().__init__()
        self.ran, self.index = ran, index

    def step(self, action):
        self.ran.append(self.index)
        return super().step(action)


def test_wrong_numbers(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 2)
    envs.send_reset()
    for name in ("min_ready", "max_ready"):
        for wrong in (0, -1, 1.5, True, "2"):
            text = f"expected {name} to be a positive integer or None, got {wrong!r}"
            with pytest.raises(ConfigurationError, match=re.escape(text)):
                envs.recv(**{name: wrong})
    with pytest.raises(
        ConfigurationError, match="expected min_ready <= max_ready, got min_ready=2"
    ):
        envs.recv(2, 1)
    assert len(envs.recv(np.int64(2), np.int64(2))) == 2


def test_case_36_recv_with_nothing_in_flight(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 2)
    text = r"expected something in flight, got recv\(\) before send\(\) or send_reset\(\)"
    for _ in range(2):
        for timeout in (None, 0, 5):
            with pytest.raises(NothingInFlightError, match=text):
                envs.recv(timeout=timeout)
        envs.reset()
    assert list(envs.batches()) == []
    envs.send([0, 0])
    envs.recv()
    with pytest.raises(NothingInFlightError, match=text):
        envs.recv()


def test_case_35_who_is_ready_is_received(make_concurrent: MakeVec, make_gates: MakeGates) -> None:
    """In the order in which they get ready, while others still run."""
    gates = make_gates(4)
    envs = make_concurrent(gated(gates))
    envs.reset()
    envs.send([0] * 4)
    for index in (2, 0, 3):
        gates[index].open()
        assert ids_of(envs.recv(min_ready=1)) == [index]
        envs.send([1], [index])  # and can be sent on at once
    gates[2].open()
    gates[3].open()
    assert sorted(ids_of(envs.recv(min_ready=2))) == [2, 3]
    gates[1].open()
    gates[0].open()
    batch = envs.recv()
    steps = dict(zip(ids_of(batch), batch.steps.tolist(), strict=True))
    assert steps == {0: 2, 1: 1}


@pytest.mark.parametrize("where", ["first", "last"])
def test_one_slow_env_does_not_hold_up_the_others(
    make_concurrent: MakeVec, make_gates: MakeGates, where: str
) -> None:
    gates = make_gates(3)
    slow = {"first": 0, "last": 2}[where]
    fast = [index for index in range(3) if index != slow]
    envs = make_concurrent(gated(gates))
    envs.reset()
    envs.send([0] * 3)
    for index in fast:
        gates[index].open(20)
    made: Counter[int] = Counter()
    while any(made[index] < 20 for index in fast):
        batch = envs.recv(min_ready=1)
        made.update(ids_of(batch))
        ready = [index for index in ids_of(batch) if made[index] < 20]
        if ready:
            envs.send([0] * len(ready), ready)
    assert made == {index: 20 for index in fast}
    gates[slow].open()
    batch = envs.recv()
    assert ids_of(batch) == [slow]
    assert batch.steps.tolist() == [1]


def test_case_39_oldest_first(make_vec: MakeVec) -> None:
    """Whose operation was sent first comes first, also when it was not ready first."""
    envs = make_vec(partial(Counting, length=999), 5, fairness="oldest")
    envs.reset()
    sent = [3, 1, 4, 0, 2]
    for index in sent:
        envs.send([0], [index])
    for _ in range(12):
        batch = envs._pool.receive(5, 2, None)  # waits for all five, and takes two of them
        assert batch.tolist() == sent[:2]
        for index in sent[:2]:
            envs.send([0], [index])
        sent = sent[2:] + sent[:2]


# ---------------------------------------------------------------- time


def test_case_38_a_timeout_bounds_the_call_and_loses_nothing(
    make_concurrent: MakeVec, make_gates: MakeGates
) -> None:
    gates = make_gates(3)
    envs = make_concurrent(gated(gates))
    envs.reset()
    envs.send([0] * 3)
    gates[1].open()
    text = (
        r"expected 3 results within 0.05 s, got \d; waiting for envs? .*Nothing is lost: receive a"
    )
    for _ in range(3):
        with pytest.raises(RecvTimeoutError, match=text):
            envs.recv(timeout=0.05)
    assert ids_of(envs.recv(min_ready=1)) == [1]
    with pytest.raises(
        RecvTimeoutError, match=r"expected 2 results within 0.05 s, got 0; waiting for envs 0 and 2"
    ):
        envs.recv(min_ready=2, timeout=0.05)
    with pytest.raises(TimeoutError):  # Python's own, and multiprocessing's, for Gymnasium's sake
        envs.recv(min_ready=1, timeout=0)
    gates[0].open()
    gates[2].open()
    batch = envs.recv()
    assert sorted(ids_of(batch)) == [0, 2]
    assert batch.steps.tolist() == [1, 1]


def test_no_time_at_all_still_gets_somewhere(make_vec: MakeVec) -> None:
    """Whoever polls receives everything in the end, also where polling itself runs the envs."""
    envs = make_vec(partial(Counting, length=99), 3)
    envs.reset()
    for number, timeout in enumerate([0, 1e-9, -1.0], start=1):
        envs.send([0] * 3)
        seen: list[int] = []
        while len(seen) < 3:
            try:
                batch = envs.recv(min_ready=1, timeout=timeout)
            except RecvTimeoutError:
                continue
            assert batch.steps.tolist() == [number] * len(batch)
            seen += ids_of(batch)
        assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("operation", ["step", "reset"])
def test_case_16_after_a_timeout_each_result_belongs_to_its_action(
    make_concurrent: MakeVec, make_gates: MakeGates, operation: str
) -> None:
    """Law 2. Gymnasium 1.4 answers each later action with the result of the one before."""
    gates = make_gates(2)
    functions = gated(gates, length=3)
    loop = ReferenceLoop([partial(Counting, length=3)] * 2)
    envs = make_concurrent(functions)
    space = envs.single_observation_space
    envs.reset(seed=0)
    loop.reset([0, 1])
    for number in range(9):
        action = [number % 4, (number + 1) % 4]
        resetting = loop.now.terminations[0]
        expected = loop.step(action)
        envs.step_async(action)
        if not resetting:
            gates[1].open()
            for _ in range(2):
                with pytest.raises(RecvTimeoutError):
                    envs.step_wait(timeout=0.01)
            with pytest.raises(BusyError):
                envs.step(action) if operation == "step" else envs.reset()
            gates[0].open()
        assert_step(space, envs.step_wait(timeout=50), expected)


def test_split_calls_out_of_turn(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 2)
    for wait in (envs.step_wait, envs.reset_wait, envs.call_wait):
        with pytest.raises(
            NothingInFlightError, match=r"Calling `\w+_wait` without any prior call"
        ):
            wait()
    envs.reset_async()
    for other in (
        lambda: envs.step_async([0, 0]),
        lambda: envs.reset_async(),
        lambda: envs.call_async("render"),
        lambda: envs.send([0, 0]),
        lambda: envs.send_reset(),
        lambda: envs.recv(),
        lambda: envs.call("render"),
        lambda: envs.set_attr("label", 1),
        lambda: envs.snapshot(),
    ):
        with pytest.raises(BusyError, match="while waiting for a pending call to `reset`"):
            other()
    with pytest.raises(NothingInFlightError):
        envs.step_wait()
    envs.reset_wait()
    envs.call_async("render")
    with pytest.raises(BusyError, match="while waiting for a pending call to `call`"):
        envs.step([0, 0])
    assert len(envs.call_wait()) == 2
    assert envs.step([0, 0])[1].tolist() == [0.001, 0.001]


# ---------------------------------------------------------------- one operation at a time


def test_a_second_operation_is_refused_at_once(
    make_concurrent: MakeVec, make_gates: MakeGates
) -> None:
    """Law 1, while the first is known to be running."""
    gates = make_gates(3)
    envs = make_concurrent(gated(gates))
    envs.reset()
    envs.send([0, 1], [0, 2])
    text = "'step' is in flight, for envs 0 and 2; receive it first"
    with pytest.raises(BusyError, match=r"'step' is still in flight after 0 s, for envs 0 and 2"):
        envs._pool.start_over(0)  # what a reset of all begins with, given more time
    for attempt in (
        lambda: envs.send([0, 0, 0]),
        lambda: envs.step([0, 0, 0]),
        lambda: envs.send([0, 0], [0, 2]),
        lambda: envs.send_reset(),
        lambda: envs.call("render"),
        lambda: envs.get_attr("count"),
        lambda: envs.set_attr("label", 3),
        lambda: envs.snapshot(),
    ):
        with pytest.raises(BusyError, match=text):
            attempt()
    with pytest.raises(BusyError, match="can't begin 'step': 'step' is in flight, for env 2"):
        envs.send([0, 0], [1, 2])
    # The idle one is free to do anything.
    gates[1].open()
    envs.send([3], [1])
    assert ids_of(envs.recv(min_ready=1)) == [1]
    assert envs.call("render", env_ids=[1])[0].shape == (2, 3, 3)
    envs.send_reset(env_ids=[1])
    assert ids_of(envs.recv(min_ready=1)) == [1]
    gates[0].open()
    gates[2].open()
    batch = envs.recv()
    assert dict(zip(ids_of(batch), batch.infos["action"].tolist(), strict=True)) == {0: 0, 2: 1}
    # None of what was refused has reached an env.
    assert envs.get_attr("seen") == ([0], [3], [1])
    assert [len(calls) for calls in envs.get_attr("resets")] == [1, 2, 1]
    assert envs.get_attr("label") == (None, None, None)


def test_a_result_that_was_not_received_keeps_its_env_busy(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Counting, length=99), 3)
    envs.reset()
    envs.send([0, 1, 2])
    received = ids_of(envs.recv(max_ready=1))
    envs.send([3], received)
    left = [index for index in range(3) if index not in received]
    with pytest.raises(BusyError, match=r"'step' (is in flight|was not received), for env"):
        envs.send([0], left[:1])
    with pytest.raises(BusyError):
        envs.step([0, 0, 0])
    batch = envs.recv()
    said = dict(zip(ids_of(batch), batch.infos["action"].tolist(), strict=True))
    assert said == {received[0]: 3, left[0]: left[0], left[1]: left[1]}


def test_mixed_with_whole_batches(make_vec: MakeVec) -> None:
    functions = [partial(Counting, length=n) for n in (2, 3, 4)]
    loop = ReferenceLoop(functions)
    envs = make_vec(functions)
    space = envs.single_observation_space
    envs.send_reset(seed=7)
    loop.reset([7, 8, 9])
    envs.recv()
    for number in range(12):
        actions = [(number + i) % 4 for i in range(3)]
        expected = loop.step(actions)
        if number % 2:
            assert_step(space, envs.step(actions), expected)
            continue
        envs.send([actions[2]], [2])
        envs.send(actions[:2], [0, 1])
        for batch in envs.batches(min_ready=1):
            for row, index in enumerate(ids_of(batch)):
                assert_identical(batch.observations[row], expected.observations[index])
                assert batch.steps[row] == expected.steps[index]
    assert envs.get_attr("count") == tuple(loop.now.steps)


def test_a_reset_drops_what_was_sent_before(make_vec: MakeVec) -> None:
    """Whether it is ready by then or not."""
    envs = make_vec(partial(Counting, length=99), 3)
    loop = ReferenceLoop([partial(Counting, length=99)] * 3)
    loop.reset([1, 2, 3])
    envs.reset(seed=1)
    space = envs.single_observation_space
    for number in range(5):
        loop.step([0, 0, 0])
        envs.send([0, 0, 0])
        if number == 1:
            envs.recv(max_ready=1)
        expected = loop.reset([number, number + 1, number + 2])
        assert_reset(space, envs.reset(seed=number), expected)
        assert_step(space, envs.step([1, 2, 3]), loop.step([1, 2, 3]))


def test_a_mask_and_env_ids_may_contradict(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Counting, length=99), 3)
    options = {"reset_mask": np.array([True, False, False])}
    with pytest.raises(
        ConfigurationError, match=r"expected either env_ids or `options\['reset_mask'\]`, got both"
    ):
        envs.send_reset(options=options, env_ids=[1])
    envs.send_reset(options=options)
    assert ids_of(envs.recv()) == [0]


def test_a_masked_reset_beside_what_is_in_flight(make_vec: MakeVec) -> None:
    """It gives the observations of all envs, so none of them may be in the making."""
    envs = make_vec(partial(Counting, length=99), 3)
    envs.reset()
    envs.send([1], [2])
    options = {"reset_mask": np.array([True, False, False])}
    with pytest.raises(BusyError, match="can't reset: env 2 busy; receive the results first"):
        envs.reset(options=options)
    assert ids_of(envs.recv()) == [2]
    observations, _ = envs.reset(options=options)
    assert observations[:, :2].tolist() == [[1, 0], [0, 0], [0, 1]]


def test_steps_and_resets_in_one_batch(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Counting, length=99), 4)
    envs.reset()
    envs.step([0] * 4)
    envs.send([1, 2], [3, 0])
    envs.send_reset(seed=5, env_ids=[1])
    batch = envs.recv()
    steps = dict(zip(ids_of(batch), batch.steps.tolist(), strict=True))
    episodes = dict(zip(ids_of(batch), batch.episode_ids.tolist(), strict=True))
    rewards = dict(zip(ids_of(batch), batch.rewards.tolist(), strict=True))
    assert steps == {0: 2, 1: 0, 3: 2}
    assert episodes == {0: 0, 1: 1, 3: 0}
    assert rewards == {0: 0.002, 1: 0.0, 3: 0.002}
    assert envs.get_attr("resets")[1][-1] == (6, None)  # seed + env index, as in `reset`


@pytest.mark.parametrize("mode", list(agymc.AutoresetMode), ids=lambda mode: mode.name)
def test_reset_drops_what_was_not_received(make_vec: MakeVec, mode: agymc.AutoresetMode) -> None:
    """Also an episode that began in what was dropped counts."""
    functions = [
        partial(Counting, length=1 if mode is agymc.AutoresetMode.NEXT_STEP else 2),
        partial(Failing, ("step", 2), length=9),
        partial(Counting, length=9),
    ]
    envs = make_vec(functions, autoreset_mode=mode)
    envs.reset()
    envs.step([0] * 3)
    with pytest.raises(EnvError, match="env 1 raised"):
        envs.step([0] * 3)  # which has reset env 0, but where autoreset is disabled
    observations, infos = envs.reset(seed=0)
    episodes = [1 if mode is agymc.AutoresetMode.DISABLED else 2, 1, 1]
    assert observations[:, 0].tolist() == episodes
    assert observations[:, 1].tolist() == [0, 0, 0]
    assert infos["episode_number"].tolist() == episodes
    with pytest.raises(NothingInFlightError):
        envs.recv()
    envs.send([0] * 3)
    batch = envs.recv()
    assert batch.steps.tolist() == [1, 1, 1]
    assert batch.episode_ids.tolist() == [episodes[index] for index in batch.env_ids]


def test_closed(make_vec: MakeVec) -> None:
    envs = make_vec(Counting, 2)
    envs.send_reset()
    envs.close()
    for attempt in (
        lambda: envs.recv(),
        lambda: envs.send([0, 0]),
        lambda: envs.send_reset(),
        lambda: envs.step([0, 0]),
        lambda: envs.call("render"),
        lambda: envs.snapshot(),
    ):
        with pytest.raises(ClosedError, match=r"expected open environments"):
            attempt()


# ---------------------------------------------------------------- errors of envs


def failing(at: tuple[str, int], count: int = 4, who: int = 1) -> list[Any]:
    return [partial(Failing, at if i == who else None, length=99) for i in range(count)]


@pytest.mark.parametrize("who", [0, 1, 3])
def test_results_of_siblings_stay_receivable(make_vec: MakeVec, who: int) -> None:
    """Law 4 and case 17."""
    envs = make_vec(failing(("step", 2), who=who))
    envs.reset(seed=10)
    envs.step([0] * 4)
    with pytest.raises(EnvError) as caught:
        envs.step([0, 1, 2, 3])
    assert str(caught.value) == (
        f"env {who} raised ValueError in step: the wheel came off "
        f"(engine {envs.engine!r}, seed {10 + who})"
    )
    assert caught.value.env_ids == (who,)
    assert caught.value.env_id == who
    assert caught.value.others == ()
    assert isinstance(caught.value.__cause__, ValueError)
    others = [index for index in range(4) if index != who]
    batch = envs.recv()
    assert sorted(ids_of(batch)) == others
    assert batch.infos["action"].tolist() == ids_of(batch)
    assert batch.steps.tolist() == [2, 2, 2]
    with pytest.raises(NothingInFlightError):
        envs.recv()
    # It must be reset; the others go on.
    text = f"expected a reset before the next step: env {who} failed"
    for attempt in (lambda: envs.step([0] * 4), lambda: envs.send([0], [who])):
        with pytest.raises(ResetNeededError, match=text):
            attempt()
    envs.send([0] * 3, others)
    assert envs.recv().steps.tolist() == [3, 3, 3]
    envs.send_reset(env_ids=[who])
    assert envs.recv().episode_ids.tolist() == [1]
    observations = envs.step([0] * 4)[0]
    assert observations[others, 1].tolist() == [4.0, 4.0, 4.0]
    assert observations[who].tolist()[:2] == [1.0, 1.0]


def test_several_failures_at_once(make_vec: MakeVec) -> None:
    error = KeyError("key")
    functions = [
        partial(Failing, ("step", 1) if i in (1, 3, 4) else None, error, length=9) for i in range(5)
    ]
    envs = make_vec(functions)
    envs.reset()
    with pytest.raises(EnvError) as caught:
        envs.step([0] * 5)
    assert str(caught.value).startswith("env 1 raised KeyError in step: 'key'")
    assert str(caught.value).endswith("; envs 3 and 4 failed too, see `others`")
    assert [other.env_id for other in caught.value.others] == [3, 4]
    assert all(isinstance(other.__cause__, KeyError) for other in caught.value.others)
    assert sorted(ids_of(envs.recv())) == [0, 2]
    with pytest.raises(ResetNeededError, match="envs 1, 3 and 4 failed"):
        envs.step([0] * 5)
    envs.reset()
    assert envs.step([0] * 5)[0][:, 1].tolist() == [1.0] * 5


def test_recv_raises_and_then_goes_on(make_vec: MakeVec) -> None:
    envs = make_vec(failing(("step", 1)))
    envs.reset()
    envs.send([0, 1, 2, 3])
    seen, errors = [], 0
    while envs._pool.in_flight:
        try:
            seen += ids_of(envs.recv(min_ready=1, max_ready=1))
        except EnvError as error:
            errors += 1
            assert error.env_id == 1
    assert (sorted(seen), errors) == ([0, 2, 3], 1)


@pytest.mark.parametrize("who", [0, 2])
def test_an_error_in_reset(make_vec: MakeVec, who: int) -> None:
    envs = make_vec(failing(("reset", 1), count=3, who=who))
    with pytest.raises(EnvError, match=f"env {who} raised ValueError in reset: the wheel came off"):
        envs.reset(seed=1)
    assert len(envs.recv()) == 2
    with pytest.raises(ResetNeededError, match=f"env {who} failed"):
        envs.step([0] * 3)
    envs.reset(seed=1)
    assert envs.step([0] * 3)[0][:, 1].tolist() == [1.0] * 3


def test_an_error_in_a_call_changes_nothing(make_vec: MakeVec) -> None:
    envs = make_vec(partial(Failing, ("step", 99), length=99), 3)
    envs.reset()
    with pytest.raises(EnvError, match="env 0 raised AttributeError in call 'no_such_thing'"):
        envs.call("no_such_thing")
    with pytest.raises(EnvError, match="raised TypeError in call 'render'"):
        envs.call("render", 1, 2)
    assert envs.step([0] * 3)[0][:, 1].tolist() == [1.0] * 3
    assert envs.call("get_wrapper_attr", "count", env_ids=[2]) == (1,)


def test_calls_while_others_step(make_concurrent: MakeVec, make_gates: MakeGates) -> None:
    gates = make_gates(2)
    envs = make_concurrent(gated(gates))
    envs.reset()
    envs.send([0], [0])
    for number in range(3):
        assert envs.call("get_wrapper_attr", "count", env_ids=[1]) == (number,)
        gates[1].open()
        envs.send([0], [1])
        assert ids_of(envs.recv(min_ready=1)) == [1]
    gates[0].open()
    assert ids_of(envs.recv()) == [0]


def test_wrong_numbers_of_things(make_vec: MakeVec, tmp_path: Path) -> None:
    envs = make_vec(Counting, 3)
    envs.reset()
    with pytest.raises(BatchLengthError, match="expected 2 seeds, one per env, got 3"):
        envs.send_reset(seed=[1, 2, 3], env_ids=[0, 1])
    with pytest.raises(BatchLengthError, match="Got `2` values for 3 environments"):
        envs.set_attr("label", [1, 2])
    with pytest.raises(BatchLengthError, match="expected 3 snapshots, one per env, got 1"):
        envs.restore(envs.snapshot([0]))
