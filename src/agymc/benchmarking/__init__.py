"""Measuring engines, and other libraries, on the same work.

Each contender runs in a process of its own, which is started once. The parent asks all of them in
turn to run one round, so that whatever else the machine does hits all alike, and compares what
they did within a round. `compare` does that; `table`, `document` and `plot` show what came out.
They want the extras `cli` and `bench`.
"""

import typing as _typing

from agymc._lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from agymc.benchmarking._compare import Comparison, Result, compare
    from agymc.benchmarking._contenders import CONTENDERS, PEERS, Contender, Work, installed
    from agymc.benchmarking._report import document, machine, plot, table

__all__ = [
    "CONTENDERS",
    "PEERS",
    "Comparison",
    "Contender",
    "Result",
    "Work",
    "compare",
    "document",
    "installed",
    "machine",
    "plot",
    "table",
]

__getattr__, __dir__ = _names_of(
    __name__,
    {
        "CONTENDERS": "_contenders",
        "Comparison": "_compare",
        "Contender": "_contenders",
        "PEERS": "_contenders",
        "Result": "_compare",
        "Work": "_contenders",
        "compare": "_compare",
        "document": "_report",
        "installed": "_contenders",
        "machine": "_report",
        "plot": "_report",
        "table": "_report",
    },
)
