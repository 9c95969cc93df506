"""How fast agymc is, next to a plain loop and Gymnasium's own vector envs.

    python benchmarks/compare.py --work cartpole sleep --rounds 7 --json result.json

Each contender runs in a process of its own, which is started once. The parent asks them in turn to
run one round, so that whatever else the machine does hits all of them alike, and compares rates
within a round. benchmarks/README.md says how to read the result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TextIO

import gymnasium
import numpy as np
import psutil
from gymnasium import spaces

import agymc

# ---------------------------------------------------------------------- the work


class Sleep(gymnasium.Env[Any, Any]):
    """An env that waits, as for a network or another process, and computes nothing."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.observation = np.zeros(4, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return self.observation, 0.0, False, False, {}


@dataclass(frozen=True)
class Work:
    """What every contender does in a step of the batch."""

    num_envs: int
    env_fn: Callable[[], Any]
    render: bool = False


WORKS = {
    "cartpole": Work(64, partial(gymnasium.make, "CartPole-v1")),
    "sleep": Work(200, partial(Sleep, 0.01)),
    "lunarlander": Work(16, partial(gymnasium.make, "LunarLander-v3")),
    "render": Work(16, partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array"), True),
}


class Loop:
    """What people write by hand. It resets in the step after the end, as the vector envs do."""

    def __init__(self, env_fns: list[Callable[[], Any]]) -> None:
        self.envs = [env_fn() for env_fn in env_fns]
        self.action_space = gymnasium.vector.utils.batch_space(
            self.envs[0].action_space, len(env_fns)
        )
        self.over = [False] * len(env_fns)

    def reset(self, *, seed: int) -> None:
        for i, env in enumerate(self.envs):
            env.reset(seed=seed + i)

    def step(self, actions: Any) -> None:
        for i, env in enumerate(self.envs):
            if self.over[i]:
                env.reset()
                self.over[i] = False
            else:
                _, _, terminated, truncated, _ = env.step(actions[i])
                self.over[i] = terminated or truncated

    def render(self) -> Any:
        return [env.render() for env in self.envs]

    def close(self) -> None:
        for env in self.envs:
            env.close()


CONTENDERS: dict[str, Callable[[list[Callable[[], Any]]], Any]] = {
    "loop": Loop,
    "gym-sync": gymnasium.vector.SyncVectorEnv,
    "gym-async": gymnasium.vector.AsyncVectorEnv,
    **{engine: partial(agymc.make_vec, engine=engine) for engine in agymc.ENGINES},
}


# ---------------------------------------------------------------------- a contender's process


def contend(name: str, work_name: str, num_envs: int, seconds: float) -> None:
    """Obey the parent: one line in, one line of JSON out."""
    # The line to the parent is ours alone: what envs print goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work = WORKS[work_name]
    began = time.perf_counter()
    envs = CONTENDERS[name]([work.env_fn] * num_envs)
    envs.reset(seed=0)
    started = time.perf_counter() - began
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(16)]  # drawing them is not measured

    def run(steps: int) -> float:
        began = time.perf_counter()
        for number in range(steps):
            envs.step(actions[number % 16])
            if work.render:
                envs.render()
        return time.perf_counter() - began

    steps = 1  # of the batch, in a round of about so many seconds
    while (took := run(steps)) < seconds / 5:
        steps *= 2
    steps = max(1, round(steps * seconds / took))
    _answer(answers, {"start_up": started, "steps": steps})
    for _ in sys.stdin:
        before = _cpu_seconds()
        took = run(steps)
        cpu = _cpu_seconds() - before
        count = steps * num_envs
        memory, kind = _memory()
        round_ = {"sps": count / took, "cpu_per_step": cpu / count}
        _answer(answers, {**round_, "memory": memory, "memory_kind": kind})
    envs.close()


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
        times = process.cpu_times()
        total += times.user + times.system
    return total


def _memory() -> tuple[int, str]:
    """Bytes that this process and its children hold, and how they were counted."""
    try:
        # The proportional set size counts a page that k processes share as 1/k for each of them.
        return sum(process.memory_full_info().pss for process in _family()), "pss"
    except (AttributeError, psutil.AccessDenied):
        return sum(process.memory_info().rss for process in _family()), "rss"


# ---------------------------------------------------------------------- the parent


