"""How many CPUs this process can really use."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["available_cpus"]


def available_cpus(root: Path = Path("/")) -> int:
    """The CPUs that the affinity mask and the cgroups of this process leave it, at least 1.

    Args:
        root: The root of the file system, for tests.

    A cgroup's quota of half a CPU counts as one, one of 2.5 CPUs as two: a third worker would only
    be throttled.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = _cgroup_quota(root)
    return max(1, count if quota is None else min(count, math.floor(quota)))


def _cgroup_quota(root: Path) -> float | None:
    """The smallest quota, in CPUs, of the cgroups that hold this process; None for no limit."""
    quotas: list[float] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            quotas += _quotas(root / "sys/fs/cgroup", path, _quota_v2)
        elif "cpu" in controllers.split(","):
            quotas += _quotas(root / "sys/fs/cgroup/cpu", path, _quota_v1)
    return min(quotas, default=None)


def _quotas(mount: Path, path: str, read: Callable[[Path], float | None]) -> list[float]:
    """The quotas of a cgroup and its ancestors. In a container only the mount itself may exist."""
    folder = mount / path.strip("/")
    folders = [folder, *(parent for parent in folder.parents if mount in (parent, *parent.parents))]
    quotas = []
    for place in {*folders, mount}:
        try:
            quota = read(place)
        except (OSError, ValueError):
            continue
        if quota is not None:
            quotas.append(quota)
    return quotas


def _quota_v2(folder: Path) -> float | None:
    quota, period = (folder / "cpu.max").read_text().split()
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu.cfs_period_us").read_text())
    return None if quota <= 0 else quota / period
