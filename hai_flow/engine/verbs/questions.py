"""`ask` and `approve`: questions to people, which `pendings` opens."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Approve, Ask, Step
from hai_flow.engine import pendings
from hai_flow.engine.draft import Draft


def begin_ask(draft: Draft, step: Step) -> None:
    assert isinstance(step.verb, Ask)
    draft.pure_steps += 1
    pendings.begin_ask(draft, step, step.verb)


def begin_approve(draft: Draft, step: Step) -> None:
    assert isinstance(step.verb, Approve)
    draft.pure_steps += 1
    pendings.begin_approve(draft, step, step.verb)


VERBS: Final = {Ask: begin_ask, Approve: begin_approve}
