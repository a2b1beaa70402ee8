"""Following a run: every place in it, over real sockets; and what streams cost and leave behind."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from uvicorn.server import ServerState

from hai_flow.api.http import http_protocol
from hai_flow.api.http.load_shedding import Admission
from hai_flow.api.http.stream import CONNECTION, EventStream
from hai_flow.runtime.streams.fanout import Lagging
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.wire import sse
from tests.support import wire_lint
from tests.support.hai_client import HaiClient, answer, parse, unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving

SSE = {"accept": "text/event-stream"}


def events_of(http: httpx2.Client, run_id: str) -> list[dict[str, Any]]:
    """The run's log, by pages of three."""
    items: list[dict[str, Any]] = []
    after: str | None = "0"
    while after is not None:
        page = http.get(f"/v1/runs/{run_id}/events", params={"after": after, "limit": 3}).json()
        items += page["items"]
        after = page["next_cursor"]
    return items


def log_after(http: httpx2.Client, run_id: str, seq: int | str) -> bytes:
    """The rest of a run's log as a follower is sent it, without keep-alives, which a slow machine adds."""
    response = expect(http.get(f"/v1/runs/{run_id}/events", headers={**SSE, "Last-Event-ID": str(seq)}), 200)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    return response.content.replace(sse.KEEP_ALIVE, b"")


def hai_after(http: httpx2.Client, run_id: str, cursor: str | None) -> httpx2.Response:
    headers = {} if cursor is None else {"Last-Event-ID": cursor}
    return http.get(f"/v1/runs/{run_id}/events", params={"dialect": "hai"}, headers=headers)


@pytest.fixture(scope="module")
def finished(server: ServerProcess) -> tuple[str, list[bytes]]:
    """A run of two turns that has ended, and the two streams of its POSTs."""
    client = HaiClient(server.url, workflow="cleanup")
    question = user()
    first = client.post(question, tools=("confirmAction",))
    second = client.post(question, answer(first.call_id("confirmAction")))
    runs = httpx2.get(f"{server.url}/v1/runs", params={"thread_id": client.thread_id}).json()["items"]
    return runs[0]["id"], [first.body, second.body]


# --- the log ------------------------------------------------------------------------------------------------------


def test_the_log_follows_from_every_seq_without_gap_or_repetition(http: httpx2.Client, finished: Any) -> None:
    run_id, _ = finished
    whole = parse(log_after(http, run_id, 0))
    assert [event.data for event in whole] == events_of(http, run_id)
    assert [event.id for event in whole] == [str(n) for n in range(1, len(whole) + 1)]
    assert all(event.name == event.data["type"] for event in whole)
    for seq in range(len(whole) + 1):
        assert log_after(http, run_id, seq) == b"".join(event.raw for event in whole[seq:])


def test_last_event_id_beats_after(http: httpx2.Client, finished: Any) -> None:
    run_id, _ = finished
    page = http.get(f"/v1/runs/{run_id}/events", params={"after": "5"}, headers={"Last-Event-ID": "2"}).json()
    assert page["items"][0]["seq"] == 3


def test_the_log_grows_while_it_is_followed(server: ServerProcess, http: httpx2.Client) -> None:
    run = http.post("/v1/runs", json={"workflow": "search_files"}).json()
    with http.stream("GET", f"/v1/runs/{run['id']}/events", headers=SSE) as response:
        pieces, data = response.iter_bytes(), b""
        while b"event: pending_opened\n" not in data or not data.endswith(b"\n\n"):
            data += next(pieces)
        id = next(event.data["id"] for event in parse(data) if event.name == "pending_opened")
        assert http.post(f"/v1/pendings/{id}/decide", json={"result": []}).status_code == 200
        data += b"".join(pieces)
    assert data == log_after(http, run["id"], 0)


def test_a_snapshot_at_every_seq_is_the_fold_so_far(http: httpx2.Client, finished: Any) -> None:
    run_id, _ = finished
    url = f"/v1/runs/{run_id}/snapshot"
    head = http.get(url).json()
    events = events_of(http, run_id)
    for seq in range(len(events) + 1):
        now = http.get(url, params={"at": seq}).json()
        assert now["seq"] == seq
        opened = [event for event in events[:seq] if event["type"] == "pending_opened"]
        assert [each["id"] for each in now["pendings"]] == [event["id"] for event in opened]
        steps = {event["path"] for event in events[:seq] if event["type"] == "step_started"}
        assert steps - {""} <= now["steps"].keys()
    assert http.get(url, params={"at": head["seq"]}).json() == head
    assert http.get(url, params={"at": head["seq"] + 1}).status_code == 422


