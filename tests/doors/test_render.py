"""Pictures through both doors, from every engine. Nothing here needs a display."""

from __future__ import annotations

import functools
import gc
import math
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.doors.envs import FRAME, Old, TransposedFrames, Walk

import agymc
import agymc.batch_env
import agymc.workers.process

FRAME_BYTES = math.prod(FRAME)


def walks(
    door: Any, engine: str, *labels: int, cls: Any = Walk, mode: str | None = "rgb_array"
) -> Any:
    env_fns = [functools.partial(cls, label=label, length=50, render_mode=mode) for label in labels]
    return door(env_fns, engine=engine)


def frames_of(envs: Any) -> list[Any]:
    if isinstance(envs, agymc.BatchEnv):
        frames = envs.render("rgb_array")
        assert type(frames) is list
        return frames
    frames = envs.render()
    assert type(frames) is tuple
    return list(frames)


both_doors = pytest.mark.parametrize("door", [agymc.make, agymc.make_vec])


# ---------------------------------------------------------------------- frames


@both_doors
def test_equal_to_those_of_single_envs(door, engine):
    singles = [gymnasium.make("CartPole-v1", render_mode="rgb_array") for _ in range(2)]
    for seed, single in enumerate(singles, 3):
        single.reset(seed=seed)
    with door("CartPole-v1", 2, engine=engine, render_mode="rgb_array") as envs:
        envs.reset(seed=3)
        for _ in range(2):
            for frame, single in zip(frames_of(envs), singles, strict=True):
                expected = single.render()
                assert frame.dtype == np.uint8
                assert frame.shape == expected.shape == (400, 600, 3)
                assert frame.tobytes() == expected.tobytes()
            envs.step([0, 1])
            for action, single in enumerate(singles):
                single.step(action)
    for single in singles:
        single.close()


@both_doors
@pytest.mark.parametrize("cls", [Walk, TransposedFrames])
def test_they_are_the_callers_own(door, engine, cls):
    with walks(door, engine, 1, 2, cls=cls) as envs:
        envs.reset()
        first = frames_of(envs)
        copies = [frame.copy() for frame in first]
        envs.step([0, 0])
        second = frames_of(envs)
        for frame, copy in zip(first, copies, strict=True):
            assert np.array_equal(frame, copy)
            assert frame.flags.writeable
            frame[:] = 77
        assert [frame.max() for frame in second] == [201, 201]
        assert [frame.min() for frame in frames_of(envs)] == [1, 2]
    gc.collect()
    assert [frame.max() for frame in second] == [201, 201]  # they also outlive the envs


@both_doors
@pytest.mark.parametrize("cls", [Walk, TransposedFrames])
@pytest.mark.parametrize("engine", [e for e in sorted(agymc.ENGINES) if "process" in e])
def test_from_processes_they_travel_in_shared_memory(door, engine, cls, monkeypatch):
    received: list[tuple[int, int]] = []
    load = agymc.workers.process.load

    def noting(body: bytes, descriptor: int) -> Any:
        received.append((len(body), descriptor))
        return load(body, descriptor)

    with walks(door, engine, 1, 2, 3, cls=cls) as envs:
        envs.reset()
        monkeypatch.setattr(agymc.workers.process, "load", noting)
        frames = frames_of(envs)
    assert [frame.nbytes for frame in frames] == [FRAME_BYTES] * 3
    assert received, "nothing was received"
    for pickled, descriptor in received:
        assert pickled < 5_000 < FRAME_BYTES
        assert descriptor >= 0


def test_the_list_of_all_frames(engine):
    single = gymnasium.make("CartPole-v1", render_mode="rgb_array_list")
    single.reset(seed=1)
    single.step(0)
    expected = single.render()
    single.close()
    with agymc.make_vec("CartPole-v1", 2, engine=engine, render_mode="rgb_array_list") as envs:
        envs.reset(seed=1)
        envs.step(np.array([0, 0]))
        first, second = envs.render()
        assert len(first) == len(second) == len(expected) == 2
        assert np.array_equal(first, expected)
        assert all(frame.flags.writeable for frame in first)
        assert envs.render() == ([], [])


