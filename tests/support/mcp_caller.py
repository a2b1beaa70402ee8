"""MCP spoken over plain HTTP: each message as a client of the revision 2026-07-28 sends it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

import httpx2

VERSION: Final = "2026-07-28"
TASKS: Final = "io.modelcontextprotocol/tasks"
NOTHING: Final[dict[str, Any]] = {}
FORMS: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
WITH_TASKS: Final[dict[str, Any]] = {**FORMS, "extensions": {TASKS: {}}}
_IDS = itertools.count(1)


class Caller:
    """A client with these capabilities and credentials. `answered`: the last response."""

    def __init__(self, http: httpx2.Client, capabilities: Mapping[str, Any] = NOTHING, **headers: str) -> None:
        self.http = http
        self.capabilities = capabilities
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answered = httpx2.Response(0)

    def send(self, method: str, params: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The response's message. `headers` in `more` replace those that belong to the message; `meta` is added."""
        self.answered = self.http.post("/mcp", **self.request(method, params, **more))
        return self.message()

    def request(self, method: str, params: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The body and the headers of the request that sends the message."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": dict(self.capabilities),
            **more.get("meta", {}),
        }
        name = params.get("name", params.get("taskId", params.get("uri")))
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            **({"Mcp-Name": str(name)} if name is not None else {}),
            **self.headers,
            **more.get("headers", {}),
        }
        body = {"jsonrpc": "2.0", "id": next(_IDS), "method": method, "params": {**params, "_meta": meta}}
        return {"json": body, "headers": headers}

    def message(self) -> dict[str, Any]:
        """The message that ends the last response: of a stream, the one that is an answer."""
        text = self.answered.text
        if self.answered.headers.get("content-type", "").startswith("text/event-stream"):
            lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
            found = [json.loads(line) for line in lines]
            return next(each for each in reversed(found) if "id" in each)
        message: dict[str, Any] = json.loads(text)
        return message

    def result(self, method: str, params: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The result. Anything else is a failure of the test."""
        message = self.send(method, params, **more)
        assert "result" in message, message
        result: dict[str, Any] = message["result"]
        return result

    def error(self, method: str, params: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The error of JSON-RPC. Anything else is a failure of the test."""
        message = self.send(method, params, **more)
        assert "error" in message, message
        error: dict[str, Any] = message["error"]
        return error

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The result of a call. `state` and `answers` in `more` are those of a further round."""
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
        if "state" in more:
            params["requestState"] = more.pop("state")
        if "answers" in more:
            params["inputResponses"] = more.pop("answers")
        return self.result("tools/call", params, **more)

    def refusal(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """The code with which a call is refused."""
        result = self.call(tool, arguments, **more)
        assert result["isError"], result
        code: str = result["_meta"]["hai-flow/problem"]["code"]
        return code


def accept(**content: Any) -> dict[str, Any]:
    """A form that was filled in."""
    return {"action": "accept", "content": content}
