"""Connections to models' servers: one pool for all of them, a request, and its answer as it comes in."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.request import getproxies

from hai_flow import values
from hai_flow.models import faults
from hai_flow.models.event_stream import StreamReader
from hai_flow.models.http import CONNECT_SECONDS, KEPT_MAX, KEPT_SECONDS, HttpAnswer, HttpPool, ServerOrigin
from hai_flow.models.vocabulary import Alive, Piece
from hai_flow.primitives.unpacking import NotUnpacked, unpack
from hai_flow.values import Json

if TYPE_CHECKING:
    import ssl

    import httpx2

REST_SECONDS: Final = 0.2  # for what a server sends behind the mark of its end, so that its connection can be kept
END_SECONDS: Final = 5.0  # for a server to mark the end, or to close its stream, behind the reason for it
FAULT_BYTES_MAX: Final = 256 * 1024  # of an answer that is none
FAULT_SECONDS: Final = 5.0  # for the body of such an answer, whose status says the most
REDIRECTS_MAX: Final = 2
_HEADERS: Final = {
    "user-agent": "hai-flow",
    "content-type": "application/json",
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",  # what is packed is held back until there is enough of it
}


class Connections:
    """One pool of connections, which the first request opens."""

    def __init__(self) -> None:
        self._pool: HttpPool | None = None
        self._client: httpx2.AsyncClient | None = None  # where the environment names proxies

    async def ask(
        self, base_url: str, path: str, headers: Mapping[str, str], body: Mapping[str, Json], reader: StreamReader
    ) -> AsyncGenerator[Piece, None]:
        """The answer to a POST, piece by piece; `Alive` for bytes that bring none. `path` is added to the path of
        `base_url`. There is no limit of time but for connecting. Raises StepError."""
        import httpx2

        answers = False
        try:
            async with contextlib.aclosing(self._answers(base_url, path, headers, body)) as responses:
                async for response in responses:
                    answers = True
                    chunks = _unpacked(response)
                    until = None
                    while (chunk := await _read_chunk(chunks, until)) is not None:
                        is_silent = True
                        for piece in reader.feed(chunk):
                            is_silent = False
                            yield piece
                        if reader.is_over:
                            await _drain(chunks)
                            break
                        if is_silent:
                            yield Alive()
                        if not reader.has_said_all:
                            until = None
                        elif until is None:
                            until = asyncio.get_running_loop().time() + END_SECONDS
        except (OSError, httpx2.HTTPError) as error:
            if answers:
                raise faults.truncation_error() from None
            raise faults.unreachable(str(error) or f"no connection within {CONNECT_SECONDS:g} s") from None
        except NotUnpacked as error:
            raise faults.unreadable(str(error)) from None
        except httpx2.InvalidURL as error:
            raise faults.not_configured(f"`base_url` is no address: {error}") from None
        for piece in reader.end():
            yield piece

    async def close(self) -> None:
        """Give back the connections; the next request opens others."""
        client, pool, self._client, self._pool = self._client, self._pool, None, None
        if pool is not None:
            pool.close()
        if client is not None:
            await client.aclose()

    async def _answers(
        self, base_url: str, path: str, headers: Mapping[str, str], body: Mapping[str, Json]
    ) -> AsyncGenerator[HttpAnswer, None]:
        """The one response whose body is to be read. Redirects that keep the method are followed within the origin.
        Raises StepError for a status that is none of an answer."""
        url, content = _locate(base_url, path), values.dumps(body)
        headers = {**_HEADERS, **headers}
        for _ in range(REDIRECTS_MAX + 1):
            async with self._send(url, headers, content) as response:
                if 200 <= response.status < 300:  # some gateways answer 201
                    yield response
                    return
                if 300 <= response.status < 400:
                    location = response.headers.get("location", "")
                    target = _join(url, location) if location else None
                    if target and response.status in (307, 308) and _origin(target) == _origin(url):
                        url = target
                        continue
                    raise faults.redirect_error(response.status, _strip_userinfo(target) if target else location)
                raise faults.fault_of_status(response.status, response.headers, await _read_error_body(response))
        raise faults.redirect_error(307, _strip_userinfo(url))

    def _open(self) -> None:
        """Raises StepError for proxies of the environment that are none."""
        import httpx2

        if getproxies().keys().isdisjoint(("http", "https", "all")):
            self._pool = HttpPool(_make_tls)
            return
        from http.cookiejar import CookieJar, DefaultCookiePolicy  # for proxies alone

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_MAX, keepalive_expiry=KEPT_SECONDS)
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        try:
            self._client = httpx2.AsyncClient(
                verify=_make_tls(), timeout=timeout, limits=limits, follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )  # fmt: skip
        except (ImportError, ValueError, httpx2.InvalidURL):  # whose texts may hold the proxy's password
            raise faults.not_configured(
                "a proxy in `http_proxy`, `https_proxy` or `all_proxy` is none: expected an address like http://host:3128"
            ) from None

    @contextlib.asynccontextmanager
    async def _send(self, url: httpx2.URL, headers: Mapping[str, str], content: bytes) -> AsyncIterator[HttpAnswer]:
        """The response to the request. Raises OSError, and httpx2.HTTPError behind a proxy."""
        if url.username or url.password:
            pair = b64encode(f"{url.username}:{url.password}".encode()).decode()
            headers = {**headers, "authorization": f"Basic {pair}"}
        _check_headers(headers)
        if self._pool is None and self._client is None:
            self._open()
        if self._client is not None:
            async with self._client.stream("POST", url, content=content, headers=headers) as answer:
                yield HttpAnswer(answer.status_code, dict(answer.headers), answer.aiter_raw())
            return
        pool = self._pool
        assert pool is not None
        connection, response = await pool.ask(_origin(url), _request(url, headers, content))
        try:
            yield response
        finally:
            pool.give_back(connection)


@lru_cache(256)
def _locate(base_url: str, path: str) -> httpx2.URL:
    import httpx2

    base = httpx2.URL(base_url)
    own, mark, query = base.raw_path.partition(b"?")  # a query of the base stays where it is, and `%2F` what it is
    return base.copy_with(raw_path=own.rstrip(b"/") + path.encode() + mark + query)


def _join(url: httpx2.URL, location: str) -> httpx2.URL | None:
    """Where a redirect leads; None: to no address."""
    import httpx2

    try:
        return url.join(location)
    except (httpx2.InvalidURL, ValueError):
        return None


def _strip_userinfo(url: httpx2.URL) -> str:
    return str(url.copy_with(userinfo=b""))  # it may hold a key


def _origin(url: httpx2.URL) -> ServerOrigin:
    secure = url.scheme == "https"
    return ServerOrigin(url.raw_host.decode(), url.port or (443 if secure else 80), secure)


def _make_tls() -> ssl.SSLContext:
    import httpx2

    try:
        context = httpx2.create_ssl_context()
    except OSError as error:
        raise faults.not_configured(
            f"the certificates that TLS trusts can't be read ({error}): do SSL_CERT_FILE and SSL_CERT_DIR name a file "
            "and a folder that exist?"
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raises StepError for a key that no header can carry."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise faults.not_configured(
                f"the header `{name}` can't be sent: expected letters, digits and signs of ASCII in it, and no line "
                "break. Is the secret that it is made of whole, and without a line's end?"
            )


def _request(url: httpx2.URL, headers: Mapping[str, str], content: bytes) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    target, host = url.raw_path.decode(), url.netloc.decode()
    return f"POST {target} HTTP/1.1\r\nhost: {host}\r\n{lines}content-length: {len(content)}\r\n\r\n".encode() + content


async def _read_chunk(chunks: AsyncIterator[bytes], until: float | None) -> bytes | None:
    """The next chunk; None behind the last one, and where none comes until then."""
    if until is None:
        return await anext(chunks, None)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            return await anext(chunks, None)
    return None


def _unpacked(response: HttpAnswer) -> AsyncIterator[bytes]:
    return unpack(response.chunks, response.headers.get("content-encoding", ""))


async def _read_error_body(response: HttpAnswer) -> Json:
    """The body of an answer that is none, or what of it comes; "" where it can't be read."""
    import httpx2

    body = b""
    try:
        async with asyncio.timeout(FAULT_SECONDS):
            async for chunk in _unpacked(response):
                body += chunk
                if len(body) > FAULT_BYTES_MAX:
                    break
    except NotUnpacked as error:
        body = body or str(error).encode()
    except (OSError, httpx2.HTTPError):
        pass
    try:
        return values.loads(body)
    except values.NotJson:
        return body.decode(errors="replace")


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left, so that the connection can be used again; one that goes on is closed."""
    import httpx2

    with contextlib.suppress(OSError, httpx2.HTTPError, NotUnpacked):
        async with asyncio.timeout(REST_SECONDS):
            async for _ in chunks:
                pass
