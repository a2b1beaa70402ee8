"""AUI over real sockets."""

from __future__ import annotations

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.aui_client import AuiClient
from tests.support.hai_client import HaiClient, answer, unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving


def test_a_message_starts_a_run_and_its_end_ends_the_stream(server: ServerProcess) -> None:
    client = AuiClient(server.url, "weather", session_id=unique("s"), message="北京天气怎么样?")
    assert client.ended() == 1000
    assert client.types[0] == "aui_stream_start"
    assert client.types[-2:] == ["aui_run_finished", "aui_stream_end"]
    assert client.text() == "让我查一下北京今天晴天,25°C。"
    tools = [event for event in client.events if event["type"].startswith("aui_tool_call")]
    assert [event["type"].rpartition("_")[2] for event in tools] == ["start", "args", "end", "result"]
    assert isinstance(tools[1]["args_delta"], dict)
    assert client.events[-2]["outcome"] == "success"


def test_an_interrupt_is_answered_on_the_same_socket_and_the_run_goes_on(server: ServerProcess) -> None:
    session = unique("s")
    client = AuiClient(server.url, "cleanup", session_id=session, message="删除")
    asked = client.until("aui_interrupt")
    assert asked["payload"]["session_id"] == session
    finished = client.until("aui_run_finished")
    assert finished["outcome"] == "interrupt"
    own = {"interrupt_id", "reason", "required_action", "payload"}
    asked = [{name: event[name] for name in own} for event in client.events if event["type"] == "aui_interrupt"]
    assert finished["interrupts"] == asked
    assert asked
    client.send(type="input", session_id=session, action="answer", payload={"result": "confirmed"})
    assert client.until("aui_action_ack")["status"] == "accepted"
    assert client.ended() == 1000
    assert client.types.count("aui_run_started") == 2


@pytest.mark.parametrize(("action", "status"), [("approve", "approve"), ("reject", "reject")])
def test_a_decision_is_posted_as_an_input(server: ServerProcess, http: httpx2.Client, action: str, status: str) -> None:
    session = unique("s")
    client = AuiClient(server.url, "release", session_id=session, message="release")
    asked = client.until("aui_interrupt")
    assert action in [option["action"] for option in asked["payload"]["options"]]
    body = {
        "session_id": session, "interrupt_id": asked["interrupt_id"], "action": action, "payload": {"reason": "seen"},
    }  # fmt: skip
    assert http.post("/api/aui/input", json=body).json()["accepted"] is True
    assert http.get(f"/v1/pendings/{asked['interrupt_id']}").json()["status"] == status
    assert http.post("/api/aui/input", json=body).status_code == 200, "the same again changes nothing"
    other = {**body, "action": "approve" if action == "reject" else "reject"}
    assert http.post("/api/aui/input", json=other).status_code == 409


def test_who_comes_back_gets_snapshots_and_what_is_still_asked(server: ServerProcess) -> None:
    session = unique("s")
    first = AuiClient(server.url, "cleanup", session_id=session, message="删除")
    asked = first.until("aui_interrupt")
    first.close()
    again = AuiClient(server.url, "cleanup", session_id=session)
    shown = again.until("aui_interrupt")
    assert shown["interrupt_id"] == asked["interrupt_id"]
    assert {"aui_messages_snapshot", "aui_state_snapshot"} <= set(again.types)
    again.send(type="input", interrupt_id=asked["interrupt_id"], action="confirmed")
    assert again.ended() == 1000


def test_the_state_that_a_page_rebuilds_is_the_runs_own(server: ServerProcess, http: httpx2.Client) -> None:
    source = """
        hai: flow/v1
        name: aui_counting
        version: 1
        state:
          count: {type: integer, default: 0}
          log: {type: array, items: {type: string}, default: [], reduce: append}
        steps:
          - repeat: {max: 5, steps: [{set: {count: "${{ state.count + 1 }}", log: "n${{ index }}"}}]}
          - set: [{op: replace, path: /count, value: 42}]
    """
    assert http.post("/v1/workflows", content=source, headers=YAML).status_code in (200, 201)
    session = unique("s")
    client = AuiClient(server.url, "aui_counting", session_id=session, message="go")
    assert client.ended() == 1000
    run = http.get("/v1/runs", params={"thread_id": session}).json()["items"][0]
    assert client.state == http.get(f"/v1/runs/{run['id']}/snapshot").json()["state"]
    assert client.state["count"] == 42


