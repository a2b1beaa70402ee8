"""The answers of a server of the Model Context Protocol, taken apart before the SDK judges them as a whole: with one
odd tool of forty it gives none, and with one odd part it loses the result of a call that was performed. So lists and
results get a form that the SDK takes, and what the server said goes beside it (`RAW`), to be read part by part. A tap
stands around the streams of any transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from secrets import token_hex
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from hai_flow.steps.mcp.handshake import Handshake, tidy_beginning
from hai_flow.steps.mcp.messages import BARE, NO_ID, fault
from hai_flow.steps.mcp.receipts import CallReceipt

RAW: Final = f"hai-flow/raw/{token_hex(8)}"
"""The key in `_meta` under which an answer stands as the server gave it. No server can guess it."""
_SNAKE_CASE: Final = {
    "is_error": "isError", "structured_content": "structuredContent", "next_cursor": "nextCursor",
    "input_schema": "inputSchema", "output_schema": "outputSchema",
    "protocol_version": "protocolVersion", "server_info": "serverInfo", "supported_versions": "supportedVersions",
    "result_type": "resultType", "input_requests": "inputRequests", "request_state": "requestState",
}  # fmt: skip
_COMPLETE: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}  # where a server leaves it out
REQUESTS_MAX: Final = 10_000  # that wait for an answer in one connection
_DOUBT_SECONDS: Final = 2.0  # for the answer itself to come behind one that names no request


class Caller(Protocol):
    """Whoever calls a function of the server. `receipt` gets what comes of the answer."""

    receipt: CallReceipt

    def hear(self, result: Mapping[str, Any] | None) -> None:
        """The answer has come, also where nothing waits for it any more; None: an error."""
        ...


CALLER: Final[ContextVar[Caller | None]] = ContextVar("CALLER", default=None)
"""The caller in whose task a call is sent."""


@asynccontextmanager
async def tap(transport: Any) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of a transport, with answers in a form that the SDK takes."""
    async with transport as (incoming, outgoing):
        sent: dict[types.RequestId, tuple[str, Caller | None]] = {}
        read_partial = getattr(incoming, "read_partial", None)  # of a program, whose line has not ended
        handshake = Handshake()
        yield _Incoming(incoming, sent, handshake, outgoing), _Outgoing(outgoing, sent, handshake, read_partial)


