"""Loading pygame's lazy module before many threads reach for it at once.

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

__all__ = ["load_surfarray"]

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
    module = type(getattr(env, "unwrapped", env)).__module__
    if "pygame" in sys.modules or module.startswith(_IMPORT_IT_LATE):
        # Whatever is missing here, `render` says it.
        with _loading, contextlib.suppress(ImportError, AttributeError, NotImplementedError):
            _ = importlib.import_module("pygame").surfarray.array3d
