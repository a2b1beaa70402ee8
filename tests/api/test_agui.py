"""AG-UI over real sockets: conversations with people, in both profiles (docs/protocols/agui.md)."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx2
import pytest

from hai_flow.wire.dialects.agui_protobuf import encode_event
from tests.api.test_conversations import runs_of, snapshot
from tests.support.agui_client import AguiClient, cancelled, resolved
from tests.support.hai_client import HaiClient, answer, unique, user
from tests.support.server import YAML, ServerProcess
from tests.support.waiting import until

VERSIONS = pytest.mark.parametrize("version", ["1.0", "0"])

GATED = """
hai: flow/v1
name: agui_gated
version: 1
tools:
  files: {python: hai_flow.examples, effect: write}
steps:
  - id: delete
    call: files.delete_files
    with: {folder: tmp, count: 3}
    expose: true
    approval: {from: anyone, edit: [count]}
    catch:
      - errors: [approval.rejected]
        steps:
          - say: "Kept: ${{ error.message }}"
          - return: {deleted: 0}
  - say: "Deleted ${{ steps.delete.output.deleted }}."
  - return: {deleted: "${{ steps.delete.output.deleted }}"}
"""
HIDDEN = (
    GATED.replace("name: agui_gated", "name: hidden").replace("    expose: true\n", "").replace(", edit: [count]", "")
)
FORM = """
hai: flow/v1
name: agui_form
version: 1
steps:
  - id: data
    ask:
      title: Who?
      from: anyone
      form:
        type: object
        required: [name]
        properties: {name: {type: string}, urgent: {type: boolean, default: false}}
  - say: "Hello ${{ steps.data.output.name }}"
"""
MIXED = """
hai: flow/v1
name: mixed
version: 1
tools:
  pick: {frontend: {description: picks, parameters: {type: object}}}
steps:
  - parallel:
      a:
        - id: ask
          approve: {title: Sure?, from: anyone}
      b:
        - id: pick
          call: pick
          with: {}
  - say: both
"""
OTHERS = """
hai: flow/v1
name: others
version: 1
steps:
  - approve: {title: Sure?, from: [role:boss]}
"""
BRIEF = """
hai: flow/v1
name: brief
version: 1
steps:
  - approve: {title: Sure?, from: anyone, deadline: 1s, on_deadline: fail}
