"""The words of the Agent API: roles, message types, content types and statuses (docs/protocols/agent-api.md)."""

from __future__ import annotations

from typing import Literal, TypeAlias

Role: TypeAlias = Literal["assistant", "user", "system", "tool"]

MessageType: TypeAlias = Literal[
    "message",
    "function_call",
    "function_call_output",
    "plugin_call",
    "plugin_call_output",
    "component_call",
    "component_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_call",
    "mcp_approval_response",
    "reasoning",
    "heartbeat",
    "error",
]

ContentType: TypeAlias = Literal["text", "data", "image", "audio", "file", "refusal"]

RunStatus: TypeAlias = Literal[
    "created", "in_progress", "completed", "canceled", "failed", "rejected", "unknown", "queued", "incomplete"
]
