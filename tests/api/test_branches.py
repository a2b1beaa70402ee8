"""`parentRunId`: a thread goes on from one of its earlier turns (docs/decisions/0017)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.support.agui_client import AguiClient, AguiStream, resolved
from tests.support.hai_client import HaiClient, answer, unique, user
from tests.support.server import ServerProcess

TRIP = """
hai: flow/v1
name: trip
version: 1
tools:
  files: {python: hai_flow.examples, effect: write}
steps:
  - say: Where to?
  - id: place
    ask: {title: Where?, from: anyone, form: {type: object, required: [name], properties: {name: {type: string}}}}
  - id: tidy
    call: files.delete_files
    with: {folder: "${{ steps.place.output.name }}", count: 1}
    undo: {call: files.delete_files, with: {folder: undone, count: 2}}
  - say: To ${{ steps.place.output.name }}. When?
  - id: day
    ask: {title: When?, from: anyone, form: {type: object, required: [name], properties: {name: {type: string}}}}
  - say: To ${{ steps.place.output.name }} on ${{ steps.day.output.name }}.
  - return: {place: "${{ steps.place.output.name }}", day: "${{ steps.day.output.name }}"}
"""
PICK = """
hai: flow/v1
name: pick_twice
version: 1
tools:
  pick: {frontend: {description: picks, parameters: {type: object, properties: {side: {type: string}}}, result: {type: string}}}
steps:
  - parallel:
      a: [{id: left, call: pick, with: {side: left}}]
      b: [{id: right, call: pick, with: {side: right}}]
  - say: "${{ steps.left.output }} and ${{ steps.right.output }}"
"""
TWO_VOTES = """
hai: flow/v1
name: two_votes
version: 1
steps:
  - id: first
    ask: {title: Ready?, from: anyone, form: {type: object, properties: {}}}
  - id: both
    approve: {title: Sure?, from: anyone, quorum: 2}
  - id: after
    ask: {title: And?, from: anyone, form: {type: object, properties: {}}}
"""


@pytest.fixture(scope="module", autouse=True)
def workflows(server: ServerProcess) -> None:
    for text in (TRIP, PICK, TWO_VOTES):
        published = httpx2.post(f"{server.url}/v1/workflows", content=text)
        assert published.status_code in (200, 201), published.text


def runs_of(http: httpx2.Client, client: AguiClient) -> list[dict[str, Any]]:
    """The thread's runs, oldest first."""
    return http.get("/v1/runs", params={"thread_id": client.thread_id}).json()["items"][::-1]


def events_of(http: httpx2.Client, run: dict[str, Any]) -> list[dict[str, Any]]:
    return http.get(f"/v1/runs/{run['id']}/events", headers={"Accept": "application/json"}).json()["items"]


def snapshot_of(http: httpx2.Client, run: dict[str, Any]) -> dict[str, Any]:
    return http.get(f"/v1/runs/{run['id']}/snapshot").json()


def shown(stream: AguiStream) -> list[Any]:
    """The messages of a snapshot: what was said, or which call it is."""
    return [
        [call["function"]["name"] for call in each["toolCalls"]] if each.get("toolCalls") else each.get("content")
        for each in stream.one("MESSAGES_SNAPSHOT")["messages"]
    ]


def test_an_answer_is_given_differently(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="trip")
    hello = user("hello")
    (where,) = client.post(hello, run_id="t1").interrupts()
    (when,) = client.post(hello, run_id="t2", resume=[resolved(where, {"name": "Rome"})]).interrupts()
    branch = client.post(hello, run_id="t3", parentRunId="t1", resume=[resolved(where, {"name": "Paris"})])
    assert branch.one("RUN_STARTED")["parentRunId"] == "t1"
    (again,) = branch.interrupts()
    assert again["id"] != when["id"]
    first, fork = runs_of(http, client)
    assert (first["status"], fork["status"]) == ("stopped", "waiting")
    assert client.post(resume=[resolved(again, {"name": "Monday"})]).text() == "To Paris on Monday."
    assert snapshot_of(http, fork)["output"] == {"place": "Paris", "day": "Monday"}
    thread = client.post()
    print(json.dumps(thread.one("MESSAGES_SNAPSHOT"), indent=1))
    assert shown(thread) == ["hello", "Where to?", "To Paris. When?", "To Paris on Monday."]
