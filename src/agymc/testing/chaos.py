"""An engine under fire: ``python -m agymc.testing.chaos --seconds 60 --engine process``.

Many `FaultyEnv` fail at random in every way that the engine can survive, while whole batches,
partial batches and resets are asked for at random, and a model knows what each result must be: the
observation says which env it is of, which life of it, which episode and step, and with which
action. Some envs never fail on their own; at the end, what they have given is compared, bit by bit,
with what they give when nobody fails.

Where an env shares a process with one that crashes, it is restarted with it, and its trajectory is
then compared from each restart on, by the seed of which it says it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from agymc.engines import ENGINES
from agymc.entry import make_vec
from agymc.faults import Backoff, FaultPolicy
from agymc.testing.faulty import (
    DEADLY_FAULTS,
    AsyncFaultName,
    AsyncFaultyEnv,
    FaultName,
    FaultyEnv,
    Observation,
)
from agymc.types import AutoresetMode, Batch
from agymc.vector_env import VectorEnv

__all__ = ["Report", "faults_for", "main", "run"]

_STEP_TIMEOUT = 0.5
_NEVER_ENDING = 60.0  # seconds for a call; nothing here may take so long
_SLOW_FAULTS = frozenset(
    {
        "hang",
        "hang in C",
        "hang holding the GIL",
        "sigstop",
        "swallow cancellation",
        "block the loop",
    }
)


def faults_for(engine: str) -> tuple[str, ...]:
    """The faults that an engine survives: others would end or stop the caller."""
    where, how = ENGINES[engine]
    names: tuple[str, ...] = get_args(AsyncFaultName if how == "asyncio" else FaultName)
    if where == "process":
        return names
    # A thread that allocates without end does so for all of them.
    unbearable = {"serial": "hang in C", "thread": "allocate"}.get(how)
    return tuple(name for name in names if name not in DEADLY_FAULTS and name != unbearable)


@dataclass
class Report:
    """What a run came to.

    Attributes:
        engine: The engine.
        seconds: How long it took.
        transitions: The results that were checked.
        resets: How many of them were first observations of an episode.
        injected: The faults that happened, by name.
        told: The faults that ``infos["fault"]`` told of, by kind; "collateral" ones apart.
        compared: The results of envs without faults that were compared with a quiet run.
        wrong: Results that were not what they must be, in words.
        lost: Operations without a result.
        duplicate: Results without an operation.
    """

    engine: str
    seconds: float = 0.0
    transitions: int = 0
    resets: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    duplicate: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong, lost or given twice."""
        return not (self.wrong or self.lost or self.duplicate)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "clean": self.clean}


@dataclass
class _Model:
    """What is known of one env, from the outside.

    Attributes:
        life: The number of its env object; None before the first result.
        step: The steps made in this episode.
        total: The sum of its actions.
        over: Whether the last result ended an episode.
        action: The action in flight; -1 for a reset, None for nothing.
    """

    life: int | None = None
    episode: int = -1
    step: int = 0
    total: int = 0
    over: bool = False
    action: int | None = None