def test_text(engine):
    single = gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=False)
    single.reset(seed=0)
    single.step(2)
    expected = single.render()
    kwargs = {"render_mode": "ansi", "is_slippery": False, "engine": engine}
    with agymc.make_vec("FrozenLake-v1", 2, **kwargs) as envs:
        envs.reset(seed=0)
        envs.step(np.array([2, 2]))
        assert envs.render() == (expected, expected)
    with agymc.make("FrozenLake-v1", 2, **kwargs) as envs:
        envs.reset(seed=0)
        envs.step([2, 2])
        assert envs.render("ansi") == [expected, expected]
        with pytest.raises(
            agymc.ConfigurationError, match="render_mode='ansi', which gives no 'rg"
        ):
            envs.render("rgb_array")
        with pytest.raises(
            agymc.ConfigurationError, match="a mode out of 'human', 'rgb_array', 'a"
        ):
            envs.render("svg")


def test_human_mode_of_the_vector_door_is_each_envs_own():
    with agymc.make_vec("CartPole-v1", 2, engine="process", render_mode="human") as envs:
        envs.reset()
        envs.step(np.array([0, 1]))
        assert envs.render() == (None, None)
        assert envs.render_mode == "human"


@both_doors
def test_classic_envs(door, engine):
    with door(Old, 2, engine=engine) as envs:
        envs.reset()
        envs.step([0, 0])
        for frame in frames_of(envs):
            assert (frame.shape, frame.min(), frame.max()) == ((4, 6, 3), 1, 1)


def test_the_classic_door_makes_frames_unless_told_otherwise(engine):
    with agymc.make("CartPole-v1", 1, engine=engine) as envs:
        assert envs.render_mode == "rgb_array"
        with pytest.raises(agymc.EnvError, match="env 0 raised ResetNeeded in render"):
            envs.render("rgb_array")
    with agymc.make("CartPole-v1", 1, engine=engine, render_mode=None) as envs:
        envs.reset()
        with pytest.raises(
            agymc.ConfigurationError,
            match=r"made with render_mode=None, .* made with: \['human', 'rgb_array'\]",
        ):
            envs.render("rgb_array")
        envs.step([0])


def test_functions_decide_themselves(engine):
    with walks(agymc.make, engine, 1, mode=None) as envs:
        envs.reset()
        with pytest.raises(agymc.ConfigurationError, match="render_mode=None, which gives no 'rgb"):
            envs.render("rgb_array")
    with agymc.make(Walk, 1, engine=engine, render_mode="human") as envs:  # rather: be shown
        assert envs.render_mode is None


# ---------------------------------------------------------------------- one window for all