# --- a dialect ----------------------------------------------------------------------------------------------------


def test_a_turn_follows_from_every_frame_without_gap_or_repetition(http: httpx2.Client, finished: Any) -> None:
    run_id, streams = finished
    turns = [parse(stream) for stream in streams]
    assert hai_after(http, run_id, None).content == streams[1]
    for number, turn in enumerate(turns):
        later = b"" if number else streams[1]
        for position, event in enumerate(turn, 1):
            rest = b"".join(each.raw for each in turn[position:])
            expected = rest or later
            assert hai_after(http, run_id, event.id).content == expected


def test_a_waiting_run_has_nothing_after_its_last_frame(server: ServerProcess, http: httpx2.Client) -> None:
    client = HaiClient(server.url, workflow="release")
    last = parse(client.post(user(), tools=("confirmAction",)).body)
    run_id = last[-1].id.partition(".")[0] if last[-1].id else ""
    asked = [event for event in last if event.data["type"] == "TOOL_CALL_START"]
    assert hai_after(http, run_id, last[-1].id).content == b""
    rest = hai_after(http, run_id, asked[0].id).content
    assert rest == b"".join(event.raw for event in last[last.index(asked[0]) + 1 :])
    http.post(f"/v1/runs/{run_id}/stop")
    assert hai_after(http, run_id, last[-1].id).content == b""


@pytest.mark.parametrize("beyond", ["{run}.hai-1.999999.0", "{run}.hai-2.3.0", "{run}.hai-0.1.0"])
def test_a_cursor_of_no_place_gets_a_snapshot_that_says_so(http: httpx2.Client, finished: Any, beyond: str) -> None:
    run_id, _ = finished
    stream = hai_after(http, run_id, beyond.format(run=run_id)).content
    events = [event.data for event in parse(stream)]
    assert wire_lint.lint(stream) == []
    assert [event["type"] for event in events] == [
        "RUN_STARTED", "CUSTOM", "STATE_SNAPSHOT", "MESSAGE_SNAPSHOT", "CUSTOM", "RUN_FINISHED"
    ]  # fmt: skip
    head = http.get(f"/v1/runs/{run_id}").json()["seq"]
    assert (events[1]["name"], events[1]["value"]) == ("hai.cursor_reset", {"seq": head})
    assert all(event.id is None for event in parse(stream))


def test_a_seq_beyond_the_log_is_reset(http: httpx2.Client, finished: Any) -> None:
    run_id, _ = finished
    head = http.get(f"/v1/runs/{run_id}").json()["seq"]
    (event,) = parse(log_after(http, run_id, 999999))
    assert (event.name, event.data, event.id) == ("cursor_reset", {"seq": head}, str(head))
    page = http.get(f"/v1/runs/{run_id}/events", params={"after": "999999"}).json()
    assert page == {"items": [], "next_cursor": None, "cursor_reset": {"seq": head}}


@pytest.mark.parametrize(
    "cursor", ["-1", "1.5", "01", "1e3", "x", " 1", "١", "1" * 40, "1,2", "{run}.hai-1.3.0", "\x7f"]
)
def test_a_malformed_seq_is_refused(http: httpx2.Client, finished: Any, cursor: str) -> None:
    run_id, _ = finished
    for headers, params in (
        ({**SSE}, {"after": cursor.format(run=run_id)}),
        ({}, {"after": cursor.format(run=run_id)}),
    ):
        response = http.get(f"/v1/runs/{run_id}/events", headers=headers, params=params)
        assert (response.status_code, response.json()["code"]) == (400, "cursor.invalid")


FOREIGN = "01900000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    "cursor",
    ["3", "x", "{run}", "{run}.hai-1.0.0", "{run}.hai-1.3", "{run}.hai-1.-1.0", "{run}.hai-1.3.0.0", "{run}.log-1.3.0",
     "{run}.agui-1.3.0", FOREIGN + ".hai-1.3.0", "{run}.HAI-1.3.0", "{run}.hai-1.03.0", "a" * 5000],
)  # fmt: skip
def test_a_malformed_or_foreign_cursor_is_refused(http: httpx2.Client, finished: Any, cursor: str) -> None:
    run_id, _ = finished
    response = hai_after(http, run_id, cursor.format(run=run_id))
    assert (response.status_code, response.json()["code"]) == (400, "cursor.invalid")


# --- what streams cost --------------------------------------------------------------------------------------------


def open_streams(http: httpx2.Client) -> int:
    return http.get("/healthz").json()["streams"]


