"""Committed events as a response that stays open: Server-Sent Events with keep-alive and an end to those who stall."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hai_flow.runtime.fanout import Lagging, Piece
from hai_flow.wire import sse


class EventStream(Response):
    """Pieces as `text/event-stream`. Everything that is ready goes out in one write.

    A client that takes nothing for `stall_seconds` is cut off: it holds memory here, and comes back with its cursor.
    A client that goes away ends the stream; it never ends the run.
    """

    def __init__(
        self,
        pieces: AsyncIterator[Sequence[Piece]],
        *,
        keepalive_seconds: float,
        stall_seconds: float,
    ) -> None:
        super().__init__(media_type=sse.CONTENT_TYPE)
        self.headers["Cache-Control"] = "no-store"
        self.headers["X-Accel-Buffering"] = "no"
        del self.headers["content-length"]
        self._pieces = pieces
        self._keepalive_seconds = keepalive_seconds
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        writing = asyncio.create_task(self._write(send))
        watching = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({writing, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, watching):
                task.cancel()
            await asyncio.gather(writing, watching, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        pieces = self._pieces
        waiting: asyncio.Future[Sequence[Piece]] | None = None
        try:
            while True:
                waiting = asyncio.ensure_future(anext(pieces)) if waiting is None else waiting
                done, _ = await asyncio.wait({waiting}, timeout=self._keepalive_seconds)
                if not done:
                    await self._send(send, sse.KEEP_ALIVE)
                    continue
                news, waiting = waiting.result(), None
                if data := b"".join(piece.data for piece in news):
                    await self._send(send, data)
        except (StopAsyncIteration, Lagging, TimeoutError):
            pass
        finally:
            if waiting is not None:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await waiting
            close = getattr(pieces, "aclose", None)
            if close is not None:
                with contextlib.suppress(RuntimeError):
                    await close()
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(self._stall_seconds):
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
