"""Servers that say nothing, at any point of an exchange: every wait for them has an end, and an error that says so."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import Response
from fastapi.responses import StreamingResponse

from hai_flow.runtime.ops.verify import Verifying, verify
from hai_flow.steps.mcp import http as mcp_http
from tests.foreign.test_fastapi import JSON
from tests.foreign.test_fastapi import serving as serving_framework
from tests.foreign.test_mcp import GOOD, Odd, serving
from tests.runtime.conftest import Connection, Make, is_now, start, state_of
from tests.runtime.conftest import eye as eye
from tests.runtime.conftest import make as make
from tests.steps.test_mcp import call
from tests.support.service import Received, Reply, Service
from tests.support.values import require
from tests.support.waiting import until


async def _say_nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


class Silent(Odd):
    """A server with sessions that does not end its answers to one kind of request: `DELETE`, or notifications."""

    def __init__(self, silent_at: str) -> None:
        super().__init__(sessions=True)
        self.silent_at = silent_at
        self.silences = 0

    def __call__(self, received: Received) -> Reply:
        asked = json.loads(received.body) if received.body else {}
        is_notified = received.method == "POST" and "id" not in asked
        if self.silent_at == (
            received.method if received.method == "DELETE" else "notification" if is_notified else ""
        ):
            self.silences += 1
            return Reply(pieces=_say_nothing())
        return super().__call__(received)


async def test_a_session_is_left_though_its_server_does_not_answer_the_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_http, "LEAVE_SECONDS", 0.05)
    silent = Silent("DELETE")
    async with serving(silent) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
        (connection,) = runner._connections.values()
        connection.drop()
        await until(lambda: connection.has_ended)
        assert await call(runner, "ok", declared) == "ok"
    assert silent.silences >= 1


async def test_a_notification_that_the_server_does_not_answer_holds_up_no_call(monkeypatch: Any) -> None:
    monkeypatch.setattr(mcp_http, "NOTIFY_SECONDS", 0.05)
    silent = Silent("notification")
    async with serving(silent) as (runner, declared):
        assert await call(runner, "ok", declared) == "ok"
    assert (silent.silences >= 1, silent.calls) == (True, ["ok"])


@pytest.mark.parametrize(
    ("method", "accept", "is_bounded"),
    [("GET", "text/event-stream", False), ("GET", "*/*", True), ("POST", "*/*", True), ("DELETE", "*/*", True)],
)
async def test_only_calls_and_the_stream_of_a_servers_own_messages_last(
    method: str, accept: str, is_bounded: bool
) -> None:
    request = httpx2.Request(method, "http://erp.test/mcp", headers={"accept": accept})
    assert (mcp_http._find_limit(request, None) is not None) is is_bounded
    assert mcp_http._find_limit(request, 7) is None


# --- a service in another framework -----------------------------------------------------------------------------------


def _falls_silent(place: str, kind: str, over: asyncio.Event) -> Any:
    """The answers of a FastAPI application that stops at this place of each, until all is over."""

    async def stopping() -> AsyncIterator[bytes]:
        yield b"data: half\n\n" if place == "in the middle" else b""
        await over.wait()

    async def before() -> Response:
        await over.wait()
        return Response()

    async def within() -> Response:
        return StreamingResponse(stopping(), 201, {}, kind)

    return before if place == "before its head" else within


@pytest.mark.parametrize("step", ["", ", stream: text"], ids=["whole", "streamed"])
@pytest.mark.parametrize("place", ["before its head", "behind its head", "in the middle"])
async def test_a_step_left_unanswered_by_a_real_framework_ends_at_its_timeout(
    make: Make, eye: Connection, place: str, step: str
) -> None:
    over = asyncio.Event()
    async with serving_framework(_falls_silent(place, "text/event-stream" if step else JSON, over)) as url:
        runtime = await make(performs=True, http_hosts=("127.0.0.1",))
        body = f"steps:\n  - {{id: pay, http: {{post: '{url}', body: {{}}{step}}}, timeout: 1s}}\n"
        run_id = (await start(runtime, body)).run_id
        await until(lambda: is_now(runtime, run_id, "failed"))
        error = (await state_of(runtime, run_id)).error
        over.set()
    assert error is not None
    assert error.code == "step.timeout"
    received = {"status": 201, "url": url, "text": "data: half\n\n" if place == "in the middle" else ""}
    assert error.data == (None if place == "before its head" else received)
    verified = [each async for each in verify(eye, Verifying())][-1]
    assert (verified.runs, verified.broken, verified.undecided) == (1, 0, 0)


# --- a call over MCP that its time ends -------------------------------------------------------------------------------

KEY = "hush-hush-key"
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "booked row 1"}}


def _event(message: Any) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


class Stopping(Odd):
    """A server that falls silent in the middle of its answer to `t`, or once it has answered that by a link."""

    def __init__(self, place: str) -> None:
        link = {"type": "resource_link", "uri": "notes://1", "name": "n"}
        super().__init__([{**GOOD, "name": "t"}], {"content": [{"type": "text", "text": f"paid {KEY}"}, link]})
        self.place = place

    def __call__(self, received: Received) -> Reply:
        asked = json.loads(received.body) if received.body else {}
        if asked.get("method") == "resources/read":
            return Reply(pieces=_say_nothing())
        if (asked.get("params") or {}).get("name") != "t" or self.place == "behind its result":
            return super().__call__(received)
        self.calls.append("t")
        if self.place == "before its head":
            return Reply(pieces=_say_nothing())
        if self.place == "in its body":
            body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"text": f"paid {KEY}"}})
            return Reply(pieces=self._stop(body[:-3].encode()))
        token = asked["params"]["_meta"]["progressToken"]
        report = {"progressToken": token, "progress": 3, "total": 4, "message": f"paid with {KEY}"}
        progress = _event({"jsonrpc": "2.0", "method": "notifications/progress", "params": report})
        more = {"in its events": _event(NOTE), "in an event": b'data: {"result": "' + b"x" * 5000}[self.place]
        return Reply(type="text/event-stream", pieces=self._stop(progress + more))

    async def _stop(self, body: bytes) -> AsyncIterator[bytes]:
        yield body
        async for piece in _say_nothing():
            yield piece


PROGRESS = {"done": 3.0, "total": 4.0, "message": "paid with [secret]"}
SAID_BEFORE = [
    ("in its body", {"text": '"result": {"text": "paid [secret]'}),
    ("behind its result", {"text": '"paid [secret]"'}),
    ("in its events", {"progress": PROGRESS, "text": "booked row 1"}),
    ("in an event", {"progress": PROGRESS, "text": "x" * 1900}),
]


@pytest.fixture
async def services() -> AsyncIterator[AsyncExitStack]:
    """Services that end behind the runtimes: those still tell them that a call is cancelled. Name it before `make`."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize("retry", [False, True], ids=["fails", "is in doubt"])
