"""What loops have in common: their state, how they fail or end with an iteration, and where a Retry goes on in them."""

from __future__ import annotations

from hai_flow.definition import paths
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks.block import BlockPlaces
from hai_flow.engine.completion.consequences import Consequence, FailStep, FinishStep, Settle
from hai_flow.engine.completion.open_steps import is_ending
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.state import LoopState, StepState


def loop_of(draft: Draft, step: Step) -> LoopState:
    loop = draft.state.steps[step.path].loop
    assert loop is not None
    return loop


def next_number(draft: Draft, step: Step) -> int:
    """The number of the first iteration of a loop that begins: one that begins anew counts on."""
    step_state = draft.state.steps.get(step.path)
    return 0 if step_state is None or step_state.loop is None else step_state.loop.last + 1


def fail_loop(draft: Draft, step: Step, child: Step, error: e.Error) -> Consequence:
    """A failed iteration fails its loop."""
    draft.emit(e.IterationEnded, path=child.path, status="failed", error=error)
    return Settle(step) if is_ending(draft, step.path) else FailStep(step, error)


def end_if_last(draft: Draft, step: Step) -> Consequence | None:
    """An iteration of a loop with keys has ended: perhaps it was the last."""
    loop = loop_of(draft, step)
    if is_ending(draft, step.path):
        return Settle(step)
    return FinishStep(step) if loop.ended == len(loop.keys) else None


def resume_last(step: Step, known: StepState) -> BlockPlaces:
    """A loop that counts goes on in its last iteration."""
    if known.loop is None or known.loop.last < 0:
        return BlockPlaces()
    return BlockPlaces(iterations=((paths.iteration(step.path, known.loop.last), False),))


def resume_keys(step: Step, known: StepState, at_once: int | None = None) -> BlockPlaces:
    """A loop with keys goes on in the iterations that have not finished."""
    loop = known.loop
    if loop is None:
        return BlockPlaces()
    over = "finished" in (known.outcome, known.done)
    iterations = (
        (paths.iteration(step.path, key), over or (key in loop.results and loop.results[key].status == "finished"))
        for key in loop.keys
    )
    return BlockPlaces(iterations=iterations, at_once=at_once)
