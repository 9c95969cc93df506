"""The panel: all engines, and the peers that are installed, at all works.

    make bench
    python benchmarks/panel.py --work cartpole images --rounds 9 --json panel.json --plot panel.png

benchmarks/README.md says what the works stand for and how to read the numbers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

from rich.console import Console

from agymc.benchmarking import (
    CONTENDERS,
    Comparison,
    Work,
    compare,
    document,
    installed,
    machine,
    plot,
    table,
)

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the contenders' processes find `works` there

ENGINES = ["serial", "process", "process, caller steps", "auto"]
WAITING = ["thread", "process+thread"]
PEERS = [
    "gym-sync",
    "gym-async",
    "sb3-dummy",
    "sb3-subproc",
    "tianshou-dummy",
    "tianshou-subproc",
    "tianshou-shmem",
    "torchrl-serial",
    "torchrl-parallel",
]
NATIVE = ["gym-native", "envpool"]

WORKS: dict[str, tuple[Work, list[str]]] = {
    work.name: (work, contenders)
    for work, contenders in [
        (Work("cartpole", "CartPole-v1", 64), [*ENGINES, *PEERS, *NATIVE]),
        (Work("acrobot", "Acrobot-v1", 32), [*ENGINES, *PEERS, "envpool"]),
        (Work("lunarlander", "LunarLander-v3", 16), [*ENGINES, *PEERS, "envpool"]),
        (Work("bipedalwalker", "BipedalWalker-v3", 16), [*ENGINES, *PEERS, "envpool"]),
        (Work("humanoid", "Humanoid-v5", 16), [*ENGINES, *PEERS]),
        (Work("carracing", "CarRacing-v3", 4), [*ENGINES, "gym-async", "sb3-subproc"]),
        (Work("breakout", "ALE/Breakout-v5", 16), [*ENGINES, *PEERS, *NATIVE]),
        (Work("images", "works:Images", 32), [*ENGINES, *PEERS]),
        (Work("mujoco infos", "HalfCheetah-v5", 32), [*ENGINES, *PEERS]),
        (Work("tiny", "works:Tiny", 1024), [*ENGINES, "gym-sync", "sb3-dummy", "tianshou-dummy"]),
        (Work("sleep", "works:Sleep", 200), [*WAITING, "auto", "gym-async"]),
        (
            Work("heavy tail", "works:HeavyTail", 64),
            ["thread", "thread, batches", "process+thread", "auto", "gym-async"],
        ),
        (
            Work("render", "CartPole-v1", 200, {"render_mode": "rgb_array"}, render=True),
            [*ENGINES, "gym-sync", "gym-async"],
        ),
        (Work("start-up", "CartPole-v1", 200), ["serial", "process", "gym-async", "sb3-subproc"]),
        *[
            (Work(f"growth {count}", "CartPole-v1", count), [*ENGINES, "gym-sync"])
            for count in (1, 8, 256, 1024, 4096)
        ],
        (
            Work("workers", "BipedalWalker-v3", 16),
            [f"process, {count} workers" for count in (1, 2, 3, 4)],
        ),
    ]
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS), metavar="WORK")
    parser.add_argument("--contender", nargs="+", choices=CONTENDERS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one round")
    parser.add_argument("--baseline", default="loop", help="what ratios refer to")
    parser.add_argument("--json", type=Path, help="write everything that was measured")
    parser.add_argument("--plot", type=Path, help="write a picture of the ratios")
    flags = parser.parse_args()

    console = Console(highlight=False, width=max(100, int(os.environ.get("COLUMNS", "100"))))
    where = machine()
    for key, value in where.items():
        console.print(f"{key}: {value}")
    if where["load_before"] > 0.5:
        console.print("The machine was busy before this began: don't trust the numbers.")
    comparisons: list[Comparison] = []
    for name in flags.work:
        work, contenders = WORKS[name]
        if work.env.startswith("ALE/") and importlib.util.find_spec("ale_py") is None:
            continue
        names = flags.contender or ["loop", *filter(installed, contenders)]
        comparison = compare(work, names, rounds=flags.rounds, seconds=flags.seconds, tell=note)
        note("")
        comparisons.append(comparison)
        console.print("", table(comparison, flags.baseline), sep="\n")
        if flags.json:  # each time: a long run may be interrupted
            flags.json.parent.mkdir(parents=True, exist_ok=True)
            flags.json.write_text(json.dumps(document(where, comparisons), indent=1) + "\n")
    if flags.plot and comparisons:
        plot(flags.plot, comparisons, flags.baseline)


def note(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
