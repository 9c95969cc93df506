"""The commands, and what becomes of usage errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import agymc
from agymc.cli._interrupts import Interrupts
from agymc.cli.bench import BENCH_EXAMPLE, bench
from agymc.cli.check import CHECK_EXAMPLE, check
from agymc.cli.engines import ENGINES_EXAMPLE, engines
from agymc.cli.run import EXAMPLE, run

app = typer.Typer(
    name="agymc",
    help="Many reinforcement-learning environments at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", no_args_is_help=True, epilog=EXAMPLE)(run)
app.command("check", no_args_is_help=True, epilog=CHECK_EXAMPLE)(check)
app.command("bench", no_args_is_help=True, epilog=BENCH_EXAMPLE)(bench)
app.command("engines", no_args_is_help=True, epilog=ENGINES_EXAMPLE)(engines)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"agymc {agymc.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand != "run":  # which says itself where it may strike
        interrupts: Interrupts = context.obj
        context.with_resource(interrupts.allowed())


def run_app(arguments: Sequence[str] | None, interrupts: Interrupts) -> int:
    """Run the command that the arguments name; gives the exit code."""
    try:
        result: Any = app(arguments, prog_name="agymc", standalone_mode=False, obj=interrupts)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone (`agymc ... | head`). Nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        # typer has a copy of click's exceptions in some versions: they are told by what they have.
        if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
            raise
        _show_usage_error(error)
        return int(error.exit_code)
    return result if isinstance(result, int) else 0


def _show_usage_error(error: Any) -> None:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if not message:  # no arguments at all: the help was shown
        return
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("Error: ", "bold red"), message))
    if context is not None:
        console.print(Text(f"Try: {context.command_path} --help"))
