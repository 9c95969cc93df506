"""The progress bar, and how what envs print gets past it.

The bar is on standard error, and only when that is a terminal. Three writers share the terminal
with it: this process's ``sys.stdout`` and ``sys.stderr``, which rich diverts to above the bar;
worker processes, which write to descriptors that they inherited; and native code in this process,
which nobody can divert without losing its last words when it aborts.

Worker processes are therefore started with a terminal of ours (a pty) in place of the real one. It
has to be a terminal: to a pipe Python would write in blocks of kilobytes, and a worker that is
killed would take its last ones with it. A thread reads it and prints above the bar, line by line.
"""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

try:
    import pty
    import tty
except ImportError:  # no such terminals here
    pty = None  # type: ignore[assignment]

__all__ = ["Display"]

_PERIOD = 0.1
"""Seconds between two refreshes of the numbers."""


class Display:
    """The progress bar of one part of a run after the other; shows nothing without a terminal.

    Used from the main thread.

    Attributes:
        shown: Whether there is a bar.
        console: Prints above it.
    """

    def __init__(self) -> None:
        self._terminal: _Terminal | None = None
        self._stream = sys.stderr
        self.shown = sys.stderr.isatty()
        if self.shown:
            # A descriptor of its own: the other is diverted while workers are started.
            copy = os.dup(sys.stderr.fileno())
            self._stream = os.fdopen(copy, "w", encoding=sys.stderr.encoding)
        self.console = Console(file=self._stream, markup=False, highlight=False, emoji=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            console=self.console,
            disable=not self.shown,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task: TaskID | None = None
        self._next = 0.0

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._terminal is not None:
            self._terminal.close()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # rich keeps what has no end of line yet
        self._progress.stop()
        if self.shown:
            self._stream.close()

    def stop(self) -> None:
        """Take the bar away, in an emergency."""
        self._progress.stop()

    def begin(self, description: str) -> None:
        """Show a bar that does not move, in place of the one before."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(description, total=None, numbers="")
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is time to call `show`; cheap enough to be asked at every step."""
        return self.shown and perf_counter() >= self._next

    def show(
        self, share: float, seconds: float, left: float | None, episodes: int, steps: int
    ) -> None:
        """Show how far the part is.

        Args:
            share: Of the part that is done, 0 to 1.
            seconds: Since it began.
            left: Seconds that it will still take; None while nobody can tell.
            episodes: Played so far.
            steps: Made so far.
        """
        assert self._task is not None
        self._next = perf_counter() + _PERIOD
        sps = steps / seconds if seconds > 0 else 0.0
        remaining = "" if left is None else f"{_clock(left)} left"
        numbers = f"{episodes:,} episodes  {sps:,.0f} SPS  {remaining:>10}"
        self._progress.update(self._task, total=1.0, completed=share, numbers=numbers)

    @contextmanager
    def workers_starting(self) -> Iterator[None]:
        """Worker processes that start in here print above the bar."""
        diverted = [number for number in (1, 2) if self.shown and os.isatty(number)]
        if not diverted or pty is None:
            yield
            return
        self._terminal = self._terminal or _Terminal(self.console)
        kept = [os.dup(number) for number in diverted]
        try:
            for number in diverted:
                os.dup2(self._terminal.descriptor, number)
            yield
        finally:
            for number, copy in zip(diverted, kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)


class _Terminal:
    """A terminal for worker processes, whose lines are printed to a console.

    Args:
        console: Where to print.

    Attributes:
        descriptor: The workers' end.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._master, self.descriptor = pty.openpty()
        tty.setraw(self.descriptor)  # "\n" is to remain "\n"
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Print what is left; the workers have ended."""
        os.close(self.descriptor)
        self._thread.join(1.0)  # forever, if a process that a worker left behind holds it open

    def _print(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = ""
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # EIO: nobody has the other end any more
                data = b""
            text += decoder.decode(data, final=not data)
            *lines, text = text.split("\n")
            if not data and text:
                lines.append(text)
            for line in lines:
                self._console.print(Text.from_ansi(line), soft_wrap=True)
            if not data:
                os.close(self._master)
                return


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
