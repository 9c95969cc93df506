"""What all tests of the doors have in common."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import psutil
import pytest

import agymc

ENGINES = sorted(agymc.ENGINES)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn."""
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """After each test there are no more threads and processes than before."""
    threads = set(threading.enumerate())
    children = set(psutil.Process().children(recursive=True))
    yield
    gc.collect()
    left = [thread.name for thread in set(threading.enumerate()) - threads if thread.is_alive()]
    assert not left, f"threads left: {left}"
    more = [
        process
        for process in set(psutil.Process().children(recursive=True)) - children
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]
    assert not more, f"processes left: {more}"
