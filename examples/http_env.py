"""A thousand sessions of an HTTP service, as coroutine envs over one pool of connections.

    python examples/http_env.py --envs 1000 --episodes 2000

It needs `pip install aiohttp`. The service is a process that this script starts and ends: a
gridworld, a session per player, JSON over HTTP, every answer after some latency. The env is a
class with `async def`. While a thousand of them wait for their answers, one thread is enough, and
some hundred connections are: they share a pool, which keeps to its limit by making requests wait.
(A connection for each would be more than the 1024 descriptors that a process may usually have.)
"""

import argparse
import asyncio
import contextlib
import random
import socket
import subprocess
import sys
import time
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web
from gymnasium import spaces

import agymc

SIZE = 8
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))


class Service:
    """The server: players who walk to their goals. It knows nothing of agymc."""

    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.players: dict[str, dict[str, Any]] = {}
        self.begun = self.most = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/sessions", self.begin)
        app.router.add_get("/sessions", self.count)
        app.router.add_post("/sessions/{name}/reset", self.reset)
        app.router.add_post("/sessions/{name}/step", self.step)
        app.router.add_delete("/sessions/{name}", self.end)
        return app

    async def begin(self, _: web.Request) -> web.Response:
        name = str(self.begun)
        self.begun += 1
        self.players[name] = {"random": random.Random()}
        self.most = max(self.most, len(self.players))
        return web.json_response({"session": name})

    async def count(self, _: web.Request) -> web.Response:
        return web.json_response({"open": len(self.players), "most": self.most})

    async def end(self, request: web.Request) -> web.Response:
        del self.players[request.match_info["name"]]
        return web.json_response({})

    async def reset(self, request: web.Request) -> web.Response:
        player = self.players[request.match_info["name"]]
        seed = (await request.json())["seed"]
        if seed is not None:
            player["random"].seed(seed)
        cells = player["random"].sample(range(SIZE * SIZE), 2)
        player["at"], player["goal"] = (divmod(cell, SIZE) for cell in cells)
        player["steps"] = 0
        return await self.answer(player)

    async def step(self, request: web.Request) -> web.Response:
        player = self.players[request.match_info["name"]]
        move = MOVES[(await request.json())["action"]]
        x, y = (min(SIZE - 1, max(0, a + b)) for a, b in zip(player["at"], move, strict=True))
        player["at"] = (x, y)
        player["steps"] += 1
        return await self.answer(player)

    async def answer(self, player: dict[str, Any]) -> web.Response:
        await asyncio.sleep(random.uniform(0.5, 1.5) * self.latency)
        there = player["at"] == player["goal"]
        return web.json_response(
            {
                "observation": [*player["at"], *player["goal"]],
                "reward": 1.0 if there else -0.01,
                "terminated": there,
                "truncated": not there and player["steps"] >= 50,
            }
        )


async def serve(latency: float) -> None:
    """Prints the port, and serves until stdin ends: as long as whoever started it is there."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    runner = web.AppRunner(Service(latency).app())
    await runner.setup()
    await web.SockSite(runner, listener, backlog=1024).start()
    print(listener.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


class HttpEnv:
    """The client: a coroutine env, which is `gymnasium.Env` with `async` in front."""

    observation_space = spaces.Box(0, SIZE - 1, (4,), np.int64)  # x and y, of the player and goal
    action_space = spaces.Discrete(len(MOVES))

    def __init__(self, http: aiohttp.ClientSession, session: str) -> None:
        self.http = http
        self.path = f"/sessions/{session}"

    @classmethod
    async def open(cls, http: aiohttp.ClientSession) -> "HttpEnv":
        """An env function may be a coroutine function."""
        return cls(http, (await request(http, "POST", "/sessions"))["session"])

    async def reset(self, *, seed=None, options=None):
        answer = await request(self.http, "POST", f"{self.path}/reset", {"seed": seed})
        return np.array(answer["observation"]), {}

    async def step(self, action):
        answer = await request(self.http, "POST", f"{self.path}/step", {"action": int(action)})
        observation = np.array(answer["observation"])
        return observation, answer["reward"], answer["terminated"], answer["truncated"], {}

    async def close(self) -> None:
        await request(self.http, "DELETE", self.path)


async def request(http: aiohttp.ClientSession, method: str, path: str, data: Any = None) -> Any:
    async with http.request(method, path, json=data) as answer:
        if not answer.ok:  # an exception of an env reaches the caller as the cause of its EnvError
            raise RuntimeError(f"{method} {path}: HTTP status {answer.status}: {answer.reason}")
        return await answer.json()


def towards_the_goal(observations: np.ndarray) -> np.ndarray:
    """Actions for k observations: along x first, then along y."""
    dx, dy = (observations[:, 2:] - observations[:, :2]).T
    return np.select([dx > 0, dx < 0, dy > 0], [0, 1, 2], default=3)


async def play(url: str, num_envs: int, episodes: int, connections: int) -> None:
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(url, connector=connector) as http:
        began = time.perf_counter()
        async with agymc.make_async(lambda: HttpEnv.open(http), num_envs) as envs:
            opened = time.perf_counter()
            begun = min(num_envs, episodes)
            ended = reached = steps = batches = 0
            envs.send_reset(seed=list(range(begun)), env_ids=list(range(begun)))
            async for batch in envs.batches(min_ready=max(1, num_envs // 10)):
                over = batch.terminations | batch.truncations
                batches += 1
                steps += int(np.count_nonzero(batch.steps))
                ended += int(np.count_nonzero(over))
                reached += int(np.count_nonzero(batch.terminations))
                # The next action of an env whose episode is over begins the next episode. It gets
                # none when enough have begun, and the loop ends when nothing is in flight.
                again = np.flatnonzero(over)[: episodes - begun]
                begun += len(again)
                going = ~over
                going[again] = True
                if going.any():
                    actions = towards_the_goal(batch.observations[going])
                    envs.send(actions, batch.env_ids[going])
            took = time.perf_counter() - opened
            most = (await request(http, "GET", "/sessions"))["most"]
        left = (await request(http, "GET", "/sessions"))["open"]
    print(f"{most} sessions over {connections} connections, opened in {opened - began:.1f} s")
    print(f"{ended} episodes, {reached} of them at the goal: {steps} steps in {batches} batches")
    print(f"{took:.1f} s, {steps / took:.0f} steps per second; {left} sessions left")


@contextlib.contextmanager
def service(latency: float):
    """The URL of the service, which runs in a process of its own."""
    command = [sys.executable, __file__, "--serve", "--latency", str(latency)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours alone
    ) as process:  # leaving this closes its stdin, and waits for its end
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise SystemExit("the service did not start")
        yield f"http://127.0.0.1:{port}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=1000, help="sessions at the same time")
    parser.add_argument("--episodes", type=int, default=2000, help="of all envs together")
    parser.add_argument("--connections", type=int, default=200, help="the most that are open")
    parser.add_argument("--latency", type=float, default=0.02, help="of an answer, in seconds")
    parser.add_argument("--serve", action="store_true", help="be the service")
    flags = parser.parse_args()
    if flags.serve:
        asyncio.run(serve(flags.latency))
        return
    with service(flags.latency) as url:
        asyncio.run(play(url, flags.envs, flags.episodes, flags.connections))


if __name__ == "__main__":
    main()
