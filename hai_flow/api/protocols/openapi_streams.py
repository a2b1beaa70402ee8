"""How OpenAPI describes a POST of a UI protocol: its body, and the stream that answers it."""

from __future__ import annotations

from typing import Any, Final

from hai_flow.wire.dialects.dialect import Dialect

REFUSALS: Final = (404, 409, 410)
ANY_OBJECT: Final[dict[str, Any]] = {"application/json": {"schema": {"type": "object"}}}
OBJECTS: Final[dict[str, Any]] = {"type": "array", "items": {"type": "object"}}
ID: Final = {"type": "string", "maxLength": 200}


def describe_body(name: str, required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    """The object that is posted, for the OpenAPI document."""
    schema = {"type": "object", "description": name, "required": required, "properties": properties}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


RUN_AGENT_INPUT: Final = describe_body(
    "RunAgentInput",
    ["threadId", "runId"],
    {
        "threadId": ID,
        "runId": ID,
        "messages": OBJECTS,
        "tools": OBJECTS,
        "forwardedProps": {"type": "object"},
        "state": {"description": "of it counts what the workflow declares with `client: true`"},
        "resume": {**OBJECTS, "description": "AG-UI"},
        "protocolVersion": {"type": "string", "description": "AG-UI"},
    },
)


def describe_stream(dialect: Dialect) -> dict[str, Any]:
    """The stream that answers a POST of the dialect, for the OpenAPI document."""
    text, binary = {"type": "string"}, {"type": "string", "format": "binary"}
    content = {dialect.framing.content_type: {"schema": text}}
    content |= {other.framing.content_type: {"schema": binary} for other in dialect.others}
    return {"description": "the events of one turn", "content": content}
