"""The OpenEnv adapter against real OpenEnv servers, on the loopback interface.

To import OpenEnv's server takes seconds, so one process imports it, and forks a server whenever a
test wants one. A server's env counts: from the seed of its reset, by the amounts of its actions.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

import agymc

pytest.importorskip("openenv", reason="needs the extra `openenv`")

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient

from agymc.adapters import openenv as adapter
from agymc.adapters.openenv import CapacityError, OpenEnv, ServerError

SERVER = """
import json, os, signal, socket, sys, threading, time, uuid

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Add(Action):
    amount: int = 0
    fail: str = ""
    seconds: float = 0.0


class Count(Observation):
    count: int
    session: str


class Counter(Environment[Add, Count, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.session = uuid.uuid4().hex
        self.count = None
        self.steps = 0

    def reset(self, seed=None, episode_id=None, fail="", limit=10**9, **_):
        if fail:
            raise ValueError(fail)
        self.count, self.episode_id, self.limit, self.steps = seed or 0, episode_id, limit, 0
        return self._observe(None)

    def step(self, action, timeout_s=None, **_):
        time.sleep(action.seconds)
        if action.fail:
            raise ValueError(action.fail)
        self.steps += 1
        self.count += action.amount
        return self._observe(float(action.amount))

    def _observe(self, reward):
        over = self.steps >= self.limit
        return Count(
            count=self.count,
            session=self.session,
            reward=reward,
            done=over,
            metadata={"truncated": True} if over else {},
        )

    @property
    def state(self):
        return State(episode_id=self.episode_id, step_count=self.steps)


class Broken(Counter):
    def __init__(self):
        raise ValueError("no wheels")


def serve(kind, sessions, listener, lifeline):
    def follow():
        os.read(lifeline, 1)
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()
    make = {"counter": Counter, "broken": Broken}[kind]
    app = create_fastapi_app(make, Add, Count, max_concurrent_envs=sessions)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])


signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a server
lifeline, held = os.pipe()
print("ready", flush=True)
for line in sys.stdin:
    kind, sessions, port = json.loads(line)
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    port = listener.getsockname()[1]
    pid = os.fork()
    if not pid:
        os.close(held)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        serve(kind, sessions, listener, lifeline)
        os._exit(0)
    listener.close()
    print(json.dumps([pid, port]), flush=True)
"""


@dataclass
class Server:
    """A server that is running."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(self.pid))


Start = Callable[..., Server]


