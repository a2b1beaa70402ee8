"""The body of a loop: an instance for each iteration. The loop has the rule for its end."""

from __future__ import annotations

from typing import Final

from hai_flow.definition import paths
from hai_flow.definition.plan import AnyCall, Iteration, Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks.block import Block, BlockPlaces
from hai_flow.engine.completion.consequences import Consequence, FailStep, IterationDone
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.state import StepState
from hai_flow.engine.steps.next_iteration import index_of


def begin(draft: Draft, step: Step) -> None:
    draft.pure_steps += 1
    key = paths.key_of(step.path)
    loop = draft.state.steps[step.parent].loop
    assert loop is not None
    index = index_of(loop, key) if loop.keys else int(key)
    draft.emit(e.IterationStarted, path=step.path, index=index, ready=(step.verb_as(Iteration).first,))


def list_done(draft: Draft, step: Step, body: str) -> Consequence:
    output = step.verb_as(Iteration).output
    if output is None:
        return IterationDone(step)
    try:
        return IterationDone(step, draft.render(output, step))
    except Raised as raised:
        return FailStep(step, draft.error(raised.code, raised.message, step.path))


def resume(step: Step, known: StepState) -> BlockPlaces:
    return BlockPlaces((step.verb_as(Iteration).first,)) if known.verb else BlockPlaces()


_ITERATION: Final = Block(begin=begin, list_done=list_done, resume=resume)
# A plan has `AnyCall` where a run has the `Iteration` of a call.
BLOCKS: Final = {Iteration: _ITERATION, AnyCall: _ITERATION}
