"""How long a batch takes on each engine, predicted from what one env costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from agymc.choosing._figures import Figures

__all__ = ["Candidate", "candidates", "fastest"]

# What handing over costs (seconds), measured on a virtual CPU of 2024 with Python 3.11. Their
# proportions matter: an error of half changes no choice but between engines that are about equal.
_BATCH = 45e-6  # the bookkeeping of a batch
_ENV = 1e-6  # of an env in it
_DOORBELL = 80e-6  # telling a worker that looks, and hearing from it
_WAKE = 250e-6  # waking workers, and being woken by them, where nothing better is known
_HAND_OVER = 40e-6  # of an operation to a thread and back
_BESIDE = 1.15  # how much longer a step takes beside others, and the slowest shard than the mean
_WORTH = 0.95  # a more involved engine must take less than this share of the simpler one's time

_SHARE_OF_WAITING = 0.5  # from which an env counts as one that waits


@dataclass(frozen=True)
class Candidate:
    """An engine, and how long a batch would take on it.

    Attributes:
        engine: Its name.
        options: What to make it with.
        seconds: The prediction for a step of all envs; infinity where it is out of the question.
        reason: What the prediction says, or why it is out of the question.
    """

    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = math.inf
    reason: str = ""

    @property
    def label(self) -> str:
        """The engine with its options, as a user writes them."""
        return ", ".join([self.engine, *(f"{key}={value}" for key, value in self.options.items())])


def candidates(
    figures: Figures, num_envs: int, cpus: int, *, isolated: str = ""
) -> list[Candidate]:
    """The engines, from the simplest on.

    Args:
        figures: Of the env.
        num_envs: How many there will be.
        cpus: How many CPUs there are for them.
        isolated: Why the envs must be in processes, all of them; or "".
    """
    n = num_envs
    own = figures.step + _ENV
    # An env that computes in several threads leaves less for its siblings.
    shards = max(1, min(n, cpus, round(cpus / max(1.0, figures.cpu / (figures.step or 1.0)))))
    per_shard = math.ceil(n / shards)
    shard = per_shard * own * (_BESIDE if shards > 1 else 1.0)
    wake = max(figures.round_trip, _WAKE)
    waits = figures.waiting >= _SHARE_OF_WAITING
    told = figures.info / 2  # of each info: every worker pickles its own, one process unpickles all

    def threads(count: int) -> float:
        computing = count * (min(figures.cpu, figures.step) + _HAND_OVER)
        return max(computing, figures.step) + min(figures.step, computing)

    found = [
        Candidate("serial", {}, _BATCH + n * own, f"{_count(n, 'step')}, one after the other"),
        Candidate(
            "process",
            {},
            _BATCH + wake + shard + told * (n + per_shard),
            f"{_count(shards, 'worker')} with {_count(per_shard, 'step')} each, and "
            f"{wake * 1e6:.0f} us to wake and be woken",
        ),
        Candidate(
            "process",
            {"caller_steps": True},
            _BATCH + _DOORBELL * (shards - 1) + shard + told * n,
            f"{_count(shards, 'shard')} of {_count(per_shard, 'step')}, one of them here: nobody "
            "need be woken",
        ),
        Candidate(
            "thread",
            {},
            _BATCH + threads(n),
            f"{_count(n, 'env')} at the same time, on as many threads",
        ),
        Candidate(
            "process+thread",
            {},
            _BATCH + wake + threads(per_shard) + told * (n + per_shard),
            f"{_count(per_shard, 'thread')} in each of {_count(shards, 'worker')}",
        ),
    ]
    return [_judged(one, figures, shards, isolated, waits=waits) for one in found]


def fastest(found: list[Candidate]) -> Candidate:
    """The one to take: the fastest, but for simpler ones that are about as fast."""
    best = found[0]
    for one in found[1:]:
        if one.seconds < best.seconds * _WORTH:
            best = one
    return best


def _judged(
    one: Candidate, figures: Figures, shards: int, isolated: str, *, waits: bool
) -> Candidate:
    """The candidate, or why it is out of the question."""
    reason = ""
    if figures.here and one.engine.startswith("process"):
        reason = "the env can't be sent to another process"
    elif isolated and not (one.engine.startswith("process") and not one.options):
        reason = isolated
    elif "thread" in one.engine and figures.global_random:
        reason = "the env draws from a global random generator, which threads would share"
    elif "thread" in one.engine and not waits:
        reason = f"the env computes for {1 - figures.waiting:.0%} of its time: threads take turns"
    elif one.engine == "process" and shards == 1 and not isolated:
        reason = "there is nothing to divide: one env, or one CPU"
    return Candidate(one.engine, one.options, math.inf, reason) if reason else one


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
