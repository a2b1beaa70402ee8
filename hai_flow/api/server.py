"""uvicorn around the application: it ends when told to, and open streams end with a farewell, not with a reset."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hai_flow.api.stream import ABORT
from hai_flow.errors import HaiFlowError
from hai_flow.runtime import Runtime
from hai_flow.settings import Settings

SEND_BUFFER_BYTES: Final = 64 * 1024  # the kernel doubles it; what a slow reader has not taken waits in the database


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 whose responses can cut their connection, and whose connections hold little for slow readers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[typeddict-item]


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
