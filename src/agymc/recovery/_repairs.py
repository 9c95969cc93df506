"""How an operation that failed goes on: what is sent in its place, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agymc.commands import Command, Reply, Restart
from agymc.faults import FaultRecord
from agymc.ledger import Ledger
from agymc.types import AutoresetMode, EnvFn, ResetSeed

__all__ = ["Repair", "ending_of", "new_repair", "restart_of"]

ResetArguments = tuple[int | None, dict[str, Any] | None]
"""(seed, options)"""


@dataclass(slots=True)
class Repair:
    """A slot whose operation in flight waits for its env to be restarted.

    Attributes:
        record: The fault.
        not_before: When the backoff is over.
        begin: Whether the operation ends with the first observation of the new episode.
        initial: Whether the operation was a reset, so that no episode was truncated.
        begun: Whether the RESTART was sent.
        kept: Of a step whose autoreset failed: its observation, reward and flags.
        info: The same: its info.
        alone: Whether the slot is to have a worker of its own.
    """

    record: FaultRecord
    not_before: float
    begin: bool
    initial: bool
    begun: bool = False
    kept: tuple[Any, Any, bool, bool] | None = None
    info: dict[str, Any] | None = None
    alone: bool = False


def new_repair(
    ledger: Ledger,
    index: int,
    record: FaultRecord,
    not_before: float,
    info: dict[str, Any] | None,
) -> Repair:
    """What has to be known of the operation that a slot has in flight, to end it later.

    Args:
        ledger: Knows the operation.
        index: The slot.
        record: The fault.
        not_before: When the env may be restarted.
        info: What the slot said along with the fault.
    """
    buffers = ledger.buffers
    assert buffers is not None and ledger.begun_at is not None
    mode = ledger.autoreset_mode
    initial = ledger.command(index) is Command.RESET or (
        mode is AutoresetMode.NEXT_STEP and ledger.is_over(index)
    )
    begin = initial or mode is AutoresetMode.SAME_STEP
    repair = Repair(record, not_before, begin, initial, info=info)
    in_autoreset = buffers.reset_began[index] > buffers.began[index] >= ledger.begun_at[index]
    if mode is AutoresetMode.SAME_STEP and not initial and in_autoreset:
        # The step itself was done, and its results are in the row.
        row = np.array([index])
        (observation,) = buffers.observation_layout.elements(buffers.observations, row)
        repair.record = replace(record, operation="autoreset")
        repair.kept = (
            observation,
            np.copy(buffers.rewards[index]),
            bool(buffers.terminations[index]),
            bool(buffers.truncations[index]),
        )
    return repair


def restart_of(
    ledger: Ledger,
    index: int,
    repair: Repair,
    env_fn: EnvFn,
    reset: ResetArguments,
    reset_seed: ResetSeed | None,
) -> Restart:
    """What is sent in the place of an operation that failed.

    The seed of the reset that belongs to it is documented in docs/faults.md.

    Args:
        ledger: Knows the operation.
        index: The slot.
        repair: Its repair.
        env_fn: Makes its env.
        reset: The arguments of its last reset that was asked for.
        reset_seed: Gives the seeds of autoresets.
    """
    over = ledger.autoreset_mode is AutoresetMode.SAME_STEP and ledger.is_over(index)
    episode = int(ledger.episodes.ids[index]) + over
    seed, options = reset
    if ledger.command(index) is not Command.RESET:
        seed, options = None, None
        if reset_seed is not None:
            seed = reset_seed(index, episode + 1)
        base = ledger.seeds[index]
        if seed is None and base is not None:
            entropy = [abs(int(base)), index, episode + 1, repair.record.restarts]
            seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    return Restart(env_fn, None if seed is None else int(seed), options, episode, repair.begin)


def ending_of(ledger: Ledger, index: int, repair: Repair, reply: Reply) -> Reply:
    """The env runs again: the operation that failed ends, as an episode that was truncated.

    Args:
        ledger: Has the last observation, and the row where the ending is written.
        index: The slot.
        repair: Its repair, which is over.
        reply: What the slot said to the RESTART.
    """
    buffers = ledger.buffers
    assert buffers is not None
    info = dict(reply.info or {})
    if not repair.initial:
        last = ledger.last if ledger.last is not None else buffers.observations
        (observation,) = buffers.observation_layout.elements(last, np.array([index]))
        reward: Any = 0.0
        terminated, truncated = False, True
        if repair.kept is not None:
            observation, reward, terminated, truncated = repair.kept
        buffers.rewards[index] = reward
        buffers.terminations[index] = terminated
        buffers.truncations[index] = truncated
        if repair.begin:
            info = {"final_obs": observation, "final_info": repair.info or {}, **info}
        else:
            buffers.observation_layout.writer(buffers.observations, index)(observation)
    info["fault"] = repair.record.as_info()
    return Reply(info, reply.objects)