@pytest.mark.parametrize(("place", "received"), SAID_BEFORE, ids=[place for place, _ in SAID_BEFORE])
async def test_received_parts_of_a_timed_out_mcp_call_are_in_error_and_doubt(
    services: AsyncExitStack,
    make: Make,
    eye: Connection,
    tmp_path: Path,
    place: str,
    received: dict[str, Any],
    retry: bool,
) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_text("hai: secrets/v1\nsecrets: {KEY: {hosts: [127.0.0.1]}}\n")
    stopping = Stopping(place)
    service = await services.enter_async_context(Service(stopping))
    runtime = await make(performs=True, secrets={"KEY": KEY}, secrets_file=file, http_hosts=("127.0.0.1",))
    body = f"tools: {{t: {{mcp: {{url: '{service.url('/mcp')}', auth: '${{{{ secrets.KEY }}}}'}}}}}}\n"
    step = f"{{id: pay, call: t.t, timeout: 2s{', retry: {max: 2}' if retry else ''}}}"
    run_id = (await start(runtime, f"{body}steps:\n  - {{id: first, call: t.ok}}\n  - {step}\n")).run_id
    await until(lambda: is_now(runtime, run_id, "waiting" if retry else "failed"))
    state = await state_of(runtime, run_id)
    if retry:
        (pending,) = state.pendings.values()
        assert pending.opened.kind == "doubt"
        assert "The evidence has what had come" in (pending.opened.message or "")
        data = json.loads(pending.opened.evidence or "null")
    else:
        assert state.error is not None
        assert state.error.code == "step.timeout"
        data = state.error.data
    assert received["text"] in data["text"]
    assert len(data["text"]) <= 2001
    assert {**data, "text": ""} == {**received, "text": ""}
    assert stopping.calls == ["ok", "t"]
    verified = [each async for each in verify(eye, Verifying())][-1]
    assert (verified.runs, verified.broken, verified.undecided) == (1, 0, 0)


