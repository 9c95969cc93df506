"""A program as its author would have written it for gym, with `agymc` in its place.

It does what the snippet of the first page did: old id, positional count, a flag per feature, a
plain function that only creates a task, `done` as the condition of the loop.
"""

import argparse
import asyncio

import agymc

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    flags = parser.parse_args()

    num_envs = flags.num_envs

    envs = agymc.make("CartPole-v0", num_envs)
    episodes = range(flags.episodes)
    if flags.verbose:
        import tqdm

        episodes = tqdm.tqdm(episodes)
    for _ in episodes:
        done = list(False for _ in range(num_envs))
        envs.reset()
        while not all(done):
            if flags.render:
                envs.render()
            action = envs.action_space.sample()

            def function(number):
                asyncio.create_task(asyncio.sleep(number))  # noqa: RUF006

            _ = envs.parallel(function, [num_envs * [1]])
            (_, _, done, _) = envs.step(action)
    envs.close()
