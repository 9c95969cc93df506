"""Probing an env, remembering what came out, and choosing."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from agymc.adapters.classic import is_coroutine_env
from agymc.choosing._figures import Figures, Subject
from agymc.choosing._predict import Candidate, candidates, fastest
from agymc.commands import Command
from agymc.engines import EngineOptions, available_cpus, start_pool
from agymc.errors import AgymcError, PickleError, RecvTimeoutError
from agymc.pool import CLOSE_TIMEOUT, Pool
from agymc.recipes import Recipe
from agymc.types import EnvFn

__all__ = ["Choice", "choose", "figures_of"]

_BUDGET = 0.25  # seconds of stepping
_PATIENCE = 1.5  # seconds until a probe that does not end is given up
_HANGING = 0.2  # seconds that an env which hangs gets to close
_PINGS = 9
_REMEMBERED = 256  # specs

_memory: OrderedDict[Any, Figures] = OrderedDict()


@dataclass(frozen=True)
class Choice:
    """What ``engine="auto"`` came to.

    Attributes:
        engine: The name of the engine.
        options: What to make it with, beside what the user has said.
        reason: Why, in words.
        figures: What the env costs, or None where nothing had to be measured.
        candidates: All engines that were considered, with their predictions.
    """

    engine: str
    options: Mapping[str, Any]
    reason: str
    figures: Figures | None = None
    candidates: tuple[Candidate, ...] = ()


def choose(
    recipe: Recipe, given: Mapping[str, Any], *, blocking: bool = True, render: bool = False
) -> Choice:
    """The engine for these envs.

    Args:
        recipe: How they are made.
        given: Options of `EngineOptions` that the user has given, whatever the engine.
        blocking: Whether the caller's own thread may step envs.
        render: Whether the envs will be rendered at each step.
    """
    num_workers, faults = given.get("num_workers"), given.get("faults")
    divided = num_workers is not None or given.get("envs_per_worker") is not None
    if given.get("max_in_flight") is not None or given.get("max_constructing") is not None:
        engine = "process+asyncio" if divided else "asyncio"
        return Choice(engine, {}, "the limits that were given are those of coroutines")
    if given.get("threads") is not None:
        engine = "process+thread" if divided or faults is not None else "thread"
        return Choice(engine, {}, "the number of threads was given")
    if given.get("caller_steps"):
        return Choice("process", {}, "caller_steps was given")
    isolated = "the number of workers was given" if divided else ""
    if faults is not None:
        isolated = "a fault policy was given, and only a process can be ended by force"
    if recipe.num_envs == 1 and blocking and not isolated and _is_surely_ordinary(recipe):
        return Choice("serial", {}, "there is one env")
    figures = figures_of(recipe, render=render)
    if figures.coroutine:
        engine = "process+asyncio" if divided else "asyncio"
        return Choice(engine, {}, "it is a coroutine env", figures)
    if figures.unknown:
        local = "serial" if blocking else "thread"
        engine = local if figures.here else "process"
        return Choice(engine, {}, f"nothing is known of it: {figures.unknown}", figures)
    cpus = num_workers if isinstance(num_workers, int) else available_cpus()
    found = candidates(figures, recipe.num_envs, cpus, isolated=isolated)
    if not blocking:
        found = [one for one in found if one.engine != "serial" and not one.options]
    best = fastest(found)
    if best.seconds == inf:  # nothing goes: the engine will say what is wrong
        best = Candidate("process", {}, inf, "nothing else is possible")
    return Choice(best.engine, best.options, best.reason, figures, tuple(found))


def _is_surely_ordinary(recipe: Recipe) -> bool:
    """Whether these are no coroutine envs, as far as that is plain without making one."""
    source: Any = getattr(recipe.env_fns[0], "source", None)
    if getattr(recipe.env_fns[0], "wrappers", ()):
        return False
    try:
        if recipe.spec is not None:
            source = recipe.spec.entry_point
            source = load_env_creator(source) if isinstance(source, str) else source
        return (
            inspect.isclass(source)
            and issubclass(source, gymnasium.Env)
            and not is_coroutine_env(source)
        )
    except Exception:  # it can't be imported, say: making the envs says so
        return True


def figures_of(recipe: Recipe, *, render: bool = False) -> Figures:
    """What the first of these envs costs; measured once for each spec or env function.

    An env that can't be measured is no error here: making the envs will say what is wrong.
    """
    key = _key(recipe, render)
    if key is not None and key in _memory:
        _memory.move_to_end(key)
        return _memory[key]
    figures = _probe(recipe.env_fns[0], render)
    if key is not None:
        _memory[key] = figures
        if len(_memory) > _REMEMBERED:
            _memory.popitem(last=False)
    return figures


def _key(recipe: Recipe, render: bool) -> Any:
    """What tells this env from others; None where nothing does."""
    first = recipe.env_fns[0]
    source: Any = getattr(first, "source", None)
    rest = repr(getattr(first, "kwargs", None)), repr(getattr(first, "wrappers", None)), render
    if recipe.spec is not None:
        return recipe.spec.id, repr(recipe.spec.entry_point), repr(recipe.spec.kwargs), *rest
    # Other callables may be equal and different, or be made anew each time.
    return (source, *rest) if inspect.isfunction(source) or inspect.isclass(source) else None


def _probe(env_fn: EnvFn, render: bool) -> Figures:
    """Measure it in a process of its own, where it can do no harm."""
    pool = start_pool(EngineOptions("process", num_workers=1), 1)
    patience = CLOSE_TIMEOUT
    try:
        pool.build([partial(Subject, env_fn)], "same", "probe")
        pool.submit(Command.CALL, None, [("measure", (_BUDGET, render), {})])
        pool.receive_requests(_PATIENCE)
        figures: Figures = pool.ledger.take_replies(None)[0].value
        return replace(figures, round_trip=_round_trip(pool))
    except PickleError:
        return _probe_here(env_fn, render)
    except RecvTimeoutError:
        patience = _HANGING
        return Figures(unknown=f"it did not get through a few steps in {_PATIENCE} seconds")
    except AgymcError as error:
        return Figures(unknown=f"probing it failed: {error}")
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it had to be killed
            pool.close(patience)


def _round_trip(pool: Pool) -> float:
    """Seconds, the median of some."""
    took = []
    for _ in range(_PINGS):
        began = perf_counter()
        pool.request(Command.GET, None, ["_coroutine"])
        took.append(perf_counter() - began)
    return sorted(took)[_PINGS // 2]


def _probe_here(env_fn: EnvFn, render: bool) -> Figures:
    """Measure an env that can't be sent to a process, and so has to live in this one."""
    try:
        subject = Subject(env_fn)
        try:
            figures = subject.measure(_BUDGET, render)
        finally:
            subject.close()
    except Exception as error:
        return Figures(here=True, unknown=f"probing it failed: {error}")
    return replace(figures, here=True)
