"""``agymc engines``: which engine ``engine="auto"`` takes for an env, and why."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agymc.choosing import Choice, Figures, candidates, choose, figures_of
from agymc.cli._environment import quieten_pygame, recipe_of, show_error, work_here
from agymc.engines import available_cpus
from agymc.errors import AgymcError
from agymc.recipes import Recipe

__all__ = ["ENGINES_EXAMPLE", "engines"]

ENGINES_EXAMPLE = "Example: agymc engines LunarLander-v3 --num-envs 16"

_FAILED, _USAGE = 1, 2


def engines(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV_ID | MODULE:FACTORY",
            show_default=False,
            help="Which env: an id such as CartPole-v1, module:Id-v0, or a function that makes it "
            "(or its class). The module may be in the current directory.",
        ),
    ],
    num_envs: Annotated[
        int, typer.Option("--num-envs", "-n", min=1, metavar="N", help="How many envs.")
    ] = 16,
    render: Annotated[
        bool, typer.Option("--render", help="They will be rendered (rgb_array) at each step.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document in place of the table.")
    ] = False,
) -> int:
    """Measure what an env costs, and show which engine is the fastest for so many of them.

    One env is made, stepped with random actions for a quarter of a second, and closed, in a
    process of its own. The times of a batch are predictions from that.

    Exit codes: 0; 1 when the env could not be measured; 2 when there is no such env.
    """
    quieten_pygame()
    work_here()
    try:
        recipe = recipe_of(env, num_envs, {"render_mode": "rgb_array"} if render else {})
    except AgymcError as error:
        show_error(error)
        return _USAGE
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("Measuring"):
            figures, choice = _measure(recipe, render)
    else:
        figures, choice = _measure(recipe, render)
    if as_json:
        print(json.dumps(_document(env, num_envs, figures, choice), indent=2))
    else:
        _print(env, num_envs, figures, choice)
    return _FAILED if figures.unknown else 0


def _measure(recipe: Recipe, render: bool) -> tuple[Figures, Choice]:
    return figures_of(recipe, render=render), choose(recipe, {}, render=render)


def _document(env: str, num_envs: int, figures: Figures, choice: Choice) -> dict[str, Any]:
    return {
        "env": env,
        "num_envs": num_envs,
        "cpus": available_cpus(),
        "engine": choice.engine,
        "options": dict(choice.options),
        "reason": choice.reason,
        "figures": asdict(figures),
        "candidates": [
            {
                "engine": one.engine,
                "options": one.options,
                "seconds": one.seconds if math.isfinite(one.seconds) else None,
                "reason": one.reason,
            }
            for one in _candidates(num_envs, figures, choice)
        ],
    }


def _candidates(num_envs: int, figures: Figures, choice: Choice) -> list[Any]:
    if choice.candidates or figures.unknown or figures.coroutine:
        return list(choice.candidates)
    return candidates(figures, num_envs, available_cpus())


def _print(env: str, num_envs: int, figures: Figures, choice: Choice) -> None:
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "120"))
    console = Console(width=width, highlight=False)
    cpus = available_cpus()
    title = f"{num_envs:,} x {env} on {cpus} CPU{'' if cpus == 1 else 's'}"
    console.print("", Text(title, "bold"), "", sep="\n")
    if figures.operations:
        console.print(_costs(figures), "", sep="\n")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("Engine", no_wrap=True)
        table.add_column("A batch", justify="right", no_wrap=True)
        table.add_column("Envs/s", justify="right", no_wrap=True)
        table.add_column("Why", overflow="fold")
        for one in _candidates(num_envs, figures, choice):
            chosen = (one.engine, one.options) == (choice.engine, dict(choice.options))
            possible = math.isfinite(one.seconds)
            table.add_row(
                one.label,
                _time(one.seconds) if possible else "-",
                f"{num_envs / one.seconds:,.0f}" if possible else "-",
                Text(one.reason),
                style="bold green" if chosen else "" if possible else "dim",
            )
        console.print(table, "", sep="\n")
    label = ", ".join([choice.engine, *(f"{k}={v}" for k, v in choice.options.items())])
    console.print(Text.assemble("auto takes ", (label, "bold green"), f": {choice.reason}."))


def _costs(figures: Figures) -> Text:
    """What the env costs, in words."""
    parts = [
        f"A step takes {_time(figures.step)}",
        f"of which it computes for {1 - figures.waiting:.0%}",
    ]
    if figures.render:
        parts.append(f"with {_time(figures.render)} to render")
    parts.append(f"a reset {_time(figures.reset)}")
    parts.append(f"making one {_time(figures.construction)}")
    return Text(", ".join(parts) + f" ({figures.operations:,} steps and resets were measured).")


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:,.0f} us"
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1.0 else f"{seconds:,.1f} s"
