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

from agymc.bells import Bell
from agymc.commands import Completion, Reply

__all__ = ["Outbox"]

_NOBODY_WAITS = 1 << 62


class Outbox:
    """Operations that have ended, and a bell for who waits for them."""

    def __init__(self) -> None:
        self._ended: deque[tuple[int, Reply | None]] = deque()
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

    def collect(self) -> Completion | None:
        """What has ended since the last call, or None."""
        self._wanted = _NOBODY_WAITS
        self._bell.silence()
        ended = self._ended
        if not ended:
            return None
        positions: list[int] = []
        replies: list[tuple[int, Reply]] = []
        for _ in range(len(ended)):
            position, reply = ended.popleft()
            positions.append(position)
            if reply is not None:
                replies.append((position, reply))
        return Completion(positions, replies)

    def close(self) -> None:
        """Free the bell; who still puts anything is not heard any more."""
        self._wanted = _NOBODY_WAITS
        self._bell.close()
