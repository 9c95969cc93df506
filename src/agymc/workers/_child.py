"""The program of a worker process, and of the template of such: ``python _child.py DESCRIPTOR``.

It takes over the caller's module search path and working directory before it imports anything that
is not in the standard library, so that the envs' modules are found where the caller finds them. The
caller's ``__main__`` is not imported.
"""

if __name__ == "__main__":
    import json
    import os
    import socket
    import sys

    def read_exactly(sock: socket.socket, count: int) -> bytes:
        """``count`` bytes, or the end of the process when the caller is gone."""
        data = b""
        while len(data) < count:
            part = sock.recv(count - len(data))
            if not part:
                os._exit(1)
            data += part
        return data

    control = socket.socket(fileno=int(sys.argv[1]))
    control.setblocking(True)
    boot = json.loads(read_exactly(control, int.from_bytes(read_exactly(control, 8), "little")))
    sys.path[:] = boot["path"]
    sys.argv[:] = boot["argv"]
    if boot["cwd"] is not None:
        os.chdir(boot["cwd"])

    from agymc.workers._serve import serve

    if boot.get("template"):
        from agymc.workers._forking import fork_for_ever

        connection, lifeline, dumps = fork_for_ever(control, boot["lifeline"])
    else:
        control.close()
        connection, lifeline, dumps = boot["connection"], boot["lifeline"], boot["dumps"]
    serve(socket.socket(fileno=connection), lifeline, dumps)
