"""The vector door: Gymnasium's `VectorEnv`, and partial batches."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agymc.arguments import (
    check_call_name,
    check_env_ids,
    check_ready_counts,
    spread_reset,
    spread_values,
)
from agymc.batching import ObservationMode, check_observation_mode
from agymc.checkpoints import Checkpoint, Snapshot, restore, take_snapshots, write_checkpoint
from agymc.choosing import Choice
from agymc.commands import Command
from agymc.engines import EngineOptions, set_limits, start_pool
from agymc.errors import BatchLengthError, BusyError, NothingInFlightError, RecvTimeoutError
from agymc.infos import merge
from agymc.pool import CLOSE_TIMEOUT, IdArray
from agymc.statistics import Statistics
from agymc.types import Batch, EnvFn

__all__ = ["VectorEnv"]

_ARGUMENTS = "observation_mode", "copy", "check_actions"
_SPACES = "observation_space", "single_observation_space", "action_space", "single_action_space"

_Transitions = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class VectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Many environments behind Gymnasium's vector API, on any engine. Made by `agymc.make_vec`.

    Everything that `gymnasium.vector.VectorEnv` defines works as Gymnasium documents it. Beyond
    that there are split calls (`step_async`, `step_wait`, ...) and partial batches (`send`, `recv`,
    `send_reset`, `batches`). Both ways can be mixed as long as no env is asked for a second
    operation before the result of its first was received.

    Use it from one thread at a time, in the process that made it.

    Args:
        env_fns: One function per env; each is called once, where its env will live.
        options: The engine and what belongs to it.
        observation_mode: "same", "different", or (observation_space, single_observation_space).
        copy: False hands out the buffers themselves as observations. They are valid until the next
            `step`, `reset` or `send` of the envs concerned, whose results overwrite them.
        check_actions: False lets actions outside of their space through to the envs; shapes and
            dtypes are checked in any case.

    Attributes:
        engine: The engine's name.
        choice: Why that engine was chosen, where ``engine="auto"`` did; else None.
        num_envs: The number of envs.
        single_observation_space: The space of one env's observations.
        observation_space: The space of a batch of them.
        single_action_space: The space of one env's actions.
        action_space: The space of a batch of them.
        metadata: Of the first env, with the key "autoreset_mode".
        render_mode: Of the first env.
        spec: The spec, for envs made from an id.

    Raises:
        EnvError: An env function raised; everything that was built is closed.
        SpaceMismatchError: The spaces of the envs don't fit one batch.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        options: EngineOptions,
        *,
        observation_mode: ObservationMode = "same",
        copy: bool = True,
        check_actions: bool = True,
    ) -> None:
        check_observation_mode(observation_mode)
        self._env_fns = env_fns
        self._options = options
        self.num_envs = len(env_fns)
        self.engine = options.engine
        self.choice: Choice | None = None
        self.copy = copy
        self.check_actions = check_actions
        self.observation_mode = observation_mode
        self.autoreset_mode = options.autoreset_mode
        self._resetting: IdArray | None = None
        self._waiting_for: str | None = None  # the split call whose `_wait` comes next
        self._pool = start_pool(options, self.num_envs)
        spaces = self._pool.build(env_fns, observation_mode, type(self).__name__)
        self.single_observation_space = spaces.single_observation_space
        self.observation_space = spaces.observation_space
        self.single_action_space = spaces.single_action_space
        self.action_space = spaces.action_space
        self.metadata = {**spaces.metadata, "autoreset_mode": options.autoreset_mode}
        self.render_mode = spaces.render_mode
        self._buffers = self._pool.buffers

    @property
    def num_workers(self) -> int:
        """How many worker processes there are; 0 where all envs live in this one."""
        return sum(worker.in_process_of_its_own for worker in self._pool.workers)

    # ------------------------------------------------------------------ whole batches

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all envs, or those of ``options["reset_mask"]``.

        A reset of all envs starts over: what was sent before is waited for, for 5 seconds at the
        most, and dropped.

        Args:
            seed: None, an integer s (env i gets s + i), or one seed or None per env.
            options: Given to every env, without the key "reset_mask": a (num_envs,) bool array of
                the envs to reset. The dict is not modified.

        Returns:
            The observations of all envs (for those not reset, their last), and the infos of those
            that were reset.

        Raises:
            EnvError: An env raised. The other results can be received with `recv`.
            BusyError: Something is in flight: with a mask, or longer than 5 seconds.
        """
        before = self._waiting_for
        try:
            self.reset_async(seed=seed, options=options)
            return self.reset_wait()
        except BaseException:
            self._waiting_for = before  # nobody who was interrupted here will call `reset_wait`
            raise

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Begin a `reset`; `reset_wait` must follow.

        Raises:
            BusyError: See `reset`.
        """
        self._check_not_waiting("reset")
        seeds, options, env_ids = spread_reset(seed, options, self.num_envs)
        if env_ids is None:
            self._pool.start_over()
        self._pool.submit_resets(seeds, options, env_ids, alone=True)
        self._waiting_for = "reset"
        self._resetting = env_ids

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """The result of the reset that `reset_async` began.

        Args:
            timeout: Seconds for the call; None for no limit.

        Raises:
            NothingInFlightError: There was no `reset_async`.
            RecvTimeoutError: The time is over. The reset goes on; call again.
        """
        self._receive_all("reset", timeout, self._resetting)
        # Rows of envs that were not reset are as they were: their results, received or not, stand.
        infos = merge(self._last_infos, self.num_envs) if self._last_infos else {}
        return self._observations(), infos

    def step(self, actions: Any) -> _Transitions:
        """Step all envs; those whose episode is over are reset as the autoreset mode says.

        Args:
            actions: A batch of ``num_envs`` actions: an element of `action_space`, or anything that
                numpy converts into one without loss, or a list of single actions.

        Returns:
            observations; rewards (num_envs,) float64; terminations and truncations (num_envs,)
            bool; infos.

        Raises:
            ActionError: An action is not in its space. No env has seen any.
            EnvError: An env raised. The results of the others can be received with `recv`, and
                the env that raised must be reset before its next step.
            ResetNeededError: See there. No env was stepped.
        """
        before = self._waiting_for
        try:
            self.step_async(actions)
            return self.step_wait()
        except BaseException:
            self._waiting_for = before  # see `reset`
            raise

    def step_async(self, actions: Any) -> None:
        """Begin a `step`; `step_wait` must follow."""
        if self._waiting_for is not None:
            self._check_not_waiting("step")
        self._pool.submit_steps(actions, check=self.check_actions)
        self._waiting_for = "step"

    def step_wait(self, timeout: float | None = None) -> _Transitions:
        """The result of the step that `step_async` began.

        Args:
            timeout: Seconds for the call; None for no limit.

        Raises:
            NothingInFlightError: There was no `step_async`.
            RecvTimeoutError: The time is over. The step goes on; call again.
        """
        self._receive_all("step", timeout)
        buffers = self._buffers
        return (
            self._observations(),
            buffers.rewards.copy(),
            buffers.terminations.copy(),
            buffers.truncations.copy(),
            merge(self._last_infos, self.num_envs) if self._last_infos else {},
        )

    def _observations(self) -> Any:
        buffers = self._buffers
        return buffers.observation_layout.batch(buffers.observations, copy=self.copy)

    def _receive_all(
        self, operation: str, timeout: float | None, only: IdArray | None = None
    ) -> None:
        if self._waiting_for != operation:
            self._pool.check_open()
            raise NothingInFlightError(
                f"Calling `{operation}_wait` without any prior call to `{operation}_async`.",
                operation,
            )
        try:
            env_ids = self._pool.receive_all(timeout, only)
        except RecvTimeoutError:
            raise
        except BaseException:
            self._waiting_for = None
            raise
        self._waiting_for = None
        infos = self._pool.ledger.take_infos(env_ids)
        if env_ids is not None:
            infos = [(int(env_ids[row]), info) for row, info in infos]
        self._last_infos = infos

    def _check_not_waiting(self, operation: str) -> None:
        self._pool.check_open()
        if self._waiting_for is not None:
            split = f"{operation}_async" if operation in ("reset", "step", "call") else operation
            raise BusyError(
                f"Calling `{split}` while waiting for a pending call to "
                f"`{self._waiting_for}` to complete: expected `{self._waiting_for}_wait` first",
                self._waiting_for,
            )

    # ------------------------------------------------------------------ partial batches

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Begin a step of some envs.

        Args:
            actions: A batch of k actions.
            env_ids: The k different envs that they are for; None for all.

        Raises:
            BusyError: One of these envs has an operation in flight or a result not yet received.
            ActionError: An action is not in its space. No env has seen any.
        """
        self._check_not_waiting("send")
        ids = check_env_ids(env_ids, self.num_envs)
        self._pool.submit_steps(actions, ids, check=self.check_actions)

    def send_reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Any = None,
    ) -> None:
        """Begin a reset of some envs; their initial observations come through `recv`.

        Args:
            seed: None, an integer s (env i gets s + i, as in `reset`), or one per env in
                ``env_ids``.
            options: Given to each env.
            env_ids: The envs; None for all.
        """
        self._check_not_waiting("send_reset")
        ids = check_env_ids(env_ids, self.num_envs)
        seeds, options, ids = spread_reset(seed, options, self.num_envs, ids)
        self._pool.submit_resets(seeds, options, ids)

    def recv(
        self,
        min_ready: int | None = None,
        max_ready: int | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Wait for results of what was sent, and receive them.

        Args:
            min_ready: Wait for at least so many. None: for all that is in flight; more than are in
                flight counts as all.
            max_ready: Receive at most so many. None: all that are ready.
            timeout: Seconds for the whole call. None: no limit. ``min_ready=1, timeout=0`` is for
                what is ready now.

        Returns:
            The batch, its rows in the order of ``batch.env_ids``.

        Raises:
            NothingInFlightError: Nothing was sent, or everything was received.
            RecvTimeoutError: Fewer than ``min_ready`` were ready in time. They stay receivable.
            EnvError: An env raised. The other results stay receivable.
        """
        self._check_not_waiting("recv")
        check_ready_counts(min_ready, max_ready)
        if min_ready is None:
            min_ready = max_ready
        return self._pool.batch(self._pool.receive(min_ready, max_ready, timeout), self.send)

    def batches(
        self,
        min_ready: int | None = None,
        max_ready: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[Batch]:
        """Receive batches as long as something is in flight.

        Each batch's envs are idle until the loop's body sends them on::

            envs.send_reset(seed=0)
            for batch in envs.batches(min_ready=16):
                envs.send(policy(batch.observations), batch.env_ids)

        Args:
            min_ready: As in `recv`.
            max_ready: As in `recv`.
            timeout: As in `recv`, for each batch.
        """
        while self._pool.in_flight:
            yield self.recv(min_ready, max_ready, timeout)

    # ------------------------------------------------------------------ everything else

    def call(self, name: str, /, *args: Any, env_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each env, concurrently; an attribute that can't be called is read.

        Args:
            name: Its name; wrappers are looked through.
            *args: For each call.
            env_ids: The envs; None for all.
            **kwargs: For each call.

        Returns:
            One result per env.
        """
        self._begin_call(name, args, kwargs, check_env_ids(env_ids, self.num_envs))
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begin a `call` of all envs; `call_wait` must follow."""
        self._begin_call(name, args, kwargs, None)

    def _begin_call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: IdArray | None
    ) -> None:
        self._check_not_waiting("call")
        check_call_name(name)
        ids = np.arange(self.num_envs) if env_ids is None else env_ids
        if name == "render" and not args and not kwargs:
            self._pool.submit(Command.RENDER, env_ids, [None] * len(ids))
        else:
            payload = (name, args, kwargs)
            self._pool.submit(Command.CALL, env_ids, [payload] * len(ids))
        self._waiting_for = "call"
        self._called = ids

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """The results of the call that `call_async` began, one per env.

        Args:
            timeout: Seconds for the call; None for no limit.

        Raises:
            NothingInFlightError: There was no `call_async`.
            RecvTimeoutError: The time is over. The calls go on; call again.
        """
        self._pool.check_open()
        if self._waiting_for != "call":
            raise NothingInFlightError(
                "Calling `call_wait` without any prior call to `call_async`.", "call"
            )
        try:
            self._pool.receive_requests(timeout)
        except RecvTimeoutError:
            raise
        except BaseException:
            self._waiting_for = None
            raise
        self._waiting_for = None
        return tuple(reply.value for reply in self._pool.ledger.take_replies(self._called))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each env; wrappers are looked through."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each env.

        Args:
            name: Its name; set on the outermost wrapper that has it.
            values: A list or tuple of one value per env, or one value for all.
        """
        self._check_not_waiting("set_attr")
        parts = spread_values(values, self.num_envs)
        self._pool.request(Command.SET, None, [(name, value) for value in parts])

    def render(self) -> tuple[Any, ...]:
        """What each env's `render` gives: in mode "rgb_array" a frame (height, width, 3) uint8."""
        return self.call("render")

    def set_limits(
        self, *, max_in_flight: int | None = None, max_constructing: int | None = None
    ) -> None:
        """Change how many coroutines run at the same time, at the most; None for no limit.

        What runs already goes on; the new limits decide what begins next.

        Raises:
            ConfigurationError: The engine is not one of coroutines, or a limit is less than the
                number of workers.
        """
        set_limits(self._pool, max_in_flight, max_constructing)

    def statistics(self) -> Statistics:
        """What has happened so far, per env and in all."""
        self._pool.check_open()
        return self._pool.statistics()

    def snapshot(self, env_ids: Any = None) -> list[Snapshot]:
        """The state of each env, its random generators and episode included.

        Args:
            env_ids: The envs; None for all.

        Returns:
            One per env. They can be pickled, and restored into any env of the same kind.

        Raises:
            SnapshotError: An env can't be copied; it says what in it can't.
        """
        self._check_not_waiting("snapshot")
        return take_snapshots(self._pool, check_env_ids(env_ids, self.num_envs))

    def restore(self, snapshots: Sequence[Snapshot], env_ids: Any = None) -> None:
        """Put envs into states that `snapshot` gave; what follows is as it was from there.

        Args:
            snapshots: One per env.
            env_ids: The envs; None for all.
        """
        self._check_not_waiting("restore")
        ids = check_env_ids(env_ids, self.num_envs)
        count = self.num_envs if ids is None else len(ids)
        if len(snapshots) != count:
            raise BatchLengthError(f"expected {count} snapshots, one per env, got {len(snapshots)}")
        restore(self._pool, snapshots, ids)

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write all envs, their random generators and the state of their episodes to a file.

        `agymc.restore_checkpoint` makes the same envs from it, in another process or on another
        engine; what follows is as if nothing had been interrupted. The file is replaced as a whole,
        so that an interruption leaves the old one.

        Args:
            path: Where to.

        Raises:
            SnapshotError: An env can't be copied; it says what in it can't.
            BusyError: Something is in flight or was not received.
            PickleError: An env function can't be pickled.
            OSError: The file can't be written.
        """
        self._check_not_waiting("checkpoint")
        arguments = {name: getattr(self, name) for name in _ARGUMENTS}
        snapshots = take_snapshots(self._pool, None)
        spaces = {name: getattr(self, name) for name in _SPACES}
        write_checkpoint(
            path,
            Checkpoint(self._env_fns, self._options, arguments, self.spec, snapshots, spaces),
        )

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, options: EngineOptions) -> VectorEnv:
        """The envs of a checkpoint, where they were; see `agymc.restore_checkpoint`."""
        envs = cls(checkpoint.env_fns, options, **checkpoint.arguments)
        try:
            restore(envs._pool, checkpoint.snapshots, None)
        except BaseException:
            envs.close()
            raise
        envs.spec = checkpoint.spec
        for name, space in checkpoint.spaces.items():
            setattr(envs, name, space)
        return envs

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seed of each env's random generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generator of each env; copies, where envs live in other processes."""
        return self.get_attr("np_random")

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close all envs. Call `close`, which is idempotent, with these arguments.

        Args:
            timeout: Seconds for the envs to close, 5 by default; then worker processes are killed
                and threads abandoned.
            terminate: True is a timeout of 0.
        """
        pool = getattr(self, "_pool", None)
        if pool is None:
            return
        waiting_for, self._waiting_for = self._waiting_for, None
        pool.close(0.0 if terminate else CLOSE_TIMEOUT if timeout is None else timeout)
        if waiting_for is not None:  # last, for it may be an error
            warnings.warn(
                f"Calling `close` while waiting for a pending call to `{waiting_for}` to complete.",
                stacklevel=3,
            )

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
