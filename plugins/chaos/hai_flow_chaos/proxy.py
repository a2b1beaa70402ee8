"""A TCP proxy that breaks the connections it carries, in the ways in which a network breaks them.

A swallowed line stays up and loses the bytes that are sent, as when the other machine is gone or a device on the way
has forgotten the connection. A cut one ends, in order (FIN) or at once (RST); one that is `cut_at` a direction ends
when bytes come that way, and loses them: cut at the answer, the request has been performed, and its sender does not
learn it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final, Generic, Literal, Self, TypeAlias, TypeVar

Direction: TypeAlias = Literal["to server", "to client"]
Address: TypeAlias = str | tuple[str, int]
"""Where a server listens: the path of a Unix socket, or a host and a port."""

BOTH: Final[tuple[Direction, ...]] = ("to server", "to client")
_PIECE: Final = 65536


class Line:
    """One connection through a proxy."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self._writers: dict[Direction, asyncio.StreamWriter] = {"to client": client}
        self._swallows: set[Direction] = set()
        self._ends_at: Direction | None = None

    def swallow(self, *directions: Direction) -> None:
        """Lose everything from now on, in these directions or in both."""
        self._swallows.update(directions or BOTH)

    def cut(self, *, reset: bool = False) -> None:
        """End it for both sides, in order or by a reset."""
        for writer in self._writers.values():
            line = writer.get_extra_info("socket")
            if reset and line is not None and line.family != socket.AF_UNIX and line.fileno() >= 0:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()

    def cut_at(self, direction: Direction) -> None:
        """End it when the next piece comes in this direction, and lose that."""
        self._ends_at = direction

    async def carry(self, client: asyncio.StreamReader, upstream: Address) -> None:
        """Carry bytes in both directions until one side ends the connection."""
        if isinstance(upstream, str):
            server, self._writers["to server"] = await asyncio.open_unix_connection(upstream)
        else:
            server, self._writers["to server"] = await asyncio.open_connection(*upstream)
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
            while data := await reader.read(_PIECE):
                if direction == self._ends_at:
                    self.cut(reset=True)
                    return
                if not await self.passes(data, direction):
                    return
                if direction not in self._swallows:
                    self._writers[direction].write(data)
                    await self._writers[direction].drain()
        if direction in self._swallows:  # the end is lost as well
            await asyncio.Event().wait()

    async def passes(self, data: bytes, direction: Direction) -> bool:
        """Called before each piece goes on, which it does as late as this returns. False: the connection ends here."""
        return True

    def say(self, data: bytes, direction: Direction) -> None:
        """Write bytes of the proxy's own making to one side."""
        self._writers[direction].write(data)


AnyLine = TypeVar("AnyLine", bound=Line)


class Proxy(Generic[AnyLine]):
    """A port of this machine that leads to the address that `upstream` returns, asked anew for each connection; None:
    the connection is closed. While the proxy is `silent`, new connections are taken and no bytes are carried. `line`
    makes a connection's line for its client."""

    def __init__(self, upstream: Callable[[], Address | None], line: Callable[[asyncio.StreamWriter], AnyLine]) -> None:
        self._upstream = upstream
        self._line = line
        self._carrying: dict[asyncio.Task[None], AnyLine] = {}
        self.silent = False
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def listen(self) -> None:
        """Take connections: at any free port, or at the one that it had before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in list(self._carrying):
            task.cancel()
        if self._carrying:
            await asyncio.wait(list(self._carrying))
        await self._server.wait_closed()

    def lines(self) -> list[AnyLine]:
        """The connections that are up."""
        return list(self._carrying.values())

    def swallow(self) -> None:
        """All connections go silent, those that are up and those to come."""
        self.silent = True
        for line in self.lines():
            line.swallow()

    def speak(self, *, reset: bool = False) -> None:
        """New connections are carried again; those that were swallowed end."""
        self.silent = False
        for line in self.lines():
            line.cut(reset=reset)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        upstream = self._upstream()
        if upstream is None:
            writer.close()
            return
        line = self._carrying[task] = self._line(writer)
        if self.silent:
            line.swallow()
        try:
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await line.carry(reader, upstream)
        finally:
            del self._carrying[task]
            writer.close()
