"""Whether an environment is fit to be run many times at once, and on which engines."""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.utils.env_checker import check_env as check_gymnasium_api

from agymc.adapters.classic import adapt, is_coroutine_env
from agymc.entry import make_vec
from agymc.errors import AgymcError, EnvError
from agymc.pickling import find_unpicklable_in_env_fn
from agymc.snapshots import save_env
from agymc.testing.findings import Finding
from agymc.testing.vector_checks import difference
from agymc.types import EnvFn

__all__ = ["CHECKS", "check_env"]

_STEPS = 200
_ENVS = 4
_CHECKED_ENGINES = ("thread", "process", "process+thread")

CHECKS = (
    "construction",
    "api",
    "determinism",
    "data reuse",
    "picklability",
    "snapshots",
    *(f"engine {name}" for name in _CHECKED_ENGINES),
)
"""The names of the checks, in order."""


def check_env(
    env_fn: EnvFn, *, seed: int = 0, steps: int = _STEPS, tell: Callable[[str], None] | None = None
) -> list[Finding]:
    """Check one environment.

    Args:
        env_fn: Makes it; called several times.
        seed: Of the envs and of the actions.
        steps: How many steps are made in each check.
        tell: Is told the name of each check when it begins.

    Returns:
        What was found; nothing for an env that fits.
    """
    checks = _Checks(env_fn, seed, steps)
    for name in CHECKS:
        if tell is not None:
            tell(name)
        if name.startswith("engine "):
            checks.engine(name, name.removeprefix("engine "))
        else:
            getattr(checks, name.replace(" ", "_"))(name)
        if name == "construction" and checks.findings:
            break
    return checks.findings


