"""Many sessions on an OpenEnv server, as envs of agymc.

    python examples/openenv_echo.py --envs 64 --episodes 128

It needs `pip install 'agymc[openenv]'`. The server is a process that this script starts and ends;
its env echoes what it is told, in text, and counts. Every session has an env of its own there.
With a server of yours, only the client half is needed.
"""

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import time

from gymnasium import spaces

import agymc
from agymc.adapters.openenv import OpenEnv


def serve(sessions: int) -> None:
    """The server. It prints its port, and ends when its stdin does: with whoever started it."""
    import os
    import threading

    import uvicorn
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

    class Said(Action):
        text: str

    class Heard(Observation):
        text: str

    class Echo(Environment[Said, Heard, State]):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None, **_):
            self._state = State(episode_id=episode_id, step_count=0)
            return Heard(text="")

        def step(self, action, timeout_s=None, **_):
            self._state.step_count += 1
            words = len(action.text.split())
            return Heard(text=action.text, reward=float(words), done=words >= 5)

        @property
        def state(self):
            return self._state

    def follow_the_parent():
        sys.stdin.read()
        os._exit(0)

    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    app = create_fastapi_app(Echo, Said, Heard, max_concurrent_envs=sessions)
    threading.Thread(target=follow_the_parent, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


@contextlib.contextmanager
def server(sessions: int):
    """The URL of a server in a process of its own."""
    command = [sys.executable, __file__, "--serve", "--envs", str(sessions)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:  # waits for its end, and closes the pipes
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise SystemExit("the server did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


async def play(url: str, num_envs: int, episodes: int) -> None:
    def make_env():
        return OpenEnv.connect(  # opens the session at once; `OpenEnv` opens it at the first reset
            url,
            observation_space=spaces.Text(100, min_length=0),
            action_space=spaces.Text(100, min_length=0, charset="la "),
            to_action=lambda text: {"text": text},
            to_observation=lambda observation: observation["text"],
            capacity_timeout=5.0,
        )

    returns = []
    began = time.perf_counter()
    async with agymc.make_async(make_env, num_envs, max_constructing=32) as envs:
        opened = time.perf_counter()
        # The policy sings one word more than it heard.
        async for episode in envs.rollout(lambda heard: f"{heard} la".strip(), episodes=episodes):
            returns.append(episode.rewards.sum())
        took = time.perf_counter() - opened
        song = episode.observations[-1]
    print(f"{num_envs} sessions opened in {opened - began:.1f} s at {url}")
    print(f"{len(returns)} episodes of return {sum(returns) / len(returns):.1f} in {took:.1f} s")
    print(f"the last echo: {song}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=64, help="sessions at the same time")
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--serve", action="store_true", help="be the server")
    flags = parser.parse_args()
    if flags.serve:
        serve(flags.envs)
    else:
        with server(flags.envs) as url:
            asyncio.run(play(url, flags.envs, flags.episodes))


if __name__ == "__main__":
    main()
