"""The gate of an effect: people approve its very arguments, and it starts with no others."""

from __future__ import annotations

from typing import Final

import msgspec

from hai_flow import values
from hai_flow.definition.plan import Approval, Step
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.answers import compute_digest_with
from hai_flow.engine.pendings.open import form_of, open_pending
from hai_flow.engine.pendings.policies import fill_rules
from hai_flow.engine.pendings.votes import Rules, derive_rules
from hai_flow.engine.standing_rules import consult_rules
from hai_flow.engine.state.ids import pending_of
from hai_flow.engine.state.run_size import demand_wait
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.effect_texts import classify_effect, describe_effect, introduce

STALE: Final = "approval.stale"
"""The error of a step whose approvals no longer counted when its effect was to begin, time and again."""


def is_gate_needed(draft: Draft, step: Step, gate: Approval, args: str) -> bool:
    """Whether people must approve a call with these arguments. Raises `Raised`: an error in `when` never skips it."""
    return gate.when is None or draft.truth(gate.when, step, args=values.loads(args))


def open_gate(
    draft: Draft,
    step: Step,
    gate: Approval,
    args: str,
    *,
    evidence: str | None = None,
    source: str | None = None,
    anew: e.AskedAnew | None = None,
) -> None:
    """Ask for approval of these very arguments. The step has begun. The rest as in `PendingOpened`. Raises `Raised`: it
    fails instead."""
    demand_wait(draft, step)
    roots = {"args": values.loads(args)}
    rules = fill_rules(draft, step, gate.policy, roots)
    name, effect = describe_effect(step, roots["args"]), classify_effect(draft, step, roots["args"])
    if effect == "irreversible":
        rules = _with_confirmation(rules)
    if gate.policy.rules is False or (gate.policy.rules is None and effect == "irreversible"):
        rules = msgspec.structs.replace(rules, rules=False)
    step_state = draft.state.steps[step.path]
    title = f"{name}?" if gate.title is None else draft.text(gate.title, step, **roots)
    open_pending(
        draft,
        step,
        "gate",
        rules,
        roots=roots,
        title=title,
        message=introduce(anew, None if gate.message is None else draft.text(gate.message, step, **roots)),
        tool=name,
        args=step_state.args,
        evidence=evidence,
        source=source,
        anew=anew,
        schema=form_of(draft, step, gate.policy.form, roots),
        options=gate.policy.options,
        effect=effect,
    )
    consult_rules(draft, step)


def _with_confirmation(rules: Rules) -> Rules:
    """The rules under which a page asks once more before it sends an answer, at every stage."""
    stages = tuple(msgspec.structs.replace(stage, confirm=True) for stage in rules.escalations)
    return msgspec.structs.replace(rules, confirm=True, escalations=stages)


def check_gate(draft: Draft, step: Step) -> str:
    """The text of the arguments that were approved, which the effect must start with. Raises `Raised`
    (approval.digest) if the call about to begin is not the approved one."""
    state = draft.state
    approved, args = find_last_approved_gate(state, step), state.steps[step.path].args
    fault = None
    if approved is None:
        fault = "nobody approved this call"
    elif compute_digest_with(draft.state, approved.opened, args) != approved.opened.digest:
        fault = "its arguments, or the workflow, are not those that were shown"
    elif approved.status == votes.APPROVE and not votes.approvals(derive_rules(approved), approved):
        fault = "no approval of these arguments is on record"
    if fault is not None or args is None:
        raise Raised("approval.digest", f"{step.path} was not performed: {fault}. Start the run again.")
    return args


def is_approved(state: RunState, step: Step, args: str) -> bool:
    """Whether the step's gate was passed with these very arguments. (That the step has an envelope does not say so:
    a rejection leaves one too.)"""
    passed, before = find_last_approved_gate(state, step), state.steps.get(step.path)
    is_spent = before is not None and before.error is not None and before.error.code == STALE
    return passed is not None and passed.opened.args == args and not is_spent


def find_last_approved_gate(state: RunState, step: Step) -> PendingState | None:
    """The gate of the step that was passed last."""
    step_state = state.steps.get(step.path)
    for n in range(step_state.asked if step_state else 0, 0, -1):
        gate = pending_of(state, step.path, n - 1)
        if gate is not None and gate.opened.kind == "gate":
            passed = gate.status in (votes.APPROVE, "expired") and isinstance(gate.value, dict)
            return gate if passed and gate.value["decision"] == votes.APPROVE else None
    return None
