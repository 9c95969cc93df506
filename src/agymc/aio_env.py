"""The asyncio door: many environments, awaited."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from agymc.arguments import check_call_name, check_env_ids, check_ready_counts, spread_reset
from agymc.batching import ObservationMode, check_observation_mode
from agymc.choosing import Choice
from agymc.commands import Command
from agymc.engines import EngineOptions, set_limits, start_pool
from agymc.errors import AgymcError, BusyError, ClosedError, ConfigurationError, EnvError
from agymc.infos import merge
from agymc.pool import CLOSE_TIMEOUT, IdArray, Pool
from agymc.rollouts import Episode, Policy, rollout
from agymc.statistics import Statistics
from agymc.types import Batch, EnvFn
from agymc.waiting import Plan, await_on, in_thread

__all__ = ["AioVectorEnv"]

T = TypeVar("T")


class AioVectorEnv:
    """Many environments for asyncio. Made by `agymc.make_async`.

    They are used with ``async with``::

        async with agymc.make_async("module:Env-v0", 1000) as envs:
            observations, infos = await envs.reset(seed=0)
            observations, rewards, terminations, truncations, infos = await envs.step(actions)

    Batches have the form that `agymc.VectorEnv` gives them. Envs whose methods are coroutines run
    in the caller's event loop; with thread and process engines ordinary envs run beside it. Nothing
    here blocks the loop, but for an ordinary env on the engine "asyncio" or "serial".

    Use it from the event loop that it was opened in. Several tasks may send; one at a time may wait
    for results.

    Cancelling a call ends the waiting, and nothing else: results of what was sent stay receivable.
    Leaving the ``async with`` closes every env, within a bounded time, also when a cancellation is
    why it is left.

    Args:
        env_fns: One function per env; each is called once, where its env will live.
        options: The engine and what belongs to it.
        observation_mode: As in `VectorEnv`.
        check_actions: As in `VectorEnv`.
        explain: Called with the error of a construction; may raise a better one.

    Attributes:
        num_envs: The number of envs.
        engine: The engine's name.
        choice: Why that engine was chosen, where ``engine="auto"`` did; else None.
        single_observation_space: The space of one env's observations; once open, as all that
            follow.
        observation_space: The space of a batch of them.
        single_action_space: The space of one env's actions.
        action_space: The space of a batch of them.
        metadata: Of the first env, with the key "autoreset_mode".
        render_mode: Of the first env.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        options: EngineOptions,
        *,
        observation_mode: ObservationMode = "same",
        check_actions: bool = True,
        explain: Callable[[EnvError], None] | None = None,
    ) -> None:
        check_observation_mode(observation_mode)
        self.num_envs = len(env_fns)
        self.engine = options.engine
        self.choice: Choice | None = None
        self.check_actions = check_actions
        self.observation_mode = observation_mode
        self.autoreset_mode = options.autoreset_mode
        self._options = options
        self._explain = explain
        self._env_fns = env_fns
        self._opened: Pool | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None
        self._waiting: str | None = None  # what somebody waits in
        self._awaited: asyncio.Future[bool] | None = None  # and for

    # ------------------------------------------------------------------ life

    async def __aenter__(self) -> AioVectorEnv:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Build the envs. ``async with`` does it.

        Raises:
            EnvError: An env function raised; its exception is the cause. Everything is closed.
            SpaceMismatchError: The spaces of the envs don't fit one batch.
        """
        if self._closed:
            raise ClosedError("expected environments that were not closed before")
        if self._opened is not None:
            raise BusyError("these environments are open already", "open")
        self._loop = asyncio.get_running_loop()
        self._opened = pool = start_pool(self._options, self.num_envs, self._loop)
        try:
            spaces = await self._carry_out(
                pool.plan_build(self._env_fns, self.observation_mode, "make_async"), "open"
            )
        except BaseException as error:
            await self.aclose()
            if isinstance(error, EnvError) and self._explain is not None:
                self._explain(error)
            raise
        self.single_observation_space = spaces.single_observation_space
        self.observation_space = spaces.observation_space
        self.single_action_space = spaces.single_action_space
        self.action_space = spaces.action_space
        self.metadata = {**spaces.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = spaces.render_mode

    async def aclose(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all envs. Idempotent, bounded in time, and not to be stopped by a cancellation.

        Whoever waits for results gets a `ClosedError`.

        Args:
            timeout: Seconds that the envs get; then tasks are cancelled, worker processes killed
                and threads abandoned.
        """
        here = asyncio.get_running_loop()
        if self._loop not in (None, here):
            if self._opened is not None and self._loop.is_running():
                raise self._wrong_loop()
            pool, self._opened, self._closed = self._opened, None, True
            if pool is not None:  # the loop of the envs has ended: do what can be done without it
                await in_thread(functools.partial(pool.close, timeout))
            return
        self._closed = True
        if self._opened is not None:
            pool, self._opened = self._opened, None
            self._closing = asyncio.ensure_future(self._close(pool, timeout))
        if self._closing is not None:
            await _see_through(self._closing)

    async def _close(self, pool: Pool, timeout: float) -> None:
        while self._waiting is not None:
            if self._awaited is not None and not self._awaited.done():
                self._awaited.set_exception(
                    ClosedError(f"these environments were closed during {self._waiting!r}")
                )
            await asyncio.sleep(0)
        await pool.aclose(timeout)

    @property
    def _pool(self) -> Pool:
        if self._opened is None:
            what = "were closed" if self._closed else "are not open yet: use `async with`"
            raise ClosedError(f"expected open environments, these {what}")
        if asyncio._get_running_loop() is not self._loop:
            raise self._wrong_loop()
        return self._opened

    def _wrong_loop(self) -> AgymcError:
        assert self._loop is not None
        if self._loop.is_closed():
            return ClosedError(
                "expected open environments, the event loop that these were opened in has ended"
            )
        return ConfigurationError(
            "expected to be called in the event loop that these environments were opened in"
        )

    def _check_not_waiting(self, name: str) -> None:
        if self._waiting is not None:
            raise BusyError(
                f"can't {name}: another task is waiting in {self._waiting!r} of these environments",
                self._waiting,
            )

    async def _carry_out(self, plan: Plan[T], name: str) -> T:
        self._check_not_waiting(name)
        self._waiting = name
        try:
            return await await_on(plan, self._watch)
        finally:
            self._waiting = self._awaited = None

    def _watch(self, future: asyncio.Future[bool]) -> None:
        self._awaited = future

    async def _begin(self, name: str) -> Pool:
        """The pool, once an operation of all envs can begin."""
        pool = self._pool
        self._check_not_waiting(name)
        if pool.ledger.unwanted:
            await self._carry_out(pool.plan_settle(None), name)
        return pool

    # ------------------------------------------------------------------ whole batches

    async def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all envs, or those of ``options["reset_mask"]``; see `VectorEnv.reset`."""
        pool = await self._begin("reset")
        seeds, options, env_ids = spread_reset(seed, options, self.num_envs)
        if env_ids is None:
            await self._carry_out(pool.plan_start_over(), "reset")
        pool.submit_resets(seeds, options, env_ids, alone=True)
        infos = await self._receive_all(pool, "reset", env_ids)
        return pool.buffers.observation_layout.batch(pool.buffers.observations), infos

    async def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all envs; see `VectorEnv.step`."""
        pool = await self._begin("step")
        pool.submit_steps(actions, check=self.check_actions)
        infos = await self._receive_all(pool, "step")
        buffers = pool.buffers
        return (
            buffers.observation_layout.batch(buffers.observations),
            buffers.rewards.copy(),
            buffers.terminations.copy(),
            buffers.truncations.copy(),
            infos,
        )

    async def _receive_all(
        self, pool: Pool, name: str, only: IdArray | None = None
    ) -> dict[str, Any]:
        env_ids = await self._carry_out(pool.plan_receive_all(None, only), name)
        infos = pool.ledger.take_infos(env_ids)
        if env_ids is not None:
            infos = [(int(env_ids[row]), info) for row, info in infos]
        return merge(infos, self.num_envs)

    # ------------------------------------------------------------------ partial batches

    @property
    def in_flight(self) -> int:
        """How many results were sent for and not received."""
        return self._pool.in_flight

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Begin a step of some envs; see `VectorEnv.send`. Does not wait."""
        ids = check_env_ids(env_ids, self.num_envs)
        self._pool.submit_steps(actions, ids, check=self.check_actions)

    def send_reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Any = None,
    ) -> None:
        """Begin a reset of some envs; see `VectorEnv.send_reset`. Does not wait."""
        ids = check_env_ids(env_ids, self.num_envs)
        seeds, options, ids = spread_reset(seed, options, self.num_envs, ids)
        self._pool.submit_resets(seeds, options, ids)

    async def recv(
        self,
        min_ready: int | None = None,
        max_ready: int | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Await results of what was sent, and receive them; see `VectorEnv.recv`."""
        pool = self._pool
        check_ready_counts(min_ready, max_ready)
        if min_ready is None:
            min_ready = max_ready
        env_ids = await self._carry_out(pool.plan_receive(min_ready, max_ready, timeout), "recv")
        return pool.batch(env_ids, self.send)

    async def batches(
        self,
        min_ready: int | None = None,
        max_ready: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Batch]:
        """Receive batches as long as something is in flight.

        Each batch's envs are idle until they are sent on::

            envs.send_reset(seed=0)
            async for batch in envs.batches(min_ready=32):
                batch.reply(policy(batch.observations))

        Args:
            min_ready: As in `recv`.
            max_ready: As in `recv`.
            timeout: As in `recv`, for each batch.
        """
        while self._pool.in_flight:
            yield await self.recv(min_ready, max_ready, timeout)

    def rollout(
        self,
        policy: Policy,
        episodes: int,
        *,
        ordered: bool = False,
        batched: bool = False,
        min_ready: int = 1,
        seed: int | None = None,
        errors: Literal["raise", "keep"] = "raise",
    ) -> AsyncIterator[Episode]:
        """Play whole episodes.

        ::

            async for episode in envs.rollout(policy, episodes=100):
                ...

        Exactly ``episodes`` episodes are begun, each as soon as an env is free, and all of them are
        given: short ones are not preferred. What was in flight before is waited for and dropped, as
        by `reset`; so is what a rollout that was broken off has left.

        Args:
            policy: ``observation -> action``, or with ``batched`` a batch of k observations -> k
                actions. A coroutine function is awaited, for all envs at once.
            episodes: How many.
            ordered: Give them in the order in which they were begun, instead of that in which they
                end.
            batched: Whether the policy takes batches.
            min_ready: With ``batched``: the least envs per batch, where so many are playing.
            seed: Seeds episode i with ``seed + i``; None for unseeded resets.
            errors: "keep": an env that raises ends its episode, which has the error as its
                ``error``, and goes on with the next. An env whose worker died plays no more.

        Raises:
            ConfigurationError: The autoreset mode is SAME_STEP, which begins episodes by itself.
            EnvError: An env raised, and errors are not kept; or there is no env left.
        """
        return rollout(
            self,
            policy,
            episodes,
            ordered=ordered,
            batched=batched,
            min_ready=min_ready,
            seed=seed,
            errors=errors,
        )

    async def start_over(self) -> None:
        """Wait for what is in flight, and drop all that was not received.

        Raises:
            BusyError: It takes longer than 5 seconds. Nothing is dropped.
        """
        pool = await self._begin("start over")
        await self._carry_out(pool.plan_start_over(), "start_over")

    # ------------------------------------------------------------------ everything else

    def statistics(self) -> Statistics:
        """What has happened so far, per env and in all."""
        return self._pool.statistics()

    def set_limits(
        self, *, max_in_flight: int | None = None, max_constructing: int | None = None
    ) -> None:
        """Change how many coroutines run at the same time; see `VectorEnv.set_limits`."""
        set_limits(self._pool, max_in_flight, max_constructing)

    async def call(
        self, name: str, /, *args: Any, env_ids: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method of each env, concurrently; one result per env. See `VectorEnv.call`."""
        check_call_name(name)
        return await self._request(Command.CALL, (name, args, kwargs), env_ids)

    async def render(self) -> tuple[Any, ...]:
        """What each env's `render` gives."""
        return await self._request(Command.RENDER, None, None)

    async def _request(self, command: Command, payload: Any, env_ids: Any) -> tuple[Any, ...]:
        ids = check_env_ids(env_ids, self.num_envs)
        count = self.num_envs if ids is None else len(ids)
        plan = self._pool.plan_request(command, ids, [payload] * count)
        return tuple(await self._carry_out(plan, command.name.lower()))

    def __repr__(self) -> str:
        return f"AioVectorEnv(num_envs={self.num_envs}, engine={self.engine!r})"


async def _see_through(task: asyncio.Future[None]) -> None:
    """Await to the end what must not be left half done, and then pass a cancellation on."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
