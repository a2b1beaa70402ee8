"""What can happen to a line, done to real connections: a TCP proxy in front of PostgreSQL.

    async with Proxy(database_url) as proxy:
        ... use proxy.dsn ...
        for line in proxy.lines("hai-flow heartbeat"):
            line.swallow()

A swallowed line stays up and loses what is sent, as when the other machine is gone or a device on the way has
forgotten the connection. A held one is late. A cut one ends, in order (FIN) or at once (RST). A line is known by the
application name that its client gave, so a test chooses whose it breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qs, quote, urlencode, urlsplit

Direction: TypeAlias = Literal["to server", "to client"]
BOTH: Final[tuple[Direction, ...]] = ("to server", "to client")
STARTUP: Final = 196608
TAKEN_BY_POOLERS: Final = {
    "user", "database", "client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name",
}  # fmt: skip


class Line:
    """One connection through the proxy. `name`: its application's, empty until that is known."""

    def __init__(self, client: asyncio.StreamWriter, *, pooler: bool = False) -> None:
        self.name = ""
        self._pooler = pooler
        self.begun = asyncio.Event()  # its client has said what it wants
        self._writers: dict[Direction, asyncio.StreamWriter] = {"to client": client}
        self._swallows: set[Direction] = set()
        self._open = {direction: asyncio.Event() for direction in BOTH}
        for event in self._open.values():
            event.set()
        self.delay_seconds = 0.0
        self.fatal: bytes | None = None

    def swallow(self, *directions: Direction) -> None:
        """Lose everything from now on, in these directions or in both."""
        self._swallows.update(directions or BOTH)

    def hold(self, *directions: Direction) -> None:
        """Keep back what comes, until `release`."""
        for direction in directions or BOTH:
            self._open[direction].clear()

    def release(self) -> None:
        """Let go on what was held back."""
        for event in self._open.values():
            event.set()

    def cut(self, *, reset: bool = False) -> None:
        """End it for both sides, in order or by a reset."""
        for writer in self._writers.values():
            line = writer.get_extra_info("socket")
            if reset and line is not None and line.family != socket.AF_UNIX and line.fileno() >= 0:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()

    async def carry(self, client: asyncio.StreamReader, upstream: Upstream) -> None:
        """Everything in both directions, until one side ends it."""
        server, self._writers["to server"] = await upstream.connect()
        pumps = [
            asyncio.create_task(self._pump(client, "to server")),
            asyncio.create_task(self._pump(server, "to client")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for writer in self._writers.values():
                writer.close()
            await asyncio.wait(pumps)

    async def _pump(self, reader: asyncio.StreamReader, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if direction == "to server" and not self.begun.is_set() and (refusal := self._listen_in(data)):
                    self._writers["to client"].write(refusal)
                    return
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await self._open[direction].wait()
                if self.fatal is not None and self.fatal in data:
                    self.swallow()
                if direction not in self._swallows:
                    self._writers[direction].write(data)
                    await self._writers[direction].drain()
        if direction in self._swallows:  # the end is lost as well
            await asyncio.Event().wait()

    def _listen_in(self, data: bytes) -> bytes:
        """What the client says of itself; a pooler's refusal of it, or nothing."""
        self.begun.set()
        if len(data) < 8 or struct.unpack("!i", data[4:8])[0] != STARTUP:
            return b""
        words = data[8:].decode().rstrip("\0").split("\0")
        said = dict(zip(words[::2], words[1::2], strict=True))
        self.name = said.get("application_name", "")
        refused = [name for name in said if name not in TAKEN_BY_POOLERS]
        if not self._pooler or not refused:
            return b""
        body = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {refused[0]}\0\0".encode()
        return b"E" + struct.pack("!i", len(body) + 4) + body


class Upstream:
    """Where the server of a DSN is, over TCP or a Unix socket."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self._host = query.pop("host", None) or parts.hostname or "127.0.0.1"
        self._port = int(query.pop("port", None) or parts.port or 5432)
        self._user = query.pop("user", None) or parts.username or "postgres"
        self._password = query.pop("password", None) or parts.password
        self._path = parts.path
        self._query = query

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        return await asyncio.open_connection(self._host, self._port)

    def dsn_by_way_of(self, port: int) -> str:
        user = quote(self._user) + (f":{quote(self._password)}" if self._password else "")
        query = urlencode({**self._query, "sslmode": "disable"})
        return f"postgresql://{user}@127.0.0.1:{port}{self._path}?{query}"


class Proxy:
    """The proxy in front of the server of `dsn`. `silent`: whether it accepts new connections and says nothing.

    `pooler`: it refuses settings from its clients, as PgBouncer does. `fatal`: new lines are swallowed when these bytes
    come, as where what is large is lost on the way, and nothing else.
    """

    def __init__(self, dsn: str, *, pooler: bool = False) -> None:
        self._pooler = pooler
        self._upstream = Upstream(dsn)
        self._carrying: dict[asyncio.Task[None], Line] = {}
        self.accepted = 0
        self.silent = False
        self.fatal: bytes | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._carrying):
            task.cancel()
        if self._carrying:
            await asyncio.wait(list(self._carrying))
        await self._server.wait_closed()

    @property
    def dsn(self) -> str:
        """How to connect by way of the proxy."""
        return self._upstream.dsn_by_way_of(self._port)

    def lines(self, name: str | None = None) -> list[Line]:
        """The connections that are up; those of one application, or all."""
        return [line for line in self._carrying.values() if name in (None, line.name)]

    def swallow(self) -> None:
        """Everything goes silent: what is up, and what is still to come."""
        self.silent = True
        for line in self.lines():
            line.swallow()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        line = self._carrying[task] = Line(writer, pooler=self._pooler)
        line.fatal = self.fatal
        if self.silent:
            line.swallow()
        with contextlib.suppress(asyncio.CancelledError):  # the test is over; asyncio's streams would log it
            await line.carry(reader, self._upstream)
        del self._carrying[task]
        writer.close()
