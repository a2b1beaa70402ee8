"""The SDK's managers behind `/mcp`, which live as long as the runtime: what one caller does reaches no other one."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from fastapi import FastAPI
from mcp.server.connection import Connection

from hai_flow.api.app import create_app
from hai_flow.api.mcp import runs as mcp_runs
from hai_flow.api.mcp.catalogue import McpCatalogue
from hai_flow.api.mcp.server import DATABASE_AWAY
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.errors import Rejected, StoreError
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.catalog import workflows
from hai_flow.store.runs import logs
from tests.runtime.conftest import Make
from tests.runtime.conftest import make as make
from tests.support.mcp_caller import NOTHING, VERSION, WITH_TASKS, Caller
from tests.support.waiting import until

ASKING = b"""
hai: flow/v1
name: asking
version: 1
steps: [{id: sure, ask: {title: Sure?, from: requester, form: {type: object, properties: {ok: {type: boolean}}}}}]
"""
OLDER = "2025-06-18"
HOLDER = "hold the managers of MCP"


class Exchange:
    """One message on its way to the application, as a server hands it in, of this `revision`. `leave`: the client hangs
    up."""

    def __init__(self, app: FastAPI, method: str, params: dict[str, Any], **more: Any) -> None:
        capabilities, revision = more.pop("capabilities", WITH_TASKS), more.pop("revision", VERSION)
        sent = Caller(None, capabilities).request(method, params, **more)  # type: ignore[arg-type]
        if revision != VERSION:
            sent["json"]["params"]["_meta"] = more.get("meta", {})
        sent["headers"]["MCP-Protocol-Version"] = revision
        body = json.dumps(sent["json"]).encode()
        headers = {"host": "127.0.0.1", "content-type": "application/json", **sent["headers"]}
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.received = b""
        self.leave = asyncio.Event()
        self._unread = [{"type": "http.request", "body": body, "more_body": False}]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "root_path": "", "state": {},
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._unread:
            return self._unread.pop()
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.headers |= dict(message.get("headers", ()))
        self.received += message.get("body", b"")

    async def message(self) -> dict[str, Any]:
        """The answer, as soon as it is whole."""
        await self.task
        text = self.received.decode()
        message: dict[str, Any] = json.loads(text[text.rindex("data: ") + 6 :] if "data: " in text else text)
        return message


async def application(make: Make, **settings: Any) -> tuple[Runtime, FastAPI]:
    runtime = await make(performs=True, **settings)
    await runtime.catalog.publish(LOCAL_TENANT, ASKING)
    return runtime, create_app(runtime.settings, runtime, act_as=True)


def count_holders() -> int:
    return sum(task.get_name() == HOLDER for task in asyncio.all_tasks())


async def start_as(app: FastAPI, person: str, **more: Any) -> str:
    params = {"name": "asking", "arguments": {}}
    message = await Exchange(app, "tools/call", params, headers={"HAI-Act-As": person}, **more).message()
    result = message["result"]
    return str(result.get("taskId") or result["structuredContent"]["run_id"])


async def listen(app: FastAPI, run: str) -> Exchange:
    """A stream that follows the run, open."""
    stream = Exchange(app, "subscriptions/listen", {"notifications": {"taskIds": [run]}})
    await until(lambda: b"acknowledged" in stream.received)
    return stream


async def ask_older(app: FastAPI) -> Exchange:
    """A call of a client of an older revision, whose stream is open because its user is asked."""
    params = {
        "protocolVersion": OLDER,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "1"},
    }
    session = Exchange(app, "initialize", params, revision=OLDER)
    await session.message()
    headers = {"Mcp-Session-Id": session.headers[b"mcp-session-id"].decode()}
    call = Exchange(app, "tools/call", {"name": "asking", "arguments": {}}, revision=OLDER, headers=headers)
    await until(lambda: b"elicitation/create" in call.received)
    return call


def asked_by(call: Exchange) -> str:
    """The run whose question stands on the stream."""
    question = json.loads(call.received.decode().split("data: ")[-1])
    return str(run_of_pending(question["id"]))


async def cancel(app: FastAPI, run: str) -> None:
    params = {"name": "cancel_run", "arguments": {"run_id": run}}
    assert not (await Exchange(app, "tools/call", params).message())["result"]["isError"]


async def test_callers_at_once_keep_their_own_identity(make: Make) -> None:
    _, app = await application(make)
    kinds = [(f"user:p{n}", WITH_TASKS if n % 2 else NOTHING) for n in range(12)]
    runs = await asyncio.gather(*(start_as(app, person, capabilities=kind) for person, kind in kinds))

    async def may_answer(run: str, person: str, kind: dict[str, Any]) -> bool:
        params = {"name": "get_run", "arguments": {"run_id": run}}
        headers = {"HAI-Act-As": person}
        message = await Exchange(app, "tools/call", params, headers=headers, capabilities=kind).message()
        return bool(message["result"]["structuredContent"]["questions"][0]["may_answer"])

    looks = [(run, *kind) for run, kind in zip(runs + runs, kinds + kinds[1:] + kinds[:1], strict=True)]
    assert await asyncio.gather(*(may_answer(*each) for each in looks)) == [True] * 12 + [False] * 12
    assert count_holders() == 1


@pytest.mark.parametrize("failure", [RuntimeError("no"), StoreError("no"), asyncio.CancelledError()], ids=repr)
async def test_a_request_that_fails_harms_no_other(
    make: Make, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(McpCatalogue, "list_prompts", fail)
    _, app = await application(make)
    run = await start_as(app, "user:ann")
    stream = await listen(app, run)
    waiting = await ask_older(app)
    for meta, revision in (({}, VERSION), ({"progressToken": 1}, VERSION), ({}, OLDER)):  # a brief answer, and streams
        failing = Exchange(app, "prompts/list", {}, meta=meta, revision=revision)
        if isinstance(failure, Exception):
            text = DATABASE_AWAY if isinstance(failure, StoreError) else "Internal server error"
            assert (await failing.message())["error"] == {"code": -32603, "message": text}
        else:
            await asyncio.wait([failing.task])
    assert await start_as(app, "user:ben")
    await cancel(app, run)
    await until(lambda: b"notifications/tasks" in stream.received)
    await cancel(app, asked_by(waiting))
    assert (await waiting.message())["result"]["structuredContent"]["status"] == "stopped"
    assert count_holders() == 1
    stream.leave.set()
    await stream.task


async def test_a_client_that_goes_ends_its_own_call_alone(make: Make) -> None:
    _, app = await application(make)
    run = await start_as(app, "user:ann")
    streams = [await listen(app, run) for _ in range(2)]
    streams[0].leave.set()
    await asyncio.wait_for(streams[0].task, 5)
    assert app.state.admission.streams == 1
    older = [await ask_older(app) for _ in range(2)]
    older[0].leave.set()
    await asyncio.wait_for(older[0].task, 5)
    for each in (run, asked_by(older[1])):
        await cancel(app, each)
    await until(lambda: b"notifications/tasks" in streams[1].received)
    assert (await older[1].message())["result"]["structuredContent"]["status"] == "stopped"
    assert b"notifications/tasks" not in streams[0].received
    streams[1].leave.set()
    await streams[1].task


async def test_a_call_reads_neither_other_workflows_nor_its_new_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise AssertionError("a call costs as much as a start by REST")

    _, app = await application(make)
    await start_as(app, "user:ann")
    monkeypatch.setattr(workflows, "list_workflows", fail)
    with monkeypatch.context() as cached:
        cached.setattr(logs, "load_run_at", fail)  # a run that has just begun is not read
        await start_as(app, "user:ann")
    for name, arguments in (("asking", {"a": 1}), ("get_run", {"run_id": await start_as(app, "user:ann")})):
        message = await Exchange(app, "tools/call", {"name": name, "arguments": arguments}).message()
        assert "result" in message


async def test_an_answer_over_a_limit_is_told_when_to_come_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise Rejected(429, "decisions", "too many", retry_after=7)

    _, app = await application(make)
    task = {"taskId": await start_as(app, "user:ann")}
    headers = {"HAI-Act-As": "user:ann"}
    shown = (await Exchange(app, "tasks/get", task, headers=headers).message())["result"]
    monkeypatch.setattr(mcp_runs, "answer", refuse)
    answers = {id: {"action": "accept", "content": {"ok": True}} for id in shown["inputRequests"]}
    refused = await Exchange(app, "tasks/update", {**task, "inputResponses": answers}, headers=headers).message()
    assert refused["error"]["message"] == "too many Try again in 7 seconds."


async def test_streams_and_managers_end_with_the_runtime_and_begin_with_it(make: Make) -> None:
    runtime, app = await application(make)
    run = await start_as(app, "user:ann")
    stream = await listen(app, run)
    runtime.fanout.close_streams()
    assert "result" in await stream.message()
    await runtime.stop()
    assert count_holders() == 0
    await runtime.start()
    assert await start_as(app, "user:ann")
    assert count_holders() == 1


async def test_a_body_over_the_limit_is_refused_and_the_next_one_read(make: Make) -> None:
    _, app = await application(make, request_bytes_max=4096)
    for note, status in (("x" * 5000, 413), ("x", 200)):
        exchange = Exchange(app, "tools/list", {}, meta={"note": note})
        await exchange.task
        assert exchange.status == status


@pytest.mark.parametrize("revision", [VERSION, OLDER])
async def test_requests_leave_nothing_behind(make: Make, revision: str) -> None:
    _, app = await application(make)

    async def count_after(requests: int) -> tuple[int, int]:
        for _ in range(requests):
            await Exchange(app, "tools/list", {}, revision=revision).message()
        gc.collect()
        return len(asyncio.all_tasks()), sum(isinstance(each, Connection) for each in gc.get_objects())

    assert await count_after(3) == await count_after(50)
