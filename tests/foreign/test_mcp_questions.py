"""Servers of MCP 2026-07-28 that ask badly: a question that can be read is asked, and any other is an error that says
what it lacks. None is called again without an end."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from mcp.server.mcpserver import Context

from hai_flow.errors import AsksPerson
from hai_flow.steps.mcp import elicitation as mcp_asking
from hai_flow.steps.runner import Answer, Attempt
from tests.foreign.test_mcp import OK, Odd, serving
from tests.steps.test_mcp import Heard, call, failure, runner_of, step_of
from tests.support.mcp_server import HttpServer, Sure, server
from tests.support.service import Received, Reply

TOOL: Final = {"name": "t", "description": "Pays", "inputSchema": {"type": "object"}}
FORM: Final = {"type": "object", "properties": {}}
ASKED: Final = {"method": "elicitation/create", "params": {"mode": "form", "message": "Sure?", "requestedSchema": FORM}}
REQUESTS: Final = {"sure": ASKED}


class Modern(Odd):
    """A server of protocol 2026-07-28. `results` are its answers to calls of `t`, the last one to all later calls."""

    def __init__(self, *results: Any) -> None:
        super().__init__([TOOL])
        self._results = list(results)

    def __call__(self, received: Received) -> Reply:
        asked = json.loads(received.body) if received.body else {}
        if asked.get("method") == "server/discover":
            known = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            return self._reply(asked["id"], {**known, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
        if asked.get("method") == "tools/call":
            self.result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        return super().__call__(received)


READ: Final[dict[str, Any]] = {
    "as the protocol has it": {"resultType": "input_required", "inputRequests": REQUESTS},
    "the word for it is missing": {"inputRequests": REQUESTS},
    "another word for it": {"resultType": "InputRequired", "inputRequests": REQUESTS},
    "names of Python": {"result_type": "input_required", "input_requests": REQUESTS, "request_state": "s"},
    "an empty `content` beside it": {"resultType": "input_required", "inputRequests": REQUESTS, "content": []},
    "a null `content` beside it": {
        "resultType": "input_required", "inputRequests": REQUESTS, "content": None, "structuredContent": None,
    },
    "an empty state": {"resultType": "input_required", "inputRequests": REQUESTS, "requestState": ""},
    "a null state": {"resultType": "input_required", "inputRequests": REQUESTS, "requestState": None},
    "`isError` beside it": {"resultType": "input_required", "inputRequests": REQUESTS, "isError": False},
}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
async def test_a_question_in_an_odd_form_is_asked(kind: str) -> None:
    modern = Modern(READ[kind])
    async with serving(modern) as (runner, declared):
        with pytest.raises(AsksPerson, match="Sure"):
            await call(runner, "t", declared)
    assert modern.calls == ["t"]


_NOTHING: Final = "it says neither what it asks"
TOLD: Final[dict[str, tuple[Any, str]]] = {
    "no question and no state": ({"resultType": "input_required"}, _NOTHING),
    "an empty object": ({"resultType": "input_required", "inputRequests": {}}, _NOTHING),
    "an empty list": ({"resultType": "input_required", "inputRequests": []}, _NOTHING),
    "null": ({"resultType": "input_required", "inputRequests": None}, _NOTHING),
    "an empty object alone": ({"inputRequests": {}}, _NOTHING),
    "an empty state": ({"resultType": "input_required", "inputRequests": {}, "requestState": ""}, _NOTHING),
    "an empty `content`": ({"resultType": "input_required", "inputRequests": {}, "content": []}, _NOTHING),
    "a list of questions": ({"resultType": "input_required", "inputRequests": [ASKED]}, "`inputRequests` is no object"),
    "a text": ({"resultType": "input_required", "inputRequests": "Sure?"}, "`inputRequests` is no object"),
    "a state that is an object": (
        {"resultType": "input_required", "inputRequests": REQUESTS, "requestState": {"a": 1}},
        "`requestState` is no text",
    ),
    "one question without a name": (
        {"resultType": "input_required", "inputRequests": ASKED},
        "is none of the protocol",
    ),
    "a question that is null": ({"resultType": "input_required", "inputRequests": {"a": None}}, "is none of the"),
    "a question without words": (
        {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": {}}}},
        "is none of the protocol",
    ),
    "another method": (
        {"resultType": "input_required", "inputRequests": {"a": {"method": "x/ask", "params": {}}}},
        "is none of the protocol",
    ),
}


@pytest.mark.parametrize("kind", TOLD)
async def test_a_question_that_can_not_be_asked_is_told_by_what_it_lacks(kind: str) -> None:
    result, words = TOLD[kind]
    modern = Modern(result)
    async with serving(modern) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, fault.retriable) == ("tool.invalid_result", False)
    assert words in fault.message
    assert "validation error" not in fault.message
    assert set(fault.data) == {"text"}
    assert modern.calls == ["t"]


@pytest.mark.parametrize("requests", [{}, [], None])
async def test_a_server_that_only_wants_to_be_called_again_is(requests: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_asking, "_POLL_SECONDS", 0.01)
    later = {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}
    modern = Modern(later, later, OK)
    async with serving(modern) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
    assert modern.calls == ["t", "t", "t"]


@pytest.mark.parametrize("requests", [{}, None, []])
async def test_a_result_with_an_empty_member_for_questions_is_a_result(requests: Any) -> None:
    modern = Modern({"resultType": "complete", "inputRequests": requests, **OK})
    async with serving(modern) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"


_NO_CHANNEL: Final = (
    "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."
)
_FAST: Final = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
_TYPESCRIPT: Final = (
    "Server-to-client requests are not available on protocol revision 2026-07-28: 'elicitation/create' cannot be sent "
    "while serving a request on this era."
)


class AsksInSession(Modern):
    """A server whose function `t` asks within a session: by 2026-07-28 it fails there, by these words. `alone`: it
    speaks no older protocol; `before`: its description in older ones, where that is another; `always`: it fails so
    there, too."""

    def __init__(
        self,
        words: str,
        *,
        as_error: bool = False,
        alone: bool = False,
        before: str | None = None,
        always: bool = False,
    ) -> None:
        said = {"content": [{"type": "text", "text": words}], "isError": True}
        super().__init__(said)
        self._error = {"code": -32600, "message": words} if as_error else None
        self._alone, self._always, self._before = alone, always, before

    def __call__(self, received: Received) -> Reply:
        asked = json.loads(received.body) if received.body else {}
        is_modern = "io.modelcontextprotocol/protocolVersion" in (asked.get("params") or {}).get("_meta", {})
        method = asked.get("method")
        if method == "initialize" and self._alone:
            error = {"code": -32601, "message": "Method not found"}
            return Reply(body=json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode())
        if method == "tools/list" and not is_modern and self._before is not None:
            return self._reply(asked["id"], {"tools": [{**TOOL, "description": self._before}]})
        if method == "tools/call":
            self.calls.append(f"{asked['params']['name']} {'now' if is_modern else 'before'}")
            if asked["params"]["name"] == "t" and (is_modern or self._always):
                if self._error is None:
                    return self._reply(asked["id"], self._results[0])
                return Reply(body=json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": self._error}).encode())
            return self._reply(asked["id"], OK)
        return super().__call__(received)


@pytest.mark.parametrize(
    "words",
    [
        _NO_CHANNEL,
        _FAST,
        _TYPESCRIPT,
        f"Error executing tool t: {_NO_CHANNEL}",
        f"Error calling tool 't': {_NO_CHANNEL}",
    ],
)
@pytest.mark.parametrize("as_error", [True, False])
async def test_a_function_that_asks_within_a_session_is_called_in_one(words: str, *, as_error: bool) -> None:
    asking = AsksInSession(words, as_error=as_error)
    async with serving(asking) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
        assert await call(runner, "t", declared) == "ok"
        assert await call(runner, "ok", declared) == "ok"
        (connection,) = runner._connections.values()
    assert asking.calls == ["t now", "t before", "t before", "ok now"]
    assert connection._older is not None
    assert connection._older.has_ended


@pytest.mark.parametrize(
    "words",
    [
        f"Paid 5. Warning: {_NO_CHANNEL}",
        _NO_CHANNEL.replace("elicitation/create", "sampling/createMessage"),
        "Elicitation is not supported by this client",
    ],
)
async def test_a_function_that_fails_in_other_words_is_not_called_again(words: str) -> None:
    asking = AsksInSession(words)
    async with serving(asking) as (runner, declared):
        assert words in (await failure(runner, "t", declared)).message
    assert asking.calls == ["t now"]


async def test_a_function_that_asks_within_a_session_of_no_protocol_fails() -> None:
    asking = AsksInSession(_FAST, alone=True)
    async with serving(asking) as (runner, declared):
        fault = await failure(runner, "t", declared)
        assert await call(runner, "ok", declared) == "ok"
    assert (fault.code, fault.retriable) == ("mcp.unavailable", True)
    assert asking.calls == ["t now", "ok now"]


async def test_a_function_described_otherwise_in_an_older_protocol_is_not_called() -> None:
    """What was published, or approved, is the description of the newer one."""
    asking = AsksInSession(_FAST, before="Pays, and tells everybody")
    async with serving(asking) as (runner, declared):
        assert "describes t otherwise" in (await failure(runner, "t", declared)).message
    assert asking.calls == ["t now"]


async def test_a_function_that_asks_is_called_by_no_protocol_that_is_too_old() -> None:
    asking = AsksInSession(_FAST)
    async with serving(asking) as (runner, declared):
        runner._version_min = "2026-07-28"
        fault = await failure(runner, "t", declared)
    assert "HAI_FLOW_MCP_VERSION_MIN" in fault.message
    assert asking.calls == ["t now"]


async def test_a_function_that_says_in_each_protocol_that_it_can_not_ask_fails() -> None:
    asking = AsksInSession(_FAST, always=True)
    async with serving(asking) as (runner, declared):
        assert _FAST in (await failure(runner, "t", declared)).message
        (connection,) = runner._connections.values()
        older = connection._older
    assert asking.calls == ["t now", "t before"]
    assert older is not None
    assert older.has_ended
    assert older._older is None


async def test_an_official_server_that_asks_within_a_session_gets_the_answer() -> None:
    made = server()

    @made.tool(structured_output=False)
    async def pay(ctx: Context) -> str:
        given = await ctx.elicit("How much?", Sure)
        return f"{given.action} {getattr(given, 'data', None)}"

    async with HttpServer(made, stateless=False) as http, runner_of(hosts=("127.0.0.1",)) as runner:
        declared = f"mcp: '{http.url}'"
        with pytest.raises(AsksPerson, match="How much") as asked:
            await call(runner, "pay", declared)
        question = asked.value
        answer = Answer("accept", {"amount": 5}, question.state, question.keys)
        attempt = Attempt("run", "s", 2, "{}", step_of("t.pay", declared), from_disk=True, answer=answer)
        assert await runner.perform(attempt, Heard()) == "accept amount=5"
        assert await call(runner, "add", declared, a=2, b=3) == {"sum": 5}


async def test_an_answer_to_a_question_within_a_session_goes_there_at_once() -> None:
    asking = AsksInSession(_FAST)
    settled = Answer("accept", {}, json.dumps({"settled": [], "question": "d"}), (mcp_asking.IN_SESSION,))
    async with serving(asking) as (runner, declared):
        attempt = Attempt("run", "s", 2, "{}", step_of("t.t", declared), from_disk=True, answer=settled)
        assert await runner.perform(attempt, Heard()) == "ok"
    assert asking.calls == ["t before"]


async def test_a_function_that_asks_within_a_session_may_be_described_anew() -> None:
    asking = AsksInSession(_FAST)
    async with serving(asking) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
        asking.tools = [{**TOOL, "description": "Pays more"}]
        (connection,) = runner._connections.values()
        connection.forget_tools()  # as a publication does
        assert await call(runner, "t", declared) == "ok"
