"""`event` in expressions: what happened outside of a run, as `wait_for`, triggers and their inputs see it."""

from __future__ import annotations

from hai_flow.primitives import instants
from hai_flow.values import Json


def event_value(id: str, type: str, data: Json, sent_at: int) -> dict[str, Json]:
    """A signal, a posted webhook or the end of a run, as expressions see it (docs/language.md#names)."""
    return {"id": id, "type": type, "data": data, "at": instants.rfc3339(sent_at)}
