"""The guard in front of all routes: it decides which requests are let in, and adds the headers of every response."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from fastapi import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hai_flow.api.http.problems import problem
from hai_flow.settings import Settings

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "[::]"})
_EVERY_RESPONSE: Final = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"))
# Of a response that has none of its own: nothing of it may run or be framed, should a browser take it for a page.
_POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
# Of a response that has none of its own: a page with a form has, since without a referrer its Origin would be `null`.
_NO_REFERRER: Final = (b"referrer-policy", b"no-referrer")
# Of a response that does not say itself how long it may be kept.
_KEEP_NOTHING: Final = (b"cache-control", b"no-store")
_HTTPS_ONLY: Final = (b"strict-transport-security", b"max-age=31536000")


class RequestPolicy:
    """Refuses requests that a web page could make a visitor's browser send here.

    The Host must be one of ours. An attacker can let a name of theirs point here (DNS rebinding); the browser then
    sends that name both as Host and in Origin, so to compare these two with each other would prove nothing. A request
    that another site's page makes must come from an allowed origin (CSRF): browsers name the origin in Origin, or mark
    the request in Sec-Fetch-Site. Following a link is allowed. Only allowed origins get CORS headers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = frozenset(_host_names((*_LOOPBACK_NAMES, settings.host, *settings.allowed_hosts)))
        self._origins = frozenset(settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = _Headers(scope)
        refused = self._refusal(headers, scope.get("method", "GET"))
        if scope["type"] == "websocket":
            if refused is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        cors = [] if refused or headers.origin in ("", "null") else _build_cors(headers.origin)
        https = [_HTTPS_ONLY] if scope.get("scheme") == "https" else []
        send = _with_headers(send, (*_EVERY_RESPONSE, *https, *cors))
        if refused is not None:
            await refused(scope, receive, send)
        elif cors and scope["method"] == "OPTIONS" and headers.first(b"access-control-request-method"):
            await _preflight(headers, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, headers: _Headers, method: str) -> Response | None:
        host, origin = headers.first(b"host"), headers.first(b"origin")
        if headers.twice(b"host") or headers.twice(b"origin"):
            return problem(400, "header_twice", "expected one Host and at most one Origin.")
        if _name_of(host) not in self._hosts:
            return problem(421, "host_unknown", f"this server is not {host[:200]!r}; see HAI_FLOW_ALLOWED_HOSTS.")
        if origin:
            # A form of ours tells no origin, because our pages tell no referrer; the browser itself says whose it is.
            form = (headers.first(b"sec-fetch-site"), headers.first(b"sec-fetch-mode")) == ("same-origin", "navigate")
            if (origin == "null" and form) or origin in self._origins or self._is_own(origin, host):
                return None
            return problem(
                403, "origin_refused", f"pages of {origin[:200]!r} may not call; see HAI_FLOW_ALLOWED_ORIGINS."
            )
        followed = method == "GET" and headers.first(b"sec-fetch-mode") == "navigate"
        if headers.first(b"sec-fetch-site") in ("cross-site", "same-site") and not followed:
            return problem(403, "origin_refused", "another site's page may not call; see HAI_FLOW_ALLOWED_ORIGINS.")
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether the page is one of this server, under a name that the settings know."""
        try:
            place = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        return _name_of(place) in self._hosts and place == host.lower()


class _Headers:
    """A request's headers as text."""

    def __init__(self, scope: Scope) -> None:
        self._items: list[tuple[bytes, bytes]] = scope["headers"]
        self.origin = self.first(b"origin")

    def first(self, name: bytes) -> str:
        """The first value of the header, or nothing."""
        return next((value.decode("latin-1") for key, value in self._items if key == name), "")

    def twice(self, name: bytes) -> bool:
        return sum(key == name for key, _ in self._items) > 1


def _build_cors(origin: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"Date, Location, Retry-After"),
        (b"vary", b"Origin"),
    ]


async def _preflight(headers: _Headers, send: Send) -> None:
    allowed = [
        (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
        (b"access-control-allow-headers", headers.first(b"access-control-request-headers").encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": allowed})
    await send({"type": "http.response.body", "body": b""})


def _with_headers(send: Send, more: Iterable[tuple[bytes, bytes]]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *more]
            named = {name.lower() for name, _ in headers}
            headers += [each for each in (_POLICY, _NO_REFERRER, _KEEP_NOTHING) if each[0] not in named]
            message = {**message, "headers": headers}
        await send(message)

    return send_with_headers


def _host_names(hosts: Iterable[str]) -> Iterable[str]:
    for host in hosts:
        if host in _EVERY_ADDRESS:  # listening on it makes it no name of ours: browsers reach this machine by it
            continue
        yield f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()


_HOST: Final = re.compile(r"(\[[^\[\]@/?#\s]*\]|[^\[\]:@/?#\s]*)(:[0-9]{0,5})?", re.ASCII)


def _name_of(host: str) -> str:
    """A Host header without its port. A header of another form is no name, whatever it begins with."""
    match = _HOST.fullmatch(host)
    return "" if match is None else match[1].lower()