class Contender:
    """The parent's side of a contender."""

    def __init__(self, name: str, work: str, num_envs: int, seconds: float) -> None:
        self.name = name
        arguments = ["--contend", name, work, str(num_envs), str(seconds)]
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # pygame draws into memory, so that no display is needed.
            env={"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", **os.environ},
        )
        self.first = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with exit code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run_round(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()  # it closes its envs and ends
        self.process.wait()


@dataclass
class Result:
    """The measurements of one contender at one work; times in seconds, memory in bytes."""

    contender: str
    start_up: float
    steps_per_round: int
    sps: list[float] = field(default_factory=list)
    cpu_per_step: list[float] = field(default_factory=list)
    memory: int = 0
    memory_kind: str = ""

    def add(self, answer: dict[str, Any]) -> None:
        self.sps.append(answer["sps"])
        self.cpu_per_step.append(answer["cpu_per_step"])
        self.memory = max(self.memory, answer["memory"])
        self.memory_kind = answer["memory_kind"]


def compare(
    work: str, names: list[str], num_envs: int, rounds: int, seconds: float
) -> list[Result]:
    """Run all contenders at one work, round by round."""
    with ExitStack() as stack:
        contenders = []
        for name in names:
            _note(f"{work}: starting {name}")
            contender = Contender(name, work, num_envs, seconds)
            stack.callback(contender.close)
            contenders.append(contender)
        results = {
            c.name: Result(c.name, c.first["start_up"], c.first["steps"]) for c in contenders
        }
        for number in range(rounds):
            # Each round begins with another contender: nobody always follows the same one.
            shift = number % len(contenders)
            for contender in contenders[shift:] + contenders[:shift]:
                _note(f"{work}: round {number + 1} of {rounds}, {contender.name}")
                results[contender.name].add(contender.run_round())
        _note("")
    return list(results.values())


def _note(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def show(work: str, num_envs: int, results: list[Result], baseline: str) -> None:
    base = next(result for result in results if result.contender == baseline)
    print(f"\n{work}, {num_envs} envs; ratios to {baseline!r}")
    header = ("contender", "steps/s", "ratio", "min..max", "CPU us/step", "start-up s", "MB")
    print("{:<15}{:>11}{:>8}{:>15}{:>13}{:>12}{:>8}".format(*header))
    for result in results:
        ratios = [own / other for own, other in zip(result.sps, base.sps, strict=True)]
        median = statistics.median(result.sps)
        print(
            f"{result.contender:<15}{median:>11,.0f}"
            f"{median / statistics.median(base.sps):>8.2f}"
            f"{f'{min(ratios):.2f}..{max(ratios):.2f}':>15}"
            f"{statistics.median(result.cpu_per_step) * 1e6:>13.1f}"
            f"{result.start_up:>12.2f}{result.memory / 1e6:>8.0f}"
        )


def machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
        cpu = models[0] if models else cpu
    return {
        "cpu": cpu,
        "cpus": agymc.engines.available_cpus(),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "agymc": agymc.__version__,
        "load_before": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--engines", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one round (default 1)")
    parser.add_argument("--num-envs", type=int, help="instead of the number of the work")
    parser.add_argument("--baseline", help="what ratios refer to (default: the first of --engines)")
    parser.add_argument("--json", metavar="PATH", help="write everything that was measured")
    parser.add_argument("--contend", nargs=4, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.contend:
        name, work, num_envs, seconds = flags.contend
        contend(name, work, int(num_envs), float(seconds))
        return
    baseline = flags.baseline or flags.engines[0]
    if baseline not in flags.engines:
        parser.error(f"--baseline {baseline} is not among --engines {' '.join(flags.engines)}")

    where = machine()
    for key, value in where.items():
        print(f"{key}: {value}")
    if where["load_before"] > 0.5:
        print("The machine was busy before this began: don't trust the numbers.")
    measured = {}
    for work in flags.work:
        num_envs = flags.num_envs or WORKS[work].num_envs
        results = compare(work, flags.engines, num_envs, flags.rounds, flags.seconds)
        show(work, num_envs, results, baseline)
        measured[work] = {"num_envs": num_envs, "results": [asdict(r) for r in results]}
    if flags.json:
        with open(flags.json, "w") as file:
            json.dump({"machine": where, "baseline": baseline, "work": measured}, file, indent=2)


if __name__ == "__main__":
    main()
