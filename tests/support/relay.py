"""A program in place of `python -m MODULE` that takes no time to start: it hands its files to a nursery, which has
imported what the module needs and forks a process for it (`tests.support.forking`), and lives as long as that process.

    python -I -S relay.py SOCKET MODULE

Where there is no nursery it becomes the module itself. Standard library only."""

import json
import os
import socket
import sys
from contextlib import suppress


def main(path: str, module: str) -> None:
    with socket.socket(socket.AF_UNIX) as nursery:
        try:
            nursery.connect(path)
        except OSError:
            os.execv(sys.executable, [sys.executable, "-m", module])
        request = {"module": module, "arguments": [], "environment": dict(os.environ), "folder": os.getcwd()}
        data = json.dumps({**request, "session": False, "descriptors": None}).encode()
        socket.send_fds(nursery, [len(data).to_bytes(4)], (0, 1, 2))
        nursery.sendall(data)
        os.close(0)
        os.close(1)
        with suppress(ConnectionError):
            nursery.recv(1)  # the process has the other end, and says nothing


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
