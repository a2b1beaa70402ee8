"""An answer is recorded, and its consequences are drawn: votes, verdicts, the outcome of the step."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from hai_flow import values
from hai_flow.definition.paths import REJECT, option
from hai_flow.definition.plan import RESPOND, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.answers import AGAIN, HAPPENED, Reading, compute_digest_with, map_edits_by_name
from hai_flow.engine.pendings.eligibility import world_of
from hai_flow.engine.pendings.selectors import list_excluding_selectors, list_held_selectors, list_matching_selectors
from hai_flow.engine.pendings.votes import Rules, derive_rules
from hai_flow.engine.standing_rules import ESTABLISH, RULE_DECIDED, consult_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.engine.steps.agents import RESPONDED
from hai_flow.engine.steps.effect_texts import texts_with
from hai_flow.engine.steps.tool_calls import resolve_call
from hai_flow.values import Json


def decide_pending(draft: Draft, pending: PendingState, reading: Reading, by: c.Principal, via: str) -> None:
    """Record the answer, and draw its consequences."""
    opened = pending.opened
    step = draft.step(opened.path)
    if opened.kind in ("approve", "gate"):
        _vote(draft, step, opened.id, reading, by, via)
        return
    if opened.kind == "tool":
        content = reading.reason if reading.outcome == "declined" else values.to_text(reading.value)
        declined = "tool.declined" if reading.outcome == "declined" else None
        draft.emit(e.ToolCallResolved, tool_call_id=opened.id, content=content, error=declined)
    again = opened.inquiry is not None
    draft.emit(
        e.PendingDecided,
        id=opened.id,
        outcome=reading.outcome,
        by=by.id,
        on_behalf_of=by.on_behalf_of,
        aliases=by.aliases,
        lent_aliases=by.lent_aliases,
        issuer=by.issuer,
        through=by.through,
        value=reading.value,
        reason=reading.reason,
        answer_sha=reading.sha,
        via=via,
        ready=(opened.path,) if again else (),
    )
    if again:
        return  # the next attempt brings the answer to the tool
    if opened.kind == "doubt":
        _resolve_by_person(draft, step, reading, by.id)
    elif reading.outcome == "declined":
        message = f"The frontend reported an error: {reading.reason}"
        loop.fail(draft, step, draft.error("tool.declined", message, step.path))
    else:
        loop.finish(draft, step, reading.value)


def _resolve_by_person(draft: Draft, step: Step, reading: Reading, by: str) -> None:
    step_state = draft.state.steps[step.path]
    if reading.outcome == HAPPENED:
        resolve_call(draft, step, reading.value, None)
        loop.finish(draft, step, reading.value)
        return
    reason = f" {reading.reason}" if reading.reason else ""
    message = f"The outcome of attempt {step_state.attempt} was lost; {by} decided: {reading.outcome}.{reason}"
    error = draft.error("step.in_doubt", message, step.path)
    if reading.outcome == AGAIN:
        lost = step.delivery != "resumed"  # which would look for what was lost, and a person has done so
        draft.emit(e.StepRetried, path=step.path, attempt=step_state.attempt, error=error, lost=lost)
    else:
        resolve_call(draft, step, None, error)
        loop.fail(draft, step, error)


def _vote(draft: Draft, step: Step, id: str, reading: Reading, by: c.Principal, via: str) -> None:
    opened = draft.state.pendings[id].opened
    if reading.args is not None:
        edits = {**(draft.state.pendings[id].edits or {}), **map_edits_by_name(reading.edits or {})}
        texts = texts_with(draft, step, opened, reading.args)
        bound = compute_digest_with(draft.state, replace(opened, **texts), reading.args)
        changed = {name: text for name, text in texts.items() if text != getattr(opened, name)}
        draft.emit(e.PendingEdited, id=id, by=by.id, edits=edits, args=reading.args, digest=bound, **changed)
    if opened.tool == ESTABLISH:  # the rule votes for them later, where other roles may be excluded
        by = replace(by, through=tuple(dict.fromkeys((*by.through, *list_held_selectors(by)))))
    _cast(
        draft, id, by, reading.outcome, via,
        reason=reading.reason, values=reading.value, edited=reading.args is not None, answer_sha=reading.sha,
    )  # fmt: skip
    pending = draft.state.pendings[id]
    if reading.outcome not in (votes.APPROVE, votes.REJECT):
        decide_by(draft, step, pending, reading.outcome, pending.votes[-1])
        return
    decision = votes.verdict(derive_rules(pending), pending)
    if decision is not None:
        decide_by(draft, step, pending, decision, pending.votes[-1])
    elif reading.args is not None:
        consult_rules(draft, step)


def vote_by_rule(draft: Draft, command: c.ApplyRule, voters: list[c.Principal]) -> None:
    """Cast the votes of a standing rule: those of `voters`, until they have decided; or its own no, of `never`."""
    step = draft.step(draft.state.pendings[command.id].opened.path)
    for voter in [c.Principal(f"rule:{command.rule.id}")] if command.rule.never else voters:
        decision = votes.REJECT if command.rule.never else votes.APPROVE
        _cast(draft, command.id, voter, decision, RULE, reason=command.reason, rule=command.rule)
        pending = draft.state.pendings[command.id]
        verdict = votes.verdict(derive_rules(pending), pending)
        if verdict is not None:
            decide_by(draft, step, pending, verdict, pending.votes[-1])
            return


def _cast(draft: Draft, id: str, voter: c.Principal, decision: str, via: str, **more: Any) -> None:
    """Record the vote of `voter` on the question as it is now. `more`: further fields of the event."""
    pending, world = draft.state.pendings[id], world_of(draft.plan, draft.state)
    rules = derive_rules(pending)
    draft.emit(
        e.VoteCast,
        id=id,
        by=voter.id,
        on_behalf_of=voter.on_behalf_of,
        aliases=voter.aliases,
        lent_aliases=voter.lent_aliases,
        issuer=voter.issuer,
        through=voter.through,
        decision=decision,
        via=via,
        digest=pending.opened.digest,
        matched=list_matching_selectors(rules.selectors(), voter, world),
        barred=list_excluding_selectors(rules.exclusions(), voter, world),
        **more,
    )


RULE: Final = "rule"
"""The way of votes that standing rules cast."""


def decide_by(draft: Draft, step: Step, pending: PendingState, decision: str, vote: e.VoteCast) -> None:
    rules = derive_rules(pending)
    turned = decision == votes.REJECT and vote.decision != votes.REJECT
    form_values = values_given(rules, pending) if decision == votes.APPROVE else None if turned else vote.values
    result = votes.envelope(pending, decision, vote.reason, form_values)
    message = "The quorum can't be reached any more." if turned else vote.reason or f"Rejected by {vote.by}."
    close(
        draft,
        pending,
        decision,
        result,
        by=vote.by,
        on_behalf_of=vote.on_behalf_of,
        reason=vote.reason,
        answer_sha=vote.answer_sha if decision == vote.decision else None,
        via=vote.via,
    )
    go_on(draft, step, pending, result, message)


def values_given(rules: Rules, pending: PendingState) -> Json:
    forms = [vote.values or {} for vote in votes.approvals(rules, pending)]
    return votes.merge_values(rules, pending.opened.schema, forms)


def close(draft: Draft, pending: PendingState, outcome: str, result: dict[str, Json], /, **fields: Any) -> None:
    passed = pending.opened.kind == "gate" and result["decision"] == votes.APPROVE
    if pending.opened.tool == ESTABLISH and pending.opened.kind == "gate":
        draft.send(RULE_DECIDED, draft.state.run_id, {"id": pending.opened.id})
    ready = (pending.opened.path,) if passed else ()
    draft.emit(e.PendingDecided, id=pending.opened.id, outcome=outcome, value=result, ready=ready, **fields)


def go_on(draft: Draft, step: Step, pending: PendingState, result: dict[str, Json], message: str) -> None:
    """Draw the consequences of the envelope `result`. Nothing but an approval ever falls through to the next step."""
    decision = result["decision"]
    if decision == votes.APPROVE:
        if pending.opened.kind == "approve":
            loop.finish(draft, step, result, approval=result)
    elif decision == votes.REJECT:
        _reject(draft, step, result, message)
    elif decision == RESPOND and step.of_agent:
        loop.fail(draft, step, draft.error(RESPONDED, message, step.path), result)
    else:
        first = step.handlers[decision]
        draft.emit(e.StepSkipped, path=step.path, approval=result, handler=option(decision), ready=(first,))


def _reject(draft: Draft, step: Step, result: dict[str, Json], message: str) -> None:
    """A rejection: the step's reject list runs first, then `approval.rejected` is raised, whatever it did."""
    error = draft.error("approval.rejected", message, step.path)
    first = step.handlers.get(votes.REJECT)
    if first is None:
        loop.fail(draft, step, error, result)
    else:
        draft.emit(e.StepFailed, path=step.path, error=error, approval=result, handler=REJECT, ready=(first,))