async def test_a_call_over_mcp_timed_out_before_any_byte_has_no_data(services: AsyncExitStack, make: Make) -> None:
    service = await services.enter_async_context(Service(Stopping("before its head")))
    runtime = await make(performs=True, http_hosts=("127.0.0.1",))
    body = f"tools: {{t: {{mcp: '{service.url('/mcp')}'}}}}\nsteps:\n  - {{id: pay, call: t.t, timeout: 1s}}\n"
    run_id = (await start(runtime, body)).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    error = require((await state_of(runtime, run_id)).error)
    assert (error.code, error.data) == ("step.timeout", None)


PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    name = (asked.get("params") or {}).get("name")
    if "id" not in asked:
        continue
    if name == "t":
        sys.stdout.write('{"jsonrpc": "2.0", "id": %s, "result": {"text": "paid in part' % json.dumps(asked["id"]))
        sys.stdout.flush()
        continue
    results = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                              "serverInfo": {"name": "x", "version": "1"}},
               "tools/list": {"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in ("ok", "t")]},
               "tools/call": {"content": [{"type": "text", "text": "ok"}]}}
    said = results.get(asked["method"])
    answer = {"error": {"code": -32601, "message": "Method not found"}} if said is None else {"result": said}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""
FIRST = "  - {id: first, call: t.ok}\n"
ENDS = {
    "step": f"steps:\n{FIRST}  - {{id: pay, call: t.t, timeout: 2s}}\n",
    "block": f"steps:\n{FIRST}  - {{id: all, timeout: 2s, try: [{{id: pay, call: t.t}}]}}\n",
    "run": f"limits: {{duration: 4s}}\nsteps:\n{FIRST}  - {{id: pay, call: t.t}}\n",
}


@pytest.mark.parametrize(("way", "end"), [("http", "block"), ("http", "run"), ("stdio", "step"), ("stdio", "block")])
async def test_a_call_ended_by_block_or_run_keeps_its_part_also_half_a_line(
    services: AsyncExitStack, make: Make, eye: Connection, tmp_path: Path, way: str, end: str
) -> None:
    service = await services.enter_async_context(Service(Stopping("in its body")))
    file = tmp_path / "server.py"
    file.write_text(PROGRAM)
    servers = tmp_path / "mcp.yaml"
    servers.write_text(f"hai: mcp/v1\nservers: {{odd: {{command: ['{sys.executable}', '{file}']}}}}\n")
    address = f"'{service.url('/mcp')}'" if way == "http" else "{use: odd}"
    runtime = await make(performs=True, mcp=servers, http_hosts=("127.0.0.1",))
    run_id = (await start(runtime, f"tools: {{t: {{mcp: {address}}}}}\n{ENDS[end]}")).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    error = require((await state_of(runtime, run_id)).error)
    assert error.code == ("limit.duration" if end == "run" else "step.timeout")
    received = error.data["received"]["all/pay"] if end == "block" else error.data
    assert "paid" in received["text"]
    verified = [each async for each in verify(eye, Verifying())][-1]
    assert (verified.runs, verified.broken, verified.undecided) == (1, 0, 0)
