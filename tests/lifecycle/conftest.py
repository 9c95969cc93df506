"""Fixtures: every engine, nothing left behind, and scripts in processes of their own."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lifecycle.faulty import Probe
from tests.lifecycle.helpers import Script, eventually, footprint, probes

import agymc

# Ordinary envs that hang or die hold up a whole event loop: that is not what those are for.
# tests/asyncio has the lives and deaths of coroutine envs.
ENGINES = {name: pair for name, pair in agymc.ENGINES.items() if pair[1] != "asyncio"}
PROCESS_ENGINES = [name for name, (where, _) in ENGINES.items() if where == "process"]


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """Every engine for ordinary envs, by name."""
    return request.param


@pytest.fixture(params=PROCESS_ENGINES)
def process_engine(request: pytest.FixtureRequest) -> str:
    """Every engine whose envs live in other processes."""
    return request.param


# ------------------------------------------------------------------ nothing is left behind


@pytest.fixture(scope="session", autouse=True)
def warmed_up() -> None:
    """What is opened once and for all is opened before anything is compared."""
    for name in agymc.ENGINES:
        with agymc.make_vec(Probe, 2, engine=name) as envs:
            envs.reset()


@pytest.fixture(autouse=True)
def nothing_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warmed_up: None
) -> Iterator[None]:
    """Law 6, after each test."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    gc.collect()
    before = footprint()
    yield
    left: set[str] = set()

    def nothing_more() -> bool:
        nonlocal left
        gc.collect()
        left = footprint() - before
        return not left

    if not eventually(nothing_more):
        pytest.fail("left behind:\n  " + "\n  ".join(sorted(left)), pytrace=False)


# ------------------------------------------------------------------ pools


@pytest.fixture
def make(engine: str, tmp_path: Path) -> Iterator[Callable[..., agymc.VectorEnv]]:
    """Makes pools of the engine, and closes them after the test."""
    made: list[agymc.VectorEnv] = []

    def make_them(count: int | list[Any] = 3, **options: Any) -> agymc.VectorEnv:
        env_fns = probes(count) if isinstance(count, int) else count
        options.setdefault("engine", engine)
        where, _ = agymc.ENGINES[options["engine"]]
        if where == "process":
            options.setdefault("num_workers", 2)
        made.append(agymc.make_vec(env_fns, **options))
        return made[-1]

    yield make_them
    while made:  # pytest holds what we gave longer than we do
        made.pop().close()


# ------------------------------------------------------------------ scripts


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Starts scripts, and ends what is left of them after the test."""
    started: list[Script] = []

    def start(source: str, *arguments: str, **options: Any) -> Script:
        folder = options.pop("folder", tmp_path)
        started.append(Script(source, folder, *arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.end()
