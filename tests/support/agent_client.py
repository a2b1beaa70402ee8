"""A client of the Agent API over real sockets. Every stream that it gets is checked by the rules for all streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support import wire_lint
from tests.support.hai_client import parse, unique


def say(text: str) -> dict[str, Any]:
    """A user's message."""
    return {
        "object": "message",
        "type": "message",
        "id": unique("msg"),
        "role": "user",
        "content": [{"object": "content", "type": "text", "delta": False, "text": text}],
    }


def output(call_id: str, value: str) -> dict[str, Any]:
    """The result of a call."""
    data = {"call_id": call_id, "output": value}
    return {"type": "function_call_output", "id": unique("msg"), "content": [{"type": "data", "data": data}]}


def approval(request_id: str, *, approve: Any, reason: str | None = None) -> dict[str, Any]:
    """The answer to a request for approval."""
    data = {"approval_request_id": request_id, "approve": approve, "reason": reason}
    return {"type": "mcp_approval_response", "id": unique("msg"), "content": [{"type": "data", "data": data}]}


@dataclass
class Response:
    """The objects of one response."""

    status: int
    objects: list[dict[str, Any]] = field(default_factory=list)
    problem: Any = None

    @property
    def last(self) -> dict[str, Any]:
        """The response as it ended."""
        return self.objects[-1]

    def messages(self, type: str) -> list[dict[str, Any]]:
        """The complete messages of one type."""
        return [
            each
            for each in self.objects
            if each["object"] == "message" and each["type"] == type and each["status"] == "completed"
        ]

    def data(self, type: str) -> dict[str, Any]:
        """The data of the only message of the type."""
        (message,) = self.messages(type)
        (content,) = message["content"]
        return content["data"]

    def text(self) -> str:
        """All text that was streamed, by its deltas."""
        return "".join(each["text"] for each in self.objects if each["object"] == "content" and each["delta"] is True)


class AgentClient:
    """One session."""

    def __init__(self, url: str, workflow: str | None = None) -> None:
        self.session_id = unique("session")
        self._url = f"{url}/process" if workflow is None else f"{url}/workflows/{workflow}/process"

    def post(self, *messages: dict[str, Any], stream: bool = True, **fields: Any) -> Response:
        """Post messages; the response to its end."""
        body = {"input": list(messages), "session_id": self.session_id, "stream": stream, **fields}
        answer = httpx2.post(self._url, json=body, timeout=30)
        if answer.status_code != 200:
            return Response(answer.status_code, problem=answer.json())
        if not stream:
            return Response(200, [answer.json()])
        objects = [event.data for event in parse(answer.content)]
        assert wire_lint.lint_agent_api(answer.content, whole=True) == []
        return Response(200, objects)
