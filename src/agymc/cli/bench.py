"""``agymc bench``: measures the engines, and other libraries, on a user's own env."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agymc.benchmarking import CONTENDERS, Work, installed
from agymc.cli._environment import quieten_pygame, recipe_of, show_error, work_here
from agymc.errors import AgymcError, MissingExtraError

__all__ = ["BENCH_EXAMPLE", "bench"]

BENCH_EXAMPLE = (
    "Example: agymc bench LunarLander-v3 -n 16 -c loop -c auto -c gym-async --plot b.png"
)

_DEFAULT = (
    "loop",
    "serial",
    "thread",
    "process",
    "process, caller steps",
    "process+thread",
    "auto",
    "gym-sync",
    "gym-async",
    "sb3-dummy",
    "sb3-subproc",
    "tianshou-shmem",
    "torchrl-parallel",
)
_FAILED, _USAGE = 1, 2


def bench(
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
    contenders: Annotated[
        list[str] | None,
        typer.Option(
            "--contender",
            "-c",
            metavar="NAME",
            show_default="a plain loop, the engines, and the libraries that are installed",
            help=f"Who takes part, once for each: {'; '.join(CONTENDERS)}.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="How often each contender is measured.")
    ] = 5,
    seconds: Annotated[
        float, typer.Option(min=0.01, metavar="S", help="How long that takes each time.")
    ] = 0.5,
    render: Annotated[
        bool, typer.Option("--render", help="Render all envs (rgb_array) after each step.")
    ] = False,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Write all measurements.", show_default=False),
    ] = None,
    plot_path: Annotated[
        Path | None,
        typer.Option("--plot", metavar="PATH", help="Draw them (.png).", show_default=False),
    ] = None,
) -> int:
    """Measure how fast an env runs: in a plain loop, on each engine, in other libraries.

    Contenders run in processes of their own and are asked in turn, so that ratios can be trusted
    more than steps per second, which belong to one machine on one day. Ratios are those of medians
    to the first contender's; the spread is that of single rounds.

    Exit codes: 0; 1 when nobody could run the env; 2 when something in the command is wrong.
    """
    quieten_pygame()
    work_here()
    names = contenders or [name for name in _DEFAULT if installed(name)]
    kwargs = {"render_mode": "rgb_array"} if render else {}
    try:
        unknown = [name for name in names if name not in CONTENDERS]
        if unknown:
            raise AgymcError(
                f"expected contenders out of {'; '.join(CONTENDERS)}, got {unknown[0]}"
            )
        recipe_of(env, num_envs, kwargs)
        if importlib.util.find_spec("psutil") is None:
            raise MissingExtraError("psutil", "bench", "agymc bench")
    except AgymcError as error:
        show_error(error)
        return _USAGE
    from agymc.benchmarking import compare, document, machine, plot, table

    work = Work(env.rpartition(":")[2].rpartition("/")[2], env, num_envs, kwargs, render)
    where = machine()
    waiting = Console(stderr=True)
    if waiting.is_terminal:
        with waiting.status("Measuring") as status:
            comparison = compare(work, names, rounds=rounds, seconds=seconds, tell=status.update)
    else:
        comparison = compare(work, names, rounds=rounds, seconds=seconds)
    baseline = next((one.contender for one in comparison.results if one.sps), names[0])
    console = Console(
        width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "120")),
        highlight=False,
    )
    console.print("", table(comparison, baseline), "", sep="\n")
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    console.print(
        Text(f"{where['cpus']} CPUs, {where['cpu']}, Python {where['python']}, {versions}")
    )
    if where["load_before"] > 0.5:
        console.print(Text("The machine was busy before this began: measure again.", "yellow"))
    try:
        if json_path is not None:
            json_path.write_text(json.dumps(document(where, [comparison]), indent=2) + "\n")
        if plot_path is not None and comparison.of(baseline) is not None:
            plot(plot_path, [comparison], baseline)
    except (AgymcError, OSError) as error:
        show_error(error if isinstance(error, AgymcError) else AgymcError(str(error)))
        return _USAGE
    return 0 if comparison.of(baseline) is not None else _FAILED
