"""The program of a worker process, and of the template of such: ``python _child.py DESCRIPTOR``.

It takes over the caller's module search path and working directory before it imports anything that
is not in the standard library, so that the envs' modules are found where the caller finds them. The
caller's ``__main__`` is not imported.
"""

import contextlib
import importlib
import json
import os
import socket
import sys
from typing import Any


def read_boot(sock: socket.socket) -> dict[str, Any]:
    """What the caller says first: its length, and JSON. Ends the process when it is gone."""
    length = int.from_bytes(read_exactly(sock, 8), "little")
    boot: dict[str, Any] = json.loads(read_exactly(sock, length))
    return boot


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """``count`` bytes. Ends the process when the caller is gone."""
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            os._exit(1)
        data += part
    return data


def take_over(boot: dict[str, Any]) -> None:
    """Take over what the caller has: search path, arguments, working directory, variables."""
    sys.path[:] = boot["path"]
    sys.argv[:] = boot["argv"]
    if boot["cwd"] is not None:
        os.chdir(boot["cwd"])
    environ = boot.get("environ")
    if environ is not None and environ != dict(os.environ):
        os.environ.clear()
        os.environ.update(environ)


def main() -> None:
    """Serve, or be the template of processes that serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.setblocking(True)
    boot = read_boot(control)
    take_over(boot)

    from agymc.workers._serve import serve

    if boot.get("template"):
        from agymc.workers._forking import fork_for_ever

        for name in boot["preload"]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        connection, lifeline, dumps = fork_for_ever(control, boot["lifeline"])
    else:
        control.close()
        connection, lifeline, dumps = boot["connection"], boot["lifeline"], boot["dumps"]
    serve(socket.socket(fileno=connection), lifeline, dumps)


if __name__ == "__main__":
    main()
