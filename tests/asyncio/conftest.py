"""Fixtures: nothing left behind, gates, and the asyncio door on every engine."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.asyncio.envs import AioCounting, AioFailing, AioGated
from tests.asyncio.helpers import CONCURRENT_ENGINES, ENGINES, eventually, footprint
from tests.support.envs import Counting, Failing, Gate, Gated

import agymc

_PORTS: dict[Any, Any] = {Counting: AioCounting, Failing: AioFailing, Gated: AioGated}


@pytest.fixture(scope="session", autouse=True)
def warmed_up() -> None:
    """What is opened once and for all (uvloop has a pipe) is opened before anything is compared."""
    with agymc.make_vec("CartPole-v1", 1, engine="asyncio") as envs:
        envs.reset()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test this process holds no more threads, processes and descriptors than before."""
    if request.module.__name__.rpartition(".")[2] in ("test_examples", "test_openenv"):
        yield  # these look after themselves
        return
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


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    return request.param


@pytest.fixture
def make(engine: str) -> Callable[..., agymc.AioVectorEnv]:
    """`agymc.make_async` on the engine; see `maker`."""
    return maker(engine)


@pytest.fixture(params=CONCURRENT_ENGINES)
def make_concurrent(request: pytest.FixtureRequest) -> Callable[..., agymc.AioVectorEnv]:
    """`agymc.make_async` on an engine whose envs all run at the same time; see `maker`."""
    return maker(request.param)


def maker(engine: str) -> Callable[..., agymc.AioVectorEnv]:
    """A function (class, one dict of arguments per env, options) -> envs for asyncio.

    The class is an ordinary env's; on engines of coroutines its port takes its place. One process
    per env where a process runs its envs one after the other, else two.
    """
    where, how = agymc.ENGINES[engine]

    def make(kind: Any, arguments: list[dict[str, Any]], **options: Any) -> agymc.AioVectorEnv:
        if how == "asyncio":
            kind = _PORTS[kind]
        if where == "process":
            options.setdefault("num_workers", len(arguments) if how == "serial" else 2)
        env_fns = [partial(kind, **own) for own in arguments]
        return agymc.make_async(env_fns, engine=engine, **options)

    return make


@pytest.fixture
def make_gates(tmp_path: Path) -> Iterator[Callable[[int], list[Gate]]]:
    """Makes gates for `Gated` envs."""
    gates: list[Gate] = []

    def make(count: int) -> list[Gate]:
        gates.extend(Gate(tmp_path / f"gate-{len(gates)}") for _ in range(count))
        return gates[-count:]

    yield make
    for gate in gates:
        gate.close()
