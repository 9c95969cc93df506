"""A shard in a process of its own.

The process is a plain child, not one of `multiprocessing`: the user's ``__main__`` is not imported
in it, it inherits no descriptor but its end of a socket and the lifeline, its standard input is
null, and the protocol shares no descriptor with what envs print. It leads a session, so that a
Ctrl-C at the terminal reaches the caller alone, and a process group which it can't leave, so that
whatever its envs have started can be ended with it.

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
from agymc.types import BlockedLoop
from agymc.workers import _child
from agymc.workers._channel import Channel, Frame, Kind, Unsent, encode
from agymc.workers._lifeline import Lifeline, above_standard
from agymc.workers._salvage import find_broken
from agymc.workers._segments import create_segment, load, map_segment
from agymc.workers._serve import unpack_positions
from agymc.workers.base import Death, ShardSpec, Worker

__all__ = ["ProcessWorker", "SharedResources"]

_EXIT_TIMEOUT = 1.0  # seconds for a process that has closed its socket to end
_REAP_TIMEOUT = 5.0  # seconds for the kernel to end a process after SIGKILL


class SharedResources:
    """The memory of a pool's buffers; its descriptor is kept for workers that come later."""

    def __init__(self) -> None:
        self.segment = -1

    def allocate(self, spec: BuffersSpec) -> Buffers:
        """The buffers of the pool, in memory that has no name."""
        self.segment = create_segment(spec.size)
        return spec.allocate(map_segment(self.segment))

    def close(self) -> None:
        """Let go of the descriptor; idempotent. What is mapped stays."""
        if self.segment >= 0:
            os.close(self.segment)
        self.segment = -1

    abandon = close


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
        self._blocked: list[BlockedLoop] = []
        self._pidfd = -1
        self._said_bye = False
        setup = _dumps_setup(spec)
        self._lifeline = Lifeline()
        ours, theirs = socket.socketpair()
        theirs = _not_standard(theirs)
        self._channel = Channel(ours)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                        _child.__file__,
                        str(theirs.fileno()),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno(), self._lifeline.read_end],
                    start_new_session=True,
                )
        except BaseException:
            self._release()
            raise
        try:
            boot = _boot(self._lifeline.read_end)
            self._lifeline.hand_over()
            if hasattr(os, "pidfd_open"):
                self._pidfd = os.pidfd_open(self._process.pid)
            self._send(encode(Kind.BOOT, boot))
            self._send(encode(Kind.SETUP, setup))
        except BaseException:
            self._kill()
            self._note_death()
            raise

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._process.pid

    def _send(self, frame: Unsent, descriptor: int = -1) -> None:
        # A dead worker is told of by `collect`, after what it had still sent.
        with contextlib.suppress(ConnectionError):
            self._channel.send(frame, descriptor)

    def allocate(self, spec: BuffersSpec) -> Buffers:
        return self._shared.allocate(spec)

    def attach(self, spec: BuffersSpec, buffers: Buffers) -> None:
        self._buffers = buffers
        self._silent_steps = not buffers.action_layout.object_leaves
        self._send(encode(Kind.ATTACH, cloudpickle.dumps(spec)), self._shared.segment)

    def prepare(
        self, command: Command, positions: Sequence[int] | None, payloads: Sequence[Any] | None
    ) -> Any:
        if command is Command.STEP and positions is None and self._silent_steps:
            return encode(Kind.STEP)
        if command is Command.BUILD:
            assert payloads is not None
            return _order(command, None, _dumps_env_fns(self.first, payloads))
        if payloads is None and not self._silent_steps:
            assert self._buffers is not None
            chosen = range(self.count) if positions is None else positions
            rows = np.asarray(chosen, np.int64) + self.first
            payloads = self._buffers.action_layout.elements(self._buffers.actions, rows)
        pickled = None if payloads is None else _dumps_payloads(command, payloads)
        return _order(command, positions, pickled)

    def dispatch(self, order: Any) -> None:
        self._send(order)

    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        self._send(encode(Kind.LIMITS, pickle.dumps((max_in_flight, max_constructing))))

    @property
    def blocked(self) -> Sequence[BlockedLoop]:
        return self._blocked

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
            for frame in self._channel.receive(everything=ended)
            if (completion := self._completion(frame)) is not None
        ]
        if ended or self._channel.ended:
            self._note_death(_EXIT_TIMEOUT)
        return completions

    def _exited(self) -> bool:
        if self._pidfd < 0:
            return False
        return wait_readable([self._pidfd], 0.0)

    def _completion(self, frame: Frame) -> Completion | None:
        if frame.kind == Kind.DONE:
            return Completion(None, [])
        if frame.kind == Kind.BLOCKED:
            self._blocked += pickle.loads(frame.body)
            return None
        if frame.kind == Kind.BYE:
            self._said_bye = True
            self._problems += pickle.loads(frame.body)
            return None
        positions, pickled = unpack_positions(frame.body)
        if not pickled:
            return Completion(positions, [])
        try:
            parts, errors = load(bytes(pickled), frame.descriptor)
            if errors and not find_broken(parts):
                raise errors[0]  # hidden in an object, so that nobody knows whose it is
            replies = [(part[0], _reply(part, errors)) for part in parts]
        except Exception as error:
            everyone = range(self.count) if positions is None else positions
            replies = [(position, _not_received(error)) for position in everyone]
        return Completion(positions, replies)

    def _wait_exit(self, deadline: float) -> bool:
        """Whether the process has ended by the deadline."""
        if self._pidfd >= 0:  # does not reap it, so that its id still means it and its group
            return wait_readable([self._pidfd], deadline)
        try:
            self._process.wait(max(0.0, deadline - perf_counter()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _note_death(self, patience: float = 0.0) -> None:
        """The process is gone or going: end what it had started, say how it ended.

        Args:
            patience: Seconds that it gets to end by itself.
        """
        exited = self._wait_exit(perf_counter() + patience)
        self._kill()
        code = self._process.wait(_REAP_TIMEOUT)
        self.death = Death(None, None, "it closed its connection") if not exited else _death(code)
        self._release()

    def _kill(self) -> None:
        """End the process group: the worker, and what its envs have started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _release(self) -> None:
        self._channel.close()
        self._lifeline.cut()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def begin_close(self) -> None:
        if not self._closing:
            self._closing = True
            if self.death is None:
                with contextlib.suppress(ConnectionError):
                    self._channel.send(encode(Kind.CLOSE), deadline=0.0)

    def _told_to_close(self, deadline: float) -> bool:
        """False when the worker does not read, and its socket is full."""
        with contextlib.suppress(ConnectionError):
            return self._channel.flush(deadline)
        return True

    def end_close(self, deadline: float) -> list[str]:
        if self.death is None:
            if self._told_to_close(deadline):
                while not self._channel.ended and wait_readable(self.arm(1), deadline):
                    exited = self._exited()
                    for frame in self._channel.receive(everything=exited):
                        if frame.kind in (Kind.BYE, Kind.BIG):
                            self._completion(frame)
                    if exited:
                        break
            last = self.first + self.count - 1
            envs = f"env {self.first}" if self.count == 1 else f"envs {self.first} to {last}"
            ended = self._wait_exit(deadline)
            if not ended:
                self._problems.append(
                    f"the worker process of {envs} (pid {self.pid}) closed its envs and did not "
                    "end: a thread or process that they had started went on; it was killed"
                    if self._said_bye
                    else f"the worker process of {envs} (pid {self.pid}) did not close in time and "
                    "was killed"
                )
            self._note_death()  # kills it if need be
            if ended and not self._said_bye:
                self._problems.append(
                    f"the worker process of {envs} died ({self.death}) before its envs were closed"
                )
        problems, self._problems = self._problems, []
        return problems

    def abandon(self) -> None:
        if self.death is None:
            self.death = Death(None, None)
            self._process.returncode = 0  # it is our parent's child: not ours to wait for
            self._release()


def _not_standard(sock: socket.socket) -> socket.socket:
    """The socket, at a descriptor above 2: lower ones are given new meanings in a child."""
    return socket.socket(fileno=above_standard(sock.detach()))


def _boot(lifeline: int) -> bytes:
    """What a worker must know before it can import anything of agymc."""
    try:
        cwd = os.getcwd()
    except OSError:  # somebody has removed it
        cwd = None
    path = [entry for entry in sys.path if isinstance(entry, str)]
    return json.dumps(
        {
            "path": [str(Path(entry).resolve()) if entry == "" else entry for entry in path],
            "argv": [str(argument) for argument in sys.argv],
            "cwd": cwd,
            "lifeline": lifeline,
        }
    ).encode()


def _death(code: int) -> Death:
    if code >= 0:
        return Death(code, None)
    try:
        return Death(None, signal.Signals(-code).name)
    except ValueError:
        return Death(None, f"signal {-code}")


def _not_received(error: Exception) -> Reply:
    """A reply that can't be had here: it holds a class that only the worker can import, say."""
    return Reply(fault=Fault(error, transit="gave what can't be received from its process"))


def _reply(parts: tuple[Any, ...], errors: Sequence[Exception]) -> Reply:
    broken = find_broken(parts) if errors else None
    return Reply(*parts[1:]) if broken is None else _not_received(broken.error)


def _order(command: Command, positions: Sequence[int] | None, payloads: bytes | None) -> Unsent:
    """A COMMAND. Payloads are a pickle in its body: they can fail to be had by themselves."""
    chosen = None if positions is None else list(positions)
    return encode(Kind.COMMAND, pickle.dumps((command, chosen, payloads)))


def _dumps_setup(spec: ShardSpec) -> bytes:
    try:
        return bytes(cloudpickle.dumps(spec))
    except Exception as error:
        where = find_unpicklable(spec.reset_seed, "reset_seed")
        raise PickleError(f"reset_seed can't be sent to a worker process: {where}") from error


def _dumps_payloads(command: Command, payloads: Sequence[Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(payloads))
    except Exception as error:
        for payload in payloads:
            for what, name, part in _parts_of(command, payload):
                where = find_unpicklable(part, name)
                if where is not None:
                    text = f"{what} can't be sent to a worker process: {where}"
                    raise PickleError(text) from error
        raise


def _parts_of(command: Command, payload: Any) -> list[tuple[str, str, Any]]:
    """What the user gave: what to call it, its name in code, and itself."""
    match command:
        case Command.CALL:
            what = f"an argument of {payload[0]!r}"
            return [(what, "args", payload[1]), (what, "kwargs", payload[2])]
        case Command.SET:
            return [(f"the value of {payload[0]!r}", "value", payload[1])]
        case Command.RESET:
            return [("the options of reset", "options", payload[1])]
        case Command.STEP:
            return [("an action", "action", payload)]
        case _:
            return [("an argument", "argument", payload)]


def _dumps_env_fns(first: int, env_fns: Sequence[Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(env_fns))
    except Exception as error:
        for number, env_fn in enumerate(env_fns):
            name = f"env_fns[{first + number}]"
            # What the user gave lies in what the door made of it.
            source = getattr(env_fn, "source", env_fn)
            where = find_unpicklable(source, name) or find_unpicklable(env_fn, name)
            if where is not None:
                raise PickleError(
                    f"the function that makes env {first + number} can't be sent to a worker "
                    f"process: {where}. Make that object inside of the function, or use "
                    "engine='thread'"
                ) from error
        raise
