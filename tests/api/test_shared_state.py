"""The shared state that clients write and threads keep, over real sockets."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import HaiClient, unique, user
from tests.support.server import YAML, ServerProcess, expect

NOTES = """
hai: flow/v1
name: shared_notes
version: 1
state:
  notes: {type: array, items: {type: string}, default: [], client: true, keep: thread}
  count: {type: integer, default: 0, keep: thread}
  secret: {type: string, default: ours}
steps:
  - set: {/notes/-: "${{ thread.message }}", count: "${{ state.count + 1 }}"}
  - id: more
    if: thread.message == "ask"
    ask: {title: More?, from: anyone, form: {type: object, properties: {word: {type: string}}}}
"""
OTHER = NOTES.replace("shared_notes", "other_notes")


@pytest.fixture(scope="module", autouse=True)
def workflows(server: ServerProcess) -> None:
    for text in (NOTES, OTHER):
        expect(httpx2.post(f"{server.url}/v1/workflows", content=text, headers=YAML), 200, 201)


def state_of(http: httpx2.Client, thread_id: str) -> dict[str, Any]:
    """That of the thread's newest run."""
    run = http.get("/v1/runs", params={"thread_id": thread_id}).json()["items"][0]
    return http.get(f"/v1/runs/{run['id']}/snapshot").json()["state"]


def test_what_a_client_posts_counts_where_the_workflow_lets_it_write(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = HaiClient(server.url, workflow="shared_notes")
    client.post(user("b"), state={"notes": ["a"], "count": 40, "secret": "theirs"})
    assert state_of(http, client.thread_id) == {"notes": ["a", "b"], "count": 1, "secret": "ours"}


def test_a_thread_keeps_its_state_for_the_next_run_whoever_starts_it(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url, workflow="shared_notes")
    client.post(user("a"))
    client.post(user("b"), state=None)
    expect(http.post("/v1/runs", json={"workflow": "shared_notes", "thread_id": client.thread_id}), 201)
    assert state_of(http, client.thread_id) == {"notes": ["a", "b", ""], "count": 3, "secret": "ours"}
    alone = http.post("/v1/runs", json={"workflow": "shared_notes"}).json()
    assert state_of(http, alone["thread_id"])["count"] == 1


def test_another_workflow_keeps_nothing_of_it(server: ServerProcess, http: httpx2.Client) -> None:
    thread = unique("thread")
    AguiClient(server.url, workflow="shared_notes", thread_id=thread).post(user("a"))
    AguiClient(server.url, workflow="other_notes", thread_id=thread).post(user("b"))
    assert state_of(http, thread) == {"notes": ["b"], "count": 1, "secret": "ours"}


def test_a_branch_goes_on_with_what_there_was_at_its_turn(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="shared_notes")
    one, two = unique("run"), unique("run")
    client.post(user("a"), runId=one)
    client.post(user("b"), runId=two)
    client.post(user("c"), parentRunId=one)
    assert state_of(http, client.thread_id) == {"notes": ["a", "c"], "count": 2, "secret": "ours"}


def test_an_answer_brings_what_the_client_has_written_meanwhile(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="shared_notes")
    asked = client.post(user("ask"))
    (interrupt,) = asked.interrupts()
    wrong = client.post(resume=[resolved(interrupt, {"word": "x"})], state={"notes": [1]})
    assert (wrong.status, wrong.problem["code"]) == (422, "state.invalid")
    assert [each["path"] for each in wrong.problem["findings"]] == ["/state/notes/0"]
    answered = client.post(resume=[resolved(interrupt, {"word": "x"})], state={"notes": ["mine"]})
    assert answered.one("STATE_SNAPSHOT")["snapshot"]["notes"] == ["mine"]
    assert state_of(http, client.thread_id)["notes"] == ["mine"]


@pytest.mark.parametrize("posted", [[], "text", 5, True, {"notes": None, "": 1}, {"notes": {"a": []}}])
def test_a_state_of_any_form_is_taken_or_refused_in_a_sentence(server: ServerProcess, posted: Any) -> None:
    answered = AguiClient(server.url, workflow="shared_notes").post(user("a"), state=posted)
    assert answered.status == (422 if isinstance(posted, dict) else 200)
