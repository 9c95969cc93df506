"""Deadlines and restarts: what a pool does about the faults of its envs.

The pool lets the recovery see each result before the ledger does (`take_over`), tells it of workers
that died (`on_death`), and has it look after deadlines and restarts wherever it waits (`tend`).

An operation that ends with a fault goes one of two ways. It is raised: the ledger gets an error. Or
it stays in flight, as the ledger sees it, while there is a *repair* of its slot: after the backoff
the env is restarted, by a RESTART sent in its place, in a new worker if the old one died; when that
has ended, the operation ends with what the autoreset mode has for an episode that was truncated.

A slot whose env is gone while nothing of it is in flight is *lost*: its next step or reset begins
with a repair.

Life of an operation that hangs::

    running --deadline--> suspect: interrupted --grace--> given up: its process is killed, or its
                                                          thread abandoned
"""

from agymc.recovery._recovery import Recovery

__all__ = ["Recovery"]
