"""What the asyncio engine promises, measured: three experiments, each with its rival in one run.

    python benchmarks/asyncio_envs.py            # all, a minute
    python benchmarks/asyncio_envs.py tail       # one of: step, tail, memory

step
    10,000 coroutine envs that each sleep 10 ms: a full step against a bare `asyncio.gather` of the
    same coroutines. Seconds (wall), ratio of medians, interleaved rounds.
tail
    256 envs, 5 ms steps, one in 20 takes 500 ms: env steps per second of
    ``batches(min_ready=32)`` against that of whole steps (a barrier).
memory
    Bytes per idle env beyond the env's own, and CPU seconds of an idle pool in two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tracemalloc
from time import perf_counter, process_time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import agymc

OBSERVATION_SPACE = Box(-1.0, 1.0, (4,), np.float32)
ACTION_SPACE = Discrete(2)


class Sleeper:
    """A coroutine env that waits."""

    observation_space = OBSERVATION_SPACE
    action_space = ACTION_SPACE

    def __init__(self, seconds: float = 0.01, tail: float = 0.0, seed: int = 0) -> None:
        self.seconds, self.tail = seconds, tail
        self.random = np.random.default_rng(seed) if tail else None
        self.observation = np.zeros(4, np.float32)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self.observation, {}

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        slow = self.random is not None and self.random.random() < self.tail
        await asyncio.sleep(0.5 if slow else self.seconds)
        return self.observation, 1.0, False, False, {}

    async def close(self) -> None:
        pass


async def step(num_envs: int = 10_000, rounds: int = 15) -> dict[str, Any]:
    bare = [Sleeper() for _ in range(num_envs)]
    actions = np.zeros(num_envs, np.int64)
    single = list(actions)
    times: dict[str, list[float]] = {"gather": [], "agymc": []}
    async with agymc.make_async(Sleeper, num_envs) as envs:
        await envs.reset()
        for _ in range(rounds):
            begin = perf_counter()
            await asyncio.gather(*[env.step(a) for env, a in zip(bare, single, strict=True)])
            times["gather"].append(perf_counter() - begin)
            begin = perf_counter()
            await envs.step(actions)
            times["agymc"].append(perf_counter() - begin)
    ratios = [a / g for a, g in zip(times["agymc"], times["gather"], strict=True)]
    return {
        "num_envs": num_envs,
        "gather_seconds": statistics.median(times["gather"]),
        "agymc_seconds": statistics.median(times["agymc"]),
        "ratio_of_medians": statistics.median(times["agymc"]) / statistics.median(times["gather"]),
        "ratio_spread": [min(ratios), max(ratios)],
    }


async def tail(num_envs: int = 256, rounds: int = 3, seconds: float = 3.0) -> dict[str, Any]:
    functions = [lambda i=i: Sleeper(0.005, 0.05, seed=i) for i in range(num_envs)]
    speeds: dict[str, list[float]] = {"barrier": [], "batches": []}
    counts = np.zeros(num_envs, np.int64)
    async with agymc.make_async(functions, fairness="oldest") as envs:
        await envs.reset()
        for _ in range(rounds):
            steps, begin = 0, perf_counter()
            while perf_counter() - begin < seconds:
                await envs.step(np.zeros(num_envs, np.int64))
                steps += num_envs
            speeds["barrier"].append(steps / (perf_counter() - begin))
            envs.send(np.zeros(num_envs, np.int64))
            steps, begin = 0, perf_counter()
            async for batch in envs.batches(min_ready=32):
                steps += len(batch)
                counts[batch.env_ids] += 1
                if perf_counter() - begin < seconds:
                    batch.reply(np.zeros(len(batch), np.int64))
            speeds["batches"].append(steps / (perf_counter() - begin))
    ratios = [b / a for a, b in zip(speeds["barrier"], speeds["batches"], strict=True)]
    return {
        "num_envs": num_envs,
        "barrier_sps": statistics.median(speeds["barrier"]),
        "batches_sps": statistics.median(speeds["batches"]),
        "ratio_of_medians": statistics.median(speeds["batches"])
        / statistics.median(speeds["barrier"]),
        "ratio_spread": [min(ratios), max(ratios)],
        "steps_per_env": [int(counts.min()), int(counts.max())],
    }


async def memory(num_envs: int = 10_000) -> dict[str, Any]:
    tracemalloc.start()
    begin, _ = tracemalloc.get_traced_memory()
    bare = [Sleeper() for _ in range(num_envs)]
    own = tracemalloc.get_traced_memory()[0] - begin
    begin, _ = tracemalloc.get_traced_memory()
    async with agymc.make_async(Sleeper, num_envs) as envs:
        await envs.reset()
        used = tracemalloc.get_traced_memory()[0] - begin
        tracemalloc.stop()
        begin_cpu = process_time()
        await asyncio.sleep(2.0)
        idle = process_time() - begin_cpu
    del bare
    return {
        "num_envs": num_envs,
        "bytes_per_idle_env": (used - own) / num_envs,
        "idle_cpu_seconds_in_2_seconds": idle,
    }


EXPERIMENTS = {"step": step, "tail": tail, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", help=", ".join(EXPERIMENTS))
    for name in parser.parse_args().experiments or EXPERIMENTS:
        result = asyncio.run(EXPERIMENTS[name]())
        result |= {
            "experiment": name,
            "python": platform.python_version(),
            "gymnasium": gymnasium.__version__,
            "numpy": np.__version__,
            "agymc": agymc.__version__,
        }
        json.dump(result, sys.stdout)
        print(flush=True)


if __name__ == "__main__":
    main()
