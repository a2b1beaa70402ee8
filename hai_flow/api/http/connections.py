"""Bounds the connections of a server, in all and for one address, so that file descriptors are left for the database,
files and tools. The listening sockets count each connection from its `accept` until its descriptor is closed. One
beyond the limit gets 503; where many are refused at a time, it is closed at once."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections import Counter
from typing import Any, Final

import structlog

from hai_flow.api.base.peers import peer
from hai_flow.settings import Settings, variable

log = structlog.get_logger(__name__)

KEPT: Final = 512  # descriptors for everything but connections; where the limit is low, a quarter of it
TOLD_SECONDS: Final = 10.0  # between two lines of the log that say the same
REFUSED_AT_ONCE: Final = 32  # connections that get a 503; more are closed at once


class ConnectionCounter:
    def __init__(self, most: int, most_of_a_peer: int) -> None:
        self.open = 0
        self.most = most
        self.most_of_a_peer = most_of_a_peer
        self._refused = 0
        self._of: Counter[str] = Counter()
        self._told_at = -TOLD_SECONDS

    @classmethod
    def of(cls, settings: Settings) -> ConnectionCounter:
        """As many as the settings and the limit of descriptors allow; that limit is raised as far as it may be."""
        descriptors = _raise_limit(settings.connections_max + KEPT + REFUSED_AT_ONCE)
        fit = descriptors - min(KEPT, descriptors // 4) - REFUSED_AT_ONCE
        most = max(1, min(settings.connections_max, fit))
        if most < settings.connections_max:
            log.warning(
                "connections_limited",
                connections=most,
                descriptors=descriptors,
                remedy=f"raise the limit of open files (ulimit -n), or lower {variable('connections_max')}",
            )
        return cls(most, max(1, min(settings.connections_peer_max, most - most // 4)))

    def listen(self, host: str, port: int) -> list[socket.socket]:
        """Sockets that listen on every address of `host`; those that they accept are counted here. Raises OSError."""
        listening: list[socket.socket] = []
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((family, address) for family, *_, address in addresses):
                listening.append(_bind_socket(self, family, address))
        except BaseException:
            for each in listening:
                each.close()
            raise
        return listening

    def admit(self, host: str) -> _Counted | None:
        """Count a connection that was accepted. None: it must be closed at once."""
        name = peer(host)
        if self.open < self.most and self._of[name] < self.most_of_a_peer:
            self.open += 1
            self._of[name] += 1
            return _Counted(self, name, None)
        self._tell(name)
        if self._refused >= REFUSED_AT_ONCE:
            return None
        self._refused += 1
        if self.open >= self.most:
            return _Counted(self, name, f"this server has {self.open} connections, the most it may have.")
        return _Counted(self, name, f"your address has {self._of[name]} connections, the most that one may have.")

    def leave(self, counted: _Counted) -> None:
        """It is closed: count it no more."""
        if counted.refusal is not None:
            self._refused -= 1
            return
        self.open -= 1
        self._of[counted.peer] -= 1
        if not self._of[counted.peer]:
            del self._of[counted.peer]

    def _tell(self, name: str) -> None:
        if time.monotonic() - self._told_at >= TOLD_SECONDS:
            self._told_at = time.monotonic()
            log.warning("connections_refused", connections=self.open, most=self.most, peer=name, of_peer=self._of[name])


class _Counted:
    """One connection that is counted. `refusal`: the detail of the 503 for its client; None: there is room for it."""

    __slots__ = ("_connections", "peer", "refusal")

    def __init__(self, connections: ConnectionCounter, peer: str, refusal: str | None) -> None:
        self._connections: ConnectionCounter | None = connections
        self.peer = peer
        self.refusal = refusal

    def leave(self) -> None:
        """It is closed. May be called again."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.leave(self)


class _Accepted(socket.socket):
    """A connection that is counted as long as its descriptor is open."""

    counted: _Counted | None = None

    def close(self) -> None:
        super().close()
        if self.counted is not None and self.fileno() == -1:
            self.counted.leave()

    def detach(self) -> int:
        if self.counted is not None:
            self.counted.leave()
        return super().detach()


class _Listening(socket.socket):
    """A socket that listens, and accepts no more connections than there is room for."""

    connections: ConnectionCounter

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Those that there is no room for are closed, and not returned."""
        while True:
            descriptor, address = self._accept()  # type: ignore[attr-defined]  # BlockingIOError: none waits
            connection = _Accepted(self.family, self.type, self.proto, fileno=descriptor)
            connection.counted = self.connections.admit(address[0])
            if connection.counted is not None:
                return connection, address
            with contextlib.suppress(OSError):
                connection.close()


def refusal_of(connection: Any) -> str | None:
    """Why there is no room for the connection of a transport's socket; None: there is."""
    accepted = getattr(connection, "_sock", connection)
    counted = accepted.counted if isinstance(accepted, _Accepted) else None
    return None if counted is None else counted.refusal


def _bind_socket(connections: ConnectionCounter, family: int, address: Any) -> socket.socket:
    listening = _Listening(family, socket.SOCK_STREAM)
    listening.connections = connections
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _raise_limit(wanted: int) -> int:
    """How many descriptors this process may have, once its limit is raised towards `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        raised = wanted if hard == unlimited else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == unlimited else soft
