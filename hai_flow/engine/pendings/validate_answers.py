"""Which answers are taken: each is read and held against its pending, before the first one is decided."""

from __future__ import annotations

from hai_flow.definition.plan import Call, FrontendTool
from hai_flow.engine import commands as c
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings import bypass, votes
from hai_flow.engine.pendings.answers import HAPPENED, Reading, answer_refusal, read_answer
from hai_flow.engine.pendings.eligibility import (
    NOT_ASKED,
    NOT_PICKED,
    OF_AN_AGENT,
    describe_deciders,
    ineligible,
    world_of,
)
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.values import Json


def readings(draft: Draft, command: c.Answer) -> list[tuple[PendingState, Reading, bool]]:
    """Every answer read against its pending, or one refusal that lists the obstacles to each. True: nothing new."""
    read: dict[str, tuple[PendingState, Reading, bool]] = {}
    refusals: list[Rejected] = []
    for answer in command.answers:
        try:
            entry = _reading(draft, answer, command.by)
        except Rejected as rejected:
            if not (answer.superseded and rejected.status == 422):
                refusals.append(rejected)
            continue
        if read.setdefault(answer.id, entry)[1].sha != entry[1].sha:
            detail = f"{answer.id}: answered twice, and differently, in one request."
            refusals.append(Rejected(422, "answer.invalid", detail))
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


def _reading(draft: Draft, answer: c.PendingAnswer, by: c.Principal) -> tuple[PendingState, Reading, bool]:
    """One answer, refused in this order: unknown 404, decided 409, expired 410, not eligible 403, unfit 422."""
    pending = draft.state.pendings.get(answer.id)
    if pending is None:
        raise Rejected(404, "pending_unknown", f"there is no pending {answer.id}.")
    reading = _read_answer(draft, pending, answer)
    if isinstance(reading, Reading) and _is_known(pending, reading, by):
        return pending, reading, True
    _demand_open(draft, pending)
    _demand_eligible(draft, pending, by)
    if isinstance(reading, Rejected):
        raise reading
    if pending.opened.kind == "doubt" and reading.outcome == HAPPENED:
        bypass.demand_settlement(draft, pending, by)
    if reading.outcome == votes.APPROVE and reading.value is not None:
        _merge_with(pending, reading)
    return pending, reading, False


def _read_answer(draft: Draft, pending: PendingState, answer: c.PendingAnswer) -> Reading | Rejected:
    """The answer, or why it can't be read: that comes last, after every other obstacle to it."""
    step = draft.step(pending.opened.path)
    verb = step.verb
    tool = verb.tool if isinstance(verb, Call) and isinstance(verb.tool, FrontendTool) else None
    try:
        schema = draft.context.schemas(draft.plan, step, pending.opened.source) if isinstance(verb, Call) else None
        return read_answer(pending, tool, answer, schema)
    except Rejected as rejected:
        return rejected


def _is_known(pending: PendingState, reading: Reading, by: c.Principal) -> bool:
    """Whether the answer is the one that decided, or the vote that this person has cast already."""
    if pending.status not in ("open", "expired", "voided") and reading.sha == pending.answer_sha:
        return True
    mine = (by.id, by.on_behalf_of, reading.sha)
    return any((vote.by, vote.on_behalf_of, vote.answer_sha) == mine for vote in pending.votes)


def _demand_open(draft: Draft, pending: PendingState) -> None:
    id = pending.opened.id
    if pending.status == "expired" or _is_overdue(draft, pending):
        raise Rejected(
            410, "pending_expired", f"{id} expired; its deadline has passed.", winner=_describe_winner(pending)
        )
    if pending.status == "voided":
        detail = f"{id} needs no answer any more: {pending.reason}."
        raise Rejected(409, "pending_voided", detail, winner=_describe_winner(pending))
    if pending.status != "open":
        detail = f"{id} was answered already, and differently; the first answer stands."
        raise Rejected(409, "pending_decided", detail, winner=_describe_winner(pending))


def _is_overdue(draft: Draft, pending: PendingState) -> bool:
    """Whether the deadline of its stage has passed, though its consequences are not drawn yet. (Time passes before
    any command; but of a fork, it may have passed in the run that it was forked from.)"""
    if pending.status != "open":
        return False
    halted = draft.state.status in ("paused", "needs_attention")
    clocks = ("deadline",) if halted else ("deadline", "halting_deadline")
    path = pending.opened.path
    return any(t.path == path and t.kind in clocks and t.due <= draft.now for t in draft.state.timers)


def _demand_eligible(draft: Draft, pending: PendingState, by: c.Principal) -> None:
    fault = ineligible(pending, by, world_of(draft.plan, draft.state))
    if fault is not None:
        code = "vote.agent" if fault.code == OF_AN_AGENT else "pending_forbidden"
        others = "" if fault.code in (NOT_ASKED, NOT_PICKED) else f" {describe_deciders(pending)}"
        raise Rejected(403, code, f"{pending.opened.id} is not {by.id}'s to answer: {fault.reason}.{others}")
    if earlier := votes.describe_earlier_vote(pending, by):
        detail = f"{pending.opened.id} is not {by.id}'s to answer: {earlier}. {describe_deciders(pending)}"
        raise Rejected(403, "vote_final", detail)


def _merge_with(pending: PendingState, reading: Reading) -> Json:
    """The values of the approvals that count, with those of one more. Raises Rejected(422)."""
    rules = derive_rules(pending)
    before = [] if reading.args is not None else votes.values_given(pending)  # an edit begins anew
    try:
        return votes.merge_values(rules, pending.opened.schema, [*before, reading.value])
    except votes.Differs as differs:
        raise answer_refusal(pending.opened, f"{differs}.") from None


def answer_outcome(
    pending: PendingState, reading: Reading, status: str, by: c.Principal | str | None
) -> dict[str, Json]:
    who = by.id if isinstance(by, c.Principal) else by
    return {"id": pending.opened.id, "outcome": reading.outcome, "status": status, "by": who}


def _describe_winner(pending: PendingState) -> dict[str, Json]:
    """The answer that stands instead of a late or different one."""
    return {
        "id": pending.opened.id,
        "outcome": pending.status,
        "by": pending.by,
        "at": None if pending.at is None else instants.rfc3339(pending.at),
        "value": pending.value,
        "reason": pending.reason,
    }
