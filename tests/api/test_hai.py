"""HAI over real sockets: what its demo client makes of our streams, the binary transport, and what one may wish for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support import wire_lint
from tests.support.hai_client import BINARY, DemoPage, HaiClient, Stream, answer, parse, parse_json_string, unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving

RECORDINGS = Path(__file__).parent / "recordings"

MIRROR = b"""hai: flow/v1
name: mirror
version: 1
steps:
  - say: "${{ thread.message }}"
  - say: {output: {type: card, data: "${{ thread.content }}"}}
  - emit: {custom: {name: acme.nothing, value: null}}
  - emit: {raw: {event: {kind: ping, at: null}, source: erp}}
output: {seen: "${{ size(thread.content) }}"}
"""


def publish(http: httpx2.Client, document: bytes) -> str:
    return expect(http.post("/v1/workflows", content=document, headers=YAML), 200, 201).json()["name"]


# --- the demo client ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chat", "task"])
def test_the_demo_client_shows_our_stream_as_it_shows_the_demo_servers(
    server: ServerProcess, http: httpx2.Client, name: str
) -> None:
    """The recordings have the form of the demo server's: one message for a whole answer, no ids of thread and run."""
    theirs = DemoPage().read((RECORDINGS / f"hai_{name}.sse").read_bytes())
    workflow = publish(http, (RECORDINGS / f"hai_{name}.flow.yaml").read_bytes())
    client, question = HaiClient(server.url, workflow=workflow), user("go")
    ours = DemoPage().read(first := client.post(question, tools=("openSidePage",)).body)
    for call in ours.calls:
        ours.read(client.post(question, answer(call, "opened")).body)
    assert ours.outputs == theirs.outputs
    assert ours.items == theirs.items
    assert ours.called == theirs.called
    assert b"}{" not in first


# --- the binary transport -----------------------------------------------------------------------------------------


def without_ids(stream: Stream) -> list[dict[str, Any]]:
    """Its events without what differs from run to run."""
    differs = ("timestamp", "threadId", "runId", "messageId", "toolCallId", "parentMessageId")
    return [{name: value for name, value in event.items() if name not in differs} for event in stream.events]


def test_the_binary_transport_carries_the_same_events(server: ServerProcess) -> None:
    text, binary = (HaiClient(server.url, workflow="cleanup", binary=binary) for binary in (False, True))
    streams: list[list[dict[str, Any]]] = []
    for client in (text, binary):
        question = user("删除", id="m1")
        first = client.post(question, tools=("confirmAction",))
        second = client.post(question, answer(first.call_id("confirmAction")))
        streams.append([*without_ids(first), *without_ids(second)])
    assert streams[0] == streams[1]


def test_a_binary_client_attaches_and_is_refused_like_any_other(server: ServerProcess) -> None:
    client = HaiClient(server.url, workflow="cleanup", binary=True)
    client.post(user(), tools=("confirmAction",))
    assert client.post(tools=("confirmAction",)).types == [
        "RUN_STARTED", "STATE_SNAPSHOT", "MESSAGE_SNAPSHOT", "RUN_FINISHED"
    ]  # fmt: skip
    refused = client.post(user("new"))
    assert (refused.status, refused.problem["code"]) == (409, "thread_waiting")


@pytest.mark.parametrize("accept", [BINARY, f"{BINARY.upper()};q=1, text/event-stream", f"text/event-stream, {BINARY}"])
def test_a_run_is_followed_in_binary_by_who_accepts_it(server: ServerProcess, http: httpx2.Client, accept: str) -> None:
    client = HaiClient(server.url, workflow="weather")
    stream = client.post(user())
    events = parse(stream.body)
    run_id = str(events[0].id).partition(".")[0]
    headers = {"Accept": accept}
    whole = http.get(f"/v1/runs/{run_id}/events", params={"dialect": "hai"}, headers=headers)
    assert whole.headers["content-type"] == BINARY
    assert wire_lint.lint_binary(whole.content) == []
    assert wire_lint.binary_events(whole.content) == stream.events
    rest = http.get(
        f"/v1/runs/{run_id}/events", params={"dialect": "hai"}, headers={**headers, "Last-Event-ID": str(events[2].id)}
    )
    assert wire_lint.binary_events(rest.content) == stream.events[3:]


def test_an_idle_binary_stream_gets_empty_frames_and_the_servers_close(postgres_server: Server) -> None:
    environment = {"HAI_FLOW_KEEPALIVE_SECONDS": "0.1", "HAI_FLOW_SHUTDOWN_SECONDS": "0.5"}
    slow = b"""hai: flow/v1
name: slow
version: 1
steps: [{say: soon}, {wait: {for: 20s}}]
"""
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as process:
        with httpx2.Client(base_url=process.url) as http:
            publish(http, slow)
        client = HaiClient(process.url, workflow="slow")
        headers = {"accept": BINARY}
        with httpx2.stream("POST", client.url, json=client.body(user()), headers=headers, timeout=30) as response:
            pieces, body = response.iter_bytes(), b""
            while not body.endswith(b"\0" * 8):
                body += next(pieces)
            process.terminate()
            body += b"".join(pieces)
    assert wire_lint.lint_binary(body) == []
    last = wire_lint.binary_events(body)[-1]
    assert (last["type"], last["code"]) == ("RUN_ERROR", "server_closing")


