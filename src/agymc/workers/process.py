"""A shard in a process of its own.

The process is a plain child, not one of `multiprocessing`: the user's ``__main__`` is not imported
in it, it inherits no descriptor but its end of a socket and the lifeline, its standard input is
null, and the protocol shares no descriptor with what envs print. It leads a process group, so that
a Ctrl-C at the terminal reaches the caller alone, and whatever its envs have started can be ended
with it.

Data flow of a step::

    pool                                    worker process
    actions -> shared buffers
    STEP, one byte          ------------->  actions <- shared buffers
                                            env.step, env.step, ...
                                            rows -> shared buffers
    rows <- shared buffers  <-------------  DONE, one byte   (or REPLIES with what there is to say)

Its death is noticed by the hang-up of the socket, and by a pidfd where there are such: a process
that an env has forked may hold the socket open.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np

from agymc.bells import wait_readable
from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, Completion, Fault, Reply
from agymc.errors import PickleError
from agymc.pickling import find_unpicklable
from agymc.workers import _child
from agymc.workers._channel import Channel, Frame, Kind
from agymc.workers._segments import create_segment, load, map_segment
from agymc.workers._serve import unpack_positions
from agymc.workers.base import Death, ShardSpec, Worker

__all__ = ["ProcessWorker", "SharedResources"]

_REAP_TIMEOUT = 5.0  # seconds for the kernel to end a process after SIGKILL


class SharedResources:
    """What the process workers of one pool share: their lifeline, and the memory of the buffers.

    The lifeline is a pipe whose write end only the caller holds: its hang-up ends all workers, see
    `agymc.workers._serve.tie_to`. The memory's descriptor is kept for workers that come later.
    """

    def __init__(self) -> None:
        self.lifeline, self._write_end = os.pipe()
        self.segment = -1
        _let_go_after_fork(self)

    def allocate(self, spec: BuffersSpec) -> Buffers:
        """The buffers of the pool, in memory that has no name."""
        self.segment = create_segment(spec.size)
        return spec.allocate(map_segment(self.segment))

    def close(self) -> None:
        """Cut the lifeline; idempotent."""
        for descriptor in (self.lifeline, self._write_end, self.segment):
            if descriptor >= 0:
                os.close(descriptor)
        self.lifeline = self._write_end = self.segment = -1


_held: weakref.WeakSet[SharedResources] = weakref.WeakSet()


def _let_go_after_fork(shared: SharedResources) -> None:
    """A child forked from the caller must not hold the lifeline: it may outlive the caller."""
    if not _held and hasattr(os, "register_at_fork"):
        global _registered
        if not _registered:
            _registered = True
            os.register_at_fork(after_in_child=_let_go)
    _held.add(shared)


_registered = False


def _let_go() -> None:
    for shared in list(_held):
        shared.close()


class ProcessWorker(Worker):
    """Starts a process for the shard and speaks with it over a socket.

    Args:
        spec: The shard.
        shared: What the workers of a pool share.
    """

    def __init__(self, spec: ShardSpec, shared: SharedResources) -> None:
        super().__init__(spec)
        self._silent_steps = True  # whether actions travel in the shared buffers alone
        self._buffers: Buffers | None = None
        self._shared = shared
        self._closing = False
        self._problems: list[str] = []
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                        _child.__file__,
                        str(theirs.fileno()),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno(), shared.lifeline],
                    process_group=0,
                )
            except BaseException:
                ours.close()
                raise
        self._pidfd = os.pidfd_open(self._process.pid) if hasattr(os, "pidfd_open") else -1
        boot = json.dumps(
            {
                "path": [
                    str(Path(entry).resolve()) if entry == "" else entry for entry in sys.path
                ],
                "argv": [str(argument) for argument in sys.argv],
                "cwd": os.getcwd(),
                "lifeline": shared.lifeline,
            }
        ).encode()
        ours.sendall(len(boot).to_bytes(8, "little") + boot)
        self._channel = Channel(ours)
        self._send(Kind.SETUP, _dumps(spec, "reset_seed", spec.reset_seed))

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._process.pid

    def _send(self, kind: bytes, body: bytes = b"", descriptor: int = -1) -> None:
        # A dead worker is told of by `collect`, after what it had still sent.
        with contextlib.suppress(ConnectionError):
            self._channel.send(kind, body, descriptor)

    def allocate(self, spec: BuffersSpec) -> Buffers:
        return self._shared.allocate(spec)

    def attach(self, spec: BuffersSpec, buffers: Buffers) -> None:
        self._buffers = buffers
        self._silent_steps = not buffers.action_layout.object_leaves
        self._send(Kind.ATTACH, cloudpickle.dumps(spec), self._shared.segment)

    def prepare(
        self, command: Command, positions: Sequence[int] | None, payloads: Sequence[Any] | None
    ) -> Any:
        if command is Command.STEP and positions is None and self._silent_steps:
            return Kind.STEP, b""
        if command is Command.BUILD:
            assert payloads is not None
            return Kind.COMMAND, _dumps_env_fns(self.first, payloads)
        if payloads is None and not self._silent_steps:
            assert self._buffers is not None
            chosen = range(self.count) if positions is None else positions
            rows = np.asarray(chosen, np.int64) + self.first
            payloads = self._buffers.action_layout.elements(self._buffers.actions, rows)
        return Kind.COMMAND, _dumps((command, positions, payloads), "the argument", payloads)

    def dispatch(self, order: Any) -> None:
        self._send(*order)

    def arm(self, need: int) -> Sequence[int]:
        if self.death is not None:
            return ()
        channel = self._channel.fileno()
        return (channel,) if self._pidfd < 0 else (channel, self._pidfd)

    def collect(self) -> list[Completion]:
        if self.death is not None:
            return []
        ended = self._exited()  # asked before the last read, so that no frame is missed
        completions = [
            completion
            for frame in self._channel.receive()
            if (completion := self._completion(frame)) is not None
        ]
        if ended or self._channel.ended:
            self._note_death()
        return completions

    def _exited(self) -> bool:
        if self._pidfd < 0:
            return False
        return wait_readable([self._pidfd], 0.0)

    def _completion(self, frame: Frame) -> Completion | None:
        if frame.kind == Kind.DONE:
            return Completion(None, [])
        if frame.kind == Kind.BYE:
            self._problems += pickle.loads(frame.body)
            return None
        positions, pickled = unpack_positions(frame.body)
        if not pickled:
            return Completion(positions, [])
        try:
            replies = [
                (parts[0], Reply(*parts[1:])) for parts in load(bytes(pickled), frame.descriptor)
            ]
        except Exception as error:
            # What was sent can't be had here (a class that only the worker can import, say).
            everyone = range(self.count) if positions is None else positions
            replies = [(p, Reply(fault=Fault(error, "receiving the reply"))) for p in everyone]
        return Completion(positions, replies)

    def _note_death(self) -> None:
        """The process is gone or going: wait for it, end what it had started, say how it ended."""
        try:
            code = self._process.wait(_REAP_TIMEOUT)
        except subprocess.TimeoutExpired:  # it closed its socket and goes on
            self._kill()
            code = self._process.wait(_REAP_TIMEOUT)
        self._kill()
        self.death = _death(code)
        self._release()

    def _kill(self) -> None:
        """End the process group: the worker, and what its envs have started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _release(self) -> None:
        self._channel.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def begin_close(self) -> None:
        if not self._closing:
            self._closing = True
            if self.death is None:
                self._send(Kind.CLOSE)

    def end_close(self, deadline: float) -> list[str]:
        if self.death is None:
            while not self._channel.ended and wait_readable(self.arm(1), deadline):
                for frame in self._channel.receive():
                    if frame.kind in (Kind.BYE, Kind.BIG):
                        self._completion(frame)
                if self._exited():
                    break
            try:
                self._process.wait(max(0.0, deadline - perf_counter()))
            except subprocess.TimeoutExpired:
                last = self.first + self.count - 1
                self._problems.append(
                    f"the worker of envs {self.first} to {last} (pid {self.pid}) did not close in "
                    "time and was killed"
                )
                self._kill()
            self._note_death()
        problems, self._problems = self._problems, []
        return problems

    def abandon(self) -> None:
        if self.death is None:
            self.death = Death(None, None)
            self._process.returncode = 0  # it is our parent's child: not ours to wait for
            self._release()


def _death(code: int) -> Death:
    if code >= 0:
        return Death(code, None)
    try:
        return Death(None, signal.Signals(-code).name)
    except ValueError:
        return Death(None, f"signal {-code}")


def _dumps(obj: Any, what: str, part: Any) -> bytes:
    """Pickle ``obj``; that can fail for ``part`` of it, which error texts call ``what``."""
    try:
        return bytes(cloudpickle.dumps(obj))
    except Exception as error:
        where = find_unpicklable(part, what)
        raise PickleError(f"{what} can't be sent to a worker process: {where}") from error


def _dumps_env_fns(first: int, env_fns: Sequence[Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps((Command.BUILD, None, env_fns)))
    except Exception as error:
        for number, env_fn in enumerate(env_fns):
            where = find_unpicklable(env_fn, f"env_fns[{first + number}]")
            if where is not None:
                raise PickleError(
                    f"the function that makes env {first + number} can't be sent to a worker "
                    f"process: {where}. Make that object inside of the function, or use "
                    "engine='thread'"
                ) from error
        raise
