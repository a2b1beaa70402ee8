"""A question to people as a client sees it: whether it may answer, as a call or not, and what came of it."""

from __future__ import annotations

from typing import Final, NamedTuple

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.pendings.votes import asks
from hai_flow.engine.state.state import PendingState
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.reader_redaction import strip_evidence_of
from hai_flow.wire.sent_json import strip_none

CONFIRM: Final = {"approve": "confirmAction", "gate": "confirmAction", "ask": "requestInput"}
"""The frontend tools that a client may advertise to get questions as calls, by the kind of question."""


class Call(NamedTuple):
    """A call that shows a question to a client. `answer` is its result as (content, error), None without one."""

    id: str
    name: str
    args: str
    answer: tuple[str, str | None] | None


def can_be_answered(profile: Profile, opened: e.PendingOpened) -> bool:
    """Whether this client may answer the question: its profile allows answers, and the question is put to its
    reader."""
    if not profile.may_answer or opened.policy is None:
        return profile.may_answer
    if profile.reader is None:
        return opened.policy.get("asks_requester", True)
    return asks(opened.policy, profile.reader)


def as_shown(profile: Profile, opened: e.PendingOpened) -> e.PendingOpened:
    """The question as this client sees it. A client that can't answer it sees that there is a question, but neither its
    evidence nor the digest that binds an answer to it."""
    if can_be_answered(profile, opened):
        return opened
    return strip_evidence_of(opened)


def renders_as_tool_call(profile: Profile, opened: e.PendingOpened) -> bool:
    """Whether the client gets this question as a call: it advertised the tool for it and may answer."""
    return can_be_answered(profile, opened) and CONFIRM.get(opened.kind) in profile.client_tools


def confirmation(profile: Profile, pending: PendingState) -> Call | None:
    """The call of confirmAction or requestInput that shows the question to the client; None if no call shows it."""
    opened = pending.opened
    if not renders_as_tool_call(profile, opened):
        return None
    return Call(opened.id, CONFIRM[opened.kind], encode_question_args(opened), answer_of(pending))


def encode_question_args(opened: e.PendingOpened) -> str:
    """The arguments of confirmAction and requestInput (docs/design/protocols.md#hai)."""
    fields = {
        "title": opened.heading,
        "message": opened.message,
        "evidence": None if opened.evidence is None else values.loads(opened.evidence),
        "tool": opened.tool,
        "arguments": None if opened.args is None else values.loads(opened.args),
        "options": list(opened.options) or None,
        "reasons": (opened.policy or {}).get("reasons"),
        "form": opened.schema,
        "deadline": opened.deadline,
        "digest": opened.digest or None,
    }
    return values.dumps(strip_none(fields)).decode()


def answer_of(pending: PendingState) -> tuple[str, str | None] | None:
    """The outcome of a pending, as a tool message's (content, error); None while it is open."""
    match pending.status:
        case "open":
            return None
        case "answered":
            value = pending.value
            return values.to_text(value), None
        case "declined" | "expired" | "voided":
            error = pending.reason or pending.status
            return error, error
        case decision:
            return values.dumps({"decision": decision}).decode(), None
