"""What is to be done about faults: the policy, and what an env's fault is told as.

A *fault* is what ends an operation of an env otherwise than by a result: it raised ("error"), it
did not answer in time ("timeout"), its process died ("crash"), or it returned what its spaces do
not allow ("bad data"). Without a policy a fault is an exception in the caller, and nothing is done
about it. See docs/faults.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Literal, TypeAlias

from agymc.errors import ConfigurationError

__all__ = ["FAULT_KINDS", "Backoff", "Check", "FaultKind", "FaultPolicy", "FaultRecord", "OnFault"]

OnFault: TypeAlias = Literal["raise", "restart"]
"""Whether a fault is raised in the caller, or told as data while the env is restarted."""

Check: TypeAlias = Literal["shape", "space", "finite"]
"""What an observation must be: of its space's shape and dtype ("shape"), an element of its space
("space"), or free of NaN and infinities, the reward too ("finite")."""

FaultKind: TypeAlias = Literal["error", "timeout", "crash", "bad data"]
"""What kind of fault it was."""

FAULT_KINDS: tuple[FaultKind, ...] = ("error", "timeout", "crash", "bad data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before an env is restarted, which doubles with every failure in a row.

    Attributes:
        base: Seconds before the first restart.
        cap: Seconds at the most.
        jitter: The share by which the time varies at random, so that many envs that lost the same
            server don't come back at the same moment.
    """

    base: float = 0.1
    cap: float = 30.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.base <= self.cap < math.inf or not 0 <= self.jitter <= 1:
            raise ConfigurationError(
                f"expected a backoff with 0 <= base <= cap seconds and 0 <= jitter <= 1, got {self}"
            )

    def seconds(self, failures: int, random: Random) -> float:
        """The time before a restart, after so many failures in a row (at least 1)."""
        seconds = min(self.cap, self.base * 2.0 ** min(failures - 1, 60))
        return seconds * (1 + self.jitter * random.uniform(-1, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPolicy:
    """What to expect of the envs, and what to do about those that fail.

    Timeouts are of the env's own time: waiting for its turn in a worker does not count. They are
    looked after while the caller waits for results.

    Attributes:
        startup_timeout: Seconds that constructing an env may take; None: no limit.
        reset_timeout: The same for a reset, asked for or made by autoreset.
        step_timeout: The same for a step.
        call_timeout: The same for everything else that is asked of an env: ``call``, ``render``,
            ``set_attr``, ``snapshot``, ...
        episode_timeout: Seconds of its own time that an env may take for one episode.
        on_fault: "raise" raises an `EnvError` in the caller. "restart" rebuilds the env and tells
            the fault as data: the operation reads ``truncated``, and ``infos["fault"]`` says why.
        max_restarts: How often one env may be restarted per hour for faults of its own. One more,
            and the fault is raised.
        backoff: How long to wait before a restart.
        grace: Seconds between interrupting an env that missed its deadline and giving it up: its
            process is killed, or its thread is abandoned.
        check: What observations must be.
        isolate_after: In a process with several envs: after so many deaths of it that were one
            env's fault, this env gets a process of its own. None: never.
        max_abandoned: How many threads that can't be killed may be left behind at any time. With
            one more, an env that hangs in a thread is not rebuilt, and its fault is raised.
    """

    startup_timeout: float | None = None
    reset_timeout: float | None = None
    step_timeout: float | None = None
    call_timeout: float | None = None
    episode_timeout: float | None = None
    on_fault: OnFault = "raise"
    max_restarts: int = 10
    backoff: Backoff = field(default_factory=Backoff)
    grace: float = 1.0
    check: Check = "shape"
    isolate_after: int | None = 2
    max_abandoned: int = 16

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name.endswith("_timeout") and value is not None and not _is_seconds(value):
                raise ConfigurationError(
                    f"expected {one.name} to be a positive number of seconds or None, got {value!r}"
                )
        if not _is_seconds(self.grace):
            raise ConfigurationError(
                f"expected grace to be a positive number of seconds, got {self.grace!r}"
            )
        if self.on_fault not in ("raise", "restart"):
            raise ConfigurationError(
                f"expected on_fault 'raise' or 'restart', got {self.on_fault!r}"
            )
        if self.check not in ("shape", "space", "finite"):
            raise ConfigurationError(
                f"expected check 'shape', 'space' or 'finite', got {self.check!r}"
            )
        if not isinstance(self.backoff, Backoff):
            raise ConfigurationError(f"expected backoff to be a Backoff, got {self.backoff!r}")
        for name, least in (("max_restarts", 0), ("max_abandoned", 0), ("isolate_after", 1)):
            value = getattr(self, name)
            if value is None and name == "isolate_after":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigurationError(
                    f"expected {name} to be an integer of at least {least}, got {value!r}"
                )

    @property
    def restarts(self) -> bool:
        """Whether a fault is told as data."""
        return self.on_fault == "restart"


def _is_seconds(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < math.inf


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A fault, as ``infos["fault"]`` tells it.

    Attributes:
        kind: "error", "timeout", "crash" or "bad data".
        operation: What the env was doing: "step", "reset", "autoreset", "restart", ...
        exception: The exception's type and text, or how the process died.
        traceback: The traceback, or the stack where the env hung; "" where nothing is known.
        restarts: How often this env was restarted so far, this time included.
        collateral: Whether it was not the env's own fault: it shared a process with the culprit.
    """

    kind: FaultKind
    operation: str
    exception: str
    traceback: str
    restarts: int = 0
    collateral: bool = False

    def as_info(self) -> dict[str, Any]:
        """As one env's info has it, under the key "fault"."""
        return {one.name: getattr(self, one.name) for one in fields(self)}
