"""Processes for workers: how they start, and how one learns how they ended.

On Linux the workers of a pool are forked from a *template*: a process of the pool's own which has
imported what workers need, has one thread, and does nothing else. So the second worker of a pool,
and each that is started again later, is there within milliseconds instead of half a second, and
all share the memory of what was imported. The caller itself is never forked: neither its threads
nor its memory get into a worker.

::

    caller ── socket ── template ── fork ── worker 0
       └───── socket, lifeline, ... ───────────┘

The three descriptors of a worker reach the template over its socket, and the worker from there,
together with what a worker takes over from the caller (output, search path, working directory,
environment variables): as it is then, not as it was when the template was started. The template is
their parent, so it is asked for exit codes. Elsewhere each worker is started by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from agymc.bells import wait_readable
from agymc.forks import in_forked_child
from agymc.workers import _child
from agymc.workers._lifeline import Lifeline, above_standard

__all__ = ["Descriptors", "Launcher", "WorkerProcess", "warm_workers"]  # and what `_forking` needs

REQUEST = struct.Struct("<cq")
REPLY = struct.Struct("<q")
FORK, REAP = b"F", b"W"
UNKNOWN = 1 << 32  # no exit code

_START_TIMEOUT = 60.0  # seconds until a template has imported what it needs
_END_TIMEOUT = 5.0  # seconds for a template to end, and for an answer
_POLL = 0.005  # seconds, where there are no pidfds

Descriptors = tuple[int, int, int]
"""What a worker process is given: its connection, its lifeline, and where it dumps stacks."""


class WorkerProcess(ABC):
    """A process that serves a shard, seen from the caller."""

    _pidfd = -1

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Its id; None where it never came to be. May wait until it has been started."""

    @abstractmethod
    def _exit_code(self) -> int | None:
        """Its exit code, which is minus the signal that killed it; None where nobody knows."""

    def _open_pidfd(self, pid: int) -> None:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(pid)

    def fileno(self) -> int:
        """Readable when the process has ended; -1 where there is no such thing (yet)."""
        return self._pidfd

    def wait(self, deadline: float) -> bool:
        """Whether the process has ended by the deadline."""
        pid = self.pid
        if pid is None:
            return True
        if self._pidfd >= 0:  # does not reap it, so that its id still means it and its group
            return wait_readable([self._pidfd], deadline)
        while self._is_alive(pid):
            if perf_counter() >= deadline:
                return False
            sleep(_POLL)
        return True

    @abstractmethod
    def _is_alive(self, pid: int) -> bool:
        """Whether it is there, asked without a pidfd."""

    def kill(self) -> None:
        """End the process group: the worker, and what its envs have started."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def reap(self) -> int | None:
        """Its exit code, see `_exit_code`, once it has ended; what it held here is freed."""
        code = self._exit_code()
        self.close()
        return code

    def close(self) -> None:
        """Free what it holds here; idempotent."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    @abstractmethod
    def disown(self) -> None:
        """It is not this process's child: we are a fork of the one that started it."""


