"""`wait`: time, until an instant or for a while."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Step, Wait
from hai_flow.engine import events as e
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.run_size import demand_wait
from hai_flow.primitives.instants import read_rfc3339


def begin(draft: Draft, step: Step) -> Consequence | None:
    verb = step.verb_as(Wait)
    due = _due(draft, step, verb)
    if due > draft.now:
        demand_wait(draft, step)
    draft.pure_steps += 1
    draft.record_start(step)
    if due <= draft.now:
        return FinishStep(step)
    draft.emit(e.TimerSet, path=step.path, kind="wait", due=due)
    return None


def _due(draft: Draft, step: Step, verb: Wait) -> int:
    if verb.for_ is not None:
        return draft.now + draft.milliseconds(verb.for_, step)
    assert verb.until is not None
    text = draft.text(verb.until, step)
    try:
        return read_rfc3339(text)
    except ValueError:
        raise Raised(
            "expression.error",
            f"wait.until: expected a timestamp with offset such as 2026-03-02T09:00:00Z, found {text!r}.",
        ) from None


VERBS: Final = {Wait: begin}
