"""A HAI client as its document describes it, over real sockets. Every stream that it sees is linted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support import wire_lint

BINARY = "application/vnd.hai.event+msgpack"

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """A name that no other test of this process uses."""
    return f"{prefix}-{next(_numbers)}"


@dataclass
class Event:
    """One SSE event: its id, its name and its data."""

    id: str | None
    name: str | None
    data: Any
    raw: bytes


def parse(stream: bytes) -> list[Event]:
    """The events of SSE bytes; comments are left out. They are linted, as far as a piece of a stream can be."""
    assert wire_lint.faults_of(stream) == []
    events: list[Event] = []
    for block in stream.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if line and not line.startswith(b":"))
        if b"data" in fields:
            id, name = fields.get(b"id"), fields.get(b"event")
            events.append(
                Event(
                    None if id is None else id.decode(),
                    None if name is None else name.decode(),
                    json.loads(fields[b"data"]),
                    block + b"\n\n",
                )
            )
    return events


@dataclass
class Stream:
    """The answer to one POST."""

    status: int
    body: bytes
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def problem(self) -> dict[str, Any]:
        return json.loads(self.body)

    def all(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == type]

    def one(self, type: str) -> dict[str, Any]:
        found = self.all(type)
        assert len(found) == 1, f"expected one {type}, found {self.types}"
        return found[0]

    def text(self) -> str:
        """The text of all messages."""
        return "".join(json.loads(event["delta"])["output"]["content"] for event in self.all("BUSINESS_DATA_CONTENT"))

    def call_id(self, name: str) -> str:
        return next(e["toolCallId"] for e in self.all("TOOL_CALL_START") if e["toolCallName"] == name)


class Live:
    """A stream that is open: read as far as one wants to."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.body = b""
        self._bytes = response.iter_bytes()

    def until(self, type: str) -> list[dict[str, Any]]:
        """Read until an event of `type` has come."""
        while type not in [event.data.get("type") for event in self.events()]:
            self.body += next(self._bytes)
        return [event.data for event in self.events()]

    def events(self) -> list[Event]:
        """The events that have come completely."""
        return parse(self.body[: self.body.rfind(b"\n\n") + 2] if b"\n\n" in self.body else b"")

    def rest(self) -> Stream:
        """Read to the end."""
        for piece in self._bytes:
            self.body += piece
        return _checked(200, self.body)


class HaiClient:
    """One thread of one server."""

    def __init__(
        self,
        url: str,
        thread_id: str | None = None,
        *,
        workflow: str | None = None,
        path: str = "/awp",
        binary: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.headers = headers or {}
        self.thread_id = thread_id or unique("thread")
        self.url = url + (path if workflow is None else f"/workflows/{workflow}{path}")
        self.accept = BINARY if binary else "text/event-stream"

    def body(
        self, *messages: dict[str, Any], run_id: str | None = None, tools: tuple[str, ...] = (), **more: Any
    ) -> dict[str, Any]:
        return {
            "threadId": self.thread_id,
            "runId": run_id or unique("run"),
            "messages": list(messages),
            "tools": [{"name": name, "description": "", "parameters": {}} for name in tools],
            "context": [],
            **more,
        }

    def post(self, *messages: dict[str, Any], **more: Any) -> Stream:
        """POST, and read the stream to its end."""
        return self.send(self.body(*messages, **more))

    def send(self, body: Any) -> Stream:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = httpx2.post(
            self.url,
            content=content,
            headers={"accept": self.accept, "content-type": "application/json", **self.headers},
            timeout=30,
        )
        if response.status_code == 200:
            assert response.headers["content-type"] == self.accept
        return _checked(response.status_code, response.content, binary=self.accept == BINARY)

    @contextmanager
    def open(self, *messages: dict[str, Any], **more: Any) -> Iterator[Live]:
        """POST, and read as far as one wants to. Leaving the block closes the connection."""
        with httpx2.stream("POST", self.url, json=self.body(*messages, **more), timeout=30) as response:
            assert response.status_code == 200, response.read()
            yield Live(response)


def _checked(status: int, body: bytes, *, binary: bool = False) -> Stream:
    if status != 200:
        problem = json.loads(body)
        assert problem["status"] == status, problem
        return Stream(status, body)
    if binary:
        faults = wire_lint.lint_binary(body)
        assert not faults, (faults, body[-500:])
        return Stream(status, body, wire_lint.binary_events(body))
    faults = wire_lint.lint(body)
    assert not faults, (faults, body[-500:])
    return Stream(status, body, [event.data for event in parse(body)])


def user(content: Any = "hello", id: str | None = None) -> dict[str, Any]:
    return {"id": id or unique("msg"), "role": "user", "content": content}


def answer(call_id: str, content: str = "confirmed", **more: Any) -> dict[str, Any]:
    return {"id": unique("msg"), "role": "tool", "toolCallId": call_id, "content": content, **more}


class DemoPage:
    """The page that the demo client shows of streams: re-implemented, with its parser, from section 4.1 of HAI's
    document.

    `outputs` are the documents of all messages, one after the other; `items` are the tasks that agents handed over,
    patched by STATE_DELTA (it takes no snapshot of the state); `calls` are those of frontend tools."""

    def __init__(self) -> None:
        self._buffers: dict[str, str] = {}
        self._task = ""
        self.items: list[dict[str, Any]] = []
        self.calls: dict[str, list[str]] = {}

    def read(self, stream: bytes) -> DemoPage:
        for block in stream.decode().split("\n\n"):
            for line in block.split("\n"):
                if line.startswith("data: "):
                    self._event(json.loads(line.removeprefix("data: ")))
        return self

    @property
    def outputs(self) -> list[Any]:
        return [document for buffer in self._buffers.values() for document in parse_json_string(buffer)]

    def _event(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "BUSINESS_DATA_START":
                self._buffers.setdefault(event["messageId"], "")
            case "BUSINESS_DATA_CONTENT":
                self._buffers[event["messageId"]] += event["delta"]
            case "AGENT_COLLABORATIVE_MESSAGE_START":
                self._task = ""
                self.items.append({"from": event["from"], "to": event["to"]})
            case "AGENT_COLLABORATIVE_MESSAGE_CONTENT":
                self._task += event["delta"]
            case "AGENT_COLLABORATIVE_MESSAGE_END":
                self.items[-1] |= json.loads(self._task)
            case "TOOL_CALL_START":
                self.calls[event["toolCallId"]] = [event["toolCallName"], ""]
            case "TOOL_CALL_ARGS":
                self.calls[event["toolCallId"]][1] += event["delta"]
            case "STATE_DELTA":
                for operation in event["delta"]:
                    assert operation["op"] in ("add", "replace"), operation
                    assert operation["from"] == ""
                    root, number, name = operation["path"].strip("/").split("/")
                    assert root == "workflowItems"
                    self.items[int(number)][name] = operation["value"]

    @property
    def called(self) -> list[tuple[str, Any]]:
        return [(name, json.loads(args)) for name, args in self.calls.values()]


def parse_json_string(text: str) -> list[Any]:
    """The demo client's own: `JSON.parse(`[${jsonString.replace(/}{/g, '},{')}]`)`."""
    return json.loads("[" + text.replace("}{", "},{") + "]")
