"""What an env costs, measured where it runs: in a process of its own."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter, process_time
from typing import Any

import numpy as np
from gymnasium import spaces

from agymc.adapters.classic import adapt, is_coroutine_env
from agymc.types import EnvFn

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["Figures", "Subject"]

_LEAST = 5  # operations, where they are not slower than the whole probe may be
_MOST = 2000
_WARM_UP = 3  # operations that are not counted: the first import modules and check the API
_SEED = 0
_PAUSES = 0.5  # per operation: with fewer, an env that was not running was not waiting either


@dataclass(frozen=True)
class Figures:
    """What an env costs; all times in seconds.

    Attributes:
        step: Wall time of a step, on average with the resets that follow the ends of episodes.
            Of an env that never waits: what its wall time would be if nobody else needed the CPU.
        cpu: CPU time of the same; more than ``step`` for an env that computes in many threads.
        reset: Wall time of a reset.
        construction: Wall time of making the env.
        render: Wall time of `render`, included in ``step`` and ``cpu``; 0 where nobody renders.
        info: What pickling and unpickling the infos of a step takes.
        operations: How many steps and resets were measured.
        round_trip: Between this process and a worker that has nothing to do.
        global_random: Whether the env draws from the global generators of ``random`` or NumPy.
        coroutine: Whether its methods are coroutine functions. Nothing was measured then.
        here: Whether the env can't be sent to another process.
        unknown: Why nothing was measured, or "".
    """

    step: float = 0.0
    cpu: float = 0.0
    reset: float = 0.0
    construction: float = 0.0
    render: float = 0.0
    info: float = 0.0
    operations: int = 0
    round_trip: float = 0.0
    global_random: bool = False
    coroutine: bool = False
    here: bool = False
    unknown: str = ""

    @property
    def waiting(self) -> float:
        """The share of its time in which the env waits and does not compute, 0 to 1."""
        return max(0.0, 1.0 - self.cpu / self.step) if self.step else 0.0


class Subject:
    """An env that is measured, in the place of an env: a pool builds it and calls `measure`.

    Args:
        env_fn: Makes the env.
    """

    def __init__(self, env_fn: EnvFn) -> None:
        began = perf_counter()
        with _without_warnings():  # they come again when the envs are made
            env: Any = env_fn()
            self._coroutine = hasattr(env, "__await__")
            if self._coroutine:
                env.close()  # a coroutine that nobody awaits
            else:
                env = adapt(env)
                self._coroutine = is_coroutine_env(env)
        self._env = env
        self._construction = perf_counter() - began
        # A pool wants to know these. They are not those of the env, which need not be sent.
        self.observation_space = self.action_space = spaces.Discrete(1)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Not called; this is what makes it an env."""
        raise NotImplementedError

    def step(self, action: Any) -> Any:
        """Not called either."""
        raise NotImplementedError

    def measure(self, budget: float, render: bool) -> Figures:
        """Step the env with random actions for about ``budget`` seconds.

        Args:
            budget: Seconds.
            render: Whether it will be rendered at each step.
        """
        nothing = Figures(construction=self._construction)
        if self._coroutine:
            return replace(nothing, coroutine=True)
        if not (getattr(self._env, "metadata", None) or {}).get("agymc.probe", True):
            return replace(nothing, unknown="its metadata say that it is not to be probed")
        with _without_warnings():
            return self._measured(nothing, budget, render)

    def _measured(self, nothing: Figures, budget: float, render: bool) -> Figures:
        env = self._env
        space = copy.deepcopy(env.action_space)  # drawing from it is no business of the env
        space.seed(_SEED)
        random_before = _global_random()
        operations: list[tuple[float, float]] = []
        resets: list[float] = []
        renders: list[float] = []
        infos: list[Any] = []
        over = True
        pauses = _pauses()
        until = perf_counter() + budget
        while len(operations) < _MOST and (perf_counter() < until or not operations):
            if not over:
                action = space.sample()
            began, cpu_began = perf_counter(), process_time()
            if over:
                _, info = env.reset(seed=_SEED) if not operations else env.reset()
                over = False
                resets.append(perf_counter() - began)
            else:
                _, _, terminated, truncated, info = env.step(action)
                over = bool(terminated or truncated)
            if render:
                render_began = perf_counter()
                env.render()
                renders.append(perf_counter() - render_began)
            operations.append((perf_counter() - began, process_time() - cpu_began))
            if info:
                infos.append(info)
        counted = operations[_WARM_UP:] if len(operations) >= _WARM_UP + _LEAST else operations
        step, cpu = np.mean(counted, axis=0)
        if (_pauses() - pauses) / len(operations) < _PAUSES:
            step = min(step, cpu)  # where it did not run, others did
        return replace(
            nothing,
            step=float(step),
            cpu=float(cpu),
            reset=float(np.mean(resets[1:] or resets)),
            render=float(np.mean(renders[1:] or renders or [0.0])),
            info=_pickling(infos[:20]) * len(infos) / len(operations),
            operations=len(counted),
            global_random=_global_random() != random_before,
        )

    def close(self) -> None:
        """Close the env."""
        if not hasattr(self._env, "__await__"):
            closing = self._env.close()
            if hasattr(closing, "close"):
                closing.close()  # a coroutine


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _pauses() -> float:
    """How often this process has waited for something so far; infinity where nobody knows."""
    if resource is None:
        return math.inf
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _global_random() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest


def _pickling(infos: list[Any]) -> float:
    if not infos:
        return 0.0
    began = perf_counter()
    try:
        for info in infos:
            pickle.loads(pickle.dumps(info))
    except Exception:
        return 0.0  # which the engine that pickles them will say
    return (perf_counter() - began) / len(infos)
