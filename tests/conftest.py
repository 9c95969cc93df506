"""What all tests need."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest

import agymc


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> Iterator[None]:
    """A shell starts what runs in its background with Ctrl-C ignored, and children inherit that."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def workers_start_quickly() -> Iterator[None]:
    """There are thousands of pools. (tests/lifecycle/test_templates.py does without.)"""
    with agymc.warm_workers(
        "pytest", "agymc.entry", "tests.support.envs", "tests.lifecycle.faulty"
    ):
        yield


@pytest.fixture(scope="session", autouse=True)
def collecting_garbage_is_cheap() -> None:
    """Many tests do it, to see what is left behind; what was imported before is not garbage."""
    gc.collect()
    gc.freeze()
