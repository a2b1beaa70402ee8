"""Questions to people, as AG-UI's interrupts (docs/design/protocols.md#tools-and-interrupts;
docs/language.md#people)."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.plan import RESPOND
from hai_flow.engine import events as e
from hai_flow.primitives import instants
from hai_flow.values import Json
from hai_flow.wire.dialects.questions import encode_question_args
from hai_flow.wire.sent_json import strip_none

_REASONS: Final = dict.fromkeys(("gate", "approve"), "confirmation")


def interrupt(opened: e.PendingOpened, call_id: str | None, *, expires: bool) -> dict[str, Json]:
    """The open question as an `Interrupt`; its id is the pending's. `call_id`: the call that a gate guards, if the
    client sees it."""
    words = [text for text in (opened.heading, opened.message) if text]
    fields = {
        "id": opened.id,
        "reason": "tool_call" if call_id else _REASONS.get(opened.kind, "input_required"),
        "message": "\n\n".join(words) or None,
        "toolCallId": call_id,
        "responseSchema": _schema(opened),
        "expiresAt": _expiry(opened) if expires else None,
        "metadata": {"hai": {"kind": opened.kind, **_question(opened)}},
    }
    return strip_none(fields)


def build_pending_value(opened: e.PendingOpened) -> dict[str, Json]:
    """The question as the value of CUSTOM `hai.pending`, for clients that do not know interrupts or cannot answer
    here."""
    return {"id": opened.id, "kind": opened.kind, **_question(opened)}


def _question(opened: e.PendingOpened) -> dict[str, Json]:
    return values.loads(encode_question_args(opened))


def _schema(opened: e.PendingOpened) -> Json:
    """The form of an answer.

    If the answer is only yes or no, also with other arguments, the form requires `approved` alone and has no
    `additionalProperties`. assistant-ui shows its approval card for this form only. The response to the model of an
    agent is taken beside it, as `{decision: respond, reason}`: the options in the metadata name it."""
    if opened.kind == "ask":
        return opened.schema
    reason = {"type": "string"}
    why = (opened.policy or {}).get("reasons") or []
    edits: dict[str, Json] = (
        {"edits": {"type": "object"}, "editedArgs": {"type": "object"}} if (opened.policy or {}).get("edit") else {}
    )
    if opened.schema is None and {*why} <= {RESPOND} and set(opened.options) <= {"approve", "reject", RESPOND}:
        properties: dict[str, Json] = {"approved": {"type": "boolean"}, "reason": reason, **edits}
        return {"type": "object", "properties": properties, "required": ["approved"]}
    properties = {"decision": {"type": "string", "enum": list(opened.options)}, "reason": reason, **edits}
    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": ["decision"]}
    if why:  # these need a reason
        schema["if"] = {"properties": {"decision": {"enum": why}}}
        schema["then"] = {"required": ["reason"]}
    if opened.schema is not None:
        form = dict(opened.schema)
        if "$defs" in form:  # its references begin at the schema's root
            schema["$defs"] = form.pop("$defs")
        properties["values"] = form
    if opened.kind == "doubt":
        properties["result"] = {}
    return schema


def _expiry(opened: e.PendingOpened) -> str | None:
    """The time after which the question takes no answer; None if that is not certain. A client trusts this time, but
    escalation may then put the question to other people, or the clock may be halted."""
    policy = opened.policy or {}
    if opened.deadline is None or policy.get("escalations") or policy.get("pause_clock") == "stop":
        return None
    return instants.rfc3339(opened.deadline)