"""


@pytest.fixture(scope="module", autouse=True)
def workflows(server: ServerProcess) -> None:
    for text in (GATED, HIDDEN, FORM, MIXED, OTHERS, BRIEF):
        assert httpx2.post(f"{server.url}/v1/workflows", content=text, headers=YAML).status_code in (200, 201)


# --- one turn -----------------------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("path", ["/ag-ui", "/send-message"])
def test_a_chat_streams_text(server: ServerProcess, version: str, path: str) -> None:
    client = AguiClient(server.url, version=version, path=path)
    stream = client.post(user("hi"), run_id="r-1")
    assert len(stream.all("TEXT_MESSAGE_CONTENT")) > 2
    assert stream.text().endswith("as long as you like.")
    started, finished = stream.one("RUN_STARTED"), stream.one("RUN_FINISHED")
    assert (started["protocolVersion"], started["runId"], finished["runId"]) == ("1.0", "r-1", "r-1")
    assert "outcome" not in finished
    assert "input" not in started


@VERSIONS
def test_a_server_tool_is_shown_with_its_result(server: ServerProcess, version: str) -> None:
    stream = AguiClient(server.url, workflow="weather", version=version, path="/send-message").post(user())
    assert stream.one("TOOL_CALL_RESULT")["toolCallId"] == stream.call_id("get_weather")


@VERSIONS
def test_a_frontend_tool_ends_its_run_without_outcome_is_answered_once(
    server: ServerProcess, http: httpx2.Client, version: str
) -> None:
    client = AguiClient(server.url, workflow="cleanup", version=version)
    question = user("删除所有临时文件")
    stream = client.post(question, tools=("confirmAction",))
    call = stream.call_id("confirmAction")
    assert "outcome" not in stream.one("RUN_FINISHED")
    body = client.body(question, {**answer(call, '{"approved":true}'), "id": f"{call}:tool"}, tools=("confirmAction",))
    done = client.send(body)
    assert done.text() == "已删除 15 个临时文件。"
    assert call not in done.calls()
    assert not [event for event in done.all("TOOL_CALL_RESULT") if event["toolCallId"] == call]
    assert client.send(body).body == done.body
    assert client.post(question, answer(call, "no")).problem["code"] == "pending_decided"
    assert len(runs_of(http, client)) == 1


# --- interrupts ---------------------------------------------------------------------------------------------------


@VERSIONS
def test_two_approvals_are_two_interrupts_and_one_answer_leaves_the_other(
    server: ServerProcess, http: httpx2.Client, version: str
) -> None:
    client = AguiClient(server.url, workflow="release", version=version)
    first = client.post(user())
    both = first.interrupts()
    assert [each["reason"] for each in both] == ["confirmation", "confirmation"]
    assert all(("expiresAt" in each) == (version == "1.0") for each in both)
    assert both[0]["responseSchema"] == {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
        "required": ["approved"],
    }
    told = [event["value"]["id"] for event in first.all("CUSTOM") if event["name"] == "hai.pending"]
    assert told == ([] if version == "1.0" else [each["id"] for each in both])
    second = client.post(resume=[resolved(both[1], {"approved": True})])
    assert [each["id"] for each in second.interrupts()] == [both[0]["id"]]
    third = client.post(resume=[resolved(both[0], {"approved": True})])
    assert "is live at" in third.text()
    assert runs_of(http, client)[0]["status"] == "finished"


@pytest.mark.parametrize(
    ("entry", "released"),
    [
        (lambda asked: resolved(asked, True), True),
        (lambda asked: resolved(asked, "true"), True),
        (lambda asked: resolved(asked, {"approved": True, "reason": "fine"}), True),
        (lambda asked: resolved(asked, {"decision": "approve"}), True),
        (lambda asked: resolved(asked, False), False),
        (lambda asked: resolved(asked, {"approved": False, "reason": "no"}), False),
        (cancelled, False),
    ],
)
def test_every_spelling_of_an_answer_is_read(
    server: ServerProcess, http: httpx2.Client, entry: Any, released: bool
) -> None:
    client = AguiClient(server.url, workflow="release")
    both = client.post(user()).interrupts()
    stream = client.post(resume=[entry(asked) for asked in both])
    assert stream.status == 200
    assert runs_of(http, client)[0]["output"]["released"] is released


@pytest.mark.parametrize("payload", [(), (None,), (0,), ("",), ("perhaps",), ({},), ({"approved": 1},), ([True],)])
def test_whatever_is_no_clear_answer_is_refused_and_decides_nothing(
    server: ServerProcess, http: httpx2.Client, payload: tuple[Any, ...]
) -> None:
    client = AguiClient(server.url, workflow="release")
    both = client.post(user()).interrupts()
    before = snapshot(http, client)
    refused = client.post(resume=[resolved(both[0], *payload), resolved(both[1], True)])
    assert (refused.status, refused.problem["code"]) == (422, "answer.invalid")
    assert snapshot(http, client) == before


@VERSIONS
def test_a_form_is_an_interrupt_with_its_schema(server: ServerProcess, version: str) -> None:
    client = AguiClient(server.url, workflow="agui_form", version=version)
    (asked,) = client.post(user()).interrupts()
    assert asked["reason"] == "input_required"
    assert asked["responseSchema"]["required"] == ["name"]
    assert client.post(resume=[resolved(asked, {"urgent": True})]).status == 422
    assert client.post(resume=[resolved(asked, {"name": ""})]).text() == "Hello "


@VERSIONS
def test_a_gate_is_the_call_it_guards_with_its_result_in_the_resumed_run(
    server: ServerProcess, http: httpx2.Client, version: str
) -> None:
    client = AguiClient(server.url, workflow="agui_gated", version=version)
    stream = client.post(user())
    (asked,) = stream.interrupts()
    assert (asked["reason"], asked["toolCallId"]) == ("tool_call", stream.call_id("files.delete_files"))
    assert json.loads(stream.one("TOOL_CALL_ARGS")["delta"]) == {"folder": "tmp", "count": 3}
    edited = resolved(asked, {"approved": True, "editedArgs": {"folder": "tmp", "count": 2}})
    done = client.post(resume=[edited])
    assert done.calls() == []
    assert done.all("TOOL_CALL_ARGS") == done.all("TOOL_CALL_END") == []
    result = done.one("TOOL_CALL_RESULT")
    assert (result["toolCallId"], json.loads(result["content"])["deleted"]) == (asked["toolCallId"], 2)
    assert done.text() == "Deleted 2."
    messages = client.post().one("MESSAGES_SNAPSHOT")["messages"]
    assert [call["id"] for message in messages for call in message.get("toolCalls", ())] == [asked["toolCallId"]]
    assert [message["toolCallId"] for message in messages if message["role"] == "tool"] == [asked["toolCallId"]]
    assert client.post(resume=[edited]).status == 200
    other = client.post(resume=[resolved(asked, {"approved": True, "editedArgs": {"folder": "tmp", "count": 1}})])
    assert (other.status, other.problem["code"]) == (409, "pending_decided")


@VERSIONS
def test_a_gate_of_a_call_that_is_not_exposed_tells_the_decision_alone(server: ServerProcess, version: str) -> None:
    client = AguiClient(server.url, workflow="hidden", version=version)
    (asked,) = client.post(user()).interrupts()
    assert asked["responseSchema"]["required"] == ["approved"]
    done = client.post(resume=[resolved(asked, {"approved": True})])
    result = done.one("TOOL_CALL_RESULT")
    assert (result["toolCallId"], json.loads(result["content"])) == (asked["toolCallId"], {"decision": "approve"})
    assert done.text() == "Deleted 3."


@VERSIONS
def test_a_rejected_call_has_its_rejection_as_result(server: ServerProcess, version: str) -> None:
    client = AguiClient(server.url, workflow="agui_gated", version=version)
    (asked,) = client.post(user()).interrupts()
    done = client.post(resume=[resolved(asked, {"approved": False, "reason": "mine"})])
    assert json.loads(done.one("TOOL_CALL_RESULT")["content"]) == {"decision": "reject"}
    assert done.text() == "Kept: mine"


def test_copilotkit_answers_a_gate_under_the_same_run_id_by_tool_message(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url, workflow="agui_gated", version="0")
    question = user()
    first = client.body(question, run_id="same")
    (asked,) = client.send(first).interrupts()
    message = answer(asked["toolCallId"], '{"approved":true}')
    body = client.body(question, message, run_id="same", resume=[resolved(asked, {"approved": True})])
    done = client.send(body)
    assert done.text() == "Deleted 3."
    assert done.one("RUN_STARTED")["runId"] == done.one("RUN_FINISHED")["runId"] == "same"
    assert client.send(body).body == done.body
    assert client.send(first).interrupts() == [asked]  # a replay of what was then
    before = snapshot(http, client)
    context = {"context": [{"description": "a", "value": "b"}]}
    joined = client.send({**body, **context})  # the same answer again is no fault, and joins what followed
    assert joined.types[-2:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    for changed in (resolved(asked, {"approved": False}), {"interruptId": asked["id"], "status": "cancelled"}):
        late = client.send({**body, "resume": [changed]})
        assert (late.status, late.problem["code"]) == (409, "pending_decided")
        assert late.problem["winner"]["outcome"] == "approve"
    more = client.body(question, message, user(), run_id="same", resume=body["resume"])
    for reused in ({**body, **context, "resume": []}, {**first, **context}, more):
        other = client.send(reused)
        assert (other.status, other.problem["code"]) == (409, "run_id_reused")
    assert snapshot(http, client) == before
    assert len(runs_of(http, client)) == 1


def test_a_tool_message_alone_does_not_open_a_gate(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="agui_gated")
    (asked,) = client.post(user()).interrupts()
    before = snapshot(http, client)
    stream = client.post(answer(asked["toolCallId"], '{"approved":true}'))
    assert [each["id"] for each in stream.interrupts()] == [asked["id"]]
    assert snapshot(http, client) == before


@VERSIONS
def test_a_fresh_page_without_resume_gets_the_call_and_the_interrupt_again(
    server: ServerProcess, http: httpx2.Client, version: str
) -> None:
    client = AguiClient(server.url, workflow="agui_gated", version=version)
    question = user()
    (asked,) = client.post(question).interrupts()
    before = snapshot(http, client)
    for messages in ((), (question,)):
        stream = AguiClient(server.url, client.thread_id, version=version).post(*messages)
        held = [m for m in stream.one("MESSAGES_SNAPSHOT")["messages"] if m.get("toolCalls")]
        called = stream.calls() + [call["id"] for m in held for call in m["toolCalls"]]
        assert called == [asked["toolCallId"]]
        assert bool(stream.calls()) is not bool(messages), "only a page without any history is streamed the call"
        assert stream.interrupts() == [asked]
    assert snapshot(http, client) == before


def test_ids_that_nobody_knows_are_ignored_and_the_interrupt_stays(server: ServerProcess, http: httpx2.Client) -> None:
    client, victim = AguiClient(server.url, workflow="agui_gated"), AguiClient(server.url, workflow="agui_gated")
    (asked,), (foreign,) = client.post(user()).interrupts(), victim.post(user()).interrupts()
    before = snapshot(http, client), snapshot(http, victim)
    for made_up in ("int-1", foreign["id"], asked["toolCallId"], asked["id"].upper()):
        stream = client.post(resume=[resolved({"id": made_up}, True)])
        assert stream.interrupts() == [asked]
    assert (snapshot(http, client), snapshot(http, victim)) == before
    both = [resolved({"id": "int-1"}, True), resolved(asked, True)]
    assert client.post(resume=both).text() == "Deleted 3."


def test_an_answer_given_twice_is_the_same_and_another_is_refused(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="agui_gated")
    (asked,) = client.post(user()).interrupts()
    client.post(resume=[resolved(asked, {"approved": True})])
    before = snapshot(http, client)
    assert client.post(resume=[resolved(asked, True)]).status == 200
    refused = client.post(resume=[resolved(asked, False)])
    assert (refused.status, refused.problem["code"]) == (409, "pending_decided")
    assert snapshot(http, client) == before


def test_a_new_message_while_an_interrupt_is_open_is_refused(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="agui_gated")
    (asked,) = client.post(user()).interrupts()
    refused = client.post(user("hurry"))
    assert (refused.status, refused.problem["code"]) == (409, "thread_waiting")
    assert [each["id"] for each in refused.problem["winner"]["pendings"]] == [asked["id"]]


@VERSIONS
def test_a_frontend_tool_beside_an_approval_comes_first(server: ServerProcess, version: str) -> None:
    client = AguiClient(server.url, workflow="mixed", version=version)
    stream = client.post(user(), tools=("pick",))
    assert stream.interrupts() == []
    (asked,) = client.post(answer(stream.call_id("pick")), tools=("pick",)).interrupts()
    assert client.post(resume=[resolved(asked, True)]).text() == "both"
    without = AguiClient(server.url, workflow="mixed", version=version).post(user())
    assert [each["reason"] for each in without.interrupts()] == ["confirmation"]


@VERSIONS
def test_a_question_for_others_is_told_and_is_no_interrupt(server: ServerProcess, version: str) -> None:
    stream = AguiClient(server.url, workflow="others", version=version).post(user(), tools=("confirmAction",))
    assert stream.interrupts() == stream.calls() == []
    (told,) = [event["value"] for event in stream.all("CUSTOM") if event["name"] == "hai.pending"]
    assert (told["kind"], told["title"]) == ("approve", "Sure?")


@VERSIONS
def test_a_client_with_the_tool_for_it_is_handed_a_call(
    server: ServerProcess, http: httpx2.Client, version: str
) -> None:
    client = AguiClient(server.url, workflow="agui_gated", version=version)
    stream = client.post(user(), tools=("confirmAction",))
    call = stream.call_id("confirmAction")
    assert stream.interrupts() == []
    assert client.post(answer(call, '{"approved":true}'), tools=("confirmAction",)).text() == "Deleted 3."


def test_an_answer_may_say_what_it_was_given_to(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="agui_gated")
    (asked,) = client.post(user()).interrupts()
    shown = asked["metadata"]["hai"]["digest"]
    other = client.post(resume=[resolved(asked, {"approved": True, "digest": "0" * 64})])
    assert (other.status, other.problem["code"]) == (422, "answer.digest")
    assert client.post(resume=[resolved(asked, {"approved": True, "digest": shown})]).text() == "Deleted 3."


def test_a_thread_without_a_run_is_empty_as_of_now(server: ServerProcess) -> None:
    stream = AguiClient(server.url).post()
    assert stream.types == ["RUN_STARTED", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert abs(stream.events[0]["timestamp"] - time.time() * 1000) < 3_600_000


def test_what_hai_started_agui_answers_and_the_other_way_round(server: ServerProcess, http: httpx2.Client) -> None:
    hai = HaiClient(server.url, workflow="release")
    hai.post(user())
    agui = AguiClient(server.url, hai.thread_id)
    both = agui.post().interrupts()
    assert len(agui.post(resume=[resolved(both[0], True)]).interrupts()) == 1
    assert "is live at" in hai.post(answer(both[1]["id"], "true")).text()


def test_a_parent_run_that_is_the_newest_one_or_nobodys_says_nothing_new(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url, workflow="weather")
    client.post(user(), run_id="one")
    second = client.post(user(), run_id="two", parentRunId="one")
    assert second.one("RUN_STARTED")["parentRunId"] == "one"
    assert client.post(user(), parentRunId=unique("elsewhere")).status == 200
    assert len(runs_of(http, client)) == 3


def test_giving_up_what_expired_shows_what_became_of_it(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="brief")
    (asked,) = client.post(user()).interrupts()
    asyncio.run(until(lambda: runs_of(http, client)[0]["status"] == "failed"))
    shown = client.post(resume=[cancelled(asked)])
    assert shown.events[-1]["code"] == "approval.expired"
    refused = client.post(resume=[resolved(asked, True)])
    assert (refused.status, refused.problem["code"]) == (410, "pending_expired")


# --- binary -------------------------------------------------------------------------------------------------------

PROTO = "application/vnd.ag-ui.event+proto"


def test_a_peer_of_1_0_may_have_protobuf(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="weather")
    body = client.body(user())
    headers = {"Accept": f"{PROTO}, text/event-stream", "Content-Type": "application/json"}
    binary = httpx2.post(client.url, content=json.dumps(body), headers=headers, timeout=30)
    assert binary.headers["content-type"] == PROTO
    text = client.send(body)  # the same turn again
    data = binary.content
    for event in text.events:
        length = int.from_bytes(data[:4], "big")
        assert data[4 : 4 + length] == encode_event(event)
        data = data[4 + length :]
    assert data == b""


def test_an_older_peer_gets_text_whatever_it_accepts(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="weather", version="0", headers={"Accept": PROTO})
    assert client.post(user()).types[-1] == "RUN_FINISHED"


# --- the end ------------------------------------------------------------------------------------------------------


def test_a_stopped_run_is_cancelled_to_new_clients_and_aborted_to_old_ones(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url, workflow="agui_gated")
    client.post(user())
    assert http.post(f"/v1/runs/{runs_of(http, client)[0]['id']}/stop", json={"reason": "enough"}).status_code == 200
    assert client.post().one("RUN_FINISHED")["outcome"] == {"type": "cancelled"}
    old = AguiClient(server.url, client.thread_id, version="0").post()
    assert (old.events[-1]["code"], old.events[-1]["message"]) == ("abort", "enough")


@VERSIONS
@pytest.mark.parametrize(
    "resume", [{}, [1], [{"status": "resolved"}], [{"interruptId": "a"}], [{"interruptId": 1, "status": "done"}]]
)
def test_a_resume_that_is_none_is_refused(server: ServerProcess, version: str, resume: Any) -> None:
    refused = AguiClient(server.url, version=version).post(user(), resume=resume)
    assert (refused.status, refused.problem["code"]) == (422, "body.invalid")


def test_old_binary_parts_are_read_and_returned_in_each_clients_form(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="agui_form", version="0")
    parts = [
        {"type": "text", "text": "look"},
        {"type": "binary", "mimeType": "image/png", "data": "aGk=", "filename": "a.png"},
        {"type": "binary", "mimeType": "application/pdf", "url": "https://example.com/a.pdf"},
        {"type": "nonsense"},
    ]
    client.post(user(parts))
    old = client.post().one("MESSAGES_SNAPSHOT")["messages"][0]["content"]
    assert [part["type"] for part in old] == ["text", "binary", "binary", "text"]
    new = AguiClient(server.url, client.thread_id).post().one("MESSAGES_SNAPSHOT")["messages"][0]["content"]
    assert [part["type"] for part in new] == ["text", "image", "document", "text"]
    assert new[1]["source"] == {"type": "data", "value": "aGk=", "mimeType": "image/png"}


def test_an_unknown_thread_is_empty_and_stays_unknown(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url)
    stream = client.post(resume=[resolved({"id": unique("int")}, True)])
    assert stream.types == ["RUN_STARTED", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert runs_of(http, client) == []
