"""`switch`: the first case whose condition holds."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Step, Switch
from hai_flow.engine.blocks.block import Block, Lists
from hai_flow.engine.consequences import Consequence, Finish
from hai_flow.engine.draft import Draft
from hai_flow.engine.state import StepState


def begin(draft: Draft, step: Step) -> Consequence | None:
    assert isinstance(step.verb, Switch)
    draft.pure_steps += 1
    for number, (condition, first) in enumerate(step.verb.cases):
        if condition is None or draft.truth(condition, step):
            draft.started(step, case=number, ready=(first,))
            return None
    draft.started(step)
    return Finish(step, {"case": None})


def list_done(draft: Draft, step: Step, body: str) -> Consequence:
    return Finish(step, {"case": draft.state.steps[step.path].case})


def behind(draft: Draft, step: Step) -> Consequence | None:
    return None if draft.state.steps[step.path].case is None else list_done(draft, step, "")


def resume(step: Step, known: StepState) -> Lists:
    assert isinstance(step.verb, Switch)
    return Lists() if known.case is None else Lists((step.verb.cases[known.case][1],))


BLOCKS: Final = {Switch: Block(begin=begin, list_done=list_done, resume=resume, behind=behind)}
