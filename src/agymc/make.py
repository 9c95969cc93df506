"""The functions that open the doors."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium.envs.registration import EnvSpec

from agymc.batch_env import BatchEnv
from agymc.batching import ObservationMode
from agymc.engines import DEFAULT_ENGINE, EngineOptions
from agymc.errors import ConfigurationError
from agymc.recipes import RGB_ARRAY_IF_POSSIBLE, EnvId, EnvKwargs, Recipe
from agymc.types import AutoresetMode, Fairness, ResetSeed
from agymc.vector_env import VectorEnv

__all__ = ["make", "make_vec"]

_VECTORIZATION_MODES = {"sync": "serial", "async": "process"}


def make_vec(
    id: EnvId,
    num_envs: int | None = None,
    *,
    engine: str | None = None,
    num_workers: int | None = None,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    observation_mode: ObservationMode = "same",
    copy: bool = True,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    env_kwargs: EnvKwargs = None,
    reset_seed: ResetSeed | None = None,
    fairness: Fairness = "arrival",
    check_actions: bool = True,
    vectorization_mode: str | None = None,
    vector_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> VectorEnv:
    """Make many envs behind Gymnasium's vector API; takes the place of `gymnasium.make_vec`.

    Args:
        id: An id ("CartPole-v1", "module:Env-v0"), a spec, one env function, or a list of
            ``num_envs`` env functions.
        num_envs: How many; 1 by default, or the number of the functions.
        engine: "serial", "thread", "process" (the default) or "process+thread"; see
            docs/engines.md.
        num_workers: For process engines: how many processes. By default as many as CPUs that this
            process may use.
        threads: For thread engines: how many threads per worker. By default one per env.
        autoreset_mode: What happens to an env whose episode is over.
        observation_mode: "same", "different" (bounds may differ), or
            (observation_space, single_observation_space).
        copy: False hands out the buffers as observations; see `VectorEnv`.
        wrappers: Functions env -> env, applied to each env in this order.
        env_kwargs: One dict of arguments per env, or one dict for all.
        reset_seed: ``(env index, episode number) -> seed or None``, the seeds of autoresets.
        fairness: Who comes first when `recv` can't hand out all: "arrival", or "oldest" (whose
            operation was sent first).
        check_actions: False lets actions outside of their space through.
        vectorization_mode: Gymnasium's name of an engine: "sync" is "serial", "async" is "process".
        vector_kwargs: More options of this function, where `gymnasium.make_vec` takes them.
        **kwargs: Arguments of every env.

    Raises:
        UnknownEnvError: No env is registered under the id.
        UnknownEngineError: No engine has that name.
        UnknownOptionError: A keyword is neither an option of this function nor taken by the env.
        NumEnvsError: ``num_envs`` is not positive, or is not the number of the functions.
        MissingExtraError: The env needs a package that is not installed.
        EnvError: An env function raised.
    """
    if isinstance(id, EnvSpec):  # perhaps that of another vector env
        id = copying.deepcopy(id)
        num_envs = id.kwargs.pop("num_envs", None) if num_envs is None else num_envs
        wrappers = id.kwargs.pop("wrappers", None) if wrappers is None else wrappers
        kept = id.kwargs.pop("vectorization_mode", None)
        vectorization_mode = vectorization_mode or kept
        vector_kwargs = {**id.kwargs.pop("vector_kwargs", {}), **(vector_kwargs or {})}
    if vector_kwargs:
        named = {
            "engine": engine,
            "num_workers": num_workers,
            "threads": threads,
            "autoreset_mode": autoreset_mode,
            "observation_mode": observation_mode,
            "copy": copy,
            "wrappers": wrappers,
            "env_kwargs": env_kwargs,
            "reset_seed": reset_seed,
            "fairness": fairness,
            "check_actions": check_actions,
            "vectorization_mode": vectorization_mode,
        }
        return make_vec(id, num_envs, **{**named, **vector_kwargs, **kwargs})
    if vectorization_mode is not None:
        if vectorization_mode not in _VECTORIZATION_MODES:
            raise ConfigurationError(
                f"expected vectorization_mode 'sync' or 'async', got {vectorization_mode!r}"
            )
        engine = engine or _VECTORIZATION_MODES[vectorization_mode]
    options = EngineOptions(
        engine=engine or DEFAULT_ENGINE,
        num_workers=num_workers,
        threads=threads,
        autoreset_mode=AutoresetMode(autoreset_mode),
        reset_seed=reset_seed,
        fairness=fairness,
    )
    recipe = Recipe(id, num_envs, wrappers or (), env_kwargs, kwargs)
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
    if recipe.spec is not None:
        envs.spec = _vector_spec(recipe, options, wrappers)
    return envs


def _vector_spec(recipe: Recipe, options: EngineOptions, wrappers: Any) -> EnvSpec:
    """A spec from which `make_vec` makes the same again, as Gymnasium keeps it."""
    spec = copying.deepcopy(recipe.spec)
    assert spec is not None
    spec.kwargs = {**spec.kwargs, **recipe.kwargs, "num_envs": recipe.num_envs}
    spec.kwargs["vector_kwargs"] = {
        "engine": options.engine,
        "autoreset_mode": options.autoreset_mode,
    }
    if wrappers:
        spec.kwargs["wrappers"] = wrappers
    return spec


def make(
    id: EnvId,
    num_envs: int | None = None,
    *,
    engine: str = DEFAULT_ENGINE,
    num_workers: int | None = None,
    threads: int | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    env_kwargs: EnvKwargs = None,
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
        wrappers: As in `make_vec`.
        env_kwargs: As in `make_vec`.
        check_actions: As in `make_vec`.
        show_max_hz: How often per second ``render("human")`` refreshes the window, at the most.
        show_max_share: Which share of the wall time it may take for that, at the most.
        **kwargs: Arguments of every env. Envs that can give "rgb_array" frames are made in that
            render mode, so that `render` works; ``render_mode="human"`` also shows every step.

    Raises:
        ConfigurationError: And the other errors of `make_vec`.
    """
    options = EngineOptions(
        engine=engine,
        num_workers=num_workers,
        threads=threads,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    show = kwargs.get("render_mode") == "human"
    if show or "render_mode" not in kwargs:
        kwargs["render_mode"] = RGB_ARRAY_IF_POSSIBLE
    recipe = Recipe(id, num_envs, wrappers, env_kwargs, kwargs)
    return recipe.open(
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
