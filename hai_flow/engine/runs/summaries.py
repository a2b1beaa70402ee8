"""The line by which lists show a run: the `summary` of its workflow, filled with what the run knows now."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Plan
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.state import RunState

CHARS_MAX: Final = 200


def new_summary(plan: Plan, before: RunState, state: RunState) -> str | None:
    """The line, where it may be another one than `before`; None: it is the same, or the workflow has none."""
    if plan.summary is None:
        return None
    if before.status != "new" and _is_as_before(before, state):
        return None
    try:
        text = Draft(plan, state, state.at, DEFAULT_BOUNDS).text(plan.summary, None)
    except Raised:
        return None  # what it reads is not there: the last one stands
    line = " ".join(text.split())
    return line if len(line) <= CHARS_MAX else f"{line[: CHARS_MAX - 1]}…"


def _is_as_before(before: RunState, state: RunState) -> bool:
    """Whether nothing has changed that a summary can read. Values of a state are replaced, never changed."""
    same = before.state is state.state and before.input is state.input and before.message is state.message
    return same and before.sha256 == state.sha256
