"""Asks Anthropic's servers. Tries nothing again by itself: the run decides whether and when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx2

from hai_flow import values
from hai_flow.models import faults
from hai_flow.models.vocabulary import Endpoint, Piece, Request
from hai_flow.values import Json
from hai_flow_anthropic.messages import MessagesReader, body_of

BASE_URL: Final = "https://api.anthropic.com"
VERSION: Final = "2023-06-01"
CONNECT_SECONDS: Final = 10.0


class AnthropicProvider:
    """`hai_flow.models.vocabulary.ModelProvider` over one pool of connections, which is opened by the first request."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    def fault(self, endpoint: Endpoint) -> str | None:
        if endpoint.api != "chat":
            return "`api` is nothing that Anthropic's models know"
        return None if endpoint.secret is not None else "Anthropic's models ask for an `api_key`"

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        """The answer, piece by piece. Raises StepError. There is no timeout here: the reader of the stream bounds the
        time between pieces."""
        endpoint, reader, answers = request.endpoint, MessagesReader(), False
        body = values.dumps(body_of(request))
        try:
            async with self._pool().stream(
                "POST", f"{endpoint.base_url or BASE_URL}/v1/messages", content=body, headers=_headers(endpoint)
            ) as response:
                if response.status_code != 200:
                    raise faults.fault_of_status(response.status_code, _names(response), await _said(response))
                answers = True
                async for event in _events(response):
                    for piece in reader.read(event):
                        yield piece
        except httpx2.TransportError as error:
            if answers:
                raise faults.broken_off() from None
            raise faults.unreachable(str(error) or type(error).__name__) from None
        for piece in reader.end():
            yield piece

    async def close(self) -> None:
        """Give back the connections; the next request opens others."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _pool(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS))
        return self._client


def _headers(endpoint: Endpoint) -> dict[str, str]:
    key = {} if endpoint.key is None else {endpoint.key_header or "x-api-key": endpoint.key}
    return {"content-type": "application/json", "anthropic-version": VERSION, **key}


def _names(response: httpx2.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


async def _said(response: httpx2.Response) -> Json:
    body = await response.aread()
    try:
        return values.loads(body)
    except values.NotJson:
        return body.decode(errors="replace")


async def _events(response: httpx2.Response) -> AsyncIterator[Mapping[str, Json]]:
    """The events of a stream: of Server-Sent Events the data says it all. Raises StepError `llm.truncated`."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        try:
            event = values.loads(line.removeprefix("data:"))
        except values.NotJson:
            raise faults.unreadable() from None
        if isinstance(event, dict):
            yield event