def test_a_run_that_began_in_another_protocol_is_followed_and_answered(server: ServerProcess) -> None:
    hai = HaiClient(server.url, workflow="cleanup")
    call = hai.post(user("删除")).call_id("confirmAction")
    client = AuiClient(server.url, "interactive", session_id=hai.thread_id)
    assert client.until("aui_interrupt")["interrupt_id"] == call
    assert hai.post(answer(call, "confirmed")).status == 200
    assert client.ended() == 1000


def test_an_unknown_stream_type_is_told_and_closed(server: ServerProcess) -> None:
    client = AuiClient(server.url, "no_such_workflow")
    assert client.until("aui_error")["error_code"] == "INVALID_STREAM_TYPE"
    assert client.ended() == 4000


def test_wrong_inputs_are_refused_and_the_socket_stays(server: ServerProcess) -> None:
    client = AuiClient(server.url, "cleanup", session_id=unique("s"))
    for frame in ({"type": "input"}, {"type": "input", "session_id": "other"}, {"type": "input", "payload": 5}):
        client.send(**frame)
        assert client.until("aui_action_ack")["status"] == "refused"
    client.socket.send("not json")
    assert client.until("aui_action_ack")["error_code"] == "body.not_json"
    client.send(type="close")
    assert client.ended() == 1000


def test_a_page_of_another_site_gets_no_socket(server: ServerProcess) -> None:
    address = server.url.replace("http://", "ws://") + "/api/aui/ws/cleanup"
    with pytest.raises(InvalidStatus), connect(address, origin="https://evil.example"):  # type: ignore[arg-type]
        pass


def test_an_input_that_another_process_takes_wakes_the_run(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as one, serving(dsn) as other:
        session = unique("s")
        client = AuiClient(one.url, "cleanup", session_id=session, message="删除")
        asked = client.until("aui_interrupt")
        body = {"session_id": session, "interrupt_id": asked["interrupt_id"], "payload": {"result": "confirmed"}}
        assert httpx2.post(f"{other.url}/api/aui/input", json=body, timeout=20).status_code == 200
        assert client.ended() == 1000
        assert client.events[-2]["outcome"] == "success"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"session_id": "nobody"}, 422),
        ({"session_id": "nobody", "interrupt_id": "x"}, 404),
        ({"session_id": "nobody", "payload": 5}, 422),
    ],
)
def test_a_wrong_input_is_answered_by_a_problem(http: httpx2.Client, body: object, status: int) -> None:
    refused = http.post("/api/aui/input", json=body)
    assert refused.status_code == status
    assert refused.json()["code"]


@pytest.mark.parametrize(("option", "deleted"), [("yes", 15), ("no", 0)])
def test_a_page_that_knows_only_buttons_confirms_a_tools_call(
    server: ServerProcess, http: httpx2.Client, option: str, deleted: int
) -> None:
    """The demo is approved from an interrupt's options alone, as AUI's own banner does it."""
    session = unique("s")
    client = AuiClient(server.url, "cleanup", session_id=session, message="删除")
    asked = client.until("aui_interrupt")
    assert [each["action"] for each in asked["payload"]["options"]] == ["yes", "no"]
    client.send(type="input", action=option, interrupt_id=asked["interrupt_id"])
    assert client.until("aui_action_ack")["interrupt_id"] == asked["interrupt_id"]
    assert client.ended() == 1000
    (run,) = http.get("/v1/runs", params={"thread_id": session}).json()["items"]
    assert run["output"] == {"deleted": deleted}


@pytest.mark.parametrize("paused", [False, True])
def test_a_run_that_is_stopped_while_it_waits_ends_the_stream(
    server: ServerProcess, http: httpx2.Client, paused: bool
) -> None:
    session = unique("s")
    client = AuiClient(server.url, "release", session_id=session, message="release")
    client.until("aui_run_finished")
    (run,) = http.get("/v1/runs", params={"thread_id": session}).json()["items"]
    if paused:
        assert http.post(f"/v1/runs/{run['id']}/pause").status_code == 200
    assert http.post(f"/v1/runs/{run['id']}/stop", json={"reason": "enough"}).status_code == 200
    assert client.ended() == 1000
    assert client.types[-2:] == ["aui_run_finished", "aui_stream_end"]
    assert client.events[-2]["outcome"] == "cancelled"
    shown = {each["activity_id"]: each["status"] for each in client.events if each["type"] == "aui_activity_snapshot"}
    assert "running" not in shown.values()


