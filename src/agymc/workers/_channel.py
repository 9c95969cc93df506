"""Frames over a socket between a pool and a worker process: the doorbell, and all that is rare.

A frame is one byte that says its kind, and for most kinds four bytes of length and a body. The two
frames of the hot path, "step all" and "all done", are that one byte alone. A frame may carry a file
descriptor. Both ends use the same class, and neither blocks while the other could be waiting for
it: whoever can't send takes in what arrives until it can.

=======  ========  ===================================================================
kind     from      body
=======  ========  ===================================================================
BOOT     pool      JSON: what `_child` needs; the first frame
SETUP    pool      pickle of a ShardSpec
COMMAND  pool      pickle of (command, positions, pickle of the payloads or None)
STEP     pool      none: step all slots, the actions are in the shared buffers
ATTACH   pool      pickle of a BuffersSpec, and the descriptor of the shared buffers
LIMITS   pool      pickle of (max_in_flight, max_constructing)
CLOSE    pool      empty: close the envs and end
DONE     worker    none: all slots have done their STEP and have nothing to say
REPLIES  worker    positions, then a pickle of their replies
BIG      worker    the same, its large arrays in a segment whose descriptor comes along
BLOCKED  worker    pickle of a list of BlockedLoop
BYE      worker    pickle of what went wrong while closing
=======  ========  ===================================================================
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque
from typing import NamedTuple

from agymc.bells import wait_ready

__all__ = ["Channel", "Frame", "Kind"]


class Kind:
    """The kinds of frames."""

    BOOT = b"P"
    SETUP = b"U"
    COMMAND = b"C"
    STEP = b"S"
    ATTACH = b"A"
    LIMITS = b"L"
    CLOSE = b"Q"
    DONE = b"D"
    REPLIES = b"R"
    BIG = b"B"
    BLOCKED = b"K"
    BYE = b"Z"


_BARE = Kind.STEP + Kind.DONE
_WITH_DESCRIPTOR = Kind.ATTACH + Kind.BIG
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


class Channel:
    """One end of the connection.

    Args:
        sock: A connected stream socket of the Unix family; the channel owns it from now on.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._received = bytearray()
        self._descriptors: deque[int] = deque()
        self._ended = False
        self._unsent = b""

    def fileno(self) -> int:
        """Readable when frames have arrived or the other end is gone."""
        return self._sock.fileno()

    def send(
        self, kind: bytes, body: bytes = b"", descriptor: int = -1, deadline: float | None = None
    ) -> bool:
        """Send one frame.

        Args:
            kind: See `Kind`.
            body: Empty for the kinds that have none.
            descriptor: Goes along; stays the caller's.
            deadline: Of `time.perf_counter`; None for no limit.

        Returns:
            False when the deadline passed before the other end took it all.

        Raises:
            ConnectionError: The other end is gone.
        """
        data = kind if kind in _BARE else b"".join((kind, _LENGTH.pack(len(body)), body))
        if self._unsent:
            data = self._unsent + data
        view = whole = memoryview(data)
        sent: list[int] = []
        try:
            while view:
                try:
                    if descriptor >= 0:
                        sent.append(socket.send_fds(self._sock, [view], [descriptor], _FLAGS))
                        descriptor = -1
                    else:
                        # One call that sends and counts: Ctrl-C comes before both or after both.
                        # What was sent and not counted would be sent, and done, a second time.
                        sent.extend(map(self._sock.send, (view,), (_FLAGS,)))
                    view = whole[sum(sent) :]
                except BlockingIOError:
                    if not self._wait_writable(deadline):
                        break
        finally:
            view = whole[sum(sent) :]
            # A frame that was cut short, by Ctrl-C say, goes on with the next: the stream stays
            # whole. (One that has not begun to go takes its descriptor along, so it is dropped.)
            self._unsent = bytes(view) if view and descriptor < 0 else b""
        return not view

    def _wait_writable(self, deadline: float | None) -> bool:
        """Take in what arrives until there is room; False when the deadline passed first."""
        reading = [] if self._ended else [self._sock.fileno()]
        ready = wait_ready(reading, [self._sock.fileno()], deadline)
        if reading and reading[0] in ready:
            self._take_in()
        return bool(ready)

    def _take_in(self) -> bool:
        """Read once; False when nothing was there."""
        try:
            data, ancillary, _, _ = self._sock.recvmsg(_CHUNK, _ANCILLARY, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return False
        except ConnectionError:
            data, ancillary = b"", []
        for _, _, payload in ancillary:
            descriptors = array.array("i")
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
            self._descriptors.extend(descriptors)
        if not data:
            self._ended = True
            return False
        self._received += data
        return True

    @property
    def ended(self) -> bool:
        """Whether the other end is gone; what it had sent before was or will be received."""
        return self._ended

    def receive(self, *, everything: bool = False) -> list[Frame]:
        """The frames that have arrived, perhaps none. Never blocks.

        Args:
            everything: False may leave some for the next call.
        """
        while not self._ended and self._take_in():
            if len(self._received) < _CHUNK and not everything:
                break
        received = self._received
        if not received:
            return []
        if len(received) == 1 and received in _BARE:  # the hot path
            kind = bytes(received)
            received.clear()
            return [Frame(kind, b"", -1)]
        frames: list[Frame] = []
        start = 0
        while start < len(received):
            kind = bytes(received[start : start + 1])
            if kind in _BARE:
                frames.append(Frame(kind, b"", -1))
                start += 1
                continue
            if len(received) < start + 1 + _LENGTH.size:
                break
            (length,) = _LENGTH.unpack_from(received, start + 1)
            begin = start + 1 + _LENGTH.size
            if len(received) < begin + length:
                break
            descriptor = self._descriptors.popleft() if kind in _WITH_DESCRIPTOR else -1
            frames.append(Frame(kind, bytes(received[begin : begin + length]), descriptor))
            start = begin + length
        del received[:start]
        return frames

    def close(self) -> None:
        """Close the socket and descriptors that nobody took; idempotent."""
        self._sock.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._ended = True