class FakeWindow:
    """Notes what it is asked."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.shown: list[Any] = []
        self.pumped = 0
        self.closed_by_user = False
        self.closed = False
        windows.append(self)

    def show(self, frames: Any) -> None:
        self.shown.append(frames)

    def pump(self) -> None:
        self.pumped += 1

    def close(self) -> None:
        self.closed = True


windows: list[FakeWindow] = []


@pytest.fixture
def fake_window(monkeypatch: pytest.MonkeyPatch) -> list[FakeWindow]:
    windows.clear()
    monkeypatch.setattr(agymc.batch_env, "MosaicWindow", FakeWindow)
    return windows


def test_human_shows_the_frames_of_all_envs(engine, fake_window):
    with walks(agymc.make, engine, 1, 2, 3) as envs:
        envs.reset()
        assert fake_window == []
        assert envs.render() is None
        [window] = fake_window
        assert window.title == f"BatchEnv(env functions, num_envs=3, engine={engine!r})"
        [frames] = window.shown
        assert [frame.min() for frame in frames] == [1, 2, 3]
    assert window.closed


def test_budget(fake_window):
    def count(calls: int, **settings: float) -> tuple[int, int]:
        fake_window.clear()
        with agymc.make(
            Walk, 1, engine="serial", env_kwargs={"render_mode": "rgb_array"}, **settings
        ) as envs:
            envs.reset()
            for _ in range(calls):
                envs.render()
        return len(fake_window[0].shown), fake_window[0].pumped

    assert count(5, show_max_hz=math.inf, show_max_share=1.0) == (5, 0)
    assert count(5, show_max_hz=1e-9) == (1, 4)  # once in thirty years, and responsive in between
    assert count(5, show_max_hz=math.inf, show_max_share=1e-12) == (1, 4)
    with pytest.raises(
        agymc.ConfigurationError, match="expected a number > 0, got 0, at show_max_"
    ):
        agymc.make("CartPole-v1", 1, engine="serial", show_max_hz=0)
    with pytest.raises(agymc.ConfigurationError, match=r"got 1.5, at show_max_share"):
        agymc.make("CartPole-v1", 1, engine="serial", show_max_share=1.5)


def test_render_mode_human_shows_every_reset_and_step(fake_window):
    settings = {"show_max_hz": math.inf, "show_max_share": 1.0, "engine": "serial"}
    with agymc.make("CartPole-v1", 2, render_mode="human", **settings) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        envs.step([0, 0])
        assert len(fake_window[0].shown) == 3
        assert [frame.shape for frame in fake_window[0].shown[0]] == [(400, 600, 3)] * 2


def test_after_the_user_has_closed_the_window_the_run_goes_on(fake_window):
    with walks(agymc.make, "serial", 1) as envs:
        envs.reset()
        envs.render()
        fake_window[0].closed_by_user = True
        for _ in range(3):
            envs.render()
            envs.step([0])
        assert (len(fake_window), len(fake_window[0].shown), fake_window[0].pumped) == (1, 1, 0)


def test_the_real_window(monkeypatch):
    """It draws into memory here."""
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with walks(agymc.make, "serial", 10, 20) as envs:
        envs.reset()
        envs.render()
        surface = pygame.display.get_surface()
        picture = pygame.surfarray.array3d(surface).transpose(1, 0, 2)
        assert np.array_equal(picture, agymc.mosaic(envs.render("rgb_array"), columns=1))
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        envs.step([0, 0])
        envs.render()
        assert pygame.display.get_surface() is None
        envs.render()
        assert pygame.display.get_surface() is None
    assert not pygame.display.get_init()


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")


def test_without_a_display_it_says_so_once_and_goes_on(engine, no_display):
    text = r"render\('human'\) shows nothing: there is no display"
    with walks(agymc.make, engine, 1) as envs:
        envs.reset()
        with pytest.warns(UserWarning, match=text) as caught:
            envs.render()
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            envs.render()
            envs.step([0])
        assert len(envs.render("rgb_array")) == 1  # those need none
    with agymc.make("CartPole-v1", 1, engine=engine, render_mode="human") as envs:
        with pytest.warns(UserWarning, match=text) as caught:
            envs.reset()
        assert caught[0].filename == __file__
        envs.step([0])


def test_envs_that_give_no_frames_cannot_be_shown(fake_window):
    with walks(agymc.make, "serial", 1, mode=None) as envs:
        envs.reset()
        with pytest.raises(
            agymc.ConfigurationError, match="these envs were made with render_mode="
        ):
            envs.render()


def test_without_pygame(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with walks(agymc.make, "serial", 1) as envs:
        envs.reset()
        with pytest.raises(agymc.MissingExtraError) as caught:
            envs.render()
        assert str(caught.value) == (
            "A window that shows the envs needs the package 'pygame-ce', which is not installed: "
            "pip install 'agymc[render]'"
        )
        envs.step([0])


def test_pygame_is_whole_before_many_threads_draw():
    """Its lazy module is not safe for threads; see `agymc.adapters.lazy_pygame`."""
    pytest.importorskip("pygame")
    code = """
import sys, types
import gymnasium
import agymc
assert "pygame" not in sys.modules
for source in ("CartPole-v1", lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array")):
    with agymc.make(source, 16, engine="thread") as envs:
        assert type(sys.modules["pygame.surfarray"]) is types.ModuleType
        envs.reset()
        envs.render("rgb_array")
with agymc.make("CartPole-v1", 16, engine="process+thread", num_workers=1) as envs:
    envs.reset()
    envs.render("rgb_array")
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=50
    )
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)
