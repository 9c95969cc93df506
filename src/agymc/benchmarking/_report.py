"""What came out: a table for people, a document for programs, a plot to see it at a glance."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.table import Table
from rich.text import Text

from agymc.benchmarking._compare import Comparison, Result
from agymc.benchmarking._contenders import PEERS
from agymc.engines import available_cpus
from agymc.errors import MissingExtraError

__all__ = ["document", "machine", "plot", "table"]

_PACKAGES = ("agymc", "numpy", *sorted(PEERS.values()), "torch", "ale_py", "mujoco")


def machine() -> dict[str, Any]:
    """Where and with what is measured."""
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
        cpu = models[0] if models else cpu
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu,
        "cpus": available_cpus(),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "load_before": os.getloadavg()[0],
    }


def document(where: dict[str, Any], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "machine": where,
        "works": [
            {"work": asdict(one.work), "results": [asdict(result) for result in one.results]}
            for one in comparisons
        ],
    }


def table(comparison: Comparison, baseline: str) -> Table:
    """A table of one work, whose ratios refer to the baseline."""
    work = comparison.work
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    shown.title = f"{work.name}: {work.num_envs:,} x {work.env}"
    shown.title_justify, shown.title_style = "left", "bold"
    shown.add_column("Contender", no_wrap=True)
    for name in ("Steps/s", f"To {baseline}", "Spread", "CPU us/step", "Start s", "MB"):
        shown.add_column(name, justify="right", no_wrap=True)
    took_part = [result for result in comparison.results if result.sps]
    best = max(took_part, key=lambda result: result.median, default=None)
    for result in comparison.results:
        if not result.sps:
            shown.add_row(result.contender, "-", style="dim")
            continue
        ratio = comparison.ratio(result.contender, baseline)
        spread = comparison.spread(result.contender, baseline)
        shown.add_row(
            _label(result),
            f"{result.median:,.0f}",
            "-" if ratio is None else f"{ratio:.2f}",
            "-" if spread is None else f"{spread[0]:.2f}..{spread[1]:.2f}",
            f"{statistics.median(result.cpu) * 1e6:,.1f}",
            f"{result.start_up:.2f}",
            f"{result.memory / 1e6:,.0f}",
            style="bold green" if result is best else "",
        )
    shown.caption = Text("\n".join(_excuses(comparison)))
    shown.caption_justify = "left"
    return shown


def _excuses(comparison: Comparison) -> list[str]:
    """Why some could not take part."""
    return [
        f"{one.contender}: {(one.error.splitlines() or [''])[0]}"
        for one in comparison.results
        if not one.sps
    ]


def _label(result: Result) -> str:
    if result.contender == "auto":
        return f"auto ({result.engine})"
    return result.contender


def plot(path: Path, comparisons: Sequence[Comparison], baseline: str) -> None:
    """Write a picture of the ratios to the baseline, one panel per work.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("matplotlib", "bench", "a plot") from error
    columns = min(3, len(comparisons))
    rows = -(-len(comparisons) // columns)
    most = max(sum(bool(one.sps) for one in comparison.results) for comparison in comparisons)
    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(5.2 * columns, (0.8 + 0.26 * most) * rows),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(comparisons) :]:
        axis.set_visible(False)
    for axis, comparison in zip(axes.flat, comparisons, strict=False):
        _panel(axis, comparison, baseline)
    figure.suptitle(f"Steps per second, as multiples of {baseline!r}. Whiskers: single rounds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _panel(axis: Any, comparison: Comparison, baseline: str) -> None:
    results = [one for one in comparison.results if one.sps][::-1]
    names, ratios, low, high, colors = [], [], [], [], []
    for result in results:
        ratio = comparison.ratio(result.contender, baseline)
        spread = comparison.spread(result.contender, baseline)
        if ratio is None or spread is None:
            continue
        names.append(_label(result))
        ratios.append(ratio)
        low.append(max(0.0, ratio - spread[0]))
        high.append(max(0.0, spread[1] - ratio))
        peer = result.contender.partition("-")[0] in PEERS
        colors.append("#9aa5b1" if peer else "#c9a227" if result.contender == "loop" else "#1f6f8b")
    axis.barh(names, ratios, xerr=[low, high], color=colors, error_kw={"lw": 0.8, "alpha": 0.6})
    axis.axvline(1.0, color="#333333", lw=0.8, ls=":")
    if max(ratios) > 30 * min(ratios):
        axis.set_xscale("log")
    for position, ratio in enumerate(ratios):
        axis.annotate(f" {ratio:.2f}", (ratio + high[position], position), va="center", fontsize=7)
    axis.margins(x=0.15)
    axis.tick_params(labelsize=7)
    axis.set_title(f"{comparison.work.name} x {comparison.work.num_envs:,}", fontsize=9, loc="left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
