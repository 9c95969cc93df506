"""Policies: the random one, and the user's."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import operator
import os
import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from agymc.errors import AgymcError, ConfigurationError

__all__ = [
    "Policy",
    "PolicyError",
    "PolicyFactory",
    "PolicyImportError",
    "load_policy",
    "random_policy",
    "split",
]

_BLOCK = 64
"""Actions that are drawn for an env at once, which takes hardly longer than drawing one."""

_PLAIN_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Policy(Protocol):
    """What chooses the actions.

    Attributes:
        looks: Whether it looks at the observations.
    """

    looks: bool

    def __call__(
        self, observations: Any, env_ids: NDArray[np.int64], over: NDArray[np.bool_] | None
    ) -> Any:
        """Actions for k envs.

        Args:
            observations: The batch of their k observations.
            env_ids: (k,) the envs.
            over: (k,) whose episode is over, so that their action will not be used; None: nobody's.

        Returns:
            A batch of k actions, or a list of them.
        """
        ...


PolicyFactory = Callable[[Space[Any], int, int], Policy]
"""``(one env's action space, num_envs, seed) -> Policy``: each part of a run has a fresh one."""


class PolicyImportError(ConfigurationError):
    """The module of the policy raised when it was imported; that is the ``__cause__``."""


class PolicyError(AgymcError):
    """The policy raised while it was used; that is the ``__cause__``."""


class _Random:
    """Draws from the action space, for each env from a stream of its own.

    So the actions of env i depend on the seed and i alone: not on the other envs, nor on whether
    they come together.
    """

    looks = False

    def __init__(self, space: Space[Any], num_envs: int, seed: int) -> None:
        self._streams = [batch_space(space, _BLOCK) for _ in range(num_envs)]
        for index, stream in enumerate(self._streams):
            stream.seed(_seed_of(seed, index))
        self._blocks = np.stack([stream.sample() for stream in self._streams])
        self._used = np.zeros(num_envs, np.int64)

    def __call__(
        self, observations: Any, env_ids: NDArray[np.int64], over: NDArray[np.bool_] | None
    ) -> Any:
        used = self._used
        rows = used[env_ids]
        actions = self._blocks[env_ids, rows]
        # Those that will not be used are drawn again.
        used[env_ids] = rows + (1 if over is None else ~over)
        for index in env_ids[used[env_ids] == _BLOCK]:
            self._blocks[index] = self._streams[index].sample()
            used[index] = 0
        return actions


class _RandomObjects:
    """The same for spaces whose batches are no plain arrays."""

    looks = False

    def __init__(self, space: Space[Any], num_envs: int, seed: int) -> None:
        # Copied by way of `batch_space`, which knows how to copy each kind of space.
        self._streams = [batch_space(space, 1) for _ in range(num_envs)]
        for index, stream in enumerate(self._streams):
            stream.seed(_seed_of(seed, index))
        self._next = [self._draw(index) for index in range(num_envs)]

    def _draw(self, index: int) -> Any:
        stream = self._streams[index]
        return next(iter(iterate(stream, stream.sample())))

    def __call__(
        self, observations: Any, env_ids: NDArray[np.int64], over: NDArray[np.bool_] | None
    ) -> Any:
        actions = [self._next[index] for index in env_ids]
        for row, index in enumerate(env_ids):
            if over is None or not over[row]:
                self._next[index] = self._draw(index)
        return actions


def random_policy(space: Space[Any], num_envs: int, seed: int) -> Policy:
    """The policy that draws from the action space; see `PolicyFactory`."""
    kind = _Random if isinstance(space, _PLAIN_SPACES) else _RandomObjects
    return kind(space, num_envs, seed)


def _seed_of(seed: int, index: int) -> int:
    # Not seed + index, with which the envs are seeded: env and policy would draw the same numbers.
    return int(np.random.SeedSequence((seed, index)).generate_state(1)[0])


class _Users:
    """The user's function."""

    looks = True

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self._name, self._function = name, function

    def __call__(
        self, observations: Any, env_ids: NDArray[np.int64], over: NDArray[np.bool_] | None
    ) -> Any:
        try:
            return self._function(observations)
        except Exception as error:
            raise PolicyError(
                f"the policy {self._name} raised {type(error).__name__}: {error}"
            ) from error


def load_policy(name: str) -> PolicyFactory:
    """The policy that ``module:function`` names.

    Args:
        name: In place of a function it may name a class: each part of a run makes an instance,
            without arguments, and calls that.

    Raises:
        ConfigurationError: There is no such thing, or it can't be called.
        PolicyImportError: The module raised when it was imported.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ConfigurationError(f"expected --policy module:function, got {name!r}")
    module = _import(module_name)
    try:
        found = operator.attrgetter(path)(module)
    except AttributeError:
        known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        close = difflib.get_close_matches(path, known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigurationError(
            f"the module {module_name!r} ({module.__file__}) has no {path!r}{hint}"
        ) from None
    if not callable(found):
        raise ConfigurationError(
            f"expected --policy {name} to be a function (observations) -> actions, "
            f"got {reprlib.repr(found)}"
        )
    return functools.partial(_make, name, found)


def _make(name: str, found: Any, space: Space[Any], num_envs: int, seed: int) -> Policy:
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise PolicyError(f"{name}() raised {type(error).__name__}: {error}") from error
    return _Users(name, found)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigurationError(
                f"there is no module {name!r} for --policy, neither in {os.getcwd()} nor on "
                "Python's path"
            ) from None
        raise PolicyImportError(f"--policy can't import {name!r}: {error}") from error
    except Exception as error:
        raise PolicyImportError(
            f"--policy can't import {name!r}: {type(error).__name__}: {error}"
        ) from error


def split(space: Space[Any], actions: Any, count: int) -> Iterator[Any]:
    """One action after the other, of a batch of ``count``."""
    if isinstance(space, _PLAIN_SPACES):
        return iter(np.asarray(actions, space.dtype))
    if isinstance(actions, Sequence) and not isinstance(space, spaces.Tuple):
        return iter(actions)
    if isinstance(actions, list):
        return iter(actions)
    batches: Iterator[Any] = iterate(batch_space(space, count), actions)
    return batches
