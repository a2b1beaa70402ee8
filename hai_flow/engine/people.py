"""Asking people and taking their answers: open a pending, read and decide it, let it expire.

How the content of an answer is understood is in `approval`. Not here: who may answer; a command comes authenticated.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from hai_flow import values
from hai_flow.definition.plan import Approve, Ask, Call, FrontendTool, Step
from hai_flow.engine import commands as c
from hai_flow.engine import endings
from hai_flow.engine import events as e
from hai_flow.engine.approval import Reading, digest, envelope, read_answer
from hai_flow.engine.draft import Draft
from hai_flow.engine.ids import pending_id
from hai_flow.engine.state import PendingState
from hai_flow.errors import Rejected

Json: TypeAlias = Any


def new_pending_id(draft: Draft, step: Step) -> str:
    asked = draft.state.steps[step.path].asked if step.path in draft.state.steps else 0
    return pending_id(draft.state.run_id, step.path, asked)


def open_pending(draft: Draft, step: Step, id: str, kind: str, deadline: int | None, /, **shown: Any) -> None:
    due = None if deadline is None else draft.now + deadline
    bound = digest(draft.state.sha256, draft.state.run_id, {"path": step.path, **shown})
    draft.pure_steps += 1
    draft.emit(e.PendingOpened, id=id, path=step.path, kind=kind, digest=bound, deadline=due, **shown)
    if due is not None:
        draft.emit(e.TimerSet, path=step.path, kind="deadline", due=due)


def readings(draft: Draft, command: c.Answer) -> list[tuple[PendingState, Reading, bool]]:
    """Every answer read against its pending, or one refusal that lists what stands against each."""
    read: dict[str, tuple[PendingState, Reading, bool]] = {}
    refusals: list[Rejected] = []
    for answer in command.answers:
        try:
            entry = _reading(draft, answer)
            same = read.setdefault(answer.id, entry)
            if same[1].sha != entry[1].sha:
                raise Rejected(422, "answer.invalid", f"{answer.id}: answered twice, and differently, in one request.")
        except Rejected as rejected:
            refusals.append(rejected)
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        first = refusals[0]
        raise Rejected(
            first.status,
            first.code,
            " ".join(rejected.detail for rejected in refusals),
            winner=first.winner,
            findings=[finding for rejected in refusals for finding in rejected.findings],
        )
    return list(read.values())


def _reading(draft: Draft, answer: c.PendingAnswer) -> tuple[PendingState, Reading, bool]:
    pending = draft.state.pendings.get(answer.id)
    if pending is None:
        raise Rejected(404, "pending_unknown", f"there is no pending {answer.id}.")
    opened, status = pending.opened, pending.status
    if status == "expired":
        raise Rejected(
            410, "pending_expired", f"{opened.id} expired; its deadline has passed.", winner=_winner(pending)
        )
    if status == "voided":
        raise Rejected(
            409,
            "pending_voided",
            f"{opened.id} needs no answer any more: {pending.reason}.",
            winner=_winner(pending),
        )
    verb = draft.plan.steps[opened.path].verb
    asker = verb.tool if isinstance(verb, Call) else verb
    assert isinstance(asker, FrontendTool | Ask | Approve)
    try:
        reading = read_answer(opened, asker, answer)
    except Rejected:
        if status == "open":
            raise
        reading = None
    if status == "open":
        assert reading is not None
        return pending, reading, False
    if reading is None or reading.sha != pending.answer_sha:
        raise Rejected(
            409,
            "pending_decided",
            f"{opened.id} was answered already, and differently; the first answer stands.",
            winner=_winner(pending),
        )
    return pending, reading, True


def decide_pending(draft: Draft, pending: PendingState, reading: Reading, by: str, via: str) -> None:
    opened = pending.opened
    step = draft.plan.steps[opened.path]
    if opened.kind == "approve":
        _decide_approval(draft, step, pending, reading, by, via)
        return
    if opened.kind == "tool":
        content = reading.reason if reading.outcome == "declined" else _content(reading.value)
        declined = "tool.declined" if reading.outcome == "declined" else None
        draft.emit(e.ToolCallResolved, tool_call_id=opened.id, content=content, error=declined)
    _record_decision(draft, opened.id, reading, by, via, reading.value)
    if reading.outcome == "declined":
        message = f"The frontend reported an error: {reading.reason}"
        endings.fail(draft, step, draft.error("tool.declined", message, step.path))
    else:
        endings.finish(draft, step, reading.value)


def _decide_approval(draft: Draft, step: Step, pending: PendingState, reading: Reading, by: str, via: str) -> None:
    opened = pending.opened
    vote = {
        "by": by,
        "on_behalf_of": None,
        "roles": [],
        "decision": reading.outcome,
        "reason": reading.reason,
        "values": reading.value,
        "at": values.rfc3339(draft.now),
        "via": via,
        "digest": opened.digest,
        "counts": True,
    }
    draft.emit(
        e.VoteCast,
        id=opened.id,
        by=by,
        decision=reading.outcome,
        reason=reading.reason,
        values=reading.value,
        via=via,
        digest=opened.digest,
    )
    result = envelope(reading.outcome, reason=reading.reason, values=reading.value, votes=[vote])
    _record_decision(draft, opened.id, reading, by, via, result)
    if reading.outcome == "approve":
        endings.finish(draft, step, result, approval=result)
    else:
        _reject(draft, step, result, reading.reason or f"Rejected by {by}.")


def _record_decision(draft: Draft, id: str, reading: Reading, by: str, via: str, value: Json) -> None:
    draft.emit(
        e.PendingDecided,
        id=id,
        outcome=reading.outcome,
        by=by,
        value=value,
        reason=reading.reason,
        answer_sha=reading.sha,
        via=via,
    )


def _reject(draft: Draft, step: Step, result: dict[str, Json], message: str) -> None:
    """A rejection: the step's reject list runs first, then `approval.rejected` is raised, whatever it did."""
    error = draft.error("approval.rejected", message, step.path)
    if step.on_reject is None:
        endings.fail(draft, step, error, result)
    else:
        draft.emit(
            e.StepFailed,
            path=step.path,
            error=error,
            approval=result,
            handler="~reject",
            ready=(step.on_reject,),
        )


