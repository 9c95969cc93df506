"""From an id, a spec or functions to one function per env."""

from __future__ import annotations

import copy
import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import gymnasium
from gymnasium.envs.registration import EnvSpec, _find_spec, load_env_creator

from agymc.adapters.classic import adapt, is_coroutine_env
from agymc.aio_wrappers import AsyncTimeLimit
from agymc.arguments import check_num_envs
from agymc.errors import (
    BatchLengthError,
    ConfigurationError,
    EnvError,
    MissingExtraError,
    NumEnvsError,
    UnknownEnvError,
    UnknownOptionError,
)
from agymc.types import EnvFn

__all__ = [
    "RGB_ARRAY_IF_POSSIBLE",
    "CoroutineEntryPoint",
    "EnvId",
    "EnvKwargs",
    "Recipe",
    "find_spec",
]

EnvId = str | EnvSpec | EnvFn | Sequence[EnvFn]
"""An id, a spec, one function for all envs, or one function per env."""

EnvKwargs = Sequence[Mapping[str, Any]] | Mapping[str, Any] | None
"""One dict of arguments per env, or one for all."""

RGB_ARRAY_IF_POSSIBLE = "rgb_array if possible"
"""A render mode that is resolved where the env is made: "rgb_array", or none."""

_Wrapper = Callable[[Any], Any]
_Door = TypeVar("_Door")

_EXTRAS = {
    "gymnasium.envs.classic_control": ("pygame", "classic"),
    "gymnasium.envs.toy_text": ("pygame", "classic"),
    "gymnasium.envs.box2d": ("Box2D", "box2d"),
    "gymnasium.envs.mujoco": ("mujoco", "mujoco"),
    "ale_py": ("ale_py", "atari"),
}


