"""What belongs to this process, and what a child forked from it has to do with its copy."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["in_forked_child"]

_actions: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()
_hooked = False


def in_forked_child(owned: Any, action: Callable[[Any], object]) -> None:
    """Have a child that is forked from here call ``action(owned)``, if ``owned`` lives by then.

    Args:
        owned: Is not kept alive by this; so ``action`` must not refer to it.
        action: A function, or a method as its class has it.
    """
    global _hooked
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked = True
        os.register_at_fork(after_in_child=_act)
    _actions[owned] = action


def _act() -> None:
    for owned, action in list(_actions.items()):
        action(owned)
