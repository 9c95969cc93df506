"""Tiling frames into one picture, in NumPy alone.

The geometry (`Layout`) is apart from the drawing, because a window and a video must keep theirs
while the frames change.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agymc.errors import ConfigurationError

Picture: TypeAlias = npt.NDArray[np.uint8]
"""An array ``(height, width, 3)`` of uint8: red, green, blue."""

Frames: TypeAlias = Sequence[npt.NDArray[np.uint8] | None]
"""One frame per env, or None for an env that has none."""

SCREEN = (1080, 1920)
"""Height and width, in pixels, of the screen that a mosaic fits by default."""


def mosaic(frames: Frames, columns: int | None = None, scale: float | None = None) -> Picture:
    """Tiles frames into one picture, row by row from the top left.

    All tiles have one size: the height and the width of the largest frame, times `scale`. Smaller
    frames are centred in theirs. Shrinking takes the mean of the area that a pixel covers, so that
    thin lines fade instead of vanishing; shrunk tiles are kept apart by a dark line one pixel wide.
    What nothing covers is black.

    Args:
        frames: Arrays of uint8 with shape ``(H, W, 3)`` RGB, ``(H, W, 4)`` RGBA (shown on black),
            ``(H, W)`` or ``(H, W, 1)`` grey, of any sizes; None gives a black tile. Other dtypes
            are refused: a float frame may mean 0..1 or 0..255, and a guess could be wrong.
        columns: Tiles in a row; None picks the number with the largest tiles on a 16:9 screen.
        scale: Factor for each frame; None picks the largest one, up to 1, with which the picture
            fits 1920 x 1080 (a tile has at least one pixel, so two million frames fit).

    Returns:
        A new array ``(rows * tile height, columns * tile width, 3)`` of uint8.

    Raises:
        ConfigurationError: There is no frame, a frame is not as described above (its index is
            named), `columns` is not a positive integer, or `scale` is not a positive number.
    """
    return layout_for(frames, columns, scale).draw(frames)


def layout(
    count: int,
    height: int,
    width: int,
    columns: int | None = None,
    scale: float | None = None,
    screen: tuple[int, int] = SCREEN,
) -> Layout:
    """Arranges `count` frames of at most `height` x `width` pixels; see `mosaic`.

    Args:
        count: Number of frames, at least 1.
        height: Height of the largest frame, in pixels.
        width: Width of the largest frame, in pixels.
        columns: As in `mosaic`.
        scale: As in `mosaic`.
        screen: Height and width to fit, in pixels, where `columns` or `scale` is None.

    Raises:
        ConfigurationError: `count`, `height`, `width` or `columns` is not a positive integer, or
            `scale` is not a positive number.
    """
    count = positive_integer(count, "count")
    height = positive_integer(height, "height")
    width = positive_integer(width, "width")
    screen_height, screen_width = screen

    def extent(columns: int) -> float:
        """The larger share of the screen's height or width that unscaled tiles take."""
        rows = math.ceil(count / columns)
        return max(rows * height / screen_height, columns * width / screen_width)

    if columns is None:
        # Of equally good ones the first with the fewest empty cells.
        columns = min(range(1, count + 1), key=lambda c: (extent(c), math.ceil(count / c) * c))
    else:
        columns = positive_integer(columns, "columns")
    if scale is None:
        scale = min(1.0, 1.0 / extent(columns))
        # Down, so that the whole fits; the sum is for 600 * 0.2 = 119.99999999999999 and the like.
        tile_height, tile_width = int(height * scale + 1e-6), int(width * scale + 1e-6)
    else:
        scale = positive_number(scale, "scale")
        tile_height, tile_width = round(height * scale), round(width * scale)
    return Layout(
        count=count,
        rows=math.ceil(count / columns),
        columns=columns,
        tile_height=max(1, tile_height),
        tile_width=max(1, tile_width),
        scale=scale,
    )


def layout_for(
    frames: Frames,
    columns: int | None = None,
    scale: float | None = None,
    screen: tuple[int, int] = SCREEN,
) -> Layout:
    """The layout that suits these frames; arguments and errors as in `mosaic` and `layout`."""
    if len(frames) == 0:
        raise ConfigurationError("expected at least one frame, got none, at frames")
    shapes = [_check(f, i).shape for i, f in enumerate(frames) if f is not None]
    if not shapes:
        raise ConfigurationError(
            f"expected at least one frame, got None for each of {len(frames)} envs, at frames "
            "(are they made with render_mode='rgb_array'?)"
        )
    height, width = max(s[0] for s in shapes), max(s[1] for s in shapes)
    return layout(len(frames), height, width, columns, scale, screen)


