"""`try`: a list with handlers around it. The document is one, too."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import Step, Try
from hai_flow.engine.blocks.block import Block, BlockPlaces
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.state import StepState


def begin(draft: Draft, step: Step) -> None:
    draft.pure_steps += 1
    draft.record_start(step, ready=(step.verb_as(Try).first,))


def list_done(draft: Draft, step: Step, body: str) -> Consequence:
    return FinishStep(step)


def behind(draft: Draft, step: Step) -> Consequence | None:
    return FinishStep(step) if draft.state.steps[step.path].verb else None


def resume(step: Step, known: StepState) -> BlockPlaces:
    return BlockPlaces((step.verb_as(Try).first,)) if known.verb or not step.path else BlockPlaces()


BLOCKS: Final = {Try: Block(begin=begin, list_done=list_done, resume=resume, behind=behind, undoes=lambda step: True)}
