"""Ctrl-C, where it may strike and where it has to wait.

Python raises KeyboardInterrupt between any two bytecodes of the main thread: in the middle of
writing down a result, of drawing a picture, of closing the envs. Here it is raised only where the
program lets it, by default nowhere::

    with Interrupts() as interrupts:
        with interrupts.allowed():            # raises KeyboardInterrupt, blocked or not
            envs.step(actions)
            with interrupts.postponed():      # in here it is noted; raised at the end
                tally.note(results)
        with interrupts.closing():            # in here too, and this may not take forever
            envs.close()

What is closed may hang, in the main thread even, where nothing can be left behind. Then `give_up`
is called: at the second Ctrl-C, or some seconds after the first. At the third it is in any case.

The signal handler runs in the main thread, between bytecodes, so plain attributes are all the
locking there is. If it strikes while a block is being left, it raises there: nothing is lost.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Interrupts"]

_CLOSE_SECONDS = 5.0
"""From the first Ctrl-C to the end of patience with what is being closed."""


class Interrupts:
    """Takes over SIGINT while it is entered; must be used in the main thread.

    Args:
        last: Whether the process ends with this: SIGINT is ignored afterwards.

    Attributes:
        count: How often Ctrl-C was pressed.
        give_up: Ends the process; may be called from another thread, while the main thread hangs.
    """

    def __init__(self, last: bool = False) -> None:
        self.count = 0
        self.give_up: Callable[[], None] = lambda: None
        self._last = last
        self._inside = False  # of `allowed`
        self._raises = False  # Ctrl-C is raised now
        self._closing = False
        self._timer: threading.Timer | None = None
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._last else self._before)

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._closing:
            if self.count > 1:
                self.give_up()
            else:
                self._hurry()
        elif self._raises:
            self._raises = False  # what follows is the way out
            raise KeyboardInterrupt
        elif self.count > 2:
            self.give_up()

    def _unraisable(self, event: Any) -> None:
        # It struck in a destructor, which can't raise: it counts, and is raised a little later.
        if not isinstance(event.exc_value, KeyboardInterrupt):
            self._hook(event)

    def _hurry(self) -> None:
        self._timer = threading.Timer(_CLOSE_SECONDS, self.give_up)
        self._timer.daemon = True
        self._timer.start()

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Ctrl-C is raised in here, and at once if it was pressed before."""
        self._inside = self._raises = True
        try:
            self._raise_if_pressed()
            yield
            self._raise_if_pressed()  # an env may have swallowed it
        finally:
            self._inside = self._raises = False

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Ctrl-C is not raised in here but, inside of `allowed`, at the end."""
        raises, self._raises = self._raises, False
        try:
            yield
        finally:
            self._raises = raises
        if self._inside:
            self._raise_if_pressed()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Ctrl-C is not raised in here, but sets a limit to it."""
        self._closing = True
        if self.count:
            self._hurry()
        try:
            yield
        finally:
            self._closing = False
            if self._timer is not None:
                self._timer.cancel()

    def _raise_if_pressed(self) -> None:
        if self.count:
            self._raises = False
            raise KeyboardInterrupt
