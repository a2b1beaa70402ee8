"""The client of a server on this machine: HTTP over a plain connection, by hand.

Without TLS and proxies a request is a page of code. The library that can do all of it takes longer to load than a
command takes to do everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from urllib.parse import quote, urlencode, urlsplit

from hai_flow_client.awaiting import AsyncClient, Hands
from hai_flow_client.effects import Answer, Lost, Request
from hai_flow_client.link import Link

_HEAD_BYTES_MAX = 256 * 1024
_PIECE_BYTES = 64 * 1024


def is_local(link: Link) -> bool:
    """Whether this client can reach the server: over plain HTTP, without a proxy."""
    return urlsplit(link.url).scheme == "http" and not link.trusts_environment


class LocalClient(AsyncClient):
    """An AsyncClient of a server for which `is_local` is true."""

    def hands(self) -> Hands:
        return _LocalHands(self)


class _LocalHands(Hands):
    """A connection for each request, closed behind it."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        self._writer: asyncio.StreamWriter | None = None
        self._silence = client.link.patience.answer

    async def _send(self, request: Request) -> Answer | Lost:
        await self.aclose()
        link = self._client.link
        self._silence = link.silence(request)
        place = urlsplit(link.url)
        try:
            async with asyncio.timeout(link.patience.connect):
                reader, self._writer = await asyncio.open_connection(
                    place.hostname, place.port or 80, limit=_HEAD_BYTES_MAX
                )
            async with asyncio.timeout(self._silence):
                self._writer.write(_encode_request(link, request))
                await self._writer.drain()
                status, headers = _read_head(await reader.readuntil(b"\r\n\r\n"))
            self._chunks = _pieces(reader, headers)
            answered = Answer(link.url + request.path, status, headers)
            if request.streams and answered.ok:
                return answered
            async with asyncio.timeout(self._silence):
                body = b"".join([piece async for piece in self._chunks])
            return Answer(answered.url, status, headers, body)
        except _FAULTS as error:
            return _loss_error(link, error)

    async def _read(self) -> bytes | Lost:
        assert self._chunks is not None, "a stream was opened"
        try:
            async with asyncio.timeout(self._silence):
                return await anext(self._chunks, b"")
        except _FAULTS as error:
            return _loss_error(self._client.link, error)

    async def aclose(self) -> None:
        await super().aclose()
        if self._writer is not None:
            self._writer.close()
            self._writer = None


# EOFError: cut off. LimitOverrunError, ValueError: the server there speaks another protocol.
_FAULTS = (OSError, EOFError, asyncio.LimitOverrunError, ValueError)


def _loss_error(link: Link, error: Exception) -> Lost:
    if isinstance(error, TimeoutError):
        return link.lost(TimeoutError("it takes too long"))
    if isinstance(error, EOFError):
        return link.lost(EOFError("the connection was closed"))
    if isinstance(error, OSError):
        return link.lost(OSError("there is nothing that listens"))
    return link.lost(ValueError("what answers there is no HAI Flow server"))


def _encode_request(link: Link, request: Request) -> bytes:
    place = urlsplit(link.url)
    query = f"?{urlencode(request.query)}" if request.query else ""
    path = quote(place.path + request.path, safe="/%:@!$&'()*+,;=~")
    body = request.body or b""
    headers = {
        "Host": place.netloc.rpartition("@")[2],
        "Accept": "*/*",
        "Connection": "close",
        **({"Content-Length": str(len(body))} if body or request.method != "GET" else {}),
        **link.headers,
        **request.headers,
    }
    lines = [f"{request.method} {path}{query} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of two lines")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    """The status and the headers, with small letters. Raises ValueError where it is no answer in HTTP/1."""
    first, *lines = head.decode("latin-1").split("\r\n")
    protocol, _, rest = first.partition(" ")
    if not protocol.startswith("HTTP/1."):
        raise ValueError(f"expected HTTP/1, found {protocol[:20]!r}")
    pairs = (line.partition(":") for line in lines if line)
    return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _pieces(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncGenerator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    elif "content-length" in headers:
        if length := int(headers["content-length"]):
            yield await reader.readexactly(length)
    else:
        while piece := await reader.read(_PIECE_BYTES):
            yield piece
