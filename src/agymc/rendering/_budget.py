"""How often a live picture may be refreshed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType

from agymc.errors import AgymcError, ConfigurationError


class ShowBudget:
    """Decides when a live picture is refreshed, so that showing never starves the run.

    After a refresh that took `d` seconds the next one is due at the later of two moments:
    ``1 / max_hz`` after its start, and ``d * (1 - max_share) / max_share`` after its end. The
    second makes refreshes take at most `max_share` of the wall time: with the default of one half,
    a run that is shown lasts at most twice as long. It adapts by itself to slow envs and screens.

    It only keeps time, and neither waits nor draws::

        budget = ShowBudget()
        if budget.due():
            with budget:
                window.show(envs.render())

    Put the rendering of the frames inside the ``with`` too: it is often the larger part.

    Args:
        max_hz: Refreshes per second, at most; greater than 0, and infinity for no limit.
        max_share: Share of the wall time that refreshes may take; greater than 0, at most 1.
        clock: Gives the time in seconds, and never goes backwards.

    Raises:
        ConfigurationError: `max_hz` or `max_share` is out of its range.
    """

    def __init__(
        self,
        max_hz: float = 50.0,
        max_share: float = 0.5,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not max_hz > 0:
            raise ConfigurationError(f"expected a number > 0, got {max_hz!r}, at max_hz")
        if not 0 < max_share <= 1:
            raise ConfigurationError(
                f"expected a number > 0 and <= 1, got {max_share!r}, at max_share"
            )
        self._min_period = 1.0 / max_hz
        self._rest_per_second = (1.0 - max_share) / max_share
        self._clock = clock
        self._started: float | None = None
        self._next_due = -math.inf

    def due(self) -> bool:
        """Whether a refresh may start now; the first may at once, none during another."""
        return self._started is None and self._clock() >= self._next_due

    def start(self) -> None:
        """Marks the start of a refresh; one that is not due (the last of a run, say) counts too.

        Raises:
            AgymcError: The refresh before was not stopped.
        """
        if self._started is not None:
            raise AgymcError("expected stop() first, got a second start(), at ShowBudget")
        self._started = self._clock()

    def stop(self) -> None:
        """Marks the end of a refresh.

        Raises:
            AgymcError: None was started.
        """
        if self._started is None:
            raise AgymcError("expected start() first, got stop(), at ShowBudget")
        started, ended = self._started, self._clock()
        rest = (ended - started) * self._rest_per_second
        self._next_due = max(started + self._min_period, ended + rest)
        self._started = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
