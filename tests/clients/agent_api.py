"""The real client of the Agent API (agentscope-runtime's `HTTPAgentAPIClient`): what it read of each response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.clients.rig import Driver
from tests.support.hai_client import unique

Json: TypeAlias = Any


@dataclass(frozen=True)
class Response:
    """One POST to `/process`, as the client read it."""

    events: list[dict[str, Json]]
    thrown: dict[str, Json] | None

    @property
    def last(self) -> dict[str, Json]:
        """The response object that the stream ended with."""
        return self.events[-1]

    def messages(self, type: str) -> list[dict[str, Json]]:
        """The messages of a type in the response's output."""
        return [message for message in self.last["output"] or () if message["type"] == type]

    def data(self, type: str) -> list[dict[str, Json]]:
        """The data contents of the messages of a type."""
        return [content["data"] for message in self.messages(type) for content in message["content"]]

    @property
    def said(self) -> list[str]:
        """The text of the assistant's messages."""
        return [
            "".join(content["text"] for content in message["content"] if content["type"] == "text")
            for message in self.messages("message")
        ]


class Session:
    """A session (a thread) with an agent behind `/process`."""

    def __init__(self, driver: Driver, url: str, workflow: str | None = None, session_id: str | None = None) -> None:
        self.session_id = session_id or unique("session")
        self._driver = driver
        self._url = f"{url}/process" if workflow is None else f"{url}/workflows/{workflow}/process"

    def post(self, *messages: dict[str, Json], way: str = "astream", **more: Json) -> Response:
        """Send messages, and read the response to its end. The client must have understood every line of it."""
        request = {"input": list(messages), "stream": True, "session_id": self.session_id, "user_id": "u1", **more}
        reply = self._driver.ask("process", url=self._url, way=way, request=request)
        response = Response(reply["events"], reply["thrown"])
        if response.thrown is None:
            assert reply["complaints"] == [], reply["complaints"]
            _check(response.events)
        return response


_KNOWN = ("AgentResponse", "Message", "TextContent", "ImageContent", "DataContent", "Content")


def _check(events: list[dict[str, Json]]) -> None:
    """Numbered without a gap, of known kinds, from created to an end, each content within an open message."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert {event["class"] for event in events} <= set(_KNOWN)
    assert [(event["object"], event["status"]) for event in events[:2]] == [
        ("response", "created"),
        ("response", "in_progress"),
    ]
    assert events[-1]["object"] == "response"
    assert events[-1]["status"] in ("completed", "incomplete", "failed", "canceled")
    opened: set[str] = set()
    for event in events:
        if event["object"] == "message" and event["status"] == "in_progress":
            assert event["id"] not in opened, event
            opened.add(event["id"])
        elif event["object"] == "message":
            opened.remove(event["id"])
        elif event["object"] == "content":
            assert event["msg_id"] in opened, event
    assert opened == set(), "these messages were never completed"


def user(text: str) -> dict[str, Json]:
    return {"role": "user", "type": "message", "content": [{"type": "text", "text": text}]}


def output(call_id: str, text: str) -> dict[str, Json]:
    """The result of a function that the client performed."""
    data = {"call_id": call_id, "output": text}
    return {"role": "tool", "type": "function_call_output", "content": [{"type": "data", "data": data}]}


def approval(request_id: str, approve: bool, reason: str | None = None) -> dict[str, Json]:
    """An answer to an mcp_approval_request."""
    data = {"approval_request_id": request_id, "approve": approve, **({} if reason is None else {"reason": reason})}
    return {"role": "user", "type": "mcp_approval_response", "content": [{"type": "data", "data": data}]}
