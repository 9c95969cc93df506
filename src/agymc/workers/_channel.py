"""Frames over a socket between a pool and a worker process: the doorbell, and all that is rare.

A frame is one byte that says its kind, and for most kinds four bytes of length and a body. The two
frames of the hot path, "step all" and "all done", are that one byte alone. A frame may carry a file
descriptor. Both ends use the same class, and neither blocks while the other could be waiting for
it: whoever can't send takes in what arrives until it can.

Ctrl-C may raise between any two instructions of Python, so what must not be torn is one call into
C: ``outbox.extend(frame)`` queues a frame and uses it up, so that sending it again, after an
interruption, does nothing; ``extend(map(...))`` makes a system call and keeps what it returned.

=========  ========  =================================================================
kind       from      body
=========  ========  =================================================================
SETUP      pool      pickle of a ShardSpec
COMMAND    pool      pickle of (command, positions, pickle of the payloads or None)
STEP       pool      none: step all slots, the actions are in the shared buffers
ATTACH     pool      pickle of a BuffersSpec, and the descriptor of the shared buffers
INTERRUPT  pool      pickle of the position of the slot that is to be interrupted
LIMITS     pool      pickle of (max_in_flight, max_constructing)
CLOSE      pool      empty: close the envs and end
READY      worker    empty: it has imported what it needs, and begins to build envs
DONE       worker    none: all slots have done their STEP and have nothing to say
REPLIES    worker    positions, then a pickle of their replies
BIG        worker    the same, its large arrays in a segment whose descriptor comes along
BLOCKED    worker    pickle of a list of BlockedLoop
BYE        worker    pickle of what went wrong while closing
=========  ========  =================================================================
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from agymc.bells import wait_ready

__all__ = ["Channel", "Frame", "Kind", "Unsent", "encode"]


class Kind:
    """The kinds of frames."""

    SETUP = b"U"
    COMMAND = b"C"
    STEP = b"S"
    ATTACH = b"A"
    INTERRUPT = b"I"
    LIMITS = b"L"
    CLOSE = b"Q"
    READY = b"Y"
    DONE = b"D"
    REPLIES = b"R"
    BIG = b"B"
    BLOCKED = b"K"
    BYE = b"Z"


_ALONE = (Kind.STEP, Kind.DONE)
_WITH_DESCRIPTOR = (Kind.ATTACH, Kind.BIG)
_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 18
_ANCILLARY = socket.CMSG_SPACE(16 * array.array("i").itemsize)
# A worker that died while we write must not kill us, whatever the user did to SIGPIPE.
_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Frame(NamedTuple):
    """One message. ``descriptor`` is -1 where there is none; whoever takes it must close it."""

    kind: bytes
    body: bytes
    descriptor: int


Unsent: TypeAlias = Iterator[tuple[bytes, list[int]]]
"""A frame on its way out; it can be sent once. Its bytes, and how many of them each call took."""


def encode(kind: bytes, body: bytes = b"") -> Unsent:
    """A frame for `Channel.send`; ``body`` is empty for the kinds that have none."""
    data = kind if kind in _ALONE else b"".join((kind, _LENGTH.pack(len(body)), body))
    return iter([(data, [])])


class Channel:
    """One end of the connection.

    Args:
        sock: A connected stream socket of the Unix family; the channel owns it from now on.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._inbox: list[Any] = []  # what `recvmsg` gave and is not in a frame yet
        self._ended = False

    def fileno(self) -> int:
        """Readable when frames have arrived or the other end is gone."""
        return self._sock.fileno()

    def send(self, frame: Unsent, descriptor: int = -1, deadline: float | None = None) -> bool:
        """Send one frame.

        Whatever raises, the stream stays whole: what has not gone goes with the next frame. But a
        frame with a descriptor, if none of it has gone, is dropped.

        Args:
            frame: See `encode`. One that was given before is not sent again.
            descriptor: Goes along; stays the caller's.
            deadline: Of `time.perf_counter`; None for no limit.

        Returns:
            False when the deadline passed before the other end took it all.

        Raises:
            ConnectionError: The other end is gone.
        """
        if descriptor < 0:
            self._outbox.extend(frame)
            return self.flush(deadline)
        if not self.flush(deadline):
            return False
        (entry,) = frame
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            while not entry[1]:
                self._call(entry, self._sock.sendmsg, [entry[0]], ancillary, _FLAGS)
                if not entry[1] and not self._wait_writable(deadline):
                    return False
        finally:
            if entry[1]:
                self._outbox.append(entry)
        return self.flush(deadline)

    def flush(self, deadline: float | None = None) -> bool:
        """Send what has not gone yet; see `send`."""
        outbox = self._outbox
        while outbox:
            entry = outbox[0]
            view = memoryview(entry[0])[sum(entry[1]) :]
            if not view:
                outbox.popleft()
            elif not self._call(entry, self._sock.send, view, _FLAGS) and (
                not self._wait_writable(deadline)
            ):
                return False
        return True

    @staticmethod
    def _call(entry: tuple[bytes, list[int]], function: Any, *arguments: Any) -> bool:
        """Have the system take some of a frame; False when it would block."""
        try:
            # One call that sends and counts: Ctrl-C comes before both or after both.
            # What was sent and not counted would be sent, and done, a second time.
            entry[1].extend(map(function, *[(argument,) for argument in arguments]))
        except BlockingIOError:
            return False
        return True

    def _wait_writable(self, deadline: float | None) -> bool:
        """Take in what arrives until there is room; False when the deadline passed first."""
        reading = [] if self._ended else [self._sock.fileno()]
        ready = wait_ready(reading, [self._sock.fileno()], deadline)
        if reading and reading[0] in ready:
            self._take_in()
        return bool(ready)

    def _take_in(self) -> int:
        """Read once; how many bytes there were."""
        inbox = self._inbox
        try:
            inbox.extend(map(self._sock.recvmsg, (_CHUNK,), (_ANCILLARY,), (_CLOSE_ON_EXEC,)))
        except BlockingIOError:
            return 0
        except ConnectionError:
            self._ended = True
            return 0
        count = len(inbox[-1][0])
        if not count:
            self._ended = True
        return count

    @property
    def ended(self) -> bool:
        """Whether the other end is gone; what it had sent before was or will be received."""
        return self._ended

    def receive(self, *, everything: bool = False) -> list[Frame]:
        """The frames that have arrived, perhaps none. Never blocks.

        Args:
            everything: False may leave some for the next call.
        """
        while not self._ended:
            count = self._take_in()
            if not count or (count < _CHUNK and not everything):
                break
        inbox = self._inbox
        if not inbox:
            return []
        data: bytes = inbox[0][0]
        if len(inbox) == 1 and data in _ALONE:  # the hot path
            self._inbox = []
            return [Frame(data, b"", -1)]
        if len(inbox) > 1:
            if _first_end(data) > sum(len(chunk[0]) for chunk in inbox):
                return []  # it is long, and joining what there is each time would be slow
            data = b"".join(chunk[0] for chunk in inbox)
        descriptors = _descriptors(inbox)
        taken = 0
        frames: list[Frame] = []
        start = 0
        while start < len(data):
            end = _first_end(data, start)
            if end > len(data):
                break
            kind = data[start : start + 1]
            descriptor = -1
            if kind in _WITH_DESCRIPTOR:
                descriptor = descriptors[taken]
                taken += 1
            frames.append(Frame(kind, data[start + 1 + _LENGTH.size : end], descriptor))
            start = end
        rest = array.array("i", descriptors[taken:])
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rest.tobytes())] if rest else []
        # Until here nothing has changed, so that whoever is interrupted can do it again.
        self._inbox = [(data[start:], ancillary)] if start < len(data) or rest else []
        return frames

    def close(self) -> None:
        """Close the socket and descriptors that nobody took; idempotent."""
        self._sock.close()
        inbox, self._inbox = self._inbox, []
        for descriptor in _descriptors(inbox):
            os.close(descriptor)
        self._ended = True


def _first_end(data: bytes, start: int = 0) -> int:
    """Where the frame that begins at ``start`` ends; past the data where that is not known yet."""
    if data[start : start + 1] in _ALONE:
        return start + 1
    begin = start + 1 + _LENGTH.size
    if len(data) < begin:
        return begin
    length: int = _LENGTH.unpack_from(data, start + 1)[0]
    return begin + length


def _descriptors(inbox: list[Any]) -> list[int]:
    """The descriptors that came with what is in the inbox."""
    descriptors = array.array("i")
    for chunk in inbox:
        for _, _, payload in chunk[1]:
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return descriptors.tolist()
