"""A proxy (plugins/chaos/hai_flow_chaos/proxy.py) by which tests break connections with PostgreSQL.

    async with Proxy(database_url) as proxy:
        ... use proxy.dsn ...
        for line in proxy.lines("hai-flow heartbeat"):
            line.swallow()

Beside being swallowed or cut, a line can be held: its bytes come late. A line has the application name that its client
gave, by which a test chooses the lines that it breaks."""

from __future__ import annotations

import asyncio
import struct
from typing import Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from hai_flow_chaos import proxy
from hai_flow_chaos.proxy import BOTH, Address, Direction

__all__ = ["Direction", "Line", "Proxy", "Upstream"]

STARTUP: Final = 196608
TAKEN_BY_POOLERS: Final = {
    "user", "database", "client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name",
}  # fmt: skip


class Line(proxy.Line):
    """One connection through the proxy. `name`: its application's, empty until that is known."""

    def __init__(self, client: asyncio.StreamWriter, taken_by: Proxy) -> None:
        super().__init__(client)
        self.name = ""
        self._taken_by = taken_by
        self.begun = asyncio.Event()  # its client has sent the first message
        self._open = {direction: asyncio.Event() for direction in BOTH}
        self.release()
        self.delay_seconds = 0.0
        self._fatal: bytes | None = None
        self._end_of_last = b""  # the fatal bytes may come in two pieces

    def hold(self, *directions: Direction) -> None:
        """Keep back the bytes that come, until `release`."""
        for direction in directions or BOTH:
            self._open[direction].clear()

    def release(self) -> None:
        """Let the bytes go on that were held back."""
        for event in self._open.values():
            event.set()

    async def passes(self, data: bytes, direction: Direction) -> bool:
        if direction == "to server" and not self.begun.is_set() and (refusal := self._listen_in(data)):
            self.say(refusal, "to client")
            return False
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        await self._open[direction].wait()
        if self._fatal is not None and direction == "to server":
            seen = self._end_of_last + data
            if self._fatal in seen:
                self.swallow()
            self._end_of_last = seen[-len(self._fatal) :]
        return True

    def _listen_in(self, data: bytes) -> bytes:
        """Take the application name from the client's first message. Returns a pooler's refusal of the message, or
        nothing.

        A fault of new lines is done to this one, too, if it was taken before the fault and sends its first message only
        now: it had no name until now, by which the fault could have found it."""
        self.begun.set()
        self._fatal = self._taken_by.fatal
        if self._taken_by.silent:
            self.swallow()
        if len(data) < 8 or struct.unpack("!i", data[4:8])[0] != STARTUP:
            return b""
        words = data[8:].decode().rstrip("\0").split("\0")
        said = dict(zip(words[::2], words[1::2], strict=True))
        self.name = said.get("application_name", "")
        refused = [name for name in said if name not in TAKEN_BY_POOLERS]
        if not self._taken_by.pooler or not refused:
            return b""
        body = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {refused[0]}\0\0".encode()
        return b"E" + struct.pack("!i", len(body) + 4) + body


class Upstream:
    """Where the server of a DSN is, over TCP or a Unix socket."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.host = query.pop("host", None) or parts.hostname or "127.0.0.1"
        self.port = int(query.pop("port", None) or parts.port or 5432)
        self.user = query.pop("user", None) or parts.username or "postgres"
        self.password = query.pop("password", None) or parts.password
        self._path = parts.path
        self._query = query

    def address(self) -> Address:
        return f"{self.host}/.s.PGSQL.{self.port}" if self.host.startswith("/") else (self.host, self.port)

    def dsn_by_way_of(self, port: int) -> str:
        user = quote(self.user) + (f":{quote(self.password)}" if self.password else "")
        query = urlencode({**self._query, "sslmode": "disable"})
        return f"postgresql://{user}@127.0.0.1:{port}{self._path}?{query}"


class Proxy(proxy.Proxy[Line]):
    """The proxy in front of the server of `dsn`. `silent`: whether it accepts new connections and sends nothing.

    `pooler`: it refuses settings from its clients, as PgBouncer does. `fatal`: new lines are swallowed when these bytes
    come, as in a network that loses large packets and nothing else."""

    def __init__(self, dsn: str, *, pooler: bool = False) -> None:
        self._server_of = Upstream(dsn)
        super().__init__(self._server_of.address, self._taken)
        self.pooler = pooler
        self.accepted = 0
        self.fatal: bytes | None = None

    def _taken(self, client: asyncio.StreamWriter) -> Line:
        self.accepted += 1
        return Line(client, self)

    @property
    def dsn(self) -> str:
        """How to connect by way of the proxy."""
        return self._server_of.dsn_by_way_of(self.port)

    def lines(self, name: str | None = None) -> list[Line]:
        """The connections that are up; those of one application, or all."""
        return [line for line in super().lines() if name in (None, line.name)]

    async def away(self, *, silent: bool) -> None:
        """Make the server unreachable: `silent`, connections are taken and no bytes are carried; else they are
        refused."""
        if silent:
            self.swallow()
            return
        self._server.close()
        for line in self.lines():
            line.cut()

    async def back(self) -> None:
        """Make the server reachable again, at the same place; connections from before are cut."""
        self.speak()
        if not self._server.is_serving():
            await self.listen()
