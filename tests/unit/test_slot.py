"""The state machine of one env, driven by hand: the only autoreset code."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.support.envs import Counting, Failing

from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command
from agymc.runners.base import drive
from agymc.slot import Slot
from agymc.spaces import Misfit
from agymc.types import AutoresetMode

ROW = 2


def make(env_fn: Any, mode: str, reset_seed: Any = None) -> tuple[Slot, Buffers]:
    slot = Slot(5, AutoresetMode(mode), reset_seed)
    drive(slot, Command.BUILD, env_fn)
    assert slot.reply is not None
    report = slot.reply.value
    slot.reply = None
    buffers = BuffersSpec(4, report.observation_space, report.action_space).allocate()
    slot.attach(buffers, ROW)
    return slot, buffers


def said(slot: Slot) -> Any:
    reply, slot.reply = slot.reply, None
    return reply and reply.info


def row(buffers: Buffers) -> tuple[Any, ...]:
    """(episode, step, reward, terminated, truncated) of the slot's row, the only one touched."""
    others = np.arange(4) != ROW
    assert not buffers.observations[0][others].any()
    assert not buffers.rewards[others].any()
    episode, step, _ = buffers.observations[0][ROW].tolist()
    flags = buffers.terminations[ROW].item(), buffers.truncations[ROW].item()
    return int(episode), int(step), buffers.rewards[ROW].item(), *flags


def test_next_step_needs_two_operations() -> None:
    slot, buffers = make(partial(Counting, length=1), "NextStep")
    assert slot.begin(Command.RESET, (3, None))((3, None))[0][1] == 0
    drive(slot, Command.RESET, (3, None))
    said(slot)
    function = slot.begin(Command.STEP, 0)
    assert function == slot.env.step
    assert slot.finish(function(0)) is None
    assert row(buffers)[1:] == (1, 1.001, True, False)
    function = slot.begin(Command.STEP, 0)
    assert function != slot.env.step
    assert slot.finish(function("never looked at")) is None
    assert row(buffers)[1:] == (0, 0.0, False, False)
    assert slot.begin(Command.STEP, 0) == slot.env.step


def test_same_step_calls_twice() -> None:
    slot, buffers = make(partial(Counting, length=1), "SameStep")
    drive(slot, Command.RESET, (3, None))
    assert said(slot) == {"episode_number": 0}
    function = slot.begin(Command.STEP, 1)
    following = slot.finish(function(1))
    assert following is not None, "a reset must follow"
    assert slot.finish(following(1)) is None
    assert row(buffers) == (1, 0, 0.001, True, False)
    info = said(slot)
    assert info["final_obs"][:2].tolist() == [0.0, 1.0]
    assert info["final_info"] == {"step_number": 1, "action": 1}
    assert info["episode_number"] == 1
    assert slot.begin(Command.STEP, 0) == slot.env.step


def test_disabled_only_steps() -> None:
    slot, buffers = make(partial(Counting, length=1, truncate=True), "Disabled")
    drive(slot, Command.RESET, (3, None))
    assert slot.finish(slot.begin(Command.STEP, 0)(0)) is None
    assert row(buffers) == (0, 1, 0.001, False, True)
    assert slot.begin(Command.STEP, 0) == slot.env.step


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_seeds_of_autoresets(mode: str) -> None:
    asked = []

    def reset_seed(index: int, episode: int) -> int | None:
        asked.append((index, episode))
        return episode if episode % 2 else None

    slot, _ = make(partial(Counting, length=1), mode, reset_seed)
    drive(slot, Command.RESET, (9, None))
    while len(slot.env.resets) < 5:
        drive(slot, Command.STEP, 0)
    assert asked == [(5, 1), (5, 2), (5, 3), (5, 4)]
    assert [seed for seed, _ in slot.env.resets] == [9, 1, None, 3, None]


@pytest.mark.parametrize("between", [Command.CALL, Command.RENDER, Command.SET, Command.SNAPSHOT])
def test_other_commands_change_nothing(between: Command) -> None:
    """Also between an episode's last step and its autoreset."""
    payload: Any = {
        Command.CALL: ("get_wrapper_attr", ("count",), {}),
        Command.SET: ("label", 3),
    }.get(between)
    slot, buffers = make(partial(Counting, length=1), "NextStep")
    drive(slot, Command.RESET, (0, None))
    for _ in range(3):
        for expected in ((1, True), (0, False)):
            drive(slot, between, payload)
            assert slot.reply is not None
            assert slot.reply.fault is None
            drive(slot, Command.STEP, 0)
            assert (row(buffers)[1], row(buffers)[3]) == expected


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_an_error_ends_the_operation(mode: str) -> None:
    slot, buffers = make(partial(Failing, ("step", 2), length=9), mode)
    drive(slot, Command.RESET, (0, None))
    drive(slot, Command.STEP, 0)
    drive(slot, Command.STEP, 0)
    assert slot.reply is not None
    assert slot.reply.fault is not None
    assert slot.reply.fault.operation == "step"
    assert isinstance(slot.reply.fault.exception, ValueError)
    assert row(buffers)[1] == 1  # as it was
    slot.reply = None
    drive(slot, Command.RESET, (0, None))
    drive(slot, Command.STEP, 0)
    assert row(buffers) == (1, 1, 1.001, False, False)


def test_an_error_in_an_autoreset_is_called_so() -> None:
    for mode, steps in (("NextStep", 2), ("SameStep", 1)):
        slot, _ = make(partial(Failing, ("reset", 2), length=1), mode)
        drive(slot, Command.RESET, (0, None))
        for _ in range(steps):
            slot.reply = None
            drive(slot, Command.STEP, 0)
        assert slot.reply is not None
        assert slot.reply.fault is not None
        assert slot.reply.fault.operation == "autoreset"
        slot.reply = None
        drive(slot, Command.RESET, (0, None))
        assert said(slot) == {"episode_number": 1}


def test_bad_data_is_a_fault_of_data() -> None:
    class Bad(Counting):
        def step(self, action):
            return 1

    slot, _ = make(Bad, "NextStep")
    drive(slot, Command.RESET, (0, None))
    slot.reply = None
    drive(slot, Command.STEP, 0)
    assert slot.reply is not None
    assert slot.reply.fault is not None
    assert slot.reply.fault.data
    assert isinstance(slot.reply.fault.exception, Misfit)


def test_not_built() -> None:
    slot = Slot(0, AutoresetMode.NEXT_STEP)
    drive(slot, Command.STEP, 0)
    assert slot.reply is not None
    assert slot.reply.fault is not None
    assert "not built" in str(slot.reply.fault.exception)
