"""Committed events as a response that stays open, with keep-alives, and an end for clients that stall. The events that
the log has already are sent by the task of the request. From then on an `Outlet` owns the connection, perhaps for days:
the task and all that it held are freed, and a piece goes from its ring to the socket in one call. That needs a server
that lends its connections (`http_protocol`); under another one, and for pieces that are not simply those of a run, the
task goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hai_flow.api.permissions.credential_expiry import StreamEnd, StreamLease
from hai_flow.runtime.streams.fanout import Following, Lagging, RingSubscription
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.store.postgres.error_classes import passing
from hai_flow.wire.dialects.dialect import CLOSING
from hai_flow.wire.sse import SSE, Framing

log = structlog.get_logger(__name__)

CONNECTION: Final = "hai_flow.connection"  # the scope's extension that is the request's `ResponseConnection`
LOOKS: Final = 6  # at a connection, in the time after which it counts as stalled


class WriteFlow(Protocol):
    """The state of a connection, which each piece for each follower looks at."""

    write_paused: bool


class ResponseConnection(Protocol):
    """The connection of a request whose response has begun. `flow` says whether no more should come just now."""

    flow: WriteFlow

    def take_over(self, outlet: Outlet) -> None:
        """From now on the outlet writes the body. The server calls its `lost` when the connection ends, and its
        `resume` when the connection takes bytes again. For the application the client is gone."""
        ...

    def write(self, data: bytes) -> None:
        """Send a part of the body, or keep it to send it later."""
        ...

    def buffered(self) -> int:
        """How many bytes are kept."""
        ...

    def taken(self) -> int:
        """A number that grows whenever some of the kept bytes are on their way."""
        ...

    def finish(self) -> None:
        """End the body. The connection may bear the next request."""
        ...

    def abort(self) -> None:
        """Cut the connection. Bytes that are kept are lost."""
        ...


class Frames(Protocol):
    """The pieces of a stream: each step yields all new ones at once."""

    def __aiter__(self) -> AsyncIterator[Sequence[StreamItem]]: ...

    async def __anext__(self) -> Sequence[StreamItem]: ...

    async def aclose(self) -> None: ...


class _Stalled(Exception):
    """The client has taken nothing for too long."""


BROKE_OFF: Final = StreamEnd(CLOSING, "The stream broke off; reconnect to go on.")


class EventStream(Response):
    """Pieces as a stream in the given framing. Everything that is ready goes out in one write.

    A client that takes nothing for `stall_seconds` is cut off: it holds memory here, and comes back with its cursor. A
    client that goes away ends the stream; it never ends the run. If the pieces break off before their end, or the
    `term` of the client's credential is over, the last bytes are a `farewell`: a stream that just ends would look
    complete. `closed` is called once."""

    def __init__(
        self,
        pieces: Frames,
        *,
        framing: Framing = SSE,
        keepalive_seconds: float,
        stall_seconds: float,
        farewell: Callable[[StreamEnd], bytes],
        closed: Callable[[], None] = lambda: None,
        term: StreamLease | None = None,
    ) -> None:
        super().__init__()
        self.headers["Content-Type"] = framing.content_type  # exactly: a charset makes clients misread binary frames
        self.headers["X-Accel-Buffering"] = "no"
        del self.headers["content-length"]
        self.keep_alive = framing.keep_alive
        self.keepalive_seconds = keepalive_seconds
        self.stall_seconds = stall_seconds
        self.farewell = farewell
        self.closed = closed
        self.term = term or StreamLease()
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: ResponseConnection | None = scope.get("extensions", {}).get(CONNECTION)
        following = self._pieces if connection is not None and isinstance(self._pieces, Following) else None
        watching = asyncio.ensure_future(wait_disconnect(receive))
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            ended = await self._write(send, watching, following)
            if ended and following is not None and following.place is not None and not self.term.is_over:
                assert connection is not None
                self._go_on(connection, following.hand_over())
            elif ended:
                await self._send(send, {"type": "http.response.body", "body": b""})
        except _Stalled:
            log.info("follower_stalled", path=scope.get("path"))
            if following is not None and following.place is not None:
                following.place.drop()
            if connection is not None:  # another server closes it when the response is dropped
                connection.abort()
        finally:
            await _end(watching)
            with contextlib.suppress(Exception):  # its errors have been logged
                await self._pieces.aclose()
            self.closed()

    def _go_on(self, connection: ResponseConnection, place: RingSubscription) -> None:
        """Go on without this task. The outlet calls `closed` when the stream ends."""
        closed, self.closed = self.closed, _ignore
        Outlet(connection, place, self, closed)

    async def _write(self, send: Send, watching: asyncio.Future[None], following: Following | None) -> bool:
        """Send the pieces; of `following`, those that the log has already. False: the client went away before."""
        coming: asyncio.Future[Sequence[StreamItem] | None] | None = None
        changed = asyncio.get_running_loop().create_future()
        self.term.notify = lambda: changed.done() or changed.set_result(None)
        try:
            while True:
                if coming is None:
                    coming = asyncio.ensure_future(following.catch_up() if following else anext(self._pieces))
                wait = max(0.0, min(self.keepalive_seconds, self.term.seconds_left))
                await asyncio.wait({coming, watching, changed}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    return False
                if self.term.is_over:
                    await self._send_last(send, self.term.ending)
                    return True
                data = self.keep_alive
                if coming.done():
                    pieces, coming = coming.result(), None
                    if pieces is None:
                        return True
                    data = b"".join([piece.data for piece in pieces])
                if data:
                    await self._send(send, {"type": "http.response.body", "body": data, "more_body": True})
        except StopAsyncIteration:
            return True
        except _Stalled:
            raise
        except Exception as error:
            log_broken_off(error)
            await self._send_last(send, BROKE_OFF)
            return True
        finally:
            self.term.notify = _ignore
            if coming is not None:
                await _end(coming)

    async def _send_last(self, send: Send, ending: StreamEnd) -> None:
        await self._send(send, {"type": "http.response.body", "body": self.farewell(ending), "more_body": True})

    async def _send(self, send: Send, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self.stall_seconds):
                await send(message)
        except TimeoutError:
            raise _Stalled from None


def log_broken_off(error: Exception) -> None:
    """Log why a stream broke off. A slow client comes back with its cursor, and so does each while the database is
    away: neither is a fault of the server."""
    if isinstance(error, Lagging):
        return
    if passing(error):
        log.warning("stream_without_database", error=str(error) or repr(error))
    else:
        log.error("stream_failed", exc_info=error)


class Outlet:
    """A stream after its request: from a place in a ring to a connection, without a task.

    It writes when the ring has news and the connection takes bytes. Now and then it looks whether silence asks for a
    keep-alive, and whether any of the bytes that are kept for the client has been taken."""

    __slots__ = (
        "_closed", "_connection", "_farewell", "_flow", "_keep_alive", "_keepalive_seconds", "_loop", "_moved_at",
        "_place", "_stall_seconds", "_taken", "_term", "_timer", "_wrote_at",
    )  # fmt: skip

    def __init__(
        self, connection: ResponseConnection, place: RingSubscription, stream: EventStream, closed: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._flow = connection.flow
        self._place = place
        self._keep_alive = stream.keep_alive
        self._keepalive_seconds = stream.keepalive_seconds
        self._stall_seconds = stream.stall_seconds
        self._farewell = stream.farewell
        self._closed = closed
        self._term = stream.term
        self._taken = connection.taken()
        self._wrote_at = self._moved_at = self._loop.time()
        self._timer = self._loop.call_later(self._next_look(), self._look)
        place.notify = self.resume
        self._term.notify = self._look_now
        connection.take_over(self)
        self.resume()

    def resume(self) -> None:
        """Write everything new, in one piece. Nothing is written while the connection is paused: it calls this again
        when it takes bytes."""
        if self._flow.write_paused:
            return
        try:
            news = self._place.take()
        except Exception as error:
            log_broken_off(error)
            self._finish(self._farewell(BROKE_OFF))
            return
        if news.last:
            self._finish(news.data)
        elif news.data:
            self._connection.write(news.data)
            self._wrote_at = self._loop.time()

    def on_disconnect(self) -> None:
        """The client is gone, or was cut off. May be called again."""
        closed, self._closed = self._closed, _ignore
        self._timer.cancel()
        self._place.leave()
        closed()

    def _finish(self, data: bytes) -> None:
        if data:
            self._connection.write(data)
        self._connection.finish()
        self.on_disconnect()

    def _look(self) -> None:
        now, buffered, taken_bytes = self._loop.time(), self._connection.buffered(), self._connection.taken()
        if now >= self._term.ends_at:
            self._finish(self._farewell(self._term.ending))
            return
        if not buffered or taken_bytes > self._taken:
            self._taken, self._moved_at = taken_bytes, now
        elif now - self._moved_at >= self._stall_seconds:
            log.info("follower_stalled")
            self._place.drop()
            self._connection.abort()
            self.on_disconnect()
            return
        if self._keep_alive and not buffered and now - self._wrote_at >= self._keepalive_seconds:
            self._connection.write(self._keep_alive)
            self._wrote_at = now
        self._timer = self._loop.call_later(self._next_look(), self._look)

    def _look_now(self) -> None:
        self._timer.cancel()
        self._look()

    def _next_look(self) -> float:
        """Seconds until the next look. A keep-alive that is due but would only be kept can wait for the look after."""
        keepalive = self._wrote_at + self._keepalive_seconds - self._loop.time()
        look = min(self._stall_seconds / LOOKS, self._term.seconds_left)
        return min(look, keepalive) if self._keep_alive and keepalive > 0 else look


async def wait_disconnect(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel the task, wait until it is over, and take its exception, which is read nowhere else."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _ignore() -> None:
    """Stands for `closed` once that was called or handed over."""
