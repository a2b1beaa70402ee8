"""Servers that say nothing, at any point of an exchange: every wait for them has an end, and an error that says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import Response
from fastapi.responses import StreamingResponse

from hai_flow.runtime.ops.verify import Verifying, verify
from hai_flow.steps.mcp import http as mcp_http
from tests.foreign.test_fastapi import JSON
from tests.foreign.test_fastapi import serving as serving_framework
from tests.foreign.test_mcp import Odd, serving
from tests.runtime.conftest import Connection, Make, is_now, start, state_of
from tests.runtime.conftest import eye as eye
from tests.runtime.conftest import make as make
from tests.steps.test_mcp import call
from tests.support.service import Received, Reply
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


async def test_a_session_whose_end_the_server_does_not_answer_is_left_all_the_same(monkeypatch: Any) -> None:
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
async def test_of_all_requests_but_calls_only_a_stream_of_a_server_s_own_messages_lasts(
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
async def test_a_step_that_a_real_framework_leaves_without_an_answer_ends_at_its_timeout(
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
