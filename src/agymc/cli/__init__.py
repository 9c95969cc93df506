"""The command ``agymc``. The only part of the package that prints.

Nothing is imported here before `main` needs it: it wants the extra ``cli``, which need not be
installed, and has to say so in words.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from agymc.cli._interrupts import Interrupts
from agymc.errors import MissingExtraError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Those after the command's name; None for those of this process.

    Returns:
        The exit code: 0; 1 when an env or the policy failed; 2 when the command can't be carried
        out as it was given; 130 after Ctrl-C.
    """
    with Interrupts(last=arguments is None) as interrupts:
        for package in ("rich", "typer"):
            try:
                importlib.import_module(package)
            except ImportError:
                print(MissingExtraError(package, "cli", "the command agymc"), file=sys.stderr)
                return 2
        from agymc.cli._app import run_app

        return run_app(arguments, interrupts)
