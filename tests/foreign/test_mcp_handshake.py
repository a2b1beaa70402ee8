"""Servers of MCP that begin a session oddly: one that could work does, and any other says why it can't."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from hai_flow.steps.mcp.handshake import Handshake
from tests.foreign.test_mcp import OK, Odd, serving
from tests.steps.test_mcp import call, failure
from tests.support.service import Received, Reply

TOOL: Final = {"name": "t", "description": "Pays", "inputSchema": {"type": "object"}}
ABOUT: Final = {"capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}


class Beginning(Odd):
    """A server whose answer to `initialize` is that of `begin` for the offered version: the members of the result, or a
    whole reply. `offered` are the versions."""

    def __init__(self, begin: Callable[[str], dict[str, Any] | Reply]) -> None:
        super().__init__([TOOL], OK)
        self._begin = begin
        self.offered: list[str] = []

    def __call__(self, received: Received) -> Reply:
        asked = json.loads(received.body) if received.body else {}
        if asked.get("method") != "initialize":
            return super().__call__(received)
        version = asked["params"]["protocolVersion"]
        self.offered.append(version)
        answer = self._begin(version)
        if isinstance(answer, Reply):
            return answer
        if "error" in answer:
            return Reply(body=json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}).encode())
        return self._reply(asked["id"], {"protocolVersion": version, **ABOUT, **answer})


def _without(name: str) -> Callable[[str], Reply]:
    fields = {key: each for key, each in {"protocolVersion": "2025-06-18", **ABOUT}.items() if key != name}
    return lambda _: Reply(body=json.dumps({"jsonrpc": "2.0", "id": 2, "result": fields}).encode())


BEGUN: Final[dict[str, Callable[[str], Any]]] = {
    "no capabilities": _without("capabilities"),
    "no version": _without("protocolVersion"),
    "no name": _without("serverInfo"),
    **{
        f"capabilities {json.dumps(each)}": lambda _, each=each: {"capabilities": each}
        for each in (
            None, [], {}, ["tools"], "tools", True, {"tools": True}, {"tools": None}, {"tools": []}, {"tools": "yes"},
            {"tools": {"listChanged": "yes"}}, {"tools": {}, "experimental": True, "completions": []},
        )
    },
    **{
        f"a name {json.dumps(each)}": lambda _, each=each: {"serverInfo": each}
        for each in (None, "odd", [], {}, {"name": "odd"}, {"name": None, "version": 2})
    },
    **{f"instructions {json.dumps(each)}": lambda _, each=each: {"instructions": each} for each in (None, {}, ["a"])},
    **{
        f"the version {json.dumps(each)}": lambda _, each=each: {"protocolVersion": each}
        for each in ("2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2026-07-28", None)
    },
    "names of Python": lambda _: {"protocol_version": "2025-06-18", "server_info": {}, "extra": 1},
}  # fmt: skip


@pytest.mark.parametrize("kind", BEGUN)
async def test_a_server_that_says_oddly_what_it_is_is_called(kind: str) -> None:
    beginning = Beginning(BEGUN[kind])
    async with serving(beginning) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
    assert (beginning.calls, len(beginning.offered)) == (["t"], 1)


def _refuse(known: str, message: str, code: int = -32602, data: Any = None) -> Callable[[str], dict[str, Any]]:
    error = {"error": {"code": code, "message": message, **({} if data is None else {"data": data})}}
    return lambda version: {} if version == known else error


def _refuse_as_text(known: str, text: str) -> Callable[[str], dict[str, Any] | Reply]:
    return lambda version: {} if version == known else Reply(400, text.encode(), "text/plain")


REFUSED: Final[dict[str, tuple[Callable[[str], Any], list[str]]]] = {
    "it names those that it knows": (
        _refuse("2024-11-05", "Unsupported protocol version", data={"supported": ["2024-11-05"]}),
        ["2025-11-25", "2024-11-05"],
    ),
    "by the code of the next revision": (
        _refuse("2025-06-18", "no", -32022, {"supported": ["2025-06-18", "2025-03-26"], "requested": "2025-11-25"}),
        ["2025-11-25", "2025-06-18"],
    ),
    "in a sentence": (
        _refuse("2025-03-26", "Unsupported protocol version 2025-11-25, expected 2025-03-26 or 2024-11-05", -32000),
        ["2025-11-25", "2025-03-26"],
    ),
    "without a word about those that it knows": (
        _refuse("2025-03-26", "bad protocolVersion"), ["2025-11-25", "2025-06-18", "2025-03-26"],
    ),
    "with status 400, as text": (
        _refuse_as_text(
            "2025-06-18", "Bad Request: Unsupported protocol version (supported versions: 2025-06-18, 2025-03-26)"
        ),
        ["2025-11-25", "2025-06-18"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_server_that_refuses_a_version_is_offered_older_ones(kind: str) -> None:
    begin, offered = REFUSED[kind]
    beginning = Beginning(begin)
    async with serving(beginning) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
    assert (beginning.calls, beginning.offered) == (["t"], offered)


async def test_a_server_that_refuses_every_version_is_asked_for_each_once() -> None:
    beginning = Beginning(_refuse("none", "unsupported protocol version"))
    async with asyncio.timeout(20), serving(beginning) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, "refuses to begin: unsupported protocol" in fault.message) == ("mcp.unavailable", True)
    assert beginning.offered == ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


async def test_a_server_that_refuses_for_another_reason_is_offered_one_version() -> None:
    beginning = Beginning(_refuse("none", "your licence has ended"))
    async with serving(beginning) as (runner, declared):
        assert "your licence has ended" in (await failure(runner, "t", declared)).message
    assert len(beginning.offered) == 1


@pytest.mark.parametrize("version", ["1.0", "2026-01-01", "latest", 2])
async def test_a_version_that_nobody_knows_is_named_beside_those_that_are_spoken(version: Any) -> None:
    async with serving(Beginning(lambda _: {"protocolVersion": version})) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, fault.retriable) == ("mcp.unavailable", False)
    assert f"speaks MCP {version}, and the versions that are spoken here are 2024-11-05" in fault.message


async def _say_where() -> AsyncIterator[bytes]:
    yield b"event: endpoint\ndata: /messages?session=1\n\n"
    await asyncio.Event().wait()


async def test_a_server_of_the_former_protocol_is_told_at_once() -> None:
    former = Beginning(lambda _: Reply(type="text/event-stream", pieces=_say_where()))
    async with asyncio.timeout(10), serving(former) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, fault.retriable) == ("mcp.unavailable", False)
    assert "HTTP+SSE" in fault.message


@pytest.mark.parametrize("status", [404, 405])
async def test_an_address_that_takes_no_calls_is_told_with_what_it_may_be(status: int) -> None:
    class Elsewhere(Odd):
        has_stream = True

        def __call__(self, received: Received) -> Reply:
            if received.method == "POST" or not self.has_stream:
                return Reply(status, b"<p>Cannot POST /mcp</p>", type="text/html")
            return Reply(type="text/event-stream", pieces=_say_where())

    async with asyncio.timeout(10), serving(Elsewhere()) as (runner, declared):
        fault = await failure(runner, "t", declared)
        assert (fault.code, fault.retriable, "HTTP+SSE" in fault.message) == ("mcp.unavailable", False, True)
    elsewhere = Elsewhere()
    elsewhere.has_stream = False
    async with asyncio.timeout(10), serving(elsewhere) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, fault.retriable) == ("mcp.unavailable", True)
    for words in (str(status), "Cannot POST", "no MCP server takes calls at this address"):
        assert words in fault.message


def _begin() -> Handshake:
    handshake = Handshake()
    params = {"protocolVersion": "2025-11-25"}
    handshake.note(SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="initialize", params=params)))
    return handshake


def _refusal(id: int | None) -> SessionMessage:
    error = types.ErrorData(code=-32600, message="Unsupported protocol version")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id, error=error))


@pytest.mark.parametrize(("id", "offers"), [(1, True), (None, True), (2, False)])
def test_a_refusal_is_of_the_request_that_it_names_or_of_the_only_one(id: int | None, offers: bool) -> None:
    assert (_begin().offer_other(_refusal(id)) is not None) == offers


def test_an_error_about_versions_begins_no_session_after_the_first() -> None:
    handshake = _begin()
    assert handshake.offer_other(SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={}))) is None
    assert handshake.offer_other(_refusal(None)) is None
