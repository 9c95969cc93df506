"""The mosaic, its window, its recorder and the budget for showing it."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from agymc.errors import AgymcError, ClosedError, ConfigurationError, MissingExtraError
from agymc.rendering import (
    Frames,
    MosaicRecorder,
    MosaicWindow,
    Picture,
    ShowBudget,
    display_available,
    layout,
    mosaic,
)


def plain(*colour: int, height: int = 4, width: int = 6) -> Picture:
    """A frame of one colour."""
    return np.full((height, width, 3), colour, np.uint8)


def noise(*shape: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def execute(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a fresh interpreter, with a display only if `environment` has one."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def run(script: str, **environment: str) -> str:
    """Like `execute`; gives what the script prints, which must not fail."""
    done = execute(script, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------- mosaic


def test_tiles_row_by_row() -> None:
    a, b, c = noise(4, 6, 3, seed=1), noise(4, 6, 3, seed=2), noise(4, 6, 3, seed=3)
    picture = mosaic([a, b, c], columns=2, scale=1)
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(
        picture, np.vstack([np.hstack([a, b]), np.hstack([c, np.zeros_like(c)])])
    )


def test_frames_that_fit_are_shown_as_they_are() -> None:
    frame = noise(210, 160, 3)
    np.testing.assert_array_equal(mosaic([frame]), frame)


def test_result_is_the_callers_own() -> None:
    frame = noise(4, 6, 3)
    before = frame.copy()
    mosaic([frame])[:] = 0
    np.testing.assert_array_equal(frame, before)


def test_frames_may_be_one_array() -> None:
    frames = noise(4, 8, 6, 3)
    # A NumPy array is no `Sequence` for a type checker, but all that is asked of one works.
    picture = mosaic(frames, columns=4, scale=1)  # type: ignore[arg-type]
    np.testing.assert_array_equal(picture, np.hstack(list(frames)))


def test_none_is_a_black_tile() -> None:
    picture = mosaic([None, plain(9, 9, 9)], columns=2, scale=1)
    assert picture[:, :6].max() == 0
    assert picture[:, 6:].min() == 9


def test_smaller_frames_are_centred() -> None:
    picture = mosaic([plain(1, 1, 1, height=8, width=8), plain(9, 9, 9)], columns=2, scale=1)
    expected = np.zeros((8, 8, 3), np.uint8)
    expected[2:6, 1:7] = 9
    np.testing.assert_array_equal(picture[:, 8:], expected)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 1)], ids=str)
def test_grey_frames_get_three_channels(shape: tuple[int, ...]) -> None:
    frame = noise(*shape)
    picture = mosaic([frame])
    for channel in range(3):
        np.testing.assert_array_equal(picture[:, :, channel], frame.reshape(4, 6))


def test_rgba_is_shown_on_black() -> None:
    frame = np.zeros((1, 3, 4), np.uint8)
    frame[0, :] = [(200, 100, 50, 255), (200, 100, 50, 0), (200, 100, 50, 51)]
    assert mosaic([frame]).tolist() == [[[200, 100, 50], [0, 0, 0], [40, 20, 10]]]


@pytest.mark.parametrize(
    ("count", "height", "width", "rows", "columns"),
    [
        (1, 400, 600, 1, 1),
        (2, 400, 600, 1, 2),
        (4, 400, 600, 2, 2),
        (12, 100, 100, 3, 4),  # 3 x 5 tiles would be as large, with three empty cells
        (200, 400, 600, 13, 16),
        (200, 210, 160, 9, 23),
        (3, 100, 1000, 3, 1),
        (3, 1000, 100, 1, 3),
    ],
)
def test_columns_suit_a_wide_screen(
    count: int, height: int, width: int, rows: int, columns: int
) -> None:
    chosen = layout(count, height, width)
    assert (chosen.rows, chosen.columns) == (rows, columns)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50, 200, 1000, 3001])
@pytest.mark.parametrize("size", [(400, 600), (210, 160), (84, 84), (1080, 1920), (64, 1000)])
def test_picture_fits_the_screen(count: int, size: tuple[int, int]) -> None:
    chosen = layout(count, *size)
    assert chosen.height <= 1080
    assert chosen.width <= 1920
    assert chosen.scale <= 1
    assert chosen.rows * chosen.columns >= count
    # No larger whole-pixel tile would have fitted, in at least one direction.
    assert (
        chosen.scale == 1
        or chosen.rows * (chosen.tile_height + 1) > 1080
        or chosen.columns * (chosen.tile_width + 1) > 1920
    )


def test_200_cartpoles_on_one_screen_are_recognisable() -> None:
    """Drawn like CartPole: white, a black cart, a brown pole, a track one pixel thin."""
    frames = []
    for i in range(200):
        frame = plain(255, 255, 255, height=400, width=600)
        frame[300] = 0
        cart = 5 * (10 + i % 100)
        frame[285:315, cart - 25 : cart + 25] = 0
        frame[185:285, cart - 5 : cart + 5] = (202, 152, 101)
        frames.append(frame)
    picture = mosaic(frames)
    assert picture.shape == (13 * 80, 16 * 120, 3)
    for i in range(200):
        tile = picture[80 * (i // 16) :, 120 * (i % 16) :][:79, :119]
        cart = 10 + i % 100
        rows, columns = np.nonzero(tile.max(axis=2) < 60)
        assert abs(columns.mean() - cart) < 1.5
        assert abs(rows.mean() - 59) < 1.5
        pole = tile[45]
        assert abs(np.abs(pole.astype(int) - (202, 152, 101)).sum(axis=1).argmin() - cart) < 2
        line = tile[55:65, 1 if cart > 60 else 117, 0]
        assert line.min() < 230  # the thin line is faint, but there
    # Neighbours, both white, are kept apart.
    assert picture[:80, 119].max() == 0
    assert picture[79, :120].max() == 0


@pytest.mark.parametrize("factor", [2, 3, 5])
def test_shrinking_is_the_mean_of_the_area(factor: int) -> None:
    frame = noise(4 * factor, 6 * factor, 3)
    mean = frame.reshape(4, factor, 6, factor, 3).mean(axis=(1, 3))
    shrunk = mosaic([frame], scale=1 / factor)
    assert np.abs(shrunk - mean).max() <= 0.501  # tiles this small have no line between them


@pytest.mark.parametrize("new", [1, 2, 3, 4, 5, 6, 7])
def test_shrinking_by_a_fraction_is_the_mean_of_the_area(new: int) -> None:
    old = 7
    frame = noise(old, old, 3)
    # As if by way of a picture in which both sizes are whole.
    fine = frame.repeat(new, axis=0).repeat(new, axis=1).astype(float)
    mean = fine.reshape(new, old, new, old, 3).mean(axis=(1, 3))
    shrunk = mosaic([frame], scale=new / old)
    assert np.abs(shrunk - mean).max() <= 0.501


def test_extremes_survive_shrinking() -> None:
    """Weights that sum up to a little more than 1 would turn white into black."""
    for new in range(9, 50):
        shrunk = mosaic([plain(255, 0, 255, height=97, width=89)], scale=new / 97)[:-1, :-1]
        assert shrunk[:, :, (0, 2)].min() == 255
        assert shrunk[:, :, 1].max() == 0


def test_a_scale_above_one_repeats_pixels() -> None:
    frame = noise(4, 6, 3)
    np.testing.assert_array_equal(
        mosaic([frame], scale=3), frame.repeat(3, axis=0).repeat(3, axis=1)
    )


@pytest.mark.parametrize(
    ("frames", "options", "text"),
    [
        ([], {}, "expected at least one frame, got none, at frames"),
        (
            [None, None],
            {},
            "expected at least one frame, got None for each of 2 envs, at frames "
            "(are they made with render_mode='rgb_array'?)",
        ),
        (
            [plain(0), "CartPole"],
            {},
            "expected a frame as a NumPy array, got str, at frames[1]",
        ),
        (
            [plain(0), None, np.zeros(3, np.uint8)],
            {},
            "expected a frame of shape (height, width), with 1, 3 or 4 channels after them, "
            "got shape (3,), at frames[2]",
        ),
        (
            [np.zeros((4, 6, 2), np.uint8)],
            {},
            "expected a frame of shape (height, width), with 1, 3 or 4 channels after them, "
            "got shape (4, 6, 2), at frames[0]",
        ),
        (
            [np.zeros((0, 6, 3), np.uint8)],
            {},
            "expected a frame of shape (height, width), with 1, 3 or 4 channels after them, "
            "got shape (0, 6, 3), at frames[0]",
        ),
        (
            [np.zeros((4, 6, 3))],
            {},
            "expected a frame of dtype uint8, got float64, at frames[0]",
        ),
        ([plain(0)], {"columns": 0}, "expected a positive integer, got 0, at columns"),
        ([plain(0)], {"columns": 2.5}, "expected a positive integer, got 2.5, at columns"),
        ([plain(0)], {"columns": True}, "expected a positive integer, got True, at columns"),
        ([plain(0)], {"scale": 0}, "expected a positive number, got 0, at scale"),
        ([plain(0)], {"scale": -1.5}, "expected a positive number, got -1.5, at scale"),
        ([plain(0)], {"scale": float("nan")}, "expected a positive number, got nan, at scale"),
        ([plain(0)], {"scale": float("inf")}, "expected a positive number, got inf, at scale"),
        ([plain(0)], {"scale": "big"}, "expected a positive number, got 'big', at scale"),
    ],
)
def test_mosaic_says_what_is_wrong(frames: Frames, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        mosaic(frames, **options)
    assert str(caught.value) == text


def test_layout_says_what_is_wrong() -> None:
    with pytest.raises(ConfigurationError, match=r"^expected a positive integer, got 0, at count$"):
        layout(0, 4, 6)


def test_a_layout_keeps_its_size() -> None:
    fixed = layout(2, 4, 6, columns=2)
    assert fixed.draw([None, None]).max() == 0
    large = fixed.draw([plain(8, 8, 8, height=8, width=8), None])
    assert large.shape == (4, 12, 3)
    # Shrunk, not stretched: 8 x 8 becomes 4 x 4, in the middle of 4 x 6.
    np.testing.assert_array_equal(large[:, :6, 0], [[0, 8, 8, 8, 8, 0]] * 4)


def test_a_layout_wants_its_number_of_frames() -> None:
    with pytest.raises(ConfigurationError, match=r"^expected 2 frames, got 1, at frames$"):
        layout(2, 4, 6).draw([plain(0)])


# ---------------------------------------------------------------- ShowBudget


class Clock:
    """A clock that goes on only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_refresh_is_due_at_once() -> None:
    assert ShowBudget(clock=Clock()).due()
    assert ShowBudget().due()


