"""`wait_for`: a step that waits for events from outside, which `signals` takes."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Step, WaitFor
from hai_flow.engine.draft import Draft
from hai_flow.engine.steps import wait_for_event


def begin(draft: Draft, step: Step) -> None:
    assert isinstance(step.verb, WaitFor)
    draft.pure_steps += 1
    wait_for_event.begin_wait_for(draft, step, step.verb)


VERBS: Final = {WaitFor: begin}
