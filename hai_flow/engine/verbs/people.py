"""`ask` and `approve` put a question to people."""

from __future__ import annotations

from typing import Any, Final

from hai_flow.definition.plan import Approve, Ask, Step, Template
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings.open import form_of, open_pending
from hai_flow.engine.pendings.policies import fill_rules
from hai_flow.engine.state.run_size import demand_wait


def begin_ask(draft: Draft, step: Step) -> None:
    """The step begins by asking. Raises `Raised`: it fails instead."""
    verb = step.verb_as(Ask)
    draft.pure_steps += 1
    demand_wait(draft, step)
    rules = fill_rules(draft, step, verb.policy, {}, may_exclude=False)
    question = _question(draft, step, verb.title, verb.message)
    question["schema"] = form_of(draft, step, verb.policy.form, {})
    draft.record_start(step)
    open_pending(draft, step, "ask", rules, **question)


def begin_approve(draft: Draft, step: Step) -> None:
    """The step begins by asking for approval. Raises `Raised`: it fails instead."""
    verb = step.verb_as(Approve)
    draft.pure_steps += 1
    demand_wait(draft, step)
    rules = fill_rules(draft, step, verb.policy, {})
    question = _question(draft, step, verb.title, verb.message)
    if verb.evidence is not None:
        question["evidence"] = draft.json_text(draft.render(verb.evidence, step))
    question["schema"] = form_of(draft, step, verb.policy.form, {})
    draft.record_start(step)
    open_pending(draft, step, "approve", rules, options=verb.policy.options, **question)


def _question(draft: Draft, step: Step, title: Template, message: Template | None) -> dict[str, Any]:
    return {"title": draft.text(title, step), "message": None if message is None else draft.text(message, step)}


VERBS: Final = {Ask: begin_ask, Approve: begin_approve}