class _Checks:
    def __init__(self, env_fn: EnvFn, seed: int, steps: int) -> None:
        self.env_fn = env_fn
        self.seed = seed
        self.steps = steps
        self.findings: list[Finding] = []
        self.coroutine = False
        self.expected: list[Any] | None = None

    def error(self, check: str, text: str, remedy: str = "") -> None:
        self.findings.append(Finding(check, "error", text, remedy))

    def warning(self, check: str, text: str, remedy: str = "") -> None:
        self.findings.append(Finding(check, "warning", text, remedy))

    @contextlib.contextmanager
    def env(self) -> Iterator[Any]:
        """An env of one's own."""
        env = adapt(self.env_fn())
        try:
            yield env
        finally:
            env.close()

    # ------------------------------------------------------------------ checks

    def construction(self, check: str) -> None:
        try:
            env = adapt(self.env_fn())
        except Exception as error:
            self.error(check, f"making it raised {type(error).__name__}: {error}")
            return
        self.coroutine = is_coroutine_env(env)
        if self.coroutine:
            self.warning(
                check,
                "it is a coroutine env: only its picklability is checked",
                "Run it with engine='asyncio' or 'process+asyncio'",
            )
            return
        try:
            env.close()
        except Exception as error:
            self.error(check, f"close raised {type(error).__name__}: {error}")

    def api(self, check: str) -> None:
        if self.coroutine:
            return
        told: list[str] = []
        warn = gymnasium.logger.warn

        def note(message: str, *arguments: object, **_: Any) -> None:
            told.append(message % arguments if arguments else message)

        try:
            with self.env() as env, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gymnasium.logger.warn = note  # type: ignore[assignment]
                check_gymnasium_api(env.unwrapped, skip_render_check=True, skip_close_check=True)
        except Exception as error:
            self.error(
                check,
                f"Gymnasium's check_env raised {type(error).__name__}: {error}",
                "See https://gymnasium.farama.org/api/env/",
            )
        finally:
            gymnasium.logger.warn = warn
        for text in dict.fromkeys(told):
            self.warning(check, f"Gymnasium's check_env says: {text}")

    def _play(self) -> list[Any]:
        """The results of a run of one env, as copies."""
        results: list[Any] = []
        with self.env() as env:
            actions = copy.deepcopy(env.action_space)
            actions.seed(self.seed)
            results.append(copy.deepcopy(env.reset(seed=self.seed)[0]))
            for _ in range(self.steps):
                result = env.step(actions.sample())
                results.append(copy.deepcopy(result[:4]))
                if result[2] or result[3]:
                    results.append(copy.deepcopy(env.reset()[0]))
        return results

    def determinism(self, check: str) -> None:
        if self.coroutine:
            return
        try:
            self.expected = self._play()
            again = self._play()
        except Exception as error:
            self.error(check, f"playing it raised {type(error).__name__}: {error}")
            self.expected = None
            return
        for number, (one, other) in enumerate(zip(self.expected, again, strict=False)):
            if difference(one, other) is not None:
                self.expected = None
                self.error(
                    check,
                    f"two envs with the same seed and actions differ, from result {number} on",
                    "Draw from self.np_random, which reset(seed=...) seeds, and from nothing else",
                )
                return

    def data_reuse(self, check: str) -> None:
        if self.coroutine or self.expected is None:
            return
        with self.env() as env:
            env.action_space.seed(self.seed)
            given, _ = env.reset(seed=self.seed)
            before = copy.deepcopy(given)
            for _ in range(10):
                result = env.step(env.action_space.sample())
                if difference(given, before) is not None:
                    self.warning(
                        check,
                        "an observation that was handed out is changed by a later step",
                        "agymc copies it, so nothing is wrong here; elsewhere a replay buffer "
                        "would fill with the same observation. Return a copy",
                    )
                    return
                given, before = result[0], copy.deepcopy(result[0])
                if result[2] or result[3]:
                    given, _ = env.reset()
                    before = copy.deepcopy(given)

    def picklability(self, check: str) -> None:
        try:
            cloudpickle.dumps(self.env_fn)
        except Exception as error:
            where = find_unpicklable_in_env_fn(self.env_fn, "env_fn")
            where = where or f"{type(error).__name__}: {error}"
            self.error(
                check,
                f"the function that makes it can't be sent to a process: {where}",
                "Make that object inside of the function, or use engine='thread'",
            )

    def snapshots(self, check: str) -> None:
        if self.coroutine:
            return
        with self.env() as env:
            env.reset(seed=self.seed)
            try:
                save_env(env)
            except Exception as error:
                self.warning(
                    check,
                    str(error),
                    "snapshot(), restore() and checkpoint() won't work with it; the rest does",
                )

    def engine(self, check: str, engine: str) -> None:
        if self.coroutine or self.expected is None:
            return
        if engine.startswith("process") and any(
            finding.check == "picklability" for finding in self.findings
        ):
            return
        expected = self._play_many(check, "serial")
        results = None if expected is None else self._play_many(check, engine)
        if results is None or expected is None:
            return
        for number, (one, other) in enumerate(zip(expected, results, strict=True)):
            if difference(one, other) is not None:
                threads = engine.endswith("thread")
                self.error(
                    check,
                    f"{_ENVS} envs differ from those on engine 'serial', from step {number} on",
                    "Its envs share something that is not safe in threads (a global, a library): "
                    "use engine='process'"
                    if threads
                    else "It depends on something of its process: a global, an environment "
                    "variable, a working directory",
                )
                return

    def _play_many(self, check: str, engine: str) -> list[Any] | None:
        before = set(threading.enumerate())
        try:
            with make_vec([self.env_fn] * _ENVS, engine=engine) as envs:
                envs.action_space.seed(self.seed)
                results = [copy.deepcopy(envs.reset(seed=self.seed)[0])]
                results += [
                    envs.step(envs.action_space.sample())[:4] for _ in range(self.steps // 2)
                ]
        except EnvError as error:
            self.error(check, str(error))
            return None
        except AgymcError as error:
            self.error(check, f"{type(error).__name__}: {error}")
            return None
        left = [one for one in threading.enumerate() if one not in before and one.is_alive()]
        if left:
            names = ", ".join(sorted(one.name for one in left))
            self.warning(check, f"after close these threads go on: {names}", "End them in close()")
        return results
