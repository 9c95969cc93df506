"""Environments behind an OpenEnv server, as coroutine envs.

OpenEnv is at https://github.com/huggingface/OpenEnv. ::

    from agymc.adapters.openenv import OpenEnv

    envs = agymc.make_async(
        OpenEnv,
        64,
        base_url="http://localhost:8000",
        action_space=spaces.Discrete(4),
        observation_space=spaces.Box(-np.inf, np.inf, (1,), np.float64),
        to_action=lambda action: {"value": int(action)},
        to_observation=lambda observation: np.array([observation["count"]], np.float64),
    )

Each env has a client of its own, and with it a WebSocket and a session on the server: an env of its
own there. The client is OpenEnv's (0.10), awaited in the loop that the env lives in; its sync
wrapper, which has a thread and a loop per client, is not used. OpenEnv gives the messages: JSON
``{"type": "reset" | "step" | "state" | "close", "data": {...}}``, one answer to each, in order.

Three things are seen to here, because the client leaves them open:

- **The client reconnects by itself**, silently, when its connection was lost: to a new session, so
  that a `step` would go to an env that was never reset. Here the connection that an episode was
  begun on is remembered, and a step on any other is an error. The next `reset` reconnects.
- **A server at capacity accepts the connection**, and refuses the session with the first answer.
  That is a `CapacityError` here, after ``capacity_timeout`` seconds of waiting and asking again.
- **Closing waits for the server**, 10 s long when it hangs. Here ``close_timeout`` bounds it, and
  after that the connection is cut.

Importing this module needs the extra ``openenv``. It takes seconds: OpenEnv loads its server too.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np

from agymc.errors import MissingExtraError

__all__ = ["CapacityError", "OpenEnv", "ServerError"]

try:
    # Not by `import` statements: these packages need not be there when types are checked.
    _GenericEnvClient: Any = importlib.import_module("openenv.core.generic_client").GenericEnvClient
    _websockets: Any = importlib.import_module("websockets.exceptions")
    _State: Any = importlib.import_module("websockets.protocol").State
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("openenv", "websockets"):
        raise
    raise MissingExtraError("openenv", "openenv", "an OpenEnv environment") from error

T = TypeVar("T")

_SERVER_ERROR = re.compile(r"Server error: (?P<text>.*) \(code: (?P<code>\w+)\)", re.DOTALL)
"""How the client words an error that the server answered with."""

_AT_CAPACITY = "CAPACITY_REACHED"
_REFUSED = frozenset({_AT_CAPACITY, "FACTORY_ERROR", "SESSION_ERROR"})
"""The codes that come in place of a session; the server closes the connection after them."""

_BUSY_STATUS = frozenset({429, 503})
"""HTTP statuses by which a proxy, or a server that limits its connections, says "not now"."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds
_random = random.Random()  # the global generator belongs to the user, who may have seeded it


