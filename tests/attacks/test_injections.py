"""Text that would be more than text to who reads it next: SQL, expressions, streams, pages. It stays text."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import httpx2
import pytest

from hai_flow.wire import DIALECTS
from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess

ECHO: Final = """
hai: flow/v1
name: injected
version: 1
input: {type: object, required: [text], properties: {text: {type: string}}}
state: {text: {type: string, default: ''}}
steps:
  - {set: {text: "${{ input.text }}"}}
  - {say: "${{ input.text }}"}
  - {emit: {custom: {name: said, value: {text: "${{ input.text }}"}}}}
  - {id: asked, approve: {title: "${{ input.text }}", from: anyone, evidence: {text: "${{ input.text }}"}}}
"""
TEXTS: Final = {
    "SQL": "'; DROP TABLE runs; --",
    "SQL with dollars": "$1 $$ %s {0}",
    "an expression": "${{ 1 + 1 }}",
    "an expression in one": "}} ${{ input }} {{",
    "a field of the stream": "x\nevent: hacked\ndata: {}\n\n",
    "its other line ends": "x\r\rdata: hacked\r\n\r\nid: 1",
    "line ends of others": "x\u2028data: hacked\u2029event: hacked\u0085data: hacked",
    "a page": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "a terminal": "\u001b[2J\u001b]0;hacked\u0007",
    "what turns text around": "\u202egnp.exe",
    "the seam of HAI's documents": '}{"output":{"type":"hacked"}}{',
    "a log": '{"event": "hacked"}\n{"level": "error"}',
}


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    assert httpx2.post(f"{server.url}/v1/workflows", content=ECHO, headers=YAML).status_code in (200, 201)


def events_of(stream: bytes) -> list[tuple[str, Any]]:
    """(name, data) of each event, as an EventSource reads them: three line ends, an empty line between events."""
    events, name, data = [], "", ""
    for line in re.split("\r\n|\r|\n", stream.decode()):
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif not line and data:
            events.append((name, json.loads(data)))
            name, data = "", ""
    return events


def texts_in(value: Any) -> list[str]:
    """All strings of a JSON value, and those of the JSON in them."""
    if isinstance(value, str):
        inner: list[str] = []
        if value[:1] in ("{", "["):
            try:
                inner = texts_in(json.loads(value))
            except ValueError:
                inner = []
        return [value, *inner]
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts_in(each)]
    return [text for each in value for text in texts_in(each)] if isinstance(value, list) else []


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_what_a_user_says_is_text_in_every_stream(server: ServerProcess, text: str) -> None:
    body = {"workflow": "injected", "thread_id": unique("t"), "input": {"text": text}}
    run = httpx2.post(f"{server.url}/v1/runs", json=body).json()
    path = f"{server.url}/v1/runs/{run['id']}/events"
    with httpx2.stream("GET", path, headers={"Accept": "text/event-stream"}, timeout=20) as response:
        data, pieces = b"", response.iter_bytes()
        while b"event: turn_ended\n" not in data or not data.endswith(b"\n\n"):
            data += next(pieces)
    streams = {"log": data}
    for dialect in sorted(DIALECTS.keys() - {"log"}):
        answer = httpx2.get(path, params={"dialect": dialect}, headers={"Accept": "text/event-stream"}, timeout=20)
        streams[dialect] = answer.content
    for dialect, stream in streams.items():
        events = events_of(stream)
        assert "hacked" not in [name for name, _ in events], dialect
        assert all(isinstance(data, dict) for _, data in events), dialect
        assert text in texts_in([data for _, data in events]), dialect
        assert stream.decode().splitlines() == re.split("\r\n|\r|\n", stream.decode())[:-1], dialect
        assert b"\x1b" not in stream, dialect
    (asked,) = [each for each in httpx2.get(f"{server.url}/v1/pendings").json()["items"] if each["run_id"] == run["id"]]
    assert (asked["title"], asked["evidence"]) == (text, {"text": text})
    assert httpx2.get(f"{server.url}/v1/runs/{run['id']}/snapshot").json()["state"] == {"text": text}


@pytest.mark.parametrize("thread", ["' OR 1=1 --", "%", "_", "a/../b", "\\", "$1", "a\u202eb", "тред", "a" * 200])
def test_the_name_of_a_thread_means_that_thread_alone(server: ServerProcess, thread: str) -> None:
    body = {"workflow": "injected", "thread_id": thread, "input": {"text": "x"}}
    run = httpx2.post(f"{server.url}/v1/runs", json=body)
    if run.status_code == 422:
        return
    assert run.status_code in (201, 409), run.text  # what an earlier round has started is still there
    items = httpx2.get(f"{server.url}/v1/runs", params={"thread_id": thread}).json()["items"]
    assert {each["thread_id"] for each in items} == {thread}


def test_a_picture_of_a_workflow_holds_no_script(server: ServerProcess) -> None:
    name = unique("picture")
    source = (
        f"hai: flow/v1\nname: {name}\nversion: 1\nsteps:\n"
        "  - {id: s, title: '</text><script>alert(1)</script>', wait: {for: 1h}}\n"
        '  - {say: \'"]; click s "javascript:alert(1)"\'}\n'
    )
    assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML).status_code == 201
    for form in ("svg", "mermaid"):
        answer = httpx2.get(f"{server.url}/v1/workflows/{name}/graph", params={"format": form})
        assert answer.status_code == 200, answer.text
        assert "<script" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
