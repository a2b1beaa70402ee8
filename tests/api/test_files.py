"""Files: uploaded, downloaded and referred to, over real sockets; and what is left when something dies meanwhile."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.api.rest import files
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Unreadable
from hai_flow.runtime.files.blobs import PIECE_BYTES
from tests.api.test_rest import Checked, code, http, start, wait_for_pendings
from tests.support.agui_client import AguiClient
from tests.support.hai_client import unique
from tests.support.postgres import Server, fetch_value, run_apart
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

__all__ = ["http"]

ANN, BOB = {"HAI-Act-As": "user:ann"}, {"HAI-Act-As": "user:bob"}
PNG = {"Content-Type": "image/png"}
ASKS = """
hai: flow/v1
name: attach
version: 1
input: {type: object, properties: {photo: {type: string}}}
steps:
  - id: more
    ask: {title: One more?, from: anyone, form: {type: object, properties: {scan: {type: string}}}}
output: ${{ steps.more.output.scan }}
"""


def some_bytes(size: int = 40) -> bytes:
    return os.urandom(size)


def put(http: httpx2.Client, body: bytes, headers: dict[str, str] | None = None, **query: str) -> Any:
    return expect(http.post("/v1/files", content=body, headers=headers or ANN, params=query), 201).json()


def get(server: ServerProcess, file: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.get(f"{server.url}/v1/files/{file}", headers=headers or ANN, timeout=30)


@pytest.fixture(scope="module")
def small(postgres_server: Server) -> Iterator[tuple[ServerProcess, str]]:
    """A server that takes files of two pieces."""
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={"HAI_FLOW_FILE_BYTES_MAX": str(2 * PIECE_BYTES)}) as process,
    ):
        yield process, dsn


# --- up and down --------------------------------------------------------------------------------------------------


def test_a_file_comes_back_as_it_was_and_as_a_download(server: ServerProcess, http: Checked) -> None:
    body = some_bytes(3 * PIECE_BYTES + 5)
    file = put(http, body, ANN | PNG, name='Grüße "1".png')
    assert file["sha256"] == sha256(body).hexdigest()
    assert file["id"] == f"file_{file['sha256']}"
    source = {"type": "file", "value": file["id"], "mimeType": "image/png"}
    assert file["part"] == {"type": "image", "source": source, "metadata": {"filename": 'Grüße "1".png'}}
    for name in (file["id"], file["sha256"]):
        found = get(server, name)
        assert found.content == body
        assert found.headers["content-type"] == "image/png"
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in found.headers["content-security-policy"]
        assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''Gr%C3%BC%C3%9Fe%20%221%22.png"
    assert put(http, body)["id"] == file["id"]
    assert put(http, b"")["size"] == 0


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-0", 0, 1), ("bytes=10-", 10, 40), ("bytes=-5", 35, 40), ("bytes=5-9000", 5, 40), ("bytes=-99", 0, 40)],
)
def test_a_range_of_a_file_is_given(server: ServerProcess, http: Checked, asked: str, start: int, end: int) -> None:
    body = some_bytes()
    found = get(server, put(http, body)["id"], ANN | {"Range": asked})
    assert (found.status_code, found.content) == (206, body[start:end])
    assert found.headers["content-range"] == f"bytes {start}-{end - 1}/40"


def test_ranges_that_are_none_or_too_many_are_refused_or_ignored(server: ServerProcess, http: Checked) -> None:
    id = put(http, some_bytes())["id"]
    assert code(get(server, id, ANN | {"Range": "bytes=40-"})) == (416, "range.unsatisfiable")
    for asked in ("bytes=0-1,3-4", "bytes=9-3", "bytes=-", "lines=1-2"):
        assert get(server, id, ANN | {"Range": asked}).status_code == 200
    assert get(server, id, ANN | {"Range": "bytes=0-1", "If-Range": '"other"'}).status_code == 200


LONG = bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"tail"


@pytest.fixture(scope="module")
def long_file(server: ServerProcess) -> str:
    response = httpx2.post(f"{server.url}/v1/files", content=LONG, headers=ANN, timeout=30)
    return str(response.json()["id"])


@given(first=st.integers(0, 3 * PIECE_BYTES), size=st.integers(1, 3 * PIECE_BYTES))
def test_any_range_is_the_same_slice(server: ServerProcess, long_file: str, first: int, size: int) -> None:
    found = get(server, long_file, ANN | {"Range": f"bytes={first}-{first + size - 1}"})
    expected = LONG[first : first + size]
    assert found.content == expected if expected else found.status_code == 416


def test_a_script_is_no_page_of_this_server(server: ServerProcess, http: Checked) -> None:
    id = put(http, b"<script>alert(1)</script>", ANN | {"Content-Type": "text/html; charset=utf-8"})["id"]
    found = get(server, id)
    assert found.headers["content-disposition"] == "attachment"
    assert found.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("given", ["image/png\x80", "png", "image/p ng", "a/b/c", "/"])
def test_what_is_no_media_type_is_refused(http: Checked, given: str) -> None:
    headers = {**ANN, "Content-Type": given.encode("latin-1")}
    assert code(http.post("/v1/files", content=b"x", headers=headers)) == (415, "body.media_type")  # type: ignore[arg-type]


# --- wrong and too large ------------------------------------------------------------------------------------------


def _pieces(size: int) -> Iterator[bytes]:
    for _ in range(size):
        yield b"x" * PIECE_BYTES


@pytest.mark.parametrize("declared", [True, False])
def test_a_file_that_is_too_large_is_refused_and_nothing_is_stored(
    small: tuple[ServerProcess, str], declared: bool
) -> None:
    server, dsn = small
    body = b"x" * (3 * PIECE_BYTES) if declared else _pieces(3)
    assert code(httpx2.post(f"{server.url}/v1/files", content=body)) == (413, "file.too_large")
    for table in ("blobs", "files", "uploads", "file_leftovers"):
        assert run_apart(fetch_value(dsn, f"SELECT count(*) FROM {table}")) == 0, table


def test_bytes_that_differ_from_their_announcement_are_refused_unstored(small: tuple[ServerProcess, str]) -> None:
    server, dsn = small
    for digest, expected in (
        (base64.b64encode(sha256(b"other").digest()).decode(), (422, "file.digest")),
        ("AAAA", (422, "request.invalid")),
        ("=", (422, "request.invalid")),
    ):
        headers = {"Content-Digest": f"sha-256=:{digest}:"}
        assert code(httpx2.post(f"{server.url}/v1/files", content=b"mine", headers=headers)) == expected
    assert run_apart(fetch_value(dsn, "SELECT count(*) FROM blobs")) == 0
    assert run_apart(fetch_value(dsn, "SELECT count(*) FROM file_leftovers")) == 0


async def test_a_client_that_hangs_up_leaves_nothing(small: tuple[ServerProcess, str]) -> None:
    server, dsn = small
    connection = half_an_upload(server)
    await until(lambda: run_apart(fetch_value(dsn, "SELECT count(*) FROM blobs")))
    connection.close()
    await until(lambda: run_apart(fetch_value(dsn, "SELECT count(*) FROM file_leftovers")) == 0)
    assert run_apart(fetch_value(dsn, "SELECT count(*) FROM blobs")) == 0
    assert run_apart(fetch_value(dsn, "SELECT count(*) FROM files")) == 0


def half_an_upload(server: ServerProcess) -> socket.socket:
    """A connection over which one piece and a half of two has come."""
    place = urlsplit(server.url)
    connection = socket.create_connection((place.hostname, place.port))
    head = f"POST /v1/files HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {2 * PIECE_BYTES}\r\n\r\n"
    connection.sendall(head.encode() + b"x" * (PIECE_BYTES * 3 // 2))
    return connection


async def test_a_server_killed_during_an_upload_leaves_no_half_file(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn) as server:
            connection = half_an_upload(server)
            await until(lambda: run_apart(fetch_value(dsn, "SELECT count(*) FROM blobs")))
            server.kill()
            connection.close()
        assert run_apart(fetch_value(dsn, "SELECT count(*) FROM files")) == 0
        assert run_apart(fetch_value(dsn, "SELECT count(*) FROM file_leftovers")) == 1
        run_apart(fetch_value(dsn, "UPDATE file_leftovers SET due_at = now()"))
        from hai_flow.runtime.runtime import Runtime
        from hai_flow.settings import Settings

        runtime = Runtime(dsn, Settings(), performs=True)
        async with runtime.lifespan():
            await runtime._sweeper.tidy()
        assert run_apart(fetch_value(dsn, "SELECT count(*) FROM blobs")) == 0
        assert run_apart(fetch_value(dsn, "SELECT count(*) FROM file_leftovers")) == 0


# --- whose ----------------------------------------------------------------------------------------------------------


def test_a_file_is_nobody_elses_until_a_run_refers_to_it(server: ServerProcess, http: Checked) -> None:
    body = some_bytes()
    id = put(http, body)["id"]
    assert code(get(server, id, BOB)) == (404, "file_unknown")
    for nothing in ("file_" + "0" * 64, "0" * 64, "nothing", "file_", id.upper()):
        assert code(get(server, nothing)) == (404, "file_unknown")
    attached(http)
    refused = http.post("/v1/runs", json={"workflow": "attach", "input": {"photo": id}}, headers=BOB)
    assert code(refused) == (404, "file_unknown")
    assert code(get(server, id, BOB)) == (404, "file_unknown"), "to name it is not to have it"
    expect(http.post("/v1/runs", json={"workflow": "attach", "input": {"photo": id}}, headers=ANN), 201)
    assert get(server, id, BOB).content == body


def test_an_answer_may_bring_a_file_of_the_answerers_own_alone(server: ServerProcess, http: Checked) -> None:
    attached(http)
    anns, bobs = put(http, some_bytes())["id"], put(http, some_bytes(), BOB)["id"]
    run = start(http, "attach")
    (pending,) = wait_for_pendings(http, run["id"])
    path = f"/v1/pendings/{pending['id']}/decide"
    refused = http.post(path, json={"values": {"scan": anns}}, headers=BOB)
    assert code(refused) == (404, "file_unknown")
    assert http.post(path, json={"values": {"scan": bobs}}, headers=BOB).is_success
    assert get(server, bobs, ANN).status_code == 200
    assert code(get(server, anns, BOB)) == (404, "file_unknown")


def test_a_message_may_bring_a_file_also_in_the_old_words(server: ServerProcess, http: Checked) -> None:
    id = put(http, some_bytes(), PNG)["id"]
    client = AguiClient(server.url, unique("thread"), workflow="chat")
    parts = [{"type": "text", "text": "look"}, {"type": "binary", "mimeType": "image/png", "id": id}]
    assert client.post({"id": unique("m"), "role": "user", "content": parts}).types[-1] == "RUN_FINISHED"
    assert get(server, id, BOB).status_code == 200
    (said, *_) = http.get(f"/v1/threads/{client.thread_id}/messages").json()["items"]
    assert said["content"][1] == {"type": "image", "source": {"type": "file", "value": id, "mimeType": "image/png"}}
    strangers = put(http, some_bytes(), ANN)["id"]
    parts[1]["id"] = strangers
    posted = client.body({"id": unique("m"), "role": "user", "content": parts})
    assert code(httpx2.post(f"{server.url}/ag-ui", json=posted, headers=BOB)) == (404, "file_unknown")


@pytest.mark.parametrize("behind", ["see ", "see:\n", "\t", "\\"])
@pytest.mark.parametrize("door", ["/v1/signals", "/v1/events", "/v1/runs/{run}/signals"])
def test_a_signal_or_an_event_may_bring_a_file_of_its_senders_own_alone(
    server: ServerProcess, http: Checked, door: str, behind: str
) -> None:
    attached(http)
    anns, type = put(http, some_bytes())["id"], unique("type")
    path = door.format(run=start(http, "attach")["id"])
    signal = {"id": unique("s"), "type": type, "data": {"deep": [f"{behind}{anns}"]}}
    assert code(http.post(path, json=signal, headers=BOB)) == (404, "file_unknown")
    assert http.post(path, json=signal, headers=ANN).status_code == 201, "nothing was stored of it"
    nowhere = {**signal, "id": unique("s"), "data": f"file_{'0' * 64}"}
    assert code(http.post(path, json=nowhere, headers=ANN)) == (404, "file_unknown")


def _a2a(part: dict[str, Any]) -> dict[str, Any]:
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [part]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


DOORS: dict[str, tuple[str, Any]] = {
    "an input": ("/v1/runs", lambda id: {"workflow": "attach", "input": {"photo": id}}),
    "a fork's input": ("/v1/runs/{run}/fork", lambda id: {"step": "more", "input": {"photo": id}}),
    "a rehearsed fork": ("/v1/runs/{run}/fork", lambda id: {"step": "more", "input": {"photo": id}, "dry_run": True}),
    "an answer": ("/v1/pendings/{pending}/decide", lambda id: {"values": {"scan": id}}),
    "answers": ("/v1/inbox/decide", lambda id: {"items": [{"id": "{pending}", "values": {"scan": id}}]}),
    "an approval": ("/v1/approvals", lambda id: {"action": "a", "arguments": {"x": id}, "policy": {"from": "role:a"}}),
    "AUI": ("/api/aui/input", lambda id: {"session_id": "{thread}", "interrupt_id": "{pending}",
        "action": "submit", "payload": {"values": {"scan": id}}}),
    "a part of A2A": ("/workflows/attach/a2a", lambda id: _a2a({"data": {"photo": id}})),
    "MCP": ("/mcp", lambda id: {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "attach", "arguments": {"photo": id}}}),
    "AG-UI": ("/workflows/attach/ag-ui", lambda id: {"threadId": unique("t"), "runId": unique("r"), "state": None,
        "messages": [{"id": unique("m"), "role": "user", "content": "hi"}], "tools": [], "context": [],
        "forwardedProps": {"input": {"photo": id}}}),
    "HAI": ("/workflows/attach/awp", lambda id: {"threadId": unique("t"), "runId": unique("r"), "state": None,
        "messages": [{"id": unique("m"), "role": "user", "content": "hi"}], "tools": [], "context": [],
        "forwardedProps": {"input": {"photo": id}}}),
}  # fmt: skip


@pytest.mark.parametrize("behind", ["", "see:\n"])
@pytest.mark.parametrize("door", DOORS)
def test_a_strangers_file_is_refused_at_every_door_before_anything_happens(
    server: ServerProcess, http: Checked, door: str, behind: str
) -> None:
    attached(http)
    anns = put(http, some_bytes())["id"]
    run = start(http, "attach")
    (pending,) = wait_for_pendings(http, run["id"])
    ids = {"run": run["id"], "thread": run["thread_id"], "pending": pending["id"]}
    path, body = DOORS[door]
    text = json.dumps(body(behind + anns))
    for name, id in ids.items():
        text = text.replace("{" + name + "}", id)
    count = len(http.get("/v1/runs", params={"limit": 200}).json()["items"])
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0", **BOB}
    headers["Accept"] = "application/json, text/event-stream"
    answer = httpx2.post(server.url + path.format(**ids), content=text, headers=headers, timeout=30)
    assert "file_unknown" in answer.text, answer.text[:500]
    assert len(http.get("/v1/runs", params={"limit": 200}).json()["items"]) == count
    assert [each["id"] for each in wait_for_pendings(http, run["id"])] == [pending["id"]]
    assert code(get(server, anns, BOB)) == (404, "file_unknown")


def attached(http: httpx2.Client) -> None:
    assert http.post("/v1/workflows", content=ASKS.encode(), headers=YAML).is_success


# --- elsewhere ------------------------------------------------------------------------------------------------------


async def test_a_run_of_a_newer_release_keeps_nobody_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    newer, hidden, seen = uuid4(), uuid4(), uuid4()

    async def find_state(run_id: UUID) -> RunState | None:
        if run_id == newer:
            raise Unreadable("a newer release wrote it")
        return None if run_id == hidden else RunState(str(run_id))

    async def list_runs(*_: Any) -> list[UUID]:
        return [newer, hidden, seen]

    monkeypatch.setattr(files, "list_runs_with_file", list_runs)
    access: Any = SimpleNamespace(reads=None, tenant=None, find_state=find_state)
    assert [state.run_id async for state in files.iterate_runs(access, b"")] == [str(seen)]


async def test_files_may_be_kept_outside_of_the_database(postgres_server: Server, tmp_path: Path) -> None:
    body = some_bytes(2 * PIECE_BYTES + 3)
    with postgres_server.database() as dsn:
        with serving(dsn) as server:
            before = httpx2.post(f"{server.url}/v1/files", content=b"before").json()["id"]
        with serving(dsn, environment={"HAI_FLOW_FILES": f"file://{tmp_path}/files"}) as server:
            id = httpx2.post(f"{server.url}/v1/files", content=body).json()["id"]
            assert get(server, id, {"Range": "bytes=5-"}).content == body[5:]
            assert get(server, before, {"Range": "bytes=0-"}).content == b"before", "what was kept here stays readable"
            assert [file.read_bytes() for file in (tmp_path / "files").glob("*/*")] == [body]
            again = httpx2.post(f"{server.url}/v1/files", content=body)
            assert again.json()["id"] == id
            assert len(list((tmp_path / "files").glob("*/*"))) == 1
            assert run_apart(fetch_value(dsn, "SELECT count(*) FROM file_leftovers")) == 0
            for file in (tmp_path / "files").glob("*/*"):
                file.unlink()
            assert code(get(server, id, {"Range": "bytes=0-"})) == (503, "file_unavailable")
