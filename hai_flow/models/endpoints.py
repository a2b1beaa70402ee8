"""Asking a model over the network: OpenAI's protocols through its SDK, which is imported when a model is first called.

The SDK tries nothing again by itself. The run decides whether and when, because it knows the cost so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final

from hai_flow import plugins
from hai_flow.models import chat, faults, responses
from hai_flow.models.presets import PRESETS
from hai_flow.models.scripted import SCRIPTED, ScriptedProvider
from hai_flow.models.vocabulary import ENTRY_POINTS, Endpoint, ModelProvider, Piece, Request
from hai_flow.values import Json

if TYPE_CHECKING:
    from openai import AsyncOpenAI


CONNECT_SECONDS: Final = 10.0
CLIENTS_MAX: Final = 64


class Providers:
    """The providers of models in this process: those of OpenAI's protocols, and the installed plug-ins."""

    def __init__(self) -> None:
        self._offered: dict[str, EntryPoint] = {each.name: each for each in plugins.offered(ENTRY_POINTS)}
        self._known: dict[str, ModelProvider] = {}

    @property
    def offered(self) -> frozenset[str]:
        """The names of providers that installed packages add."""
        return frozenset(self._offered)

    async def of(self, endpoint: Endpoint) -> ModelProvider:
        """The provider of the model. Raises StepError `llm.not_configured` for a plug-in that can't be loaded."""
        if endpoint.provider == SCRIPTED:
            return ScriptedProvider()
        name = endpoint.provider if endpoint.provider in self._offered else ""
        if name not in self._known:
            # The import takes seconds on a busy machine. It must not block other steps, nor count as the model's time.
            made = await asyncio.to_thread(self._loaded, self._offered[name] if name else None)
            self._known.setdefault(name, made)
        return self._known[name]

    @staticmethod
    def _loaded(offered: EntryPoint | None) -> ModelProvider:
        if offered is None:
            import openai  # noqa: F401

            return OpenAIProvider()
        try:
            return offered.load()()
        except Exception as error:  # whatever a package does when it is imported
            fault = f"{type(error).__name__}: {error}"
            raise faults.not_configured(f"the provider `{offered.name}` can't be loaded: {fault}") from error

    async def close(self) -> None:
        """Give back all connections."""
        known, self._known = self._known, {}
        for provider in known.values():
            await provider.close()


class OpenAIProvider:
    """Models behind OpenAI's protocols, one connection pool for each address and key."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str | None, str | None], AsyncOpenAI] = {}

    def fault(self, endpoint: Endpoint) -> str | None:
        return None if endpoint.provider in PRESETS else f"nobody provides models as `{endpoint.provider}`"

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        """See `ModelProvider`. Raises StepError. The caller notices if no piece comes, or none in time."""
        endpoint = request.endpoint
        client = await self._client(endpoint)
        reader: chat.ChatReader | responses.ResponsesReader
        if endpoint.api == "responses":
            path, body = "/responses", responses.body_of(request)
            reader = responses.ResponsesReader()
        else:
            path, body = "/chat/completions", chat.body_of(request)
            audio = endpoint.params.get("audio")
            spoken = audio.get("format") if isinstance(audio, dict) else None
            reader = chat.ChatReader(endpoint.quirks.reasoning, spoken or "")
        async for event in _events(client, path, body):
            for piece in reader.read(event):
                yield piece
        for piece in reader.end():
            yield piece

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    async def _client(self, endpoint: Endpoint) -> AsyncOpenAI:
        where = endpoint.base_url, endpoint.key, endpoint.key_header
        known = self._clients.get(where)
        if known is None:
            known = _client_of(endpoint)
            while len(self._clients) >= CLIENTS_MAX:
                oldest = self._clients.pop(next(iter(self._clients)))
                await oldest.close()
            self._clients[where] = known
        return known


def _client_of(endpoint: Endpoint) -> AsyncOpenAI:
    import httpx2
    from openai import AsyncOpenAI

    headers = {} if endpoint.key_header is None or endpoint.key is None else {endpoint.key_header: endpoint.key}
    return AsyncOpenAI(
        api_key=endpoint.key or "none",
        base_url=endpoint.base_url,
        default_headers=headers,
        max_retries=0,
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        organization=None,
        project=None,
    )


async def _events(client: AsyncOpenAI, path: str, body: Mapping[str, Json]) -> AsyncIterator[dict[str, Json]]:
    """The events of a streamed answer as plain JSON. Raises StepError."""
    import httpx2
    import openai

    answers = False
    try:
        stream: Any = await client.post(path, body=body, cast_to=object, stream=True, stream_cls=_stream_class())
        answers = True
        async with contextlib.aclosing(stream):
            async for event in stream:
                if isinstance(event, dict):
                    yield event
    except openai.APIStatusError as error:
        headers = {name.lower(): value for name, value in error.response.headers.items()}
        raise faults.fault_of_status(error.status_code, headers, error.body) from None
    except (openai.APIConnectionError, httpx2.TransportError) as error:  # a timeout is one, too
        if answers:
            raise faults.broken_off() from None
        raise faults.unreachable(str(error.__cause__ or error) or type(error).__name__) from None
    except openai.APIError as error:  # reported within the stream
        raise faults.fault_of_body(error.body or {"message": error.message}) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise faults.unreadable() from None


def _stream_class() -> Any:
    from openai import AsyncStream

    return AsyncStream[object]
