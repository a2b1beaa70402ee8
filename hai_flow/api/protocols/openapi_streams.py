"""How OpenAPI describes a POST of a UI protocol: its body, and the stream that answers it."""

from __future__ import annotations

from typing import Any, Final

from hai_flow.wire.dialects.dialect import Dialect

REFUSALS: Final = (404, 409, 410)
RUN_AGENT_INPUT: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "description": "RunAgentInput",
                    "required": ["threadId", "runId"],
                    "properties": {
                        "threadId": {"type": "string", "maxLength": 200},
                        "runId": {"type": "string", "maxLength": 200},
                        "messages": {"type": "array", "items": {"type": "object"}},
                        "tools": {"type": "array", "items": {"type": "object"}},
                        "forwardedProps": {"type": "object"},
                        "state": {"description": "of it counts what the workflow declares with `client: true`"},
                        "resume": {"type": "array", "items": {"type": "object"}, "description": "AG-UI"},
                        "protocolVersion": {"type": "string", "description": "AG-UI"},
                    },
                }
            }
        },
    }
}


def describe_stream(dialect: Dialect) -> dict[str, Any]:
    """The stream that answers a POST of the dialect, for the OpenAPI document."""
    text, binary = {"type": "string"}, {"type": "string", "format": "binary"}
    content = {dialect.framing.content_type: {"schema": text}}
    content |= {other.framing.content_type: {"schema": binary} for other in dialect.others}
    return {"description": "the events of one turn", "content": content}
