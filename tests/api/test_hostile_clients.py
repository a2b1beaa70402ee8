"""Clients that send anything, read nothing, or come twice: never a fault, and never the harm of anybody else."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.agent_client import AgentClient, approval, output
from tests.support.aui_client import AuiClient
from tests.support.examples import examples
from tests.support.hai_client import unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import until

BOUNDED = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXT = st.text(st.characters(), max_size=8)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def some(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that have some of the fields, with anything in them."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANYTHING))


CONTENT = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "data", "image"]) | ANYTHING},
    optional={"text": ANYTHING, "data": some("call_id", "output", "approval_request_id", "approve", "reason")},
)
MESSAGE = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call_output", "mcp_approval_response"]) | ANYTHING},
    optional={"id": ANYTHING, "role": st.sampled_from(["user", "assistant"]), "content": st.lists(CONTENT, max_size=2)},
)
REQUEST = st.fixed_dictionaries(
    {"input": st.lists(MESSAGE | ANYTHING, max_size=2)},
    optional=dict.fromkeys(
        ("id", "stream", "session_id", "tools", "workflow", "workflow_input", "n", "model"), ANYTHING
    ),
)


@BOUNDED
@given(REQUEST | some("input", "stream", "session_id") | ANYTHING)
def test_no_request_to_the_agent_api_is_a_fault(http: httpx2.Client, body: Any) -> None:
    answer = http.post(
        "/workflows/weather/process", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code < 500, (body, answer.text)


@pytest.mark.parametrize("of", [{"reason": {"a": [None]}}, {"reason": 5}, {"approve": None}, {"approve": "true"}])
def test_an_approval_response_with_anything_in_it_approves_nothing(
    server: ServerProcess, http: httpx2.Client, of: dict[str, Any]
) -> None:
    client = AgentClient(server.url, workflow="release")
    (first, _) = client.post({"role": "user", "content": "release"}).messages("mcp_approval_request")
    message = approval(first["content"][0]["data"]["id"], approve=False)
    message["content"][0]["data"] |= of
    assert client.post(message).status in (200, 422)
    pending = http.get(f"/v1/pendings/{first['content'][0]['data']['id']}").json()
    assert pending["status"] in ("open", "reject")


@pytest.mark.parametrize("of", [{"output": {"a": 1}}, {"output": None}, {}])
def test_an_output_that_is_no_text_is_taken_as_its_json(
    server: ServerProcess, http: httpx2.Client, of: dict[str, Any]
) -> None:
    client = AgentClient(server.url, workflow="cleanup")
    call = client.post({"role": "user", "content": "clean up"}).data("function_call")["call_id"]
    message = output(call, "")
    message["content"][0]["data"] = {"call_id": call, **of}
    status = client.post(message).status
    assert status in (200, 422)
    assert http.get(f"/v1/pendings/{call}").json()["status"] == ("answered" if status == 200 else "open")


INPUT = st.fixed_dictionaries(
    {"session_id": st.just("hostile") | TEXT | ANYTHING},
    optional={
        "action": ANYTHING,
        "label": ANYTHING,
        "interrupt_id": ANYTHING,
        "payload": some("message", "text", "message_id", "input", "interrupt_id", "result") | ANYTHING,
        "more": ANYTHING,
    },
)


@BOUNDED
@given(INPUT | ANYTHING)
def test_no_input_is_a_fault(http: httpx2.Client, body: Any) -> None:
    answer = http.post(
        "/api/aui/input", content=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    assert answer.status_code < 500, (body, answer.text)


def test_no_frame_is_a_fault(server: ServerProcess) -> None:
    """Whatever comes on a socket is answered, and what comes after it too."""
    client = AuiClient(server.url, "weather", session_id=unique("hostile"))

    @BOUNDED
    @given(INPUT.map(lambda given: {**given, "type": "input"}) | ANYTHING)
    def no_frame_is_a_fault(frame: Any) -> None:
        if isinstance(frame, dict) and frame.get("type") in ("close", "params"):
            return
        client.send(type="ping")
        client.until("pong")
        client.socket.send(json.dumps(frame))
        client.until("aui_action_ack")

    no_frame_is_a_fault()


@pytest.mark.parametrize("frame", [b"\x81\x82\x00\x00\x00\x00\xff\xfe", b"\xc1\x80\x00\x00\x00\x00"])
def test_a_frame_that_is_no_text_or_no_frame_closes_the_socket(server: ServerProcess, frame: bytes) -> None:
    """Invalid UTF-8, and a bit that nobody negotiated."""
    address = server.url.replace("http://", "ws://") + "/api/aui/ws/cleanup"
    with connect(address) as client:
        client.socket.sendall(frame)
        with suppress(ConnectionClosed):
            while True:
                client.recv(timeout=10)
        assert client.close_code in (1002, 1007)


def test_a_socket_beyond_the_limit_is_refused_and_an_early_close_is_fine(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn, admission={"streams_max": 1}) as server:
        one = AuiClient(server.url, "cleanup")
        one.until("aui_stream_start")
        for _ in range(20):
            with _deaf(server.url, _UPGRADE.format(session="s")) as leaving:
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other = AuiClient(server.url, "cleanup")
        assert other.until("aui_error")["error_code"] == "streams_busy"
        assert other.ended() == 1011
        one.close()
        assert "store_failed" not in server.log


def test_two_sockets_of_a_session_see_the_same_and_the_first_answer_wins(server: ServerProcess) -> None:
    session = unique("s")
    one = AuiClient(server.url, "cleanup", session_id=session, message="删除")
    asked = one.until("aui_interrupt")
    other = AuiClient(server.url, "interactive", session_id=session)
    other.until("aui_run_finished")
    one.until("aui_run_finished")
    for client, action in ((one, "yes"), (other, "no")):
        client.send(type="input", action=action, interrupt_id=asked["interrupt_id"])
    codes = [client.ended() for client in (one, other)]
    assert codes == [1000, 1000]
    acks = [event for client in (one, other) for event in client.events if event["type"] == "aui_action_ack"]
    assert sorted(ack["status"] for ack in acks if "action" in ack) in (["accepted", "refused"], ["accepted"])

    def after(client: AuiClient) -> list[dict[str, Any]]:
        last = max(at for at, event in enumerate(client.events) if event["type"] == "aui_run_started")
        return [e for e in client.events[last:] if e["type"] not in ("aui_action_ack", "aui_stream_end")]

    assert after(one) == after(other)


async def test_who_reads_nothing_is_cut_off_and_nobody_else_notices(postgres_server: Server) -> None:
    """On a socket as on a stream: the others of the same thread are told everything."""
    stalling = {"HAI_FLOW_FOLLOWER_STALL_SECONDS": "1"}
    with postgres_server.database() as dsn, serving(dsn, environment=stalling) as server:
        session = unique("s")
        reader = AuiClient(server.url, "interactive", session_id=session)
        reader.until("aui_stream_start")
        with ExitStack() as deaf:
            for request in (_UPGRADE, _STREAM):
                deaf.enter_context(_deaf(server.url, request.format(session=session)))
            await _tell_all(server, reader, session)


async def _tell_all(server: ServerProcess, reader: AuiClient, session: str) -> None:
    """Say more than the buffers of a connection hold, and wait until those who take none of it are gone."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as http:

        async def streams() -> int:
            return (await http.get("/healthz")).json()["streams"]

        async def all_follow() -> bool:
            return await streams() == 3

        async def only_the_reader_is_left() -> bool:
            return await streams() <= 1

        await until(all_follow)
        source = (
            "hai: flow/v1\nname: loud\nversion: 1\nsteps:\n"
            "  - repeat: {max: 60, steps: [{say: '${{ thread.message + thread.message + thread.message }}'}]}\n"
        )
        assert (await http.post("/v1/workflows", content=source, headers=YAML)).status_code in (200, 201)
        body = {"threadId": session, "runId": "r1", "messages": [user("x" * 100_000)]}
        async with http.stream("POST", "/workflows/loud/awp", json=body) as started:
            assert started.status_code == 200
        assert await asyncio.to_thread(reader.ended) == 1000
        await until(only_the_reader_is_left, 30)


_UPGRADE = (
    "GET /api/aui/ws/interactive?session_id={session} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_STREAM = "GET /api/v1/agent/runs/{session}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _deaf(url: str, request: str) -> socket.socket:
    """A connection that asks and never reads."""
    parts = urlsplit(url)
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect((parts.hostname, parts.port))
    deaf.sendall(request.encode())
    return deaf
