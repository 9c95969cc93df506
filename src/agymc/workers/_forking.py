"""The template's side: forks whenever it is asked to. See `_processes`."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import warnings

from agymc.workers._child import read_boot, read_exactly, take_over
from agymc.workers._lifeline import tie_to
from agymc.workers._processes import FORK, UNKNOWN, Descriptors
from agymc.workers._processes import REPLY as REPLY
from agymc.workers._processes import REQUEST as REQUEST

__all__ = ["fork_for_ever"]


def fork_for_ever(control: socket.socket, lifeline: int) -> Descriptors:
    """Fork until the caller hangs up, which ends the process. Returns in each child.

    Args:
        control: Where requests come from.
        lifeline: What ends the template with the caller; children have their own.

    Returns:
        What the child was given.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tie_to(lifeline)
    gc.collect()
    gc.freeze()  # so that no collection writes to the pages that all share
    # NumPy's linear algebra may have threads. They do nothing, and it knows what a fork is.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, REQUEST.size, 5)
        if not request:
            os._exit(0)
        request += read_exactly(control, REQUEST.size - len(request))
        kind, pid = REQUEST.unpack(request)
        if kind != FORK:
            control.sendall(REPLY.pack(_exit_code(pid)))
            continue
        boot = read_boot(control)
        try:
            child = os.fork()
        except OSError:
            child = -1
        if child == 0:
            control.close()
            os.close(lifeline)
            os.setsid()
            take_over(boot)
            if "numpy.random" in sys.modules:  # as it would be in a process of its own
                sys.modules["numpy.random"].seed()
            connection, its_lifeline, dumps, *streams = descriptors
            for stream, descriptor in zip(boot["streams"], streams, strict=True):
                os.dup2(descriptor, stream)
                os.close(descriptor)
            return connection, its_lifeline, dumps
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(REPLY.pack(child))


def _exit_code(pid: int) -> int:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN
    return os.waitstatus_to_exitcode(status) if ended else UNKNOWN
