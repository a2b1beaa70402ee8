"""A small HTTP client: one connection for each request, and nothing that is shared, tried again or hidden.

A pool would keep broken connections from some requests, and hundreds of streams from working at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Final
from urllib.parse import urlencode

CONNECT_SECONDS: Final = 3.0
HEAD_BYTES_MAX: Final = 64 * 1024
_PIECE: Final = 65536


class Lost(Exception):
    """There was no whole answer: the request may have been performed, or not."""


class Response:
    """An answer whose head is there."""

    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader, seconds: float) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader
        self._seconds = seconds

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Lost where it breaks off, or nothing comes for the time that it has."""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int((await self._get(self._reader.readline())).strip() or b"0", 16):
                yield (await self._get(self._reader.readexactly(size + 2)))[:-2]
        else:
            left = int(self.headers.get("content-length", "0"))
            while left:
                piece = await self._get(self._reader.read(min(left, _PIECE)))
                left -= len(piece)
                yield piece

    async def body(self) -> bytes:
        """The whole body. Raises Lost."""
        return b"".join([piece async for piece in self.pieces()])

    async def _get(self, reading: Awaitable[bytes]) -> bytes:
        data = await _within(self._seconds, reading)
        if not data:
            raise Lost("the connection ended in the middle")
        return data


@contextlib.asynccontextmanager
async def asked(
    port: int,
    method: str,
    path: str,
    headers: Mapping[str, str],
    *,
    query: Mapping[str, str] | None = None,
    content: bytes = b"",
    seconds: float,
) -> AsyncIterator[Response]:
    """The answer of the server at a port of this machine. `seconds`: how long it may say nothing. Raises Lost."""
    reader, writer = await _connected(port)
    try:
        target = f"{path}?{urlencode(query)}" if query else path
        given = {"host": f"127.0.0.1:{port}", "connection": "close", **headers}
        if content or method != "GET":
            given["content-length"] = str(len(content))
        head = [f"{method} {target} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items()), "", ""]
        writer.write("\r\n".join(head).encode() + content)
        said = (await _within(seconds, reader.readuntil(b"\r\n\r\n"))).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in said[1:] if line)
        answered = {name.lower(): text.strip() for name, _, text in pairs}
        yield Response(int(said[0].split(" ")[1]), answered, reader, seconds)
    finally:
        writer.close()


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection("127.0.0.1", port, limit=HEAD_BYTES_MAX)
    except (OSError, TimeoutError) as error:
        raise Lost(str(error)) from error


async def _within(seconds: float, reading: Awaitable[bytes]) -> bytes:
    try:
        async with asyncio.timeout(seconds):
            return await reading
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Lost(str(error) or type(error).__name__) from error
