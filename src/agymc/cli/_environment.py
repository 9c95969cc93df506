"""What commands have in common: where they look for modules, and how they tell of errors."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from agymc.cli._policy import PolicyError, PolicyImportError
from agymc.cli._report import traceback_of
from agymc.errors import AgymcError, EnvError, UnknownEnvError
from agymc.recipes import EnvId, Recipe
from agymc.rendering import display_available

__all__ = ["quieten_pygame", "recipe_of", "show_error", "text_for_people", "work_here"]


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


def recipe_of(name: str, num_envs: int, kwargs: Mapping[str, Any] | None = None) -> Recipe:
    """How to make the envs of an id, or of a factory ("module:function") of a module.

    Raises:
        UnknownEnvError: There is no such id, module or function.
    """
    module, _, attribute = name.partition(":")
    source: EnvId = name
    if attribute and attribute.isidentifier():
        try:
            factory = getattr(importlib.import_module(module), attribute, None)
        except ImportError as error:
            if error.name != module:
                raise UnknownEnvError(f"{module!r} can't be imported: {error}") from error
            raise UnknownEnvError(f"there is no module {module!r} here") from error
        if not callable(factory):
            raise UnknownEnvError(f"{module!r} has nothing to call named {attribute!r}")
        source = factory
    return Recipe(source, num_envs, (), None, kwargs or {})


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