@dataclass(frozen=True)
class Layout:
    """The geometry of a mosaic, which stays while the frames change; `layout` makes one.

    Attributes:
        count: Number of frames.
        rows: Number of rows of tiles.
        columns: Number of tiles in a row.
        tile_height: Height of each tile, in pixels.
        tile_width: Width of each tile, in pixels.
        scale: Factor for each frame; a frame that is too large for its tile gets a smaller one.
    """

    count: int
    rows: int
    columns: int
    tile_height: int
    tile_width: int
    scale: float

    @property
    def height(self) -> int:
        """Height of the picture, in pixels."""
        return self.rows * self.tile_height

    @property
    def width(self) -> int:
        """Width of the picture, in pixels."""
        return self.columns * self.tile_width

    def draw(self, frames: Frames) -> Picture:
        """Draws `count` frames of any sizes.

        Returns:
            A new array ``(height, width, 3)`` of uint8.

        Raises:
            ConfigurationError: The number of frames is not `count`, or one is not as `mosaic`
                describes (its index is named).
        """
        if len(frames) != self.count:
            raise ConfigurationError(f"expected {self.count} frames, got {len(frames)}, at frames")
        picture = np.zeros((self.height, self.width, 3), np.uint8)
        for index, frame in enumerate(frames):
            if frame is not None:
                row, column = divmod(index, self.columns)
                top, left = row * self.tile_height, column * self.tile_width
                tile = picture[top : top + self.tile_height, left : left + self.tile_width]
                self._draw_tile(tile, _rgb(_check(frame, index)))
        return picture

    def _draw_tile(self, tile: Picture, frame: Picture) -> None:
        # White envs next to each other would run into one: a dark line keeps them apart. It costs a
        # shrunk frame a pixel of its size, so that nothing is cut off; others are left as they are.
        line = 1 if self.scale < 1 and min(tile.shape[:2]) > 8 else 0
        room_height, room_width = self.tile_height - line, self.tile_width - line
        frame_height, frame_width = frame.shape[:2]
        scale = min(self.scale, self.tile_height / frame_height, self.tile_width / frame_width)
        height = min(room_height, max(1, round(frame_height * scale)))
        width = min(room_width, max(1, round(frame_width * scale)))
        top, left = (room_height - height) // 2, (room_width - width) // 2
        tile[top : top + height, left : left + width] = _resize(frame, height, width)


def _check(frame: npt.NDArray[np.uint8], index: int) -> npt.NDArray[np.uint8]:
    """Returns the frame, or says what is wrong with it."""
    where = f"at frames[{index}]"
    if not isinstance(frame, np.ndarray):
        raise ConfigurationError(
            f"expected a frame as a NumPy array, got {type(frame).__name__}, {where}"
        )
    shape = frame.shape
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)) or 0 in shape:
        raise ConfigurationError(
            "expected a frame of shape (height, width), with 1, 3 or 4 channels after them, "
            f"got shape {shape}, {where}"
        )
    if frame.dtype != np.uint8:
        raise ConfigurationError(f"expected a frame of dtype uint8, got {frame.dtype}, {where}")
    return frame


def _rgb(frame: npt.NDArray[np.uint8]) -> Picture:
    """Gives grey and RGBA frames, checked before, three channels."""
    if frame.ndim == 2:
        frame = frame[:, :, np.newaxis]
    if frame.shape[2] == 1:
        return np.broadcast_to(frame, (*frame.shape[:2], 3))
    if frame.shape[2] == 4:
        opacity = frame[:, :, 3:].astype(np.uint16)
        return (frame[:, :, :3] * opacity // 255).astype(np.uint8)
    return frame


def _resize(frame: Picture, height: int, width: int) -> Picture:
    """Gives each new pixel the mean of the area of `frame` that it covers."""
    old_height, old_width, channels = frame.shape
    if (old_height, old_width) == (height, width):
        return frame
    # First the rows, which are contiguous and most of the work; then, the small rest transposed,
    # the columns, as if they were rows.
    rows = _mean_rows(frame.reshape(old_height, -1), height)
    columns = _mean_rows(np.ascontiguousarray(rows.T).reshape(old_width, -1), width)
    columns += 0.5  # astype cuts off
    resized: Picture = columns.astype(np.uint8).reshape(width, channels, height)
    return resized.transpose(2, 0, 1)


def _mean_rows(
    array: npt.NDArray[np.uint8] | npt.NDArray[np.float32], size: int
) -> npt.NDArray[np.float32]:
    """Resizes ``(old size, n)`` to ``(size, n)`` by the mean over the rows that each covers."""
    result = np.zeros((size, array.shape[1]), np.float32)
    for rows, weights in _area_weights(len(array), size):
        result += weights * array[rows]
    return result


@functools.lru_cache(maxsize=64)
def _area_weights(old: int, new: int) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]]:
    """Which old rows the new ones cover, and how much of them.

    Returns:
        One pair for each of the few old rows that a new one can touch: their indices ``(new,)``
        and weights ``(new, 1)``. The weights of a new row sum up to 1.
    """
    # In units of 1 / new of an old row all borders are integers: nothing is lost to rounding.
    start = np.arange(new) * old
    first = start // new
    pairs = []
    for step in range((old - 1) // new + 2):
        row = first + step
        overlap = np.minimum(start + old, (row + 1) * new) - np.maximum(start, row * new)
        weights = np.maximum(overlap, 0).astype(np.float32) / np.float32(old)
        if weights.any():
            pairs.append((np.minimum(row, old - 1), weights[:, np.newaxis]))
    return pairs


def positive_integer(value: int, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ConfigurationError(f"expected a positive integer, got {value!r}, at {name}")
    return number


def positive_number(value: float, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < math.inf or isinstance(value, bool | str):
        raise ConfigurationError(f"expected a positive number, got {value!r}, at {name}")
    return number
