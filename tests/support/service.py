"""A web service on a real socket, which answers as a function says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    pieces: AsyncIterator[bytes] | None = None  # in place of the body; the connection ends behind them


class Service:
    """Use as `async with`. `received` has every request, in order."""

    def __init__(self, answer: Callable[[Received], Reply]) -> None:
        self._answer = answer
        self.received: list[Received] = []
        self._tasks: set[Any] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Service:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()  # one may wait within its pieces
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        self._writers.add(writer)
        try:
            while True:
                await self._one(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines[1:] if line)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(method, target, headers, body)
        self.received.append(received)
        reply = self._answer(received)
        head = [
            f"HTTP/1.1 {reply.status} x",
            f"content-type: {reply.type}",
            f"content-length: {len(reply.body)}" if reply.pieces is None else "connection: close",
            *(f"{name}: {value}" for name, value in reply.headers),
        ]
        writer.write("\r\n".join([*head, "", ""]).encode() + (b"" if method == "HEAD" else reply.body))
        await writer.drain()
        if reply.pieces is not None:
            async for piece in reply.pieces:
                writer.write(piece)
                await writer.drain()
            raise ConnectionAbortedError