def test_a_cut_binary_stream_is_noticed_by_its_length(server: ServerProcess) -> None:
    body = HaiClient(server.url, workflow="weather", binary=True).post(user()).body
    found = wire_lint.lint_binary(body[:-1])
    assert [fault.partition(":")[0] for fault in found] == ["frames", "stream.terminal"]


# --- what people post ---------------------------------------------------------------------------------------------

PARTS = [
    {"type": "text", "text": "Look: "},
    {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png", "mimeType": "image/png"}},
    {
        "type": "audio",
        "source": {"type": "data", "value": "UklGRg==", "mimeType": "audio/wav"},
        "metadata": {"n": None},
    },
    {"type": "video", "url": "https://example.com/a.mp4"},
    {"type": "text", "text": "what is it?"},
]


def test_a_message_of_many_media_reaches_workflow_and_snapshot_unchanged(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = HaiClient(server.url, workflow=publish(http, MIRROR))
    posted = {**user(PARTS), "name": "ann", "timestamp": 1760000000123, "extra": {"tags": ["a"], "none": None}}
    stream = client.post(posted)
    text, card = [json.loads(event["delta"])["output"] for event in stream.all("BUSINESS_DATA_CONTENT")]
    assert text["content"] == "Look: what is it?"
    assert card["data"] == PARTS
    snapshot = client.post().one("MESSAGE_SNAPSHOT")
    assert snapshot["messages"][0] == posted
    assert [parse_json_string(each["content"])[0]["output"] for each in snapshot["messages"][1:]] == [text, card]


def test_the_authors_events_and_the_runs_output_are_told(server: ServerProcess, http: httpx2.Client) -> None:
    client = HaiClient(server.url, workflow=publish(http, MIRROR))
    stream = client.post(user("ab"))
    told = [(event["name"], event["value"]) for event in stream.all("CUSTOM")]
    assert told == [("acme.nothing", None), ("hai.output", {"output": {"seen": 2}})]
    raw = stream.one("RAW")
    assert (raw["event"], raw["source"]) == ({"kind": "ping", "at": None}, "erp")
    assert client.post().one("CUSTOM")["value"] == {"output": {"seen": 2}}


# --- what one may wish for ----------------------------------------------------------------------------------------


def test_results_of_frontend_tools_are_shown_to_who_asks_for_them(server: ServerProcess) -> None:
    for wish, shown in (({}, []), ({"forwardedProps": {"hai": {"results": "all"}}}, ["confirmed"])):
        client, question = HaiClient(server.url, workflow="cleanup"), user()
        call = client.post(question, tools=("confirmAction",), **wish).call_id("confirmAction")
        stream = client.post(question, answer(call), **wish)
        results = [event for event in stream.all("TOOL_CALL_RESULT") if event["toolCallId"] == call]
        assert [event["content"] for event in results] == shown


def test_an_approval_that_was_a_call_has_a_result_for_who_asks_for_it(server: ServerProcess) -> None:
    wish = {"forwardedProps": {"hai": {"results": "all"}}}
    client, question = HaiClient(server.url, workflow="release"), user()
    calls = client.post(question, tools=("confirmAction",), **wish).all("TOOL_CALL_START")
    answers = [answer(call["toolCallId"], "true") for call in calls]
    stream = client.post(question, *answers, tools=("confirmAction",), **wish)
    results = {event["toolCallId"]: json.loads(event["content"]) for event in stream.all("TOOL_CALL_RESULT")}
    assert results == {call["toolCallId"]: {"decision": "approve"} for call in calls}


@pytest.fixture(scope="module")
def wishful(postgres_server: Server) -> Iterator[ServerProcess]:
    """A server that was told other wishes than the usual ones."""
    environment = {
        "HAI_FLOW_HAI_ALIASES": "/chat,/api/v1/hai/ai_dome/task=cleanup",
        "HAI_FLOW_HAI_RESULTS": "all",
        "HAI_FLOW_HAI_SNAPSHOT": "MESSAGES_SNAPSHOT",
    }
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as process:
        yield process


def test_hai_is_served_at_configured_paths_too(wishful: ServerProcess) -> None:
    assert HaiClient(wishful.url, path="/chat").post(user()).text()
    task = HaiClient(wishful.url, path="/api/v1/hai/ai_dome/task", binary=True)
    assert task.post(user(), tools=("confirmAction",)).call_id("confirmAction")
    assert httpx2.get(f"{wishful.url}/chat").status_code == 405
    assert "/chat" not in httpx2.get(f"{wishful.url}/openapi.json").json()["paths"]


def test_a_server_may_choose_for_all_clients_and_its_streams_are_followed(wishful: ServerProcess) -> None:
    client, question = HaiClient(wishful.url, workflow="cleanup"), user(unique("text"))
    call = client.post(question, tools=("confirmAction",)).call_id("confirmAction")
    stream = client.post(question, answer(call))
    assert call in [event["toolCallId"] for event in stream.all("TOOL_CALL_RESULT")]
    assert client.post().one("MESSAGES_SNAPSHOT")["messages"]
    own = {"forwardedProps": {"hai": {"snapshot": "MESSAGE_SNAPSHOT"}}}
    assert client.post(**own).one("MESSAGE_SNAPSHOT")["messages"]
    run_id = str(parse(stream.body)[0].id).partition(".")[0]
    followed = httpx2.get(f"{wishful.url}/v1/runs/{run_id}/events", params={"dialect": "hai"})
    assert followed.content == stream.body
