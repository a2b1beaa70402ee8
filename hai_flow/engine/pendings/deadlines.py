"""A pending in time: reminders, deadlines, and the stages that follow each other until one decides.

Each stage sets one timer for its deadline and one for the next reminder."""

from __future__ import annotations

from typing import Final

import msgspec

from hai_flow import values
from hai_flow.definition.plan import Approve, Ask, Expiry, Policy, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.answers import form_of
from hai_flow.engine.pendings.decide import close, decide_by, go_on, values_given
from hai_flow.engine.pendings.votes import Rules, derive_rules
from hai_flow.engine.state.state import PendingState

_EXPIRED: Final = "Nobody decided before the deadline."

PICK: Final = "pick_people"
"""The message of a run whose question is for some of those whom it asks."""

_EXPIRED_CODES: Final = {"tool": "tool.expired", "ask": "ask.expired"}


def set_clock(draft: Draft, step: Step) -> None:
    """The timers of the stage that begins now."""
    pending = draft.state.pendings[draft.state.open_pendings[step.path]]
    if derive_rules(pending).pick is not None:
        draft.send(PICK, draft.state.run_id, {"id": pending.opened.id})
    due = pending.opened.deadline
    if due is not None:
        halts = derive_rules(pending).pause_clock == "stop"
        draft.emit(e.TimerSet, path=step.path, kind="halting_deadline" if halts else "deadline", due=due)
    _set_reminder(draft, step)


def _set_reminder(draft: Draft, step: Step) -> None:
    pending = draft.state.pendings[draft.state.open_pendings[step.path]]
    rules = derive_rules(pending)
    if pending.reminded < len(rules.remind):
        due = max(draft.now, rules.find_due(pending.since, rules.remind[pending.reminded]))
        draft.emit(e.TimerSet, path=step.path, kind="remind", due=due)


def remind(draft: Draft, step: Step) -> None:
    """It is time to remind the deciders of the step's pending."""
    id = draft.state.open_pendings[step.path]
    pending = draft.state.pendings[id]
    notify = derive_rules(pending).notify
    draft.emit(e.PendingReminded, id=id, path=step.path, n=pending.reminded + 1, notify=notify)
    _set_reminder(draft, step)


def deadline_passed(draft: Draft, step: Step) -> None:
    """The deadline of the step's pending has passed: the next stage, or the last outcome of `on_deadline`."""
    pending = draft.state.pendings[draft.state.open_pendings[step.path]]
    if derive_rules(pending).escalations:
        escalate(draft, step, "the deadline has passed")
    else:
        _expire(draft, step, pending)


def escalate(draft: Draft, step: Step, reason: str) -> None:
    """The next stage that can be decided begins; earlier votes of its deciders count at once."""
    id = draft.state.open_pendings[step.path]
    while True:
        pending = draft.state.pendings[id]
        stages = derive_rules(pending).escalations
        if not stages:
            _end_undecided(draft, step, pending, reason)
            return
        rules = msgspec.structs.replace(stages[0], escalations=stages[1:])
        assert rules.deadline is not None, "a stage has a deadline"
        due = rules.find_due(draft.now, rules.deadline)
        since = None if draft.now == draft.clock else draft.now
        policy = votes.to_json(rules)
        draft.rendered_bytes += len(values.dumps(policy))
        draft.emit(e.PendingEscalated, id=id, path=step.path, policy=policy, deadline=due, reason=reason, since=since)
        pending = draft.state.pendings[id]
        fault = votes.impossible(rules, pending)
        decision = None if rules.fault else votes.verdict(rules, pending)
        if decision == votes.APPROVE or (decision == votes.REJECT and fault is None):
            decide_by(draft, step, pending, decision, _find_deciding_vote(rules, pending, decision))
            return
        if fault is None:
            set_clock(draft, step)
            return
        reason = fault


def _find_deciding_vote(rules: Rules, pending: PendingState, decision: str) -> e.VoteCast:
    """The newest of the votes that decided."""
    return [
        vote for vote in pending.votes if vote.decision == decision and votes.counts(rules, vote, pending.opened.digest)
    ][-1]


def _end_undecided(draft: Draft, step: Step, pending: PendingState, reason: str) -> None:
    """No stage is left that can be decided: the outcome of `on_deadline` comes at once where it is a no, and nothing is
    granted because nobody could decide."""
    policy = _policy(step) if pending.opened.kind in ("approve", "gate") else None
    if policy is not None and policy.expiry.outcome == votes.REJECT:
        _expire(draft, step, pending)
    else:
        _fail_impossible(draft, step, pending, reason)


def _fail_impossible(draft: Draft, step: Step, pending: PendingState, reason: str) -> None:
    result = votes.envelope(pending, "expired", None, expired=True)
    approval = None if pending.opened.kind == "ask" else result
    draft.emit(e.PendingDecided, id=pending.opened.id, outcome="expired", value=approval, reason=reason, via="deadline")
    message = f"{step.path}: nobody can decide: {reason}."
    loop.fail(draft, step, draft.error("approval.impossible", message, step.path), approval)


def _expire(draft: Draft, step: Step, pending: PendingState) -> None:
    kind, id = pending.opened.kind, pending.opened.id
    policy = None if kind == "tool" or pending.opened.inquiry is not None else _policy(step)
    expiry = Expiry("fail") if policy is None else policy.expiry
    roots = {"args": values.loads(pending.opened.args)} if pending.opened.args is not None else {}
    try:
        reason = _EXPIRED if expiry.reason is None else draft.text(expiry.reason, step, **roots)
        value = None if expiry.value is None else draft.render(expiry.value, step, **roots)
        if kind == "ask" and isinstance(value, dict) and (form := form_of(pending.opened)) is not None:
            value = form.with_defaults(value)
        form_values = values_given(derive_rules(pending), pending) if expiry.outcome == "approve" else None
    except Raised as raised:
        draft.emit(e.PendingDecided, id=id, outcome="expired", reason=raised.message, via="deadline")
        loop.fail(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))
        return
    if expiry.outcome in (votes.APPROVE, votes.REJECT):
        result = votes.envelope(pending, expiry.outcome, reason, form_values, expired=True)
        close(draft, pending, "expired", result, reason=reason, via="deadline")
        go_on(draft, step, pending, result, reason)
    elif expiry.outcome == "default":
        draft.emit(e.PendingDecided, id=id, outcome="expired", value=value, reason=reason, via="deadline")
        loop.finish(draft, step, value)
    else:
        is_approval = kind in ("approve", "gate")
        result = votes.envelope(pending, "expired", None, expired=True) if is_approval else None
        draft.emit(e.PendingDecided, id=id, outcome="expired", value=result, reason="deadline", via="deadline")
        code = _EXPIRED_CODES.get(kind, "approval.expired")
        loop.fail(draft, step, draft.error(code, "Nobody answered before the deadline.", step.path), result)


def _policy(step: Step) -> Policy:
    if isinstance(step.verb, Ask | Approve):
        return step.verb.policy
    assert step.approval is not None, "only asks, approvals and gates have a policy"
    return step.approval.policy
