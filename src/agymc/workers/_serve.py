"""The command loop of a worker process."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import socket
import struct
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np

from agymc.bells import wait_readable
from agymc.buffers import Buffers, BuffersSpec
from agymc.commands import Command, Completion, Fault, Reply
from agymc.errors import PickleError
from agymc.pickling import find_unpicklable
from agymc.runners._interrupts import SIGNAL, install
from agymc.runners.base import Runner
from agymc.waiting import Look, block_on, look, wait_looking_up
from agymc.workers._channel import Channel, Frame, Kind, encode
from agymc.workers._lifeline import tie_to
from agymc.workers._segments import dump, map_segment
from agymc.workers.base import ShardSpec

__all__ = ["pack_replies", "serve", "unpack_positions"]

# Results are told when this much time (seconds) has passed since the last were: one doorbell for a
# shard of cheap envs, one for each slow env. Partial batches are wanted soon.
_FLUSH_WHOLE = 2e-3
_FLUSH_PARTIAL = 2e-4

_LOOK = 2e-4  # seconds

_CLOSE_TIMEOUT = 3600.0  # the pool has its own deadline and kills us

_COUNT = struct.Struct("<I")


def serve(connection: socket.socket, lifeline: int, dumps: int) -> None:
    """Serve one pool until it says close or is gone.

    Args:
        connection: To the pool.
        lifeline: See `tie_to`.
        dumps: A descriptor to which stacks are written, when we crash or are interrupted.
    """
    tie_to(lifeline)
    os.set_inheritable(dumps, False)
    install()
    faulthandler.enable(dumps)
    if hasattr(faulthandler, "register"):
        faulthandler.register(SIGNAL, dumps, chain=True)
    # Ctrl-C is the caller's to handle; it closes us. (An env may install handlers of its own.)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(connection)
    while not (frames := channel.receive()):
        if channel.ended:
            os._exit(1)
        wait_readable([channel.fileno()], None)
    spec: ShardSpec = pickle.loads(frames[0].body)
    channel.send(encode(Kind.READY))
    server = _Server(channel, spec)
    for frame in frames[1:]:
        server.handle(frame)
    server.run()


class _Server:
    def __init__(self, channel: Channel, spec: ShardSpec) -> None:
        self._channel = channel
        self._spec = spec
        self._runner: Runner = spec.make_runner()
        self._rows = slice(spec.first, spec.first + spec.count)
        self._buffers: Buffers | None = None
        self._flush_after = _FLUSH_WHOLE
        self._closing = False
        self._look = Look(_LOOK)
        self._blocked = 0  # how many of the runner's were told

    def run(self) -> None:
        channel, runner = self._channel, self._runner
        while not self._closing:
            for frame in channel.receive():
                self.handle(frame)
            if channel.ended:
                self._closing = True
            try:
                worked = runner.work(self._spec.count, perf_counter() + self._flush_after)
            except KeyboardInterrupt:  # an env raised it: it is that slot's reply
                worked = True
            completion = runner.collect()
            if completion is None and not worked and not self._closing:
                bell = runner.arm(1)
                # No bell: there are no threads, or one has ended its operation just now.
                completion = runner.collect() if bell is None else None
                if completion is None:
                    self._wait(bell)
            if completion is not None:
                self._tell(completion)
        runner.begin_closing()
        try:
            problems = block_on(runner.plan_closing(perf_counter() + _CLOSE_TIMEOUT))
        except KeyboardInterrupt as exception:
            problems = [f"an env raised KeyboardInterrupt in close: {exception}"]
        with contextlib.suppress(ConnectionError):
            channel.send(encode(Kind.BYE, pickle.dumps(problems)))
        channel.close()

    def _wait(self, bell: int | None) -> None:
        """Wait for the pool, or for the bell of envs that run on threads."""
        pool = [self._channel.fileno()]
        begin = perf_counter()
        if bell is not None:
            # An env's thread could close these descriptors, which is not heard by who waits.
            wait_looking_up([*pool, bell], None)
        elif not look(pool, self._look.seconds):
            wait_readable(pool, None)
        self._look.note(perf_counter() - begin)

    def handle(self, frame: Frame) -> None:
        runner = self._runner
        everything = range(self._spec.count)
        if frame.kind == Kind.STEP:
            assert self._buffers is not None
            buffers = self._buffers
            self._flush_after = _FLUSH_WHOLE
            actions = buffers.action_layout.elements(buffers.actions, self._rows)
            runner.submit(Command.STEP, everything, actions)
        elif frame.kind == Kind.COMMAND:
            command, positions, pickled = pickle.loads(frame.body)
            self._flush_after = _FLUSH_WHOLE if positions is None else _FLUSH_PARTIAL
            if command is Command.BUILD and self._spec.faults is not None:
                self._flush_after = 0.0  # so that the pool knows which env is being built
            chosen = everything if positions is None else positions
            if pickled is None:
                assert self._buffers is not None
                buffers = self._buffers
                rows = np.asarray(chosen) + self._spec.first
                payloads = buffers.action_layout.elements(buffers.actions, rows)
            else:
                try:
                    payloads = pickle.loads(pickled)
                except Exception as error:
                    fault = Fault(error, transit="was given what can't be received in its process")
                    self._tell(runner.refuse(chosen, fault))
                    return
            runner.submit(command, chosen, payloads)
        elif frame.kind == Kind.ATTACH:
            spec: BuffersSpec = pickle.loads(frame.body)
            try:
                self._buffers = spec.allocate(map_segment(frame.descriptor))
            finally:
                os.close(frame.descriptor)
            runner.attach(self._buffers)
        elif frame.kind == Kind.INTERRUPT:
            runner.interrupt(pickle.loads(frame.body))
        elif frame.kind == Kind.LIMITS:
            runner.set_limits(*pickle.loads(frame.body))
        elif frame.kind == Kind.CLOSE:
            self._closing = True

    def _tell(self, completion: Completion) -> None:
        try:
            blocked = self._runner.blocked
            if len(blocked) > self._blocked:
                told = pickle.dumps(blocked[self._blocked :])
                self._channel.send(encode(Kind.BLOCKED, told))
                self._blocked = len(blocked)
            if completion.positions is None and not completion.replies:
                self._channel.send(encode(Kind.DONE))
                return
            body, descriptor = pack_replies(completion, self._spec.first)
            try:
                kind = Kind.REPLIES if descriptor < 0 else Kind.BIG
                self._channel.send(encode(kind, body), descriptor)
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
        except ConnectionError:
            self._closing = True  # the pool is gone


def pack_replies(completion: Completion, first: int) -> tuple[bytes, int]:
    """The body of a REPLIES frame, and the descriptor of its segment or -1.

    A reply that can't be pickled becomes a fault that says which env's what can't.
    """
    positions = completion.positions
    header = _COUNT.pack(0 if positions is None else len(positions))
    if positions is not None:
        header += np.asarray(positions, np.int32).tobytes()
    replies = [_parts(position, reply) for position, reply in completion.replies]
    if not replies:
        return header, -1
    try:
        pickled, descriptor = dump(replies)
    except Exception:
        replies = [_parts(position, _sendable(reply)) for position, reply in completion.replies]
        pickled, descriptor = dump(replies)
    return header + pickled, descriptor


def unpack_positions(body: bytes) -> tuple[list[int] | None, memoryview]:
    """The positions of a REPLIES frame (None for all), and the pickle that follows them."""
    (count,) = _COUNT.unpack_from(body)
    end = _COUNT.size + 4 * count
    positions = np.frombuffer(body, np.int32, count, _COUNT.size).tolist() if count else None
    return positions, memoryview(body)[end:]


def _parts(position: int, reply: Reply) -> tuple[Any, ...]:
    return position, reply.info, reply.objects, reply.value, reply.fault


def _sendable(reply: Reply) -> Reply:
    for name in ("info", "objects", "value"):
        try:
            cloudpickle.dumps(getattr(reply, name))
        except Exception as error:
            what = {"info": "info", "objects": "the observation", "value": "the result"}[name]
            where = find_unpicklable(getattr(reply, name), what)
            refusal = PickleError(where or f"{what}: {error}")
            transit = "gave what can't be sent from its process"
            return Reply(fault=Fault(refusal, transit=transit))
    return reply
