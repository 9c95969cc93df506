"""A film of many envs as tiles of one picture.

    python examples/record_mosaic.py --num-envs 12 --path cartpole.gif

It needs `pip install 'agymc[render,classic]'`; `--env LunarLander-v3` needs the extra `box2d` too.
The suffix decides: .png (the last picture), .gif or .mp4 (all of them).
"""

import argparse

import agymc
from agymc.rendering import MosaicRecorder

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="CartPole-v1")
parser.add_argument("--num-envs", type=int, default=12)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--path", default="mosaic.gif")
flags = parser.parse_args()

with (
    agymc.make_vec(flags.env, flags.num_envs, render_mode="rgb_array") as envs,
    MosaicRecorder(flags.path, fps=30, scale=0.25) as recorder,
):
    envs.action_space.seed(0)
    envs.reset(seed=0)
    for _ in range(flags.steps):
        recorder.add(envs.render())
        envs.step(envs.action_space.sample())

print(f"{flags.steps} pictures of {flags.num_envs} envs: {flags.path}")
