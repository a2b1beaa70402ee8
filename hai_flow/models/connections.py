"""Connections to models' servers: one pool for all of them, a request, and its answer as it comes in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

from hai_flow import values
from hai_flow.models import faults
from hai_flow.models.event_stream import StreamReader
from hai_flow.models.vocabulary import Alive, Piece
from hai_flow.primitives.unpacking import NotUnpacked, unpack_response
from hai_flow.values import Json

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 10.0
KEPT_SECONDS: Final = 60.0  # an idle connection stays open for the next request
KEPT_MAX: Final = 64
REST_SECONDS: Final = 0.2  # for what a server sends behind the mark of its end, so that its connection can be kept
FAULT_BYTES_MAX: Final = 256 * 1024  # of an answer that is none
REDIRECTS_MAX: Final = 2
_ACCEPT: Final = {
    "content-type": "application/json",
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",  # what is packed is held back until there is enough of it
}


class Connections:
    """One pool of connections, which the first request opens. Nothing is tried again."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

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
                    chunks = unpack_response(response)
                    async for chunk in chunks:
                        is_silent = True
                        for piece in reader.feed(chunk):
                            is_silent = False
                            yield piece
                        if reader.is_over:
                            await _drain(chunks)
                            break
                        if is_silent:
                            yield Alive()
        except httpx2.HTTPError as error:
            if answers:
                raise faults.truncation_error() from None
            raise faults.unreachable(str(error) or type(error).__name__) from None
        except NotUnpacked as error:
            raise faults.unreadable(str(error)) from None
        except httpx2.InvalidURL as error:
            raise faults.not_configured(f"`base_url` is no address: {error}") from None
        for piece in reader.end():
            yield piece

    async def close(self) -> None:
        """Give back the connections; the next request opens others."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _answers(
        self, base_url: str, path: str, headers: Mapping[str, str], body: Mapping[str, Json]
    ) -> AsyncGenerator[httpx2.Response, None]:
        """The one response whose body is to be read. Redirects that keep the method are followed within the origin.
        Raises StepError for a status that is none of an answer."""
        import httpx2

        base, content = httpx2.URL(base_url), values.dumps(body)
        url = base.copy_with(path=base.path.rstrip("/") + path)  # a query of the base stays where it is
        for _ in range(REDIRECTS_MAX + 1):
            async with self._pool().stream("POST", url, content=content, headers={**_ACCEPT, **headers}) as response:
                if 200 <= response.status_code < 300:  # some gateways answer 201
                    yield response
                    return
                if 300 <= response.status_code < 400:
                    target = url.join(response.headers.get("location", ""))
                    if response.status_code in (307, 308) and _origin(target) == _origin(url):
                        url = target
                        continue
                    raise faults.redirect_error(response.status_code, str(target))
                names = {name.lower(): value for name, value in response.headers.items()}
                raise faults.fault_of_status(response.status_code, names, await _read_error_body(response))
        raise faults.redirect_error(307, str(url))

    def _pool(self) -> httpx2.AsyncClient:
        import httpx2

        if self._client is None:
            limits = httpx2.Limits(
                max_connections=None, max_keepalive_connections=KEPT_MAX, keepalive_expiry=KEPT_SECONDS
            )
            timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False)
        return self._client


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _read_error_body(response: httpx2.Response) -> Json:
    """The body of an answer that is none, or what of it comes; "" where it can't be read."""
    import httpx2

    body = b""
    with contextlib.suppress(httpx2.HTTPError, NotUnpacked):
        async for chunk in unpack_response(response):
            body += chunk
            if len(body) > FAULT_BYTES_MAX:
                break
    try:
        return values.loads(body)
    except values.NotJson:
        return body.decode(errors="replace")


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left, so that the connection can be used again; one that goes on is closed."""
    import httpx2

    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(REST_SECONDS):
            async for _ in chunks:
                pass
