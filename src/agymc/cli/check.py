"""``agymc check``: whether an env is fit to be run many times at once."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from agymc.cli._environment import quieten_pygame, recipe_of, show_error, work_here
from agymc.errors import AgymcError
from agymc.testing import Finding, check_env
from agymc.testing.env_checks import CHECKS

__all__ = ["CHECK_EXAMPLE", "check"]

CHECK_EXAMPLE = "Example: agymc check CartPole-v1; agymc check my_package.envs:make_env"

_FOUND, _USAGE = 1, 2


def check(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV_ID | MODULE:FACTORY",
            show_default=False,
            help="Which env: an id such as CartPole-v1, module:Id-v0, or a function that makes it "
            "(or its class). The module may be in the current directory.",
        ),
    ],
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The seed.")] = 0,
    steps: Annotated[
        int, typer.Option(min=10, metavar="N", help="How many steps each check makes.")
    ] = 200,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document in place of the table.")
    ] = False,
) -> int:
    """Check an env: its API, determinism, picklability, and whether all engines give the same.

    Exit codes: 0 when no error was found; 1 when one was; 2 when there is no such env.
    """
    quieten_pygame()
    work_here()
    try:
        env_fn = recipe_of(env, 1).env_fns[0]
    except AgymcError as error:
        show_error(error)
        return _USAGE
    console = Console(stderr=True)
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status: Status | None = None
        if console.is_terminal:
            status = stack.enter_context(console.status("Checking"))

        def tell(name: str) -> None:
            if status is not None:
                status.update(f"Checking {name}")

        findings = check_env(env_fn, seed=seed, steps=steps, tell=tell)
    if as_json:
        print(json.dumps(_document(env, findings), indent=2))
    else:
        _print(env, findings)
    return _FOUND if any(finding.severity == "error" for finding in findings) else 0


def _document(env: str, findings: list[Finding]) -> dict[str, Any]:
    return {
        "env": env,
        "checks": list(CHECKS),
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity,
                "text": finding.text,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }


def _print(env: str, findings: list[Finding]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("Check", no_wrap=True)
    table.add_column("Result", no_wrap=True)
    table.add_column("What was found", overflow="fold")
    table.add_column("What to do", overflow="fold")
    for name in CHECKS:
        found = [finding for finding in findings if finding.check == name]
        if not found and findings and findings[0].check == "construction":
            table.add_row(name, Text("not made", style="dim"), "", "")
        elif not found:
            table.add_row(name, Text("ok", style="green"), "", "")
        for finding in found:
            style = "bold red" if finding.severity == "error" else "yellow"
            # Text, as what an env says is no markup of ours.
            table.add_row(
                name, Text(finding.severity, style=style), Text(finding.text), Text(finding.remedy)
            )
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "120"))
    console = Console(width=width)
    console.print(Text(f"Checks of {env}"), "", table, sep="\n")