def test_no_refresh_is_due_during_another() -> None:
    clock = Clock()
    budget = ShowBudget(clock=clock)
    with budget:
        clock.now += 10
        assert not budget.due()


def test_quick_refreshes_are_limited_by_their_rate() -> None:
    clock = Clock()
    budget = ShowBudget(max_hz=4, clock=clock)
    with budget:
        clock.now += 0.0625
    clock.now = 100.1875
    assert not budget.due()
    clock.now = 100.25  # from start to start, not from end to start
    assert budget.due()


@pytest.mark.parametrize(("share", "rest"), [(0.5, 2.0), (0.25, 6.0), (0.8, 0.5)])
def test_slow_refreshes_are_limited_by_their_share(share: float, rest: float) -> None:
    clock = Clock()
    budget = ShowBudget(max_share=share, clock=clock)
    with budget:
        clock.now += 2.0
    clock.now = 102.0 + rest - 0.01
    assert not budget.due()
    clock.now = 102.0 + rest + 0.01
    assert budget.due()


def test_a_share_of_one_needs_no_rest() -> None:
    clock = Clock()
    budget = ShowBudget(max_hz=float("inf"), max_share=1, clock=clock)
    with budget:
        clock.now += 2.0
    assert budget.due()


def test_showing_halves_the_speed_at_most() -> None:
    """A run of steps that take 1 ms, with refreshes that take from 0.1 to 100 ms."""
    clock = Clock()
    budget = ShowBudget(clock=clock)
    shown, refreshes = 0.0, 0
    for step in range(10_000):
        clock.now += 0.001
        if budget.due():
            duration = 0.0001 * 10 ** (step % 4)
            with budget:
                clock.now += duration
            shown, refreshes = shown + duration, refreshes + 1
    assert shown <= 0.5 * (clock.now - 100.0) + 0.1
    assert refreshes <= 50 * (clock.now - 100.0) + 1
    assert refreshes > 100


