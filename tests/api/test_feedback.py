"""Threads, what was said in them, and what people think of it: over real sockets, in the shapes that OpenAPI says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine.state.ids import pending_id
from tests.api.test_bad_input import ANYTHING, BODIES, BOUNDED, JSON, TEXTS, some
from tests.api.test_rest import FAILING, Checked, code, http, start, wait_for_end, wait_for_pendings
from tests.support.agui_client import AguiClient, resolved
from tests.support.examples import sample
from tests.support.hai_client import HaiClient, answer, unique, user
from tests.support.postgres import Server, connecting, fetch, run_apart
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

__all__ = ["http"]

UP = {"rating": "up"}
NOBODY = "01900000-0000-7000-8000-000000000000"
TALK = b"""
hai: flow/v1
name: talk
version: 1
tools: {fx: {python: tests.support.effects, effect: read}}
steps: [{id: answer, call: fx.text, with: {words: 5}, stream: text}]
"""


def talking(server: ServerProcess, thread_id: str) -> HaiClient:
    """Somebody in a thread whose workflow answers at once, where that of the examples speaks as slowly as a model."""
    assert httpx2.post(server.url + "/v1/workflows", content=TALK, headers=YAML).status_code in (200, 201)
    return HaiClient(server.url, thread_id, workflow="talk")


def chat(server: ServerProcess, *texts: str, thread_id: str | None = None) -> str:
    """A thread in which each text was answered."""
    client = talking(server, thread_id or unique("thread"))
    for text in texts or ("hello",):
        assert client.post(user(text)).types[-1] == "RUN_FINISHED"
    return client.thread_id


def messages(http: httpx2.Client, thread_id: str) -> list[dict[str, Any]]:
    return http.get(f"/v1/threads/{thread_id}/messages").json()["items"]


def said(http: httpx2.Client, thread_id: str, role: str = "assistant") -> str:
    """The path of the feedback on the last message of a role."""
    id = [each["id"] for each in messages(http, thread_id) if each["role"] == role][-1]
    return f"/v1/threads/{thread_id}/feedback/messages/{id}"


def given_in(http: httpx2.Client, thread_id: str) -> list[dict[str, Any]]:
    return http.get(f"/v1/threads/{thread_id}/feedback").json()["items"]


# --- threads ------------------------------------------------------------------------------------------------------


def test_a_thread_is_where_its_newest_run_is_and_shows_its_runs(server: ServerProcess, http: Checked) -> None:
    thread_id = chat(server, "one", "two")
    thread = http.get(f"/v1/threads/{thread_id}").json()
    newest, oldest = thread["runs"]
    assert thread["runs"] == http.get("/v1/runs", params={"thread_id": thread_id}).json()["items"]
    assert (thread["id"], thread["run_id"], thread["workflow"]) == (thread_id, newest["id"], "talk")
    assert (thread["status"], thread["created_at"]) == ("finished", oldest["created_at"])
    assert thread["updated_at"] >= newest["created_at"]
    listed = next(each for each in http.get("/v1/threads").json()["items"] if each["id"] == thread_id)
    assert listed == {name: value for name, value in thread.items() if name != "runs"}


@pytest.mark.costly
def test_threads_come_in_pages_without_gap_and_none_twice_while_they_go_on(database_url: str) -> None:
    with serving(database_url) as server, Checked(server.url) as http:
        expected = [start(http, "weather", thread_id=unique("thread"))["thread_id"] for _ in range(9)]
        last = chat(server)
        seen: list[str] = []
        page: dict[str, Any] = {"next_cursor": None}
        while not seen or page["next_cursor"]:
            cursor = {} if not seen else {"cursor": page["next_cursor"]}
            page = http.get("/v1/threads", params={"limit": 2, **cursor}).json()
            seen += [each["id"] for each in page["items"]]
            chat(server, thread_id=last)  # it moves to the front
    assert seen == [last, *expected[::-1]]


def test_the_messages_of_a_thread_are_what_was_said_in_their_order(server: ServerProcess, http: Checked) -> None:
    thread_id = unique("thread")
    client = HaiClient(server.url, thread_id, workflow="cleanup")
    asked = user([{"type": "text", "text": "删除"}])
    call = client.post(asked, tools=("confirmAction",)).call_id("confirmAction")
    before = messages(http, thread_id)
    assert [(each["role"], each["kind"]) for each in before] == [
        ("user", "text"), ("assistant", "text"), ("tool", "call"),
    ]  # fmt: skip
    assert (before[0]["id"], before[0]["content"]) == (asked["id"], [{"type": "text", "text": "删除"}])
    assert (before[2]["id"], before[2]["content"]) == (call, None)
    client.post(answer(call))
    after = messages(http, thread_id)
    assert after[:2] == before[:2]
    assert after[2]["call"] == {
        "name": "confirmAction",
        "arguments": before[2]["call"]["arguments"],
        "executor": "frontend",
        "error": None,
    }
    assert json.loads(after[2]["call"]["arguments"]) == {"action": "删除临时文件", "count": 15}
    assert after[2]["content"] == "confirmed"
    assert after[-1]["content"] == "已删除 15 个临时文件。"
    (run,) = http.get(f"/v1/threads/{thread_id}").json()["runs"]
    assert {each["run_id"] for each in after} == {run["id"]}
    for each in after:
        event = http.get(f"/v1/runs/{run['id']}/events", params={"after": each["seq"] - 1, "limit": 1}).json()
        assert event["items"][0]["seq"] == each["seq"]


def test_the_messages_of_a_thread_come_in_pages(server: ServerProcess, http: Checked) -> None:
    thread_id = chat(server, "one", "two", "three")
    path = f"/v1/threads/{thread_id}/messages"
    whole = messages(http, thread_id)
    assert [each["role"] for each in whole] == ["user", "assistant"] * 3
    for limit in (1, 2, 4, 6):
        page = http.get(path, params={"limit": limit}).json()
        seen = page["items"]
        while page["next_cursor"]:
            page = http.get(path, params={"limit": limit, "cursor": page["next_cursor"]}).json()
            assert page["items"]
            seen += page["items"]
        assert seen == whole


def test_a_thread_that_has_said_nothing_has_no_messages_and_no_feedback(http: Checked) -> None:
    http.post("/v1/workflows", content=FAILING.format(name="silent"), headers=YAML)
    run = wait_for_end(http, start(http, "silent", thread_id=unique("thread"))["id"])
    for path in ("messages", "feedback"):
        assert http.get(f"/v1/threads/{run['thread_id']}/{path}").json() == {"items": [], "next_cursor": None}


# --- feedback -----------------------------------------------------------------------------------------------------


def test_a_message_is_rated_rated_anew_and_its_rating_is_withdrawn(server: ServerProcess, http: Checked) -> None:
    thread_id = chat(server)
    path = said(http, thread_id)
    assert code(http.get(path)) == (404, "feedback_unknown")
    shown = expect(http.put(path, json=UP), 201).json()
    message = next(each for each in messages(http, thread_id) if each["role"] == "assistant")
    assert {name: shown[name] for name in ("thread_id", "kind", "subject_id", "run_id", "by", "via")} == {
        "thread_id": thread_id,
        "kind": "message",
        "subject_id": message["id"],
        "run_id": message["run_id"],
        "by": "user:local",
        "via": "rest",
    }
    assert (shown["rating"], shown["comment"], shown["labels"]) == ("up", None, [])
    again = http.put(path, json=UP)
    assert (again.status_code, again.json()) == (200, shown)
    other = http.put(path, json={"rating": 2, "comment": "Zu lang.\nUnd falsch.", "labels": ["facts", "tone", "facts"]})
    assert other.status_code == 200
    stands = other.json()
    assert (stands["rating"], stands["comment"], stands["labels"]) == (2, "Zu lang.\nUnd falsch.", ["facts", "tone"])
    assert (stands["id"], stands["created_at"]) == (shown["id"], shown["created_at"])
    assert stands["updated_at"] >= shown["updated_at"]
    assert http.get(path).json() == stands
    assert given_in(http, thread_id) == [stands]
    assert [http.delete(path).status_code for _ in range(2)] == [204, 204]
    assert code(http.get(path)) == (404, "feedback_unknown")
    assert given_in(http, thread_id) == []


def test_feedback_with_any_content_returns_as_it_was_given(server: ServerProcess, http: Checked) -> None:
    bodies = [
        *({"rating": rating} for rating in ("up", "down", 1, 2, 3, 4, 5)),
        {"comment": "x" * 10_000}, {"labels": ["a" * 100]}, {"rating": None, "comment": "é\n\u202e\U0001f600"},
    ]  # fmt: skip
    path = said(http, chat(server))
    for body in bodies:
        shown = http.put(path, json=body).json()
        assert {name: shown[name] for name in ("rating", "comment", "labels")} == {
            "rating": None, "comment": None, "labels": [], **body,
        }  # fmt: skip


def test_a_decision_is_rated_once_there_is_one(http: Checked) -> None:
    run = start(http, "release", thread_id=unique("thread"))
    pendings = [each["id"] for each in wait_for_pendings(http, run["id"], 2)]
    paths = [f"/v1/threads/{run['thread_id']}/feedback/pendings/{id}" for id in pendings]
    assert [code(http.put(path, json=UP)) for path in paths] == [(409, "pending_open")] * 2
    assert [http.delete(path).status_code for path in paths] == [204, 204]
    assert given_in(http, run["thread_id"]) == []
    http.post(f"/v1/pendings/{pendings[0]}/decide", json={"decision": "approve"})
    rated = expect(http.put(paths[0], json={"rating": "down", "comment": "too early"}), 201)
    assert (rated.json()["kind"], rated.json()["subject_id"]) == ("pending", pendings[0])
    assert rated.json()["run_id"] == run["id"]
    assert code(http.put(paths[1], json=UP)) == (409, "pending_open")
    http.post(f"/v1/pendings/{pendings[1]}/decide", json={"decision": "reject"})
    assert http.put(paths[1], json={"rating": 5}).status_code == 201
    assert [each["subject_id"] for each in given_in(http, run["thread_id"])] == pendings[::-1]


def test_what_was_never_decided_can_be_rated_when_it_is_over(http: Checked) -> None:
    run = start(http, thread_id=unique("thread"))
    (pending,) = wait_for_pendings(http, run["id"])
    http.post(f"/v1/runs/{run['id']}/terminate")
    path = f"/v1/threads/{run['thread_id']}/feedback/pendings/{pending['id']}"
    assert http.put(path, json={"comment": "nobody was asked"}).status_code == 201


def test_a_call_is_rated_as_a_transcript_entry_and_a_question_as_pending(server: ServerProcess, http: Checked) -> None:
    client = HaiClient(server.url, workflow="cleanup")
    call = client.post(user("删除"), tools=("confirmAction",)).call_id("confirmAction")
    client.post(answer(call))
    assert http.put(said(http, client.thread_id, "tool"), json=UP).status_code == 201
    for kind, rating in (("messages", "up"), ("pendings", "down")):
        http.put(f"/v1/threads/{client.thread_id}/feedback/{kind}/{call}", json={"rating": rating})
    stands = {(each["kind"], each["subject_id"]): each["rating"] for each in given_in(http, client.thread_id)}
    assert stands[("message", call)] == "up"
    assert stands[("pending", call)] == "down"


def test_the_ids_that_a_stream_shows_are_those_that_are_rated(server: ServerProcess, http: Checked) -> None:
    hai = HaiClient(server.url, workflow="weather")
    told = hai.post(user())
    shown = {event["messageId"] for event in told.all("BUSINESS_DATA_START")} | {told.call_id("get_weather")}
    agui = AguiClient(server.url, workflow="release")
    asked = agui.post(user())
    for id in shown:
        assert http.put(f"/v1/threads/{hai.thread_id}/feedback/messages/{id}", json=UP).status_code == 201
    (message,) = {event["messageId"] for event in asked.all("TEXT_MESSAGE_START")}
    assert http.put(f"/v1/threads/{agui.thread_id}/feedback/messages/{message}", json=UP).status_code == 201
    interrupts = asked.interrupts()
    agui.post(resume=[resolved(each, {"decision": "approve"}) for each in interrupts])
    for each in interrupts:
        path = f"/v1/threads/{agui.thread_id}/feedback/pendings/{each['id']}"
        assert http.put(path, json={"rating": 3}).status_code == 201


CHILD = """
hai: flow/v1
name: asking_child
version: 1
steps:
  - say: I am a child.
  - id: sure
    approve: {title: Sure?, from: anyone}