class _Checker:
    """Checks each result.

    Args:
        report: Where to note what is wrong.
        count: The number of envs.
        length: The steps of an episode.
    """

    def __init__(self, report: Report, count: int, length: int) -> None:
        self.report = report
        self.models = [_Model() for _ in range(count)]
        self.length = length
        self.healthy: dict[int, list[tuple[int, NDArray[np.float64]]]] = {}

    def sent(self, env_ids: Any, actions: Any) -> None:
        """These operations are in flight now; action -1 is a reset."""
        for index, action in zip(env_ids, actions, strict=True):
            self.models[int(index)].action = int(action)

    def received(self, batch: Batch) -> None:
        """Check the results of a batch."""
        fault = batch.infos.get("fault", {})
        told = batch.infos.get("_fault", np.zeros(len(batch), np.bool_))
        for row, index in enumerate(batch.env_ids.tolist()):
            self.report.transitions += 1
            kind = None
            if told[row]:
                kind = str(fault["kind"][row])
                self.report.told["collateral" if fault["collateral"][row] else kind] += 1
            self._check(
                index,
                batch.observations[row],
                float(batch.rewards[row]),
                bool(batch.terminations[row]),
                bool(batch.truncations[row]),
                kind,
            )

    def _check(
        self,
        index: int,
        observation: NDArray[np.float64],
        reward: float,
        terminated: bool,
        truncated: bool,
        fault: str | None,
    ) -> None:
        model = self.models[index]
        action, model.action = model.action, None
        if action is None:
            self.report.duplicate += 1
            return
        seen = Observation(observation)
        begins = action == -1 or model.over
        if begins:  # an autoreset, or a reset that was asked for
            self.report.resets += 1
            new_life = seen.life != model.life
            expected: tuple[Any, ...] = (0, -1, 0, 0.0, False, False)
            if not new_life and seen.episode != model.episode + 1:
                self._say(index, f"episode {seen.episode} after {model.episode} in one life")
            if fault is not None and not new_life:
                self._say(index, f"a fault ({fault}) without a new life")
            if fault is None and new_life and model.life is not None and not model.over:
                self._say(index, "a new life without a fault")
            model.life, model.episode = seen.life, seen.episode
            model.step = model.total = 0
            model.over = False
        elif fault is not None:  # the last observation again, and the episode is over
            expected = (model.step, seen.action, model.total, 0.0, False, True)
            if seen.life != model.life or seen.episode != model.episode:
                self._say(index, "a truncated step shows another life or episode")
            model.over = True
        else:
            model.step += 1
            model.total += action
            over = model.step >= self.length
            expected = (model.step, action, model.total, float(action), over, False)
            if seen.life != model.life or seen.episode != model.episode:
                self._say(
                    index,
                    f"life {seen.life}, episode {seen.episode} after life {model.life}, episode "
                    f"{model.episode}, in the middle of an episode",
                )
            model.over = over
        got = (seen.step, seen.action, seen.total, reward, terminated, truncated)
        if seen.index != index:
            self._say(index, f"got an observation of env {seen.index}")
        if got != expected:
            self._say(index, f"expected {expected}, got {got} (action {action}, fault {fault})")
        if index in self.healthy:
            # Not its life, which is never the same.
            self.healthy[index].append((action, np.delete(observation, 1)))

    def _say(self, index: int, what: str) -> None:
        self.report.wrong.append(f"env {index}, result {self.report.transitions}: {what}")


def run(
    engine: str,
    seconds: float = 60.0,
    *,
    num_envs: int = 32,
    seed: int = 0,
    probability: float = 0.01,
    length: int = 20,
    envs_per_worker: int | None = 4,
    names: Sequence[str] | None = None,
) -> Report:
    """Put an engine under fire.

    Args:
        engine: Its name.
        seconds: For how long.
        num_envs: How many envs.
        seed: Of what is asked for, not of the faults' times.
        probability: Of a fault in a step of an env that may fail.
        length: The steps of an episode.
        envs_per_worker: For process engines.
        names: Which faults; None for all that the engine survives.

    Returns:
        What it came to.
    """
    where, how = ENGINES[engine]
    report = Report(engine)
    random = Random(seed)
    names = faults_for(engine) if names is None else names
    weights = [0.2 if name in _SLOW_FAULTS else 1.0 for name in names]
    policy = FaultPolicy(
        step_timeout=_STEP_TIMEOUT,
        reset_timeout=2 * _STEP_TIMEOUT,
        startup_timeout=20.0,
        on_fault="restart",
        max_restarts=1_000_000,
        backoff=Backoff(base=0.001, cap=0.02),
        grace=0.2,
        check="finite",
        isolate_after=None,
        max_abandoned=1_000,
    )
    # The first third never fails. In processes, these have processes of their own: so that nobody
    # takes them along, which would be right, but nothing that could be compared.
    first_faulty = num_envs // 3
    if where == "process" and envs_per_worker:
        first_faulty -= first_faulty % envs_per_worker
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "faults")
        log.touch()
        cls: Any = AsyncFaultyEnv if how == "asyncio" else FaultyEnv
        env_fns = [
            partial(
                cls,
                index,
                () if index < first_faulty else _drawn(names, weights, random),
                probability=probability,
                seconds=random.choice([0.01, 0.05]),
                length=length,
                log=log,
                operation="reset" if index % 7 == 6 else "step",
            )
            for index in range(num_envs)
        ]
        options: dict[str, Any] = {}
        if where == "process":
            options["envs_per_worker"] = envs_per_worker
        if how == "asyncio":
            options["lag_threshold"] = None
        begin = perf_counter()
        with make_vec(
            env_fns,
            engine=engine,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            faults=policy,
            fairness="oldest",
            **options,
        ) as envs:
            checker = _Checker(report, num_envs, length)
            checker.healthy = {index: [] for index in range(first_faulty)}
            _play(envs, checker, random, begin + seconds, seed)
        report.seconds = perf_counter() - begin
        report.injected.update(line.split(" ", 1)[1] for line in log.read_text().splitlines())
    _compare(checker, seed, length, report)
    return report


