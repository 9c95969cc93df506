"""Shared memory without a name: nothing can be left behind in ``/dev/shm``.

A segment is a descriptor. It reaches another process over a socket, is mapped there, and goes away
with its last mapping, however the processes end.
"""

from __future__ import annotations

import importlib
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from typing import Any

import cloudpickle

from agymc.workers._salvage import salvage

__all__ = ["create_segment", "dump", "load", "map_segment"]

_ALIGNMENT = 64
_BIG = 1 << 16  # bytes; smaller arrays are cheaper to send than to map


def create_segment(size: int, *, append: bool = False) -> int:
    """The descriptor of ``size`` zero bytes of shared memory; the caller closes it.

    With ``append`` it is not to be mapped, but grows with what is written to it.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("agymc", os.MFD_CLOEXEC)
    else:
        descriptor, name = tempfile.mkstemp(prefix="agymc-")
        os.unlink(name)
    try:
        if append:
            fcntl = importlib.import_module("fcntl")
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
        else:
            os.ftruncate(descriptor, max(size, 1))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def map_segment(descriptor: int) -> mmap.mmap:
    """The memory behind a descriptor; the mapping outlives the descriptor."""
    return mmap.mmap(descriptor, 0)


def dump(obj: Any) -> tuple[bytes, int]:
    """Pickle ``obj``; large arrays in it go to a segment instead of into the pickle.

    Returns:
        The pickle, and the descriptor of the segment or -1; the caller closes it.
    """
    buffers: list[memoryview] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _BIG:
            return True
        buffers.append(raw)
        return False

    try:
        pickled = pickle.dumps(obj, 5, buffer_callback=keep_in_band)
    except Exception:  # something of the user's __main__, or a lambda: those travel by value
        buffers.clear()
        pickled = cloudpickle.dumps(obj, 5, buffer_callback=keep_in_band)
    if not buffers:
        return pickled, -1
    places = []
    size = 0
    for raw in buffers:
        places.append((size, raw.nbytes))
        size += -(-raw.nbytes // _ALIGNMENT) * _ALIGNMENT
    descriptor = create_segment(size)
    try:
        for (start, _), raw in zip(places, buffers, strict=True):
            _write(descriptor, raw, start)
    except BaseException:
        os.close(descriptor)
        raise
    return pickle.dumps((places, pickled)), descriptor


def _write(descriptor: int, data: memoryview, start: int) -> None:
    # Not into a mapping: each page would be a fault, and be filled with zeros before. That costs
    # nearly twice as much, and for frames as much as drawing them.
    while data:
        count = os.pwrite(descriptor, data, start)
        data, start = data[count:], start + count


def load(body: bytes, descriptor: int) -> tuple[Any, list[Exception]]:
    """What `dump` dumped. Large arrays lie in the segment, which is theirs alone from now on.

    Args:
        body: The pickle.
        descriptor: Of the segment, or -1; it is closed.

    Returns:
        It; and what went wrong, for objects that can't be had: a `Broken` takes their place.
    """
    if descriptor < 0:
        return _load(body, ())
    try:
        view = memoryview(map_segment(descriptor))
    finally:
        os.close(descriptor)
    places, pickled = pickle.loads(body)
    return _load(pickled, [view[start : start + size] for start, size in places])


def _load(pickled: bytes, buffers: Sequence[memoryview]) -> tuple[Any, list[Exception]]:
    try:
        return pickle.loads(pickled, buffers=buffers), []
    except Exception:
        return salvage(pickled, buffers)
