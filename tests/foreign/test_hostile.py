"""Servers of MCP that write HTTP by themselves, and badly: what was called is called once, every wait ends, and what
came is read, or told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from hai_flow.errors import OutcomeLost, StepError
from tests.foreign.test_mcp import OK, Odd
from tests.steps.test_mcp import call, failure, runner_of
from tests.support.service import Received

TOOL: Final = {"name": "t", "description": "Pays", "inputSchema": {"type": "object"}}
JSON: Final = b"Content-Type: application/json\r\n"
EVENTS: Final = b"Content-Type: text/event-stream\r\n"


@dataclass(frozen=True)
class Written:
    """The bytes of an answer to a call, in pieces; `then`: what becomes of the connection."""

    pieces: tuple[bytes, ...]
    then: str = "close"  # keep, close, reset, silence, half


def message(id: Any, result: Any = OK) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


def http_response(body: bytes, head: bytes = JSON, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, head, len(body), body)


class Hostile:
    """A server whose answers to calls of `t` are what `write` makes of the call's id; all else is in order."""

    def __init__(self, write: Callable[[Any], Written]) -> None:
        self._odd = Odd([TOOL], OK)
        self._write = write
        self.calls = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): text.strip() for name, _, text in (each.partition(":") for each in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = json.loads(body) if body else {}
        if asked.get("method") != "tools/call":
            method, target, _ = lines[0].split(" ")
            reply = self._odd(Received(method, target, headers, body))
            writer.write(http_response(reply.body, JSON, b"%d X" % reply.status))
            return True
        self.calls += 1
        written = self._write(asked["id"])
        for piece in written.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if written.then == "half":
            writer.write_eof()
        if written.then == "reset":
            writer.transport.abort()
        if written.then in ("silence", "half"):
            await asyncio.Event().wait()
        return written.then == "keep"


@asynccontextmanager
async def serving(write: Callable[[Any], Written], **config: Any) -> AsyncIterator[tuple[Hostile, Callable[[], Any]]]:
    hostile = Hostile(write)
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with runner_of(hosts=("127.0.0.1",), **config) as runner:
        try:
            yield hostile, lambda: call(runner, "t", f"mcp: 'http://127.0.0.1:{port}/mcp'")
        finally:
            hostile.end()
            server.close()


def events(*lines: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + EVENTS + b"Connection: close\r\n\r\n" + b"".join(lines)


READ: Final[dict[str, Callable[[Any], Written]]] = {
    "100 and 103 in front": lambda id: Written(
        (
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            http_response(message(id)),
        )
    ),
    "102 twice": lambda id: Written((b"HTTP/1.1 102 Processing\r\n\r\n" * 2, http_response(message(id))), "keep"),
    "half closed behind the answer": lambda id: Written((http_response(message(id)),), "half"),
    "no length, half closed": lambda id: Written((b"HTTP/1.1 200 OK\r\n" + JSON + b"\r\n", message(id)), "half"),
    "a byte more than its length": lambda id: Written((http_response(message(id)), b"\n")),
    "events that end with CR": lambda id: Written(
        (events(b"event: message\r", b"data: " + message(id) + b"\r", b"\r"),)
    ),
    "events behind a byte order mark": lambda id: Written((events(b"\xef\xbb\xbfdata: " + message(id) + b"\n\n"),)),
    "a mark in front of the data": lambda id: Written((events(b"data: \xef\xbb\xbf" + message(id) + b"\n\n"),)),
    "the answer twice under one id": lambda id: Written(
        (events(b"data: " + message(id) + b"\n\n", b"data: " + message(id, {"content": []}) + b"\n\n"),)
    ),
    "one event id for all": lambda id: Written(
        (
            events(
                b'id: 1\ndata: {"jsonrpc": "2.0", "method": "notifications/x"}\n\n',
                b"id: 1\ndata: " + message(id) + b"\n\n",
            ),
        )
    ),
    "an answer to nobody in front": lambda id: Written(
        (events(b"data: " + message(999) + b"\n\n", b"data: " + message(id) + b"\n\n"),)
    ),
    "no blank line behind the last event": lambda id: Written((events(b"data: " + message(id) + b"\n"),)),
    "no line end behind the last event": lambda id: Written((events(b"data: " + message(id)),)),
    "a list of one answer": lambda id: Written((http_response(b"[" + message(id) + b"]"),)),
    "chunks with extensions": lambda id: Written(
        (
            b"HTTP/1.1 200 OK\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n",
            b"%x;a=b\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(message(id)), message(id)),
        )
    ),
    "a body without a type": lambda id: Written((http_response(message(id), b""),)),
    "a type of text": lambda id: Written((http_response(message(id), b"Content-Type: text/plain\r\n"),)),
    "events, though it says JSON": lambda id: Written((http_response(b"data: " + message(id) + b"\n\n"),)),
    "JSON, though it says events": lambda id: Written((events(message(id)),)),
    "status 201": lambda id: Written((http_response(message(id), status=b"201 Created"),)),
    "the id as text": lambda id: Written((events(b"data: " + message(str(id)) + b"\n\n"),)),
}


@pytest.mark.parametrize("kind", READ)
async def test_an_answer_in_odd_http_is_the_result_of_its_one_call(kind: str) -> None:
    async with asyncio.timeout(20), serving(READ[kind]) as (hostile, ask):
        assert await ask() == "ok"
    assert hostile.calls == 1


TOLD: Final[dict[str, tuple[Callable[[Any], Written], type[Exception], str]]] = {
    "a length that is too large": (
        lambda id: Written((b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: 9999\r\n\r\n" + message(id),)),
        OutcomeLost,
        '"ok"',
    ),
    "a length that is too small": (
        lambda id: Written((b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: 20\r\n\r\n" + message(id),)),
        StepError,
        "jsonrpc",
    ),
    "two lengths": (
        lambda id: Written(
            (b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n" + message(id),)
        ),
        OutcomeLost,
        "",
    ),
    "closed at once": (lambda id: Written(()), OutcomeLost, ""),
    "reset in the body": (lambda id: Written((http_response(message(id))[:-5],), "reset"), OutcomeLost, "jsonrpc"),
    "events that stop without an answer": (
        lambda id: Written((events(b'data: {"jsonrpc": "2.0", "id": %d, "res\n\n' % id),)),
        StepError,
        '"res',
    ),
    "events about something else": (
        lambda id: Written((events(b'data: {"jsonrpc": "2.0", "method": "notifications/x"}\n\n'),)),
        OutcomeLost,
        "without an answer",
    ),
    "events with ids that stop": (lambda id: Written((events(b"id: 7\ndata:\n\n"),)), OutcomeLost, "without an answer"),
    "a page": (
        lambda id: Written((http_response(b"<html>Sign in", b"Content-Type: text/html\r\n"),)),
        StepError,
        "Sign in",
    ),
    "events that break off": (lambda id: Written((events(b"data: " + message(id)[:-9]),)), OutcomeLost, ""),
    "no HTTP": (lambda id: Written((b"hello\r\n\r\n",)), OutcomeLost, ""),
    "br": (
        lambda id: Written((http_response(b"\x8b\x06\x80" + message(id), JSON + b"Content-Encoding: br\r\n"),)),
        StepError,
        "br",
    ),
    "zstd events": (
        lambda id: Written((events().replace(b"\r\n\r\n", b"\r\nContent-Encoding: zstd\r\n\r\n") + b"\x28\xb5",)),
        StepError,
        "zstd",
    ),
    "another origin": (
        lambda id: Written((http_response(b"", b"Location: http://127.0.0.2:1/mcp\r\n", b"307 Temporary Redirect"),)),
        StepError,
        "127.0.0.2",
    ),
    "another origin, for ever": (
        lambda id: Written((http_response(b"", b"Location: https://evil.example/mcp\r\n", b"308 Permanent Redirect"),)),
        StepError,
        "evil.example",
    ),
    "a redirect that loses the method": (
        lambda id: Written((http_response(b"", b"Location: /mcp/\r\n", b"302 Found"),)),
        StepError,
        "/mcp/",
    ),
    "204": (lambda id: Written((b"HTTP/1.1 204 No Content\r\n\r\n",)), StepError, ""),
    "an endless body": (
        lambda id: Written((b"HTTP/1.1 200 OK\r\n" + JSON + b"\r\n", *([b" " * 65536] * 40)), "silence"),
        StepError,
        "HAI_FLOW_HTTP_BYTES_MAX",
    ),
    "an endless event": (
        lambda id: Written((events(), *([b"data: " + b"x" * 65536] * 40)), "silence"),
        StepError,
        "HAI_FLOW_HTTP_BYTES_MAX",
    ),
    "endless events": (
        lambda id: Written((events(), *([b": " + b"x" * 60000 + b"\n\n"] * 500)), "silence"),
        StepError,
        "HAI_FLOW_HTTP_BYTES_MAX",
    ),
    "an endless head": (
        lambda id: Written((b"HTTP/1.1 200 OK\r\n", *([b"X-A: " + b"a" * 60000 + b"\r\n"] * 40)), "silence"),
        OutcomeLost,
        "",
    ),
}


@pytest.mark.parametrize("kind", TOLD)
async def test_an_answer_that_is_none_is_told_and_its_call_made_once(kind: str) -> None:
    write, fault, words = TOLD[kind]
    async with asyncio.timeout(20), serving(write, bytes_max=1_000_000) as (hostile, ask):
        with pytest.raises(fault) as raised:
            await ask()
    assert hostile.calls == 1
    error = raised.value
    assert words in f"{error} {getattr(error, 'data', None)}"
    if isinstance(error, StepError):
        assert not error.retriable


async def test_a_page_in_place_of_a_server_is_unavailable_and_tells_what_came() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http_response(b"<html>Back soon", b"Content-Type: text/html\r\nConnection: close\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, runner_of(hosts=("127.0.0.1",)) as runner:
        port = server.sockets[0].getsockname()[1]
        fault = await failure(runner, "t", f"mcp: 'http://127.0.0.1:{port}/mcp'")
    assert (fault.code, fault.retriable) == ("mcp.unavailable", True)
    assert "Back soon" in f"{fault} {fault.data}"
