"""What every route needs: who asks, the runtime, and the guards in front of all routes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Depends, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hai_flow.api.problems import problem
from hai_flow.engine.commands import LOCAL_PRINCIPAL
from hai_flow.errors import Rejected
from hai_flow.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Until identity exists there is one: `user:local` of the one tenant."""

    id: str
    tenant: UUID


def get_principal() -> Principal:
    return Principal(LOCAL_PRINCIPAL, LOCAL_TENANT)


def get_runtime(request: Request) -> Runtime:
    return request.app.state.runtime


def get_settings(request: Request) -> Settings:
    return request.app.state.settings


CurrentPrincipal = Annotated[Principal, Depends(get_principal)]
CurrentRuntime = Annotated[Runtime, Depends(get_runtime)]
CurrentSettings = Annotated[Settings, Depends(get_settings)]


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The request's body. Raises Rejected 413 as soon as it is known to be too large: it is never held whole."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > bytes_max:
        raise _too_large(bytes_max)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > bytes_max:
            raise _too_large(bytes_max)
        pieces.append(piece)
    return b"".join(pieces)


def _too_large(bytes_max: int) -> Rejected:
    return Rejected(413, "body.too_large", f"a request has at most {bytes_max} bytes.")


_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]", "testserver")


class Guard:
    """Refuses what a web page could make a visitor's browser send here (PROMISES section 4, threat 10).

    The Host must be one of ours (DNS rebinding); a request that comes with an Origin must come from ours or an allowed
    one (CSRF); allowed origins get CORS headers, no one else does.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.hosts = frozenset(_host_names((*_LOOPBACK_NAMES, settings.host, *settings.allowed_hosts)))
        self.any_host = settings.allow_remote and not settings.allowed_hosts
        self.origins = frozenset(settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if not self.any_host and _name_of(host) not in self.hosts:
            response = problem(421, "host_unknown", f"this server does not answer as {host!r}; see HAI_FLOW_ALLOWED_HOSTS.")
            await response(scope, receive, send)
            return
        if origin is None:
            await self.app(scope, receive, send)
            return
        if origin not in self.origins and urlsplit(origin).netloc != host:
            response = problem(403, "origin_refused", f"pages of {origin!r} may not call this server; see HAI_FLOW_ALLOWED_ORIGINS.")
            await response(scope, receive, send)
            return
        await self._with_cors(scope, receive, send, origin, headers)

    async def _with_cors(
        self, scope: Scope, receive: Receive, send: Send, origin: str, headers: dict[bytes, str]
    ) -> None:
        cors = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            asked = headers.get(b"access-control-request-headers", "")
            preflight = [
                *cors,
                (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
                (b"access-control-allow-headers", asked.encode("latin-1")),
                (b"access-control-max-age", b"600"),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": preflight})
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *cors]}
            await send(message)

        await self.app(scope, receive, send_with_cors)


def _host_names(hosts: Iterable[str]) -> Iterable[str]:
    for host in hosts:
        yield f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()


def _name_of(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
