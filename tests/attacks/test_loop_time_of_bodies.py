"""As `test_loop_time`, at every door that takes a JSON body of any size: large ones in all shapes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import httpx2
import pytest

from hai_flow.wire.posted_json import LISTS_MAX
from tests.attacks.test_loop_time import BYTES_MAX, JSON, client, stalls
from tests.attacks.work import HEAD
from tests.support.agent_client import say
from tests.support.examples import sample
from tests.support.hai_client import unique
from tests.support.server import YAML, expect
from tests.support.stalls import STALL_SECONDS, Stalls
from tests.support.waiting import until

__all__ = ["client", "stalls"]

FLOW: Final = HEAD + (
    "input: {type: object, properties: {x: {}, n: {}}}\n"
    "state: {v: {default: 1}}\n"
    "tools: {e: {python: tests.support.effects, effect: write}}\n"
    "steps:\n"
    "  - {id: a, call: e.echo, with: {value: '${{ input.x }}'}, approval: {from: anyone, exclude: [], edit: true}}\n"
    "  - {id: b, ask: {title: Hm, from: anyone, form: {properties: {x: {}}}}}\n"
)
PAID: Final = (
    HEAD.replace("name: work", "name: paid")
    + "triggers: [{event: {type: paid, match: 'event.data != 7'}}]\nsteps: [{say: hi}]\n"
)
SHAPES: Final[dict[str, Callable[[int], Any]]] = {
    "many small parts": lambda count: [1] * (count // 2),
    "empty lists": lambda count: [[]] * min(count // 3, 199_000),
    "rows": lambda count: [{"a": "x", "b": 1.5}] * (count // 20),
    "one text": lambda count: "ab" * (count // 2),
    "signs": lambda count: "\u0430\n" * (count // 8),
    "files": lambda count: ["file_" + "a" * 63] * (count // 72),
    "many keys": lambda count: {f"k{number}": number for number in range(count // 15)},
    "lists in lists": lambda count: [[[1, 2], [3, 4]]] * min(count // 18, 66_000),
    "deep": lambda count: [_nest(20)] * min(count // 42, 9_900),
}


def _nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Row(NamedTuple):
    """A request whose body has the large value at `x`; `size`: where its door takes less than a whole body."""

    path: str
    body: Callable[[Any], Any]
    method: str = "POST"
    size: int = BYTES_MAX
    headers: Mapping[str, str] = MappingProxyType({})


def _agui(**more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"state": None, "messages": [], "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": unique("t"), "runId": unique("r"), "protocolVersion": "1.0", **empty, **more}


def _user(content: Any) -> dict[str, Any]:
    return {"id": unique("m"), "role": "user", "content": content}


def _object(x: Any) -> dict[str, Any]:
    return x if isinstance(x, dict) else {"x": x}


def _hi(**more: Any) -> dict[str, Any]:
    return _agui(messages=[_user("hi")], **more)


def _yes(edits: Any) -> dict[str, Any]:
    return {"decision": "approve", "edits": edits}


def _with_data(x: Any) -> dict[str, Any]:
    return say("hi") | {"content": [{"type": "data", "data": x}]}


def _resolved(x: Any) -> dict[str, Any]:
    return {"interruptId": "{gate}", "status": "resolved", "payload": x}


def _rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


_NAME: Final = "work"  # that of HEAD
_AGUI: Final = f"/workflows/{_NAME}/ag-ui"
_PROCESS: Final = f"/workflows/{_NAME}/process"
_DECIDE: Final = "/v1/pendings/{gate}/decide"
_CHECK: Final = "/v1/pendings/{gate}/check"
_ANYONE: Final = {"from": "anyone", "exclude": []}
_ENVELOPE: Final = {"method": "agent/run", "params": {"agentId": "work"}}
_MESSAGE: Final = {"messageId": "{run}", "role": "ROLE_USER"}
_CANARY: Final = {"workflow": "work", "path": "a", "reason": "no"}
_EVENT: Final = 256 * 1024 - 100
ROWS: Final[dict[str, Row]] = {
    "event": Row("/v1/events", lambda x: {"type": "paid", "data": x}, size=_EVENT),
    "too large an event": Row("/v1/events", lambda x: {"type": "paid", "data": x}),
    "signal": Row("/v1/signals", lambda x: {"type": "paid", "data": x}, size=_EVENT),
    "signal of a run": Row("/v1/runs/{run}/signals", lambda x: {"type": "paid", "data": x}, size=_EVENT),
    "start": Row("/v1/runs", lambda x: {"workflow": "work", "input": {"x": x}}),
    "start with other names": Row("/v1/runs", lambda x: {"workflow": "work", "input": _object(x)}),
    "skip": Row("/v1/runs/{run}/skip", lambda x: {"step": "a", "output": x}),
    "fork": Row("/v1/runs/{run}/fork", lambda x: {"at": 2, "input": {"x": x}}),
    "fork that is tried": Row("/v1/runs/{run}/fork", lambda x: {"at": 2, "input": {"x": x}, "dry_run": True}),
    "fork with state": Row("/v1/runs/{run}/fork", lambda x: {"at": 2, "state": {"v": x}}),
    "fork with any state": Row("/v1/runs/{run}/fork", lambda x: {"at": 2, "state": _object(x)}),
    "fork with a map": Row("/v1/runs/{run}/fork", lambda x: {"at": 2, "map": _object(x)}),
    "migrate": Row(f"/v1/workflows/{_NAME}/migrate", lambda x: {"from": "1", "to": "1", "map": _object(x)}),
    "several runs": Row("/v1/runs/bulk", lambda x: {"action": "stop", "runs": x}),
    "edits": Row(_DECIDE, lambda x: _yes({"/value": x})),
    "edits of many": Row(_DECIDE, lambda x: _yes(_object(x))),
    "edits that are checked": Row(_CHECK, lambda x: _yes({"/value": x})),
    "values": Row("/v1/pendings/{ask}/decide", lambda x: {"values": {"x": x}}),
    "values of other names": Row("/v1/pendings/{ask}/check", lambda x: {"values": _object(x)}),
    "bulk": Row("/v1/inbox/decide", lambda x: {"items": [{"id": "{gate}", **_yes({"/value": x})}]}),
    "bulk of many": Row("/v1/inbox/decide", lambda x: {"items": x}),
    "approval": Row("/v1/approvals", lambda x: {"action": "pay", "arguments": {"x": x}, "policy": _ANYONE}),
    "feedback": Row("/v1/threads/{thread}/feedback/pendings/{gate}", lambda x: {"comment": x}, "PUT"),
    "feedback of many": Row("/v1/threads/{thread}/feedback/pendings/{gate}", lambda x: _object(x), "PUT"),
    "canary": Row("/v1/canaries", lambda x: _CANARY | {"arguments": {"value": x}}),
    "token": Row("/v1/tokens", lambda x: {"principal": "user:a", "threads": x}),
    "process": Row(_PROCESS, lambda x: {"input": [_with_data(x)]}),
    "process of many": Row(_PROCESS, lambda x: {"input": x}),
    "process text": Row(_PROCESS, lambda x: {"input": [say(x)]}),
    "agui state": Row(_AGUI, lambda x: _hi(state=_object(x))),
    "agui messages": Row(_AGUI, lambda x: _agui(messages=x)),
    "agui message": Row(_AGUI, lambda x: _agui(messages=[_user(x)])),
    "agui props": Row(_AGUI, lambda x: _hi(forwardedProps=_object(x))),
    "agui input": Row(_AGUI, lambda x: _hi(forwardedProps={"input": {"x": x}})),
    "agui tools": Row(_AGUI, lambda x: _hi(tools=[{"name": "t", "description": "", "parameters": _object(x)}])),
    "agui user": Row(_AGUI, lambda x: _agui(messages=[_user(json.dumps(x))])),
    "agui resume": Row(_AGUI, lambda x: _agui(threadId="{thread}", resume=[_resolved(x)])),
    "hai": Row(f"/workflows/{_NAME}/awp", lambda x: _hi(state={"v": x})),
    "copilotkit": Row(f"/cpk/agent/{_NAME}/run", lambda x: _hi(state={"v": x})),
    "copilotkit envelope": Row("/cpk", lambda x: _ENVELOPE | {"body": _agui(state=x)}),
    "aui input": Row("/api/aui/input", lambda x: {"session_id": "{thread}", "payload": _object(x)}),
    "a2a": Row(
        f"/workflows/{_NAME}/a2a",
        lambda x: _rpc("SendMessage", {"message": {**_MESSAGE, "parts": [{"data": {"x": x}}]}}),
        headers={"A2A-Version": "1.0"},
    ),
    "mcp": Row(
        "/mcp",
        lambda x: _rpc("tools/call", {"name": "work", "arguments": {"x": x}}),
        headers={"Accept": "application/json, text/event-stream"},
    ),
    "hook": Row("/v1/hooks/nobody", lambda x: x),
    "callback": Row("/callbacks/nobody", lambda x: x),
}  # fmt: skip


async def _find(client: httpx2.AsyncClient, run: str, path: str) -> str:
    """The id of the question that the run asks at this step."""

    async def look() -> list[str]:
        items = (await client.get("/v1/pendings", params={"run_id": run})).json()["items"]
        return [each["id"] for each in items if each["path"] == path]

    return (await until(look))[0]


async def _begin(client: httpx2.AsyncClient, row: Row) -> dict[str, str]:
    """The ids of a run, of its thread and of what it asks."""
    run = (await client.post("/v1/runs", json={"workflow": "work", "input": {"x": 1}})).json()
    ids = {"run": run["id"], "thread": run["thread_id"], "gate": await _find(client, run["id"], "a")}
    if "{ask}" in row.path:
        await client.post(f"/v1/pendings/{ids['gate']}/decide", json={"decision": "approve"})
        ids["ask"] = await _find(client, run["id"], "b")
    return ids


async def _send(client: httpx2.AsyncClient, row: Row, value: Any, stalls: Stalls) -> httpx2.Response:
    ids = await _begin(client, row)
    text = json.dumps(row.body(value), separators=(",", ":"))
    for name, id in ids.items():
        text = text.replace("{" + name + "}", id)
    headers = {**JSON, **row.headers}
    await asyncio.sleep(0)
    stalls.forget()
    answer = await client.request(row.method, row.path.format(**ids), content=text.encode(), headers=headers)
    await asyncio.sleep(0)
    return answer


@pytest.mark.costly
@pytest.mark.timeout(300)
async def test_a_large_body_is_worked_on_for_long_at_no_door(client: httpx2.AsyncClient, stalls: Stalls) -> None:
    for text in (FLOW, PAID):
        expect(await client.post("/v1/workflows", content=text.encode(), headers=YAML), 201)
    for name in sample(ROWS, 8):
        await _send(client, ROWS[name], 1, stalls)  # the first one imports what the door needs
        for shape in sample(SHAPES, 2, name):
            answer = await _send(client, ROWS[name], SHAPES[shape](ROWS[name].size), stalls)
            assert answer.status_code < 500, (name, shape, answer.text[:300])
            assert stalls.longest < STALL_SECONDS, (name, shape, stalls.longest, stalls.what)


async def test_a_body_of_very_many_lists_is_refused(client: httpx2.AsyncClient) -> None:
    for count, status in ((LISTS_MAX - 10, 422), (LISTS_MAX + 1, 413)):
        answer = await client.post("/v1/tokens", content=b"[" + b"[]," * count + b"1]", headers=JSON)
        assert answer.status_code == status, answer.text[:300]
    answer = await client.post("/v1/tokens", content=json.dumps("[{" * LISTS_MAX), headers=JSON)
    assert answer.status_code == 422, "brackets in a text are none"


async def _send_frames(client: httpx2.AsyncClient, path: str, frames: Sequence[str], stalls: Stalls) -> list[str]:
    """Send frames to a socket, each when the one before is answered, and close it. Returns the answers to inputs."""
    transport = client._transport
    assert isinstance(transport, httpx2.ASGITransport)
    answers: asyncio.Queue[str] = asyncio.Queue()
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "websocket.connect"})

    async def send(message: MutableMapping[str, Any]) -> None:
        if "aui_action_ack" in (text := message.get("text", "")):
            answers.put_nowait(text)

    scope = {
        "type": "websocket", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "ws", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [(b"host", b"127.0.0.1:8000")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "subprotocols": [], "state": {},
    }  # fmt: skip
    connected = asyncio.ensure_future(transport.app(scope, incoming.get, send))
    result = []
    for frame in frames:
        await asyncio.sleep(0)
        stalls.forget()
        incoming.put_nowait({"type": "websocket.receive", "text": frame})
        if "params" not in frame[:20]:
            result.append(await asyncio.wait_for(answers.get(), 60))
    incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await connected
    return result


FRAMES: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "message": lambda x: {"payload": {"text": x if isinstance(x, str) else json.dumps(x)}},
    "message beside others": lambda x: {"payload": {"text": "hi", "x": x}},
    "payload": lambda x: {"payload": _object(x)},
    "edits": lambda x: {"interrupt_id": "{gate}", "action": "approve", "payload": {"edits": {"/value": x}}},
    "edits of many": lambda x: {"interrupt_id": "{gate}", "action": "approve", "payload": {"edits": _object(x)}},
    "beside": lambda x: {"interrupt_id": "{gate}", "action": "reject", **_object(x)},
}


@pytest.mark.costly
@pytest.mark.timeout(300)
async def test_a_large_frame_is_worked_on_for_long_on_no_socket(client: httpx2.AsyncClient, stalls: Stalls) -> None:
    expect(await client.post("/v1/workflows", content=FLOW.encode(), headers=YAML), 201)
    for name, build in sample(FRAMES.items(), 3):
        for shape in sample(SHAPES, 3, name):
            ids = await _begin(client, ROWS["aui input"])
            params = json.dumps({"type": "params", "data": {"session_id": ids["thread"]}})
            frame = json.dumps({"type": "input", **build(SHAPES[shape](BYTES_MAX))}, separators=(",", ":"))
            frame = frame.replace("{gate}", ids["gate"])
            small = json.dumps({"type": "input", "interrupt_id": "none"})
            await _send_frames(client, "/api/aui/ws/work", (params, small, frame), stalls)
            assert stalls.longest < STALL_SECONDS, (name, shape, stalls.longest, stalls.what)
