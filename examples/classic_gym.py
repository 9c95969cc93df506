"""Random search on CartPole, with the API of classic gym: every env plays its own policy.

    python examples/classic_gym.py --num-envs 50 --rounds 10

Add `--render` for a window with all envs (it needs `pip install 'agymc[render,classic]'`).
"""

import argparse
import asyncio

import numpy as np

import agymc

parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default=50)
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--render", action="store_true")
flags = parser.parse_args()

rng = np.random.default_rng(0)
best, best_score = np.zeros(4), 0.0


async def report(number: int, score: float) -> str:
    await asyncio.sleep(0.1)  # a slow database: all calls wait at the same time
    return f"env {number}: {score:.0f}"


with agymc.make("CartPole-v1", flags.num_envs) as envs:
    for round_number in range(flags.rounds):
        policies = best + rng.normal(scale=0.5, size=(flags.num_envs, 4))
        scores = np.zeros(flags.num_envs)
        observations = envs.reset(seed=0)
        dones = [False] * flags.num_envs
        while not all(dones):
            if flags.render:
                envs.render()
            actions = [int(p @ o > 0) for p, o in zip(policies, observations, strict=True)]
            # An env that is done waits for the others: it is not stepped, its reward is 0.
            observations, rewards, dones, infos = envs.step(actions)
            scores += rewards
        reports = envs.parallel(report, [range(flags.num_envs), scores.tolist()])
        winner = int(scores.argmax())
        if scores[winner] >= best_score:
            best, best_score = policies[winner], scores[winner]
        print(f"round {round_number}: {scores.mean():.0f} on average, best is {reports[winner]}")
