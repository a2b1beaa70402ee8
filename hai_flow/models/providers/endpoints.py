"""Asking a model over the network by OpenAI's protocols, and the providers that packages add.

Nothing is tried again here. The run decides whether and when, because it knows the cost so far."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator
from importlib.metadata import EntryPoint

import msgspec

from hai_flow import plugins
from hai_flow.errors import StepError
from hai_flow.models import chat, faults, responses
from hai_flow.models.connections import Connections
from hai_flow.models.conversation import with_short_ids
from hai_flow.models.event_stream import StreamReader
from hai_flow.models.providers.presets import PRESETS
from hai_flow.models.providers.scripted import SCRIPTED, ScriptedProvider
from hai_flow.models.vocabulary import ENTRY_POINTS, Alive, Endpoint, ModelProvider, Piece, Request


class Providers:
    """The providers of models in this process: those of OpenAI's protocols, and the installed plug-ins."""

    def __init__(self) -> None:
        self._offered: dict[str, EntryPoint] = {each.name: each for each in plugins.list_offers(ENTRY_POINTS)}
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
            # An import may take seconds on a busy machine: it must not block other steps, nor be the model's time.
            provider = await asyncio.to_thread(self._load, self._offered[name] if name else None)
            self._known.setdefault(name, provider)
        return self._known[name]

    @staticmethod
    def _load(offered: EntryPoint | None) -> ModelProvider:
        if offered is None:
            import httpx2  # noqa: F401

            return OpenAIProvider()
        try:
            return offered.load()()
        except Exception as error:  # whatever a package does when it is imported
            fault = f"{type(error).__name__}: {error}"
            raise faults.not_configured(f"the provider `{offered.name}` can't be loaded: {fault}") from error

    async def close(self) -> None:
        """Give back all connections."""
        providers, self._known = self._known, {}
        for provider in providers.values():
            await provider.close()


class OpenAIProvider:
    """Models behind OpenAI's protocols."""

    def __init__(self) -> None:
        self._connections = Connections()

    def fault(self, endpoint: Endpoint) -> str | None:
        return None if endpoint.provider in PRESETS else f"nobody provides models as `{endpoint.provider}`"

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        """See `ModelProvider`. Raises StepError. The caller notices if no piece comes, or none in time.

        A server that refuses the form of the request (`_adapt`) is asked once more, in the form that it takes:
        otherwise every later question of that thread would fail, too. One that has begun to answer is not."""
        has_begun = False
        while True:
            try:
                async with contextlib.aclosing(self._pieces(request)) as pieces:
                    async for piece in pieces:
                        has_begun = has_begun or not isinstance(piece, Alive)
                        yield piece
                return
            except StepError as error:
                adapted = _adapt(request, error)
                if has_begun or adapted == request:
                    raise
                request = adapted

    async def _pieces(self, request: Request) -> AsyncGenerator[Piece, None]:
        endpoint = request.endpoint
        names = [tool.name for tool in request.tools]
        if endpoint.api == "responses":
            path, body = "/responses", responses.body_of(request)
            reader = StreamReader(responses.ResponsesReader(names, endpoint.quirks.reasoning))
        else:
            path, body = "/chat/completions", chat.body_of(request)
            audio = endpoint.params.get("audio")
            spoken = audio.get("format") if isinstance(audio, dict) else None
            reader = StreamReader(chat.ChatReader(endpoint.quirks.reasoning, spoken or "", names))
        headers = {}
        if endpoint.key is not None:
            name = endpoint.key_header
            headers = {"authorization": f"Bearer {endpoint.key}"} if name is None else {name: endpoint.key}
        async with contextlib.aclosing(self._connections.ask(endpoint.base_url, path, headers, body, reader)) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        await self._connections.close()


def _adapt(request: Request, error: StepError) -> Request:
    """The request as the server takes it, by the words in which it refuses it: with the user and the assistant in turn,
    or with ids of nine letters. The same request where it can't be that."""
    if faults.wants_turns(error):
        quirks = msgspec.structs.replace(request.endpoint.quirks, alternate=True)
        return dataclasses.replace(request, endpoint=dataclasses.replace(request.endpoint, quirks=quirks))
    if faults.wants_short_ids(error):
        return dataclasses.replace(request, messages=tuple(map(with_short_ids, request.messages)))
    return request
