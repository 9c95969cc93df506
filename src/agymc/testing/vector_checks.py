"""Where a vector env breaks the laws, in words. For any `gymnasium.vector.VectorEnv`.

What is checked are promises that training code relies on without saying so: that the results of a
step belong to that step, whatever went wrong before; that arrays stay what they are; that the same
seeds and actions give the same; that arguments are left alone; that the end of an episode is told.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from agymc.testing.findings import Finding

__all__ = ["check_vector_env", "difference"]

_STEPS = 64
_TRIES = 50  # to catch an env before it has answered
_PATIENCE = 10.0  # seconds


def check_vector_env(envs: VectorEnv[Any, Any, Any], *, seed: int = 0) -> list[Finding]:
    """Say where a vector env breaks the laws.

    Its envs should give the same for the same seed, and be able to end an episode within 64 steps
    for everything to be checked. The vector env is stepped, reset and in the end closed.

    Args:
        envs: The vector env, with ``copy=True`` where it can be chosen.
        seed: Of its envs and of the actions that are taken.

    Returns:
        What was found; nothing for one that keeps the laws.
    """
    checker = _Checker(envs, seed)
    for check in (
        checker.check_shapes,
        checker.check_the_same_again,
        checker.check_single_seeds,
        checker.check_ownership,
        checker.check_arguments,
        checker.check_infos,
        checker.check_ends,
        checker.check_busy,
        checker.check_timeouts,
        checker.check_close,
    ):
        try:
            check()
        except Exception as error:
            name = check.__name__.removeprefix("check_").replace("_", " ")
            checker.say(name, f"the check could not be finished: {type(error).__name__}: {error}")
    return checker.findings


class _Checker:
    def __init__(self, envs: VectorEnv[Any, Any, Any], seed: int) -> None:
        self.envs = envs
        self.seed = seed
        self.findings: list[Finding] = []
        random = np.random.default_rng(seed)
        envs.action_space.seed(int(random.integers(2**31)))
        self.actions = [envs.action_space.sample() for _ in range(_STEPS)]
        self.asynchronous = hasattr(envs, "step_async") and hasattr(envs, "step_wait")
        self.disabled = envs.metadata.get("autoreset_mode") is AutoresetMode.DISABLED

    def say(self, check: str, text: str, remedy: str = "") -> None:
        self.findings.append(Finding(check, "error", text, remedy))

    # ------------------------------------------------------------------ playing

    def play(self, steps: int = _STEPS, seed: Any = None) -> list[Any]:
        """The results of a reset and some steps, as copies."""
        results = [copy.deepcopy(self.envs.reset(seed=self.seed if seed is None else seed)[0])]
        for action in self.actions[:steps]:
            result = self.envs.step(copy.deepcopy(action))
            results.append(copy.deepcopy(result[:4]))
            over = np.asarray(result[2]) | np.asarray(result[3])
            if self.disabled and over.any():
                results.append(copy.deepcopy(self.reset_some(over)))
        return results

    def play_steps(self) -> list[Any]:
        """The results of steps alone, up to the first end of an episode where that needs resets."""
        self.envs.reset(seed=self.seed)
        results = []
        for action in self.actions:
            results.append(copy.deepcopy(self.envs.step(copy.deepcopy(action))[:4]))
            if self.disabled and (results[-1][2] | results[-1][3]).any():
                break
        return results

    def reset_some(self, over: NDArray[np.bool_]) -> Any:
        return self.envs.reset(options={"reset_mask": over})[0]

    # ------------------------------------------------------------------ checks

    def check_shapes(self) -> None:
        envs, count = self.envs, self.envs.num_envs
        observations, infos = envs.reset(seed=self.seed)
        if not envs.observation_space.contains(observations):
            self.say("spaces", f"reset gave {_kind(observations)}, not in observation_space")
        if not isinstance(infos, dict):
            self.say("infos", f"expected reset to give a dict, got {_kind(infos)}")
        observations, rewards, terminations, truncations, infos = envs.step(self.actions[0])
        if not envs.observation_space.contains(observations):
            self.say("spaces", f"step gave {_kind(observations)}, not in observation_space")
        for name, flags in (("terminations", terminations), ("truncations", truncations)):
            if np.shape(flags) != (count,) or np.asarray(flags).dtype != np.bool_:
                self.say(name, f"expected a bool array of shape ({count},), got {_kind(flags)}")
        if np.shape(rewards)[:1] != (count,):
            self.say("rewards", f"expected {count} of them, got {_kind(rewards)}")
        if not isinstance(envs.metadata.get("autoreset_mode"), AutoresetMode):
            self.say(
                "autoreset mode",
                "expected metadata['autoreset_mode'] to be an AutoresetMode, got "
                f"{envs.metadata.get('autoreset_mode')!r}",
                "Without it nobody knows which observation follows the end of an episode",
            )

    def check_the_same_again(self) -> None:
        where = difference(self.play(), self.play())
        if where is not None:
            self.say(
                "determinism",
                f"the same seed and actions gave something else the second time, from {where} on",
            )

    def check_single_seeds(self) -> None:
        seeds = [self.seed + index for index in range(self.envs.num_envs)]
        where = difference(self.play(8), self.play(8, seeds))
        if where is not None:
            self.say(
                "seeds",
                f"reset(seed={self.seed}) and reset(seed={seeds[:3]}...) differ, from {where} on: "
                "env i is expected to have seed + i",
            )

    def check_ownership(self) -> None:
        envs = self.envs
        kept: list[tuple[Any, Any]] = []
        observations, _ = envs.reset(seed=self.seed)
        kept.append((observations, copy.deepcopy(observations)))
        for action in self.actions[:4]:
            if self.disabled and len(kept) > 1 and (kept[-1][1][2] | kept[-1][1][3]).any():
                break
            result = envs.step(action)[:4]
            kept.append((result, copy.deepcopy(result)))
        for number, (given, before) in enumerate(kept):
            where = difference(given, before)
            if where is not None:
                self.say(
                    "ownership",
                    f"what {'reset' if number == 0 else f'step {number}'} gave was changed by a "
                    f"later step, at {where}: arrays that were handed out are written to again",
                    "Copy them, or have the vector env copy them (copy=True)",
                )
                return

    def check_arguments(self) -> None:
        envs = self.envs
        action = copy.deepcopy(self.actions[0])
        envs.reset(seed=self.seed)
        envs.step(action)
        if difference(action, self.actions[0]) is not None:
            self.say("arguments", "step has changed the actions that it was given")
        mask = np.zeros(envs.num_envs, np.bool_)
        mask[0] = True
        options = {"reset_mask": mask, "other": [1, 2]}
        before = copy.deepcopy(options)
        try:
            envs.reset(options=options)
        except Exception:
            return  # it knows no masks, or its envs no options
        if options.keys() != before.keys() or difference(options, before) is not None:
            missing = ", ".join(map(repr, sorted(before.keys() - options.keys())))
            self.say(
                "arguments",
                "reset has changed the options that it was given"
                + (f": {missing} is gone" if missing else ""),
                "The next reset with the same dict resets other envs: give it a copy",
            )

    def check_infos(self) -> None:
        envs = self.envs
        _, infos = envs.reset(seed=self.seed)
        for where, told in (("reset", infos), ("step", envs.step(self.actions[0])[-1])):
            for key in told:
                mask = told.get(f"_{key}")
                if str(key).startswith("_") or key == "final_info":
                    continue
                if mask is None or np.shape(mask) != (envs.num_envs,):
                    self.say(
                        "infos",
                        f"infos[{key!r}] of {where} has no mask of shape ({envs.num_envs},) "
                        f"under {f'_{key}'!r}: which envs gave it?",
                    )

    def check_ends(self) -> None:
        envs = self.envs
        mode = envs.metadata.get("autoreset_mode")
        envs.reset(seed=self.seed)
        over = np.zeros(envs.num_envs, np.bool_)
        for number, action in enumerate(self.actions, 1):
            if mode is AutoresetMode.DISABLED and over.any():
                return
            _, rewards, terminations, truncations, infos = envs.step(action)
            if mode is AutoresetMode.NEXT_STEP and over.any():
                ended = np.asarray(terminations)[over] | np.asarray(truncations)[over]
                if np.asarray(rewards)[over].any() or ended.any():
                    self.say(
                        "autoreset",
                        f"step {number} resets envs {np.flatnonzero(over).tolist()}, whose episode "
                        "was over: expected rewards of 0 and no flags, got "
                        f"{np.asarray(rewards)[over].tolist()}",
                    )
                    return
            over = np.asarray(terminations) | np.asarray(truncations)
            if mode is AutoresetMode.SAME_STEP and over.any():
                final = infos.get("final_obs")
                if final is None or not all(
                    envs.single_observation_space.contains(final[index])
                    for index in np.flatnonzero(over)
                ):
                    self.say(
                        "autoreset",
                        f"step {number} ended episodes of envs {np.flatnonzero(over).tolist()} and "
                        "infos['final_obs'] does not have their last observations",
                        "Value targets at the end of an episode would be wrong",
                    )
                    return

    def check_busy(self) -> None:
        if not self.asynchronous:
            return
        envs: Any = self.envs
        envs.reset(seed=self.seed)
        envs.step_async(self.actions[0])
        try:
            envs.step_async(self.actions[1])
        except Exception:
            pass
        else:
            self.say(
                "one at a time",
                "a second step_async before step_wait was accepted: one of the two gets lost, or "
                "an env is used by two callers",
            )
        envs.step_wait()

    def check_timeouts(self) -> None:
        """Law 2: after a timeout, each result still belongs to its action."""
        if not self.asynchronous:
            return
        envs: Any = self.envs
        expected = self.play_steps()
        for _ in range(_TRIES):
            envs.reset(seed=self.seed)
            try:
                envs.step_async(copy.deepcopy(self.actions[0]))
                envs.step_wait(timeout=0)
            except Exception:
                break
        else:
            return  # it was always in time
        # Some may be waited for again, some may not, and say so: either is fine.
        received: list[Any] = []
        waited = _attempt(lambda: envs.step_wait(timeout=_PATIENCE))
        if waited is not None:
            received.append(copy.deepcopy(waited[:4]))
        for action in self.actions[1 : len(expected)]:
            result = _attempt(lambda action=action: envs.step(copy.deepcopy(action)))  # type: ignore[misc]
            if result is None:
                return  # it says that it can't go on
            received.append(copy.deepcopy(result[:4]))
        wanted = expected if waited is not None else expected[1:]
        for number, (got, want) in enumerate(zip(received, wanted, strict=False)):
            if difference(got, want) is None:
                continue
            late = any(difference(got, earlier) is None for earlier in expected)
            step = number + 1 + (waited is None)
            self.say(
                "timeouts",
                f"after a timeout of step_wait, step {step} gave "
                + (
                    "the result of an earlier step: from then on every observation belongs to "
                    "an earlier action"
                    if late
                    else "something else than it gives without a timeout"
                ),
                "Don't use timeouts with this vector env, or make it anew after one",
            )
            return

    def check_close(self) -> None:
        envs = self.envs
        envs.close()
        try:
            envs.close()
        except Exception as error:
            self.say("close", f"a second close raised {type(error).__name__}: {error}")
        try:
            envs.step(self.actions[0])
        except Exception:
            return
        self.say("close", "step after close raised nothing")


def _attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception:
        return None


def difference(one: Any, other: Any) -> str | None:
    """Where two results differ; None for nowhere."""
    if isinstance(one, dict):
        if not isinstance(other, dict) or one.keys() != other.keys():
            return "its keys"
        pairs: Any = [(key, one[key], other[key]) for key in one]
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            return "its length"
        pairs = [(number, a, b) for number, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        try:
            equal = np.array_equal(one, other, equal_nan=True)
        except TypeError:
            equal = np.array_equal(one, other)
        return None if equal else ""
    for name, a, b in pairs:
        where = difference(a, b)
        if where is not None:
            return f"{name}{f'.{where}' if where else ''}"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    return type(value).__name__
