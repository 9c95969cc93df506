"""What commands have in common: where they look for modules, and how they tell of errors."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.text import Text

from agymc.cli._policy import PolicyError, PolicyImportError
from agymc.cli._report import traceback_of
from agymc.errors import AgymcError, EnvError
from agymc.rendering import display_available

__all__ = ["quieten_pygame", "show_error", "text_for_people", "work_here"]


def work_here() -> None:
    """Have modules of the current directory importable, as `python -m` has it."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # the script `agymc` has its own folder


def quieten_pygame() -> None:
    """Envs only draw into memory: without a display, SDL shall not complain that there is none."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not display_available():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


def text_for_people(error: AgymcError) -> str:
    """An error's text, without what is for programs."""
    return str(error).replace(", see `others`", "")


def show_error(error: AgymcError) -> None:
    """Print an error, and the traceback of what the user's own code raised."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("Error: ", "bold red"), text_for_people(error)))
    told = isinstance(error, EnvError | PolicyError | PolicyImportError)
    if told and error.__cause__ is not None:
        console.print(Text(f"\n{traceback_of(error.__cause__)}".rstrip()))
