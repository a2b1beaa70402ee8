"""How OpenAPI describes a POST of a UI protocol: its body, and the stream that answers it."""

from __future__ import annotations

from typing import Any, Final

from hai_flow.api.http.problems import WITH_BODY, list_refusal_responses
from hai_flow.wire.dialects.dialect import Dialect

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


def build_stream_responses(dialect: Dialect) -> dict[int | str, dict[str, Any]]:
    """The responses to a POST of the dialect, for the OpenAPI document."""
    text, binary = {"type": "string"}, {"type": "string", "format": "binary"}
    content = {dialect.framing.content_type: {"schema": text}}
    content |= {other.framing.content_type: {"schema": binary} for other in dialect.others}
    return {
        **list_refusal_responses(404, 409, 410, *WITH_BODY),
        200: {"description": "the events of one turn", "content": content},
    }
