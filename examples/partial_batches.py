"""Envs whose steps take very different times: go on with those that are ready.

    python examples/partial_batches.py --num-envs 32 --steps 200

Each step of each env sleeps for a time with a heavy tail: some 10 ms mostly, a second now and then.
A `step` of the whole batch would wait for the slowest env each time. `batches(min_ready=8)` goes on
as soon as 8 envs are ready, and no result is lost.
"""

import argparse
import time

import gymnasium
import numpy as np
from gymnasium import spaces

import agymc


class HeavyTail(gymnasium.Env):
    observation_space = spaces.Box(0.0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        seconds = min(1.0, 0.005 * (1.0 + self.np_random.pareto(1.2)))
        time.sleep(seconds)
        return np.array([seconds]), -seconds, False, False, {}


parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default=32)
parser.add_argument("--steps", type=int, default=200, help="of each env, on average")
parser.add_argument("--min-ready", type=int, default=8)
flags = parser.parse_args()
wanted = flags.steps * flags.num_envs

# Envs that wait want a thread each. "oldest": nobody is left waiting for ever.
with agymc.make_vec(HeavyTail, flags.num_envs, engine="thread", fairness="oldest") as envs:
    steps = np.zeros(flags.num_envs, np.int64)
    slept, began = 0.0, time.perf_counter()
    envs.send_reset(seed=0)
    for batch in envs.batches(min_ready=flags.min_ready):
        steps[batch.env_ids] = batch.steps
        slept -= batch.rewards.sum()
        # What is not sent on is not stepped: the loop ends when nothing is in flight any more.
        if steps.sum() < wanted:
            envs.send(np.zeros(len(batch), np.int64), batch.env_ids)
    took = time.perf_counter() - began

print(f"{steps.sum()} steps, between {steps.min()} and {steps.max()} per env")
print(f"The envs slept for {slept:.1f} s in {took:.1f} s of wall time")
