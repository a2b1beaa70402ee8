"""Servers of MCP that give the result of a call with the status of an error: the call was performed, and once."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.foreign.test_mcp import OK, Odd, serving
from tests.steps.test_mcp import call, failure
from tests.support.service import Received, Reply

TOOL: Final = {"name": "t", "description": "Pays", "inputSchema": {"type": "object"}}
BAD: Final = {"isError": True, "content": [{"type": "text", "text": "there is no order 7"}]}
STATUSES: Final = [400, 403, 404, 409, 410, 422, 429, 500, 503]


class Failing(Odd):
    """A server that answers one method with this status, though in the form of a result."""

    def __init__(self, status: int, method: str, result: Any = OK, *, sessions: bool, events: bool = False) -> None:
        super().__init__([TOOL], result, sessions=sessions)
        self._status, self._method, self._events = status, method, events

    def __call__(self, received: Received) -> Reply:
        reply = super().__call__(received)
        if not received.body or json.loads(received.body).get("method") != self._method:
            return reply
        if self._events:
            return Reply(self._status, b"data: " + reply.body + b"\n\n", "text/event-stream")
        return Reply(self._status, reply.body, headers=reply.headers)


@pytest.mark.parametrize("events", [False, True], ids=["json", "events"])
@pytest.mark.parametrize("sessions", [False, True], ids=["stateless", "sessions"])
@pytest.mark.parametrize("status", STATUSES)
async def test_a_failure_of_a_function_with_a_status_of_http_is_that_failure(
    status: int, sessions: bool, events: bool
) -> None:
    failing = Failing(status, "tools/call", BAD, sessions=sessions, events=events)
    async with serving(failing) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, "there is no order 7" in fault.message) == ("tool.failed", True)
    assert (failing.calls, failing.opened) == (["t"], 1)


@pytest.mark.parametrize("events", [False, True], ids=["json", "events"])
@pytest.mark.parametrize("sessions", [False, True], ids=["stateless", "sessions"])
@pytest.mark.parametrize("status", STATUSES)
async def test_a_result_with_the_status_of_an_error_is_a_doubt_and_not_redone(
    status: int, sessions: bool, events: bool
) -> None:
    failing = Failing(status, "tools/call", sessions=sessions, events=events)
    async with serving(failing) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert fault.code == "step.in_doubt"
    assert f"it answers {status}, and with a result at once" in fault.message
    assert '"ok"' in fault.message
    assert (failing.calls, failing.opened) == (["t"], 1)


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
@pytest.mark.parametrize("status", STATUSES)
async def test_what_a_server_says_of_itself_counts_with_any_status(status: int, method: str) -> None:
    failing = Failing(status, method, sessions=False)
    async with serving(failing) as (runner, declared):
        assert await call(runner, "t", declared) == "ok"
    assert failing.calls == ["t"]


class Answering(Odd):
    """A server that answers each call by a reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__([TOOL])
        self._answer = reply

    def __call__(self, received: Received) -> Reply:
        if b'"tools/call"' not in received.body:
            return super().__call__(received)
        self.calls.append("t")
        return self._answer


@pytest.mark.parametrize(
    ("status", "place", "code", "words"),
    [
        (303, "/result", "step.in_doubt", "told elsewhere"),
        (303, "", "step.in_doubt", "no address to go to"),
        (307, "/mcp", "mcp.unavailable", "no address to go to"),
        (307, "javascript:x", "mcp.unavailable", "no address to go to"),
        (302, "/login", "tool.failed", "/login"),
    ],
)
async def test_a_call_that_is_led_elsewhere_is_made_once(status: int, place: str, code: str, words: str) -> None:
    answering = Answering(Reply(status, headers=(("Location", place),) if place else ()))
    async with serving(answering) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, words in fault.message, answering.calls) == (code, True, ["t"]), fault.message


class Sticky(Odd):
    """A server behind a proxy that leads to its own address with a cookie, until that comes; `forgets`: each time.
    `path`: where its cookie goes."""

    def __init__(self, *, forgets: bool = False, path: str = "/") -> None:
        super().__init__([TOOL])
        self.received: list[Received] = []
        self._forgets = forgets
        self._path = path

    def __call__(self, received: Received) -> Reply:
        self.received.append(received)
        if self._forgets or "node=1" not in received.headers.get("cookie", ""):
            return Reply(307, headers=(("Location", "/mcp"), ("Set-Cookie", f"node=1; Path={self._path}")))
        return super().__call__(received)


async def test_a_proxy_that_leads_to_itself_with_a_cookie_is_passed() -> None:
    async with serving(sticky := Sticky()) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
    assert sticky.calls == ["ok"]
    for lost in (Sticky(forgets=True), Sticky(path="/other")):
        async with serving(lost) as (runner, declared):
            fault = await failure(runner, "ok", declared)
        assert (fault.code, lost.calls, len(lost.received) <= 4) == ("mcp.unavailable", [], True), fault.message
        assert "no address to go to" in fault.message


@pytest.mark.parametrize("status", [401, 403])
async def test_what_a_server_wants_of_its_caller_is_in_the_error(status: int) -> None:
    wanted = (
        'Bearer error="insufficient_scope", scope="orders:pay", resource_metadata="https://a.example/.well-known/x"'
    )
    async with serving(Answering(Reply(status, headers=(("WWW-Authenticate", wanted),)))) as (runner, declared):
        fault = await failure(runner, "t", declared)
    assert (fault.code, wanted in fault.message) == ("mcp.unauthorized", True), fault.message
