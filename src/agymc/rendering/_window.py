"""One window that shows many envs.

What pygame imposes, and what is done about it:

- A process has one pygame window at most. If an env has opened its own (``render_mode="human"``),
  this one is refused instead of taking that one's place.
- Many envs call ``pygame.quit()`` in their ``close()``, which also destroys this window when they
  live in the same process. The next ``show()`` opens it anew.
- ``pygame.quit()`` here would in turn break the envs: only the display is closed, and if an env had
  initialised it before, it is left initialised.
- All calls belong to one thread: on macOS the main thread, elsewhere the one that calls first.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from agymc.errors import ClosedError, NoDisplayError

from ._extras import load
from ._mosaic import Frames, Layout, layout, layout_for

_SCREEN_SHARE = 0.9
"""Share of the screen's height and width to fill: title bar and panels need the rest."""


def display_available() -> bool:
    """Whether a window can be expected to open.

    On macOS and Windows always; elsewhere if ``DISPLAY``, ``WAYLAND_DISPLAY`` or, for a choice
    such as "dummy", ``SDL_VIDEODRIVER`` is set and not empty.
    """
    if sys.platform in ("darwin", "win32"):
        return True
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    return any(os.environ.get(name) for name in names)


class MosaicWindow:
    """A window with the mosaic of many envs; it opens at the first `show`.

    The size of the tiles is fixed by the first frames, and anew when the number of envs changes:
    a window that jumps with every frame cannot be watched. Later, larger frames are shrunk.

    Args:
        title: Text of the title bar.
        columns: As in `mosaic`.
        scale: As in `mosaic`, but None fits the screen at hand.

    Attributes:
        closed_by_user: True after the window's close button was used. The run goes on, and
            further `show` calls do nothing.

    Raises:
        ConfigurationError: As in `mosaic`, of `columns` and `scale`.
        MissingExtraError: pygame is not installed.
    """

    def __init__(
        self, title: str = "agymc", columns: int | None = None, scale: float | None = None
    ) -> None:
        layout(1, 1, 1, columns, scale)  # raises now what it would raise at the first show
        self.closed_by_user = False
        self._title, self._columns, self._scale = title, columns, scale
        # SDL would turn SIGTERM into "close the window", and the run could not be terminated.
        os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self._pygame = load("pygame", "pygame-ce", "A window that shows the envs")
        self._layout: Layout | None = None
        self._surface: Any = None  # a pygame.Surface; pygame may be missing where types are checked
        self._found_initialised: bool | None = None  # the state to restore, once it was changed
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether the window is on the screen."""
        display = self._pygame.display
        return (
            self._surface is not None
            and display.get_init()
            and display.get_surface() is self._surface
        )

    def show(self, frames: Frames) -> None:
        """Shows one frame per env; does nothing after the user has closed the window.

        Args:
            frames: As in `mosaic`.

        Raises:
            ConfigurationError: As in `mosaic`.
            NoDisplayError: The window cannot be opened.
            ClosedError: After `close`.
        """
        if self._closed:
            raise ClosedError("expected an open window, got show() after close(), at MosaicWindow")
        self.pump()
        if self.closed_by_user:
            return
        if not self.is_open:
            self._initialise()
        if self._layout is None or self._layout.count != len(frames):
            height, width = self._pygame.display.get_desktop_sizes()[0][::-1]
            screen = int(height * _SCREEN_SHARE), int(width * _SCREEN_SHARE)
            self._layout = layout_for(frames, self._columns, self._scale, screen)
        picture = self._layout.draw(frames)
        size = self._layout.width, self._layout.height
        if not self.is_open or self._surface.get_size() != size:
            self._surface = self._pygame.display.set_mode(size)
            self._pygame.display.set_caption(self._title)
        self._surface.blit(self._pygame.image.frombuffer(picture.data, size, "RGB"), (0, 0))
        self._pygame.display.flip()
        self.pump()

    def pump(self) -> None:
        """Answers the window system, and sees whether the user has closed the window.

        `show` does it too. Call it between rare shows: a window that does not answer for seconds
        is greyed out. Costs microseconds.
        """
        if self.is_open and any(e.type == self._pygame.QUIT for e in self._pygame.event.get()):
            self.closed_by_user = True
            self._destroy()

    def close(self) -> None:
        """Closes the window; may be called again, and after the user has closed it."""
        self._closed = True
        self._destroy()

    def __enter__(self) -> MosaicWindow:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _initialise(self) -> None:
        display = self._pygame.display
        self._surface = None
        if self._found_initialised is None:
            self._found_initialised = display.get_init()
        try:
            display.init()
            self._check_display()
        except self._pygame.error as error:
            raise NoDisplayError(
                f"expected a display, got {str(error)!r} from pygame, at MosaicWindow"
            ) from error
        except NoDisplayError:
            self._destroy()
            raise

    def _check_display(self) -> None:
        display = self._pygame.display
        # Newer SDLs fall back to a driver that draws to nowhere.
        if display.get_driver() == "offscreen" and not os.environ.get("SDL_VIDEODRIVER"):
            raise NoDisplayError("expected a display, got none, at MosaicWindow")
        other = display.get_surface()
        if other is not None:
            width, height = other.get_size()
            raise NoDisplayError(
                "expected no other pygame window in this process, which can have only one, "
                f"got one of {width} x {height} pixels, at MosaicWindow"
            )

    def _destroy(self) -> None:
        display = self._pygame.display
        if self._found_initialised is not None:
            if self.is_open or (display.get_init() and display.get_surface() is None):
                display.quit()
                if self._found_initialised:
                    display.init()
            self._found_initialised = None
        self._surface = None
