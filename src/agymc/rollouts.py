"""Whole episodes out of partial batches."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agymc.errors import ConfigurationError, EnvError, WorkerDiedError
from agymc.spaces import Layout
from agymc.types import AutoresetMode, Batch

__all__ = ["Episode", "Policy", "rollout"]

Policy: TypeAlias = Callable[[Any], Any]
"""observation -> action, or a batch of observations -> a batch of actions; may be a coroutine
function."""


@dataclass(slots=True)
class Episode:
    """One episode of one env.

    Attributes:
        number: Its number among the episodes of the rollout, from 0, in the order of beginning.
        env_id: The env that played it.
        observations: The n + 1 observations, the initial one first.
        actions: The n actions.
        rewards: (n,) float64, or (n, r) for vector rewards.
        terminated: Whether the env ended it.
        truncated: Whether it was cut short.
        error: What ended it where the env did not, with ``errors="keep"``; else None. There is an
            action more than rewards then, if it failed in a step.
    """

    number: int
    env_id: int
    observations: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    terminated: bool = False
    truncated: bool = False
    error: EnvError | None = None

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.rewards)


class _Envs(Protocol):
    """What a rollout needs of the asyncio door."""

    num_envs: int
    autoreset_mode: AutoresetMode
    single_observation_space: Any

    @property
    def in_flight(self) -> int: ...
    def send(self, actions: Any, env_ids: Any = None) -> None: ...
    def send_reset(self, seed: Any = None, options: Any = None, env_ids: Any = None) -> None: ...
    async def recv(self, min_ready: int | None = None) -> Batch: ...
    async def start_over(self) -> None: ...


async def rollout(
    envs: _Envs,
    policy: Policy,
    episodes: int,
    *,
    ordered: bool,
    batched: bool,
    min_ready: int,
    seed: int | None,
    errors: str,
) -> AsyncIterator[Episode]:
    """See `AioVectorEnv.rollout`."""
    if envs.autoreset_mode is AutoresetMode.SAME_STEP:
        raise ConfigurationError(
            "expected autoreset_mode NEXT_STEP or DISABLED for a rollout, got SAME_STEP, which "
            "begins episodes by itself"
        )
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        raise ConfigurationError(f"expected episodes to be a positive integer, got {episodes!r}")
    if errors not in ("raise", "keep"):
        raise ConfigurationError(f"expected errors to be 'raise' or 'keep', got {errors!r}")
    await envs.start_over()
    run = _Rollout(envs, policy, episodes, batched, min_ready, seed, keep=errors == "keep")
    held: dict[int, Episode] = {}
    next_number = 0
    try:
        async for episode in run.episodes():
            if not ordered:
                yield episode
                continue
            held[episode.number] = episode
            while next_number in held:
                yield held.pop(next_number)
                next_number += 1
    finally:
        await run.stop()


class _Rollout:
    """One rollout: the episodes being played, and what is being waited for.

    Two sorts of things are awaited at the same time: results of envs (one task, `recv`) and
    policies that are coroutines (a task each).
    """

    def __init__(
        self,
        envs: _Envs,
        policy: Policy,
        episodes: int,
        batched: bool,
        min_ready: int,
        seed: int | None,
        *,
        keep: bool,
    ) -> None:
        self._envs = envs
        self._keep = keep
        self._policy = policy
        self._left = episodes
        self._begun = 0
        self._batched = batched
        self._min_ready = min_ready if batched else 1
        self._seed = seed
        self._playing: dict[int, Episode] = {}
        self._rewards: dict[int, list[Any]] = {}
        self._layout = Layout(envs.single_observation_space)
        self._receiving: asyncio.Task[Batch] | None = None
        self._thinking: dict[asyncio.Task[Any], list[int]] = {}

    async def episodes(self) -> AsyncIterator[Episode]:
        for episode in self._begin(list(range(min(self._left, self._envs.num_envs)))):
            yield episode
        while self._playing:
            if self._receiving is None and self._envs.in_flight:
                self._receiving = asyncio.ensure_future(self._envs.recv(self._min_ready))
            waiting: set[asyncio.Task[Any]] = set(self._thinking)
            if self._receiving is not None:
                waiting.add(self._receiving)
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task is self._receiving:
                    self._receiving = None
                    try:
                        batch = task.result()
                    except EnvError as error:
                        ended = self._fail(error)
                    else:
                        ended = self._take(batch)
                else:
                    ended = self._act(self._thinking.pop(task), task.result())
                for episode in ended:
                    yield episode

    def _begin(self, env_ids: list[int]) -> list[Episode]:
        """Begin an episode in each of these envs, as far as any are left to begin.

        Gives those that have ended already, as their env is gone.
        """
        del env_ids[self._left :]
        if not env_ids:
            return []
        numbers = range(self._begun, self._begun + len(env_ids))
        seeds = None if self._seed is None else [self._seed + number for number in numbers]
        try:
            self._envs.send_reset(seed=seeds, env_ids=env_ids)
        except WorkerDiedError as error:
            return self._fail(error, env_ids)
        self._begun += len(env_ids)
        self._left -= len(env_ids)
        for number, index in zip(numbers, env_ids, strict=True):
            self._playing[index] = Episode(number, index)
            self._rewards[index] = []
        return []

    def _fail(self, error: EnvError, idle: Sequence[int] = ()) -> list[Episode]:
        """End the episodes of the envs that failed; ``idle`` ones wait for their next.

        Raises:
            EnvError: Errors are not to be kept, or no env is left.
        """
        if not self._keep:
            raise error
        ended: list[Episode] = []
        again = list(idle)
        for one in (error, *error.others):
            for index in one.env_ids:
                episode = self._playing.pop(index, None)
                if episode is not None:
                    episode.error = one
                    episode.rewards = np.array(self._rewards.pop(index), np.float64)
                    ended.append(episode)
                if isinstance(one, WorkerDiedError):
                    again = [other for other in again if other != index]
                elif episode is not None:
                    again.append(index)
        ended += self._begin(again)
        if self._left and not self._playing:
            raise error
        return ended

    def _take(self, batch: Batch) -> list[Episode]:
        """Note the results of a batch, have the policy answer them; gives the episodes that end."""
        ended: list[Episode] = []
        thinking: list[int] = []
        rows: list[int] = []
        observations = self._elements(batch)
        for row, index in enumerate(batch.env_ids.tolist()):
            episode = self._playing[index]
            episode.observations.append(observations[row])
            if len(episode.observations) > 1:
                self._rewards[index].append(batch.rewards[row])
            if batch.terminations[row] or batch.truncations[row]:
                episode.terminated = bool(batch.terminations[row])
                episode.truncated = bool(batch.truncations[row])
                episode.rewards = np.array(self._rewards.pop(index), np.float64)
                ended.append(self._playing.pop(index))
            else:
                thinking.append(index)
                rows.append(row)
        ended += self._begin([episode.env_id for episode in ended])
        if self._batched:
            if thinking:
                ended += self._ask(thinking, _rows(batch.observations, rows))
        else:
            for row, index in zip(rows, thinking, strict=True):
                ended += self._ask([index], observations[row])
        return ended

    def _elements(self, batch: Batch) -> list[Any]:
        columns = self._layout.columns_of(batch.observations)
        return self._layout.elements(columns)

    def _ask(self, env_ids: list[int], observation: Any) -> list[Episode]:
        answer = self._policy(observation)
        if not inspect.isawaitable(answer):
            return self._act(env_ids, answer)
        self._thinking[asyncio.ensure_future(answer)] = env_ids
        return []

    def _act(self, env_ids: list[int], answer: Any) -> list[Episode]:
        """Send actions to envs; gives the episodes that end by it, as their env is gone."""
        actions = answer if self._batched else [answer]
        parts = _split(actions, len(env_ids))
        try:
            self._envs.send(actions, env_ids)
        except WorkerDiedError as error:
            ended = self._fail(error)
            left = [row for row, index in enumerate(env_ids) if index not in error.env_ids]
            if left:
                some = _rows(actions, left) if self._batched else actions
                ended += self._act([env_ids[row] for row in left], some)
            return ended
        for index, action in zip(env_ids, parts, strict=True):
            self._playing[index].actions.append(action)
        return []

    async def stop(self) -> None:
        """End the tasks that are still waiting; what was sent stays receivable."""
        tasks: list[asyncio.Task[Any]] = [*self._thinking]
        if self._receiving is not None:
            tasks.append(self._receiving)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # looked at, so that nobody is told that it never was


def _rows(batch: Any, rows: list[int]) -> Any:
    """Some rows of a batched element."""
    if isinstance(batch, dict):
        return {key: _rows(part, rows) for key, part in batch.items()}
    if isinstance(batch, np.ndarray):
        return batch[rows]
    if isinstance(batch, tuple) and all(isinstance(p, dict | tuple | np.ndarray) for p in batch):
        return tuple(_rows(part, rows) for part in batch)
    return tuple(batch[row] for row in rows)


def _split(actions: Any, count: int) -> list[Any]:
    """The single actions of a batch."""
    if isinstance(actions, dict):
        parts = {key: _split(part, count) for key, part in actions.items()}
        return [{key: part[i] for key, part in parts.items()} for i in range(count)]
    if isinstance(actions, tuple) and len(actions) != count:
        columns = [_split(part, count) for part in actions]
        return [tuple(column[i] for column in columns) for i in range(count)]
    return list(actions)
