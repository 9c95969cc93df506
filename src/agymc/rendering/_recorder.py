"""Writing mosaics to a file: the last one as .png, all of them as .gif or .mp4.

Films are streamed to an ffmpeg process (the one that imageio-ffmpeg brings), so a film of any
length takes constant memory. Each file is written under a temporary name next to its own, and
renamed when it is complete: what has the final name is never half a file.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

from agymc.errors import AgymcError, ClosedError, ConfigurationError

from ._extras import load
from ._mosaic import Frames, Layout, Picture, layout, layout_for, positive_number

_FFMPEG_PATIENCE = 60.0
"""Seconds that ffmpeg may take to finish a film when all frames are written."""

_FILM_OPTIONS = {
    # yuv420p, because most players know no other; "faststart", to play while it still loads.
    ".mp4": "-codec:v libx264 -preset veryfast -crf 20 -pix_fmt yuv420p -movflags +faststart",
    # One palette per frame: one for the whole film would have to see all of it first. No dither:
    # most envs draw fewer than 256 colours, which need none, and it would make still parts flicker.
    ".gif": "-filter_complex [0:v]split[a][b];[a]palettegen=stats_mode=single[p];"
    "[b][p]paletteuse=new=1:dither=none -loop 0",
}


class MosaicRecorder:
    """Writes mosaics to a file, by its suffix: .png (the last one), .gif or .mp4 (all of them).

    The first frames fix the size of tiles and picture; later frames that are larger are shrunk,
    smaller ones centred. An existing file is replaced when the new one is complete, in `close`.

    Args:
        path: The file to write; its directory must exist.
        fps: Pictures per second of a film. A .gif counts hundredths of a second and has at most
            100; many viewers slow down beyond 50.
        columns: As in `mosaic`.
        scale: As in `mosaic`.

    Attributes:
        path: The file to write.

    Raises:
        ConfigurationError: The suffix is none of the three, the directory does not exist, or
            `fps`, `columns` or `scale` is out of its range.
        MissingExtraError: Pillow (.png) or imageio-ffmpeg (.gif, .mp4) is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fps: float = 30.0,
        columns: int | None = None,
        scale: float | None = None,
    ) -> None:
        self.path = Path(path)
        suffix = self.path.suffix.lower()
        if suffix not in (".png", ".gif", ".mp4"):
            raise ConfigurationError(
                f"expected a file name that ends with .png, .gif or .mp4, got {str(path)!r}, "
                "at path"
            )
        if not self.path.parent.is_dir():
            raise ConfigurationError(
                f"expected a directory that exists, got {str(self.path.parent)!r}, at path"
            )
        fps = positive_number(fps, "fps")
        layout(1, 1, 1, columns, scale)  # raises now what it would raise at the first add
        if suffix == ".gif" and fps > 100:
            raise ConfigurationError(f"expected at most 100 for a .gif, got {fps!r}, at fps")
        # With the suffix last, because Pillow and ffmpeg choose the format by it.
        temporary = self.path.with_name(f".{self.path.stem}.{os.getpid()}{suffix}")
        self._writer: _Writer = (
            _PngWriter(temporary) if suffix == ".png" else _FilmWriter(temporary, fps)
        )
        self._temporary = temporary
        self._columns, self._scale = columns, scale
        self._layout: Layout | None = None
        self._broken = False
        self._written: bool | None = None  # None until closed

    def add(self, frames: Frames) -> None:
        """Adds one picture.

        Args:
            frames: As in `mosaic`; as many each time. They are used at once, not kept.

        Raises:
            ConfigurationError: As in `mosaic`, or their number has changed.
            ClosedError: After `close`.
            AgymcError: ffmpeg has failed; the text has its own words.
        """
        if self._written is not None or self._broken:
            raise ClosedError(
                "expected an open recorder, got add() after close() or a failure, "
                f"at MosaicRecorder {str(self.path)!r}"
            )
        if self._layout is None:
            self._layout = layout_for(frames, self._columns, self._scale)
        picture = self._layout.draw(frames)
        try:
            self._writer.add(picture)
        except BaseException:
            # Ctrl-C too: half a picture may be in the stream, and whatever followed it would be
            # shifted. What came before can still be completed.
            self._broken = True
            raise

    def close(self) -> bool:
        """Completes the file; calling it again changes nothing.

        Returns:
            True if the file was written. False if nothing was added, or if `add` has already
            raised what went wrong: then there is no new file.

        Raises:
            AgymcError: ffmpeg has failed; the text has its own words.
            OSError: The file cannot be written.
        """
        if self._written is None:
            self._written = False
            try:
                if self._writer.finish():
                    os.replace(self._temporary, self.path)
                    self._written = True
            finally:
                self._temporary.unlink(missing_ok=True)
        return self._written

    def __enter__(self) -> MosaicRecorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Writer(Protocol):
    """Writes pictures of one size to a file."""

    def add(self, picture: Picture) -> None:
        """Adds a picture."""

    def finish(self) -> bool:
        """Completes the file; False if there is none, or none that is whole."""


class _PngWriter:
    """Keeps the last picture, and writes it in the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._image = load("PIL.Image", "pillow", "Writing a .png")
        self._last: Picture | None = None

    def add(self, picture: Picture) -> None:
        self._last = picture

    def finish(self) -> bool:
        if self._last is None:
            return False
        self._image.fromarray(self._last).save(self._path)
        return True


class _FilmWriter:
    """Streams pictures to an ffmpeg process, which starts with the first of them."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._fps = path, fps
        purpose = f"Writing a {path.suffix}"
        self._program: str = load("imageio_ffmpeg", "imageio-ffmpeg", purpose).get_ffmpeg_exe()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, picture: Picture) -> None:
        height, width = picture.shape[:2]
        if self._path.suffix == ".mp4" and (height % 2 or width % 2):
            # yuv420p has one colour for 2 x 2 pixels.
            picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)))
        if self._process is None:
            self._process = self._start(*picture.shape[:2])
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(picture.data)
        except OSError:
            self.finish()  # has ffmpeg's own words, which say more than "broken pipe"
            raise

    def finish(self) -> bool:
        process, self._process = self._process, None
        if process is None:
            return False
        with self._complaints:
            try:
                process.communicate(timeout=_FFMPEG_PATIENCE)  # closes its stdin: the end
            except subprocess.TimeoutExpired:
                # A process forked from this one may hold the other end of the pipe open.
                process.kill()
                process.wait()
            if process.returncode != 0:
                self._complaints.seek(0)
                words = self._complaints.read().decode(errors="replace").strip()
                raise AgymcError(
                    f"expected ffmpeg to write {str(self._path)!r}, got exit code "
                    f"{process.returncode}, at MosaicRecorder: {words}"
                )
        return True

    def _start(self, height: int, width: int) -> subprocess.Popen[bytes]:
        rate = str(Fraction(self._fps).limit_denominator(100_000))
        source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {rate} -i pipe:0"
        options = f"-v error -nostdin -y {source} {_FILM_OPTIONS[self._path.suffix]}"
        # A file, not a pipe: one that nobody reads could fill up and stop ffmpeg.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (finish() closes it)
        return subprocess.Popen(
            [self._program, *options.split(), str(self._path.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            # Ctrl-C is for this process; ffmpeg is to complete the film.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
