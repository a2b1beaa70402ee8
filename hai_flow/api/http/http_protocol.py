"""HTTP/1.1 as our server speaks it: the head of a request is bounded, and open streams take over its connection."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from typing import Any, Final

import uvicorn
from fastapi.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from hai_flow.api.http.connections import refusal_of
from hai_flow.api.http.problems import problem
from hai_flow.api.http.stream import CONNECTION, Outlet

HEAD_BYTES_MAX: Final = 64 * 1024  # of a request's head that is not yet there as a whole
LINGER_SECONDS: Final = 1.0  # for a refused client to read why: a close with its request unread would discard that
SEND_BUFFER_BYTES: Final = 64 * 1024  # the kernel doubles it; the rest for a slow reader waits in the database

_NO_SCOPE: Final[Any] = {}
_NOBODY_WAITS: Final = asyncio.Event()  # for messages of a client that counts as gone


class Config(uvicorn.Config):
    """uvicorn's configuration, with one limit more: `head_seconds` for the head of a request to arrive."""

    head_seconds: float


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 that lends its connections to open streams. They buffer little for slow readers. The head of a request
    is bounded in time and in bytes.

    A client may send data that is no head. An empty line stops uvicorn's clock for idle connections, and so does the
    rest of a body that was answered early. So we have a clock of our own: any data without a complete request starts
    it, and only a complete head stops it."""

    # Beyond 30 attributes the dictionary of an instance costs 1.2 KiB more, and there is one for each connection.
    __slots__ = ("_beside_bytes", "_clock", "_done", "_head_bytes", "_in_body", "_in_head", "outlet")

    config: Config  # pyrefly: ignore

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.outlet: Outlet | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._in_head = False
        self._in_body = False  # the last data had some of a body
        self._beside_bytes = 0  # came since, and was neither a head nor a body
        self._head_bytes = 0
        self._done = False  # refused, or another protocol's

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        refusal = refusal_of(connection)
        if refusal is None:
            self._wait_for_head()
        else:
            self._refuse(503, "connections_busy", refusal)

    def data_received(self, data: bytes) -> None:
        if self._done:
            return
        self._in_body = False
        super().data_received(data)
        if self._in_head or self.cycle is None or self.cycle.response_complete:
            self._keep_waiting(len(data))
        elif self._in_body or not self.cycle.more_body:
            self._beside_bytes = 0
        else:
            self._limit_trailers(len(data))

    def _keep_waiting(self, more: int) -> None:
        """Data has come, but no complete request."""
        if self._done or self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += more
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(431, "head.too_large", f"the head of a request has at most {HEAD_BYTES_MAX} bytes.")
                return
        if self._clock is None:
            self._wait_for_head()

    def _limit_trailers(self, more: int) -> None:
        """Data has come beside the body before its end: the extensions and the trailers of chunks. Bound its size."""
        self._beside_bytes += more
        if self._beside_bytes > HEAD_BYTES_MAX:
            self._refuse(431, "head.too_large", f"what follows a body has at most {HEAD_BYTES_MAX} bytes.")

    def _wait_for_head(self) -> None:
        self._clock = self.loop.call_later(self.config.head_seconds, self._end_without_head)

    def _end_without_head(self) -> None:
        self._clock = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # it came early, and waits for that response
        if self._in_head:
            seconds = self.config.head_seconds
            self._refuse(408, "head.slow", f"the head of the request did not arrive within {seconds:g} seconds.")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer with a problem, and hang up."""
        self._stop_clock()
        self._unset_keepalive_if_required()
        self._done = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # in the middle of another response
            return
        self.transport.write(_encode_last_response(problem(status, code, detail, headers={"Retry-After": "1"})))
        self._clock = self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        with contextlib.suppress(OSError):  # the client has left
            self.transport.write_eof()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def handle_websocket_upgrade(self) -> None:
        self._done = True
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are ignored: proxies that check, remove or add headers don't read them
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._in_body = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._stop_clock()
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:  # else it asked for another protocol
            self.scope["extensions"] = {CONNECTION: _Connection(self, self.cycle)}  # type: ignore[typeddict-item]

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.outlet is not None:
            self.outlet.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_clock()
        if self.outlet is not None:
            self.outlet.on_disconnect()
            self.outlet = None


def _encode_last_response(response: Response) -> bytes:
    """A response on the wire, after which the connection is closed."""
    headers = [*response.raw_headers, (b"connection", b"close"), (b"cache-control", b"no-store")]
    fields = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINE[response.status_code] + fields + b"\r\n" + bytes(response.body)


class _Connection:
    """The connection of one request, for a stream that outlives it (`api/http/stream.Connection`).

    uvicorn is led to believe that the client has left: the request's task may end, and anything it still sends or
    receives is dropped. The next request on the connection, should one come early, waits as it does for any response.
    """

    __slots__ = ("_cycle", "_protocol", "_transport", "_written", "flow")

    def __init__(self, protocol: Protocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._transport = protocol.transport
        self.flow = protocol.flow
        self._cycle = cycle
        self._written = 0

    def take_over(self, outlet: Outlet) -> None:
        if self._cycle.disconnected:
            outlet.on_disconnect()
            return
        assert self._cycle.chunked_encoding, "the body of a stream has no length"
        self._protocol.outlet = outlet
        self._cycle.disconnected = True
        if self._protocol.scope is self._cycle.scope:
            self._protocol.scope, self._protocol.headers = _NO_SCOPE, []
        self._cycle.scope = _NO_SCOPE  # with it goes everything that the application keeps for a request
        self._cycle.message_event = _NOBODY_WAITS

    def write(self, data: bytes) -> None:
        chunk = _encode_chunk(data)
        self._written += len(chunk)
        self._transport.write(chunk)

    def buffered(self) -> int:
        return self._transport.get_write_buffer_size()

    def taken(self) -> int:
        return self._written - self.buffered()

    def finish(self) -> None:
        self._transport.write(b"0\r\n\r\n")
        self._protocol.outlet = None
        self._cycle.response_complete = True
        if self._cycle.keep_alive:
            self._protocol.on_response_complete()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


@functools.lru_cache(1)  # the followers of a ring get the same part, one after the other
def _encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
