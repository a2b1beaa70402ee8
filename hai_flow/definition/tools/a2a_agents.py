"""Agents of others that speak A2A, as tools."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.schemas.schemas import JsonSchema

AGENT_MS: Final = 3_600_000
"""Of one attempt, unless the tool says otherwise: an agent may work for long."""
ARGUMENTS: Final = JsonSchema(
    {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "what the agent is to do"},
            "data": {"type": "object", "description": "values that it needs for that"},
        },
        "additionalProperties": False,
        "minProperties": 1,
    }
)
"""The arguments of a call: they are the parts of its message."""
