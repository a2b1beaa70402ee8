"""AG-UI clients over real sockets, of 1.0 and older, as docs/protocols/agui.md has them. Every stream is linted."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.support.hai_client import Stream, parse, unique
from tests.support.wire_lint import lint_agui


class AguiClient:
    """One thread of one server. `version` "0": a client that does not say its own."""

    def __init__(
        self,
        url: str,
        thread_id: str | None = None,
        *,
        workflow: str | None = None,
        version: str = "1.0",
        path: str = "/ag-ui",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.thread_id = thread_id or unique("thread")
        self.version = version
        self.url = url + ("" if workflow is None else f"/workflows/{workflow}") + path
        self.headers = headers or {}

    def body(
        self, *messages: dict[str, Any], run_id: str | None = None, tools: tuple[str, ...] = (), **more: Any
    ) -> dict[str, Any]:
        return {
            "threadId": self.thread_id,
            "runId": run_id or unique("run"),
            **({"protocolVersion": "1.0"} if self.version == "1.0" else {}),
            "state": None,
            "messages": list(messages),
            "tools": [{"name": name, "description": "", "parameters": {}} for name in tools],
            "context": [],
            "forwardedProps": {},
            **more,
        }

    def post(self, *messages: dict[str, Any], **more: Any) -> AguiStream:
        """POST, and read the stream to its end."""
        return self.send(self.body(*messages, **more))

    def send(self, body: dict[str, Any]) -> AguiStream:
        headers = {"Accept": "text/event-stream", "Content-Type": "application/json", **self.headers}
        response = httpx2.post(self.url, content=json.dumps(body), headers=headers, timeout=30)
        if response.status_code != 200:
            assert response.json()["status"] == response.status_code
            return AguiStream(response.status_code, response.content)
        assert response.headers["content-type"] == "text/event-stream"
        assert lint_agui(response.content, self.version) == []
        return AguiStream(200, response.content, [event.data for event in parse(response.content)])


class AguiStream(Stream):
    """The answer to one POST."""

    def text(self) -> str:
        return "".join(event["delta"] for event in self.all("TEXT_MESSAGE_CONTENT"))

    def interrupts(self) -> list[dict[str, Any]]:
        """The interrupts that the run waits for; empty if it ended without an outcome."""
        return self.one("RUN_FINISHED").get("outcome", {}).get("interrupts", [])

    def calls(self) -> list[str]:
        """The ids of the calls that this stream showed."""
        return [event["toolCallId"] for event in self.all("TOOL_CALL_START")]


def resolved(interrupt: dict[str, Any], *payload: Any) -> dict[str, Any]:
    """A `resume` entry, with a payload if one is given."""
    entry = {"interruptId": interrupt["id"], "status": "resolved"}
    return {**entry, "payload": payload[0]} if payload else entry


def cancelled(interrupt: dict[str, Any]) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "cancelled"}
