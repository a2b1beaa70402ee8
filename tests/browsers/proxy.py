"""A TCP proxy in front of a server, whose connections a test may cut: in the middle of a frame, or all at once."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from urllib.parse import urlsplit

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class Proxy:
    """Listens on one address all the time. `server` is where it connects to; None: nobody is there. `requests` are the
    heads of what was asked."""

    def __init__(self, server: str | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.server = server
        self.requests: list[bytes] = []
        self._bytes_left: deque[int] = deque()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, *byte_counts: int) -> None:
        """Each of the next answers ends with its connection when so many bytes of it have come."""
        self._bytes_left.extend(byte_counts)

    def cut(self) -> None:
        """Reset all connections that are open."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            _reset(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        place = urlsplit(self.server or "")
        try:
            server = socket.create_connection((place.hostname or "127.0.0.1", place.port or 0))
        except OSError:  # nobody is there
            _reset(client)
            return
        with self._lock:
            self._open |= {client, server}
        threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
        with contextlib.suppress(OSError):  # reset, by either end or by the test
            self._answer(server, client)
        with self._lock:
            self._open -= {client, server}
        for connection in (client, server):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        """Pass requests on. Each is small and has no body, and comes at once."""
        with contextlib.suppress(OSError):
            while request := client.recv(65536):
                self.requests.append(request.partition(b"\r\n\r\n")[0])
                server.sendall(request)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Pass what comes on, until the end or until this connection may bring no more."""
        left: int | None = None
        while left is None or left > 0:
            data = server.recv(65536)
            if not data:
                return
            if left is None and self._bytes_left:
                left = self._bytes_left.popleft()
            data = data if left is None else data[:left]
            client.sendall(data)
            left = None if left is None else left - len(data)


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def proxying(server: str | None = None) -> Iterator[Proxy]:
    """A proxy that is gone at the end."""
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
