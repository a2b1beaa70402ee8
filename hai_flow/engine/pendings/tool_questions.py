"""A tool asks a person in the middle of its call. The next attempt brings it the answer."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.plan import Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings.answers import INQUIRY_OPTIONS
from hai_flow.engine.pendings.open import open_pending
from hai_flow.engine.pendings.selectors import REQUESTER
from hai_flow.engine.pendings.unknown_outcome import OPERATORS
from hai_flow.engine.pendings.votes import Rules
from hai_flow.engine.state.ids import pending_of
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.effect_texts import describe_effect

INQUIRY_MS: Final = 7 * 24 * 3_600_000  # how long a question of a tool stays open

INQUIRY_ENDS: Final = ("answered", *INQUIRY_OPTIONS)


def open_inquiry(draft: Draft, step: Step, asks: c.StepAsks) -> None:
    """A tool asks a person in the middle of its call. The attempt is over; its words are shown as those of the tool."""
    step_state = draft.state.steps[step.path]
    name = describe_effect(step, values.loads(step_state.args or "{}"))
    rules = Rules(from_=(REQUESTER, *OPERATORS), deadline=INQUIRY_MS)
    open_pending(
        draft,
        step,
        "ask",
        rules,
        title=f"{name} asks",
        message=f"These are words of the tool {name}, not of this workflow:\n\n{asks.message}",
        tool=name,
        schema=asks.form,
        options=INQUIRY_OPTIONS,
        inquiry=e.Inquiry(step_state.attempt, asks.state, asks.keys),
    )


def find_inquiry_to_answer(state: RunState, step: Step, attempt: int) -> PendingState | None:
    """The question of the step's tool whose answer the attempt has to bring: that of the attempt before it.

    A later attempt of a tool that may change something asks anew: the tool may have used the answer already. One that
    resumes finds out whether it has."""
    step_state = state.steps[step.path]
    inquiry = pending_of(state, step.path, step_state.asked - 1) if step_state.asked else None
    if inquiry is None or inquiry.opened.inquiry is None or inquiry.status not in INQUIRY_ENDS:
        return None
    if inquiry.opened.inquiry.attempt != attempt - 1 and step.delivery not in ("at_least_once", "resumed"):
        return None
    return inquiry
