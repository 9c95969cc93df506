"""Classic envs, as written before Gymnasium, behind Gymnasium's API.

What "classic" covers, and which call each form gets::

    reset(self)                     gym <= 0.21, duck types     env.seed(seed), env.reset()
    reset(self, return_info=...)    gym 0.22 to 0.25            env.reset(..., return_info=True)
    reset(self, **kwargs)           wrappers of gym             what the env inside them takes

The package ``gym`` is neither needed nor imported: envs are told apart by the signature of
``reset``, spaces of gym by the names of their classes. The meaning of ``done`` is that of shimmy's
``GymV21CompatibilityV0``, which needs gym and gym's spaces, takes "TimeLimit.truncated" out of the
env's own info, forgets ``Discrete.start`` and leaves ``metadata`` classic. As there, mode "human"
is drawn when ``render()`` is called.
"""

from __future__ import annotations

import inspect
import operator
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["ClassicEnv", "adapt", "is_classic", "is_coroutine_env"]

_ENV_NAMES = ("reset", "step", "observation_space", "action_space")
_RESET_KEYWORDS = frozenset({"seed", "options", "return_info"})

# No observation in one of these is a tuple, so a pair that `reset` returns is (observation, info).
_NEVER_TUPLES = (
    spaces.Box,
    spaces.Dict,
    spaces.Discrete,
    spaces.MultiBinary,
    spaces.MultiDiscrete,
    spaces.Text,
)

# What `ClassicEnv` keeps for itself; any other attribute is the env's, to read and to write.
_OWN = frozenset({"env", "observation_space", "action_space", "reward_range", "_keywords"})


def adapt(env: Any) -> gymnasium.Env[Any, Any]:
    """Gives ``env`` Gymnasium's API if it lacks it.

    A classic env under wrappers of Gymnasium (`gymnasium.make` puts them there) is replaced by its
    adapter inside the outermost wrapper that needs it: that wrapper's ``env`` is set, since the
    wrappers themselves expect Gymnasium's API from below.

    Returns:
        ``env`` itself if it is modern or made of coroutines, else a `ClassicEnv` of it. An env of
        gym 0.26 has Gymnasium's methods but gym's spaces: it gets a `ClassicEnv` too.

    Raises:
        TypeError: if ``env`` is no environment, or has a space that Gymnasium has no equal of.
    """
    if isinstance(env, type):
        raise TypeError(
            f"expected an environment, got the class {env.__name__}: call it to make one"
        )
    missing = [name for name in _ENV_NAMES if not hasattr(env, name)]
    if missing:
        raise TypeError(
            "expected an environment with reset, step, observation_space and action_space, "
            f"got {type(env).__name__} without {', '.join(missing)}"
        )
    if _is_classic_itself(env) or _has_gym_spaces(env):
        return ClassicEnv(env)
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if _is_classic_itself(layer.env):
            layer.env = ClassicEnv(layer.env)
            break
        layer = layer.env
    return env  # type: ignore[no-any-return]


def is_classic(env: object) -> bool:
    """Whether ``reset`` takes neither ``seed`` nor ``options`` by keyword, so that `adapt` helps.

    Also if it takes ``return_info``, as from gym 0.22 to 0.25, where it gives no info unasked.

    No method of ``env`` is called. Wrappers of Gymnasium are looked through. Not classic are:
    coroutine envs, ``reset(self, seed=None)`` (modern but incomplete: Gymnasium's wrappers fail on
    it, with Python's own message), and classes. Where the signature does not tell (``**kwargs``, no
    signature as in C, arguments that must be given) an env is classic if it has a ``seed`` method
    and is no `gymnasium.Env`: it can then be seeded and reset the classic way, whatever it is.
    """
    while True:
        if _is_classic_itself(env):
            return True
        if not isinstance(env, gymnasium.Wrapper):
            return False
        env = env.env


