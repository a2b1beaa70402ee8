"""uvicorn around the application: it ends on a signal, and open streams end with a farewell, not with a reset."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from hai_flow.api.http.connections import ConnectionCounter
from hai_flow.api.http.http_protocol import Config, Protocol
from hai_flow.errors import HaiFlowError
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings

FAREWELL_SECONDS: Final = 0.1  # in which the streams end that a signal has closed: nobody waits for these


class _Server(uvicorn.Server):
    """Ends the open streams as soon as a signal comes, calls `started` when the port is open, and `stopping` with the
    number of requests in progress when it shuts."""

    def __init__(
        self, config: uvicorn.Config, runtime: Runtime, started: Callable[[str], None], stopping: Callable[[int], None]
    ) -> None:
        super().__init__(config)
        self._runtime = runtime
        self._started = started
        self._stopping = stopping
        self.signal: int | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            host_in_url = f"[{host}]" if ":" in host else host
            self._started(f"http://{host_in_url}:{port}")

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await asyncio.sleep(FAREWELL_SECONDS)
        self._stopping(len(self.server_state.tasks))
        await super().shutdown(sockets)  # type: ignore[arg-type]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.signal is not None:  # the second one: nothing is waited for
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.signal = sig
        self._runtime.fanout.close_streams()
        super().handle_exit(sig, frame)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record of uvicorn's concerns the server, not a client that sends no UTF-8. Closing that client's socket
    (1007) is enough: the log needs no traceback."""
    return not record.getMessage().startswith("Invalid UTF-8 sequence received from client")


async def serve(
    app: FastAPI,
    runtime: Runtime,
    settings: Settings,
    *,
    started: Callable[[str], None],
    stopping: Callable[[int], None] = lambda requests: None,
) -> int | None:
    """Serve until SIGINT or SIGTERM; return that signal. `started` gets the base URL once the port is open, and
    `stopping` the number of requests in progress once it shuts. What `stopping` makes of both signals stays.

    Raises HaiFlowError when the port can't be opened."""
    config = Config(
        app,
        host=settings.host,
        port=settings.port,
        http=Protocol,
        ws="websockets-sansio",
        ws_max_size=settings.request_bytes_max,
        ws_per_message_deflate=False,  # a small frame that grows would be a large one
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=max(1, int(settings.shutdown_seconds)),
        server_header=False,
    )
    config.head_seconds = settings.head_seconds
    try:
        sockets = ConnectionCounter.of(settings).listen(settings.host, settings.port)
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        raise HaiFlowError(
            f"can't listen on {place}: {error.strerror or error}. Is the port taken? Try --port."
        ) from None
    logging.getLogger("uvicorn.error").addFilter(_is_ours)
    server = _Server(config, runtime, started, stopping)
    handlers = {sig: signal.signal(sig, server.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        await server._serve(list(sockets))  # without uvicorn's own handlers, which raise the signal again in the end
    finally:
        for sig, handler in handlers.items():
            if signal.getsignal(sig) == server.handle_exit:
                signal.signal(sig, handler)
    return server.signal
