"""A contender's process: ``python -m agymc.benchmarking._contend``, one line in, one line out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

import gymnasium
import psutil

from agymc.benchmarking._contenders import CONTENDERS, Contender, Work

__all__: list[str] = []

_ACTIONS = 16  # batches; drawing them is not measured


def main() -> None:
    """Obey the parent until it closes our standard input."""
    order = json.loads(sys.stdin.readline())
    # The line to the parent is ours alone: what envs print goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work = Work(**order["work"])
    try:
        _contend(order["name"], work, order["seconds"], answers)
    except Exception as error:
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})


def _contend(name: str, work: Work, seconds: float, answers: TextIO) -> None:
    recipe = work.recipe()
    actions = _actions(recipe.env_fns[0], work)
    before = _cpu_seconds()
    began = time.perf_counter()
    contender = CONTENDERS[name](work, recipe)
    contender.reset()
    started = time.perf_counter() - began
    started_cpu = _cpu_seconds() - before
    steps = _steps(contender, actions, seconds)
    engine = getattr(contender.envs, "engine", "")
    answer = {"start_up": started, "start_up_cpu": started_cpu, "steps": steps, "engine": engine}
    choice = getattr(contender.envs, "choice", None)
    if choice is not None:
        answer["choice"] = ", ".join([choice.engine, *map(str, choice.options)])
    _answer(answers, answer)
    for _ in sys.stdin:
        before = _cpu_seconds()
        began = time.perf_counter()
        done = contender.run(steps, actions)
        took = time.perf_counter() - began
        cpu = _cpu_seconds() - before
        memory, kind = _memory()
        _answer(
            answers,
            {"sps": done / took, "cpu": cpu / done, "memory": memory, "memory_kind": kind},
        )
    contender.close()


def _actions(env_fn: Any, work: Work) -> list[Any]:
    env = env_fn()
    space = gymnasium.vector.utils.batch_space(env.action_space, work.num_envs)
    env.close()
    space.seed(0)
    return [space.sample() for _ in range(_ACTIONS)]


def _steps(contender: Contender, actions: list[Any], seconds: float) -> int:
    """How many steps of the batch take about so many seconds."""
    steps = 1
    while True:
        began = time.perf_counter()
        contender.run(steps, actions)
        took = time.perf_counter() - began
        if took >= seconds / 5:
            return max(1, round(steps * seconds / took))
        steps *= 2


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _family() -> Iterator[psutil.Process]:
    this = psutil.Process()
    yield this
    yield from this.children(recursive=True)


def _cpu_seconds() -> float:
    """CPU time used so far by this process and its children that still run."""
    total = time.process_time()
    for process in list(_family())[1:]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _memory() -> tuple[int, str]:
    """Bytes that this process and its children hold, and how they were counted."""
    try:
        # The proportional set size counts a page that k processes share as 1/k for each of them.
        return sum(process.memory_full_info().pss for process in _family()), "pss"
    except (AttributeError, psutil.AccessDenied, psutil.NoSuchProcess):
        return sum(process.memory_info().rss for process in _family()), "rss"


if __name__ == "__main__":
    main()