def tidy(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """A result in a form that the SDK takes, with what the server said in its `_meta`."""
    result = _wrap(method, result[BARE]) if BARE in result else _in_camel_case(result)
    if method == "initialize" or (method == "server/discover" and "supportedVersions" in result):
        return tidy_beginning(method, result)
    if method == "tools/list" and (listed := _list_tools(result.get("tools"))) is not None:
        named = (each for each in listed if isinstance(each, dict) and isinstance(each.get("name"), str))
        tools = [_bare(each) for each in named]
        cursor = result.get("nextCursor")
        rest = {key: each for key, each in result.items() if key in ("resultType", "ttlMs", "cacheScope")}
        more = {"nextCursor": cursor} if isinstance(cursor, str) else {}
        return {**_COMPLETE, **rest, **more, "tools": tools, "_meta": {RAW: listed}}
    if method == "resources/read" and isinstance(contents := result.get("contents"), dict):
        return {**result, "contents": [contents]}
    if method == "tools/call" and not only_asks(result):
        return {"resultType": "complete", "content": [], "_meta": {RAW: result}}
    if method == "tools/call":  # with an empty list, as PHP writes an empty object, and without the word for it
        asked = {key: each for key, each in result.items() if key in ("inputRequests", "requestState") and each}
        return {"resultType": "input_required", **asked}
    return result


def _wrap(method: str, value: Any) -> dict[str, Any]:
    """The result for which a server gives only the value of its one member."""
    is_value = isinstance(value, list) and not all(isinstance(each, dict) and "type" in each for each in value)
    name = "structuredContent" if is_value else "content"
    return {{"tools/list": "tools", "resources/read": "contents"}.get(method, name): value}


def _in_camel_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The members of an object by the protocol's names: Python servers that leave out aliases write their own."""
    return {name if (name := _SNAKE_CASE.get(key, key)) not in fields else key: each for key, each in fields.items()}


def _list_tools(tools: Any) -> list[Any] | None:
    """The descriptions of functions: a list, or an object by their names; null is none of them."""
    if isinstance(tools, dict):
        tools = [{"name": name, **each} if isinstance(each, dict) else each for name, each in tools.items()]
    if isinstance(tools, list):
        return [_in_camel_case(each) if isinstance(each, dict) else each for each in tools]
    return [] if tools is None else None


def only_asks(result: Mapping[str, Any]) -> bool:
    """Whether it is a question of the server, and no result: some write an empty `content` beside their questions."""
    kind, requests = result.get("resultType"), result.get("inputRequests")
    if kind == "complete" or result.get("content") or result.get("structuredContent") is not None:
        return False
    return kind == "input_required" or bool(requests) or ("inputRequests" in result and "content" not in result)


def _bare(tool: Mapping[str, Any]) -> dict[str, Any]:
    """As much of a tool as the SDK needs: its name, and the properties in which it looks for headers."""
    schema = tool["inputSchema"] if isinstance(tool.get("inputSchema"), dict) else {}
    plain = {key: each for key, each in schema.items() if key not in ("$schema", "required", "properties")}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        plain["properties"] = {name: each for name, each in properties.items() if isinstance(each, dict)}
    return {"name": tool["name"], "inputSchema": {**plain, "type": "object"}}


class WrappedStream:
    """A stream of the SDK with all that it has."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


class _Outgoing(WrappedStream):
    def __init__(
        self,
        inner: Any,
        sent: dict[types.RequestId, tuple[str, Caller | None]],
        handshake: Handshake,
        read_partial: Callable[[types.RequestId], bytes] | None,
    ) -> None:
        super().__init__(inner)
        self._sent = sent
        self._handshake = handshake
        self._read_partial = read_partial

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        self._handshake.note(item)
        if isinstance(message, types.JSONRPCRequest):
            if len(self._sent) >= REQUESTS_MAX:  # those that were never answered
                del self._sent[next(iter(self._sent))]
            self._sent[message.id] = message.method, (caller := CALLER.get())
            if caller is not None and self._read_partial is not None and message.method == "tools/call":
                caller.receipt.begin(partial(self._read_partial, message.id))
        await self._inner.send(item)


def _find_doubt(message: Any, id: types.RequestId) -> types.JSONRPCError | None:
    """The answer in the place of one that names no request: it is about the one under way, which else waits for ever.
    None for any other message."""
    kind = ""
    if isinstance(message, types.JSONRPCResponse) and message.id == NO_ID:
        kind = "a result"
    elif isinstance(message, types.JSONRPCError) and message.id is None:
        kind = "an error"
    why = f"it answers with {kind} that names no request"
    return fault(why, id, text=message.model_dump_json()) if kind else None


class _Incoming(WrappedStream):
    def __init__(
        self, inner: Any, sent: dict[types.RequestId, tuple[str, Caller | None]], handshake: Handshake, outgoing: Any
    ) -> None:
        super().__init__(inner)
        self._sent = sent
        self._handshake = handshake
        self._outgoing = outgoing
        self._doubt: tuple[SessionMessage, types.RequestId, float] | None = None
        """The one that is held back, about which request, and until when."""

    async def receive(self) -> Any:
        return await self._receive(self._inner.receive)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        return await self._receive(self._inner.__anext__)

    async def _receive(self, receive: Callable[[], Awaitable[Any]]) -> Any:
        """The next message. A doubt about the only request under way waits for that request's own answer."""
        while True:
            item = await self._wait(receive)
            if (again := self._handshake.offer_other(item)) is not None:
                await self._outgoing.send(again)
                continue
            message = item.message if isinstance(item, SessionMessage) else None
            id = next(iter(self._sent), None)
            if id is not None and len(self._sent) == 1 and (doubt := _find_doubt(message, id)) is not None:
                if self._doubt is None:
                    item.message = doubt
                    self._doubt = item, id, asyncio.get_running_loop().time() + _DOUBT_SECONDS
                continue
            return self._read(item)

    async def _wait(self, receive: Callable[[], Awaitable[Any]]) -> Any:
        """The next message, or the doubt where none comes in time, or none at all any more."""
        if self._doubt is None or next(iter(self._sent), None) != self._doubt[1]:
            self._doubt = None
            return await receive()
        doubt, _, until = self._doubt
        silence = asyncio.timeout_at(until)
        try:
            async with silence:
                return await receive()
        except TimeoutError:
            if not silence.expired():
                raise
        except (StopAsyncIteration, anyio.EndOfStream):
            pass  # the next one says so again
        self._doubt = None
        return doubt

    def _read(self, item: Any) -> Any:
        message = item.message if isinstance(item, SessionMessage) else None
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError) or message.id is None:
            return item
        method, caller = self._sent.pop(message.id, ("", None))
        result = message.result if isinstance(message, types.JSONRPCResponse) else None
        if method == "tools/call" and caller is not None:
            caller.hear(result)
        if isinstance(message, types.JSONRPCResponse):
            message.result = tidy(method, message.result)
        return item
