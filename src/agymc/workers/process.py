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
import os
import pickle
import signal
import socket
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np

from agymc.bells import wait_readable
from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, Completion, Fault, Reply
from agymc.errors import PickleError
from agymc.pickling import find_unpicklable, find_unpicklable_in_env_fn
from agymc.runners._interrupts import SIGNAL, stacks_of_dump
from agymc.runners.base import GivenUp
from agymc.types import BlockedLoop
from agymc.workers._channel import Channel, Frame, Kind, Unsent, encode
from agymc.workers._lifeline import Lifeline, above_standard
from agymc.workers._processes import Launcher
from agymc.workers._salvage import find_broken
from agymc.workers._segments import create_segment, load, map_segment
from agymc.workers._serve import unpack_positions
from agymc.workers.base import Death, ShardSpec, Worker

__all__ = ["ProcessWorker", "SharedResources"]

_EXIT_TIMEOUT = 1.0  # seconds for a process that has closed its socket to end
_MOST_DUMPED = 1 << 20  # bytes of a stack
_REAP_TIMEOUT = 5.0  # seconds for the kernel to end a process after SIGKILL


class SharedResources:
    """What the workers of a pool share, also those that come later.

    Attributes:
        launcher: Starts their processes.
        segment: The descriptor of the memory of the buffers.
    """

    def __init__(self) -> None:
        self.launcher = Launcher()
        self.segment = -1

    def allocate(self, spec: BuffersSpec) -> Buffers:
        """The buffers of the pool, in memory that has no name."""
        self.segment = create_segment(spec.size)
        return spec.allocate(map_segment(self.segment))

    def close(self) -> None:
        """Let go of it all, after the workers; idempotent. What is mapped stays."""
        self.launcher.close()
        self._release()

    def abandon(self) -> None:
        """The same in a fork of the caller, where the template has let go of itself."""
        self._release()

    def _release(self) -> None:
        if self.segment >= 0:
            os.close(self.segment)
        self.segment = -1


class ProcessWorker(Worker):
    """Starts a process for the shard and speaks with it over a socket.

    Args:
        spec: The shard.
        shared: What the workers of a pool share.
    """

    in_process_of_its_own = True

    def __init__(self, spec: ShardSpec, shared: SharedResources) -> None:
        super().__init__(spec)
        self.ready_at = inf
        self._silent_steps = True  # whether actions travel in the shared buffers alone
        self._buffers: Buffers | None = None
        self._shared = shared
        self._closing = False
        self._problems: list[str] = []
        self._blocked: list[BlockedLoop] = []
        self._crash_stack = ""
        self._said_bye = False
        setup = _dumps_setup(spec)
        self._dumps = -1  # a file of stacks, written by faulthandler
        self._dump_read = 0
        self._channel: Channel = None  # type: ignore[assignment]
        self._lifeline = Lifeline()
        connection = -1
        try:
            self._dumps = above_standard(create_segment(0, append=True))
            ours, theirs = socket.socketpair()
            self._channel = Channel(ours)
            connection = above_standard(theirs.detach())
            descriptors = connection, self._lifeline.read_end, self._dumps
            self._process = shared.launcher.start(descriptors)
        except BaseException:
            self._release()
            raise
        finally:
            if connection >= 0:
                os.close(connection)
        try:
            self._lifeline.hand_over()
            self._send(encode(Kind.SETUP, setup))
        except BaseException:
            self._process.kill()
            self._note_death()
            raise

    @property
    def pid(self) -> int | None:
        """The process id of the worker; None where it could not be started."""
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
            return _order(command, positions, _dumps_env_fns(self.first, payloads))
        if payloads is None and not self._silent_steps:
            assert self._buffers is not None
            chosen = range(self.count) if positions is None else positions
            rows = np.asarray(chosen, np.int64) + self.first
            payloads = self._buffers.action_layout.elements(self._buffers.actions, rows)
        pickled = None if payloads is None else _dumps_payloads(command, payloads)
        return _order(command, positions, pickled)

    def dispatch(self, order: Any) -> None:
        self._send(order)

    def interrupt(self, position: int) -> None:
        # To the main thread: it says where it is, and where it is in an env that is to be
        # interrupted, it raises. Envs that run elsewhere are interrupted from there.
        if self.death is None:
            self._dump_read = os.fstat(self._dumps).st_size
            pid = self.pid
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, SIGNAL)
            if self.spec.runner != "serial":
                self._send(encode(Kind.INTERRUPT, pickle.dumps(position)))

    def give_up(self, position: int) -> GivenUp:
        if self.death is not None:
            return GivenUp([], "")
        stack = self._stack()
        stopped = _is_stopped(self.pid)
        self._process.kill()
        self._process.wait(perf_counter() + _REAP_TIMEOUT)
        return GivenUp(list(range(self.count)), "(its process was stopped)" if stopped else stack)

    def _stack(self) -> str:
        dump = os.pread(self._dumps, _MOST_DUMPED, self._dump_read)
        return stacks_of_dump(
            dump.decode(errors="replace"), all_threads=self.spec.runner != "serial"
        )

    def renewed(self, spec: ShardSpec) -> ProcessWorker:
        return ProcessWorker(spec, self._shared)

    def crash_stack(self) -> str:
        return self._crash_stack

    def set_limits(self, max_in_flight: int | None, max_constructing: int | None) -> None:
        self._send(encode(Kind.LIMITS, pickle.dumps((max_in_flight, max_constructing))))

    @property
    def blocked(self) -> Sequence[BlockedLoop]:
        return self._blocked

    def arm(self, need: int) -> Sequence[int]:
        if self.death is not None:
            return ()
        channel, process = self._channel.fileno(), self._process.fileno()
        return (channel,) if process < 0 else (channel, process)

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
        process = self._process.fileno()
        return process >= 0 and wait_readable([process], 0.0)

    def _completion(self, frame: Frame) -> Completion | None:
        if frame.kind == Kind.DONE:
            return Completion(None, [])
        if frame.kind == Kind.READY:
            self.ready_at = perf_counter()
            return None
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

    def _note_death(self, patience: float = 0.0) -> None:
        """The process is gone or going: end what it had started, say how it ended.

        Args:
            patience: Seconds that it gets to end by itself.
        """
        process = self._process
        exited = process.wait(perf_counter() + patience)
        process.kill()
        process.wait(perf_counter() + _REAP_TIMEOUT)
        code = process.reap()
        self.death = (
            Death(None, None, "it closed its connection and was killed")
            if not exited
            else _death(code)
        )
        if self._dumps >= 0:
            self._crash_stack = self._stack()
        self._release()

    def _release(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._lifeline.cut()
        if self._dumps >= 0:
            os.close(self._dumps)
            self._dumps = -1

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
            ended = self._process.wait(deadline)
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
            self._process.disown()
            self._release()


def _is_stopped(pid: int | None) -> bool:
    """Whether a process is stopped (SIGSTOP), where the system tells."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(") ")[2].startswith("T")


def _death(code: int | None) -> Death:
    if code is None:
        return Death(None, None, "nobody knows how")
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
            where = find_unpicklable_in_env_fn(env_fn, name)
            if where is not None:
                raise PickleError(
                    f"the function that makes env {first + number} can't be sent to a worker "
                    f"process: {where}. Make that object inside of the function, or use "
                    "engine='thread'"
                ) from error
        raise
