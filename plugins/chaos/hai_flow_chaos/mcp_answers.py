"""A server of MCP with one function, `keep`, without sessions. Pure."""

from __future__ import annotations

from typing import Any, Final

_SCHEMA: Final = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
_TOOL: Final = {"name": "keep", "description": "Keep a text.", "inputSchema": _SCHEMA}
_SERVER: Final = {"name": "chaos", "version": "1"}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a message; None: it is a notification."""
    if "id" not in message:
        return None
    return {"jsonrpc": "2.0", "id": message["id"], **_content(message)}


def _content(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params") or {}
    match message.get("method"):
        case "initialize":
            version = params.get("protocolVersion")
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _SERVER}}
        case "tools/list":
            return {"result": {"tools": [_TOOL]}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": f"kept {params['arguments']['text']}"}]}}
        case "ping":
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}