def test_an_open_question_is_asked_again_in_the_turn_of_another_answer(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AuiClient(server.url, "release", session_id=unique("s"), message="release")
    one, other = client.until("aui_interrupt"), client.until("aui_interrupt")
    client.until("aui_run_finished")
    assert http.post(f"/v1/pendings/{one['interrupt_id']}/decide", json={"decision": "approve"}).status_code == 200
    client.until("aui_run_started")
    assert client.until("aui_interrupt")["interrupt_id"] == other["interrupt_id"]
    assert client.next()["type"] == "aui_run_finished"


def test_parameters_that_come_late_join_their_session(server: ServerProcess) -> None:
    """A tenth of a second is less than many a phone's way here and back."""
    session = unique("s")
    client = AuiClient(server.url, "cleanup")
    assert client.until("aui_stream_start")["session_id"] != session
    client.send(type="params", data={"session_id": session, "message": "删除"})
    assert client.until("aui_stream_start")["session_id"] == session
    assert client.until("aui_interrupt")["payload"]["session_id"] == session


def test_a_first_frame_that_is_no_parameters_is_taken_as_what_it_is(server: ServerProcess) -> None:
    client = AuiClient(server.url, "cleanup")
    client.send(type="ping")
    client.until("pong")
    spoken = AuiClient(server.url, "weather")
    spoken.send(type="input", payload={"message": "天气"})
    assert spoken.until("aui_action_ack")["status"] == "accepted"
    assert spoken.ended() == 1000
    closing = AuiClient(server.url, "cleanup")
    closing.send(type="close")
    assert closing.ended() == 1000


@pytest.mark.parametrize(
    ("frame", "code", "about"),
    [
        (b"\x00\xff", "body.not_json", "expected a text frame with JSON, found a binary one."),
        ("", "body.not_json", "expected a body of JSON"),
        ("[1]", "body.invalid", "expected a frame that is a JSON object."),
        ('{"type": "input", "payload": {"message": "\\ud800"}}', "body.invalid", "/payload/message: a lone surrogate"),
        ('{"type": "input", "payload": {"message": "\\u0000"}}', "body.invalid", "/payload/message: a NUL character"),
        ('{"type": "input", "payload": ' + "[" * 90 + "]" * 90 + "}", "body.too_large", "nested at most 64 deep"),
        ('{"type": "input", "payload": 0}', "body.invalid", "/payload: expected an object."),
        ('{"type": "input", "payload": {"message": 5}}', "body.invalid", "payload.message (text)"),
        (
            '{"type": "input", "payload": {"message": "a", "message_id": "a\\nb"}}',
            "body.invalid",
            "/payload/message_id",
        ),
        ('{"type": "params", "data": 5}', "body.invalid", "/data: expected an object."),
        ('{"type": "params", "data": {"session_id": 5}}', "body.invalid", "/data/session_id: expected text"),
        ('{"type": "bogus"}', "body.invalid", "/type: expected params, input, ping or close, found 'bogus'."),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_hostile_frame_is_refused_with_a_sentence_and_the_socket_stays(
    server: ServerProcess, frame: str | bytes, code: str, about: str, first: bool
) -> None:
    client = AuiClient(server.url, "cleanup")
    if not first:
        client.until("aui_stream_start")
    client.socket.send(frame)
    refused = client.until("aui_action_ack")
    assert (refused["status"], refused["error_code"]) == ("refused", code)
    assert about in refused["message"]
    client.send(type="ping")
    client.until("pong")


@pytest.mark.parametrize(
    "body",
    [
        {"session_id": "a\nb", "payload": {"message": "x"}},
        {"session_id": "s", "payload": {"message": "x", "message_id": "m" * 300}},
        {"session_id": "s", "payload": {"message": "x", "message_id": ["m"]}},
        {"session_id": "s", "payload": {"message": "x", "input": []}},
    ],
)
def test_an_input_with_what_can_be_no_id_is_refused(http: httpx2.Client, body: object) -> None:
    assert http.post("/api/aui/input", json=body).status_code == 422
