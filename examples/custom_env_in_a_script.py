"""An env defined in the script itself, in worker processes, without `if __name__ == "__main__"`.

    python examples/custom_env_in_a_script.py

Workers don't import the caller's `__main__`: the class travels to them by value. So a script needs
no main guard, and the same code works in a notebook.
"""

import os

import gymnasium
import numpy as np
from gymnasium import spaces

import agymc


class GuessTheNumber(gymnasium.Env):
    """The reward is 1 for the right number from 0 to 9; the observation is where it lies."""

    observation_space = spaces.Discrete(3, start=-1)  # lower, right, higher
    action_space = spaces.Discrete(10)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = self.np_random.integers(10)
        return 0, {}

    def step(self, action):
        where = int(np.sign(self.number - action))
        return where, float(where == 0), where == 0, False, {"pid": os.getpid()}


with agymc.make_vec(GuessTheNumber, 6, engine="process", num_workers=2) as envs:
    envs.reset(seed=1)
    low, high = np.zeros(6, np.int64), np.full(6, 9)
    found, pids = np.zeros(6, bool), set()
    guesses = 0
    while not found.all():
        actions = (low + high) // 2
        where, rewards, terminations, truncations, infos = envs.step(actions)
        pids |= set(infos["pid"][infos["_pid"]].tolist())
        low = np.where(where > 0, actions + 1, low)
        high = np.where(where < 0, actions - 1, high)
        found |= terminations
        guesses += 1

print(f"All 6 numbers found with {guesses} guesses each at the most")
print(f"The envs lived in {len(pids)} processes, none of them this one: {os.getpid() not in pids}")
