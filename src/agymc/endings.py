"""How a pool ends, closed or dropped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from agymc.workers.base import Worker

__all__ = ["CLOSE_TIMEOUT", "end"]

CLOSE_TIMEOUT = 5.0
"""Seconds that `close` gives the envs, unless told otherwise."""


def end(
    workers: Sequence[Worker],
    resources: Sequence[Any],
    pid: int,
    timeout: float = CLOSE_TIMEOUT,
) -> list[str]:
    """Close workers, all at once. A plain function: the pool may be garbage already.

    Args:
        workers: The workers.
        resources: What to close after them.
        pid: The process that they belong to. In another, they are left alone.
        timeout: Seconds for the envs to close.

    Returns:
        What went wrong, for warnings.
    """
    if os.getpid() != pid:
        for owned in (*workers, *resources):
            owned.abandon()
        return []
    deadline = perf_counter() + timeout
    problems: list[str] = []
    try:
        for worker in workers:
            worker.begin_close()
    finally:
        try:
            for worker in workers:
                problems += worker.end_close(deadline)
        except BaseException:  # Ctrl-C: they get no more time
            for worker in workers:
                worker.end_close(0.0)
            raise
        finally:
            for resource in resources:
                resource.close()
    return problems