def test_a_refresh_that_fails_is_counted_too() -> None:
    clock = Clock()
    budget = ShowBudget(clock=clock)
    with pytest.raises(KeyError), budget:
        clock.now += 5
        raise KeyError
    assert not budget.due()
    clock.now += 5
    assert budget.due()


def test_start_and_stop_alternate() -> None:
    budget = ShowBudget()
    with pytest.raises(AgymcError, match=r"^expected start\(\) first, got stop\(\), at ShowBudget"):
        budget.stop()
    budget.start()
    with pytest.raises(AgymcError, match=r"^expected stop\(\) first, got a second start\(\), at "):
        budget.start()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_hz": 0}, "expected a number > 0, got 0, at max_hz"),
        ({"max_hz": float("nan")}, "expected a number > 0, got nan, at max_hz"),
        ({"max_share": 0}, "expected a number > 0 and <= 1, got 0, at max_share"),
        ({"max_share": 1.5}, "expected a number > 0 and <= 1, got 1.5, at max_share"),
    ],
)
def test_budget_says_what_is_wrong(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ShowBudget(**settings)
    assert str(caught.value) == text


# ---------------------------------------------------------------- MosaicRecorder


def read(path: Path) -> npt.NDArray[np.uint8]:
    """All pictures of a file, ``(pictures, height, width, 3)``."""
    iio = pytest.importorskip("imageio.v3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # imageio does not close its pipes
        pictures: npt.NDArray[np.uint8] = iio.imread(path, index=None)
        gc.collect()
    return pictures.reshape(-1, *pictures.shape[-3:])


@pytest.fixture
def ffmpeg() -> None:
    pytest.importorskip("imageio_ffmpeg")


def test_png_is_the_last_mosaic(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    first, last = [noise(4, 6, 3, seed=1), None], [noise(4, 6, 3, seed=2), noise(4, 6, 3, seed=3)]
    with MosaicRecorder(tmp_path / "a.PNG", columns=1) as recorder:
        recorder.add(first)
        recorder.add(last)
    np.testing.assert_array_equal(read(tmp_path / "a.PNG")[0], mosaic(last, columns=1))


@pytest.mark.usefixtures("ffmpeg")
def test_gif_is_faithful_in_few_colours(tmp_path: Path) -> None:
    sets = [[plain(40 * i, 255, 7), plain(0, 9, 20 * i)] for i in range(6)]
    path = tmp_path / "a.gif"
    with MosaicRecorder(path, fps=10, columns=2) as recorder:
        for frames in sets:
            recorder.add(frames)
    pictures = read(path)
    assert len(pictures) == 6
    for picture, frames in zip(pictures, sets, strict=True):
        # ffmpeg's palettes are off by one now and then.
        np.testing.assert_allclose(picture.astype(int), mosaic(frames, columns=2), atol=1)
    iio = pytest.importorskip("imageio.v3")
    metadata = iio.immeta(path, index=0)
    assert metadata["duration"] == 100  # milliseconds of one picture
    assert metadata["loop"] == 0  # for ever


@pytest.mark.usefixtures("ffmpeg")
def test_mp4_plays_everywhere(tmp_path: Path) -> None:
    sets = [[plain(40 * i, 40 * i, 40 * i, height=64, width=64)] * 2 for i in range(6)]
    path = tmp_path / "a.mp4"
    with MosaicRecorder(path, fps=12.5, columns=2) as recorder:
        for frames in sets:
            recorder.add(frames)
    pictures = read(path)
    assert pictures.shape == (6, 64, 128, 3)
    for i, picture in enumerate(pictures):
        assert np.abs(picture.astype(int) - 40 * i).max() <= 4
    iio = pytest.importorskip("imageio.v3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        metadata = iio.immeta(path, plugin="FFMPEG")
        gc.collect()
    assert metadata["codec"] == "h264"
    assert metadata["pix_fmt"].startswith("yuv420p")
    assert metadata["fps"] == 12.5


@pytest.mark.usefixtures("ffmpeg")
def test_mp4_of_odd_size_is_padded(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    with MosaicRecorder(path) as recorder:
        recorder.add([plain(200, 200, 200, height=65, width=63)])
    (picture,) = read(path)
    assert picture.shape == (66, 64, 3)
    assert picture[:60, :58].min() > 190
    assert picture[65].max() < 60


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_first_frames_fix_the_size_of_a_film(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    with MosaicRecorder(path, columns=2) as recorder:
        recorder.add([None, plain(255, 255, 255, height=32, width=32)])
        recorder.add([plain(255, 255, 255, height=99, width=50), None])
        recorder.add([None, None])
    assert read(path).shape == (3, 32, 64, 3)


def test_number_of_frames_must_not_change(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    recorder = MosaicRecorder(tmp_path / "a.png")
    recorder.add([plain(0), plain(0)])
    with pytest.raises(ConfigurationError, match=r"^expected 2 frames, got 3, at frames$"):
        recorder.add([plain(0)] * 3)
    recorder.add([plain(7, 7, 7), None])  # a refused set spoils nothing
    assert recorder.close()
    assert read(tmp_path / "a.png").max() == 7


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize("suffix", [".png", ".gif", ".mp4"])
def test_file_appears_when_it_is_complete(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / f"a{suffix}"
    path.write_text("the film before")
    recorder = MosaicRecorder(str(path))
    recorder.add([plain(7, 7, 7)])
    assert path.read_text() == "the film before"
    assert recorder.close() is True
    assert recorder.close() is True
    assert read(path).shape == (1, 4, 6, 3)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ClosedError) as caught:
        recorder.add([plain(0)])
    assert str(caught.value) == (
        "expected an open recorder, got add() after close() or a failure, "
        f"at MosaicRecorder {str(path)!r}"
    )


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize("suffix", [".png", ".gif", ".mp4"])
def test_nothing_added_gives_no_file(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("PIL")
    recorder = MosaicRecorder(tmp_path / f"a{suffix}")
    assert recorder.close() is False
    assert recorder.close() is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("ffmpeg")
def test_a_run_that_fails_leaves_its_film(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    with pytest.raises(KeyError), MosaicRecorder(path) as recorder:
        recorder.add([plain(0)])
        raise KeyError
    assert len(read(path)) == 1


@pytest.mark.usefixtures("ffmpeg")
def test_interruption_amid_a_picture_keeps_those_before(tmp_path: Path) -> None:
    class Interrupted:
        """Writes half of what it gets, then Ctrl-C comes."""

        def __init__(self, pipe: Any) -> None:
            self.pipe = pipe

        def __getattr__(self, name: str) -> Any:
            return getattr(self.pipe, name)

        def write(self, data: memoryview) -> None:
            self.pipe.write(bytes(data)[: data.nbytes // 2])
            raise KeyboardInterrupt

    path = tmp_path / "a.gif"
    recorder = MosaicRecorder(path)
    recorder.add([plain(1, 1, 1)])
    recorder.add([plain(2, 2, 2)])
    process: Any = recorder._writer._process  # type: ignore[attr-defined]
    process.stdin = Interrupted(process.stdin)
    with pytest.raises(KeyboardInterrupt):
        recorder.add([plain(3, 3, 3)])
    with pytest.raises(ClosedError, match="after close\\(\\) or a failure"):
        recorder.add([plain(4, 4, 4)])
    assert recorder.close() is True
    assert read(path)[:, 0, 0, 0].tolist() == [1, 2]


@pytest.fixture
def broken_ffmpeg(ffmpeg: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ffmpeg that reads little and fails."""
    if sys.platform == "win32":
        pytest.skip("needs a shell script as a program")
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nhead -c 10 >/dev/null\necho 'disk full' >&2\nexit 28\n")
    program.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))


BROKEN = r"^expected ffmpeg to write '.*mp4', got exit code 28, at MosaicRecorder: disk full$"


@pytest.mark.usefixtures("broken_ffmpeg")
def test_ffmpeg_that_fails_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    recorder = MosaicRecorder(path)
    recorder.add([plain(0)])
    with pytest.raises(AgymcError, match=BROKEN):
        recorder.close()
    assert recorder.close() is False
    assert not path.exists()


@pytest.mark.usefixtures("broken_ffmpeg")
def test_ffmpeg_that_fails_amid_a_film(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    large = plain(0, height=1000, width=1000)  # more than a pipe holds: the write must fail
    with pytest.raises(AgymcError, match=BROKEN), MosaicRecorder(path) as recorder:
        for _ in range(5):
            recorder.add([large])
    assert recorder.close() is False
    assert not path.exists()


@pytest.mark.parametrize("name", ["a.avi", "a", "png"])
def test_recorder_names_the_suffixes_it_knows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(ConfigurationError) as caught:
        MosaicRecorder(path)
    assert str(caught.value) == (
        f"expected a file name that ends with .png, .gif or .mp4, got {str(path)!r}, at path"
    )


def test_recorder_wants_a_directory_that_exists(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MosaicRecorder(tmp_path / "no" / "a.mp4")
    assert str(caught.value) == (
        f"expected a directory that exists, got {str(tmp_path / 'no')!r}, at path"
    )


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("a.mp4", {"fps": 0}, "expected a positive number, got 0, at fps"),
        ("a.gif", {"fps": 120}, "expected at most 100 for a .gif, got 120.0, at fps"),
        ("a.png", {"columns": -1}, "expected a positive integer, got -1, at columns"),
        ("a.png", {"scale": 0.0}, "expected a positive number, got 0.0, at scale"),
    ],
)
def test_recorder_says_at_once_what_is_wrong(
    tmp_path: Path, name: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MosaicRecorder(tmp_path / name, **options)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("a.png", "PIL.Image", "pillow"),
        ("a.gif", "imageio_ffmpeg", "imageio-ffmpeg"),
        ("a.mp4", "imageio_ffmpeg", "imageio-ffmpeg"),
    ],
)
def test_recorder_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    text = (
        f"Writing a {name[1:]} needs the package {package!r}, .*: pip install 'agymc\\[render\\]'$"
    )
    with pytest.raises(MissingExtraError, match=f"^{text}"):
        MosaicRecorder(tmp_path / name)


# ---------------------------------------------------------------- MosaicWindow


def test_nothing_optional_is_imported() -> None:
    script = """
        import sys, agymc.rendering
        print({"pygame", "PIL", "imageio", "imageio_ffmpeg"} & set(sys.modules))
    """
    assert run(script) == "set()\n"


def test_window_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setenv("SDL_NO_SIGNAL_HANDLERS", "1")  # restores what the window sets
    text = (
        "^A window that shows the envs needs .* 'pygame-ce', .*: pip install 'agymc\\[render\\]'$"
    )
    with pytest.raises(MissingExtraError, match=text):
        MosaicWindow()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"SDL_VIDEODRIVER": "dummy"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_display_available(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: bool
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert display_available() is expected


PRELUDE = """
import os, signal
import numpy as np, pygame
from agymc.errors import AgymcError
from agymc.rendering import MosaicWindow, mosaic
frames = [np.full((40, 60, 3), 20 * i, np.uint8) for i in range(6)]
window = MosaicWindow(title="six", columns=3)
def shown():
    return pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
"""


def run_window(script: str) -> str:
    """Runs a script that shows `frames` in `window`, on a display that nobody sees."""
    pytest.importorskip("pygame")
    return run(PRELUDE + textwrap.dedent(script), SDL_VIDEODRIVER="dummy")


def test_window_shows_the_mosaic() -> None:
    run_window("""
        assert not window.is_open
        window.show(frames)
        assert window.is_open
        assert pygame.display.get_caption()[0] == "six"
        np.testing.assert_array_equal(shown(), mosaic(frames, columns=3))
        window.show(frames[::-1])
        np.testing.assert_array_equal(shown(), mosaic(frames[::-1], columns=3))
    """)


def test_window_keeps_its_size_while_the_number_of_envs_is_the_same() -> None:
    run_window("""
        window.show(frames)
        window.show([np.zeros((400, 100, 3), np.uint8), *frames[1:5], None])
        assert shown().shape == (80, 180, 3)
        window.show(frames[:2])
        assert shown().shape == (40, 180, 3)
    """)


def test_window_fits_its_screen() -> None:
    run_window("""
        window.show([np.zeros((400, 600, 3), np.uint8)] * 200)
        (width, height), = pygame.display.get_desktop_sizes()
        assert shown().shape[0] <= 0.9 * height and shown().shape[1] <= 0.9 * width
    """)


def test_user_may_close_the_window() -> None:
    run_window("""
        window.show(frames)
        assert not window.closed_by_user
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        window.pump()
        assert window.closed_by_user and not window.is_open
        window.show(frames)
        assert not window.is_open and not pygame.display.get_init()
        window.close()
    """)


def test_close_ends_the_display_and_nothing_else() -> None:
    run_window("""
        pygame.font.init()
        window.show(frames)
        window.close()
        window.close()
        assert not window.is_open and not pygame.display.get_init()
        assert not window.closed_by_user
        assert pygame.font.get_init()
        try:
            window.show(frames)
        except AgymcError as error:
            assert str(error) == (
                "expected an open window, got show() after close(), at MosaicWindow"
            ), error
        else:
            raise AssertionError("shown after close")
        with MosaicWindow() as other:
            other.show(frames)
        assert not pygame.display.get_init()
    """)


def test_close_leaves_a_display_that_an_env_had_initialised() -> None:
    run_window("""
        pygame.display.init()
        window.show(frames)
        window.close()
        assert pygame.display.get_init() and pygame.display.get_surface() is None
    """)


def test_close_before_any_show_touches_nothing() -> None:
    run_window("""
        pygame.display.init()
        surface = pygame.display.set_mode((5, 5))
        window.close()
        assert pygame.display.get_surface() is surface
    """)


def test_window_outlives_an_env_that_quits_pygame() -> None:
    run_window("""
        window.show(frames)
        pygame.quit()
        assert not window.is_open
        window.pump()
        window.show(frames)
        assert window.is_open and not window.closed_by_user
        np.testing.assert_array_equal(shown(), mosaic(frames, columns=3))
    """)


def test_window_does_not_take_the_place_of_another() -> None:
    run_window("""
        pygame.display.init()
        surface = pygame.display.set_mode((70, 50))
        try:
            window.show(frames)
        except AgymcError as error:
            assert str(error) == (
                "expected no other pygame window in this process, which can have only one, "
                "got one of 70 x 50 pixels, at MosaicWindow"
            ), error
        else:
            raise AssertionError("shown in another's window")
        window.close()
        assert pygame.display.get_surface() is surface and surface.get_size() == (70, 50)
    """)


def test_bad_frames_do_not_close_the_window() -> None:
    run_window("""
        for bad in ([], [None] * 6, [np.zeros(3)] * 6):
            try:
                window.show(bad)
            except AgymcError:
                pass
            else:
                raise AssertionError(bad)
        window.show(frames)
        try:
            window.show([np.zeros(3)] * 6)
        except AgymcError as error:
            assert str(error).endswith("got shape (3,), at frames[0]"), error
        window.show(frames)
        assert window.is_open
        window.close()
        assert not pygame.display.get_init()
    """)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send")
def test_run_can_still_be_terminated() -> None:
    """SDL would otherwise catch SIGTERM, and close the window instead of ending the process."""
    pytest.importorskip("pygame")
    script = PRELUDE + "window.show(frames); os.kill(os.getpid(), signal.SIGTERM); signal.pause()"
    assert execute(script, SDL_VIDEODRIVER="dummy").returncode == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a display")
def test_no_display_is_an_error_of_its_own() -> None:
    pytest.importorskip("pygame")
    text = run("""
        import numpy as np
        from agymc.errors import NoDisplayError
        from agymc.rendering import MosaicWindow
        window = MosaicWindow()
        for _ in range(2):
            try:
                window.show([np.zeros((4, 6, 3), np.uint8)])
            except NoDisplayError as error:
                print(error)
        window.close()
    """)
    assert re.fullmatch(r"(expected a display, got .*, at MosaicWindow\n){2}", text)


def test_window_says_at_once_what_is_wrong() -> None:
    with pytest.raises(ConfigurationError, match=r"^expected a positive number, got 0, at scale$"):
        MosaicWindow(scale=0)
