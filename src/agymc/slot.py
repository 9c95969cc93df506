"""A slot: one env and the state of its episode. The only autoreset code.

Sans-IO: a slot never calls its env. `begin` says which function is to be called with which payload,
`finish` takes what came back and says whether another call follows (in SAME_STEP, a reset after the
last step), so that a loop, a thread and a coroutine can drive the same slot::

    function = slot.begin(command, payload)
    while function is not None:
        function = slot.finish(function(payload))        # or: await function(payload)

What the env gave is in the slot's row of the buffers when the last `finish` has returned; what else
there is to say is in `reply`, which is None for an ordinary step. An exception of the env goes to
`fail`. One slot is driven by one runner, one operation at a time: nothing here is locked.

A slot is a small state machine. `step_call` is the function that a STEP begins with, `finish` the
method that takes its result:

=================  =====================  ========================================
state              step_call              finish
=================  =====================  ========================================
playing            env.step               `_finish_step`
over (NEXT_STEP)   `_autoreset`           `_finish_reset`
any other command  unchanged              that of the command, then back
=================  =====================  ========================================
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from operator import index
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv

from agymc.adapters.classic import adapt, is_coroutine_env
from agymc.adapters.lazy_pygame import (
    DrawingLock,
    drawing_lock_of,
    draws_in_steps,
    load_surfarray,
)
from agymc.buffers import Buffers
from agymc.commands import CLOSED, Command, EnvReport, Fault, Reply, Restart
from agymc.faults import Check
from agymc.snapshots import load_env, save_env
from agymc.spaces import Misfit, cast, checker_of, detach
from agymc.types import AutoresetMode, EnvFn, ResetSeed

__all__ = ["Slot"]

_Call = Callable[[Any], Any]
_FLAG = bool, int, float, np.generic, np.ndarray  # what counts as a bool
_STEP, _RESET, _BUILD = Command.STEP, Command.RESET, Command.BUILD


_REQUESTS = {
    Command.CALL: "_call",
    Command.GET: "_get",
    Command.SET: "_set",
    Command.RENDER: "_render",
    Command.SNAPSHOT: "_snapshot",
    Command.RESTORE: "_restore",
    Command.CLOSE: "_close",
}

_FINISHES = {Command.RENDER: "_finish_render", Command.CLOSE: "_finish_close"}


class Slot:
    """One env and the state of its episode.

    Args:
        index: The env's index in the pool.
        autoreset_mode: When an env whose episode is over is reset.
        reset_seed: Gives the seeds of autoresets, see `agymc.types.ResetSeed`.
        check: What observations must be, see `agymc.faults.Check`.

    Attributes:
        env: The env, once built.
        step_call: What a STEP begins with; `begin` returns it. Loops that make many steps read it
            themselves, which saves a call per step.
        finish: Takes the result of the call, returns the next call or None.
        reply: What there is to say beyond the buffers, or None. Whoever takes it sets it to None.
    """

    __slots__ = (
        "_autoreset_mode",
        "_buffers",
        "_check",
        "_checker",
        "_drawing",
        "_episode",
        "_final",
        "_held",
        "_interrupted",
        "_locks_steps",
        "_no_reward",
        "_observation_objects",
        "_operation",
        "_reset_seed",
        "_rewards",
        "_row",
        "_terminations",
        "_truncations",
        "_write",
        "env",
        "finish",
        "index",
        "reply",
        "step_call",
    )

    def __init__(
        self,
        index: int,
        autoreset_mode: AutoresetMode,
        reset_seed: ResetSeed | None = None,
        check: Check = "shape",
    ) -> None:
        self.index = index
        self.env: Any = None
        self.reply: Reply | None = None
        self.step_call: _Call = _not_built
        self.finish: Callable[[Any], _Call | None] = self._finish_step
        self._autoreset_mode = autoreset_mode
        self._reset_seed = reset_seed
        self._episode = -1  # the number of the running episode; the first reset begins number 0
        self._final: tuple[Any, dict[str, Any]] | None = None
        self._held: tuple[Any, dict[str, Any]] | None = None  # what the next autoreset gives
        self._operation = "step"
        self._check = check
        self._checker: Callable[[Any, Any], None] | None = None
        self._buffers: Buffers | None = None
        self._interrupted = False  # before there are buffers
        self._drawing: DrawingLock = contextlib.nullcontext()
        self._locks_steps = False

    def renewed(self) -> Slot:
        """A slot in its place, whose env is to be restarted."""
        slot = Slot(self.index, self._autoreset_mode, self._reset_seed, self._check)
        if self._buffers is not None:
            slot.attach(self._buffers, self._row)
        return slot

    @property
    def to_be_interrupted(self) -> bool:
        """Whether the env is wanted to stop what it is doing."""
        buffers = self._buffers
        if buffers is None:
            return self._interrupted
        return bool(buffers.interrupted[self._row] == buffers.requested[self._row])

    def want_interrupt(self) -> None:
        """Want the env to stop what it is doing."""
        buffers = self._buffers
        if buffers is None:
            self._interrupted = True
        else:
            buffers.interrupted[self._row] = buffers.requested[self._row]

    @property
    def reset_began(self) -> float:
        """When the env last began a reset."""
        return 0.0 if self._buffers is None else float(self._buffers.reset_began[self._row])

    @property
    def episode_seconds(self) -> float:
        """The env's own time in this episode, without the running operation."""
        buffers = self._buffers
        if buffers is None:
            return 0.0
        return float(buffers.env_seconds[self._row] - buffers.episode_base[self._row])

    @property
    def checks(self) -> bool:
        """Whether observations are checked beyond what writing them needs."""
        return self._check != "shape"

    def attach(self, buffers: Buffers, row: int) -> None:
        """Give the slot its row of the buffers; the env is built by then."""
        self._buffers = buffers
        self._row = row
        self._write = buffers.observation_layout.writer(buffers.observations, row)
        rewards = buffers.rewards
        self._rewards: Any = buffers.rewards_view if rewards.ndim == 1 else _VectorRewards(rewards)
        self._no_reward: Any = 0.0 if rewards.ndim == 1 else np.zeros(rewards.shape[1:])
        self._terminations = buffers.terminations_view
        self._truncations = buffers.truncations_view
        self._observation_objects = [
            buffers.observations[leaf] for leaf in buffers.observation_layout.object_leaves
        ]
        self._checker = checker_of(self._check, buffers.observation_layout)

    # ------------------------------------------------------------------ the protocol

    def begin(self, command: Command, payload: Any) -> _Call:
        """The first call of an operation."""
        if command is _STEP:
            return self.step_call
        self._operation = _operation_name(command, payload)
        if command is _RESET:
            self.finish = self._finish_reset
            return self._reset
        if command is _BUILD:
            self.finish = self._finish_build
            return self._build
        if command is Command.RESTART:
            self.finish = self._finish_leave
            return self._leave
        call: _Call = getattr(self, _REQUESTS[command])
        self.finish = getattr(self, _FINISHES.get(command, "_finish_value"))
        return call

    def fail(self, exception: BaseException) -> None:
        """The call raised: that is the slot's reply. The operation has ended."""
        operation = self._operation
        if operation == "step" and self.step_call == self._autoreset:
            operation = "autoreset"
        # A step whose autoreset failed has happened: its info is not to be lost.
        info = self._final[1] if self._final is not None and operation == "autoreset" else None
        data, late = isinstance(exception, Misfit), self.to_be_interrupted
        fault = Fault(exception, operation, data=data, late=late)
        self.reply = Reply(info, fault=fault)
        self._final = None
        self._idle()

    def _idle(self) -> None:
        self._operation = "step"
        over = self.step_call == self._autoreset
        self.finish = self._finish_reset if over else self._finish_step

    # ------------------------------------------------------------------ step and reset

    def _finish_step(self, result: Any) -> _Call | None:
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            raise Misfit(
                "expected step to return (observation, reward, terminated, truncated, info), "
                f"got {_shorten(result)}"
            ) from None
        if self._checker is not None:
            self._checker(observation, reward)
        self._write(observation)
        row = self._row
        try:
            self._rewards[row] = reward
            self._terminations[row] = terminated
            self._truncations[row] = truncated
        except (TypeError, ValueError) as error:
            raise self._misfit(reward, terminated, truncated, error) from None
        if terminated or truncated:
            if not (isinstance(terminated, _FLAG) and isinstance(truncated, _FLAG)):
                raise self._misfit(reward, terminated, truncated)
            if self._autoreset_mode is AutoresetMode.NEXT_STEP:
                self.step_call = self._autoreset
                self.finish = self._finish_reset
            elif self._autoreset_mode is AutoresetMode.SAME_STEP:
                _check_info(info)
                # The env may reuse its arrays in the reset: keep copies.
                self._final = detach(observation), detach(info)
                self.finish = self._finish_same_step
                self._operation = "autoreset"
                return self._autoreset
        if info or self._observation_objects:
            self._say(info)
        return None

    def _finish_reset(self, result: Any) -> None:
        """A reset that was asked for, or the one that NEXT_STEP makes in place of a step."""
        row = self._row
        info = self._finish_initial(result)
        self._rewards[row] = self._no_reward
        self._terminations[row] = False
        self._truncations[row] = False
        if info or self._observation_objects:
            self._say(info)

    def _finish_same_step(self, result: Any) -> None:
        """The reset after an episode's last step, whose reward and flags are in the row already."""
        assert self._final is not None
        observation, final_info = self._final
        info = self._finish_initial(result)
        self._final = None
        self._say({"final_obs": observation, "final_info": final_info, **info})

    def _finish_initial(self, result: Any) -> dict[str, Any]:
        observation, info = _checked_reset(result)
        if self._checker is not None:
            self._checker(observation, 0.0)
        self._write(observation)
        self._held = None
        self._episode += 1
        buffers = self._buffers
        assert buffers is not None
        buffers.episode_base_view[self._row] = buffers.env_seconds_view[self._row]
        self.step_call = self._env_step()
        self._idle()
        return info

    def _reset(self, payload: tuple[int | None, dict[str, Any] | None]) -> Any:
        seed, options = payload
        return self._env_reset(seed=seed, options=options)

    def _autoreset(self, _action: Any) -> Any:
        """The action of a NEXT_STEP reset is not used, as Gymnasium has it."""
        if self._held is not None:
            return self._held
        if self._reset_seed is not None:
            seed = self._reset_seed(self.index, self._episode + 1)
            if seed is not None:
                return self._env_reset(seed=index(seed))  # Gymnasium takes Python's integers only
        return self._env_reset()

    def _misfit(
        self, reward: Any, terminated: Any, truncated: Any, error: Exception | None = None
    ) -> Misfit:
        """What is wrong with the scalars of a step."""
        if self._rewards.__class__ is _VectorRewards and isinstance(error, Misfit):
            return Misfit(f"{error}, at 'reward'")
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, _FLAG) or np.size(flag) != 1:
                return Misfit(f"expected a bool, got {_shorten(flag)}, at {name!r}")
        return Misfit(f"expected a number, got {_shorten(reward)}, at 'reward'")

    def _say(self, info: dict[str, Any]) -> None:
        _check_info(info)
        objects = [column[self._row] for column in self._observation_objects] or None
        self.reply = Reply(info or None, objects)

    # ------------------------------------------------------------------ restart

    def _leave(self, _restart: Restart) -> Any:
        """Close the env that failed, whatever it says to that."""
        env, self.env = self.env, None
        self.step_call = _not_built
        try:
            closing = env.close() if env is not None else None
            return _forgiven(closing) if hasattr(closing, "__await__") else None
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None

    def _finish_leave(self, _result: Any) -> _Call:
        self._mark_call()
        self._operation = "restart"
        self.finish = self._finish_remake
        return self._remake

    def _remake(self, restart: Restart) -> Any:
        return restart.env_fn()

    def _finish_remake(self, env: Any) -> _Call:
        self._take_over(env)
        return self._reset_again

    def _reset_again(self, restart: Restart) -> Any:
        self._episode = restart.episode
        self._held = None
        self.finish = self._finish_reset if restart.begin else self._finish_held
        return self._env_reset(seed=restart.seed, options=restart.options)

    def _finish_held(self, result: Any) -> None:
        """The new episode is what the next autoreset gives."""
        self._held = detach(_checked_reset(result))
        self.step_call = self._autoreset
        self._idle()

    def _mark_call(self) -> None:
        """The env's time begins anew."""
        if self._buffers is not None:
            self._buffers.began[self._row] = perf_counter()

    # ------------------------------------------------------------------ everything else

    def _build(self, env_fn: EnvFn) -> Any:
        return env_fn()

    def _take_over(self, env: Any) -> Any:
        env = adapt(env)
        load_surfarray(env)
        self._use(env)
        return env

    def _use(self, env: Any) -> None:
        self.env = env
        self._drawing = drawing_lock_of(env)
        self._locks_steps = draws_in_steps(env) and not is_coroutine_env(env)
        self.step_call = self._env_step()

    def _env_step(self) -> _Call:
        step: _Call = self._drawing_step if self._locks_steps else self.env.step
        return step

    def _drawing_step(self, action: Any) -> Any:
        with self._drawing:
            return self.env.step(action)

    def _env_reset(self, **arguments: Any) -> Any:
        if self._buffers is not None:
            self._buffers.reset_began_view[self._row] = perf_counter()
        if not self._locks_steps:
            return self.env.reset(**arguments)
        with self._drawing:
            return self.env.reset(**arguments)

    def _finish_build(self, env: Any) -> None:
        env = self._take_over(env)
        self._finish_value(
            EnvReport(
                env.observation_space,
                env.action_space,
                dict(getattr(env, "metadata", None) or {}),
                getattr(env, "render_mode", None),
                _attribute(env, "reward_space", None),
                is_coroutine_env(env),
            )
        )

    def _finish_value(self, value: Any) -> None:
        self.reply = Reply(value=value)
        self._idle()

    def _call(self, payload: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Any:
        name, args, kwargs = payload
        attribute = _attribute(self.env, name)
        return attribute(*args, **kwargs) if callable(attribute) else attribute

    def _get(self, name: str) -> tuple[bool, Any]:
        attribute = _attribute(self.env, name)
        return (True, None) if callable(attribute) else (False, attribute)

    def _set(self, payload: tuple[str, Any]) -> None:
        name, value = payload
        setter = getattr(self.env, "set_wrapper_attr", None)
        if setter is None:
            setattr(self.env, name, value)
        else:
            setter(name, value)

    def _render(self, _payload: None) -> Any:
        with self._drawing:
            return self.env.render()

    def _finish_render(self, frame: Any) -> None:
        # A copy, as many envs draw into the same array again. And contiguous, as many frames are
        # transposed views: only contiguous arrays travel without being pickled.
        if isinstance(frame, np.ndarray):
            frame = np.array(frame, order="C")
        elif isinstance(frame, list):  # "rgb_array_list": the frames since the last call
            frame = [np.ascontiguousarray(f) if isinstance(f, np.ndarray) else f for f in frame]
        self._finish_value(frame)

    def _snapshot(self, _payload: None) -> Any:
        over = self.step_call == self._autoreset
        return save_env(self.env), self._episode, over, self._held

    def _restore(self, payload: Any) -> None:
        saved, episode, over, held = payload
        env = load_env(saved)
        for name in ("observation_space", "action_space"):
            mine, its = getattr(self.env, name), getattr(env, name)
            if not is_space_dtype_shape_equiv(mine, its):
                raise ValueError(f"expected the state of an env with the {name} {mine}, got {its}")
        self._use(env)
        self._episode = episode
        self._held = held
        self.step_call = self._autoreset if over else self._env_step()

    def _close(self, _payload: None) -> Any:
        env, self.env = self.env, None
        self.step_call = _not_built
        return env.close() if env is not None else None

    def _finish_close(self, _result: Any) -> None:
        self._finish_value(CLOSED)


async def _forgiven(closing: Any) -> None:
    with contextlib.suppress(Exception):
        await closing


def _checked_reset(result: Any) -> tuple[Any, dict[str, Any]]:
    """What reset returned, which must be a pair of that kind."""
    try:
        observation, info = result
    except (TypeError, ValueError):
        info = None
    if not isinstance(info, dict):
        raise Misfit(f"expected reset to return (observation, info), got {_shorten(result)}")
    return observation, info


def _check_info(info: Any) -> None:
    if info is not None and not isinstance(info, dict):
        raise Misfit(f"expected a dict, got {_shorten(info)}, at 'info'")


class _VectorRewards:
    """Assigns vector rewards, refusing those that would be broadcast."""

    __slots__ = ("_rewards",)

    def __init__(self, rewards: Any) -> None:
        self._rewards = rewards

    def __setitem__(self, row: int, reward: Any) -> None:
        self._rewards[row] = cast(reward, self._rewards.shape[1:], self._rewards.dtype)


def _not_built(_action: Any) -> Any:
    raise RuntimeError("this env was not built")


def _attribute(env: Any, name: str, *default: Any) -> Any:
    getter = getattr(env, "get_wrapper_attr", None)
    if getter is None:
        return getattr(env, name, *default)
    try:
        return getter(name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _operation_name(command: Command, payload: Any) -> str:
    match command:
        case Command.BUILD:
            return "construction"
        case Command.CALL:
            return f"call {payload[0]!r}"
        case Command.SET:
            return f"set_attr {payload[0]!r}"
        case Command.GET:
            return f"get {payload!r}"
        case _:
            return command.name.lower()


def _shorten(value: Any) -> str:
    if isinstance(value, tuple):
        kinds = ", ".join(type(part).__name__ for part in value)
        return f"a tuple of {len(value)} elements ({kinds})"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
