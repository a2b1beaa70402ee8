"""A TCP proxy that cuts connections: what a network does to those who follow a run."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

UNCUT = 2**62


class Proxy:
    """Between a client and `target` (a server's URL, which may change). Each answer is cut after as many bytes as
    `allowance` says for the connection with that number (from 0)."""

    def __init__(self, target: str, allowance: Callable[[int], int]) -> None:
        self.target = target
        self.allowance = allowance
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Cut all connections that are open."""
        for each in list(self._open):
            _cut(each)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake who accepts
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                number, self.connections = self.connections, self.connections + 1
                threading.Thread(target=self._serve, args=(client, self.allowance(number)), daemon=True).start()

    def _serve(self, client: socket.socket, allowance: int) -> None:
        parts = urlsplit(self.target)
        assert parts.hostname is not None
        try:
            server = socket.create_connection((parts.hostname, parts.port or 80))
        except OSError:
            _cut(client)
            return
        self._open |= {client, server}
        threading.Thread(target=_pass_on, args=(client, server, UNCUT), daemon=True).start()
        _pass_on(server, client, allowance)
        for each in (client, server):
            _cut(each)
            self._open.discard(each)


def _pass_on(source: socket.socket, sink: socket.socket, allowance: int) -> None:
    with contextlib.suppress(OSError):
        while allowance > 0 and (data := source.recv(min(allowance, 65536))):
            sink.sendall(data)
            allowance -= len(data)


def _cut(connection: socket.socket) -> None:
    """Close it so that nobody takes it for a polite end."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def cutting(target: str, allowance: Callable[[int], int] = lambda number: UNCUT) -> Iterator[Proxy]:
    proxy = Proxy(target, allowance)
    try:
        yield proxy
    finally:
        proxy.close()