"""
PARENT = """
hai: flow/v1
name: parent_of_asking
version: 1
steps:
  - {id: child, run: asking_child@1}
  - say: It is done.
"""


async def test_what_a_child_run_said_and_asked_is_of_its_parents_thread(http: Checked) -> None:
    for source in (CHILD, PARENT):
        assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201
    thread_id = unique("thread")
    parent = start(http, "parent_of_asking", thread_id=thread_id)

    def others() -> list[dict[str, Any]]:
        return [each for each in http.get(f"/v1/threads/{thread_id}").json()["runs"] if each["id"] != parent["id"]]

    (child,) = await until(others)
    (pending,) = wait_for_pendings(http, child["id"])
    path = f"/v1/threads/{thread_id}/feedback/pendings/{pending['id']}"
    assert code(http.put(path, json=UP)) == (409, "pending_open")
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"})
    wait_for_end(http, parent["id"])
    assert http.put(path, json=UP).json()["run_id"] == child["id"]
    assert http.get(f"/v1/threads/{thread_id}").json()["run_id"] == parent["id"], "a child is nobody's last run"
    for message in messages(http, thread_id):
        path = f"/v1/threads/{thread_id}/feedback/messages/{message['id']}"
        assert http.put(path, json=UP).json()["run_id"] == message["run_id"]
    assert {each["run_id"] for each in given_in(http, thread_id)} == {parent["id"], child["id"]}


def test_rating_moves_no_run_and_is_no_event(http: Checked) -> None:
    run = wait_for_end(http, start(http, "weather", thread_id=unique("thread"))["id"])
    before = http.get(f"/v1/runs/{run['id']}/events").json()
    assert http.put(said(http, run["thread_id"]), json=UP).status_code == 201
    assert http.get(f"/v1/runs/{run['id']}").json() == run
    assert http.get(f"/v1/runs/{run['id']}/events").json() == before


def test_everybody_has_an_opinion_of_their_own_and_takes_back_no_others(server: ServerProcess, http: Checked) -> None:
    thread_id = chat(server)
    path = said(http, thread_id)
    ann, bob = ({"HAI-Act-As": f"user:{name}"} for name in ("ann", "bob"))
    http.put(path, json={"rating": "up"}, headers=ann)
    http.put(path, json={"rating": "down"}, headers=bob)
    assert [(each["by"], each["rating"], each["via"]) for each in given_in(http, thread_id)] == [
        ("user:bob", "down", "rest (act as)"),
        ("user:ann", "up", "rest (act as)"),
    ]
    assert code(http.get(path)) == (404, "feedback_unknown")
    assert http.get(path, headers=ann).json()["rating"] == "up"
    http.delete(path)
    http.delete(path, headers=bob)
    assert [each["by"] for each in given_in(http, thread_id)] == ["user:ann"]


def test_many_tabs_of_one_person_leave_one_opinion(server: ServerProcess, http: Checked) -> None:
    thread_id = chat(server)
    path = said(http, thread_id)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: http.put(path, json={"rating": n % 5 + 1}), range(8)))
    assert sorted(each.status_code for each in answers) == [200] * 7 + [201]
    assert len({each.json()["id"] for each in answers}) == 1
    (stands,) = given_in(http, thread_id)
    assert stands in [each.json() for each in answers]


def test_feedback_comes_newest_first_in_pages(server: ServerProcess, http: Checked) -> None:
    thread_id = chat(server, "one", "two", "three")
    ids = [each["id"] for each in messages(http, thread_id)]
    for id in ids:
        http.put(f"/v1/threads/{thread_id}/feedback/messages/{id}", json=UP)
    seen: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not seen or page["next_cursor"]:
        cursor = {} if not seen else {"cursor": page["next_cursor"]}
        page = http.get(f"/v1/threads/{thread_id}/feedback", params={"limit": 4, **cursor}).json()
        seen += [each["subject_id"] for each in page["items"]]
    assert seen == ids[::-1]


def test_messages_keep_the_ids_that_clients_gave_them(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.url) as plain:
        for id in ("a/b", "a/../b", "/", "%2F", "?x=1#y", "é\u202e", "x" * 200, "\U0001f600" * 200, " "):
            client = talking(server, unique("thread") + " é?#%")
            client.post(user("hello", id))
            thread, subject = quote(client.thread_id, safe=""), quote(id, safe="")
            path = f"/v1/threads/{thread}/feedback/messages/{subject}"
            rated = plain.put(path, json=UP)
            assert (rated.status_code, rated.json().get("subject_id")) == (201, id), rated.text
            assert plain.get(path).json() == rated.json()
            assert plain.delete(path).status_code == 204


# --- what is refused ----------------------------------------------------------------------------------------------


def test_what_is_not_there_is_404(server: ServerProcess, http: Checked) -> None:
    thread_id, another = chat(server), chat(server)
    unknown = pending_id(NOBODY, "x", 0)
    theirs = said(http, another).rpartition("/")[2]
    run = start(http, thread_id=unique("thread"))
    (pending,) = wait_for_pendings(http, run["id"])
    for path in ("", "/messages", "/feedback"):
        assert code(http.get(f"/v1/threads/{unique('nothing')}{path}")) == (404, "thread_unknown")
        assert code(http.get(f"/v1/threads/{NOBODY}{path}")) == (404, "thread_unknown")
    for thread, kind, id, expected in (
        (unique("nothing"), "messages", theirs, "thread_unknown"),
        (unique("nothing"), "pendings", pending["id"], "thread_unknown"),
        (thread_id, "messages", theirs, "message_unknown"),
        (thread_id, "messages", unknown, "message_unknown"),
        (thread_id, "messages", "x", "message_unknown"),
        (thread_id, "pendings", pending["id"], "pending_unknown"),
        (thread_id, "pendings", unknown, "pending_unknown"),
        (thread_id, "pendings", "x", "pending_unknown"),
        (run["thread_id"], "pendings", pending["id"] + "0", "pending_unknown"),
    ):
        path = f"/v1/threads/{thread}/feedback/{kind}/{id}"
        for response in (http.put(path, json=UP), http.get(path), http.delete(path)):
            assert code(response) == (404, expected), path
    assert given_in(http, thread_id) == []


NO_FEEDBACK: Final[list[tuple[dict[str, Any], str]]] = [
    ({}, "feedback.empty"),
    ({"rating": None}, "feedback.empty"),
    ({"comment": "", "labels": []}, "feedback.empty"),
    ({"rating": "UP"}, "request.invalid"),
    ({"rating": "5"}, "request.invalid"),
    ({"rating": True}, "request.invalid"),
    ({"rating": 0}, "request.invalid"),
    ({"rating": 6}, "request.invalid"),
    ({"rating": 4.5}, "request.invalid"),
    ({"rating": ["up"]}, "request.invalid"),
    ({"rating": {}}, "request.invalid"),
    ({"comment": 1}, "request.invalid"),
    ({"comment": "x" * 10_001}, "request.invalid"),
    ({"comment": "a\x00b"}, "request.invalid"),
    ({"comment": "\ud800"}, "request.invalid"),
    ({"labels": "tone"}, "request.invalid"),
    ({"labels": [""]}, "request.invalid"),
    ({"labels": [1]}, "request.invalid"),
    ({"labels": ["a\nb"]}, "request.invalid"),
    ({"labels": ["a\x00"]}, "request.invalid"),
    ({"labels": ["x" * 101]}, "request.invalid"),
    ({"labels": [f"l{n}" for n in range(21)]}, "request.invalid"),
    ({"rating": "up", "by": "user:eve"}, "request.invalid"),
    ({"rating": "up", "subject_id": "x"}, "request.invalid"),
]


def test_what_is_no_feedback_is_refused_and_leaves_what_was_said(server: ServerProcess, http: Checked) -> None:
    path = said(http, chat(server))
    stands = http.put(path, json=UP).json()
    for body, expected in NO_FEEDBACK:
        refused = http.put(path, content=json.dumps(body), headers=JSON)
        assert refused.status_code == 422, body
        if expected == "feedback.empty":
            assert refused.json()["code"] == expected, body
        else:
            assert refused.json()["findings"], body
        assert http.get(path).json() == stands, body


def test_a_bad_body_is_refused(server: ServerProcess, http: Checked) -> None:
    path = said(http, chat(server))
    for name, body in BODIES.items():
        assert http.put(path, content=body, headers=JSON).status_code in (400, 413, 422), name
        assert http.put(path, content=body).status_code == 415, name
        assert http.put(path, content=body, headers={"content-type": "text/plain"}).status_code == 415, name


def test_a_body_that_is_too_large_is_refused(server: ServerProcess, http: Checked) -> None:
    path = said(http, chat(server))
    assert code(http.put(path, json={"comment": "x" * (1 << 20)})) == (413, "body.too_large")


@pytest.mark.parametrize("text", sample(TEXTS, 4))
def test_strange_ids_and_cursors_are_refused_as_problems(server: ServerProcess, text: str) -> None:
    thread_id = chat(server)
    with httpx2.Client(base_url=server.url) as plain:
        quoted = quote(text, errors="surrogatepass", safe="")
        for path in (
            f"/v1/threads/x{quoted}",
            f"/v1/threads/x{quoted}/messages",
            f"/v1/threads/x{quoted}/feedback",
            f"/v1/threads/x{quoted}/feedback/messages/x",
            f"/v1/threads/{thread_id}/feedback/messages/x{quoted}",
            f"/v1/threads/{thread_id}/feedback/pendings/x{quoted}",
            f"/v1/threads/{thread_id}/feedback/pendings/{pending_id(NOBODY, 'x', 0)}{quoted}",
            f"/v1/threads/{thread_id}/feedback/messages/",
            f"/v1/threads/{thread_id}/feedback/x{quoted}/x",
        ):
            responses = [plain.get(path)]
            if "/feedback/" in path:
                responses += [plain.put(path, json=UP), plain.delete(path)]
            for response in responses:
                assert response.status_code in (404, 422), (path, response.text)
                assert response.headers["content-type"] == "application/problem+json"
        for path in ("/v1/threads", f"/v1/threads/{thread_id}/messages", f"/v1/threads/{thread_id}/feedback"):
            for name in ("cursor", "limit"):
                assert plain.get(f"{path}?{name}={quoted}").status_code in (400, 422), (path, name)


def test_page_cursors_that_no_page_returned_are_refused(server: ServerProcess, http: Checked) -> None:
    thread_id, another = chat(server), chat(server)
    elsewhere = http.get(f"/v1/threads/{another}/messages", params={"limit": 1}).json()["next_cursor"]
    made_up = [base64.urlsafe_b64encode(text.encode()).decode().rstrip("=") for text in ("1\nx", f"9\n{NOBODY}x", "1")]
    for cursor in ("x", "====", *made_up):
        for path in ("/v1/threads", f"/v1/threads/{thread_id}/messages", f"/v1/threads/{thread_id}/feedback"):
            assert code(http.get(path, params={"cursor": cursor})) == (400, "cursor.invalid"), (path, cursor)
    assert code(http.get(f"/v1/threads/{thread_id}/messages", params={"cursor": elsewhere})) == (400, "cursor.invalid")


def test_other_methods_are_refused(server: ServerProcess) -> None:
    thread_id = chat(server)
    with httpx2.Client(base_url=server.url) as plain:
        for path in (f"/v1/threads/{thread_id}", f"/v1/threads/{thread_id}/messages", "/v1/threads"):
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert plain.request(method, path).status_code == 405, (method, path)
        subject = f"/v1/threads/{thread_id}/feedback/messages/x"
        for method in ("POST", "PATCH"):
            assert plain.request(method, subject, json=UP).status_code == 405


@pytest.fixture(scope="module")
def judged(server: ServerProcess) -> str:
    """The path of the feedback on a message."""
    with httpx2.Client(base_url=server.url) as plain:
        return said(plain, chat(server))


@BOUNDED
@given(some("rating", "comment", "labels") | ANYTHING)
def test_no_feedback_is_a_fault(http: Checked, judged: str, body: Any) -> None:
    expect(http.put(judged, content=json.dumps(body).encode(), headers=JSON), 200, 201, 400, 422)


IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text("./%", max_size=8)


@pytest.fixture(scope="module")
def plain(server: ServerProcess) -> Iterator[httpx2.Client]:
    """A client that sends any path."""
    with httpx2.Client(base_url=server.url) as client:
        yield client


@BOUNDED
@given(IDS, IDS, st.sampled_from(["messages", "pendings"]))
def test_no_path_is_a_fault(plain: httpx2.Client, thread_id: str, subject_id: str, kind: str) -> None:
    thread, subject = quote(thread_id, safe=""), quote(subject_id, safe="")
    for path in (f"/v1/threads/{thread}", f"/v1/threads/{thread}/feedback/{kind}/{subject}"):
        assert plain.get(path).status_code in (200, 404, 422), path
        assert plain.put(path, json=UP).status_code in (404, 405, 422), path


# --- whose it is --------------------------------------------------------------------------------------------------


def test_a_thread_of_another_tenant_is_as_one_that_there_is_not(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as process, Checked(process.url) as http:
        thread_id, nothing = chat(process), "nothing"
        run = start(http, thread_id="asked")
        (pending,) = wait_for_pendings(http, run["id"])
        http.post(f"/v1/pendings/{pending['id']}/decide", json={"result": True})
        wait_for_end(http, run["id"])
        message = said(http, thread_id).rpartition("/")[2]
        subjects = [(thread_id, f"messages/{message}"), ("asked", f"pendings/{pending['id']}")]
        for thread, subject in subjects:
            assert http.put(f"/v1/threads/{thread}/feedback/{subject}", json=UP).status_code == 201
        run_apart(_give_away(dsn))
        assert http.get("/v1/threads").json() == {"items": [], "next_cursor": None, "missing": []}
        for thread, subject in subjects:
            for path in ("", "/messages", "/feedback"):
                theirs, none = (http.get(f"/v1/threads/{each}{path}") for each in (thread, nothing))
                assert code(theirs) == code(none) == (404, "thread_unknown")
                assert theirs.json()["detail"] == none.json()["detail"].replace(nothing, thread)
            for method in ("GET", "PUT", "DELETE"):
                body = {"rating": 1} if method == "PUT" else None
                refused = http.request(method, f"/v1/threads/{thread}/feedback/{subject}", json=body)
                assert code(refused) == (404, "thread_unknown")
        assert [row[0] for row in run_apart(fetch(dsn, "SELECT rating FROM feedback"))] == ["up", "up"]


async def _give_away(dsn: str) -> None:
    """Make all that there is another tenant's."""
    async with connecting(dsn) as connection:
        for table in ("runs", "messages", "pendings", "turns", "log", "feedback"):
            await connection.execute(f"UPDATE {table} SET tenant = gen_random_uuid()")