class Recipe:
    """How to make each of ``num_envs`` envs.

    Args:
        id: What the door was given.
        num_envs: The same.
        wrappers: Applied to each env in this order.
        env_kwargs: Arguments of each env, or of all.
        kwargs: Arguments of all envs.

    Attributes:
        num_envs: The number of envs.
        spec: The spec, for an id or spec.
        kwargs: The arguments of all envs.
    """

    def __init__(
        self,
        id: EnvId,
        num_envs: int | None,
        wrappers: Sequence[_Wrapper],
        env_kwargs: EnvKwargs,
        kwargs: Mapping[str, Any],
    ) -> None:
        self.spec: EnvSpec | None = None
        self.kwargs = dict(kwargs)
        sources: Sequence[EnvSpec | EnvFn]
        if isinstance(id, str | EnvSpec):
            self.spec = find_spec(id)
            self.num_envs = check_num_envs(1 if num_envs is None else num_envs)
            sources = [self.spec] * self.num_envs
        else:
            if self.kwargs.get("render_mode") == RGB_ARRAY_IF_POSSIBLE:
                del self.kwargs["render_mode"]  # a function decides that itself
            sources = _functions(id, num_envs)
            self.num_envs = len(sources)
        per_env = _spread(env_kwargs, self.num_envs)
        wrappers = _checked_wrappers(wrappers)
        same = _EnvRecipe(sources[0], self.kwargs, wrappers)
        self.env_fns: list[EnvFn] = [
            same
            if own is None and source is sources[0]
            else _EnvRecipe(source, {**self.kwargs, **(own or {})}, wrappers)
            for source, own in zip(sources, per_env, strict=True)
        ]

    def open(
        self, door: Callable[[Sequence[EnvFn]], _Door], options_of: Callable[..., Any]
    ) -> _Door:
        """The door with these envs.

        Args:
            door: Makes it from the env functions.
            options_of: The function whose keywords the user may have misspelt.

        Raises:
            MissingExtraError: An env needs a package that is not installed.
            UnknownOptionError: An env does not take a keyword that it was given.
            EnvError: Any other failure to make an env.
        """
        try:
            return door(self.env_fns)
        except EnvError as error:
            self.explain(error, options_of)
            raise

    def explain(self, error: EnvError, options_of: Callable[..., Any]) -> None:
        """Raise what says better than this error why the envs could not be made, if anything.

        Args:
            error: Of the construction.
            options_of: As in `open`.
        """
        cause = error.__cause__
        if cause is not None:
            if self.spec is not None:
                _raise_for_missing_package(self.spec, cause)
            self._raise_for_unknown_keyword(cause, options_of, error)

    def _raise_for_unknown_keyword(
        self, cause: BaseException, options_of: Callable[..., Any], error: EnvError
    ) -> None:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(cause))
        if not isinstance(cause, TypeError) or found is None or found[1] not in self.kwargs:
            return
        name = found[1]
        options = [
            option
            for option, parameter in inspect.signature(options_of).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        ]
        close = difflib.get_close_matches(name, options, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        env = "the env function" if self.spec is None else self.spec.id
        raise UnknownOptionError(
            f"{name!r} is neither an option of {options_of.__name__} ({', '.join(options)}) "
            f"nor an argument of {env}{hint}"
        ) from error


def find_spec(id: str | EnvSpec) -> EnvSpec:
    """The spec of an id, in a form that can be used in another process.

    Args:
        id: "Name-v0", "namespace/Name-v0", or "module:Name-v0", which imports the module first.
            "Name" stands for the latest version.

    Raises:
        UnknownEnvError: There is no such id.
    """
    if isinstance(id, EnvSpec):
        spec = copy.deepcopy(id)
    else:
        if id.startswith("ALE/") and id not in gymnasium.registry:
            _register_atari()
        try:
            try:
                spec = copy.deepcopy(_find_spec(id))
            except gymnasium.error.NameNotFound:
                # "PongNoFrameskip-v4": Atari's old ids have no namespace that would tell.
                if importlib.util.find_spec("ale_py") is None:
                    raise
                _register_atari()
                spec = copy.deepcopy(_find_spec(id))
        except (gymnasium.error.Error, ImportError) as error:
            raise UnknownEnvError(f"no environment is registered as {id!r}: {error}") from error
    if spec.entry_point is None:
        raise ConfigurationError(f"{spec.id} has no entry point, so no single env can be made")
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
        # Other processes have another __main__: there the class itself is needed.
        spec.entry_point = getattr(sys.modules["__main__"], spec.entry_point.partition(":")[2])
    return spec


def _register_atari() -> None:
    if importlib.util.find_spec("ale_py") is None:
        raise MissingExtraError("ale_py", "atari", "an Atari environment")
    gymnasium.register_envs(importlib.import_module("ale_py"))


def _functions(given: EnvFn | Sequence[EnvFn], num_envs: int | None) -> Sequence[EnvFn]:
    if callable(given):
        return [given] * check_num_envs(1 if num_envs is None else num_envs)
    try:
        functions = list(given)
    except TypeError:
        functions = None
    if functions is None or not all(map(callable, functions)):
        raise ConfigurationError(
            "expected an id, an EnvSpec, a function that makes an env, or a list of such "
            f"functions, got {given!r}"
        )
    if not functions:
        raise NumEnvsError("expected at least one env function, got an empty list")
    if num_envs is not None and num_envs != len(functions):
        raise NumEnvsError(
            f"expected num_envs={num_envs} env functions, got {len(functions)} of them"
        )
    return functions


def _spread(env_kwargs: EnvKwargs, num_envs: int) -> Sequence[Mapping[str, Any] | None]:
    if env_kwargs is None or isinstance(env_kwargs, Mapping):
        return [env_kwargs] * num_envs
    if not isinstance(env_kwargs, Sequence) or isinstance(env_kwargs, str):
        raise ConfigurationError(
            f"expected a list of {num_envs} dicts, one per env, or one dict for all, "
            f"got {env_kwargs!r}, at env_kwargs"
        )
    per_env = list(env_kwargs)
    if len(per_env) != num_envs:
        raise BatchLengthError(f"expected {num_envs} env_kwargs, one per env, got {len(per_env)}")
    for index, own in enumerate(per_env):
        if not isinstance(own, Mapping):
            raise ConfigurationError(
                f"expected a dict of arguments, got {own!r}, at env_kwargs[{index}]"
            )
    return per_env


def _checked_wrappers(wrappers: Any) -> tuple[_Wrapper, ...]:
    if callable(wrappers) or not isinstance(wrappers, Sequence):
        raise ConfigurationError(
            f"expected a list of functions env -> env, got {wrappers!r}, at wrappers"
        )
    for number, wrapper in enumerate(wrappers):
        if not callable(wrapper):
            raise ConfigurationError(
                f"expected a function env -> env, got {wrapper!r}, at wrappers[{number}]"
            )
    return tuple(wrappers)


@dataclass(frozen=True)
class _EnvRecipe:
    """Makes one env, where it will live."""

    source: EnvSpec | EnvFn
    kwargs: Mapping[str, Any]
    wrappers: Sequence[_Wrapper]

    def __call__(self) -> Any:
        if isinstance(self.source, EnvSpec):
            env: Any = _make_from_spec(self.source, dict(self.kwargs))
        else:
            env = self.source(**self.kwargs)
        return _wrap(env, self.wrappers)


def _wrap(env: Any, wrappers: Sequence[_Wrapper]) -> Any:
    """The env in its wrappers; to be awaited where the env is."""
    if inspect.isawaitable(env):
        return _wrap_awaited(env, wrappers)
    if wrappers:
        env = adapt(env)
    for wrapper in wrappers:
        env = wrapper(env)
    return env


async def _wrap_awaited(env: Awaitable[Any], wrappers: Sequence[_Wrapper]) -> Any:
    return _wrap(await env, wrappers)


def _make_from_spec(spec: EnvSpec, kwargs: dict[str, Any]) -> Any:
    entry_point = spec.entry_point
    creator: Any = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if kwargs.get("render_mode") == RGB_ARRAY_IF_POSSIBLE:
        del kwargs["render_mode"]
        maker = creator.loaded() if isinstance(creator, CoroutineEntryPoint) else creator
        metadata = getattr(maker, "metadata", None) or {}
        modes = metadata.get("render_modes", metadata.get("render.modes", ()))
        if "rgb_array" in modes and "render_mode" not in spec.kwargs and _takes_render_mode(maker):
            kwargs["render_mode"] = "rgb_array"
    if isinstance(creator, CoroutineEntryPoint) or is_coroutine_env(creator):
        return _make_coroutine_env(spec, creator, kwargs)
    if inspect.isclass(creator) and not issubclass(creator, gymnasium.Env):
        # A class from before Gymnasium, which `gymnasium.make` would refuse.
        spec = copy.copy(spec)
        spec.entry_point = _Adapted(creator)
    return gymnasium.make(spec, **kwargs)


class CoroutineEntryPoint:
    """Marks the entry point of a coroutine env in Gymnasium's registry, see `agymc.register`."""

    def __init__(self, creator: str | Callable[..., Any]) -> None:
        self.creator = creator

    def __call__(self, **kwargs: Any) -> Any:
        """Make one env."""
        return self.loaded()(**kwargs)

    def loaded(self) -> Callable[..., Any]:
        """What makes the env."""
        creator: Any = self.creator
        return load_env_creator(creator) if isinstance(creator, str) else creator


def _takes_render_mode(maker: Any) -> bool:
    """Whether it can be called with a ``render_mode``, as far as one can tell."""
    # An __init__ that takes any keyword hands them on to that of a base.
    functions = (
        [vars(c)["__init__"] for c in maker.__mro__ if "__init__" in vars(c)]
        if inspect.isclass(maker)
        else [maker]
    )
    for function in functions:
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue
        if "render_mode" in parameters or (
            function is maker and any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        ):
            return True
    return False


def _make_coroutine_env(spec: EnvSpec, creator: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """What `gymnasium.make` does, for an env that it would refuse."""
    limit = kwargs.pop("max_episode_steps", spec.max_episode_steps)
    kwargs.pop("disable_env_checker", None)
    env: Any = creator(**{**spec.kwargs, **kwargs})
    wrappers: Sequence[_Wrapper] = ()
    if limit is not None and limit != -1:
        wrappers = [functools.partial(AsyncTimeLimit, max_episode_steps=limit)]
    return _wrap(env, wrappers)


class _Adapted:
    """An entry point that makes a classic env and adapts it."""

    def __init__(self, creator: Callable[..., Any]) -> None:
        self.creator = creator
        self.metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"]}

    def __call__(self, *, render_mode: str | None = None, **kwargs: Any) -> Any:
        env = adapt(self.creator(**kwargs))
        if render_mode is not None:
            env.render_mode = render_mode
        return env


def _raise_for_missing_package(spec: EnvSpec, cause: BaseException) -> None:
    if not isinstance(cause, gymnasium.error.DependencyNotInstalled | ModuleNotFoundError):
        return
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else ""
    for module, (package, extra) in _EXTRAS.items():
        if entry_point.startswith(module):
            raise MissingExtraError(package, extra, f"the environment {spec.id}") from cause
