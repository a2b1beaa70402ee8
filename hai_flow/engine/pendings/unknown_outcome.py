"""A lost outcome of an effect that must not simply be performed again: people find out whether it happened."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings.answers import DOUBT_OPTIONS
from hai_flow.engine.pendings.open import open_pending
from hai_flow.engine.pendings.votes import Rules
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.effect_texts import describe_effect
from hai_flow.values import Json

OPERATORS: Final = ("role:operator", "user:local")  # the people that settle a lost outcome

_RECEIVED: Final = " The evidence has what had come of its answer."


def open_doubt(draft: Draft, step: Step, reason: str | None = None, received: Json = None) -> None:
    """The outcome of an effect was lost that must not simply be performed again: only a person can find it out, with
    what was `received` of the answer as evidence. (Not while the run is being stopped: a stop always ends.)"""
    if draft.state.status == "stopping":
        message = reason or "The process that performed the step is gone, and its outcome with it."
        loop.fail(draft, step, draft.error("step.in_doubt", message, step.path, received))
        return
    step_state = draft.state.steps[step.path]
    args = values.loads(step_state.args or "{}")
    name = describe_effect(step, args)
    what = reason or "The process that performed it is gone, and its outcome with it."
    once = step.delivery == "at_most_once"
    why = "It is performed at most once" if once else "It may have happened, so it is not simply done again"
    open_pending(
        draft,
        step,
        "doubt",
        Rules(from_=OPERATORS, asks_requester=False),
        title=f"Did {name} happen?",
        message=f"{what} {why}: look there, then say that it happened (with its result), that it is to be done again, "
        f"or that the step fails.{'' if received is None else _RECEIVED}",
        evidence=None if received is None else values.dumps(received).decode(),
        tool=name,
        args=step_state.args,
        options=DOUBT_OPTIONS,
    )


def find_doubt(state: RunState, path: str, attempt: int) -> PendingState | None:
    """The open doubt about this very attempt, whose late result may settle it before a person does
    (docs/design/store.md#lost-attempts)."""
    id = state.open_pendings.get(path)
    doubt = None if id is None else state.pendings[id]
    if doubt is None or doubt.opened.kind != "doubt" or state.steps[path].attempt != attempt:
        return None
    return doubt


def resolve_doubt(draft: Draft, pending: PendingState) -> None:
    """The outcome came after all; its consequences for the step are up to the caller."""
    draft.emit(e.PendingVoided, id=pending.opened.id, reason="the outcome of the call arrived")
