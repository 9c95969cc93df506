"""Where slots that run elsewhere leave what has ended, for the owner of the runner to collect.

Any thread may `put`; the owner calls everything else. `deque.append`, `deque.popleft` and attribute
reads are atomic; nothing else is shared.

A waiting owner wants to wake once, when enough has ended, not 200 times for 200 envs. It says how
much in `_wanted` and *then* looks at `_ended` again; who puts appends to `_ended` and *then* looks
at `_wanted`. Whichever comes second sees the other's write, so a wake-up can be superfluous and
can't be missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat

from agymc.bells import Bell
from agymc.commands import Completion, Reply
from agymc.runners.base import Runner
from agymc.slot import Slot

__all__ = ["Outbox", "OutboxRunner"]

_NOBODY_WAITS = 1 << 62


class Outbox:
    """Operations that have ended, and a bell for who waits for them."""

    def __init__(self) -> None:
        self._ended: deque[tuple[int, Reply | None]] = deque()
        self._taken: list[tuple[int, Reply | None]] = []  # the owner's
        self._wanted = _NOBODY_WAITS
        self._bell = Bell()

    def put(self, position: int, reply: Reply | None) -> None:
        """The operation of this slot has ended."""
        self._ended.append((position, reply))
        if len(self._ended) >= self._wanted:
            self._bell.ring()

    def arm(self, need: int) -> int:
        """A descriptor that becomes readable when ``need`` operations have ended."""
        self._wanted = need
        if len(self._ended) >= need:
            self._bell.ring()
        return self._bell.fileno()

    def ended(self) -> Completion | None:
        """What has ended since the last `forget_ended`, or None."""
        self._wanted = _NOBODY_WAITS
        self._bell.silence()
        ended, taken = self._ended, self._taken
        if ended:
            # One call, so that Ctrl-C loses nothing.
            taken.extend(map(deque.popleft, repeat(ended, len(ended))))
        if not taken:
            return None
        positions = [position for position, _ in taken]
        return Completion(positions, [(p, reply) for p, reply in taken if reply is not None])

    def forget_ended(self) -> None:
        """Forget what `ended` gave last."""
        self._taken = []

    def close(self) -> None:
        """Free the bell; who still puts anything is not heard any more."""
        self._wanted = _NOBODY_WAITS
        self._bell.close()


class OutboxRunner(Runner):
    """A runner whose envs run elsewhere than in the owner's calls, and end by a `put`."""

    def __init__(self, slots: Sequence[Slot], timed: bool = False) -> None:
        super().__init__(slots, timed)
        self._outbox = Outbox()

    def work(self, need: int, deadline: float | None) -> bool:
        return False

    def arm(self, need: int) -> int:
        return self._outbox.arm(need)

    def _ended(self) -> Completion | None:
        return self._outbox.ended()

    def _forget_ended(self) -> None:
        self._outbox.forget_ended()
