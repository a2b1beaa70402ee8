"""`wait_for`: a step that waits for events from outside."""

from __future__ import annotations

from hai_flow.definition.plan import Step, WaitFor
from hai_flow.engine.draft import Draft


def begin_wait_for(draft: Draft, step: Step, verb: WaitFor) -> None:
    raise NotImplementedError


def deadline_passed(draft: Draft, step: Step) -> None:
    raise NotImplementedError