class ClassicEnv(gymnasium.Env[Any, Any]):
    """A classic env behind Gymnasium's API.

    All attributes that Gymnasium's API does not name are the env's own, both to read and to write.
    ``unwrapped`` is this adapter, so that it has Gymnasium's API; the classic env is ``env``.

    ``metadata`` is a copy with Gymnasium's keys ``render_modes`` and ``render_fps`` added.
    ``np_random`` is the env's generator if it has a `numpy.random.Generator`, else one of the
    adapter's, for wrappers. ``np_random_seed`` is the last seed given, -1 if none was.

    Args:
        env: The env. Its spaces may be gym's.
        render_mode: The mode that ``env.render(mode=...)`` is called with. By default the env's own
            ``render_mode`` if it has one, else "rgb_array" if its metadata lists it, else None:
            ``env.render()``, in which case the env decides.

    Raises:
        TypeError: if a space of the env is neither Gymnasium's nor one that it has an equal of.
    """

    def __init__(self, env: Any, render_mode: str | None = None) -> None:
        self.env = env
        self.observation_space = _converted(env.observation_space, "observation_space")
        self.action_space = _converted(env.action_space, "action_space")
        self.reward_range = getattr(env, "reward_range", (-float("inf"), float("inf")))
        self.metadata = dict(getattr(env, "metadata", None) or {})
        modes = self.metadata.get("render_modes") or self.metadata.get("render.modes") or []
        self.metadata["render_modes"] = list(modes)
        if "video.frames_per_second" in self.metadata:
            self.metadata.setdefault("render_fps", self.metadata["video.frames_per_second"])
        self.render_mode = render_mode or getattr(env, "render_mode", None)
        # An env with `render_mode` and a plain `render()` that was built without a mode has none.
        can_choose = self._render_takes_mode() or not hasattr(env, "render_mode")
        if self.render_mode is None and "rgb_array" in modes and can_choose:
            self.render_mode = "rgb_array"
        self._keywords = _reset_keywords(env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Seeds the env if a seed is given, and starts an episode.

        The seed goes to ``env.seed``; an env without it that is a `gymnasium.Env` gets its
        ``np_random`` seeded; any other env cannot be seeded. An env whose ``reset`` takes no
        ``options`` never sees them.

        Returns:
            The observation and an info, {} unless the env gave one. A classic env gives none. One
            that was ported by half returns (observation, info) from a bare ``reset``: such a pair
            is taken apart if no observation in the observation space can be a tuple, otherwise (a
            Tuple, Sequence, Graph or custom space) it is the observation.
        """
        if seed is not None:
            seed = operator.index(seed)  # gym's seeding refuses NumPy's integers
            super().reset(seed=seed)
            if "seed" not in self._keywords:
                self._seed_env(seed)
        given = {"seed": seed, "options": options, "return_info": True}
        result = self.env.reset(**{name: given[name] for name in self._keywords})
        pair = bool(self._keywords & {"options", "return_info"}) or (
            isinstance(result, tuple)
            and len(result) == 2
            and isinstance(result[1], Mapping)
            and isinstance(self.observation_space, _NEVER_TUPLES)
        )
        observation, info = result if pair else (result, {})
        return observation, dict(info)

    def _seed_env(self, seed: int) -> None:
        # A wrapper of Gymnasium hides the attributes of what it wraps.
        env: Any = self.env.unwrapped if isinstance(self.env, gymnasium.Wrapper) else self.env
        if callable(getattr(env, "seed", None)):
            env.seed(seed)
        elif isinstance(env, gymnasium.Env):
            gymnasium.Env.reset(env, seed=seed)  # what its `super().reset(seed=seed)` would do

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advances by one step.

        Returns:
            (observation, reward, terminated, truncated, info). A ``done`` whose info says
            "TimeLimit.truncated" is truncated and not terminated; any other is terminated. The info
            is a copy, so that what is added to it never reaches the env.

        Raises:
            TypeError: if the env returned neither four values nor five.
        """
        result = self.env.step(action)
        if isinstance(result, tuple) and len(result) == 5:
            return result
        if not isinstance(result, tuple) or len(result) != 4:
            came = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise TypeError(
                "expected (observation, reward, done, info) or (observation, reward, terminated, "
                f"truncated, info), got {came}, from step of {type(self.env).__name__}"
            )
        observation, reward, done, info = result
        if not isinstance(info, Mapping):
            raise TypeError(
                f"expected a dict as info, got {type(info).__name__}, "
                f"from step of {type(self.env).__name__}"
            )
        late = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return observation, reward, bool(done) and not late, late, dict(info)

    def render(self) -> Any:
        """What ``env.render(mode=render_mode)`` gives, or ``env.render()`` if it takes no mode."""
        if self.render_mode is not None and self._render_takes_mode():
            return self.env.render(mode=self.render_mode)
        return self.env.render()

    def _render_takes_mode(self) -> bool:
        return "mode" in _parameters(self.env, "render")[0]

    def close(self) -> None:
        """Closes the env, if it can be closed."""
        if hasattr(self.env, "close"):
            self.env.close()

    @property
    def spec(self) -> Any:
        """The env's spec: Gymnasium's or gym's; None if it has none."""
        return getattr(self.env, "spec", None)

    @spec.setter
    def spec(self, value: Any) -> None:
        self.env.spec = value

    @property
    def np_random(self) -> np.random.Generator:
        """The env's generator, or one of the adapter's if the env has none of this kind."""
        rng = getattr(self.env, "np_random", None)
        return rng if isinstance(rng, np.random.Generator) else super().np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        if isinstance(getattr(self.env, "np_random", None), np.random.Generator):
            self.env.np_random = value
        self._np_random, self._np_random_seed = value, -1

    @property
    def np_random_seed(self) -> int:
        """The last seed given to `reset`; -1, Gymnasium's word for unknown, if there was none."""
        return -1 if self._np_random_seed is None else self._np_random_seed

    def __getattr__(self, name: str) -> Any:
        # Called for what the adapter lacks. While it is unpickled or copied it lacks even `env`,
        # and special methods are looked for: those must not be taken from the env.
        if name in _OWN or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or name.startswith("__") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self.env, name, value)

    def __str__(self) -> str:
        return f"<{type(self).__name__}{self.env}>"

    __repr__ = __str__


