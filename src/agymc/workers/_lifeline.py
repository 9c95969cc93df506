"""Lifelines: what ends a worker process when its caller is gone, however that went.

A lifeline is a pipe on which nothing is ever written. Its write end is held by the caller alone, so
it hangs up when the caller closes it or ends, even by SIGKILL. Each worker has a lifeline of its
own: the kernel remembers one receiver of signals per open end, so of several workers at one end
only the last would be told.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from agymc.bells import wait_readable
from agymc.forks import in_forked_child

__all__ = ["Lifeline", "above_standard", "tie_to"]


def above_standard(descriptor: int) -> int:
    """The descriptor, or a copy that takes its place, above 2.

    A caller without standard input (``python script.py <&-``) is given 0 for whatever it opens
    first, and in a child 0 means standard input again.
    """
    if descriptor > 2:
        return descriptor
    import fcntl

    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


class Lifeline:
    """The caller's end.

    Attributes:
        read_end: What the worker gets; `hand_over` closes it once the worker has it.
    """

    read_end = _write_end = -1

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        self.read_end = above_standard(read_end)
        # A child forked from the caller must not hold it: it may outlive the caller.
        in_forked_child(self, Lifeline.cut)

    def hand_over(self) -> None:
        """Close the worker's end here."""
        os.close(self.read_end)
        self.read_end = -1

    def cut(self) -> None:
        """End the worker if it is still there; idempotent."""
        for descriptor in (self.read_end, self._write_end):
            if descriptor >= 0:
                os.close(descriptor)
        self.read_end = self._write_end = -1

    def __del__(self) -> None:
        self.cut()


def tie_to(lifeline: int) -> None:
    """Let this process and those that it starts end when the lifeline hangs up.

    On Linux the kernel itself sends SIGKILL to our process group, so that neither an env that holds
    the interpreter lock nor one that blocks signals can delay it. (Not PR_SET_PDEATHSIG: that fires
    when the *thread* that started us ends.) Elsewhere a thread waits for it.
    """
    try:
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        return
    if wait_readable([lifeline], 0.0):  # it hung up before we asked for the signal
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_with(lifeline: int) -> None:
    with contextlib.suppress(OSError):
        os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)
