"""Committed events as a response that stays open: Server-Sent Events with keep-alive and an end to those who stall."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hai_flow.runtime.fanout import Lagging, Piece
from hai_flow.wire.framing import SSE, Framing

log = structlog.get_logger(__name__)

ABORT = "hai_flow.abort"  # the scope's extension that cuts the connection; the protocol of `api/server.py` offers it


class _Stalled(Exception):
    """The client has taken nothing for too long."""


class EventStream(Response):
    """Pieces as a stream in the given framing. Everything that is ready goes out in one write.

    A client that takes nothing for `stall_seconds` is cut off: it holds memory here, and comes back with its cursor.
    A client that goes away ends the stream; it never ends the run. Where the pieces break off before their end
    `farewell` says so, because a stream that just ends looks like one that is complete. `closed` is called once.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[Sequence[Piece]],
        *,
        framing: Framing = SSE,
        keepalive_seconds: float,
        stall_seconds: float,
        farewell: Callable[[], bytes] = bytes,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.headers["Content-Type"] = framing.content_type  # exactly: a charset makes clients misread binary frames
        self.headers["X-Accel-Buffering"] = "no"
        del self.headers["content-length"]
        self._pieces = pieces
        self._keep_alive = framing.keep_alive
        self._keepalive_seconds = keepalive_seconds
        self._stall_seconds = stall_seconds
        self._farewell = farewell
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.ensure_future(_gone(receive))
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if await self._write(send, watching):
                await self._send(send, {"type": "http.response.body", "body": b""})
        except _Stalled:
            log.info("follower_stalled", path=scope.get("path"))
            scope.get("extensions", {}).get(ABORT, _nothing)()
        finally:
            await _end(watching)
            with contextlib.suppress(Exception):  # what failed in it has been logged
                await self._pieces.aclose()
            self._closed()

    async def _write(self, send: Send, watching: asyncio.Future[None]) -> bool:
        """Send the pieces. False: the client went away before their end."""
        coming: asyncio.Future[Sequence[Piece]] = asyncio.ensure_future(anext(self._pieces))
        try:
            while True:
                done, _ = await asyncio.wait(
                    {coming, watching}, timeout=self._keepalive_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if watching in done:
                    return False
                data = self._keep_alive
                if done:
                    data = b"".join(piece.data for piece in coming.result())
                    coming = asyncio.ensure_future(anext(self._pieces))
                if data:
                    await self._send(send, {"type": "http.response.body", "body": data, "more_body": True})
        except StopAsyncIteration:
            return True
        except _Stalled:
            raise
        except Exception as error:
            if not isinstance(error, Lagging):
                log.error("stream_failed", exc_info=error)
            await self._send(send, {"type": "http.response.body", "body": self._farewell(), "more_body": True})
            return True
        finally:
            await _end(coming)

    async def _send(self, send: Send, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await send(message)
        except TimeoutError:
            raise _Stalled from None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel it, wait until it is over, and take its exception, which nobody else will."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _nothing() -> None:
    """Where the server can't cut a connection, it closes it when the response is dropped."""