def _drawn(names: Sequence[str], weights: list[float], random: Random) -> list[str]:
    """Some faults for one env: all of them, the fast ones more often."""
    return random.choices(names, weights, k=8)


def _play(envs: VectorEnv, checker: _Checker, random: Random, until: float, seed: int) -> None:
    """Ask for things at random until the time is over."""
    count = envs.num_envs
    everything = list(range(count))
    envs.send_reset(seed=seed)
    checker.sent(everything, [-1] * count)
    while perf_counter() < until:
        in_flight = sum(model.action is not None for model in checker.models)
        if in_flight and random.random() < 0.8:
            batch = envs.recv(min_ready=random.randint(1, in_flight), timeout=_NEVER_ENDING)
            checker.received(batch)
        idle = [index for index in everything if checker.models[index].action is None]
        if not idle:
            continue
        if len(idle) > 1 and random.random() < 0.5:
            idle = random.sample(idle, random.randint(1, len(idle)))
        if random.random() < 0.02:
            envs.send_reset(env_ids=idle)
            checker.sent(idle, [-1] * len(idle))
        else:
            actions = [random.randrange(8) for _ in idle]
            envs.send(np.array(actions), idle)
            checker.sent(idle, actions)
    while any(model.action is not None for model in checker.models):
        checker.received(envs.recv(min_ready=1, timeout=_NEVER_ENDING))
    checker.report.lost = envs.statistics().in_flight


def _compare(checker: _Checker, seed: int, length: int, report: Report) -> None:
    """Envs that never failed, against single ones that did the same in quiet."""
    for index, results in checker.healthy.items():
        env = FaultyEnv(index, length=length)
        over = False
        for number, (action, observation) in enumerate(results):
            if action == -1 or over:
                expected, _ = env.reset(seed=seed + index if number == 0 else None)
                over = False
            else:
                expected, _, over, _, _ = env.step(np.int64(action))
            report.compared += 1
            if not np.array_equal(np.delete(expected, 1), observation):
                report.wrong.append(
                    f"env {index}, result {number}: other than in a run without faults: expected "
                    f"{np.delete(expected, 1)}, got {observation}"
                )
                break


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 when nothing was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m agymc.testing.chaos", description="Put an engine under fire."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each engine")
    parser.add_argument("--engine", choices=[*ENGINES, "all"], default="all")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--probability", type=float, default=0.01, help="of a fault in a step")
    parser.add_argument("--json", action="store_true", help="one line of JSON per engine")
    options = parser.parse_args(arguments)
    engines = list(ENGINES) if options.engine == "all" else [options.engine]
    clean = True
    for engine in engines:
        report = run(
            engine,
            options.seconds,
            num_envs=options.num_envs,
            seed=options.seed,
            probability=options.probability,
        )
        clean &= report.clean
        sys.stdout.write(json.dumps(report.as_dict()) + "\n" if options.json else _in_words(report))
        sys.stdout.flush()
    return 0 if clean else 1


def _in_words(report: Report) -> str:
    def counts(counter: Counter[str]) -> str:
        return ", ".join(f"{count} {name}" for name, count in counter.most_common()) or "none"

    lines = [
        f"{report.engine}: {report.transitions} results in {report.seconds:.1f} s",
        f"  injected ({sum(report.injected.values())}): {counts(report.injected)}",
        f"  told: {counts(report.told)}",
        f"  compared with a quiet run: {report.compared}",
        f"  wrong: {len(report.wrong)}, lost: {report.lost}, duplicate: {report.duplicate}",
    ]
    lines += [f"    {text}" for text in report.wrong[:10]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
