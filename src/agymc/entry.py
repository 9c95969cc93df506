"""The functions that open the doors."""

from __future__ import annotations

import copy as copying
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, VectorizeMode

from agymc.aio_env import AioVectorEnv
from agymc.arguments import check_autoreset_mode, check_max_concurrency, check_no_worker
from agymc.batch_env import BatchEnv
from agymc.batching import ObservationMode
from agymc.checkpoints import read_checkpoint
from agymc.choosing import Choice, choose
from agymc.engines import DEFAULT_ENGINE, EngineOptions, available_cpus
from agymc.errors import ConfigurationError, UnknownOptionError
from agymc.faults import FaultPolicy
from agymc.recipes import RGB_ARRAY_IF_POSSIBLE, CoroutineEntryPoint, EnvId, EnvKwargs, Recipe
from agymc.types import AutoresetMode, Fairness, ResetSeed
from agymc.vector_env import VectorEnv

__all__ = ["make", "make_async", "make_vec", "register", "restore_checkpoint"]

_VECTORIZATION_MODES = {"sync": "serial", "async": "process"}


def make_vec(
    id: EnvId,
    num_envs: int | None = None,
    *,
    engine: str | None = None,
    num_workers: int | None = None,
    threads: int | None = None,
    max_in_flight: int | None = None,
    max_constructing: int | None = None,
    lag_threshold: float | None = 0.1,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    observation_mode: ObservationMode = "same",
    copy: bool = True,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    env_kwargs: EnvKwargs = None,
    reset_seed: ResetSeed | None = None,
    fairness: Fairness = "arrival",
    faults: FaultPolicy | None = None,
    envs_per_worker: int | None = None,
    caller_steps: bool = False,
    check_actions: bool = True,
    vectorization_mode: VectorizeMode | str | None = None,
    vector_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> VectorEnv:
    """Make many envs behind Gymnasium's vector API; takes the place of `gymnasium.make_vec`.

    Args:
        id: An id ("CartPole-v1", "module:Env-v0"), a spec (that of a vector env makes the same
            again, but for what is said here), one env function, or a list of ``num_envs`` env
            functions.
        num_envs: How many; 1 by default, or the number of the functions.
        engine: "serial", "thread", "process", "process+thread" or, for coroutine envs, "asyncio" or
            "process+asyncio"; see docs/engines.md. By default, "auto", the one that is fastest by
            measurement: one env is made, stepped for a quarter of a second and closed before, in a
            process of its own. What came out is ``envs.engine`` and ``envs.choice``.
        num_workers: For process engines: how many processes. By default as many as CPUs that this
            process may use.
        threads: For thread engines: how many threads per worker. By default one per env.
        max_in_flight: For coroutines: how many operations run at the same time, at the most.
        max_constructing: The same for the constructions of envs.
        lag_threshold: For coroutines: seconds for which an env may block the event loop before a
            `BlockedLoopWarning` says so, with the stack; None: never.
        autoreset_mode: What happens to an env whose episode is over; also as a string, "NextStep",
            "SameStep" or "Disabled".
        observation_mode: "same", "different" (bounds may differ), or
            (observation_space, single_observation_space).
        copy: False hands out the buffers as observations; see `VectorEnv`.
        wrappers: Functions env -> env, applied to each env in this order.
        env_kwargs: One dict of arguments per env, or one dict for all.
        reset_seed: ``(env index, episode number) -> seed or None``, the seeds of autoresets.
        fairness: Who comes first when `recv` can't hand out all: "arrival", or "oldest" (whose
            operation was sent first).
        faults: What to do about envs that raise, hang, crash or return bad data, see `FaultPolicy`
            and docs/faults.md. None: errors are raised, and nothing has a deadline.
        envs_per_worker: For process engines, instead of num_workers: how many envs a process has at
            the most. With 1 no env can take others with it.
        caller_steps: For "process": the caller's own thread steps one shard while the worker
            processes (one less than CPUs, or num_workers) step theirs. Faster for cheap envs, as
            nobody need be woken; but what crashes in that shard crashes the caller.
        check_actions: False lets actions outside of their space through.
        vectorization_mode: Gymnasium's name of an engine: "sync" is "serial", "async" is "process".
        vector_kwargs: More options of this function, where `gymnasium.make_vec` takes them. Of
            those of Gymnasium's `AsyncVectorEnv`, max_concurrency limits the workers, and
            shared_memory, context and daemon change nothing.
        **kwargs: Arguments of every env.

    Raises:
        UnknownEnvError: No env is registered under the id.
        UnknownEngineError: No engine has that name.
        UnknownOptionError: A keyword is neither an option of this function nor taken by the env.
        NumEnvsError: ``num_envs`` is not positive, or is not the number of the functions.
        MissingExtraError: The env needs a package that is not installed.
        EnvError: An env function raised.
    """
    if vectorization_mode is not None:
        if engine is not None:
            raise ConfigurationError(
                f"expected engine or vectorization_mode, got both: {engine!r} and "
                f"{vectorization_mode!r}"
            )
        engine = _engine_of(vectorization_mode)
    given = _other_than_defaults(
        engine=engine,
        num_workers=num_workers,
        threads=threads,
        max_in_flight=max_in_flight,
        max_constructing=max_constructing,
        lag_threshold=lag_threshold,
        autoreset_mode=autoreset_mode,
        observation_mode=observation_mode,
        copy=copy,
        wrappers=wrappers,
        env_kwargs=env_kwargs,
        reset_seed=reset_seed,
        fairness=fairness,
        faults=faults,
        envs_per_worker=envs_per_worker,
        caller_steps=caller_steps,
        check_actions=check_actions,
    )
    if isinstance(id, EnvSpec) and not _VECTOR_KEYS.isdisjoint(id.kwargs):
        spec, kept = _take_options(id)
        num_envs = kept.pop("num_envs", None) if num_envs is None else num_envs
        kept.pop("num_envs", None)
        return make_vec(spec, num_envs, **{**kept, **given}, vector_kwargs=vector_kwargs, **kwargs)
    if vector_kwargs:
        return make_vec(id, num_envs, **{**given, **_own_options(vector_kwargs), **kwargs})
    recipe = Recipe(id, num_envs, wrappers or (), env_kwargs, kwargs)
    options, choice = _engine_options(
        recipe,
        engine,
        render=kwargs.get("render_mode") == "rgb_array",
        num_workers=num_workers,
        threads=threads,
        max_in_flight=max_in_flight,
        max_constructing=max_constructing,
        lag_threshold=lag_threshold,
        autoreset_mode=check_autoreset_mode(autoreset_mode),
        reset_seed=reset_seed,
        fairness=fairness,
        faults=faults,
        envs_per_worker=envs_per_worker,
        caller_steps=caller_steps,
    )
    envs = recipe.open(
        lambda env_fns: VectorEnv(
            env_fns,
            options,
            observation_mode=observation_mode,
            copy=copy,
            check_actions=check_actions,
        ),
        make_vec,
    )
    envs.choice = choice
    if recipe.spec is not None:
        envs.spec = _vector_spec(recipe, given)
    return envs


def _engine_options(
    recipe: Recipe, engine: str | None, *, blocking: bool = True, render: bool = False, **given: Any
) -> tuple[EngineOptions, Choice | None]:
    """The options of an engine, which is chosen if it is not named."""
    if engine is not None and engine != DEFAULT_ENGINE:
        return EngineOptions(engine, **given), None
    choice = choose(recipe, given, blocking=blocking, render=render)
    return EngineOptions(choice.engine, **{**given, **choice.options}), choice


_VECTOR_KEYS = frozenset({"num_envs", "wrappers", "vectorization_mode", "vector_kwargs"})
"""What `gymnasium.make_vec` keeps in the kwargs of a vector env's spec, next to the env's own."""


def _vector_spec(recipe: Recipe, given: Mapping[str, Any]) -> EnvSpec:
    """A spec from which `make_vec` makes the same again, kept as Gymnasium keeps it."""
    spec = copying.deepcopy(recipe.spec)
    assert spec is not None
    spec.kwargs = {**spec.kwargs, **recipe.kwargs, "num_envs": recipe.num_envs}
    options = dict(given)
    wrappers = options.pop("wrappers", None)
    if wrappers:
        spec.kwargs["wrappers"] = wrappers
    if isinstance(options.get("autoreset_mode"), AutoresetMode):
        options["autoreset_mode"] = options["autoreset_mode"].value  # so that it fits into JSON
    if options:
        spec.kwargs["vector_kwargs"] = options
    return spec


def _take_options(vector_spec: EnvSpec) -> tuple[EnvSpec, dict[str, Any]]:
    """The spec of one env, and the options of `make_vec`, from the spec of a vector env."""
    spec = copying.deepcopy(vector_spec)
    kept = {name: spec.kwargs.pop(name) for name in _VECTOR_KEYS & spec.kwargs.keys()}
    options = _own_options(kept.pop("vector_kwargs", {}))
    mode = kept.pop("vectorization_mode", None)
    if "engine" not in options and mode in _VECTORIZATION_MODES:
        options["engine"] = _VECTORIZATION_MODES[mode]
    if mode == "vector_entry_point":  # how it was made, and not what: any engine will do
        # There Gymnasium makes an argument of it, which single envs don't take.
        spec.max_episode_steps = spec.kwargs.pop("max_episode_steps", spec.max_episode_steps)
    return spec, {**options, **kept}


def _own_options(vector_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `make_vec` that arguments of Gymnasium's vector envs come to."""
    options = dict(vector_kwargs)
    for name in ("shared_memory", "context", "daemon"):  # see `agymc.compat.AsyncVectorEnv`
        options.pop(name, None)
    check_no_worker(options.pop("worker", None))
    limit = check_max_concurrency(options.pop("max_concurrency", None))
    if limit is not None:
        options["num_workers"] = min(limit, available_cpus())
    return options


def _engine_of(vectorization_mode: VectorizeMode | str) -> str:
    mode = getattr(vectorization_mode, "value", vectorization_mode)
    if mode not in _VECTORIZATION_MODES:
        raise ConfigurationError(
            f"expected vectorization_mode 'sync' or 'async', got {mode!r}"
            + ("; for that one use gymnasium.make_vec" if mode == "vector_entry_point" else "")
        )
    return _VECTORIZATION_MODES[mode]


def _other_than_defaults(**options: Any) -> dict[str, Any]:
    """Those options of `make_vec` that were given, as far as one can tell."""
    parameters = inspect.signature(make_vec).parameters
    return {
        name: value
        for name, value in options.items()
        if value is not parameters[name].default and value != parameters[name].default
    }


def make_async(
    id: EnvId,
    num_envs: int | None = None,
    *,
    engine: str = "asyncio",
    num_workers: int | None = None,
    threads: int | None = None,
    max_in_flight: int | None = None,
    max_constructing: int | None = None,
    lag_threshold: float | None = 0.1,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    observation_mode: ObservationMode = "same",
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    env_kwargs: EnvKwargs = None,
    reset_seed: ResetSeed | None = None,
    fairness: Fairness = "arrival",
    faults: FaultPolicy | None = None,
    envs_per_worker: int | None = None,
    check_actions: bool = True,
    **kwargs: Any,
) -> AioVectorEnv:
    """Make many envs for asyncio. They are built when ``async with`` is entered.

    Args:
        id: As in `make_vec`; coroutine envs (`AsyncEnv`) as well as ordinary ones. An env function
            may be a coroutine function.
        num_envs: As in `make_vec`.
        engine: "asyncio" runs the envs' coroutines in the caller's event loop. Any other engine
            runs them beside it; see docs/asyncio.md. "auto" measures which is the fastest, and
            blocks meanwhile.
        num_workers: As in `make_vec`.
        threads: As in `make_vec`.
        max_in_flight: As in `make_vec`.
        max_constructing: As in `make_vec`.
        lag_threshold: As in `make_vec`.
        autoreset_mode: As in `make_vec`.
        observation_mode: As in `make_vec`.
        wrappers: As in `make_vec`.
        env_kwargs: As in `make_vec`.
        reset_seed: As in `make_vec`.
        fairness: As in `make_vec`.
        faults: As in `make_vec`.
        envs_per_worker: As in `make_vec`.
        check_actions: As in `make_vec`.
        **kwargs: Arguments of every env.

    Raises:
        ConfigurationError: And the other errors of `make_vec`; those of the envs when the
            ``async with`` is entered.
    """
    recipe = Recipe(id, num_envs, wrappers or (), env_kwargs, kwargs)
    options, choice = _engine_options(
        recipe,
        engine,
        blocking=False,
        num_workers=num_workers,
        threads=threads,
        max_in_flight=max_in_flight,
        max_constructing=max_constructing,
        lag_threshold=lag_threshold,
        autoreset_mode=check_autoreset_mode(autoreset_mode),
        reset_seed=reset_seed,
        fairness=fairness,
        faults=faults,
        envs_per_worker=envs_per_worker,
    )
    envs = AioVectorEnv(
        recipe.env_fns,
        options,
        observation_mode=observation_mode,
        check_actions=check_actions,
        explain=lambda error: recipe.explain(error, make_async),
    )
    envs.choice = choice
    return envs


def restore_checkpoint(path: str | os.PathLike[str], **options: Any) -> VectorEnv:
    """Make the envs that `VectorEnv.checkpoint` wrote to a file, and go on where they were.

    The file is a pickle: restore only files of people whom you trust.

    Args:
        path: The file.
        **options: Of the engine, in place of those that the envs had: engine, num_workers,
            threads, envs_per_worker, caller_steps, max_in_flight, max_constructing, lag_threshold,
            faults, fairness.

    Raises:
        CheckpointError: The file is no checkpoint, is damaged, or can't be restored here.
        ConfigurationError: An option that there is not, or that does not fit the engine.
        EnvError: An env can't be made any more.
    """
    checkpoint = read_checkpoint(path)
    unknown = options.keys() - _ENGINE_OPTIONS
    if unknown:
        raise UnknownOptionError(
            f"expected options out of {', '.join(sorted(_ENGINE_OPTIONS))}, got "
            f"{', '.join(sorted(unknown))}"
        )
    if options.get("engine", checkpoint.options.engine) != checkpoint.options.engine:
        # What belonged to the old engine does not belong to the new one.
        for name in _OF_ONE_ENGINE:
            options.setdefault(name, False if name == "caller_steps" else None)
    for one, other in (("num_workers", "envs_per_worker"), ("envs_per_worker", "num_workers")):
        if options.get(one) is not None:
            options.setdefault(other, None)
    return VectorEnv.from_checkpoint(checkpoint, replace(checkpoint.options, **options))


_OF_ONE_ENGINE = (
    "num_workers",
    "envs_per_worker",
    "threads",
    "max_in_flight",
    "max_constructing",
    "caller_steps",
)
_ENGINE_OPTIONS = {*_OF_ONE_ENGINE, "engine", "lag_threshold", "faults", "fairness"}


def register(id: str, entry_point: str | Callable[..., Any], **spec: Any) -> None:
    """Register an id of a coroutine env, for `make_async` and the other doors.

    A class whose ``step`` is ``async def`` can be registered with `gymnasium.register` too; this
    also takes functions that make such envs.

    Args:
        id: "Name-v0", or "namespace/Name-v0".
        entry_point: A function, class or "module:name" that makes the env.
        **spec: What `gymnasium.register` takes: ``max_episode_steps``, ``kwargs``, ...
    """
    gymnasium.register(id, CoroutineEntryPoint(entry_point), **spec)


def make(
    id: EnvId,
    num_envs: int | None = None,
    *,
    engine: str | None = None,
    num_workers: int | None = None,
    threads: int | None = None,
    max_in_flight: int | None = None,
    max_constructing: int | None = None,
    lag_threshold: float | None = 0.1,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    env_kwargs: EnvKwargs = None,
    faults: FaultPolicy | None = None,
    envs_per_worker: int | None = None,
    caller_steps: bool = False,
    check_actions: bool = True,
    show_max_hz: float = 50.0,
    show_max_share: float = 0.5,
    **kwargs: Any,
) -> BatchEnv:
    """Make many envs behind the API of classic gym, in lists; takes the place of ``gym.make``.

    Args:
        id: As in `make_vec`.
        num_envs: As in `make_vec`.
        engine: As in `make_vec`.
        num_workers: As in `make_vec`.
        threads: As in `make_vec`.
        max_in_flight: As in `make_vec`.
        max_constructing: As in `make_vec`.
        lag_threshold: As in `make_vec`.
        wrappers: As in `make_vec`.
        env_kwargs: As in `make_vec`.
        faults: As in `make_vec`.
        envs_per_worker: As in `make_vec`.
        caller_steps: As in `make_vec`.
        check_actions: As in `make_vec`.
        show_max_hz: How often per second ``render("human")`` refreshes the window, at the most.
        show_max_share: Which share of the wall time it may take for that, at the most.
        **kwargs: Arguments of every env. Envs that can give "rgb_array" frames are made in that
            render mode, so that `render` works; ``render_mode="human"`` also shows every step.

    Raises:
        ConfigurationError: And the other errors of `make_vec`.
    """
    show = kwargs.get("render_mode") == "human"
    if show or "render_mode" not in kwargs:
        kwargs["render_mode"] = RGB_ARRAY_IF_POSSIBLE
    recipe = Recipe(id, num_envs, wrappers or (), env_kwargs, kwargs)
    options, choice = _engine_options(
        recipe,
        engine,
        num_workers=num_workers,
        threads=threads,
        max_in_flight=max_in_flight,
        max_constructing=max_constructing,
        lag_threshold=lag_threshold,
        autoreset_mode=AutoresetMode.DISABLED,
        faults=faults,
        envs_per_worker=envs_per_worker,
        caller_steps=caller_steps,
    )
    envs = recipe.open(
        lambda env_fns: BatchEnv(
            env_fns,
            options,
            check_actions=check_actions,
            spec=recipe.spec,
            always_show=show,
            show_max_hz=show_max_hz,
            show_max_share=show_max_share,
        ),
        make,
    )
    envs.choice = choice
    return envs
