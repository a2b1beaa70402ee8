"""Answers `/metrics`, `/healthz` and `/readyz` of a process, on a port of its own.

A port of its own, because a worker has no other; because a scraper need not reach the API, nor have a right there; and
because a deployment that is full must still say so. The names of workflows are all that a stranger could learn from it,
and still it takes a token to listen where other machines reach it (`HAI_FLOW_METRICS_TOKEN`)."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

from hai_flow.errors import HaiFlowError, Rejected
from hai_flow.telemetry.exposition import CONTENT_TYPE

SCRAPES_MAX: Final = 32
HEAD_BYTES_MAX: Final = 16 * 1024

Answer: TypeAlias = tuple[int, str, bytes]


class Observable(Protocol):
    """The process that the listener shows. `metrics`: as Prometheus reads them. `ready` raises `Rejected` with the
    reason."""

    def metrics(self) -> bytes: ...

    async def ready(self) -> dict[str, Any]: ...


class ListenerApp:
    """The application: three paths, GET and HEAD, and nothing else."""

    def __init__(self, shown: Observable, token: str | None) -> None:
        self._shown = shown
        self._token = token

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope)
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Any) -> Answer:
        if scope["method"] not in ("GET", "HEAD"):
            return _problem(405, "method_not_allowed", "this port answers GET and HEAD.")
        match scope["path"]:
            case "/healthz":
                return _json(200, {"status": "ok"})
            case "/readyz":
                try:
                    return _json(200, {"status": "ready", **await self._shown.ready()})
                except Rejected as rejected:
                    return _problem(rejected.status, rejected.code, rejected.detail)
            case "/metrics":
                if not self._may_scrape(scope["headers"]):
                    return _problem(401, "unauthenticated", "send the token of HAI_FLOW_METRICS_TOKEN as a Bearer.")
                return 200, CONTENT_TYPE, self._shown.metrics()
        return _problem(404, "not_found", "this port has /metrics, /healthz and /readyz.")

    def _may_scrape(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if self._token is None:
            return True
        header = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = header.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token.encode())


def _json(status: int, body: dict[str, Any]) -> Answer:
    return status, "application/json", json.dumps(body).encode()


def _problem(status: int, code: str, detail: str) -> Answer:
    body = {"type": "about:blank", "status": status, "code": code, "detail": detail}
    return status, "application/problem+json", json.dumps(body).encode()


@contextlib.asynccontextmanager
async def listening(place: tuple[str, int], token: str | None, shown: Observable) -> AsyncIterator[str]:
    """Answer at `place` (host and port) while the block runs; yields the URL. Raises HaiFlowError when the port can't
    be opened."""
    host, port = place
    opened = _open(host, port)
    import uvicorn  # only where a port is asked for: else a worker has no web server

    config = uvicorn.Config(
        ListenerApp(shown, token),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        limit_concurrency=SCRAPES_MAX,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        http="h11",
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ws="none",
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([opened]), name="metrics")  # without uvicorn's signal handlers
    try:
        shown_host = f"[{host}]" if ":" in host else host
        yield f"http://{shown_host}:{opened.getsockname()[1]}"
    finally:
        server.should_exit = True
        with contextlib.suppress(Exception):
            await serving


def _open(host: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(SCRAPES_MAX)
    except OSError as error:
        opened.close()
        raise HaiFlowError(
            f"can't listen on {host}:{port} for metrics: {error.strerror or error}. Is the port taken? See "
            "HAI_FLOW_METRICS."
        ) from None
    return opened
