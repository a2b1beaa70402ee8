"""Many followers in a process of their own, so that their cost is not counted: raw sockets that count frames.

`python -m bench.fanout_clients` obeys lines on standard input and answers each with one line:
`connect URL COUNT` once that many more have the head of their response, `await TOTAL` once all together have got that
many frames, `count` with their number.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final
from urllib.parse import urlsplit

AT_A_TIME: Final = 20
_HEAD_END: Final = b"\r\n\r\n"
_FRAME: Final = b"\ndata: "  # once in each of them, and nowhere else


class _Audience:
    """All followers of the process, and the number of frames that they have got together."""

    def __init__(self) -> None:
        self.frames = 0
        self.lost = 0
        self._awaited: tuple[int, asyncio.Future[None]] | None = None

    def got(self, frames: int) -> None:
        self.frames += frames
        if self._awaited is not None and self.frames >= self._awaited[0]:
            self._awaited[1].set_result(None)
            self._awaited = None

    async def reach(self, total: int) -> None:
        if self.frames < total:
            reached = asyncio.get_running_loop().create_future()
            self._awaited = total, reached
            await reached

    async def connect(self, url: str, count: int) -> None:
        """Some at a time: a storm of them would be another measurement."""
        for start in range(0, count, AT_A_TIME):
            await asyncio.gather(*(self._connect(url) for _ in range(min(AT_A_TIME, count - start))))

    async def _connect(self, url: str) -> None:
        parts, loop = urlsplit(url), asyncio.get_running_loop()
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n\r\n"
        _, follower = await loop.create_connection(
            lambda: _Follower(self, request.encode()), parts.hostname or "", parts.port or 80
        )
        await follower.began


class _Follower(asyncio.Protocol):
    """One connection: the frames that it gets are counted and thrown away."""

    def __init__(self, audience: _Audience, request: bytes) -> None:
        self._audience = audience
        self._request = request
        self._rest = b""
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self.began.done():
            head, end, data = data.partition(_HEAD_END)
            if not end:
                self._rest = head
                return
            if not head.startswith(b"HTTP/1.1 200"):
                self.began.set_exception(ConnectionError(head.decode("latin-1")))
                return
            self.began.set_result(None)
        frames = data.count(_FRAME)
        self._rest = data[1 - len(_FRAME) :]  # a frame's mark may come in two parts
        if frames:
            self._audience.got(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        self._audience.lost += 1
        if not self.began.done():
            self.began.set_exception(exc or ConnectionError("the server hung up"))


async def main() -> None:
    audience, loop = _Audience(), asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, *arguments = line.split()
        if command == "connect":
            await audience.connect(arguments[0], int(arguments[1]))
        elif command == "await":
            await audience.reach(int(arguments[0]))
        print(audience.frames, audience.lost, flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