def _is_classic_itself(env: object) -> bool:
    if isinstance(env, type) or not hasattr(env, "reset") or is_coroutine_env(env):
        return False
    keywords = _reset_keywords(env)
    return not keywords or "return_info" in keywords


def is_coroutine_env(env: object) -> bool:
    """Whether its ``reset`` or ``step`` is ``async def``."""
    return any(inspect.iscoroutinefunction(getattr(env, name, None)) for name in ("reset", "step"))


def _reset_keywords(env: object) -> frozenset[str]:
    """Which of seed, options and return_info ``env.reset`` takes; none for a bare ``reset``."""
    names, unclear = _parameters(env, "reset")
    known = names & _RESET_KEYWORDS
    if not unclear:
        return known
    if not known and not isinstance(env, gymnasium.Env) and callable(getattr(env, "seed", None)):
        return frozenset()
    return known | {"seed", "options"}


def _parameters(env: Any, method: str, look_inside: bool = True) -> tuple[frozenset[str], bool]:
    """The names that a method takes by keyword, and whether there may be more that it doesn't tell.

    ``**kwargs`` of a wrapper that is not Gymnasium's are those of the env inside it. (Gymnasium's
    wrappers have Gymnasium's API whatever is inside: `adapt` sees to the inside.)
    """
    try:
        parameters = inspect.signature(getattr(env, method)).parameters.values()
    except (AttributeError, TypeError, ValueError):  # not there, no function, or written in C
        return frozenset(), True
    names = frozenset(
        p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        inside = getattr(env, "unwrapped", env) if look_inside else env
        if inside is env or isinstance(env, gymnasium.Env):
            return names, True
        more, unclear = _parameters(inside, method, look_inside=False)
        return names | more, unclear
    required = (p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL)
    return names, any(required)


def _gym_kind(space: object) -> str | None:
    """The name of the class in ``gym.spaces`` that ``space`` is an instance of, if it is of any."""
    for cls in type(space).__mro__:
        if cls.__module__ == "gym.spaces" or cls.__module__.startswith("gym.spaces."):
            return cls.__name__
    return None


def _has_gym_spaces(env: Any) -> bool:
    if isinstance(env, gymnasium.Env) or is_coroutine_env(env):
        return False
    return any(_gym_kind(space) for space in (env.observation_space, env.action_space))


def _converted(space: Any, where: str) -> spaces.Space[Any]:
    """Gymnasium's equal of a space of gym's; a space of Gymnasium's is left as it is."""
    if isinstance(space, spaces.Space):
        return space
    match _gym_kind(space):
        case "Box":
            return spaces.Box(space.low, space.high, tuple(space.shape), space.dtype)
        case "Discrete":
            return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
        case "MultiDiscrete":
            return spaces.MultiDiscrete(space.nvec, dtype=space.dtype)
        case "MultiBinary":
            return spaces.MultiBinary(int(space.n) if np.ndim(space.n) == 0 else tuple(space.n))
        case "Text":
            letters = getattr(space, "character_set", None) or space.charset  # gym 0.26, gym 0.25
            return spaces.Text(
                space.max_length, min_length=space.min_length, charset=frozenset(letters)
            )
        case "Tuple":
            return spaces.Tuple(
                [_converted(part, f"{where}[{i}]") for i, part in enumerate(space.spaces)]
            )
        case "Dict":  # ordered: Gymnasium would sort a plain dict, gym kept the order it was given
            return spaces.Dict(
                OrderedDict(
                    (key, _converted(part, f"{where}[{key!r}]"))
                    for key, part in space.spaces.items()
                )
            )
        case "Sequence":
            return spaces.Sequence(_converted(space.feature_space, f"{where}.feature_space"))
        case "Graph":
            edges = space.edge_space
            return spaces.Graph(
                _converted(space.node_space, f"{where}.node_space"),
                None if edges is None else _converted(edges, f"{where}.edge_space"),
            )
    raise TypeError(
        f"expected a space of gymnasium.spaces, or one of gym.spaces that has an equal there, "
        f"got {type(space).__module__}.{type(space).__qualname__}, at {where}"
    )
