"""A stream ends with the credential of who reads it, says so, and goes on at its place after a new sign-in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from hai_flow_client import Client, HaiFlowError

from hai_flow.api.http.stream import BROKE_OFF, EventStream
from hai_flow.api.permissions.credential_expiry import EXPIRED, StreamLease
from tests.api.test_streams import Peer
from tests.support.aui_client import AuiClient
from tests.support.hai_client import parse, unique
from tests.support.identities import KEYS, People
from tests.support.server import YAML, ServerProcess, serving

WAITS = """
hai: flow/v1
name: waits
version: 1
steps:
  - say: Hello.
  - wait: {for: 1h}
"""
LASTS = 2.0  # seconds: enough to open a stream on a busy machine, and soon over


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    # A turn that waits for a timer stays open for as long as the tests read it.
    with serving(dsn, environment={**KEYS, "HAI_FLOW_TURN_LINGER_SECONDS": "3600"}) as process:
        publisher = People(dsn).person("user:pat", roles=["publisher"])
        published = httpx2.post(f"{process.url}/v1/workflows", content=WAITS, headers={**YAML, **publisher})
        assert published.status_code == 201
        yield process


def brief(dsn: str, id: str = "user:ann") -> dict[str, str]:
    """The headers of who has a key that ends soon."""
    return People(dsn).person(id, roles=["operator"], expires_at=datetime.now(UTC) + timedelta(seconds=LASTS))


def posted(path: str) -> dict[str, Any]:
    said = {"id": unique("m"), "role": "user", "content": "go"}
    if path.endswith("process"):
        return {"session_id": unique("s"), "input": [{"role": "user", "content": [{"type": "text", "text": "go"}]}]}
    return {"threadId": unique("t"), "runId": unique("r"), "messages": [said], "tools": []}


@pytest.mark.parametrize("path", ["awp", "ag-ui", "process"])
def test_a_dialects_stream_ends_with_the_key(strict: ServerProcess, dsn: str, path: str) -> None:
    answer = httpx2.post(f"{strict.url}/workflows/waits/{path}", json=posted(path), headers=brief(dsn), timeout=60)
    assert answer.status_code == 200
    last = parse(answer.content)[-1]
    assert "auth.expired" in json.dumps(last.data)
    assert last.id is None  # the cursor stays where it was
    if path != "process":
        assert (last.data["type"], last.data["code"]) == ("RUN_ERROR", "auth.expired")


def run_of(strict: ServerProcess, headers: dict[str, str]) -> dict[str, Any]:
    return httpx2.post(f"{strict.url}/v1/runs", json={"workflow": "waits"}, headers=headers).json()


def test_the_log_and_the_threads_events_go_on_after_a_new_sign_in(strict: ServerProcess, dsn: str) -> None:
    lasting = People(dsn).person("user:ann", roles=["operator"])
    run = run_of(strict, lasting)
    for path in (f"/v1/runs/{run['id']}/events", f"/api/v1/agent/runs/{run['thread_id']}/events"):
        asks = {"Accept": "text/event-stream"}
        answer = httpx2.get(strict.url + path, headers={**brief(dsn), **asks}, timeout=60)
        *events, last = [event for event in parse(answer.content) if event.data is not None]
        assert last.data["code"] == "auth.expired"
        assert last.id is None
        again = {**lasting, **asks, "Last-Event-ID": str(events[0].id)}
        with httpx2.stream("GET", strict.url + path, headers=again, timeout=60) as response:
            data = b""
            for piece in response.iter_bytes():
                data += piece
                if len(parse(data)) >= len(events) - 1:
                    break
        assert [event.id for event in parse(data)][: len(events) - 1] == [event.id for event in events[1:]]


def test_a_socket_ends_with_the_key(strict: ServerProcess, dsn: str) -> None:
    client = AuiClient(strict.url, headers=brief(dsn), session_id=unique("s"), workflow="waits")
    client.until("aui_error")
    assert client.events[-1]["error_code"] == "auth.expired"


def test_an_answer_that_is_not_streamed_ends_with_the_key(strict: ServerProcess, dsn: str) -> None:
    body = {**posted("process"), "stream": False}
    answer = httpx2.post(f"{strict.url}/workflows/waits/process", json=body, headers=brief(dsn), timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (401, "auth.expired")


def test_the_python_client_is_told_that_its_key_has_expired(strict: ServerProcess, dsn: str) -> None:
    run = run_of(strict, People(dsn).person("user:ann", roles=["operator"]))
    key = brief(dsn)["Authorization"].removeprefix("Bearer ")
    with Client(strict.url, key=key) as flow, pytest.raises(HaiFlowError) as refusal:
        for _ in flow.runs.follow(run["id"]):
            pass
    assert refusal.value.code == "auth.expired"


async def test_a_stream_whose_credential_is_over_sends_nothing_more() -> None:
    async def pieces() -> Any:
        await asyncio.Event().wait()
        yield []

    peer = Peer()
    stream = EventStream(
        pieces(),
        keepalive_seconds=10,
        stall_seconds=1,
        farewell=lambda ending: ending.code.encode(),
        term=StreamLease(0.0),
    )
    await peer.serve(stream)
    assert peer.body == EXPIRED.code.encode() != BROKE_OFF.code.encode()
