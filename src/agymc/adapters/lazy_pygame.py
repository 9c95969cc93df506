"""What pygame needs in threads: to draw one at a time, and to be loaded before all reach for it.

`pygame.gfxdraw` keeps the corners of the polygon that it draws in a global variable, and lets other
threads run meanwhile: of two envs that draw at the same time, one gets corners of the other's.

pygame-ce loads `pygame.surfarray` at the first use, by `importlib.util.LazyLoader`, which is not
safe for threads before Python 3.11.8 and 3.12.2 (cpython#114763): of envs that draw for the first
time at the same time, some get "module 'pygame.surfarray' has no attribute 'pixels3d'".
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from typing import Any

__all__ = ["DrawingLock", "drawing_lock_of", "draws_in_steps", "load_surfarray"]

DrawingLock = contextlib.AbstractContextManager[Any]
"""Held while an env draws."""

_drawing = threading.Lock()
_loading = threading.Lock()

_IMPORT_IT_LATE = tuple(
    f"gymnasium.envs.{kind}." for kind in ("classic_control", "toy_text", "box2d")
)


def load_surfarray(env: Any) -> None:
    """Load it, one thread at a time, if this env may come to use it. Does nothing the second time.

    Gymnasium's own envs import pygame in their first `render`, other envs usually at the top of
    their modules.
    """
    if getattr(env, "render_mode", None) is None:
        return
    if "pygame" in sys.modules or _module_of(env).startswith(_IMPORT_IT_LATE):
        # Whatever is missing here, `render` says it.
        with _loading, contextlib.suppress(ImportError, AttributeError, NotImplementedError):
            _ = importlib.import_module("pygame").surfarray.array3d


def draws_in_steps(env: Any) -> bool:
    """Whether an env draws in `step` and `reset` as well, not only in `render`."""
    mode = getattr(env, "render_mode", None)
    in_list = isinstance(mode, str) and mode.endswith("_list")
    return in_list or _module_of(env) == "gymnasium.envs.box2d.car_racing"


def drawing_lock_of(env: Any) -> DrawingLock:
    """What to hold while an env draws: a lock for those that do so with pygame."""
    name = _module_of(env)
    names = vars(sys.modules.get(name, sys))
    if name.startswith(_IMPORT_IT_LATE) or "pygame" in names or "gfxdraw" in names:
        return _drawing
    return contextlib.nullcontext()


def _module_of(env: Any) -> str:
    return type(getattr(env, "unwrapped", env)).__module__
