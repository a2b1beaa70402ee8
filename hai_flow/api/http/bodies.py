"""Request bodies: read within a limit, and JSON by one strict reader (docs/design/threats.md).

A body that two readers could understand differently (a key twice, NaN, digits that get lost) is refused, on every route
alike."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from hashlib import sha256
from typing import Any, Final

from fastapi import Request
from fastapi.datastructures import Default, DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hai_flow import values
from hai_flow.api.base.peers import find_peer
from hai_flow.api.http.load_shedding import BodyRoom
from hai_flow.api.permissions.principals import get_principal, looks_at_connection, rights_for
from hai_flow.definition.names.durations import SHORTEST, NotADuration, milliseconds
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_by_size, run_if_large
from hai_flow.settings import Settings
from hai_flow.wire import posted_json
from hai_flow.wire.posted_json import Limits

JSON: Final = "application/json"
DRAINED_BYTES_MAX: Final = 8 * 1024 * 1024  # of a body that is refused for its size
DRAINED_SECONDS: Final = 2.0
YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", JSON)
ROOM: Final = "hai_flow.room"  # the scope's key of the room for the request's body


MEMBERS_MAX: Final = 1_000
"""Of an object whose members are checked one by one: each wrong one is a finding, of which 60,000 take 0.5 s."""


def demand_few(value: Any) -> Any:
    """The value. Raises PydanticCustomError where it has too many members."""
    if isinstance(value, dict) and len(value) > MEMBERS_MAX:
        counts = {"most": MEMBERS_MAX, "count": len(value)}
        raise PydanticCustomError("members", "expected at most {most} members, found {count}", counts)
    return value


class Body(BaseModel):
    """A JSON body: types are not converted, unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _demand_few(cls, body: Any) -> Any:
        return demand_few(body)


def limits_of(settings: Settings) -> Limits:
    """The most that one request may hold."""
    return Limits(body_bytes_max=settings.request_bytes_max, messages_max=settings.messages_max)


async def load_json(body: bytes, limits: Limits) -> Any:
    """The JSON value of a body, read beside the loop where it is large. Raises Rejected as `posted_json.load`."""
    return await run_by_size(len(body), posted_json.load, body, limits)


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The request's body. Raises Rejected 413 as soon as it is known to be too large, 408 if it does not come, and 429
    where there is no room for it."""
    settings: Settings = request.app.state.settings
    room: BodyRoom = request.scope[ROOM]
    if parse_content_length(request) > bytes_max:
        await _drain(request)
        raise _too_large(bytes_max)
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in arriving(request, settings.body_seconds):
            size += len(piece)
            if size > bytes_max:
                pieces.clear()
                room.release()
                await _drain(request)
                raise _too_large(bytes_max)
            room.hold(len(piece))
            pieces.append(piece)
    except Rejected:
        pieces.clear()
        room.release()  # now, not when the refusal is sent: other requests need the room
        raise
    return b"".join(pieces)


async def _drain(request: Request) -> None:
    """Read on, and keep nothing, for a moment: a connection that is closed while its client still writes is reset, and
    many clients then never see the answer."""
    bytes_left = DRAINED_BYTES_MAX
    with contextlib.suppress(Rejected, RuntimeError):  # RuntimeError: its last piece has been read already
        async for piece in arriving(request, DRAINED_SECONDS):
            bytes_left -= len(piece)
            if bytes_left < 0:
                return


def parse_content_length(request: Request) -> int:
    """The length of the body as the request declares it; 0 if it does not."""
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isdecimal() else 0


async def arriving(request: Request, seconds: float) -> AsyncIterator[bytes]:
    """The request's body as it comes, in all within `seconds`. Raises Rejected 408 if it does not."""
    settings: Settings = request.app.state.settings
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(min(end, loop.time() + settings.body_stall_seconds)):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise _too_slow(seconds, settings.body_stall_seconds) from None
        yield piece


def demand_media_type(request: Request, body: bytes, wanted: Collection[str]) -> None:
    """Raises Rejected 415 unless the body is declared as one of `wanted`. The error names the first one as expected.

    `wanted` must not contain a form, plain text or no type: browsers let a page of another origin send these without a
    preflight."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and media_type not in wanted:
        expected, *others = wanted
        more = f" (or {', '.join(others)})" if others else ""
        message = f"expected Content-Type: {expected}{more}, found {media_type[:60]!r}."
        raise Rejected(415, "body.not_json" if expected == JSON else "body.media_type", message)


def _too_large(bytes_max: int) -> Rejected:
    return Rejected(413, "body.too_large", f"a request has at most {bytes_max} bytes.")


def _too_slow(seconds: float, stall_seconds: float) -> Rejected:
    detail = f"expected the request's body within {seconds:g} seconds, and some of it every {stall_seconds:g}."
    return Rejected(408, "body.slow", detail)


class Bodies:
    """ASGI middleware: a request's body has its room until the response begins."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        room: BodyRoom = scope["app"].state.admission.room(find_peer(scope))
        scope[ROOM] = room

        async def answer(message: Message) -> None:
            room.release()
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            room.release()


