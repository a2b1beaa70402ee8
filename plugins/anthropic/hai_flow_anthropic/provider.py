"""Asks Anthropic's servers. Tries nothing again by itself: the run decides whether and when."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from hai_flow.models.connections import Connections
from hai_flow.models.event_stream import StreamReader
from hai_flow.models.vocabulary import Endpoint, Piece, Request
from hai_flow_anthropic.messages import MessagesReader, body_of

BASE_URL: Final = "https://api.anthropic.com"
VERSION: Final = "2023-06-01"


class AnthropicProvider:
    """`hai_flow.models.vocabulary.ModelProvider` over one pool of connections, which is opened by the first request."""

    def __init__(self) -> None:
        self._connections = Connections()

    def fault(self, endpoint: Endpoint) -> str | None:
        if endpoint.api != "chat":
            return "`api` is nothing that Anthropic's models know"
        return None if endpoint.secret is not None else "Anthropic's models ask for an `api_key`"

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        """The answer, piece by piece. Raises StepError. There is no timeout here: the reader of the stream bounds the
        time between pieces."""
        endpoint = request.endpoint
        reader = StreamReader(MessagesReader([tool.name for tool in request.tools]))
        url, headers = endpoint.base_url or BASE_URL, _headers(endpoint)
        pieces = self._connections.ask(url, "/v1/messages", headers, body_of(request), reader)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Give back the connections; the next request opens others."""
        await self._connections.close()


def _headers(endpoint: Endpoint) -> dict[str, str]:
    key = {} if endpoint.key is None else {endpoint.key_header or "x-api-key": endpoint.key}
    return {"anthropic-version": VERSION, **key}
