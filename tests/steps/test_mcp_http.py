"""What a server of MCP answers over HTTP in place of a message, as an error that says whether the call has arrived."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx2
import pytest

from hai_flow.steps.http.transport import HttpConfig
from hai_flow.steps.mcp.http import _Answering
from hai_flow.steps.mcp.messages import FAULT

EVENTS = {"content-type": "text/event-stream"}
PROGRESS = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n\n'


async def call(status: int, headers: dict[str, str], content: bytes = b"") -> bytes:
    """The body that the SDK gets for a call that is answered so; 1000 bytes are taken at once."""

    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 500):
            yield content[start : start + 500]

    async def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers=headers, content=body())

    inner = httpx2.MockTransport(answer)
    transport = _Answering(cast(Any, None), inner, HttpConfig(bytes_max=1000), asks_for_tokens=False)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    response = await transport.handle_async_request(httpx2.Request("POST", "http://a/mcp", json=message))
    return await response.aread()


async def fault(*answer: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(await call(*answer))["error"]["data"][FAULT])


@pytest.mark.parametrize(("status", "reached"), [(301, False), (307, False), (303, True)])
async def test_of_redirects_to_nowhere_one_may_come_behind_the_call(status: int, reached: bool) -> None:
    found = await fault(status, {})
    assert (found["reached"], "no address to go to" in found["message"]) == (reached, True)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_is_busy_says_when_to_ask_again(status: int) -> None:
    found = await fault(status, {"retry-after": "7"})
    assert (found["after"], found["reached"], found["final"]) == (7.0, False, False)


async def test_an_answer_that_is_too_large_is_final() -> None:
    found = await fault(200, {"content-type": "application/json"}, b"x" * 1001)
    assert (found["final"], found["code"]) == (True, "tool.invalid_result")
    assert "more than 1000 bytes" in found["message"]


async def test_a_stream_of_small_events_has_an_end() -> None:
    body = await call(200, EVENTS, PROGRESS * 300)
    assert b"or without an end" in body
    assert b"or without an end" not in await call(200, EVENTS, PROGRESS * 100)
