"""What a run came to: a table for people, a document for programs, and errors in words."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

import agymc
from agymc.cli._job import Job
from agymc.cli._tally import Part

__all__ = ["Report", "traceback_of"]


@dataclass
class Report:
    """What a run came to.

    Attributes:
        job: What was to be played.
        policy: The policy's name.
        played: The concurrent part.
        plain: The plain loop, if there was one.
        interrupted: Whether Ctrl-C ended it early.
        error: What else ended it early, if anything.
        recorded: The picture or film that was written, if any.
        pictures: How many pictures are in it.
    """

    job: Job
    policy: str
    played: Part
    plain: Part | None = None
    interrupted: bool = False
    error: str | None = None
    recorded: Path | None = None
    pictures: int = 0

    @property
    def ratio(self) -> float | None:
        """SPS of agymc over SPS of the plain loop."""
        if self.plain is None or self.plain.sps is None or self.played.sps is None:
            return None
        return self.played.sps / self.plain.sps

    @property
    def same(self) -> tuple[int, int] | None:
        """Of the episodes that both have played: (how many went the same way, how many)."""
        if self.plain is None:
            return None
        a, b = self.played.tally, self.plain.tally
        both = a.mask() & b.mask()
        same = (a.returns == b.returns) & (a.lengths == b.lengths) & both
        return int(same.sum()), int(both.sum())

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        job = self.job
        return {
            "agymc": agymc.__version__,
            "gymnasium": gymnasium.__version__,
            "env_id": job.env_id,
            "num_envs": job.num_envs,
            "episodes_per_env": job.episodes,
            "seed": job.seed,
            "policy": self.policy,
            "render": job.render,
            "interrupted": self.interrupted,
            "error": self.error,
            "recorded": None if self.recorded is None else str(self.recorded),
            "concurrent": _document(self.played),
            "plain_loop": None if self.plain is None else _document(self.plain),
            "sps_ratio": self.ratio,
            "same_episodes": None if self.same is None else self.same[0],
        }

    def print(self, console: Console) -> None:
        """Print the table."""
        for block in self._blocks():
            # In a file, sentences stay whole.
            whole = not isinstance(block, Table) and not console.is_terminal
            console.print(block, highlight=False, soft_wrap=whole)

    def _blocks(self) -> list[RenderableType]:
        job = self.job
        title = f"{job.env_id} x {job.num_envs:,}, {_count(job.episodes, 'episode')} each"
        blocks: list[RenderableType] = [
            "",
            Text.assemble((title, "bold"), (f"  policy {self.policy}, seed {job.seed}", "dim")),
        ]
        if self.interrupted or self.error:
            how = "Interrupted" if self.interrupted else "Ended by an error"
            blocks.append(Text(f"{how}. This is what was played until then:", "yellow"))
        blocks += ["", self._episodes(), "", self._costs(), ""]
        blocks += [Text(note, "yellow") for note in self._notes()]
        if self.plain is not None:
            blocks += self._comparison(self.plain)
        if self.recorded is not None:
            still = self.recorded.suffix.lower() == ".png"
            what = "A picture" if still else f"A film of {_count(self.pictures, 'picture')}"
            envs = "the env" if job.num_envs == 1 else f"all {job.num_envs:,} envs"
            path = Text.assemble(f"{what} of {envs}: ", (str(self.recorded), "bold"))
            path.no_wrap, path.overflow = True, "ignore"  # it is to be copied
            blocks.append(path)
        return blocks

    def _episodes(self) -> Table:
        table = Table("", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in ("mean", "median", "min", "max"):
            table.add_column(name, justify="right", min_width=9)
        tally = self.played.tally
        mask = tally.mask()
        returns, lengths = _summary(tally.returns[mask]), _summary(tally.lengths[mask])
        table.add_row("return", *(_number(value, 2) for value in returns.values()))
        table.add_row(
            "length",
            *(_number(lengths[name], 1) for name in ("mean", "median")),
            *(_number(lengths[name], 0) for name in ("min", "max")),
        )
        return table

    def _costs(self) -> Table:
        parts = [self.played] if self.plain is None else [self.played, self.plain]
        table = Table("", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for part in parts:
            table.add_column("plain loop" if part is self.plain else "agymc", justify="right")
        rows: dict[str, Callable[[Part], str]] = {
            "engine": _engine,
            "envs": lambda part: f"{part.envs:,}",
            "episodes": lambda part: f"{part.tally.finished:,}",
            "steps": lambda part: f"{part.tally.steps:,}",
            "seconds to make the envs": lambda part: _number(part.making, 2),
            "seconds to play": lambda part: _number(part.playing, 2),
            "CPU seconds, this process": lambda part: _number(part.cpu, 2),
            "CPU seconds, workers": lambda part: _number(part.worker_cpu, 2),
            "steps per second (SPS)": lambda part: _number(part.sps, 0),
        }
        if not any(part.worker_cpu >= 0.005 for part in parts):
            del rows["CPU seconds, workers"]
        for name, cell in rows.items():
            style = "bold green" if name.endswith("(SPS)") else ""
            table.add_row(name, *(Text(cell(part), style) for part in parts))
        return table

    def _notes(self) -> list[str]:
        return self.played.notes + ([] if self.plain is None else self.plain.notes)

    def _comparison(self, plain: Part) -> list[RenderableType]:
        job, same = self.job, self.same
        assert same is not None
        tally = plain.tally
        if tally.finished == tally.total:
            share = f"The plain loop played all {_count(tally.total, 'episode')}."
        else:
            share = (
                f"The plain loop had time for {plain.envs:,} of {_count(job.num_envs, 'env')}, "
                f"{tally.finished:,} of {_count(tally.total, 'episode')} and "
                f"{tally.steps:,} of {_count(self.played.tally.steps, 'step')}."
            )
        alike, both = same
        if both == 0:
            equal = ""
        elif alike == both:
            equal = " Its episodes had the same returns and lengths."
        else:
            equal = (
                f" {both - alike:,} of its episodes went differently: something in the env or the "
                "policy is random in a way that the seed does not fix."
            )
        blocks: list[RenderableType] = [Text(share + equal)]
        if self.ratio is not None:
            text = f"agymc made {self.ratio:.2f} times as many steps per second."
            blocks.append(Text(text, "bold"))
        return blocks


def _engine(part: Part) -> str:
    if part.engine is None:
        return "none"
    if part.num_workers is None:
        return part.engine
    return f"{part.engine}, {_count(part.num_workers, 'worker')}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _summary(values: NDArray[Any]) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(("mean", "median", "min", "max"))
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def _document(part: Part) -> dict[str, Any]:
    tally = part.tally
    mask = tally.mask()
    return {
        "engine": part.engine,
        "num_workers": part.num_workers,
        "num_envs": part.envs,
        "episodes": tally.finished,
        "steps": tally.steps,
        "return": _summary(tally.returns[mask]),
        "length": _summary(tally.lengths[mask]),
        "seconds_making": part.making,
        "seconds_playing": part.playing,
        "cpu_seconds": part.cpu,
        "cpu_seconds_workers": part.worker_cpu,
        "sps": part.sps,
        "notes": part.notes,
    }


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception that an env or a policy raised, as text.

    Without the lines of agymc and of what Gymnasium wraps around an env, which say nothing about
    the cause; unless there are no others. An exception from a worker process brings its traceback
    as text.
    """
    remote = getattr(error.__cause__, "text", None)
    text = remote if isinstance(remote, str) else "".join(traceback.format_exception(error))
    theirs = ("core.py", "envs/registration.py", "utils/passive_env_checker.py", "wrappers")
    around = {Path(gymnasium.__file__).parent / part for part in theirs}
    around.add(Path(agymc.__file__).parent)
    # An entry: its line 'File ...', and the lines of code and marks below it.
    entry = re.compile(r'^  File "(?P<path>.*)", line .*\n(?:    .*\n)*', re.MULTILINE)

    def shortened(match: re.Match[str]) -> str:
        path = Path(match["path"])
        return match[0] if around.isdisjoint((path, *path.parents)) else ""

    short = entry.sub(shortened, text)
    return short if entry.search(short) else text