def expire(draft: Draft, step: Step) -> None:
    """The deadline of the step's pending has passed: its default outcome."""
    id = draft.state.open_pendings[step.path]
    opened = draft.state.pendings[id].opened
    verb = step.verb
    if isinstance(verb, Approve) and verb.on_deadline == "reject":
        reason = "Nobody decided before the deadline."
        result = envelope("reject", reason=reason, votes=[], expired=True)
        draft.emit(e.PendingDecided, id=id, outcome="expired", value=result, reason=reason, via="deadline")
        _reject(draft, step, result, reason)
        return
    draft.emit(e.PendingDecided, id=id, outcome="expired", reason="deadline", via="deadline")
    code = {"tool": "tool.expired", "ask": "ask.expired", "approve": "approval.expired"}[opened.kind]
    approval = envelope("expired", reason=None, votes=[], expired=True) if opened.kind == "approve" else None
    endings.fail(draft, step, draft.error(code, "Nobody answered before the deadline.", step.path), approval)


def _content(value: Json) -> str:
    return value if isinstance(value, str) else values.dumps(value).decode()


def answered(pending: PendingState, reading: Reading, status: str, by: str | None) -> dict[str, Json]:
    return {"id": pending.opened.id, "outcome": reading.outcome, "status": status, "by": by}


def _winner(pending: PendingState) -> dict[str, Json]:
    """What stands instead of a late or different answer."""
    return {
        "id": pending.opened.id,
        "outcome": pending.status,
        "by": pending.by,
        "at": None if pending.at is None else values.rfc3339(pending.at),
        "value": pending.value,
        "reason": pending.reason,
    }
