"""The classic door: the API of gym before Gymnasium, in lists."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from agymc.choosing import Choice
from agymc.commands import Command
from agymc.engines import EngineOptions, start_pool
from agymc.errors import (
    BatchLengthError,
    ConfigurationError,
    EnvError,
    NoDisplayError,
    NotABatchError,
    ResetNeededError,
)
from agymc.ledger import listed
from agymc.parallel import Loops
from agymc.pool import CLOSE_TIMEOUT
from agymc.rendering import MosaicWindow, ShowBudget, display_available
from agymc.seeding import spread_seeds
from agymc.spaces import detach
from agymc.types import EnvFn
from agymc.views import EnvsView, SpacesView, View

__all__ = ["BatchEnv"]


class BatchEnv:
    """Many environments behind the API of classic gym. Made by `agymc.make`.

    Everything has ``num_envs`` elements, in lists. There is no autoreset: an env whose episode is
    over is not stepped until `reset`. It answers with its last observation, reward 0.0, done True
    and an empty info, so that ``while not all(dones)`` plays each env to its own end.

    Use it from one thread at a time, in the process that made it.

    Args:
        env_fns: One function per env.
        options: The engine and what belongs to it; autoreset must be disabled.
        check_actions: As in `agymc.make`.
        spec: The spec, for envs made from an id.
        always_show: Whether every step is shown, as ``render_mode="human"`` asks for.
        show_max_hz: As in `agymc.make`.
        show_max_share: As in `agymc.make`.

    Attributes:
        num_envs: The number of envs.
        engine: The engine's name.
        choice: Why that engine was chosen, where ``engine="auto"`` did; else None.
        action_space: A view of the envs' action spaces: ``action_space.sample()`` is a list of one
            action per env, ``action_space[i]`` the space of env i.
        observation_space: A view of the observation spaces.
        spec: A view of the specs.
        metadata: A view of the metadata.
        unwrapped: A view of the envs: ``unwrapped.gravity`` is a tuple of values,
            ``unwrapped.method(x)`` a list of results, ``unwrapped[i]`` one env. Wrappers are
            looked through.
        render_mode: Of the first env.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        options: EngineOptions,
        *,
        check_actions: bool = True,
        spec: EnvSpec | None = None,
        always_show: bool = False,
        show_max_hz: float = 50.0,
        show_max_share: float = 0.5,
    ) -> None:
        self.num_envs = len(env_fns)
        self.engine = options.engine
        self.choice: Choice | None = None
        self._check_actions = check_actions
        self._always_show = always_show
        try:
            self._budget = ShowBudget(show_max_hz, show_max_share)
        except ConfigurationError as error:  # it has other names for them
            raise ConfigurationError(str(error).replace("at max_", "at show_max_")) from None
        self._window: MosaicWindow | None = None
        self._no_display = False
        self._pool = start_pool(options, self.num_envs)
        spaces = self._pool.build(env_fns, "different", "make")
        self._buffers = self._pool.buffers
        self.render_mode = spaces.render_mode
        reports = self._pool.reports
        self.action_space = SpacesView([_own(report.action_space) for report in reports])
        self.observation_space = SpacesView([_own(report.observation_space) for report in reports])
        self.metadata = View([report.metadata for report in reports])
        self.spec = View([spec] * self.num_envs)
        self.unwrapped = EnvsView(self._pool)
        # Why the next call must be `reset`, or None.
        self._reset_needed: str | None = "these environments were not reset yet"
        self._dones = np.zeros(self.num_envs, np.bool_)
        self._next_seeds: list[int | None] = [None] * self.num_envs
        self._loops = Loops(self.num_envs)
        weakref.finalize(self, self._loops.close)

    def __len__(self) -> int:
        return self.num_envs

    def __repr__(self) -> str:
        name = self.spec[0].id if self.spec[0] is not None else "env functions"
        return f"BatchEnv({name}, num_envs={self.num_envs}, engine={self.engine!r})"

    # ------------------------------------------------------------------ episodes

    def seed(self, seeds: Any = None) -> list[list[int | None]]:
        """Seed each env at its next `reset`.

        Args:
            seeds: None, an integer s (env i gets s + i), or a list of one per env.

        Returns:
            A list [seed] per env, as classic envs answer.
        """
        self._next_seeds = spread_seeds(seeds, self.num_envs)
        return [[seed] for seed in self._next_seeds]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> list[Any]:
        """Begin an episode in every env.

        Args:
            seed: As in `seed`, for this reset.
            options: Given to each env.

        Returns:
            One observation per env.

        Raises:
            EnvError: An env raised. The others are at the beginning of their episodes.
        """
        self._pool.check_open()
        if seed is not None:
            self.seed(seed)
        self._pool.start_over(None)
        self._submit("reset", lambda: self._pool.submit_resets(self._next_seeds, options))
        self._next_seeds = [None] * self.num_envs
        self._receive("reset")
        self._reset_needed = None
        self._dones[:] = False
        if self._always_show:
            self._show()
        return self._observations()

    def step(
        self, actions: Sequence[Any] | NDArray[Any]
    ) -> tuple[list[Any], list[Any], list[bool], list[dict[str, Any]]]:
        """Step every env whose episode is not over.

        Args:
            actions: One per env; those of envs whose episode is over are ignored.

        Returns:
            Lists of observations, rewards, dones and infos. ``done`` is terminated or truncated;
            for a truncated episode ``info["TimeLimit.truncated"]`` says whether it was cut short.

        Raises:
            BatchLengthError: Not one action per env. No env was stepped.
            ActionError: An action is not in its space. No env was stepped.
            ResetNeededError: There was no `reset` yet, or none since a call that raised.
            EnvError: An env raised. The others were stepped, but what they gave is lost; the next
                call must be `reset`.
        """
        self._pool.check_open()
        if self._reset_needed is not None:
            raise ResetNeededError(f"{self._reset_needed}: expected reset() before step()")
        if not hasattr(actions, "__len__") or not hasattr(actions, "__getitem__"):
            raise NotABatchError(
                f"expected a list of {self.num_envs} actions, one per env, got {actions!r}"
            )
        if len(actions) != self.num_envs:
            raise BatchLengthError(
                f"expected {self.num_envs} actions, one per env, got {len(actions)}"
            )
        playing = np.flatnonzero(~self._dones)
        values = np.zeros_like(self._buffers.rewards)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if len(playing):
            whole = len(playing) == self.num_envs
            chosen = list(actions) if whole else [actions[int(i)] for i in playing]
            ids = None if whole else playing
            self._submit(
                "step",
                lambda: self._pool.submit_steps(chosen, ids, check=self._check_actions),
            )
            self._receive("step")
            buffers = self._buffers
            terminations, truncations = buffers.terminations, buffers.truncations
            self._dones[playing] = terminations[playing] | truncations[playing]
            values[playing] = buffers.rewards[playing]
            for row, info in self._pool.ledger.take_infos(playing):
                infos[playing[row]] = detach(info)
            for index in playing[truncations[playing]].tolist():
                infos[index]["TimeLimit.truncated"] = not terminations[index]
        if self._always_show:
            self._show()
        rewards = values.tolist() if values.ndim == 1 else list(values)
        return self._observations(), rewards, self._dones.tolist(), infos

    def _submit(self, operation: str, submit: Callable[[], None]) -> None:
        try:
            submit()
        except KeyboardInterrupt:  # some may have begun
            self._note_interrupted(operation)
            raise

    def _note_interrupted(self, operation: str) -> None:
        self._reset_needed = f"{operation}() was interrupted, and its results are lost"

    def _receive(self, operation: str) -> None:
        self._note_interrupted(operation)
        try:
            self._pool.receive_all(None)
        except EnvError as error:
            ids = sorted({*error.env_ids, *(i for other in error.others for i in other.env_ids)})
            self._reset_needed = f"{operation}() failed for {listed(ids)}"
            self._pool.discard()
            raise
        self._reset_needed = None

    def _observations(self) -> list[Any]:
        buffers = self._buffers
        return buffers.observation_layout.elements(buffers.observations)

    # ------------------------------------------------------------------ pictures

    def render(self, mode: str = "human") -> list[Any] | None:
        """Show all envs in one window, or give their frames.

        Args:
            mode: "human" shows a mosaic of all envs in one window. It refreshes within the budget
                of wall time given to `agymc.make`, and otherwise returns at once. Where there is
                no display it says so once, as a warning, and does nothing; after the user has
                closed the window, it does nothing either. "rgb_array" gives frames. So does the
                mode that the envs were made in, if that is another ("ansi", say).

        Returns:
            For "human" None, else a list of what each env drew: for "rgb_array" one frame (height,
            width, 3) uint8 per env, which is the caller's own.

        Raises:
            MissingExtraError: "human" needs a package that is not installed.
            ConfigurationError: The envs do not draw in this mode.
            EnvError: An env raised.
        """
        self._pool.check_open()
        if mode == "human":
            if self.render_mode == "human":  # each env has a window of its own
                self._pool.request(Command.RENDER, None, [None] * self.num_envs)
            else:
                self._show()
            return None
        if mode != "rgb_array" and mode != self.render_mode:
            modes = dict.fromkeys(["human", "rgb_array", *filter(None, [self.render_mode])])
            raise ConfigurationError(
                f"expected a mode out of {', '.join(map(repr, modes))}, got {mode!r}"
            )
        return self._drawn(mode)

    def _drawn(self, mode: str) -> list[Any]:
        """What the envs draw, which must be in this mode."""
        if self.render_mode not in (None, mode) or (
            # An env that lists no modes at all decides by itself what it draws.
            self.render_mode is None and any(self.metadata[0].get("render_modes", ()))
        ):
            modes = self.metadata[0].get("render_modes", [])
            raise ConfigurationError(
                f"these envs were made with render_mode={self.render_mode!r}, which gives no "
                f"{mode!r} frames; the modes that they can be made with: {modes}"
            )
        frames = self._pool.request(Command.RENDER, None, [None] * self.num_envs)
        if all(frame is None for frame in frames):
            raise ConfigurationError(
                f"expected {mode!r} frames, got None from the render method of each env: they "
                "were made without a render mode"
            )
        return frames

    def _show(self) -> None:
        """Refresh the window, if it is time for it."""
        if self._no_display or (self._window is not None and self._window.closed_by_user):
            return
        try:
            if self._window is None:
                if not display_available():  # SDL would look for one noisily
                    raise NoDisplayError("there is no display (DISPLAY is not set, for example)")
                self._window = MosaicWindow(repr(self))
            if self._budget.due():
                with self._budget:
                    self._window.show(self._drawn("rgb_array"))
            else:
                self._window.pump()
        except NoDisplayError as error:
            self._no_display = True
            # To the line that called `render`, or the `reset` or `step` that shows.
            warnings.warn(f"render('human') shows nothing: {error}", stacklevel=3)

    # ------------------------------------------------------------------ concurrency

    def parallel(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Sequence[Any]] = (),
        kwarguments: Mapping[str, Sequence[Any]] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> list[Any]:
        """Call a function once per env, all at the same time.

        A coroutine function is awaited, all of them on one event loop. A plain function runs in a
        thread that has a running event loop of its own: it may block, and ``asyncio.create_task``
        inside it works. Such tasks go on in the background until they are done, or `close`. Only
        what a function *returns* is awaited, if it can be: a coroutine, or a task.

        There is one thread per env, kept for later calls. If the system refuses to start so many,
        calls share the threads that there are, and those that share one don't overlap.

        It works inside of a running event loop, too (in a notebook, say), and blocks that loop
        like any call that takes time. The functions must not use these environments: they belong to
        the thread that called.

        Args:
            function: What to call.
            arguments: Columns of positional arguments, each with one value per env.
            kwarguments: The same for keyword arguments: name -> column.
            *args: More positional arguments, the same for every call.
            **kwargs: More keyword arguments, the same for every call.

        Returns:
            One result per env.

        Raises:
            BatchLengthError: A column does not have one value per env. Nothing was called.
            ConfigurationError: No function, or a keyword that is given twice.
            BusyError: Called inside of a call of `parallel` of the same environments.
            BaseException: What a call raised, of several the first in the order of the envs, when
                all calls have ended; a note names the call.
        """
        self._pool.check_open()
        return self._loops.run(function, arguments, kwarguments or {}, args, kwargs)

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all envs, the window and what `parallel` has started. Idempotent.

        Args:
            timeout: Seconds for the whole call; then worker processes are killed, and threads
                abandoned, which a RuntimeWarning tells of.
        """
        deadline = perf_counter() + timeout
        if self._window is not None:
            self._window.close()
            self._window = None
        problems = self._loops.close(timeout)
        self._pool.close(max(0.0, deadline - perf_counter()))
        for problem in problems:
            warnings.warn(f"agymc: {problem}", RuntimeWarning, stacklevel=2)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._pool.closed

    def __enter__(self) -> BatchEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own(space: Any) -> Any:
    """A copy of an env's space, so that sampling it leaves the env's own generator alone.

    An env may draw from its spaces itself: what it draws must not depend on who else does, nor on
    whether it lives in this process.
    """
    try:
        return copy.deepcopy(space)
    except Exception:  # a custom space that can't be copied: shared, like any object
        return space