class ServerError(RuntimeError):
    """The server answered a request with an error; the text is the server's, and names its URL.

    Attributes:
        code: OpenEnv's code: "EXECUTION_ERROR" for what the env on the server raised,
            "VALIDATION_ERROR" for an action that the server does not understand,
            "FACTORY_ERROR" for an env that it could not make, ...
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class CapacityError(ServerError):
    """The server has as many sessions as it allows, and has no place for one more."""


class OpenEnv:
    """A coroutine env (`agymc.AsyncEnv`) that is a session on an OpenEnv server.

    The session is opened by the first `reset`. To have it opened when the env is made, so that a
    server that is not there or full is seen on entering ``async with``, use `OpenEnv.connect` as
    the env function.

    OpenEnv knows one flag, ``done``: it is ``terminated`` here, unless ``is_truncated`` says
    otherwise. It has no frames, so there is no ``render``.

    Args:
        base_url: Of the server, "http://..." or "ws://...".
        observation_space: What ``to_observation`` gives.
        action_space: What ``to_action`` takes.
        client: The class of the client, an `openenv.core.EnvClient`: that of the environment, or
            the generic one, whose actions and observations are dicts. It is called with
            ``base_url`` and ``client_options``.
        to_action: Makes of an action what the client's ``step`` takes. By default the action
            itself, with plain Python values in place of NumPy's.
        to_observation: Makes an element of the observation space of ``result.observation``. By
            default that itself; of a dict, without the key "metadata".
        to_info: Makes the info of a result (`openenv.core.client_types.StepResult`). By default
            its metadata.
        is_truncated: Whether a result ends the episode without ending the task. By default what
            its metadata say under "truncated", and False if they don't.
        capacity_timeout: How many seconds to wait for a session while the server has no place for
            it. It is asked again after pauses that double from 0.05 s to 2 s, and are varied at
            random, so that many envs don't ask at the same time. 0.0 asks once.
        close_timeout: How many seconds `close` waits for the server.
        **client_options: More arguments of the client: ``headers``, ``connect_timeout_s``,
            ``message_timeout_s`` (the longest that an answer may take), ...
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode: str | None = None

    def __init__(
        self,
        base_url: str,
        *,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        client: Callable[..., Any] = _GenericEnvClient,
        to_action: Callable[[Any], Any] | None = None,
        to_observation: Callable[[Any], Any] | None = None,
        to_info: Callable[[Any], dict[str, Any]] | None = None,
        is_truncated: Callable[[Any], bool] | None = None,
        capacity_timeout: float = 0.0,
        close_timeout: float = 2.0,
        **client_options: Any,
    ) -> None:
        if not isinstance(base_url, str):
            raise TypeError(f"expected base_url to be a string, got {base_url!r}")
        seconds = {"capacity_timeout": capacity_timeout, "close_timeout": close_timeout}
        for name, value in seconds.items():
            if not value >= 0.0:
                raise ValueError(f"expected {name} to be a number of seconds, got {value!r}")
        self.base_url = base_url
        self.observation_space = observation_space
        self.action_space = action_space
        self._to_action = to_action or _plain
        self._to_observation = to_observation or _without_metadata
        self._to_info = to_info or _metadata
        self._is_truncated = is_truncated or _says_truncated
        self._capacity_timeout = capacity_timeout
        self._close_timeout = close_timeout
        self._client = client(base_url=base_url, **client_options)
        if not hasattr(self._client, "_ws"):
            raise TypeError(
                "expected client to make an openenv.core.EnvClient (0.10), got "
                f"{type(self._client).__module__}.{type(self._client).__qualname__}"
            )
        # The connection of the running episode; of the last one, when that is over or was lost.
        self._connection: Any = None

    @classmethod
    async def connect(cls, base_url: str, **options: Any) -> OpenEnv:
        """An env whose session is open; an env function that is a coroutine function.

        Args:
            base_url: As of the class.
            **options: The same.

        Raises:
            CapacityError: The server has no place for the session.
            ServerError: It can't make the env.
            ConnectionError: There is no connection.
        """
        env = cls(base_url, **options)
        try:
            await env.open()
        except BaseException:
            await env.close()
            raise
        return env

    async def open(self) -> None:
        """Open the session now. Asks for the state, as only an answer tells that there is one.

        Raises:
            CapacityError: The server has no place for the session.
            ServerError: It can't make the env.
            ConnectionError: There is no connection.
        """
        try:
            await self._in_new_session(self._client.state, "the opening of a session")
        except ServerError as error:
            if error.code in _REFUSED:
                raise
            # The env has no state to give. It is there.

    # ------------------------------------------------------------------ the env

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; opens a session if none is open.

        Args:
            seed: Goes to the server's ``reset``.
            options: More arguments of the server's ``reset``: ``episode_id``, a task, ...

        Raises:
            CapacityError: The server has no place for the session.
            ServerError: The env on the server raised; or what else the server says.
            ConnectionError: There is no connection, or it was lost.
            TimeoutError: No answer came within the client's ``message_timeout_s``.
        """
        arguments = dict(_plain(options or {}))
        if seed is not None:
            arguments["seed"] = int(seed)
        result = await self._in_new_session(lambda: self._client.reset(**arguments), "reset")
        return self._to_observation(result.observation), self._to_info(result)

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance by one step.

        Raises:
            ServerError: The env on the server raised; or what else the server says.
            ConnectionError: The connection of the episode was lost, now or since the last step.
            TimeoutError: No answer came within the client's ``message_timeout_s``.
        """
        self._check_session("step")
        result = await self._ask(lambda: self._client.step(self._to_action(action)), "step")
        truncated = bool(self._is_truncated(result))
        return (
            self._to_observation(result.observation),
            0.0 if result.reward is None else float(result.reward),
            bool(result.done) and not truncated,
            truncated,
            self._to_info(result),
        )

    async def state(self) -> Any:
        """The state of the env on the server, as the client gives it.

        Raises:
            ServerError: As in `step`, and the other errors too.
        """
        self._check_session("state")
        return await self._ask(self._client.state, "state")

    async def close(self) -> None:
        """End the session and the connection. Idempotent, and bounded by ``close_timeout``."""
        try:
            async with asyncio.timeout(self._close_timeout):
                await self._client.close()
        except TimeoutError:
            self._cut()
            await self._client.close()  # awaits the tasks that the cut connection ends
        except asyncio.CancelledError:
            self._cut()
            raise
        self._connection = None

    # ------------------------------------------------------------------ the session

    async def _in_new_session(self, request: Callable[[], Awaitable[T]], what: str) -> T:
        """A request that may be the first of its session, and so the one that is refused."""
        loop = asyncio.get_running_loop()
        began, pause = loop.time(), _FIRST_PAUSE
        while True:
            try:
                await self._connect()
                try:
                    return await self._ask(request, what)
                finally:
                    # The client may have reconnected before it sent the request.
                    self._connection = self._client._ws or self._connection
            except ServerError as error:
                if error.code in _REFUSED:
                    # The server is about to close it. Who waits for that can't come upon its end.
                    await self._client.disconnect()
                waited = loop.time() - began
                left = self._capacity_timeout - waited
                if isinstance(error, CapacityError) and left > 0.0:
                    await asyncio.sleep(min(left, pause * _random.uniform(0.5, 1.0)))
                    pause = min(2.0 * pause, _LONGEST_PAUSE)
                    continue
                if isinstance(error, CapacityError) and self._capacity_timeout:
                    error.args = (f"{error}, {waited:.1f} s long",)
                raise

    async def _connect(self) -> None:
        try:
            await self._client.connect()
        except ConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, _websockets.InvalidStatus):
                status = cause.response.status_code
                if status in _BUSY_STATUS:
                    raise self._at_capacity(f"HTTP status {status}") from error
            raise
        self._connection = self._client._ws

    def _check_session(self, what: str) -> None:
        """There must be a session, and the connection must be the one that it was opened on.

        Nothing is awaited between this and the client's own look at its connection.
        """
        connection = self._connection
        if connection is None:
            raise gymnasium.error.ResetNeeded(f"expected a reset before {what}")
        if connection is not self._client._ws or connection.state is not _State.OPEN:
            raise ConnectionError(
                f"the connection to the OpenEnv server at {self.base_url} was lost before {what}, "
                f"and the episode with it{_reason(connection)}"
            )

    async def _ask(self, request: Callable[[], Awaitable[T]], what: str) -> T:
        try:
            return await request()
        except _websockets.ConnectionClosed as error:
            raise ConnectionError(
                f"the connection to the OpenEnv server at {self.base_url} was lost in {what}: "
                f"{error}"
            ) from error
        except TimeoutError as error:
            raise TimeoutError(
                f"the OpenEnv server at {self.base_url} gave no answer to {what} within the "
                "client's message_timeout_s"
            ) from error
        except RuntimeError as error:
            found = _SERVER_ERROR.fullmatch(str(error))
            if found is None:
                raise
            if found["code"] == _AT_CAPACITY:
                raise self._at_capacity(found["text"]) from error
            raise ServerError(
                f"{found['text']} ({found['code']}, from the OpenEnv server at {self.base_url})",
                found["code"],
            ) from error

    def _at_capacity(self, text: str) -> CapacityError:
        return CapacityError(
            f"the OpenEnv server at {self.base_url} is at capacity: it has no place for one more "
            f"session ({text.rstrip('.')}); it wants a larger max_concurrent_envs, or this "
            f"env a larger capacity_timeout than {self._capacity_timeout} s",
            _AT_CAPACITY,
        )

    def _cut(self) -> None:
        """End the connection without a word to the server."""
        if self._connection is not None:
            self._connection.transport.abort()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_url}>"


def _reason(connection: Any) -> str:
    """What is known of the end of a connection."""
    error = getattr(connection.protocol, "close_exc", None) if connection.close_code else None
    return "" if error is None else f": {error}"


def _plain(value: Any) -> Any:
    """A value in which NumPy's are replaced by Python's, as JSON knows no others."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _without_metadata(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: value for key, value in observation.items() if key != "metadata"}
    return observation


def _metadata(result: Any) -> dict[str, Any]:
    """The metadata of a result, or of its observation, where typed clients leave them."""
    metadata = result.metadata
    if metadata is None:
        observation = result.observation
        if isinstance(observation, Mapping):
            metadata = observation.get("metadata")
        else:
            metadata = getattr(observation, "metadata", None)
    return dict(metadata) if isinstance(metadata, Mapping) else {}


def _says_truncated(result: Any) -> bool:
    return bool(_metadata(result).get("truncated", False))
