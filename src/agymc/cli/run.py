"""``agymc run``: play episodes on many envs, and say what that took."""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console

from agymc.cli._concurrent import Film, play_concurrently
from agymc.cli._environment import quieten_pygame, show_error, text_for_people, work_here
from agymc.cli._interrupts import Interrupts
from agymc.cli._job import Job
from agymc.cli._plain import play_in_plain_loop
from agymc.cli._policy import PolicyError, load_policy, random_policy
from agymc.cli._progress import Display
from agymc.cli._report import Report
from agymc.cli._tally import Part, Tally
from agymc.engines import DEFAULT_ENGINE, ENGINES, EngineOptions
from agymc.errors import AgymcError, ConfigurationError, EnvError
from agymc.rendering import MosaicRecorder

__all__ = ["EXAMPLE", "run"]

EXAMPLE = (
    "Example: agymc run CartPole-v1 --num-envs 200 --episodes 5 --record cartpoles.mp4 --compare"
)

_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130


def run(
    context: typer.Context,
    env_id: Annotated[
        str,
        typer.Argument(
            metavar="ENV_ID",
            show_default=False,
            help="Which env: an id such as CartPole-v1, or module:Id-v0, which imports the module "
            "that registers it. The module may be in the current directory.",
        ),
    ],
    num_envs: Annotated[
        int, typer.Option("--num-envs", "-n", min=1, metavar="N", help="How many envs.")
    ] = 16,
    episodes: Annotated[
        int,
        typer.Option(
            "--episodes", "-e", min=1, metavar="N", help="How many episodes each env plays."
        ),
    ] = 10,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"How they run: {', '.join(ENGINES)}; or the fastest of them, by measurement.",
        ),
    ] = DEFAULT_ENGINE,
    num_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="one per CPU",
            help="Processes, for an engine that has such.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            show_default="another one each time",
            help="Env i is seeded with N + i, and so are its random actions: the same seed "
            "gives the same episodes, on every engine.",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            show_default="random actions",
            help="Who plays: a function that takes the observations of some envs, as one batch of "
            "shape (k, ...), and returns k actions. A class is instantiated, and its instance "
            "called. The module may be in the current directory.",
        ),
    ] = None,
    min_ready: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="all",
            help="Let the policy act as soon as N envs are ready: faster where some steps take "
            "longer than others, but which envs come together then depends on timing.",
        ),
    ] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Render each env (rgb_array) before each step.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Render, and write a mosaic of all envs: the last picture to a .png, one per step "
            "to a .gif or .mp4.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Then play the same in a plain Python loop over the envs, for as long as this "
            "took but at most 20 seconds, and compare the steps per second.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON document in place of the table, and nothing else."
        ),
    ] = False,
) -> int:
    """Play episodes on many envs at once, and show what came out and what it took.

    Steps per second (SPS) count all calls of step over the seconds from the first reset to the last
    result. CPU seconds are those from making the envs to closing them; those of worker processes
    include their start.

    Ctrl-C ends the run and shows what was played so far.

    Exit codes: 0; 1 when an env or the policy fails; 2 when something in the command is wrong; 130
    after Ctrl-C.
    """
    quieten_pygame()
    work_here()
    interrupts: Interrupts = context.obj
    with _standard_output(as_json) as output:
        try:
            if engine != DEFAULT_ENGINE:
                EngineOptions(engine, num_workers)
            job = Job(
                env_id=env_id,
                num_envs=num_envs,
                episodes=episodes,
                seed=random.randrange(2**31) if seed is None else seed,
                policy=random_policy if policy is None else load_policy(policy),
                engine=engine,
                num_workers=num_workers,
                min_ready=min_ready,
                render=render or record is not None,
            )
            film = Film(None if record is None else _recorder(record))
        except AgymcError as error:
            show_error(error)
            return _USAGE
        session = _Session(job, policy or "random", film, interrupts, output, as_json)
        session.play(compare)
        session.tell()
        return session.code


def _recorder(path: Path) -> MosaicRecorder:
    try:
        return MosaicRecorder(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"--record {path}: {error}") from error


class _Session:
    """Plays, and tells what came out.

    Args:
        job: What to play.
        policy: The policy's name.
        film: Where frames go.
        interrupts: Ctrl-C.
        output: Where the table or document goes.
        as_json: Which of them.

    Attributes:
        code: The exit code.
    """

    def __init__(
        self,
        job: Job,
        policy: str,
        film: Film,
        interrupts: Interrupts,
        output: TextIO,
        as_json: bool,
    ) -> None:
        self._job, self._film, self._interrupts = job, film, interrupts
        self._output, self._as_json = output, as_json
        self._report = Report(job, policy, Part(Tally(job.num_envs, job.episodes)))
        self._display = Display()
        self._failure: AgymcError | None = None
        self.code = 0
        interrupts.give_up = self._give_up

    def play(self, compare: bool) -> None:
        """Play; whatever goes wrong is kept for `tell`."""
        job, report, interrupts, display = self._job, self._report, self._interrupts, self._display
        played = report.played
        try:
            with _warnings_into(played.notes), display:
                play_concurrently(job, played, self._film, interrupts, display)
                if compare and not interrupts.count:
                    report.plain = Part(Tally(job.num_envs, job.episodes))
                    seconds = max(0.5, played.playing)
                    play_in_plain_loop(job, report.plain, seconds, interrupts, display)
        except (EnvError, PolicyError) as error:
            self.code, self._failure = _FAILED, error
        except AgymcError as error:
            self.code, self._failure = _FAILED if played.tally.steps else _USAGE, error
        except KeyboardInterrupt:
            pass

    def tell(self) -> None:
        """Complete the film, print the table or document, and what went wrong."""
        report, film = self._report, self._film
        try:
            if film.close():
                report.recorded, report.pictures = film.path, film.pictures
        except (AgymcError, OSError) as error:
            self._failure = self._failure or AgymcError(f"{film.path} can't be written: {error}")
            self.code = _FAILED
        if self._interrupts.count:
            report.interrupted = True
            self.code = _INTERRUPTED
        failure = self._failure
        report.error = None if failure is None else text_for_people(failure)
        if self._as_json and self.code != _USAGE:
            json.dump(report.document(), self._output, indent=2, allow_nan=False)
            self._output.write("\n")
        elif not self._as_json and (failure is None or report.played.tally.finished):
            report.print(Console(file=self._output))
        self._output.flush()
        if failure is not None:
            show_error(failure)

    def _give_up(self) -> None:
        """Closing hangs: tell what there is and end the process. Workers end with it."""
        try:
            self._display.stop()
            self._report.played.notes.append("Not all envs would close; they were abandoned.")
            self.tell()
        finally:
            os._exit(_INTERRUPTED)


@contextmanager
def _warnings_into(notes: list[str]) -> Iterator[None]:
    """Warnings of agymc itself (a worker that had to be killed, say) become notes of the report."""
    show = warnings.showwarning

    def note(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        text = str(message)
        if text.startswith("agymc: "):
            notes.append(text.removeprefix("agymc: "))
        else:
            show(message, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.showwarning = note
        yield


@contextmanager
def _standard_output(alone: bool) -> Iterator[TextIO]:
    """Standard output; ``alone``: what else would be written to it goes to standard error."""
    if not alone:
        yield sys.stdout
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)  # for native code and worker processes too
        try:
            yield output
        finally:
            sys.stdout.flush()
            os.dup2(output.fileno(), 1)
