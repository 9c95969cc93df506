"""Playing without agymc: what one would write first."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array

from agymc.cli._interrupts import Interrupts
from agymc.cli._job import Job
from agymc.cli._policy import split
from agymc.cli._progress import Display
from agymc.cli._tally import Part
from agymc.errors import AgymcError, EnvError

__all__ = ["play_in_plain_loop"]

_MAKING_SECONDS = 10.0
_PLAYING_SECONDS = 20.0


def play_in_plain_loop(
    job: Job, part: Part, seconds: float, interrupts: Interrupts, display: Display
) -> None:
    """Play as many of the episodes as there is time for, in a loop over the envs at each step.

    Args:
        job: What to play.
        part: Filled in, also when something is raised.
        seconds: How long to play; 20 at the most.
        interrupts: Where KeyboardInterrupt comes from.
        display: The progress bar.

    Raises:
        EnvError: An env raised.
        PolicyError: The policy raised.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    loop = _Loop(job, part, min(seconds, _PLAYING_SECONDS), interrupts, display)
    with part.measured() as watch:
        try:
            display.begin("Making envs of the plain loop")
            with interrupts.allowed():
                loop.make()
                part.making = watch.wall
                display.begin("Plain loop")
                try:
                    loop.play()
                finally:
                    part.playing = watch.wall - part.making
        except AgymcError:
            raise
        except Exception as error:
            raise EnvError(
                f"env {loop.env_id} raised {type(error).__name__} in {loop.doing} of the plain "
                f"loop: {error} (seed {job.seed + loop.env_id})",
                env_ids=[loop.env_id],
                operation=loop.doing,
                seed=job.seed + loop.env_id,
            ) from error
        finally:
            with interrupts.closing():
                loop.close()


class _Loop:
    """The envs of the plain loop.

    Attributes:
        env_id: The env that was called last.
        doing: Which method of it was called.
    """

    def __init__(
        self, job: Job, part: Part, seconds: float, interrupts: Interrupts, display: Display
    ) -> None:
        self._job, self._part, self._seconds = job, part, seconds
        self._interrupts, self._display = interrupts, display
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self.env_id, self.doing = 0, "construction"

    def make(self) -> None:
        """Make as many envs as there is time for, one at least."""
        deadline = perf_counter() + _MAKING_SECONDS
        job = self._job
        for self.env_id in range(job.num_envs):
            self._envs.append(gymnasium.make(job.env_id, **job.env_kwargs))
            if perf_counter() >= deadline:
                break

    def play(self) -> None:
        """Play until all is played or the time is over."""
        job, envs, tally = self._job, self._envs, self._part.tally
        begun = perf_counter()
        deadline = begun + self._seconds
        policy = job.policy(envs[0].action_space, job.num_envs, job.seed)
        latest: list[Any] = []  # observations
        self.doing = "reset"
        for self.env_id, env in enumerate(envs):
            latest.append(env.reset(seed=job.seed + self.env_id)[0])
            if perf_counter() - begun > self._seconds / 3:  # most of the time is for steps
                break
        self._part.envs = len(latest)
        returns, lengths = [0.0] * len(latest), [0] * len(latest)
        active = list(range(len(latest)))
        while active:
            batch = [latest[i] for i in active] if policy.looks else []
            observations = _stack(envs[0].observation_space, batch) if batch else None
            actions = policy(observations, np.array(active), None)
            ended = False
            for i, action in zip(
                active, split(envs[0].action_space, actions, len(active)), strict=True
            ):
                self.env_id = i
                if job.render:
                    self.doing = "render"
                    envs[i].render()
                self.doing = "step"
                latest[i], reward, terminated, truncated, _ = envs[i].step(action)
                tally.steps += 1
                lengths[i] += 1
                returns[i] += _number(reward)
                if terminated or truncated:
                    ended = True
                    with self._interrupts.postponed():
                        tally.note_episodes([i], [returns[i]], [lengths[i]])
                    returns[i], lengths[i] = 0.0, 0
                    if tally.played[i] < job.episodes:
                        self.doing = "reset"
                        latest[i], _ = envs[i].reset()
                if perf_counter() >= deadline:
                    return
            if ended:
                active = [i for i in active if tally.played[i] < job.episodes]
            if self._display.due():
                self._show(perf_counter() - begun)

    def _show(self, seconds: float) -> None:
        tally = self._part.tally
        share = min(1.0, max(tally.finished / tally.total, seconds / self._seconds))
        left = seconds * (1 / share - 1)
        with self._interrupts.postponed():
            self._display.show(share, seconds, left, tally.finished, tally.steps)

    def close(self) -> None:
        """Close all envs."""
        while self._envs:
            try:
                self._envs.pop().close()
            except Exception as error:
                self._part.notes.append(
                    f"an env of the plain loop raised {type(error).__name__} in close: {error}"
                )


def _number(reward: Any) -> float:
    return reward if reward.__class__ is float else float(np.asarray(reward).sum())


def _stack(space: Space[Any], observations: list[Any]) -> Any:
    """A batch, as Gymnasium's vector envs make it."""
    room: Any = create_empty_array(space, len(observations))
    return concatenate(space, observations, room)