def no_streams(http: httpx2.Client) -> None:
    """Ask until all are closed: each question is a round trip, and gives the server its turn."""
    for _ in range(20_000):
        if not open_streams(http):
            return
    raise AssertionError(f"{open_streams(http)} streams are still open")


@pytest.mark.costly
def test_two_hundred_clients_that_come_and_go_leave_nothing(server: ServerProcess, http: httpx2.Client) -> None:
    client = HaiClient(server.url, workflow="cleanup")
    question = user()
    client.post(question)
    run_id = http.get("/v1/runs", params={"thread_id": client.thread_id}).json()["items"][0]["id"]
    no_streams(http)
    descriptors = f"/proc/{server.process.pid}/fd"
    before = len(os.listdir(descriptors))
    for _ in range(4):
        with httpx2.Client(base_url=server.url, timeout=30) as many, ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(many.stream("GET", f"/v1/runs/{run_id}/events", headers=SSE))
            assert open_streams(http) == 50
        no_streams(http)
    assert len(os.listdir(descriptors)) <= before + 5


def http_stream(url: str, path: str) -> Any:
    return httpx2.stream("GET", url + path, headers=SSE, timeout=30)


def test_an_idle_stream_costs_little_memory(server: ServerProcess, http: httpx2.Client) -> None:
    run = http.post("/v1/runs", json={"workflow": "cleanup"}).json()

    def resident() -> int:
        with open(f"/proc/{server.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    limits = httpx2.Limits(max_connections=None)
    with httpx2.Client(base_url=server.url, timeout=30, limits=limits) as many, ExitStack() as stack:
        before = resident()
        for _ in range(100):
            stack.enter_context(many.stream("GET", f"/v1/runs/{run['id']}/events", headers=SSE))
        assert resident() - before < 100 * 100 * 1024


@pytest.fixture
def impatient(postgres_server: Server) -> Iterator[ServerProcess]:
    environment = {"HAI_FLOW_FOLLOWER_STALL_SECONDS": "0.3", "HAI_FLOW_KEEPALIVE_SECONDS": "0.1"}
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=environment, admission={"streams_max": 3, "commands_max": 1}) as process,
    ):
        yield process


WORDY = (
    """
hai: flow/v1
name: wordy
version: 1
input: {type: object, properties: {text: {type: string}}}
steps:
"""
    + 12 * '  - say: "${{ input.text }}"\n'
)


def test_limits_of_streams_and_of_those_who_read_nothing(impatient: ServerProcess) -> None:
    with httpx2.Client(base_url=impatient.url, timeout=30) as http, ExitStack() as stack:
        run = http.post("/v1/runs", json={"workflow": "cleanup"}).json()
        url = f"/v1/runs/{run['id']}/events"
        streams = [stack.enter_context(http_stream(impatient.url, url)) for _ in range(3)]
        refused = http.get(url, headers=SSE)
        assert (refused.status_code, refused.json()["code"]) == (429, "streams_busy")
        assert refused.headers["retry-after"] == "1"
        thread = unique("thread")
        assert HaiClient(impatient.url, thread).post(user()).status == 429
        assert http.get("/v1/runs", params={"thread_id": thread}).json()["items"] == []
        pieces = streams[0].iter_bytes()
        data = b""
        while not data.endswith(b": keep-alive\n\n"):
            data += next(pieces)
    with httpx2.Client(base_url=impatient.url, timeout=30) as http:
        no_streams(http)
        expect(http.post("/v1/workflows", content=WORDY, headers=YAML), 201)
        wordy = http.post("/v1/runs", json={"workflow": "wordy", "input": {"text": "x" * 200_000}}).json()
        whole = http.get(f"/v1/runs/{wordy['id']}/events", headers=SSE).content
        assert len(whole) > 2_000_000
        parts = urlsplit(impatient.url)
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((parts.hostname, parts.port))
            request = (
                f"GET /v1/runs/{wordy['id']}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
            )
            reader.sendall(request.encode())
            select.select([reader], [], [], 10)
            no_streams(http)
            received = b"".join(iter(lambda: reader.recv(65536), b""))
        assert len(received) < len(whole)


GATED = (
    """
hai: flow/v1
name: gated
version: 1
input: {type: object, properties: {text: {type: string}}}
tools:
  begin:
    frontend: {description: Begin, parameters: {type: object, properties: {}}}
steps:
  - {id: begin, call: begin}
"""
    + 12 * '  - say: "${{ input.text }}"\n'
)


