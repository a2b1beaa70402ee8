"""uvicorn around the application: it ends when told to, and open streams end with a farewell, not with a reset."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hai_flow.api.stream import CONNECTION, Outlet
from hai_flow.errors import HaiFlowError
from hai_flow.runtime import Runtime
from hai_flow.settings import Settings

SEND_BUFFER_BYTES: Final = 64 * 1024  # the kernel doubles it; what a slow reader has not taken waits in the database

_NO_SCOPE: Final[Any] = {}


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 that lends its connections to open streams, and whose connections hold little for slow readers."""

    outlet: Outlet | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:  # else it asked for another protocol
            self.scope["extensions"] = {CONNECTION: _Connection(self, self.cycle)}  # type: ignore[typeddict-item]

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.outlet is not None:
            self.outlet.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.outlet is not None:
            self.outlet.lost()
            self.outlet = None


class _Connection:
    """The connection of one request, for a stream that outlives it (`api/stream.Connection`).

    uvicorn takes the request for one whose client has left: its task may end, and what is sent or received in its name
    comes to nothing. The next request on the connection, should one come early, waits as it does for any response.
    """

    __slots__ = ("_cycle", "_protocol", "_written")

    def __init__(self, protocol: _Protocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self._written = 0

    def take_over(self, outlet: Outlet) -> None:
        if self._cycle.disconnected:
            outlet.lost()
            return
        assert self._cycle.chunked_encoding, "the body of a stream has no length"
        self._protocol.outlet = outlet
        self._cycle.disconnected = True
        if self._protocol.scope is self._cycle.scope:
            self._protocol.scope, self._protocol.headers = _NO_SCOPE, []
        self._cycle.scope = _NO_SCOPE  # with it goes everything that the application keeps for a request

    def write(self, data: bytes) -> None:
        self._send(b"%x\r\n%b\r\n" % (len(data), data))

    def buffered(self) -> int:
        return self._protocol.transport.get_write_buffer_size()

    def taken(self) -> int:
        return self._written - self.buffered()

    @property
    def paused(self) -> bool:
        return self._protocol.flow.write_paused

    def finish(self) -> None:
        self._send(b"0\r\n\r\n")
        self._protocol.outlet = None
        self._cycle.response_complete = True
        if self._cycle.keep_alive:
            self._protocol.on_response_complete()
        else:
            self._protocol.transport.close()

    def abort(self) -> None:
        self._protocol.transport.abort()

    def _send(self, data: bytes) -> None:
        self._written += len(data)
        self._protocol.transport.write(data)


class _Server(uvicorn.Server):
    """Tells the streams to end as soon as the process is told to, and whoever waits that the port is open."""

    def __init__(self, config: uvicorn.Config, runtime: Runtime, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._runtime = runtime
        self._started = started
        self.signal: int | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._started(f"http://{shown}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signal = sig
        self._runtime.fanout.close_streams()
        super().handle_exit(sig, frame)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record of uvicorn's tells of us, not of a client that sends no UTF-8: closing its socket (1007) is all
    there is to do, so it is no fault with a traceback."""
    return not record.getMessage().startswith("Invalid UTF-8 sequence received from client")


async def serve(app: FastAPI, runtime: Runtime, settings: Settings, *, started: Callable[[str], None]) -> int | None:
    """Serve until SIGINT or SIGTERM; return that signal. `started` gets the base URL once the port is open.

    Raises HaiFlowError when the port can't be opened.
    """
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=_Protocol,
        ws="websockets-sansio",
        ws_max_size=settings.request_bytes_max,
        ws_per_message_deflate=False,  # a small frame that grows would be a large one
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=max(1, int(settings.shutdown_seconds)),
        server_header=False,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_ours)
    server = _Server(config, runtime, started)
    handlers = {sig: signal.signal(sig, server.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        await server._serve()  # without uvicorn's own handlers, which raise the signal again when all is over
    except SystemExit:
        raise HaiFlowError(f"can't listen on {settings.host}:{settings.port}; is the port taken? Try --port.") from None
    finally:
        for sig, handler in handlers.items():
            signal.signal(sig, handler)
    return server.signal
