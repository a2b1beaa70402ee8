"""How a session with a server begins: which version of the protocol both speak, and what the server says of itself.

The SDK offers its newest version once, and refuses a server whose answer has an odd part. Many servers refuse a version
that they don't know, where the protocol wants them to name another one; so they are offered older ones, in turn. All
that counts here of what a server says of itself is its version. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

_ASSUMED: Final = "2025-03-26"  # of a server that names none, as the protocol has it for requests without one
_SAME: Final = {"2024-10-07": "2024-11-05", **dict.fromkeys(MODERN_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION)}
"""Versions that servers name in this handshake, and the one by which they are understood."""
_VERSION: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_ABOUT_VERSION: Final = re.compile(
    r"protocol.?version|version of the protocol|unsupported.{0,20}version", re.IGNORECASE
)


class Handshake:
    """The handshake of one connection."""

    def __init__(self) -> None:
        self._request: SessionMessage | None = None

    def note(self, item: SessionMessage) -> None:
        """A request is sent."""
        if isinstance(item.message, types.JSONRPCRequest) and item.message.method == "initialize":
            self._request = item

    def offer_other(self, item: Any) -> SessionMessage | None:
        """The request with an older version, where a message refuses the one that was offered; None for any other
        message, and where there is no older one."""
        asked, answer = self._request, item.message if isinstance(item, SessionMessage) else None
        if asked is None or not isinstance(asked.message, types.JSONRPCRequest):
            return None
        if isinstance(answer, types.JSONRPCResponse) and answer.id == asked.message.id:
            self._request = None  # the session has begun
        if not isinstance(answer, types.JSONRPCError) or answer.id not in (asked.message.id, None):
            return None
        text = f"{answer.error.message} {json.dumps(answer.error.data, default=str)}"
        if answer.error.code != types.UNSUPPORTED_PROTOCOL_VERSION and not _ABOUT_VERSION.search(text):
            return None
        params = asked.message.params or {}
        older = [each for each in HANDSHAKE_PROTOCOL_VERSIONS if each < str(params.get("protocolVersion"))]
        named = set(_VERSION.findall(text)) & set(older)
        if not older:
            return None
        fewer = {**params, "protocolVersion": max(named or older)}
        self._request = SessionMessage(asked.message.model_copy(update={"params": fewer}), metadata=asked.metadata)
        return self._request


def tidy_beginning(method: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `initialize` or `server/discover` in a form that the SDK takes."""
    capabilities = result.get("capabilities")
    try:
        types.ServerCapabilities.model_validate(capabilities, by_name=False)
    except ValueError:  # `true`, or PHP's empty list
        capabilities = {"tools": {}}
    instructions = result.get("instructions")
    plain = {**result, "capabilities": capabilities}
    plain["instructions"] = instructions if isinstance(instructions, str) else None
    if method == "initialize":
        version, info = result.get("protocolVersion") or _ASSUMED, result.get("serverInfo")
        info = info if isinstance(info, Mapping) else {}
        plain["protocolVersion"] = _SAME.get(str(version), str(version))
        plain["serverInfo"] = {name: str(info.get(name) or "unknown") for name in ("name", "version")}
    return plain
