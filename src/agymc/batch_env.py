"""The classic door: the API of gym before Gymnasium, in lists."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from agymc.commands import Command
from agymc.engines import EngineOptions, start_pool
from agymc.errors import BatchLengthError, ConfigurationError, NoDisplayError
from agymc.parallel import Loops
from agymc.pool import CLOSE_TIMEOUT
from agymc.rendering import MosaicWindow, ShowBudget
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
        action_space: A view of the envs' action spaces: ``action_space.sample()`` is a list of one
            action per env, ``action_space[i]`` the space of env i.
        observation_space: A view of the observation spaces.
        spec: A view of the specs.
        metadata: A view of the metadata.
        unwrapped: A view of the envs: ``unwrapped.gravity`` is a tuple of values,
            ``unwrapped.method(x)`` a list of results, ``unwrapped[i]`` one env.
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
        self._check_actions = check_actions
        self._always_show = always_show
        self._budget = ShowBudget(show_max_hz, show_max_share)
        self._window: MosaicWindow | None = None
        self._no_display = False
        self._pool = start_pool(options, self.num_envs)
        spaces = self._pool.build(env_fns, "different", "make")
        self._buffers = self._pool.buffers
        self.render_mode = spaces.render_mode
        self.action_space = SpacesView([report.action_space for report in self._pool.reports])
        self.observation_space = SpacesView(
            [report.observation_space for report in self._pool.reports]
        )
        self.metadata = View([report.metadata for report in self._pool.reports])
        self.spec = View([spec] * self.num_envs)
        self.unwrapped = EnvsView(self._pool)
        self._dones = np.zeros(self.num_envs, np.bool_)
        self._next_seeds: list[int | None] = [None] * self.num_envs
        self._loops = Loops()
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
        if seed is not None:
            self.seed(seed)
        seeds, self._next_seeds = self._next_seeds, [None] * self.num_envs
        self._pool.discard()
        self._pool.submit_resets(seeds, options)
        self._receive()
        self._dones[:] = False
        self._show_if_wished()
        return self._observations()

    def step(
        self, actions: Sequence[Any]
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
            EnvError: An env raised. The others were stepped; the next call must be `reset`.
        """
        if not hasattr(actions, "__len__") or len(actions) != self.num_envs:
            got = len(actions) if hasattr(actions, "__len__") else repr(actions)
            raise BatchLengthError(f"expected {self.num_envs} actions, one per env, got {got}")
        playing = np.flatnonzero(~self._dones)
        rewards: list[Any] = [0.0] * self.num_envs
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if len(playing):
            whole = len(playing) == self.num_envs
            chosen = list(actions) if whole else [actions[int(i)] for i in playing]
            ids = None if whole else playing
            self._pool.submit_steps(chosen, ids, check=self._check_actions)
            self._receive()
            buffers = self._buffers
            terminations, truncations = buffers.terminations, buffers.truncations
            self._dones[playing] = terminations[playing] | truncations[playing]
            values = buffers.rewards[playing]
            parts = values.tolist() if values.ndim == 1 else list(values)
            for index, reward in zip(playing.tolist(), parts, strict=True):
                rewards[index] = reward
            for row, info in self._pool.ledger.take_infos(playing):
                infos[playing[row]] = detach(info)
            for index in playing[truncations[playing]].tolist():
                infos[index]["TimeLimit.truncated"] = not terminations[index]
        self._show_if_wished()
        return self._observations(), rewards, self._dones.tolist(), infos

    def _receive(self) -> None:
        self._pool.receive_all(None)

    def _observations(self) -> list[Any]:
        buffers = self._buffers
        return buffers.observation_layout.elements(buffers.observations)

    # ------------------------------------------------------------------ pictures

    def render(self, mode: str = "human") -> list[Any] | None:
        """Show all envs in one window, or give their frames.

        Args:
            mode: "human" shows a mosaic of all envs in one window. It refreshes within the budget
                of wall time given to `agymc.make`, and otherwise returns at once. Where there is
                no display it says so once, as a warning, and does nothing. "rgb_array" gives
                frames.

        Returns:
            For "rgb_array" a list of one frame (height, width, 3) uint8 per env, else None.

        Raises:
            MissingExtraError: "human" needs a package that is not installed.
            ConfigurationError: The mode is neither.
        """
        if mode == "rgb_array":
            return self._pool.request(Command.RENDER, None, [None] * self.num_envs)
        if mode != "human":
            raise ConfigurationError(f"expected mode 'human' or 'rgb_array', got {mode!r}")
        self._pool.check_open()
        if self._no_display or (self._window is not None and self._window.closed_by_user):
            return None
        try:
            if self._window is None:
                self._window = MosaicWindow(repr(self))
            if self._budget.due():
                with self._budget:
                    frames = self._pool.request(Command.RENDER, None, [None] * self.num_envs)
                    self._window.show(frames)
            else:
                self._window.pump()
        except NoDisplayError as error:
            self._no_display = True
            warnings.warn(f"render('human') shows nothing: {error}", stacklevel=2)
        return None

    def _show_if_wished(self) -> None:
        if self._always_show:
            self.render("human")

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
        inside it works. Such tasks go on in the background until they are done, or `close`.

        Args:
            function: What to call.
            arguments: Columns of positional arguments, each with one value per env.
            kwarguments: The same for keyword arguments: name -> column.
            *args: More positional arguments, the same for every call.
            **kwargs: More keyword arguments, the same for every call.

        Returns:
            One result per env.

        Raises:
            BatchLengthError: A column does not have one value per env.
            BaseException: What a call raised, when all calls have ended; a note names the call.
        """
        self._pool.check_open()
        return self._loops.run(function, self.num_envs, arguments, kwarguments or {}, args, kwargs)

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all envs, the window and what `parallel` has started. Idempotent.

        Args:
            timeout: Seconds that the envs get; then worker processes are killed and threads
                abandoned.
        """
        if self._window is not None:
            self._window.close()
            self._window = None
        self._loops.close(timeout)
        self._pool.close(timeout)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._pool.closed

    def __enter__(self) -> BatchEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
