"""Playing on agymc."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

import agymc
from agymc.cli._interrupts import Interrupts
from agymc.cli._job import Job
from agymc.cli._policy import PolicyError
from agymc.cli._progress import Display
from agymc.cli._tally import Part, Stopwatch, Tally
from agymc.errors import ActionError, BatchLengthError, ConfigurationError, UnknownOptionError
from agymc.rendering import MosaicRecorder
from agymc.types import AutoresetMode
from agymc.vector_env import VectorEnv

__all__ = ["Film", "play_concurrently"]

_CLOSE_SECONDS = 5.0
_INTERRUPTED_CLOSE_SECONDS = 2.0


class Film:
    """The frames of all envs, the latest of each, and what becomes of them.

    A .png gets one picture in the end, a film one per step.

    Args:
        recorder: Where pictures go, or None.
    """

    def __init__(self, recorder: MosaicRecorder | None) -> None:
        self._recorder = recorder
        self._moves = recorder is not None and recorder.path.suffix.lower() != ".png"
        self._latest: list[NDArray[np.uint8] | None] = []
        self._borrowed: set[int] = set()
        self.pictures = 0

    @property
    def path(self) -> Path | None:
        """The file, or None."""
        return None if self._recorder is None else self._recorder.path

    def note(self, num_envs: int, env_ids: NDArray[np.int64], frames: Sequence[Any]) -> None:
        """Take new frames of these envs."""
        if self._recorder is None:
            return
        self._latest = self._latest or [None] * num_envs
        latest = self._latest
        # All frames of a worker come in one piece of memory, which any of them keeps alive: those
        # that will be kept for longer are copied.
        for env_id in self._borrowed.difference(env_ids.tolist()):
            latest[env_id] = np.array(latest[env_id])
        self._borrowed = set(env_ids.tolist())
        for env_id, frame in zip(env_ids, frames, strict=True):
            latest[env_id] = frame
        if self._moves:
            self._add()

    def close(self) -> bool:
        """Complete the file; False if there is none."""
        if self._recorder is None:
            return False
        if self._latest and not self._moves:
            self._add()
        self._latest = []
        return self._recorder.close()

    def _add(self) -> None:
        assert self._recorder is not None
        self._recorder.add(self._latest)
        self.pictures += 1


def play_concurrently(
    job: Job, part: Part, film: Film, interrupts: Interrupts, display: Display
) -> None:
    """Play all episodes on the envs of `agymc.make_vec`.

    Args:
        job: What to play.
        part: Filled in, also when something is raised.
        film: Gets the frames.
        interrupts: Where KeyboardInterrupt comes from.
        display: The progress bar.

    Raises:
        AgymcError: As `make_vec`, `recv`, `send` and `render` do.
        PolicyError: The policy raised, or did not return actions.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    envs: VectorEnv | None = None
    with part.measured() as watch:
        try:
            display.begin(f"Making {job.num_envs:,} x {job.env_id}")
            with interrupts.allowed():
                with display.workers_starting():
                    envs = _make(job)
                part.making = watch.wall
                part.engine, part.envs = envs.engine, envs.num_envs
                part.num_workers = envs.num_workers or None
                display.begin("Playing")
                try:
                    _play(envs, job, part, film, interrupts, display, watch)
                finally:
                    part.playing = watch.wall - part.making
                if film.path is not None:  # how it ended
                    _render(envs, np.arange(envs.num_envs), film, interrupts, watch)
        finally:
            if envs is not None:
                _close(envs, interrupts)


def _make(job: Job) -> VectorEnv:
    try:
        # NEXT_STEP: a step of all envs, those that will be reset among them, is the cheapest.
        return agymc.make_vec(
            job.env_id,
            job.num_envs,
            engine=job.engine,
            num_workers=job.num_workers,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            **job.env_kwargs,
        )
    except UnknownOptionError as error:
        if not job.render:
            raise
        raise ConfigurationError(
            f"--render and --record need envs that take render_mode='rgb_array': {job.env_id} "
            "does not"
        ) from error


def _play(
    envs: VectorEnv,
    job: Job,
    part: Part,
    film: Film,
    interrupts: Interrupts,
    display: Display,
    watch: Stopwatch,
) -> None:
    tally = part.tally
    lockstep = job.min_ready is None
    policy = job.policy(envs.single_action_space, envs.num_envs, job.seed)
    envs.send_reset(seed=job.seed)
    for batch in envs.batches(job.min_ready):
        with interrupts.postponed():
            over = tally.note(batch)
            if display.due():
                _show(display, tally, watch.wall - part.making)
        ids, observations = batch.env_ids, batch.observations
        rows = np.arange(len(ids))
        if over is not None:  # an env that has played all its episodes is not stepped any more
            rows = np.flatnonzero(tally.played[ids] < job.episodes)
            if not len(rows):
                continue
        if lockstep:  # results come in any order; the policy gets them in that of the envs
            rows = rows[np.argsort(ids[rows])]
        ids = ids[rows]
        over = None if over is None else over[rows]
        if job.render:
            _render(envs, ids if over is None else ids[~over], film, interrupts, watch)
        if policy.looks:
            observations = _select(envs.single_observation_space, observations, rows)
        actions = policy(observations, ids, over)
        try:
            envs.send(actions, None if lockstep and len(ids) == envs.num_envs else ids)
        except (ActionError, BatchLengthError) as error:
            raise PolicyError(f"the policy did not return {len(ids)} actions: {error}") from None


def _show(display: Display, tally: Tally, seconds: float) -> None:
    finished, total = tally.finished, tally.total
    # The first episodes to end are the short ones: wait for some more before telling fortunes.
    known = finished >= tally.num_envs / 4
    left = seconds * (total / finished - 1) if known else None
    display.show(finished / total, seconds, left, finished, tally.steps)


def _select(space: Space[Any], batch: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of a batch of elements of the space, in this order."""
    match space:
        case spaces.Dict():
            return {key: _select(part, batch[key], rows) for key, part in space.spaces.items()}
        case spaces.Tuple():
            parts = zip(space.spaces, batch, strict=True)
            return tuple(_select(part, column, rows) for part, column in parts)
        case _:
            return batch[rows] if isinstance(batch, np.ndarray) else tuple(batch[i] for i in rows)


def _render(
    envs: VectorEnv,
    ids: NDArray[np.int64],
    film: Film,
    interrupts: Interrupts,
    watch: Stopwatch,
) -> None:
    if not len(ids):
        return
    frames = envs.render() if len(ids) == envs.num_envs else envs.call("render", env_ids=ids)
    for env_id, frame in zip(ids, frames, strict=True):
        if not isinstance(frame, np.ndarray):
            raise ConfigurationError(
                "--render and --record need envs whose render mode 'rgb_array' gives a NumPy "
                f"array: env {env_id} gave {type(frame).__name__}"
            )
    with watch.paused(), interrupts.postponed():  # half a picture would spoil the film
        film.note(envs.num_envs, ids, frames)


def _close(envs: VectorEnv, interrupts: Interrupts) -> None:
    with interrupts.closing():
        envs.close(timeout=_INTERRUPTED_CLOSE_SECONDS if interrupts.count else _CLOSE_SECONDS)
