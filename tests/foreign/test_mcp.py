"""Servers of the Model Context Protocol as they are: sessions that are gone, addresses that lead on, tools that are
described badly, results with odd parts. What was said to be done is done once, whatever the server is like."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

import pytest
import structlog
from mcp_types import JSONRPCError, JSONRPCResponse

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import McpTool, Tool
from hai_flow.definition.schemas.foreign_schemas import compile_schema, read_schema
from hai_flow.errors import OutcomeLost
from hai_flow.steps.agent import ToolShelf
from hai_flow.steps.mcp import http as mcp_http
from hai_flow.steps.mcp import tolerant_reader as mcp_taps
from hai_flow.steps.mcp.messages import list_notes
from hai_flow.steps.mcp.messages import read as read_message
from hai_flow.steps.mcp.runner import McpRunner
from hai_flow.steps.mcp.schemas import read_tool
from tests.runtime.conftest import Make, is_now, start, state_of
from tests.runtime.conftest import make as make
from tests.steps.test_mcp import Kept, call, failure, runner_of, step_of
from tests.support.mcp_lines import Script, Way
from tests.support.mcp_lines import catalogue as lines
from tests.support.mcp_server import http_server, server
from tests.support.service import Received, Reply, Service
from tests.support.waiting import until

GOOD = {"name": "ok", "description": "Says ok", "inputSchema": {"type": "object", "properties": {}}}
OK = {"content": [{"type": "text", "text": "ok"}]}


class Odd:
    """A server over HTTP with the function `ok` and others (`tools`); it answers calls of `t` by `result`.

    `sessions`: it has sessions, and `forget` makes it answer by `unknown` to those that it knew before (`pings`: but to
    a ping as ever). `calls` are the names of the functions that were performed.
    """

    def __init__(
        self,
        tools: list[Any] | None = None,
        result: Any = None,
        *,
        sessions: bool = False,
        unknown: Reply | None = None,
        leads: str = "",
        pings: bool = False,
    ) -> None:
        self.tools = [GOOD] if tools is None else [GOOD, *tools]
        self.result = result
        self.calls: list[str] = []
        self._unknown = unknown or Reply(
            404, b'{"jsonrpc": "2.0", "id": "x", "error": {"code": -32600, "message": "no"}}'
        )
        self._has_sessions = sessions
        self._leads = leads
        self._free = {"server/discover", *(["ping"] if pings else [])}
        self._known: set[str] = set()
        self._opened = 0

    def forget(self) -> None:
        self._known.clear()

    @property
    def opened(self) -> int:
        """How many sessions were opened."""
        return self._opened

    def __call__(self, received: Received) -> Reply:
        if self._leads and received.target == "/mcp":
            return Reply(307, headers=(("Location", self._leads),) if self._leads.strip() else ())
        asked = json.loads(received.body) if received.body else {}
        method, id = asked.get("method"), asked.get("id")
        if id is None:
            return Reply(202 if received.method == "POST" else 405)
        headers: tuple[tuple[str, str], ...] = ()
        if method == "initialize":
            self._opened += 1
            if self._has_sessions:
                name = f"s{self._opened}"
                self._known.add(name)
                headers = (("Mcp-Session-Id", name),)
            known = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            return self._reply(id, {**known, "serverInfo": {"name": "odd", "version": "1"}}, headers)
        if (
            self._has_sessions
            and method not in self._free
            and received.headers.get("mcp-session-id") not in self._known
        ):
            return self._unknown
        if method == "tools/list":
            return self._reply(id, {"tools": self.tools})
        if method == "tools/call":
            self.calls.append(asked["params"]["name"])
            return self._reply(id, self.result if asked["params"]["name"] == "t" else OK)
        error = {"code": -32601, "message": "Method not found"}
        return Reply(body=json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())

    def _reply(self, id: Any, result: Any, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
        return Reply(body=json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode(), headers=headers)


@asynccontextmanager
async def serving(odd: Odd) -> AsyncIterator[tuple[McpRunner, str]]:
    async with Service(odd) as service, runner_of(hosts=("127.0.0.1",)) as runner:
        yield runner, f"mcp: '{service.url('/mcp')}'"


def declared_tool(declared: str) -> Tool:
    tool = step_of("t.ok", declared).verb.tool  # type: ignore[union-attr]
    assert tool is not None
    return tool


# --- sessions ---------------------------------------------------------------------------------------------------------

SAID_OTHERWISE = [
    Reply(404, b""),
    Reply(404, b"<html>Not Found</html>", type="text/html"),
    Reply(410, b"{}"),
    Reply(
        400,
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}',
    ),
    Reply(400, b'{"error": "Session not found or expired"}'),
    Reply(400, b"Invalid session", type="text/plain"),
    Reply(409, b'{"error": "session closed"}'),
    Reply(422, b'{"detail": "Session ID is invalid"}'),
    Reply(400, '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"会话不存在"}}'.encode()),
    Reply(400, "Сессия не найдена".encode(), type="text/plain"),
    Reply(409, b'{"fehler": "Die Sitzung ist abgelaufen"}'),
    Reply(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}'),
    *(
        Reply(200, b'{"jsonrpc":"2.0","id":"x","error":{"code":-32001,"message":"%s"}}' % said)
        for said in (
            b"Session not found",
            b"Session terminated",
            b"Unknown session ID",
            b"Bad Request: Session has expired, please reinitialize.",
            b"Bad Request: No valid session ID provided",
            b"MCP session 3f2a9c11-77aa does not exist",
            b"Received request before initialization was complete",
        )
    ),
]


async def test_an_error_that_only_mentions_a_session_is_the_function_s_own() -> None:
    said = (
        b'{"jsonrpc":"2.0","id":"x","error":{"code":-32000,"message":"the chat session of Ann was not found in CRM"}}'
    )
    odd = Odd(sessions=True, unknown=Reply(200, said))
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        odd.forget()
        fault = await failure(runner, "ok", declared)
    assert (fault.code, "of Ann" in fault.message, odd.opened) == ("tool.failed", True, 1)


@pytest.mark.parametrize("unknown", SAID_OTHERWISE, ids=lambda each: f"{each.status} {each.body[:60]!r}")
async def test_a_forgotten_session_is_opened_anew_and_the_call_made_once(unknown: Reply) -> None:
    odd = Odd(sessions=True, unknown=unknown)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        odd.forget()
        assert await call(runner, "ok", declared) == "ok"
    assert (odd.calls, odd.opened) == (["ok", "ok"], 2)


@pytest.mark.parametrize("status", [400, 401, 409, 500, 503])
async def test_what_a_server_says_beside_a_status_is_in_the_error(status: int) -> None:
    said = Reply(status, "<html><body><p>Your licence\n ended: 许可证</p></body></html>".encode(), type="text/html")
    odd = Odd(sessions=True, unknown=said, pings=True)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        odd.forget()
        assert f"{status} (Your licence ended: 许可证)" in str(await failure(runner, "ok", declared))


async def test_a_400_in_a_session_that_still_answers_a_ping_is_the_call_s_own() -> None:
    odd = Odd(sessions=True, unknown=Reply(400, b'{"error": "the order is too large"}'), pings=True)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        odd.forget()
        assert (await failure(runner, "ok", declared)).code in ("tool.failed", "tool.invalid_result", "step.in_doubt")
    assert odd.opened == 1


async def test_a_server_that_forgets_each_session_at_once_is_unavailable() -> None:
    odd = Odd(sessions=True)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        forgotten = odd.__class__.__call__

        def forgetful(received: Received) -> Reply:
            odd.forget()
            return forgotten(odd, received)

        odd.__class__ = type("Forgetful", (Odd,), {"__call__": lambda self, received: forgetful(received)})
        fault = await failure(runner, "ok", declared)
        assert (fault.code, fault.retriable) == ("mcp.unavailable", True)
    assert odd.calls == ["ok"]


async def test_simultaneous_calls_of_a_lost_session_are_made_once_in_a_new_one() -> None:
    odd = Odd(sessions=True)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        odd.forget()
        assert await asyncio.gather(*(call(runner, "ok", declared) for _ in range(8))) == ["ok"] * 8
    assert (len(odd.calls), odd.opened) == (9, 2)


async def test_a_function_described_otherwise_after_a_restart_is_not_called() -> None:
    odd = Odd(sessions=True)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        odd.forget()
        odd.tools = [{**GOOD, "description": "Sends money"}]
        fault = await failure(runner, "ok", declared)
        assert (fault.code, fault.retriable, odd.calls) == ("mcp.unavailable", True, ["ok"])


async def test_the_official_server_that_restarts_in_the_middle_is_used_at_once() -> None:
    async with runner_of() as runner:
        async with http_server(stateless=False) as first:
            declared = f"mcp: '{first.url}'"
            assert await call(runner, "add", declared, a=1, b=1) == {"sum": 2}
        async with http_server(stateless=False, port=first.port):
            assert await call(runner, "add", declared, a=2, b=2) == {"sum": 4}


async def test_the_official_server_behind_a_redirecting_framework_is_reached() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = server().streamable_http_app(stateless_http=True, streamable_http_path="/")
    outer = Starlette(routes=[Mount("/mcp", inner)])
    outer.router.lifespan_context = lambda app: inner.router.lifespan_context(inner)  # type: ignore[assignment]

    class Mounted:
        def streamable_http_app(self, **more: Any) -> Starlette:
            return outer

    async with http_server(Mounted()) as http, runner_of() as runner:  # type: ignore[arg-type]
        assert await call(runner, "add", f"mcp: '{http.url}'", a=1, b=1) == {"sum": 2}


async def test_a_redirect_within_its_origin_is_followed_and_another_is_named() -> None:
    async with serving(Odd(leads="/mcp/")) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
    async with serving(Odd(leads=" ")) as (runner, declared):
        fault = await failure(runner, "ok", declared)
        assert (fault.code, "307" in fault.message) == ("mcp.unavailable", True)
    async with serving(Odd(leads="http://elsewhere.example/mcp")) as (runner, declared):
        fault = await failure(runner, "ok", declared)
        assert fault.code == "mcp.unavailable"
        assert "http://elsewhere.example/mcp" in fault.message


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit('no module acme')",
        "print('usage: server [-h] --acme')",
        "import os; os.write(1, b'acme is missing\\n'); os.close(1); os.read(0, 1)",
    ],
)
async def test_what_a_program_printed_before_it_ended_is_in_the_log(program: str) -> None:
    declared = f"mcp: {{command: {json.dumps([sys.executable, '-c', program])}}}"
    with structlog.testing.capture_logs() as logs:
        async with runner_of() as runner:
            fault = await failure(runner, "add", declared)
    assert (fault.code, fault.retriable) == ("mcp.unavailable", True)
    assert "ended before it answered" in fault.message
    assert [("acme" in str(each["said"])) for each in logs if each["event"] == "mcp_server_ended"] == [True]


# --- tools ------------------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    return {"type": "object", "properties": {"a": nested(depth - 1)}} if depth else {}


BAD_TOOLS: list[Any] = [
    "no object",
    None,
    {},
    {"name": 7},
    {"name": "no name at all"},
    {"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"const": "x" * 10, "pattern": "a"}}}},
]
TOOLS: list[Any] = [
    {"name": "t", "inputSchema": {"type": "object", "properties": {"n": {"type": "int"}}}},
    {"name": "t", "inputSchema": {"type": "object", "properties": {"n": {"$ref": "#/definitions/Nope"}}}},
    {"name": "t", "inputSchema": {"type": "object", "properties": {"coin": {"type": "string"}, "required": ["coin"]}}},
    {"name": "t"},
    {"name": "t", "inputSchema": None},
    {"name": "t", "inputSchema": "object"},
    {"name": "t", "inputSchema": {"$schema": 4, "properties": []}},
    {"name": "t", "inputSchema": {}, "outputSchema": {"type": "array", "items": {"type": "string"}}},
    {"name": "t", "inputSchema": {}, "outputSchema": ["no schema"]},
    {"name": "t", "inputSchema": {}, "description": 7, "title": [], "annotations": "read only", "icons": 1},
    {"name": "t", "inputSchema": {"type": "object", "properties": {"a": nested(300)}}},
    {"name": "t", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer", "default": 2**63}}}},
]


@pytest.mark.parametrize("tool", [*TOOLS, *BAD_TOOLS], ids=lambda each: json.dumps(each)[:60])
async def test_a_tool_that_is_described_oddly_does_no_harm_to_the_others(tool: Any) -> None:
    odd = Odd([tool], OK)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        offered = await runner.offered("t", declared_tool(declared), from_disk=True)
        assert "t.ok" in {each.name for each in offered}
        for each in offered:
            compile_schema(each.parameters)


LISTED: list[Any] = [
    pytest.param(lambda _, number: {"tools": [GOOD], "nextCursor": str(number)}, id="begins anew"),
    pytest.param(
        lambda _, number: {"tools": [GOOD] if not number else [], "nextCursor": str(number)}, id="empty pages"
    ),
    pytest.param(
        lambda cursor, _: {"tools": [GOOD]} if cursor == "" else {"tools": [], "nextCursor": ""}, id="an empty cursor"
    ),
    *(
        pytest.param(
            lambda cursor, _, behind=behind: (
                behind if cursor == "" else {"tools": [GOOD, {"name": "a b"}], "nextCursor": ""}
            ),
            id=f"an empty cursor, and behind it {behind}",
        )
        for behind in (
            None,
            {"tools": [{**GOOD, "description": "Something else"}]},
            {"tools": "none"},
            Reply(500, b"{}"),
            Reply(400, b"no"),
            Reply(404, b""),
            Reply(200, b"<html>No</html>", type="text/html"),
        )
    ),
    {"tools": [{**GOOD, "input_schema": {}}], "next_cursor": None},
    {"tools": {"ok": {"inputSchema": {}}}},
    {"tools": [GOOD], "nextCursor": "the same again"},
    {"tools": [GOOD], "nextCursor": 7},
    {"tools": [GOOD, ["no tool"], None]},
    [GOOD],
]


@pytest.mark.parametrize("listed", LISTED, ids=lambda each: json.dumps(each)[-40:])
async def test_functions_that_are_listed_oddly_are_called(listed: Any) -> None:
    class Listing(Odd):
        pages = 0

        def __call__(self, received: Received) -> Reply:
            asked = json.loads(received.body) if received.body else {}
            if asked.get("method") != "tools/list":
                return super().__call__(received)
            page = listed((asked.get("params") or {}).get("cursor"), self.pages) if callable(listed) else listed
            self.pages += 1
            if page is None:
                return super().__call__(Received("POST", "", {}, received.body.replace(b"tools/list", b"no")))
            return page if isinstance(page, Reply) else self._reply(asked["id"], page)

    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(15), serving(Listing()) as (runner, declared):
            assert await call(runner, "ok", declared) == "ok"
            (connection,) = runner._connections.values()
            left_out = connection._tools.left_out if connection._tools else {}
    assert {each["name"] for each in logs if each["event"] == "mcp_function_left_out"} == left_out.keys()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda each: json.dumps(each)[:60])
async def test_a_tool_whose_schema_is_of_another_time_or_none_is_called(tool: Any) -> None:
    result = {"content": [], "structuredContent": ["a"]} if "outputSchema" in tool else OK
    odd = Odd([tool], result)
    async with serving(odd) as (runner, declared):
        arguments: dict[str, Any] = {"coin": "x"} if "coin" in json.dumps(tool) else {}
        assert await call(runner, "t", declared, **arguments) == (["a"] if "outputSchema" in tool else "ok")


async def test_a_left_out_tool_is_named_at_publication_in_the_log_and_to_callers() -> None:
    twice = [{**GOOD, "name": "twice"}, {**GOOD, "name": "twice", "description": "Something else"}]
    async with serving(Odd([*twice, {"name": "a b"}])) as (runner, declared):
        source = f"hai: flow/v1\nname: s\nversion: 1\ntools: {{t: {{{declared}}}}}\n"
        source += "steps: [{call: t.ok}, {call: t.twice}]\n"
        with structlog.testing.capture_logs() as logs:
            looked = await runner.look(compile_workflow(source.encode()))
            await runner.look(compile_workflow(source.encode()))
            (connection,) = runner._connections.values()
            connection._tools = None
            await runner.look(compile_workflow(source.encode()))
        told = [message for _, message in looked.doubts]
        assert any("`twice`" in each and "two functions of this name" in each for each in told)
        assert any("a b" in each and "can't be used" in each for each in told)
        assert sorted(each["name"] for each in logs if each["event"] == "mcp_function_left_out") == ["'a b'", "twice"]
        assert "two functions of this name" in (await failure(runner, "twice", declared)).message


async def test_a_function_that_is_newer_than_the_listing_is_called() -> None:
    odd = Odd()
    async with serving(odd) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        odd.tools = [GOOD, {**GOOD, "name": "newer"}]
        assert await call(runner, "newer", declared) == "ok"
        assert "no function `never`" in (await failure(runner, "never", declared)).message


async def test_a_publication_remembers_the_functions_as_the_server_has_them_now() -> None:
    source = "hai: flow/v1\nname: s\nversion: 1\ntools: {{t: {{{}}}}}\nsteps: [{{call: t.ok}}, {{call: t.newer}}]\n"
    odd = Odd()
    async with serving(odd) as (runner, declared):
        plan = compile_workflow(source.format(declared).encode())
        before = await runner.look(plan)
        odd.tools = [{**GOOD, "description": "Says ok, loudly"}, {**GOOD, "name": "newer"}]
        now = await runner.look(plan)
    assert len(before.doubts) == 1
    assert now.doubts == []
    assert now.pins["t.ok"] != before.pins["t.ok"]


async def test_a_function_that_is_listed_twice_in_the_same_words_is_one() -> None:
    async with serving(Odd([GOOD])) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"


@pytest.mark.parametrize(
    ("old", "fits", "does_not"),
    [
        ({"type": "int"}, 1, "a"),
        ({"type": ["str", "null"]}, None, 1),
        ({"type": "any"}, [1], ...),
        ({"type": ["string", "any"]}, 1, ...),
        ({"type": "integer", "nullable": True}, None, "a"),
        ({"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"maximum": 1, "exclusiveMaximum": False}, 1, 2),
        ({"exclusiveMinimum": 1}, 2, 1),
        ({"$ref": "#/definitions/N", "definitions": {"N": {"type": "string"}}}, "a", 1),
        ({"$ref": "#/definitions/Nope"}, 1, ...),
        ({"$ref": "https://example.com/schema"}, 1, ...),
        ({"items": [{"type": "string"}], "additionalItems": {"type": "integer"}}, ["a", 1], ["a", "b"]),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", "b"]),
        ({"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"dependencies": {"a": {"required": ["b"]}}}, {"b": 1}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"a": "x"}, {}),
        ({"properties": {"a": {}, "required": ["a"]}}, {"a": 1}, {}),
        ({"required": "a"}, {}, ...),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, 7, "a"),
        ({"enum": [2**60, 2]}, str(2**60), ...),
        ({"const": 2**60}, 7, ...),
        ({"maxLength": 10**30, "default": 2**60, "examples": [2**60], "description": "a\0"}, "x", ...),
        ({"enum": []}, 1, ...),
        ({"pattern": "(?<bad"}, "x", ...),
        ({"minLength": "3", "maxItems": -1, "multipleOf": 0, "uniqueItems": "yes"}, "x", ...),
        ({"allOf": [], "anyOf": "x", "properties": None, "additionalProperties": None}, 1, ...),
        ({"id": "urn:x", "$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}, {}, 1),
    ],
)
def test_a_schema_of_another_time_means_what_it_meant(old: Any, fits: Any, does_not: Any) -> None:
    schema = compile_schema(
        {"properties": {"v": old}, **{key: each for key, each in old.items() if key == "definitions"}}
    )
    assert schema.findings({"v": fits}) == []
    if does_not is not ...:
        assert schema.findings({"v": does_not}) != []


TIMES: Final = {
    "type": "object",
    "properties": {
        "at": {"type": "string", "format": "date-time"},
        "from": {"type": "string", "format": "time"},
        "mail": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]},
    },
}


async def test_a_format_is_an_annotation_of_a_server() -> None:
    """Python writes times without a zone as they are, and many services an empty text where they have nothing."""
    given = {"at": "2026-01-02T03:04:05", "from": "03:04:05", "mail": ""}
    tool = {**GOOD, "name": "t", "inputSchema": TIMES, "outputSchema": TIMES}
    async with serving(Odd([tool], {"content": [], "structuredContent": given})) as (runner, declared):
        assert await call(runner, "t", declared, **given) == given
        assert "not of type" in (await failure(runner, "t", declared, at=5)).message
        tool = cast(McpTool, step_of("t.t", declared).verb.tool)  # type: ignore[union-attr]
        shelf = ToolShelf([each for each in await runner.offered("t", tool, from_disk=True) if each.name == "t.t"])
    assert shelf.schemas()["t_t"].findings(given) == []
    assert shelf.tools[0].schema["properties"] == TIMES["properties"]
    large = {**given, "rest": ["x"] * 20_000, "at": 5}
    assert [each["path"] for each in compile_schema(TIMES).findings(large)] == ["/at"]


def test_a_schema_of_today_stays_as_it_is() -> None:
    today = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "prefixItems": [{"const": 1}], "items": False},
            "b": {"$ref": "#/$defs/B"},
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"B": {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}], "default": None}},
    }
    assert read_schema(today) == today


@pytest.mark.parametrize("index", ["9" * 5000, "٣", "01"])
def test_a_reference_to_a_position_that_is_no_number_leads_nowhere(index: str) -> None:
    assert read_schema({"$ref": f"#/anyOf/{index}", "anyOf": [True, True, True, True]}) == {"anyOf": [True] * 4}


def test_a_hint_that_can_not_be_read_is_no_hint() -> None:
    tool = read_tool({**GOOD, "annotations": {"readOnlyHint": "certainly not"}})
    assert not isinstance(tool, str)
    assert tool.annotations is None


# --- results ----------------------------------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "made it"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ({"structuredContent": {"x": 1}}, {"x": 1}),
        ({"structured_content": {"x": 1}, "is_error": False}, {"x": 1}),
        ({}, ""),
        ({"toolResult": {"x": 1}}, {"x": 1}),
        ({"order": 7, "_meta": {}}, {"order": 7}),
        *(
            (each, each)
            for each in ({"task": {"id": 7, "status": "open"}}, {"task": {"taskId": 7, "status": "working"}})
        ),
        ({"content": None}, ""),
        ({"content": "made it"}, "made it"),
        ("made it", "made it"),
        (["made it", 7], ["made it", 7]),
        ([TEXT, TEXT], "made it\nmade it"),
        ({"content": TEXT}, "made it"),
        ({"content": ["made it"]}, "made it"),
        ({"content": [TEXT, {"type": "json", "json": {"a": 1}}]}, 'made it\n{"type": "json", "json": {"a": 1}}'),
        ({"content": [TEXT, 7]}, "made it\n7"),
        ({"content": [{**TEXT, "annotations": {"priority": "high", "audience": "me"}}]}, "made it"),
        ({"content": [{"type": "text", "text": {"a": 1}}]}, '{"type": "text", "text": {"a": 1}}'),
        ({"content": [TEXT], "structuredContent": [1]}, [1]),
        ({"content": [TEXT], "isError": "no"}, "made it"),
        ({"content": [TEXT], "structuredContent": {"id": 1234567890123456789}}, {"id": "1234567890123456789"}),
        ({"content": [TEXT], "_meta": "odd", "more": 1}, "made it"),
        (
            {"content": [TEXT, {"type": "image", "data": "%no%", "mimeType": "image/png"}]},
            'made it\n{"type": "image", "data": "%no%", "mimeType": "image/png"}',
        ),
        (
            {"content": [TEXT, {"type": "resource", "resource": {"uri": "a:b", "blob": 7}}]},
            'made it\n{"type": "resource", "resource": {"uri": "a:b", "blob": 7}}',
        ),
    ],
    ids=lambda each: json.dumps(each)[:60],
)
async def test_a_result_with_an_odd_part_keeps_the_good_ones_and_is_not_redone(result: Any, output: Any) -> None:
    odd = Odd([{**GOOD, "name": "t"}], result)
    async with serving(odd) as (runner, declared):
        assert await call(runner, "t", declared) == output
    assert odd.calls == ["t"]


@pytest.mark.parametrize("name", ["isError", "is_error"])
@pytest.mark.parametrize("says", ["true", "True", 1])
@pytest.mark.parametrize("result", [{"content": [TEXT]}, {"message": "made it"}])
async def test_a_result_that_says_in_any_form_that_it_failed_is_a_failure(says: Any, result: Any, name: str) -> None:
    async with serving(Odd([{**GOOD, "name": "t"}], {**result, name: says})) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, "made it" in fault.message) == ("tool.failed", True)


async def test_a_picture_without_its_type_is_one_by_its_first_bytes() -> None:
    odd = Odd([{**GOOD, "name": "t"}], {"content": [TEXT, {"type": "image", "data": PNG}]})
    async with serving(odd) as (runner, declared):
        output = await call(runner, "t", declared)
    assert output[1]["source"]["mimeType"] == "image/png"


@pytest.mark.parametrize(
    "written", [PNG[:20] + "\r\n" + PNG[20:], f"data:image/png;base64,{PNG}", PNG.rstrip("="), PNG.replace("+", "-")]
)
async def test_base64_that_is_written_otherwise_is_read(written: str) -> None:
    part = {"type": "image", "data": written, "mimeType": "image/png"}
    async with serving(Odd([{**GOOD, "name": "t"}], {"content": [TEXT, part]})) as (runner, declared):
        output = await call(runner, "t", declared)
    assert output[1]["source"]["value"] == PNG


async def test_what_is_nested_too_deeply_is_its_json_text_and_the_rest_stays() -> None:
    odd = Odd([{**GOOD, "name": "t"}], {"content": [TEXT], "structuredContent": {"a": nested(300), "b": 1}})
    async with serving(odd) as (runner, declared):
        output = await call(runner, "t", declared)
    assert output["b"] == 1
    assert odd.calls == ["t"]


async def test_an_unreadable_answer_is_in_the_errors_data_and_a_bom_is_not() -> None:
    odd = Odd([{**GOOD, "name": "t"}], 1234567)
    async with serving(odd) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, "1234567" in fault.data["text"]) == ("tool.invalid_result", True)
    marked = Odd()
    answered = marked._reply

    def reply(*given: Any) -> Reply:
        plain = answered(*given)
        return Reply(body=b"\xef\xbb\xbf" + plain.body, headers=plain.headers)

    marked._reply = reply  # type: ignore[method-assign]
    async with serving(marked) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"


NOTE = {"uri": "notes://today", "text": "hi", "mimeType": "text/plain"}


@pytest.mark.parametrize("read", [{"contents": [NOTE]}, {"contents": NOTE}, [NOTE]], ids=json.dumps)
async def test_a_resource_is_read_in_any_of_its_forms(read: Any) -> None:
    class Reading(Odd):
        def __call__(self, received: Received) -> Reply:
            asked = json.loads(received.body) if received.body else {}
            return (
                self._reply(asked["id"], read)
                if asked.get("method") == "resources/read"
                else super().__call__(received)
            )

    link = {"type": "resource_link", "uri": "notes://today", "name": "today"}
    kept = Kept()
    async with serving(Reading([{**GOOD, "name": "t"}], {"content": [link]})) as (runner, declared):
        await call(runner, "t", declared, files=kept)
    assert kept.stored == [(b"hi", "text/plain", "today")]


NUMBER = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize("text", ['{"x": 1}', '\ufeff{"x": 1}', '{"x": 1234567890123456789}'])
async def test_a_text_that_is_the_structured_content_counts_as_it(text: str) -> None:
    odd = Odd([{**GOOD, "name": "t", "outputSchema": NUMBER}], {"content": [{"type": "text", "text": text}]})
    async with serving(odd) as (runner, declared):
        x = (await call(runner, "t", declared))["x"]
        assert str(x) == text.strip('\ufeff{"x: }')
    odd = Odd([{**GOOD, "name": "t", "outputSchema": NUMBER}], {"content": [], "structuredContent": text})
    async with serving(odd) as (runner, declared):
        assert str((await call(runner, "t", declared))["x"]) == text.strip('\ufeff{"x: }')


@pytest.mark.parametrize(
    "result",
    [
        {"x": 1},
        {"content": [{"type": "text", "text": '{"x": 1}'}], "structuredContent": {}},
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": '{"x": 1}'}}]},
    ],
)
async def test_what_fits_the_declared_schema_counts_wherever_it_stands(result: Any) -> None:
    async with serving(Odd([{**GOOD, "name": "t", "outputSchema": NUMBER}], result)) as (runner, declared):
        assert await call(runner, "t", declared) == {"x": 1}


async def test_a_result_unlike_its_declaration_shows_missing_and_received_parts() -> None:
    odd = Odd([{**GOOD, "name": "t", "outputSchema": NUMBER}], OK)
    async with serving(odd) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert fault.code == "tool.invalid_result"
    assert "structuredContent" in fault.message
    assert fault.data == {"text": '"ok"'}


async def test_big_integers_are_refused_or_sent_as_author_and_server_say() -> None:
    tool = {"name": "t", "inputSchema": {"properties": {"id": {"type": "integer"}}}}
    odd = Odd([tool], {"content": [], "structuredContent": {"id": 1234567890123456789}})
    async with serving(odd) as (runner, declared):
        assert await call(runner, "t", declared, id="1234567890123456789") == {"id": "1234567890123456789"}
        fault = await failure(runner, "t", f"{declared}, big_integers: refuse")
        assert (fault.code, "1234567890123456789" in fault.data["text"]) == ("tool.invalid_result", True)


# --- messages -------

TOLD = '{"content": [{"type": "text", "text": "paid"}]}'
PAID = f'{{"jsonrpc": "2.0", "id": ID, "result": {TOLD}}}'
OTHER = PAID.replace("ID", '"other"')
NOTICE = '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "paying"}}'
PRETTY = json.dumps({"id": 0, "result": json.loads(TOLD), "jsonrpc": "2.0"}, indent=2).replace('"id": 0', '"id": ID')
EVERY: tuple[Way, ...] = ("stdio", "json", "events")
ERROR = '{"code": -32000, "message": "no money"}'
FORMS: list[tuple[str, tuple[Way, ...], str]] = [  # of an answer, the ways by which it comes so, what is made of it
    (PAID, EVERY, "paid"),
    (f"[{PAID}]", EVERY, "paid"),
    (f"[{NOTICE}, {PAID}, {OTHER}]", EVERY, "paid"),
    (f"[\n  {NOTICE},\n  {PAID}\n]", ("stdio", "json"), "paid"),
    (f"[\n  {PAID},\n  {NOTICE}\n]", ("stdio", "json"), "paid"),
    (PRETTY, ("stdio", "json"), "paid"),
    (PRETTY.replace("\n", "\r\n"), ("stdio", "json"), "paid"),
    (f"{{\n{PAID}", ("stdio",), "paid"),
    *(
        (f'{{"id": {id}, "result": {TOLD}, "error": "no"}}\n{PAID}', ("stdio",), "paid")
        for id in ("[1]", "true", "1.5", "{}", '"other"')
    ),
    (f"[1 of 3]\n[\n{PAID}", ("stdio",), "paid"),
    ('{"id": ID, "result": ' + TOLD + "}", EVERY, "paid"),
    ('{"jsonrpc": 2.0, "id": ID, "result": ' + TOLD + "}", EVERY, "paid"),
    ('{"jsonrpc": "2.0", "id": ID, "result": ' + TOLD + ', "error": null}', EVERY, "paid"),
    ('{"jsonrpc": "2.0", "id": ID, "result": ' + TOLD + ', "error": ""}', EVERY, "paid"),
    ('{"jsonrpc": "2.0", "id": ID, "error": ' + ERROR + ', "result": null}', EVERY, "tool.failed: no money"),
    ('{"jsonrpc": "2.0", "id": ID, "error": "no money"}', EVERY, "tool.failed: no money"),
    *(
        (f'{{"jsonrpc": "2.0", "id": ID, "error": {ERROR[:-1]}, "data": {data}}}}}', EVERY, "tool.failed: no money")
        for data in ("7", "true", "1.5", '"no"', "[7]", "null")
    ),
    (
        '{"jsonrpc": "2.0", "id": ID, "error": {"code": -32603, "message": "boom", "data": {"why": "no money"}}}',
        EVERY,
        "tool.failed: no money",
    ),
    ('{"jsonrpc": "2.0", "id": ID, "error": {"code": "E7", "message": "no money"}}', EVERY, "tool.failed: no money"),
    ('{"jsonrpc": "2.0", "id": ID, "result": ' + TOLD + ', "error": ' + ERROR + "}", EVERY, "step.in_doubt: no money"),
    ('{"jsonrpc": "2.0", "id": ID, "result": ' + TOLD + ', "error": "no"}', EVERY, "step.in_doubt: paid"),
    ('{"jsonrpc": "2.0", "id": ID, "result": "paid", "error": "no"}', EVERY, "step.in_doubt: paid"),
    ('{"jsonrpc": "2.0", "id": null, "error": ' + ERROR + "}", ("stdio",), "step.in_doubt: no money"),
    *((each, ("open",), "paid") for each in (OTHER, PAID)),
    (f"[{OTHER}, {OTHER}]", ("json",), "step.in_doubt: paid"),
    (f"[{PAID}, {PAID.replace('paid', 'not')}]", ("json",), "step.in_doubt: paid"),
    ('{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"text": "pai', EVERY, "step.in_doubt: pai"),
    ('{"jsonrpc": "2.0", "id": ID, "result": {"content": [', ("json", "events"), "step.in_doubt: content"),
    ('{"jsonrpc": "2.0", "id": ID, "result": {"content": [\n' + OTHER, ("stdio",), "step.in_doubt: content"),
    ('[{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"text": "pai', ("json",), "step.in_doubt: pai"),
    ("", ("json",), "step.in_doubt: breaks off"),
    ('{"jsonrpc": "2.0", "id": ID, "result": 7}', EVERY, "tool.invalid_result: can't be read"),
    # what stands in the place of the result's object
    ('{"jsonrpc": "2.0", "id": ID, "result": "paid"}', EVERY, "paid"),
    ('{"jsonrpc": "2.0", "id": ID, "result": [{"type": "text", "text": "paid"}]}', EVERY, "paid"),
    ('{"jsonrpc": "2.0", "id": ID, "result": [{"type": "text"}], "error": "no"}', EVERY, "step.in_doubt: no"),
    # something around it
    (f'Warning: Undefined array key "x" in /srv/a.php on line 7\n{PAID}', ("stdio", "json"), "paid"),
    (f"<br /><b>Notice</b>: it's deprecated {{}} <br />{PAID}", ("json", "events"), "paid"),
    (f")]}}',\n{PAID}", ("stdio", "json"), "paid"),
    (f"while(1);{PAID}", ("json", "events"), "paid"),
    (f"callback({PAID});", ("json", "events"), "paid"),
    (f"\x1b[0m\x1e{PAID}", EVERY, "paid"),
    (f"> {PAID}", EVERY, "paid"),
    (f"```json\n{PAID}\n```", ("stdio", "json"), "paid"),
    (f"Content-Length: 90\r\n\r\n{PAID}Content-Length: 90\r\n", ("stdio", "json"), "paid"),
    *((f"{PAID}{behind}", EVERY, "paid") for behind in (",", ";", "}", "OK", "\0", "<!-- 0.2 s -->")),
    (PAID.replace("]}}", ",],},}").replace('"paid"', '"paid",'), EVERY, "paid"),
    (PAID.replace('"paid"', '"paid"' + "," * 3000), EVERY, "paid"),
    # several, as lines or without a line between them
    (f"{NOTICE}\n{PAID}\n{NOTICE}\n", ("stdio", "json"), "paid"),
    (f"{NOTICE}{PAID}{NOTICE}", ("json", "events"), "paid"),
    (f"{PAID}\n{PAID}", ("stdio", "json"), "paid"),
    (f'{{"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": {{}}}}\n{PAID}', ("stdio", "json"), "paid"),
    (f"{PAID}\n{PAID.replace('paid', 'not')}", ("json",), "step.in_doubt: paid"),
    (f"Warning: no cache\n{PAID[:-3]}", ("json",), "step.in_doubt: no cache"),
    (f"Warning: no cache\n{PAID.replace(TOLD, PAID)[:-1]}", ("json",), "step.in_doubt: no cache"),
    # encoded twice
    (json.dumps(PAID), EVERY, "paid"),
    (json.dumps(PAID[:-3]), ("json",), "step.in_doubt: breaks off"),
    # without its id
    *((PAID.replace('"id": ID', id), ("json", "events"), "paid") for id in ('"id": null', '"x": 1')),
    *((PAID.replace('"id": ID', id), ("stdio",), "step.in_doubt: paid") for id in ('"id": null', '"x": 1')),
    *(
        (f"{PAID.replace('ID', 'null').replace('paid', 'not')}\n{each}{PAID}", ("stdio",), "paid")
        for each in ("", f"{NOTICE}\n")
    ),
    ('{"jsonrpc": "2.0", "id": null, "error": ' + ERROR + "}\n" + PAID, ("stdio",), "paid"),
    (PAID.replace("ID", '"ID"'), EVERY, "paid"),
    # words that are no message
    *((words, ("events",), f"step.in_doubt: {words}") for words in ("no money", '{"error": "no money"}')),
]


@pytest.mark.parametrize(
    ("answer", "way", "outcome"),
    [(answer, way, outcome) for answer, ways, outcome in FORMS for way in ways],
    ids=lambda each: each[-60:],
)
async def test_an_answer_in_another_form_is_read_and_one_in_part_is_a_doubt(
    answer: str, way: Way, outcome: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_http, "_SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(mcp_taps, "_DOUBT_SECONDS", 0.1)
    async with asking(tmp_path, Script(answers=(answer,)), way) as runner:
        if outcome == "paid":
            assert await call(runner, "add", "mcp: {use: files}") == outcome
            return
        fault = await failure(runner, "add", "mcp: {use: files}")
    code, _, words = outcome.partition(": ")
    assert (fault.code, words in fault.message) == (code, True), fault.message


@pytest.mark.parametrize("way", EVERY)
async def test_a_result_of_the_newest_revision_without_its_type_is_read(way: Way, tmp_path: Any) -> None:
    async with asking(tmp_path, Script(answers=(PAID,), modern=True), way) as runner:
        assert await call(runner, "add", "mcp: {use: files}") == "paid"


STRANGE = PAID.replace("ID", '"strange"').replace("paid", "strange")
REFUSED = '{"jsonrpc": "2.0", "id": "strange", "error": ' + ERROR + "}"


@pytest.mark.parametrize("way", ["stdio", "events", "open", "resumed"])
@pytest.mark.parametrize("answers", [(STRANGE, PAID), (REFUSED, PAID), (PAID, STRANGE)])
async def test_the_answer_by_its_id_goes_before_another(answers: tuple[str, ...], way: Way, tmp_path: Any) -> None:
    async with asking(tmp_path, Script(answers=answers), way) as runner:
        assert await call(runner, "add", "mcp: {use: files}") == "paid"


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-8-sig"])
@pytest.mark.parametrize("way", EVERY)
async def test_a_server_that_writes_utf_16_or_utf_32_is_read(charset: str, way: Way, tmp_path: Any) -> None:
    answer = PAID.replace("paid", "paid 你好")
    async with asking(tmp_path, Script(answers=(answer,), charset=charset), way) as runner:
        assert await call(runner, "add", "mcp: {use: files}") == "paid 你好"


@asynccontextmanager
async def asking(folder: Any, script: Script, way: Way) -> AsyncIterator[McpRunner]:
    async with asyncio.timeout(15), lines(folder, script, way) as file, runner_of(file.read_text()) as runner:
        yield runner


# --- questions --------------------------------------------------------------------------------------------------------

CALLING = "tools: {t: {mcp: {use: files}}}\nsteps: [{id: a, call: t.add}]\noutput: ${{ steps.a.output }}\n"


@pytest.mark.parametrize("effect", ["write", "read"])
async def test_a_server_with_result_and_question_is_in_doubt_and_not_recalled(
    effect: str, make: Make, tmp_path: Any
) -> None:
    script = Script(questions=("How much?",), goes_on=True)
    body = CALLING.replace("{mcp:", f"{{effect: {effect}, mcp:")
    async with lines(tmp_path, script) as file:
        runtime = await make(performs=True, mcp=file)
        run_id = (await start(runtime, body)).run_id
        await until(partial(is_now, runtime, run_id, "waiting"))
        (pending,) = (await state_of(runtime, run_id)).pendings.values()
        await runtime.stop()
    assert (pending.opened.kind == "ask") is (effect == "read"), pending.opened
    if effect == "write":
        assert "happened" in json.dumps(pending.opened.options)


TASK = {"taskId": "t1", "status": "working", "ttl": None, "createdAt": "2026-11-29T00:00:00Z"}


@pytest.mark.parametrize(
    ("task", "id"),
    [({"resultType": "task", **TASK}, "t1"), ({"task": TASK}, "t1"), ({"resultType": "task"}, "without an id")],
)
async def test_a_task_in_place_of_the_result_is_a_doubt(task: Any, id: str) -> None:
    async with serving(Odd([{**GOOD, "name": "t"}], task)) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (type(fault), f"its task {id}" in fault.message) == (OutcomeLost, True)


async def test_a_question_and_a_result_in_one_answer_are_a_doubt() -> None:
    form = {"mode": "form", "message": "How?", "requestedSchema": {"type": "object", "properties": {}}}
    both = {
        **OK,
        "resultType": "input_required",
        "inputRequests": {"k": {"method": "elicitation/create", "params": form}},
    }
    odd = Odd([{**GOOD, "name": "t"}], both)
    async with serving(odd) as (runner, declared):
        assert isinstance(await failure(runner, "t", declared), OutcomeLost)
    assert odd.calls == ["t"]


def test_numbers_that_python_can_not_hold_are_read_as_they_are_written() -> None:
    digits, text = "9" * 5000, f'"1e400 {"9" * 5000} \\"1e999"'
    odd = "1e400, -1.5E+999, NaN, -Infinity, 1e-400, 7"
    raw = f'{{"jsonrpc": "2.0", "id": 1, "result": {{"a": {digits}, "b": [{odd}], "c": {text}}}}}'
    message = read_message(raw.encode())
    assert message is not None
    assert isinstance(message.message, JSONRPCResponse)
    result = message.message.result
    assert list_notes(result.pop("_meta")) == tuple(
        f"/b/{n}: a number that JSON can't carry is kept as text" for n in range(4)
    )
    assert result == {"a": digits, "b": ["1e400", "-1.5E+999", "NaN", "-Infinity", 0.0, 7], "c": json.loads(text)}


@pytest.mark.parametrize("odd", ["", "NaN, ", "7,, "], ids=repr)
def test_a_broken_answer_full_of_quotes_is_looked_through_once(odd: str) -> None:
    began = time.process_time()
    read = read_message(f'{{"jsonrpc": "2.0", "id": 1, "result": [{odd}"{QUOTES}'.encode())
    assert time.process_time() - began < 2
    assert read is not None
    assert isinstance(read.message, JSONRPCError)
    assert read.message.error.message == "its answer breaks off"


QUOTES: Final = '\\"' * 20_000


@pytest.mark.parametrize("way", EVERY)
async def test_a_number_that_json_has_not_is_its_word_by_every_way(way: Way, tmp_path: Any) -> None:
    odd = '{"jsonrpc": "2.0", "id": ID, "result": {"structuredContent": {"a": NaN, "b": [-Infinity]}}}'
    async with asking(tmp_path, Script(answers=(odd,)), way) as runner:
        assert await call(runner, "add", "mcp: {use: files}") == {"a": "NaN", "b": ["-Infinity"]}


CHANGED = '{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}'
FURTHER = '{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "no", "progress": 1}}'


@pytest.mark.parametrize("way", ["stdio", "events"])
async def test_a_storm_of_notifications_about_other_things_holds_up_no_call(way: Way, tmp_path: Any) -> None:
    async with asking(tmp_path, Script(answers=(*(CHANGED, FURTHER) * 500, PAID)), way) as runner:
        for _ in range(3):
            assert await call(runner, "add", "mcp: {use: files}", stream=True) == ("paid", "", [])