class _Spawned(WorkerProcess):
    """Started by itself."""

    def __init__(self, descriptors: Descriptors) -> None:
        ours, theirs = socket.socketpair()
        theirs = _above_standard(theirs)
        with ours, theirs:
            connection, lifeline, dumps = descriptors
            self._process = _start(theirs, descriptors)
            boot = {"connection": connection, "lifeline": lifeline, "dumps": dumps}
            ours.sendall(_boot_message(**boot))
        self._open_pidfd(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _is_alive(self, pid: int) -> bool:
        return self._process.poll() is None

    def _exit_code(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_TIMEOUT)
        return None

    def disown(self) -> None:
        self._process.returncode = 0  # it is our parent's child: not ours to wait for
        self.close()


class _Forked(WorkerProcess):
    """Forked from a template, which answers later."""

    def __init__(self, template: _Template) -> None:
        self._template = template
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        if self._pid is None:
            self._template.receive_answers(self)
        return self._pid

    def fileno(self) -> int:
        if self._pid is None:
            self._template.receive_answers(None)
        return self._pidfd

    def born(self, pid: int) -> None:
        """The template says that it is there."""
        self._pid = pid
        self._open_pidfd(pid)

    def _is_alive(self, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _exit_code(self) -> int | None:
        return None if self._pid is None else self._template.exit_code(self._pid)

    def disown(self) -> None:
        self.close()


class _Template:
    """The process from which others are forked.

    Args:
        preload: Names of modules to import in it.

    Attributes:
        dead: Whether it can fork no more.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self.dead = False
        self._unborn: deque[_Forked] = deque()
        self._received = b""
        self._lock = threading.RLock()  # pools of several threads may share it
        self._lifeline = Lifeline()
        in_forked_child(self, _Template.disown)
        ours, theirs = socket.socketpair()
        theirs = _above_standard(theirs)
        self._socket = ours
        try:
            with theirs:
                self._process = _start(theirs, [self._lifeline.read_end])
            lifeline = self._lifeline.read_end
            boot = _boot_message(template=True, lifeline=lifeline, preload=list(preload))
            self._lifeline.hand_over()
            self._socket.sendall(boot)
        except BaseException:
            self._socket.close()
            self._lifeline.cut()
            raise

    def fork(self, descriptors: Descriptors) -> _Forked | None:
        """Ask for a process; None: the template is gone."""
        child = _Forked(self)
        streams = [stream for stream in (1, 2) if _is_open(stream)]
        boot = _boot_message(environ=dict(os.environ), streams=streams)
        with self._lock:
            try:
                header = [REQUEST.pack(FORK, 0)]
                socket.send_fds(self._socket, header, [*descriptors, *streams])
                self._socket.sendall(boot)
            except OSError:
                self.dead = True
                return None
            self._unborn.append(child)
        return child

    def receive_answers(self, awaited: _Forked | None) -> None:
        """Take in which processes were started.

        Args:
            awaited: Wait for this one; None: don't wait.
        """
        deadline = perf_counter() + (_START_TIMEOUT if awaited is not None else 0.0)
        with self._lock:
            while self._unborn and (awaited is None or awaited in self._unborn):
                answer = self._receive(deadline)
                if answer is None:
                    return
                child = self._unborn.popleft()
                if answer >= 0:
                    child.born(answer)

    def exit_code(self, pid: int) -> int | None:
        """The exit code of a process that was forked and has ended; None where nobody knows."""
        deadline = perf_counter() + _END_TIMEOUT
        with self._lock:
            while self._unborn:  # answers come in order
                self.receive_answers(self._unborn[-1])
                if self.dead or perf_counter() >= deadline:
                    return None
            try:
                self._socket.sendall(REQUEST.pack(REAP, pid))
            except OSError:
                self.dead = True
                return None
            answer = self._receive(deadline)
        return None if answer is None or answer == UNKNOWN else answer

    def _receive(self, deadline: float) -> int | None:
        """One answer; None when there is none by the deadline, or never."""
        while len(self._received) < REPLY.size:
            if self.dead or not wait_readable([self._socket.fileno()], deadline):
                return None
            try:
                part = self._socket.recv(REPLY.size - len(self._received))
            except ConnectionError:
                part = b""
            if not part:
                self.dead = True
                return None
            self._received += part
        answer: int = REPLY.unpack(self._received)[0]
        self._received = b""
        return answer

    def close(self) -> None:
        """End it; idempotent."""
        self.dead = True
        self._socket.close()
        if self._process.returncode is None:
            try:
                self._process.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_END_TIMEOUT)
        self._lifeline.cut()

    def disown(self) -> None:
        """Let go of it in a fork of the caller."""
        self.dead = True
        process = getattr(self, "_process", None)
        if process is not None:
            self._socket.close()
            process.returncode = 0


class Launcher:
    """Starts the worker processes of one pool.

    Attributes:
        forks: Whether workers are forked from a template where that is possible.
    """

    forks = sys.platform == "linux"

    def __init__(self) -> None:
        self._template: _Template | None = None

    def start(self, descriptors: Descriptors) -> WorkerProcess:
        """Start a process; the descriptors stay the caller's.

        Raises:
            OSError: The system starts no more processes.
        """
        if not self.forks:
            return _Spawned(descriptors)
        for template in (self._template, _warm.template):
            if template is not None and not template.dead:
                child = template.fork(descriptors)
                if child is not None:
                    return child
        if self._template is not None:
            self._template.close()
        self._template = _Template()
        child = self._template.fork(descriptors)
        return _Spawned(descriptors) if child is None else child

    def close(self) -> None:
        """End the template, after the workers; idempotent."""
        if self._template is not None:
            self._template.close()
            self._template = None


class _Warm:
    """The template that pools share within `warm_workers`.

    Attributes:
        template: It, or None.
        users: How many contexts want it.
    """

    template: _Template | None = None
    users = 0


_warm = _Warm()


@contextlib.contextmanager
def warm_workers(*preload: str) -> Iterator[None]:
    """Have worker processes start within milliseconds, for all envs that are made in here.

    A process that has imported what workers need stays there meanwhile, and workers are forked from
    it. That pays for many vector envs one after the other: a sweep, a test suite. Envs that live
    longer go on, but how a worker of theirs ended can't be told any more. Where workers are not
    forked (elsewhere than on Linux) it does nothing.

    Args:
        *preload: Names of modules that are imported there, for all workers: that of your envs, say,
            or a library that takes its time. Not such as start threads or open a GPU when they are
            imported. What can't be imported is left to the workers.
    """
    if not Launcher.forks:
        yield
        return
    _warm.users += 1
    if _warm.template is None:
        _warm.template = _Template(preload)
    try:
        yield
    finally:
        _warm.users -= 1
        if not _warm.users:
            template, _warm.template = _warm.template, None
            if template is not None:
                template.close()


def _above_standard(sock: socket.socket) -> socket.socket:
    """The socket, at a descriptor above 2: lower ones are given new meanings in a child."""
    return socket.socket(fileno=above_standard(sock.detach()))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _start(control: socket.socket, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
            _child.__file__,
            str(control.fileno()),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=[control.fileno(), *descriptors],
        start_new_session=True,
    )


def _boot_message(**boot: Any) -> bytes:
    """What a process must know before it can import anything of agymc: its length, and JSON."""
    try:
        cwd = os.getcwd()
    except OSError:  # somebody has removed it
        cwd = None
    path = [entry for entry in sys.path if isinstance(entry, str)]
    body = json.dumps(
        {
            "path": [str(Path(entry).resolve()) if entry == "" else entry for entry in path],
            "argv": [str(argument) for argument in sys.argv],
            "cwd": cwd,
            **boot,
        }
    ).encode()
    return len(body).to_bytes(8, "little") + body
