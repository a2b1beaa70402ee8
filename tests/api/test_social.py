"""A thread as one stream, over real sockets: across turns and runs, after every event, and with its history."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.support.hai_client import Event, HaiClient, Live, answer, parse, unique, user
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving


def path(thread_id: str, what: str = "events") -> str:
    return f"/api/v1/agent/runs/{thread_id}/{what}"


class Followed(Live):
    """An open stream of a thread."""

    def count(self, type: str, number: int) -> list[Event]:
        """Read until so many events of a type have come."""
        while sum(event.name == type for event in self.events()) < number:
            self.body += next(self._bytes)
        return self.events()

    def past(self, text: str) -> list[Event]:
        """Read until an event with `text` in it has come."""
        while not any(text.encode() in event.raw for event in self.events()):
            self.body += next(self._bytes)
        return self.events()


@contextmanager
def follow(url: str, thread_id: str, cursor: str | None = None, **params: str) -> Iterator[Followed]:
    headers = {} if cursor is None else {"Last-Event-ID": cursor}
    with httpx2.stream("GET", url + path(thread_id), headers=headers, params=params, timeout=30) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        yield Followed(response)


def names(events: list[Event]) -> list[str | None]:
    return [event.name for event in events]


@pytest.fixture(scope="module")
def told(server: ServerProcess) -> tuple[str, list[Event]]:
    """A thread of two runs, the first of two turns, and all its events from the start of its first run."""
    return tell(server)


def tell(server: ServerProcess) -> tuple[str, list[Event]]:
    client = HaiClient(server.url, workflow="cleanup")
    with follow(server.url, client.thread_id) as stream:
        first = user("删除所有临时文件")
        call = client.post(first, tools=("confirmAction",)).call_id("confirmAction")
        confirmed = answer(call)
        client.post(first, confirmed)
        client.post(first, confirmed, user("again"), tools=("confirmAction",))
        empty, *events = stream.count("RUN_FINISHED", 3)
    assert empty.name == "MESSAGES_SNAPSHOT"
    return client.thread_id, events


def test_a_thread_is_followed_across_its_turns_and_runs(told: tuple[str, list[Event]]) -> None:
    thread_id, events = told
    assert names(events)[:8] == [
        "RUN_STARTED", "TEXT_MESSAGE_END", "STEP_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END",
        "STEP_FINISHED", "RUN_FINISHED",
    ]  # fmt: skip
    finished = [event.data for event in events if event.name == "RUN_FINISHED"]
    assert [each.get("status") for each in finished] == ["waiting", None, "waiting"]
    assert {event.data["threadId"] for event in events} == {thread_id}
    assert len({event.data["runId"] for event in events}) == 3
    (result,) = [event.data for event in events if event.name == "TOOL_CALL_RESULT"]
    assert (result["tool_name"], result["status"], result["result"]) == ("confirmAction", "success", "confirmed")


def test_an_event_source_resumes_after_any_event_without_gap_or_repeat(
    server: ServerProcess, told: tuple[str, list[Event]]
) -> None:
    thread_id, events = told
    for position, event in enumerate(events[:-1], 1):
        rest = b"".join(each.raw for each in events[position:])
        with follow(server.url, thread_id, event.id) as stream:
            left = [each.name for each in events[position:]].count("RUN_FINISHED")
            stream.count("RUN_FINISHED", left)
            assert stream.body == rest


def test_without_a_cursor_the_stream_begins_with_the_newest_turn(
    server: ServerProcess, told: tuple[str, list[Event]]
) -> None:
    thread_id, events = told
    start = max(n for n, event in enumerate(events) if event.name == "RUN_STARTED")
    with follow(server.url, thread_id) as stream:
        stream.count("RUN_FINISHED", 1)
        assert stream.body == b"".join(each.raw for each in events[start:])


def test_a_run_that_rest_started_is_answered_over_rest(server: ServerProcess, http: httpx2.Client) -> None:
    thread_id = unique("thread")
    http.post("/v1/runs", json={"workflow": "release", "thread_id": thread_id})
    with follow(server.url, thread_id) as stream:
        waits = stream.until("RUN_FINISHED")[-1]
        asked = [event.data for event in stream.events() if event.data.get("result_type") == "clarification"]
        assert {each["id"] for each in waits["pendings"]} == {each["messageId"] for each in asked}
        for pending in waits["pendings"]:
            decided = http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"})
            assert decided.status_code == 200, decided.text
        events = stream.count("RUN_FINISHED", 2)
        while events[-1].data.get("status") is not None:
            events = stream.count("RUN_FINISHED", names(events).count("RUN_FINISHED") + 1)
    assert events[-1].data.keys() == {"type", "threadId", "runId"}


def test_a_stopped_run_is_cancelled_and_the_thread_goes_on(server: ServerProcess, http: httpx2.Client) -> None:
    thread_id = unique("thread")
    run = http.post("/v1/runs", json={"workflow": "release", "thread_id": thread_id}).json()
    with follow(server.url, thread_id) as stream:
        stream.until("RUN_FINISHED")
        http.post(f"/v1/runs/{run['id']}/terminate")
        stream.until("RUN_ERROR")
        assert stream.events()[-1].data["code"] == "cancelled"
        http.post("/v1/runs", json={"workflow": "weather", "thread_id": thread_id})
        events = stream.count("RUN_FINISHED", 2)
    assert [event.data["answer"] for event in events if event.name == "TEXT_MESSAGE_END"][-1]


def test_a_silent_thread_is_kept_alive(postgres_server: Server) -> None:
    environment = {"HAI_FLOW_KEEPALIVE_SECONDS": "0.1"}
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=environment) as process,
        follow(process.url, "t") as stream,
    ):
        while stream.body.count(b": keep-alive\n\n") < 2:
            stream.body += next(stream._bytes)
        assert names(stream.events()) == ["MESSAGES_SNAPSHOT"]


def test_who_listened_first_and_lost_the_connection_gets_every_run_since(
    server: ServerProcess, http: httpx2.Client
) -> None:
    thread_id = unique("thread")
    with follow(server.url, thread_id) as stream:
        (first,) = stream.count("MESSAGES_SNAPSHOT", 1)
    assert first.data["messages"] == []
    assert http.get(path(thread_id, "history")).json()["cursor"] == first.id
    for _ in range(2):
        run = http.post("/v1/runs", json={"workflow": "weather", "thread_id": thread_id}).json()
        with follow(server.url, thread_id) as stream:
            stream.until("RUN_FINISHED")
        http.post(f"/v1/runs/{run['id']}/terminate")
    with follow(server.url, thread_id, first.id) as stream:
        events = stream.count("RUN_FINISHED", 2)
    assert names(events).count("RUN_STARTED") == 2
    assert len({str(event.id).partition(".")[0] for event in events}) == 2


def test_a_closing_server_ends_its_streams_and_another_one_continues(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn) as process, follow(process.url, "t") as stream:
            httpx2.post(f"{process.url}/v1/runs", json={"workflow": "cleanup", "thread_id": "t"})
            stream.until("RUN_FINISHED")
            process.process.send_signal(signal.SIGTERM)
            stream.body += b"".join(stream._bytes)
            last = stream.events()[-1]
            assert last.name == "RUN_FINISHED"
            assert process.ended() == 0
        with serving(dsn) as process, follow(process.url, "t", last.id) as stream:
            (pending,) = httpx2.get(f"{process.url}/v1/pendings").json()["items"]
            httpx2.post(f"{process.url}/v1/pendings/{pending['id']}/decide", json={"result": "confirmed"})
            stream.until("RUN_FINISHED")
            assert stream.events()[0].name == "RUN_STARTED"


def test_a_run_started_in_another_process_is_followed_here(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as one, serving(dsn) as other, follow(one.url, "t") as stream:
        httpx2.post(f"{other.url}/v1/runs", json={"workflow": "weather", "thread_id": "t"})
        stream.until("RUN_FINISHED")


def test_the_history_says_what_was_said_and_where_the_events_go_on(server: ServerProcess, http: httpx2.Client) -> None:
    thread_id, events = tell(server)
    history = http.get(path(thread_id, "history")).json()
    assert [message["role"] for message in history["messages"]] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    said = [message["content"] for message in history["messages"] if "answer" in message]
    assert said == [event.data["answer"] for event in events if event.name == "TEXT_MESSAGE_END"]
    assert history["status"] == "waiting"
    assert [pending["tool"] for pending in history["pendings"]] == ["confirmAction"]
    with follow(server.url, thread_id, after=history["cursor"]) as stream:
        http.post(f"/v1/pendings/{history['pendings'][0]['id']}/decide", json={"result": "confirmed"})
        stream.until("RUN_FINISHED")
        assert stream.events()[0].name == "RUN_STARTED"


def test_a_thread_that_nobody_knows_is_empty(http: httpx2.Client) -> None:
    history = http.get(path("nobody-knows-it", "history")).json()
    assert (history["messages"], history["status"]) == ([], None)


def test_a_cursor_of_no_place_gets_the_messages_first(server: ServerProcess, told: tuple[str, list[Event]]) -> None:
    thread_id, events = told
    run_id = str(events[-1].id).partition(".")[0]
    for beyond in (f"{run_id}.social-1.999999.0", f"{run_id}.social-0.1.0"):
        with follow(server.url, thread_id, beyond) as stream:
            stream.until("RUN_FINISHED")
            shown = stream.events()
        assert names(shown) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert all(event.id is None for event in shown)


@pytest.mark.parametrize("id", ["1700000000000-0", "0-0", "0", "1700000000000"])
def test_an_id_of_a_redis_stream_gets_the_messages_and_what_follows(
    server: ServerProcess, told: tuple[str, list[Event]], id: str
) -> None:
    thread_id, _ = told
    with follow(server.url, thread_id, id) as stream:
        stream.until("RUN_FINISHED")
        assert names(stream.events()) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


def test_an_id_of_a_redis_stream_on_an_empty_thread_gets_its_first_run(server: ServerProcess) -> None:
    thread_id = unique("t")
    with follow(server.url, thread_id, "1700000000000-0") as stream:
        stream.until("MESSAGES_SNAPSHOT")
        HaiClient(server.url, workflow="weather", thread_id=thread_id).post(user("天气"))
        assert "RUN_FINISHED" in names(stream.count("RUN_FINISHED", 1))


@pytest.mark.parametrize("cursor", ["x", "{run}.hai-1.1.0", "{other}.social-1.1.0", "{run}.social-1.1"])
def test_a_cursor_of_another_stream_is_refused(http: httpx2.Client, told: tuple[str, list[Event]], cursor: str) -> None:
    thread_id, events = told
    other = http.post("/v1/runs", json={"workflow": "weather"}).json()["id"]
    cursor = cursor.format(run=str(events[0].id).partition(".")[0], other=other)
    refused: Any = http.get(path(thread_id), headers={"Last-Event-ID": cursor})
    assert (refused.status_code, refused.json()["code"]) == (400, "cursor.invalid")


@pytest.mark.parametrize("what", ["events", "history"])
@pytest.mark.parametrize(("thread_id", "status"), [("%00", 422), ("x" * 201, 422), ("%0A", 404)])
def test_a_thread_has_a_name_of_plain_text(http: httpx2.Client, thread_id: str, status: int, what: str) -> None:
    assert http.get(path(thread_id, what)).status_code == status


def test_a_threads_name_may_have_slashes_and_anything_else_that_is_text(server: ServerProcess) -> None:
    thread_id = unique("a/b c?%/événement")
    client = HaiClient(server.url, workflow="weather", thread_id=thread_id)
    client.post(user("天气"))
    with follow(server.url, quote(thread_id, safe="")) as stream:
        (started, *_) = stream.count("RUN_FINISHED", 1)
    assert started.data["threadId"] == thread_id
    with httpx2.Client(base_url=server.url) as http:
        for spelled in (quote(thread_id), quote(thread_id, safe="")):
            assert http.get(path(spelled, "history")).json()["threadId"] == thread_id
        assert http.get("/api/v1/agent/runs//events").status_code in (404, 422)


def test_one_run_is_shown_in_these_words_too(http: httpx2.Client, told: tuple[str, list[Event]]) -> None:
    _, events = told
    run_id = str(events[0].id).partition(".")[0]
    whole = [event for event in events if str(event.id).startswith(run_id)]
    stream = http.get(f"/v1/runs/{run_id}/events", params={"dialect": "social", "after": whole[0].id}).content
    assert parse(stream) == whole[1:]
