"""Gymnasium's vector API, with one of Gymnasium's own wrappers on top.

    python examples/vector_api.py --num-envs 64 --steps 500

It needs no extra: stepping CartPole draws nothing.
"""

import argparse

from gymnasium.wrappers.vector import RecordEpisodeStatistics

import agymc

parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default=64)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--engine", choices=["auto", *agymc.ENGINES], default="auto")
flags = parser.parse_args()

envs = agymc.make_vec("CartPole-v1", flags.num_envs, engine=flags.engine)
print(f"{envs}: observations {envs.observation_space.shape}, actions {envs.action_space.shape}")

recorded = RecordEpisodeStatistics(envs)
recorded.action_space.seed(0)
observations, infos = recorded.reset(seed=0)
lengths = []
for _ in range(flags.steps):
    actions = recorded.action_space.sample()
    observations, rewards, terminations, truncations, infos = recorded.step(actions)
    if "episode" in infos:
        lengths += infos["episode"]["l"][infos["_episode"]].tolist()
recorded.close()

mean = sum(lengths) / len(lengths)
print(f"{len(lengths)} episodes of random actions, {mean:.1f} steps on average")
