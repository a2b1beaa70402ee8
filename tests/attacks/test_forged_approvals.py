"""Approvals that nobody gave: strangers, claims, copies, other threads, through every door. The question stays open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess, expect

VAULT: Final = """
hai: flow/v1
name: vault
version: 1
steps:
  - id: open
    approve: {title: Open?, from: [user:ann, user:bob], quorum: 2, evidence: {amount: 7}}
output: ${{ steps.open.output.decision }}
"""
EVE: Final = {"HAI-Act-As": "user:eve"}
ANN: Final = {"HAI-Act-As": "user:ann"}
BOB: Final = {"HAI-Act-As": "user:bob"}
YES: Final = {"decision": "approve"}


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    assert httpx2.post(f"{server.url}/v1/workflows", content=VAULT, headers=YAML).status_code in (200, 201)


@pytest.fixture
def asked(server: ServerProcess) -> dict[str, Any]:
    """A run that asks, and what it asks, as `/v1/pendings` has it."""
    body = {"workflow": "vault", "thread_id": unique("vault")}
    run = httpx2.post(f"{server.url}/v1/runs", json=body).json()
    while True:
        items = httpx2.get(f"{server.url}/v1/pendings").json()["items"]
        if found := [each for each in items if each["run_id"] == run["id"]]:
            return {**found[0], "thread": run["thread_id"]}


def decide(server: ServerProcess, id: str, body: Any, headers: dict[str, str]) -> httpx2.Response:
    return httpx2.post(f"{server.url}/v1/pendings/{id}/decide", json=body, headers=headers)


def votes(server: ServerProcess, asked: dict[str, Any]) -> list[str]:
    """Who has voted, as the log has it."""
    events = httpx2.get(f"{server.url}/v1/runs/{asked['run_id']}/events").json()["items"]
    assert not [each for each in events if each["type"] == "pending_decided"]
    return [each["by"] for each in events if each["type"] == "vote_cast"]


CLAIMS: Final[dict[str, dict[str, str]]] = {
    "who started it": {},
    "a stranger": EVE,
    "a role of that name": {"HAI-Act-As": "user:eve,role:ann,group:user:ann"},
    "another spelling": {"HAI-Act-As": "user:Ann"},
    "headers of proxies": {
        "X-Forwarded-User": "user:ann",
        "X-Remote-User": "ann",
        "Remote-User": "ann",
        "X-Role": "boss",
    },
    "a token": {"Authorization": "Bearer user:ann", "Cookie": "principal=user:ann"},
}


@pytest.mark.parametrize("headers", CLAIMS.values(), ids=CLAIMS.keys())
def test_who_is_not_asked_decides_nothing(
    server: ServerProcess, asked: dict[str, Any], headers: dict[str, str]
) -> None:
    expect(decide(server, asked["id"], YES, headers), 403, 422)
    assert votes(server, asked) == []


@pytest.mark.parametrize(
    "body",
    [
        {"decision": "APPROVE"},
        {"decision": " approve"},
        {"decision": "approve\u200b"},
        {"decision": True},
        {"decision": ["approve"]},
        {"decision": "approve", "digest": "0" * 64},
        {"decision": "approve", "digest": ""},
        {"decision": "approve", "by": "user:bob"},
        {"decision": "approve", "status": "approve", "votes": [{"by": "user:bob"}]},
        {"decision": "approve", "edits": {"amount": 1000000}},
        {"decision": "approve", "values": {"amount": 1000000}},
        {},
        [],
    ],
    ids=str,
)
def test_an_answer_that_says_anything_else_is_no_vote(server: ServerProcess, asked: dict[str, Any], body: Any) -> None:
    assert decide(server, asked["id"], body, ANN).status_code == 422
    assert votes(server, asked) == []


def over_hai(server: ServerProcess, thread: str, id: str, headers: dict[str, str]) -> httpx2.Response:
    messages = [{"id": unique("m"), "role": "tool", "toolCallId": id, "content": '{"decision":"approve"}'}]
    return posted(server, "/awp", thread, headers, messages=messages)


def over_agui(server: ServerProcess, thread: str, id: str, headers: dict[str, str]) -> httpx2.Response:
    resume = [{"interruptId": id, "status": "resolved", "payload": {"approved": True}}]
    return posted(server, "/ag-ui", thread, headers, messages=[], resume=resume, protocolVersion="1.0")


def posted(server: ServerProcess, path: str, thread: str, headers: dict[str, str], **body: Any) -> httpx2.Response:
    given = {"threadId": thread, "runId": unique("r"), "tools": [], **body}
    return httpx2.post(server.url + path, json=given, headers=headers, timeout=20)


def over_aui(server: ServerProcess, thread: str, id: str, headers: dict[str, str]) -> httpx2.Response:
    body = {"session_id": thread, "interrupt_id": id, "action": "approve"}
    return httpx2.post(f"{server.url}/api/aui/input", json=body, headers=headers)


def over_agent_api(server: ServerProcess, thread: str, id: str, headers: dict[str, str]) -> httpx2.Response:
    data = {"approval_request_id": id, "approve": True}
    said = {"id": unique("m"), "type": "mcp_approval_response", "content": [{"type": "data", "data": data}]}
    body = {"session_id": thread, "input": [said], "stream": False}
    return httpx2.post(f"{server.url}/process", json=body, headers=headers, timeout=20)


Door = Callable[[ServerProcess, str, str, dict[str, str]], httpx2.Response]
DOORS: Final[dict[str, Door]] = {"hai": over_hai, "agui": over_agui, "aui": over_aui, "agent-api": over_agent_api}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_no_protocol_lets_a_stranger_in(server: ServerProcess, asked: dict[str, Any], door: Door) -> None:
    answer = door(server, asked["thread"], asked["id"], EVE)
    assert (answer.status_code, answer.json()["code"]) == (403, "pending_forbidden")
    assert votes(server, asked) == []


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_who_may_answer_answers_nothing_from_another_thread(
    server: ServerProcess, asked: dict[str, Any], door: Door
) -> None:
    door(server, unique("elsewhere"), asked["id"], ANN)
    assert votes(server, asked) == []


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_one_person_is_one_vote_however_often_and_wherever_they_give_it(
    server: ServerProcess, asked: dict[str, Any], door: Door
) -> None:
    assert decide(server, asked["id"], YES, ANN).status_code == 200
    for headers in (ANN, {"HAI-Act-As": "user:ann,role:bob"}):
        decide(server, asked["id"], YES, headers)
        decide(server, asked["id"], {**YES, "reason": "again"}, headers)
        door(server, asked["thread"], asked["id"], headers)
    assert votes(server, asked) == ["user:ann"]


def strange_ids(id: str) -> dict[str, str]:
    flipped = id[:-1] + ("a" if id[-1] != "a" else "b")
    return {
        "another end": flipped,
        "upper case": id.upper(),
        "a space": id + "%20",
        "a null": id + "%00",
        "a newline": id + "%0a",
        "twice": f"{id}%2F{id}",
        "a way up": f"x%2F..%2F{id}",
        "a wildcard": "%25",
        "a quote": f"{id}'%20OR%20'1'='1",
        "very long": "a" * 5000,
    }


@pytest.mark.parametrize("which", strange_ids("x" * 60))
def test_an_id_that_is_nearly_one_is_none(server: ServerProcess, asked: dict[str, Any], which: str) -> None:
    expect(decide(server, strange_ids(asked["id"])[which], YES, ANN), 404, 405, 414, 422)
    assert votes(server, asked) == []


@pytest.mark.parametrize("how", ["stop", "terminate"])
def test_nothing_answers_what_is_decided_or_void(server: ServerProcess, asked: dict[str, Any], how: str) -> None:
    assert httpx2.post(f"{server.url}/v1/runs/{asked['run_id']}/{how}").status_code == 200
    for headers in (ANN, BOB):
        assert decide(server, asked["id"], YES, headers).status_code in (409, 410)
    assert httpx2.get(f"{server.url}/v1/runs/{asked['run_id']}").json()["output"] is None


def test_two_who_may_do_open_it_and_nobody_closes_it_again(server: ServerProcess, asked: dict[str, Any]) -> None:
    for headers in (ANN, BOB):
        assert decide(server, asked["id"], {**YES, "digest": asked["digest"]}, headers).status_code == 200
    assert decide(server, asked["id"], {"decision": "reject"}, ANN).status_code in (403, 409, 410)
    httpx2.get(f"{server.url}/v1/runs/{asked['run_id']}/events", headers={"Accept": "text/event-stream"}, timeout=20)
    assert httpx2.get(f"{server.url}/v1/runs/{asked['run_id']}").json()["output"] == "approve"
