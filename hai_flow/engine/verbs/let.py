"""`let`: values that later steps of the list read by their names. They are the step's output, and no state."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Let, Step
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft


def begin(draft: Draft, step: Step) -> Consequence | None:
    output = draft.render(step.verb_as(Let).values, step)
    draft.json_text(output)  # counts against the bound of a value
    draft.record_start(step)
    draft.pure_steps += 1
    return FinishStep(step, output)


VERBS: Final = {Let: begin}
