"""How an env that hangs is stopped: an exception is raised in its Python frame.

In a main thread a signal does it, which also ends system calls that wait. The handler looks at the
frames that it has interrupted: it raises only where an env is being called, and only where the pool
has asked for just this operation to be interrupted. So a signal that comes too late hits nobody.
In other threads the interpreter raises it, once the thread runs Python again.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from agymc.errors import EnvInterrupt

__all__ = [
    "SIGNAL",
    "env_stack",
    "install",
    "interrupt_thread",
    "stacks_of_dump",
    "thread_stack",
    "uninstall",
]

# Real-time signals have no meaning of their own; an env's libraries hardly use this one.
SIGNAL: int = signal.SIGRTMIN + 10 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2

_PACKAGE = Path(__file__).parents[1]
_RUNNERS = str(Path(__file__).parent)
_MACHINERY = (
    _RUNNERS,
    *(str(_PACKAGE / name) for name in ("slot.py", "spaces.py", "buffers.py", "commands.py")),
)

_MACHINERY_LINES = tuple(f'  File "{path}' for path in _MACHINERY)


_installed = 0
_before: Any = None


def install() -> bool:
    """Have the signal interrupt envs until `uninstall`; False where this is no main thread."""
    global _before, _installed
    if threading.current_thread() is not threading.main_thread():
        return False
    if not _installed:
        _before = signal.signal(SIGNAL, _on_signal)
    _installed += 1
    return True


def uninstall() -> None:
    """Undo `install`: the last one puts back the handler that was there before the first."""
    global _installed
    _installed -= 1
    if not _installed and threading.current_thread() is threading.main_thread():
        signal.signal(SIGNAL, _before if _before is not None else signal.SIG_DFL)


def _on_signal(_signum: int, frame: FrameType | None) -> None:
    inside = False
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_MACHINERY):
            inside = True
        elif filename.startswith(_RUNNERS) and "slot" in frame.f_code.co_varnames:
            slot = frame.f_locals.get("slot")
            if inside and slot is not None and slot.to_be_interrupted:
                raise EnvInterrupt("it has missed its deadline, so agymc interrupts it")
            return
        frame = frame.f_back


def interrupt_thread(ident: int | None) -> None:
    """Raise EnvInterrupt in a thread as soon as it runs Python.

    It can't be taken back: with no exception in place of one that is on its way, CPython 3.11 would
    look for it for ever, in all threads, before each instruction.
    """
    what = ctypes.py_object(EnvInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident or 0), what)


def thread_stack(ident: int | None) -> str:
    """Where a thread of this process is, as text, from where agymc calls the env."""
    frame = sys._current_frames().get(ident or 0)
    return "" if frame is None else env_stack(traceback.extract_stack(frame))


def env_stack(summary: traceback.StackSummary) -> str:
    """A stack, outermost frame first, as text without what is above the env."""
    ours = [n for n, one in enumerate(summary) if one.filename.startswith(_MACHINERY)]
    return "".join(traceback.format_list(summary[ours[-1] + 1 if ours else 0 :]))


def stacks_of_dump(dump: str, *, all_threads: bool) -> str:
    """What a dump of `faulthandler` says of envs, outermost frame first.

    Args:
        dump: The dump.
        all_threads: Whether envs run on other threads than the one that got the signal: then the
            stacks of all that are in an env.
    """
    blocks = re.split(r"^(?=.*most recent call first\):)", dump, flags=re.MULTILINE)
    if not all_threads:
        current = [block for block in blocks if block.startswith("Current thread")]
        blocks = (current or blocks)[-1:]
    return "\n".join(filter(None, map(_env_part, blocks)))


def _env_part(block: str) -> str:
    frames: list[str] = []
    for line in block.splitlines():
        if line.startswith(f'  File "{_RUNNERS}{os.sep}'):
            return "".join(f"{frame}\n" for frame in reversed(frames))
        if line.startswith("  File ") and not line.startswith(_MACHINERY_LINES):
            frames.append(line)
    return ""  # no env is called in that thread
