"""How many CPUs there are, in containers of all sorts; the file system is made up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agymc.workers._cpus import available_cpus


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = "proc/self/cgroup"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({V2: "0::/\n"}, 8),
        ({V2: "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({V2: "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        ({V2: "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({V2: "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({V2: "0::/\n", "sys/fs/cgroup/cpu.max": "6400000 100000\n"}, 8),
        ({V2: "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n"}, 4),
        (
            {
                V2: "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
            },
            2,
        ),
        ({V2: "0::/not/mounted\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        ({V2: "0::/\n", "sys/fs/cgroup/cpu.max": "rubbish\n"}, 8),
        (
            {
                V2: "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "500000\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
            },
            5,
        ),
        (
            {
                V2: "4:cpu:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        (
            {
                V2: "9:cpuset:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
    ids=[
        "no cgroups",
        "v2, no file",
        "v2, no limit",
        "v2",
        "v2, two and a half",
        "v2, half a CPU",
        "v2, more than there are",
        "v2, nested",
        "v2, limit of an ancestor",
        "v2, container sees only its root",
        "v2, rubbish",
        "v1",
        "v1, no limit",
        "v1, another controller",
    ],
)
def test_quota(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert available_cpus(write(tmp_path, files)) == expected


def test_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5}, raising=False)
    files = {V2: "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}
    assert available_cpus(write(tmp_path, files)) == 1


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_where_there_is_no_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert available_cpus(tmp_path) == expected


def test_here() -> None:
    assert 1 <= available_cpus() <= 8
