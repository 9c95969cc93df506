"""Every engine runs every test: ask for `engine`, `make_vec` or `variant`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.envs import Awaited, Gate

import agymc

MODES = tuple(agymc.AutoresetMode)

# Every id on every engine, and every mode.
WHOLE_TABLES = ("test_every_env_of_gymnasium", "test_many_envs", "test_modes_and_numbers")


def _variants() -> Iterator[Any]:
    """Each engine as it comes, and with other numbers of workers and threads."""
    for name, (where, how) in agymc.ENGINES.items():
        options: list[dict[str, Any]] = [{}]
        if how == "thread":
            options.append({"threads": 2})
        if where == "process":
            options += [{"num_workers": 1}, {"num_workers": 3}]
        if name == "process":
            options.append({"caller_steps": True})
        if where == "process" and how == "thread":
            options.append({"num_workers": 2, "threads": 1})
        for option in options:
            text = "-".join(f"{key.removeprefix('num_')}{value}" for key, value in option.items())
            yield pytest.param({"engine": name, **option}, id="-".join(filter(None, [name, text])))


@pytest.fixture(params=list(agymc.ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    return request.param


@pytest.fixture(params=list(_variants()))
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `agymc.make_vec`: an engine, with its numbers of workers and threads."""
    return request.param


@pytest.fixture
def open_vec() -> Iterator[Callable[..., agymc.VectorEnv]]:
    """`agymc.make_vec`; what it made is closed after the test."""
    opened: list[agymc.VectorEnv] = []

    def make(*args: Any, **kwargs: Any) -> agymc.VectorEnv:
        opened.append(agymc.make_vec(*args, **kwargs))
        return opened[-1]

    yield make
    for envs in opened:
        envs.close()


@pytest.fixture
def make_vec(
    engine: str, open_vec: Callable[..., agymc.VectorEnv]
) -> Callable[..., agymc.VectorEnv]:
    """`agymc.make_vec` on the engine of this run.

    Workers take time to start, and `variant` has them in all numbers: here only "process" has more
    than one.
    """
    where, how = agymc.ENGINES[engine]
    options = {"num_workers": 1} if where == "process" and how != "serial" else {}

    def make(*args: Any, **kwargs: Any) -> agymc.VectorEnv:
        return open_vec(*args, **{"engine": engine, **options, **kwargs})

    return make


CONCURRENT = [name for name, pair in agymc.ENGINES.items() if pair != ("local", "serial")]


@pytest.fixture(params=CONCURRENT)
def make_concurrent(
    request: pytest.FixtureRequest, open_vec: Callable[..., agymc.VectorEnv]
) -> Callable[..., agymc.VectorEnv]:
    """`agymc.make_vec` on an engine whose envs all run at the same time.

    That needs a process per env where a process runs its envs one after the other, and coroutines
    where there is one thread for all.
    """

    def make(env_fns: list[Callable[[], Any]], **kwargs: Any) -> agymc.VectorEnv:
        where, how = agymc.ENGINES[request.param]
        if (where, how) == ("process", "serial"):
            kwargs = {"num_workers": len(env_fns), **kwargs}
        if how == "asyncio":
            env_fns = [partial(Awaited, env_fn) for env_fn in env_fns]
        return open_vec(env_fns, engine=request.param, **kwargs)

    return make


@pytest.fixture
def make_gates(tmp_path: Path) -> Iterator[Callable[[int], list[Gate]]]:
    """Makes gates for `Gated` envs; all are open when the test is over.

    Ask for it after the fixture that makes the envs, so that closing finds them running.
    """
    gates: list[Gate] = []

    def make(count: int) -> list[Gate]:
        first = len(gates)
        gates.extend(Gate(tmp_path / f"gate-{first + i}") for i in range(count))
        return gates[first:]

    yield make
    for gate in gates:
        gate.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Thin out the tables of cases for engines that are made of two others.

    "process+thread" is the worker of "process" with the runner of "thread", both of which see every
    case. It sees a third of each table, and every test.
    """
    here = str(Path(__file__).parent)
    turns: Counter[tuple[str, str]] = Counter()
    kept, dropped = [], []
    for item in items:
        callspec = getattr(item, "callspec", None)
        name = item.nodeid.partition("[")[0]
        engine = "" if callspec is None else callspec.params.get("engine", "")
        if (
            engine in ("process+thread", "process+asyncio")
            and str(item.path).startswith(here)
            and not name.endswith(WHOLE_TABLES)
        ):
            # The engines begin at different cases.
            turn = turns[name, engine] + (engine == "process+asyncio")
            turns[name, engine] += 1
            if turn % 3 and turns[name, engine] > 1:
                dropped.append(item)
                continue
        kept.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
