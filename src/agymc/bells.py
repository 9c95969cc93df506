"""A bell: makes a descriptor readable from any thread; and waiting for descriptors.

The small module behind which the platform's means are hidden: an eventfd and `poll` on Linux, a
socket pair and `select` where those are missing.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable, Sequence
from math import ceil
from time import perf_counter

__all__ = ["Bell", "wait_readable", "wait_ready"]


class Bell:
    """Rung by any thread, heard by whoever polls `fileno`."""

    def __init__(self) -> None:
        self._rung = False
        self._sockets: tuple[socket.socket, ...] = ()
        if hasattr(os, "eventfd"):
            self._read_fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._sockets = reader, writer = socket.socketpair()
            reader.setblocking(False)
            writer.setblocking(False)
            self._read_fd, self._write_fd = reader.fileno(), writer.fileno()

    def fileno(self) -> int:
        """The descriptor that is readable after a `ring` and until the next `silence`."""
        return self._read_fd

    def ring(self) -> None:
        """Make the descriptor readable. Any thread may call it."""
        try:
            if self._sockets:
                os.write(self._write_fd, b"!")
            else:
                os.eventfd_write(self._write_fd, 1)
        except BlockingIOError:
            pass  # it is full, so it is readable
        # Last: were it first, `silence` could take it back before there is anything to read, and
        # the bell would ring for ever.
        self._rung = True

    def silence(self) -> None:
        """Make the descriptor unreadable again. Only the owner calls it."""
        if self._rung:
            self._rung = False
            try:
                while os.read(self._read_fd, 8) and self._sockets:
                    pass
            except BlockingIOError:
                pass  # the ring was heard already, together with one before it

    def close(self) -> None:
        """Free the descriptors; idempotent."""
        if self._read_fd >= 0 and not self._sockets:
            os.close(self._read_fd)
        for end in self._sockets:
            end.close()
        self._read_fd = self._write_fd = -1

    def __del__(self) -> None:
        self.close()


def wait_readable(descriptors: Iterable[int], deadline: float | None) -> bool:
    """Block until a descriptor is readable or hung up, or the deadline (`perf_counter`) is over.

    Returns:
        False when the deadline passed first.
    """
    timeout = None if deadline is None else max(0.0, deadline - perf_counter())
    if hasattr(select, "poll"):
        poller = select.poll()
        for descriptor in descriptors:
            poller.register(descriptor, select.POLLIN)
        # Rounding up: with rounding down the last millisecond would be a busy loop.
        return bool(poller.poll(None if timeout is None else ceil(timeout * 1000)))
    return bool(select.select(list(descriptors), [], [], timeout)[0])


def wait_ready(
    readers: Sequence[int], writers: Sequence[int], deadline: float | None
) -> Sequence[int]:
    """The same for reading and writing, and it tells which descriptors are ready."""
    timeout = None if deadline is None else max(0.0, deadline - perf_counter())
    if hasattr(select, "poll"):  # `select` can't take descriptors above 1023
        poller = select.poll()
        masks = dict.fromkeys(readers, select.POLLIN)
        for descriptor in writers:
            masks[descriptor] = masks.get(descriptor, 0) | select.POLLOUT
        for descriptor, mask in masks.items():
            poller.register(descriptor, mask)
        events = poller.poll(None if timeout is None else ceil(timeout * 1000))
        return [descriptor for descriptor, _ in events]
    readable, writable, _ = select.select(readers, writers, [], timeout)
    return [*readable, *writable]