def begin_gated(http: httpx2.Client, chars: int) -> tuple[str, str]:
    """A run that says twelve texts of that length once its pending is answered; its id, and the pending's."""
    expect(http.post("/v1/workflows", content=GATED, headers=YAML), 200, 201)
    run_id = http.post("/v1/runs", json={"workflow": "gated", "input": {"text": "x" * chars}}).json()["id"]
    (opened,) = [event for event in events_of(http, run_id) if event["type"] == "pending_opened"]
    return run_id, opened["id"]


def begin(http: httpx2.Client, pending: str) -> None:
    assert http.post(f"/v1/pendings/{pending}/decide", json={"result": {}}).status_code == 200


@contextmanager
def reader_of(url: str, path: str, *, buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection that has asked for the stream at `path`, and got the head of the response."""
    parts = urlsplit(url)
    with socket.socket() as reader:
        if buffer is not None:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        reader.settimeout(30)
        reader.connect((parts.hostname, parts.port))
        reader.sendall(request_for(path))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += reader.recv(1)
        assert head.startswith(b"HTTP/1.1 200 "), head
        yield reader


def request_for(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()


def rest_of(reader: socket.socket) -> tuple[bytes, bytes]:
    """The body without its keep-alives, and what was received after it."""
    received, body = b"", b""
    while True:
        size, line, rest = received.partition(b"\r\n")
        length = int(size, 16) if line else 0
        if not line or len(rest) < length + 2:
            more = reader.recv(2**20)
            assert more, "the connection ended before the body did"
            received += more
            continue
        if not length:
            return body.replace(sse.KEEP_ALIVE, b""), rest[2:]
        body, received = body + rest[:length], rest[length + 2 :]


def until_cut(reader: socket.socket) -> bytes:
    """What is still to be read from a connection that was cut."""
    data = b""
    with suppress(ConnectionResetError):
        while more := reader.recv(2**20):
            data += more
    return data


def test_one_that_reads_late_holds_up_nobody_and_misses_nothing(server: ServerProcess, http: httpx2.Client) -> None:
    run_id, pending = begin_gated(http, 60_000)
    url = f"/v1/runs/{run_id}/events"
    no_streams(http)
    with reader_of(server.url, url, buffer=4096) as late, reader_of(server.url, url) as other:
        begin(http, pending)
        in_time, _ = rest_of(other)
        assert open_streams(http) == 1
        assert rest_of(late)[0] == in_time == log_after(http, run_id, 0)
    assert len(in_time) > 700_000


def test_one_that_is_slower_than_the_ring_is_sent_away_and_comes_back(
    server: ServerProcess, http: httpx2.Client
) -> None:
    run_id, pending = begin_gated(http, 250_000)
    url = f"/v1/runs/{run_id}/events"
    with reader_of(server.url, url, buffer=4096) as late:
        begin(http, pending)
        whole = log_after(http, run_id, 0)
        begun, _ = rest_of(late)
    last = parse(begun)[-1].id
    assert last is not None
    assert begun + log_after(http, run_id, last) == whole
    assert 0 < len(begun) < len(whole) - 1_000_000


def test_a_follower_that_stalls_is_cut_off_and_the_others_do_not_notice(impatient: ServerProcess) -> None:
    with httpx2.Client(base_url=impatient.url, timeout=30) as http:
        run_id, pending = begin_gated(http, 60_000)
        url = f"/v1/runs/{run_id}/events"
        with reader_of(impatient.url, url, buffer=4096) as stalled, reader_of(impatient.url, url) as other:
            begin(http, pending)
            body, _ = rest_of(other)
            no_streams(http)
            received = until_cut(stalled)
        assert body == log_after(http, run_id, 0)
        assert len(received) < len(body)


def test_a_connection_bears_the_next_request_after_a_stream_that_grew(
    server: ServerProcess, http: httpx2.Client
) -> None:
    run_id, pending = begin_gated(http, 10)
    url = f"/v1/runs/{run_id}/events"
    with reader_of(server.url, url) as reader:
        reader.sendall(request_for(f"{url}?after=30"))  # before its turn: it waits
        begin(http, pending)
        body, rest = rest_of(reader)
        assert body == log_after(http, run_id, 0)
        while not rest.endswith(b"0\r\n\r\n"):
            rest += reader.recv(65536)
        assert rest.startswith(b"HTTP/1.1 200 ")
        assert log_after(http, run_id, 30)[:200] in rest
        reader.sendall(request_for(f"{url}?after=x"))
        assert reader.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_who_leaves_while_the_run_goes_on_leaves_the_run_alone(server: ServerProcess, http: httpx2.Client) -> None:
    no_streams(http)
    run_id, pending = begin_gated(http, 10)
    with reader_of(server.url, f"/v1/runs/{run_id}/events"):
        assert open_streams(http) == 1
    no_streams(http)
    begin(http, pending)
    assert parse(log_after(http, run_id, 0))[-1].name == "run_finished"


def test_at_a_shutdown_a_stream_that_waits_ends_in_order(database_url: str) -> None:
    with serving(database_url) as process, httpx2.Client(base_url=process.url, timeout=30) as http:
        run_id, _ = begin_gated(http, 10)
        seqs = [str(event["seq"]) for event in events_of(http, run_id)]
        with reader_of(process.url, f"/v1/runs/{run_id}/events") as reader:
            process.terminate()
            body, after = rest_of(reader)
            assert ([event.id for event in parse(body)], after) == (seqs, b"")
            assert until_cut(reader) == b""
        assert process.ended() == 0


def test_too_many_waiting_commands_are_refused_before_anything_is_stored(database_url: str) -> None:
    with serving(database_url, admission={"commands_max": 0}) as process, httpx2.Client(base_url=process.url) as http:
        refused = http.post("/v1/runs", json={"workflow": "chat"})
        assert (refused.status_code, refused.json()["code"]) == (429, "commands_busy")
        assert refused.headers["retry-after"] == "1"
        assert HaiClient(process.url).post(user()).status == 429
        assert http.get("/v1/runs").json()["items"] == []
        assert open_streams(http) == 0


# --- the response itself ------------------------------------------------------------------------------------------


class Peer:
    """The server's side of one response: what was sent, and a client that may go or stop reading."""

    def __init__(self, *, reads: bool = True) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.began = asyncio.Event()
        self.aborted = False
        self._reads = reads

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.began.set()
            if not self._reads:
                await asyncio.Event().wait()

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def serve(self, stream: EventStream) -> None:
        scope = {"type": "http", "path": "/", "extensions": {CONNECTION: self}}
        await stream(scope, self.receive, self.send)

    def abort(self) -> None:
        self.aborted = True

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def stream_of(pieces: Any, admission: Admission) -> EventStream:
    place = admission.place("127.0.0.1")
    place.take(follows=True)
    return EventStream(
        pieces,
        keepalive_seconds=10,
        stall_seconds=0.01,
        farewell=lambda ending: b"data: farewell\n\n",
        closed=place.leave,
    )


@pytest.mark.slow
async def test_a_stream_ends_in_every_way_without_leaving_a_task() -> None:
    admission, closed = Admission(), 0

    async def pieces(error: Exception | None = None, *, waits: bool = False) -> Any:
        nonlocal closed
        try:
            yield [StreamItem(1, (), b"data: 1\n\n")]
            if waits:
                await asyncio.Event().wait()
            if error is not None:
                raise error
        finally:
            closed += 1

    done = {"type": "http.response.body", "body": b""}
    for number in range(200):
        tasks = asyncio.all_tasks()
        ended, broken, lagging, stalled, left = Peer(), Peer(), Peer(), Peer(reads=False), Peer()
        await ended.serve(stream_of(pieces(), admission))
        assert (ended.body, ended.sent[-1]) == (b"data: 1\n\n", done)
        if not number:
            await broken.serve(stream_of(pieces(OSError("gone")), admission))
            assert (broken.body, broken.sent[-1]) == (b"data: 1\n\ndata: farewell\n\n", done)
        else:
            closed += 1
        await lagging.serve(stream_of(pieces(Lagging()), admission))
        assert lagging.body.endswith(b"farewell\n\n")
        await stalled.serve(stream_of(pieces(), admission))
        assert (stalled.aborted, stalled.sent[-1]["more_body"]) == (True, True)
        serving_left = asyncio.ensure_future(left.serve(stream_of(pieces(waits=True), admission)))
        await left.began.wait()
        left.gone.set()
        await serving_left
        assert asyncio.all_tasks() == tasks
        assert admission.streams == 0
        assert closed == 5 * (number + 1)


async def test_a_connection_has_few_enough_attributes_for_inline_storage() -> None:
    config = http_protocol.Config(FastAPI())
    config.load()
    config.head_seconds = 60.0
    protocol = http_protocol.Protocol(config, ServerState(), {})
    protocol._wait_for_head()
    protocol.on_message_begin()
    protocol._limit_trailers(1)
    protocol._stop_clock()
    most = 30  # SHARED_KEYS_MAX_SIZE of CPython: with more, each instance has a dictionary of its own
    assert len(vars(protocol)) <= most
