"""`switch`: the first case whose condition holds."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Step, Switch
from hai_flow.engine.block_results import finish_with
from hai_flow.engine.blocks.block import Block, BlockPlaces
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.state import StepState


def begin(draft: Draft, step: Step) -> Consequence | None:
    draft.pure_steps += 1
    for number, (condition, first) in enumerate(step.verb_as(Switch).cases):
        if condition is None or draft.truth(condition, step):
            draft.record_start(step, case=number, ready=(first,) if first else ())
            return None if first else list_done(draft, step, str(number))
    draft.record_start(step)
    return FinishStep(step, {"case": None})


def list_done(draft: Draft, step: Step, body: str) -> Consequence:
    case, results = draft.state.steps[step.path].case, step.verb_as(Switch).results
    result = results[case] if results and case is not None else None
    return finish_with(draft, step, {"case": case}, result)


def behind(draft: Draft, step: Step) -> Consequence | None:
    return None if draft.state.steps[step.path].case is None else list_done(draft, step, "")


def resume(step: Step, known: StepState) -> BlockPlaces:
    first = "" if known.case is None else step.verb_as(Switch).cases[known.case][1]
    return BlockPlaces((first,)) if first else BlockPlaces()


BLOCKS: Final = {Switch: Block(begin=begin, list_done=list_done, resume=resume, behind=behind)}