def eventually(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Starts servers; all are gone after the tests."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        started: list[Server] = []

        def start_one(sessions: int = 64, *, kind: str = "counter", port: int = 0) -> Server:
            process.stdin.write(json.dumps([kind, sessions, port]) + "\n")
            process.stdin.flush()
            started.append(Server(*json.loads(process.stdout.readline())))
            return started[-1]

        yield start_one
        for server in started:
            with contextlib.suppress(ProcessLookupError):
                server.signal(signal.SIGCONT)
        process.stdin.close()  # that ends the servers, and then the process


@pytest.fixture(scope="module")
def shared(start: Start) -> Server:
    """A server with room for all, for tests that leave it as it was."""
    return start(256)


def run(main: Callable[[], Coroutine[Any, Any, Any]], server: Server | None = None) -> Any:
    """Run it to its end, and see that it leaves neither tasks nor connections."""

    async def checked() -> Any:
        result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left
        return result

    result = asyncio.run(checked())
    if server is not None:
        connections = psutil.Process().net_connections("tcp")
        assert not [c for c in connections if c.raddr and c.raddr.port == server.port]
    return result


AMOUNTS = spaces.Box(-1000, 1000, (), np.int64)
COUNTS = spaces.Box(-(10**9), 10**9, (1,), np.int64)


def to_action(amount: Any) -> dict[str, Any]:
    """What the test's actions mean: amounts, and two magic ones."""
    if amount == -999:
        return {"fail": "the wheel came off"}
    if amount == -998:
        return {"seconds": 60.0}
    if amount == -997:
        return {"amuont": 1}
    return {"amount": int(amount)}


def to_observation(observation: dict[str, Any]) -> Any:
    return np.array([observation["count"]], np.int64)


def to_info(result: Any) -> dict[str, Any]:
    return {"session": result.observation["session"]}


OPTIONS: dict[str, Any] = {
    "observation_space": COUNTS,
    "action_space": AMOUNTS,
    "to_action": to_action,
    "to_observation": to_observation,
    "to_info": to_info,
}

FAIL, HANG, MISSPELL = -999, -998, -997


def make(server: Server, num_envs: int, **options: Any) -> agymc.AioVectorEnv:
    """Envs whose sessions open when they are made."""
    return agymc.make_async(
        OpenEnv.connect, num_envs, **{"base_url": server.url, **OPTIONS, **options}
    )


# ------------------------------------------------------------------ sessions


@pytest.mark.parametrize("opening", [OpenEnv, OpenEnv.connect], ids=["at reset", "when made"])
def test_many_sessions_each_with_its_own_data(shared: Server, opening: Any) -> None:
    count, steps = 96, 6
    generator = np.random.default_rng(0)
    amounts = generator.integers(1, 100, (steps, count))

    async def main() -> None:
        async with agymc.make_async(opening, count, base_url=shared.url, **OPTIONS) as envs:
            session: list[Any] = [None] * count
            envs.send_reset(seed=[1000 * i for i in range(count)])
            ended = 0
            async for batch in envs.batches(min_ready=7):
                going = []
                for row, (index, step) in enumerate(zip(batch.env_ids, batch.steps, strict=True)):
                    expected = 1000 * index + amounts[:step, index].sum()
                    assert batch.observations[row] == expected
                    assert batch.rewards[row] == (amounts[step - 1, index] if step else 0.0)
                    own = batch.infos["session"][row]
                    session[index] = session[index] or own
                    assert session[index] == own
                    if step < steps:
                        going.append((index, amounts[step, index]))
                    else:
                        ended += 1
                if going:
                    ids, actions = zip(*going, strict=True)
                    envs.send(np.array(actions), ids)
            assert ended == count
            assert len(set(session)) == count

    run(main, shared)


def test_worker_processes(shared: Server) -> None:
    async def main() -> None:
        envs = make(shared, 8, engine="process+asyncio", num_workers=1)
        async with envs:
            await envs.reset(seed=[10 * i for i in range(8)])
            observations, rewards, *_ = await envs.step(np.arange(8))
            assert observations[:, 0].tolist() == [11 * i for i in range(8)]
            assert rewards.tolist() == list(range(8))
            with pytest.raises(agymc.EnvError, match="the wheel came off"):
                await envs.step(np.full(8, FAIL))

    run(main, shared)


def test_the_sync_doors(shared: Server) -> None:
    with agymc.make_vec(OpenEnv, 4, engine="asyncio", base_url=shared.url, **OPTIONS) as envs:
        envs.reset(seed=[1, 2, 3, 4])
        observations, *_ = envs.step(np.array([10, 20, 30, 40]))
        assert observations[:, 0].tolist() == [11, 22, 33, 44]
    with agymc.make(OpenEnv, 2, engine="asyncio", base_url=shared.url, **OPTIONS) as batch:
        assert [observation.tolist() for observation in batch.reset()] == [[0], [0]]


def test_what_a_reset_is_given_reaches_the_server(shared: Server) -> None:
    async def main() -> None:
        async with make(shared, 2) as envs:
            options = {"episode_id": "third", "limit": np.int64(2)}
            observations, _ = await envs.reset(seed=5, options=options)
            assert observations[:, 0].tolist() == [5, 6]
            *_, terminations, truncations, _ = await envs.step(np.array([1, 1]))
            assert not terminations.any() and not truncations.any()
            *_, terminations, truncations, _ = await envs.step(np.array([1, 1]))
            assert not terminations.any() and truncations.all()  # as the metadata have it
            states = await envs.call("state")
            assert [state["episode_id"] for state in states] == ["third", "third"]
            assert [state["step_count"] for state in states] == [2, 2]

    run(main, shared)


def test_done_means_terminated_unless_said_otherwise(shared: Server) -> None:
    async def main() -> None:
        async with make(shared, 1, is_truncated=lambda result: False) as envs:
            await envs.reset(options={"limit": 1})
            *_, terminations, truncations, _ = await envs.step(np.array([1]))
            assert terminations.all() and not truncations.any()

    run(main, shared)


class TypedClient(EnvClient[int, "TypedObservation", int]):
    """A client as an environment's own package has it."""

    def _step_payload(self, action: int) -> dict[str, Any]:
        return {"amount": action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[TypedObservation]:
        observation = payload["observation"]
        return StepResult(
            TypedObservation(observation["count"], observation["metadata"]),
            payload["reward"],
            payload["done"],
        )

    def _parse_state(self, payload: dict[str, Any]) -> int:
        return payload["step_count"]


@dataclass
class TypedObservation:
    count: int
    metadata: dict[str, Any]


def test_a_typed_client(shared: Server) -> None:
    async def main() -> None:
        async with make(
            shared,
            3,
            client=TypedClient,
            to_action=None,
            to_observation=lambda observation: np.array([observation.count]),
            to_info=None,
            message_timeout_s=30.0,
        ) as envs:
            await envs.reset(seed=0, options={"limit": 1})
            *_, truncations, infos = await envs.step(np.array([7, 8, 9]))
            assert truncations.all()
            assert infos["truncated"].all()
            assert await envs.call("state") == (1, 1, 1)

    run(main, shared)


def test_dicts_pass_as_they_are(shared: Server) -> None:
    """Without functions: dict spaces, whose NumPy values travel as JSON."""

    async def main() -> None:
        async with agymc.make_async(
            OpenEnv,
            2,
            base_url=shared.url,
            observation_space=spaces.Dict(count=AMOUNTS, session=spaces.Text(32)),
            action_space=spaces.Dict(amount=AMOUNTS),
        ) as envs:
            await envs.reset(seed=0)
            observations, *_ = await envs.step({"amount": np.array([3, 4])})
            assert observations["count"].tolist() == [3, 5]

    run(main, shared)


# ------------------------------------------------------------------ errors of the server


def test_an_error_of_the_server_is_one_of_the_env(shared: Server) -> None:
    async def main() -> None:
        async with make(shared, 4) as envs:
            await envs.reset(seed=[0, 10, 20, 30])
            with pytest.raises(agymc.EnvError, match=r"env 2 .* in step: the wheel came off") as e:
                await envs.step(np.array([1, 2, FAIL, 4]))
            assert shared.url in str(e.value)
            cause = e.value.__cause__
            assert isinstance(cause, ServerError) and cause.code == "EXECUTION_ERROR"
            batch = await envs.recv(3)  # the others have their results
            assert sorted(batch.observations[:, 0].tolist()) == [1, 12, 34]
            envs.send_reset(seed=[50], env_ids=[2])  # and this one goes on
            assert (await envs.recv()).observations.tolist() == [[50]]

    run(main, shared)


def test_an_error_in_reset(shared: Server) -> None:
    async def main() -> None:
        async with make(shared, 1) as envs:
            with pytest.raises(agymc.EnvError, match="in reset: no road"):
                await envs.reset(options={"fail": "no road"})
            await envs.reset()

    run(main, shared)


def test_an_action_that_the_server_does_not_know(shared: Server) -> None:
    async def main() -> None:
        async with make(shared, 1) as envs:
            await envs.reset()
            with pytest.raises(agymc.EnvError, match=r"Invalid message \(VALIDATION_ERROR, from"):
                await envs.step(np.array([MISSPELL]))

    run(main, shared)


def test_an_env_that_the_server_cannot_make(start: Start) -> None:
    broken = start(2, kind="broken")

    async def main() -> None:
        with pytest.raises(agymc.EnvError, match="FACTORY_ERROR") as e:
            await make(broken, 1).open()
        assert e.value.operation == "construction"

    run(main, broken)


# ------------------------------------------------------------------ capacity


@pytest.fixture(scope="module")
def small(start: Start) -> Server:
    """A server with room for two sessions, for tests that close theirs."""
    return start(2)


def room(server: Server) -> dict[str, Any]:
    """Options for one who must get in, though the last session may not quite have ended."""
    return {"base_url": server.url, **OPTIONS, "capacity_timeout": 20.0}


def test_a_server_at_capacity_says_so(small: Server) -> None:
    async def main() -> None:
        async with agymc.make_async(OpenEnv.connect, 2, **room(small)) as envs:
            with pytest.raises(agymc.EnvError, match=r"is at capacity: .*2/2 sessions") as e:
                await make(small, 1).open()
            assert isinstance(e.value.__cause__, CapacityError)
            assert small.url in str(e.value) and "max_concurrent_envs" in str(e.value)
            # A session that is opened by the reset is refused there.
            async with agymc.make_async(OpenEnv, 1, base_url=small.url, **OPTIONS) as lazy:
                with pytest.raises(agymc.EnvError, match=r"in reset: .* is at capacity"):
                    await lazy.reset()
            with pytest.raises(agymc.EnvError, match=r"is at capacity.* 0\.\d s long"):
                await make(small, 1, capacity_timeout=0.2).open()
            await envs.reset()

    run(main, small)


def test_waiting_for_a_place(small: Server) -> None:
    async def main() -> None:
        first = agymc.make_async(OpenEnv.connect, 2, **room(small))
        await first.open()
        second = agymc.make_async(OpenEnv, 2, **room(small))
        await second.open()
        waiting = asyncio.ensure_future(second.reset(seed=[7, 8]))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await first.aclose()
        observations, _ = await waiting
        assert observations[:, 0].tolist() == [7, 8]
        await second.aclose()

    run(main, small)


def test_closing_those_that_wait_for_a_place(small: Server) -> None:
    async def main() -> None:
        async with agymc.make_async(OpenEnv.connect, 2, **room(small)):
            lazy = agymc.make_async(OpenEnv, 3, **{**room(small), "capacity_timeout": 1000.0})
            await lazy.open()
            lazy.send_reset()
            await asyncio.sleep(0.2)
            await lazy.aclose()

    run(main, small)


def test_a_proxy_that_has_no_place() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
            port = proxy.sockets[0].getsockname()[1]
            with pytest.raises(agymc.EnvError, match=r"is at capacity: .*\(HTTP status 503\)"):
                await make(Server(0, port), 1).open()

    run(main)


# ------------------------------------------------------------------ lost connections


def test_a_server_that_is_not_there(start: Start) -> None:
    server = start(1)
    server.kill()

    async def main() -> None:
        with pytest.raises(agymc.EnvError, match=f"connect to ws://127.0.0.1:{server.port}/ws"):
            await make(server, 1).open()

    run(main)


def test_a_server_killed_in_mid_step(start: Start) -> None:
    server = start()

    async def main() -> None:
        async with make(server, 8) as envs:
            await envs.reset()
            stepping = asyncio.ensure_future(envs.step(np.array([HANG] * 7 + [1])))
            await asyncio.sleep(0.3)
            server.kill()
            with pytest.raises(agymc.EnvError) as e:
                await stepping
            errors = [e.value, *e.value.others]
            assert sorted(error.env_id for error in errors) == list(range(7))
            for error in errors:
                assert f"OpenEnv server at {server.url} was lost in step" in str(error)
                assert isinstance(error.__cause__, ConnectionError)
            assert len(await envs.recv()) == 1  # the one that had made its step

    run(main, server)


def test_a_server_that_was_started_anew_between_two_steps(start: Start) -> None:
    """The client would go on with a new session, whose env was never reset."""
    server = start()

    async def main() -> None:
        async with make(server, 2) as envs:
            await envs.reset(seed=[5, 6])
            await envs.step(np.array([1, 1]))
            server.kill()
            start(port=server.port)
            await asyncio.sleep(0.1)
            with pytest.raises(agymc.EnvError, match="was lost before step, and the episode with"):
                await envs.step(np.array([1, 1]))
            envs.send_reset(seed=[7, 8], env_ids=[0, 1])
            batch = await envs.recv(2)
            assert sorted(batch.observations[:, 0].tolist()) == [7, 8]

    run(main, server)


def test_a_server_that_hangs(start: Start) -> None:
    server = start()

    async def main() -> None:
        async with make(server, 3, message_timeout_s=0.3, close_timeout=0.5) as envs:
            await envs.reset()
            server.signal(signal.SIGSTOP)
            with pytest.raises(agymc.EnvError, match=f"{server.url} gave no answer to step within"):
                await envs.step(np.array([1, 1, 1]))

    run(main, server)  # in spite of the server's silence nothing is left


def test_closing_envs_that_are_in_mid_step(start: Start) -> None:
    server = start()

    async def main() -> None:
        async with make(server, 8) as envs:
            await envs.reset()
            envs.send(np.full(8, HANG))
            await asyncio.sleep(0.1)

    run(main, server)


def test_cancelled_while_opening(shared: Server) -> None:
    async def main() -> None:
        for delay in (0.0, 0.002, 0.01, 0.02):
            envs = make(shared, 16)
            opening = asyncio.ensure_future(envs.open())
            await asyncio.sleep(delay)
            opening.cancel()
            await asyncio.wait([opening])
            await envs.aclose()  # it may have opened in time
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main, shared)


# ------------------------------------------------------------------ an env by itself


def alone(main: Callable[[OpenEnv], Awaitable[None]], server: Server, **options: Any) -> None:
    async def with_env() -> None:
        env = OpenEnv(server.url, **{**OPTIONS, **options})
        try:
            await main(env)
        finally:
            await env.close()
            await env.close()

    run(with_env, server)


def test_a_step_before_the_reset(shared: Server) -> None:
    async def main(env: OpenEnv) -> None:
        with pytest.raises(gymnasium.error.ResetNeeded, match="expected a reset before step"):
            await env.step(1)

    alone(main, shared)


def test_the_env_is_what_agymc_calls_a_coroutine_env(shared: Server) -> None:
    async def main(env: agymc.AsyncEnv) -> None:
        await env.reset(seed=3)
        observation, reward, terminated, truncated, info = await env.step(np.int64(4))
        assert observation in env.observation_space
        assert (observation.tolist(), reward, terminated, truncated) == ([7], 4.0, False, False)
        assert set(info) == {"session"}

    alone(main, shared)


@pytest.mark.parametrize("name", ["capacity_timeout", "close_timeout"])
def test_seconds_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"expected {name} to be a number of seconds, got -1"):
        OpenEnv("http://127.0.0.1:1", **OPTIONS, **{name: -1})


def test_what_is_no_client_of_openenv() -> None:
    with pytest.raises(TypeError, match=r"expected client to make an openenv\.core\.EnvClient"):
        OpenEnv("http://127.0.0.1:1", **OPTIONS, client=dict)


def test_an_option_that_the_client_does_not_know(shared: Server) -> None:
    async def main() -> None:
        with pytest.raises(agymc.UnknownOptionError, match="mesage_timeout_s"):
            await make(shared, 1, mesage_timeout_s=1.0).open()

    run(main)


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openenv.core.generic_client", None)
    spec = importlib.util.spec_from_file_location("openenv_adapter", adapter.__file__)
    assert spec is not None and spec.loader is not None
    with pytest.raises(agymc.MissingExtraError, match=r"pip install 'agymc\[openenv\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_partial_options_make_env_functions(shared: Server) -> None:
    env_fn = functools.partial(OpenEnv, shared.url, **OPTIONS)

    async def main() -> None:
        async with agymc.make_async([env_fn, env_fn]) as envs:
            await envs.reset()

    run(main, shared)
