"""What a start over MCP or A2A costs beside one by REST, and what tasks cost that wait and are polled as they are told.

`mcp_start_vs_rest`, `a2a_start_vs_rest`: from the request of a start of the same workflow to its answer, without a
network; over MCP as a task, over A2A with `returnImmediately`. `waiting_tasks_cpu`: the part of a core that a server
spends on 1,000 tasks of MCP that have waited for an hour, each asked for as often as it says.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from typing import Any, Final

from bench.engine import running
from bench.resume import IDLE_SECONDS
from bench.workflows import QUESTION
from hai_flow.api.app import create_app
from hai_flow.wire.mcp import poll_interval

TASKS: Final = 1_000
_HOUR_MS: Final = 3_600_000
_MCP_VERSION: Final = "2026-07-28"
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": _MCP_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
_FLOW: Final = QUESTION.replace(b"tools:", b"input: {type: object, properties: {order: {type: string}}}\ntools:", 1)
_INPUT: Final = {"order": "A-1"}
_IDS: Final = itertools.count(1)


async def measure(dsn: str, samples: int) -> dict[str, Any]:
    """Medians of `samples` interleaved requests over the migrated database."""
    async with running(dsn, _FLOW) as engine:
        app = create_app(engine.runtime.settings, engine.runtime)
        times = [
            (await _seconds(app, *_rest()), await _seconds(app, *_mcp_start()), await _seconds(app, *_a2a()))
            for _ in range(samples + 1)
        ]
        rest, mcp, a2a = (statistics.median(column) for column in zip(*times[1:], strict=True))  # the first prepares
        task = str(await engine.start_run())
        polls = samples * 2
        await _seconds(app, *_mcp("tasks/get", {"taskId": task}, task))
        began = time.process_time()
        for _ in range(polls):
            await _exchange(app, *_mcp("tasks/get", {"taskId": task}, task))
        per_poll = (time.process_time() - began) / polls
    per_second = TASKS / (poll_interval(_HOUR_MS) / 1000)
    return {
        "mcp_start_vs_rest": mcp / rest,
        "a2a_start_vs_rest": a2a / rest,
        "waiting_tasks_cpu": per_poll * per_second,
        "milliseconds": {"rest": rest * 1e3, "mcp": mcp * 1e3, "a2a": a2a * 1e3, "poll": per_poll * 1e3},
    }


def _rest() -> tuple[str, dict[str, Any], dict[str, str]]:
    return "/v1/runs", {"workflow": "bench_question", "input": _INPUT}, {}


def _mcp_start() -> tuple[str, dict[str, Any], dict[str, str]]:
    return _mcp("tools/call", {"name": "bench_question", "arguments": _INPUT}, "bench_question")


def _mcp(method: str, params: dict[str, Any], name: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    headers = {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": _MCP_VERSION, "mcp-method": method,
        "mcp-name": name,
    }  # fmt: skip
    body = {"jsonrpc": "2.0", "id": next(_IDS), "method": method, "params": {**params, "_meta": _META}}
    return "/mcp", body, headers


def _a2a() -> tuple[str, dict[str, Any], dict[str, str]]:
    message = {"messageId": f"m{next(_IDS)}", "role": "ROLE_USER", "parts": [{"data": _INPUT}]}
    params = {"message": message, "configuration": {"returnImmediately": True}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return "/workflows/bench_question/a2a", body, {"a2a-version": "1.0"}


async def _seconds(app: Any, path: str, body: dict[str, Any], headers: dict[str, str]) -> float:
    await asyncio.sleep(IDLE_SECONDS)
    began = time.perf_counter()
    await _exchange(app, path, body, headers)
    return time.perf_counter() - began


async def _exchange(app: Any, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    """Send the request, return with the end of its answer."""
    content = json.dumps(body).encode()
    all_headers = {"host": "127.0.0.1:8000", "content-type": "application/json",
                   "content-length": str(len(content)), **headers}  # fmt: skip
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {},
    }  # fmt: skip
    bodies, pieces = iter((content,)), list[bytes]()
    answered = asyncio.Event()

    async def receive() -> dict[str, Any]:
        for each in bodies:
            return {"type": "http.request", "body": each, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] in (200, 201), message
        else:
            pieces.append(message.get("body", b""))
            if not message.get("more_body"):
                answered.set()

    answering = asyncio.ensure_future(app(scope, receive, send))
    await answered.wait()
    await answering
    assert b'"error":{' not in b"".join(pieces), pieces