class CheckedRoute(APIRoute):
    """A route that identifies the caller, then reads and checks its JSON body, if it takes one, before FastAPI parses
    it. It calls the dependencies that look at the connection alone by itself, and what it returns is written as JSON at
    once, beside the loop if it is large."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.dependant.call
        declared = self.dependant
        plain = self.response_field is None and isinstance(self.response_class, DefaultPlaceholder)
        if plain and inspect.iscoroutinefunction(endpoint) and not hasattr(endpoint, _WRITES):
            self.dependant.call = _write_results(endpoint)
            self.response_class = Default(_JsonOrText)
        looks, others = _split_dependencies(declared)
        named = any(name is not None for name, _ in looks)
        connection = _CONNECTION if named else declared.http_connection_param_name
        self.dependant = dataclasses.replace(declared, dependencies=others, http_connection_param_name=connection)
        handle = super().get_route_handler()
        self.dependant = declared
        takes_body = self.body_field is not None
        asks = rights_for(declared) != ()

        async def checked(request: Request) -> Response:
            if asks:  # before anything of the body is read
                await get_principal(request)
            if takes_body:
                request = await _check_body(request)
            values = request.scope[_VALUES] = {}
            for name, look in looks:
                value = await look(request)
                if name is not None:
                    values[name] = value
            return await handle(request)

        return checked


def _split_dependencies(
    declared: Dependant,
) -> tuple[list[tuple[str | None, Callable[..., Coroutine[Any, Any, Any]]]], list[Dependant]]:
    """The dependencies that look at the connection alone, with the parameter that each is for, and the others. What has
    a parameter is among the first only where the endpoint takes it from `_write_results`."""
    takes = hasattr(declared.call, _WRITES) and declared.http_connection_param_name is None
    looks, others = [], []
    for each in declared.dependencies:
        if each.call is not None and looks_at_connection(each.call) and (takes or each.name is None):
            looks.append((each.name, each.call))
        else:
            others.append(each)
    return looks, others


_WRITES: Final = "writes_json"
_CONNECTION: Final = "connection_of_route"  # the parameter by which FastAPI gives an endpoint its connection
_VALUES: Final = "hai_flow.values"  # the scope's key of what the dependencies gave that the route has called


class _WrittenJson(str):
    """JSON that is written already. FastAPI leaves texts alone; it would walk over each part of a value, in Python."""

    __slots__ = ()


class _JsonOrText(JSONResponse):
    def render(self, content: Any) -> bytes:
        return content.encode() if type(content) is _WrittenJson else super().render(content)


def _write_results(endpoint: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(endpoint)
    async def write(*args: Any, **more: Any) -> Any:
        connection = more.pop(_CONNECTION, None)
        result = await endpoint(*args, **more, **({} if connection is None else connection.scope[_VALUES]))
        if isinstance(result, Response):
            return result
        return await run_if_large(result, _write, result)

    setattr(write, _WRITES, True)
    return write


def _write(result: Any) -> _WrittenJson:
    """As `JSONResponse` writes it, with times and ids as FastAPI writes these."""
    return _WrittenJson(
        json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=jsonable_encoder)
    )


async def hash_content(content: Any) -> bytes:
    """The SHA-256 of the text of a JSON value: what tells one body from another under the same key."""
    return await run_if_large(content, lambda: sha256(values.dumps(content)).digest())


def read_duration(name: str, text: str, *, shortest: int = SHORTEST) -> int:
    """The member of a body as milliseconds, of which there are at least `shortest`. Raises Rejected 422."""
    try:
        return milliseconds(text, shortest=shortest)
    except NotADuration as error:
        finding = {"path": f"/{name}", "message": str(error), "code": "request.duration", "params": [text[:120]]}
        raise Rejected(422, "request.invalid", f"{name}: {error}.", findings=[finding]) from None


class _CheckedRequest(Request):
    """A request whose body has been read."""

    def __init__(self, request: Request, body: bytes, document: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._checked = body, document

    async def body(self) -> bytes:
        return self._checked[0]

    async def json(self) -> Any:
        return self._checked[1]


async def _check_body(request: Request) -> Request:
    limits = limits_of(request.app.state.settings)
    body = await read_body(request, limits.body_bytes_max)
    if not body:
        return _CheckedRequest(request, body, None)
    demand_media_type(request, body, (JSON,))
    return _CheckedRequest(request, body, await load_json(body, limits))
