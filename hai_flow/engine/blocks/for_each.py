"""`for_each`: an iteration for each item of a list, some of them at the same time."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import ForEach, Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks import loop_rules
from hai_flow.engine.blocks.block import Block, BlockPlaces
from hai_flow.engine.completion.consequences import Consequence, End, FinishStep, Settle
from hai_flow.engine.completion.open_steps import is_ending
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.retry_policy import UNDO_FAILED
from hai_flow.engine.state.state import Ending, StepState
from hai_flow.engine.steps.next_iteration import first_iterations, next_iteration, read_items
from hai_flow.values import Json


def begin(draft: Draft, step: Step) -> Consequence | None:
    verb = step.verb_as(ForEach)
    items, keys = read_items(draft, step, verb)
    draft.pure_steps += 1
    if items:
        draft.record_start(step, items=items, keys=keys, ready=first_iterations(step.path, keys, verb))
        return None
    draft.record_start(step)
    return FinishStep(step, [])


def iteration_done(draft: Draft, step: Step, iteration: Step, output: Json) -> Consequence | None:
    following = _next(draft, step)
    draft.emit(e.IterationEnded, path=iteration.path, status="finished", output=output, ready=following)
    return loop_rules.end_if_last(draft, step)


def loop_left(draft: Draft, step: Step, iteration: Step) -> Consequence:
    draft.emit(e.IterationEnded, path=iteration.path, status="finished")
    if is_ending(draft, step.path):  # the loop is being cut off as a whole
        return Settle(step)
    return End(step, Ending("finished", reason=f"{iteration.path} left the loop"))


def child_failed(draft: Draft, step: Step, child: Step, error: e.Error) -> Consequence | None:
    isolated = _is_isolated(step, error)
    following = _next(draft, step) if isolated else ()
    draft.emit(e.IterationEnded, path=child.path, status="failed", error=error, ready=following)
    if isolated or is_ending(draft, step.path):
        return loop_rules.end_if_last(draft, step)
    return End(step, Ending("failed", error=error, reason=f"{child.path} failed"))


def child_failing(draft: Draft, step: Step, child: Step, error: e.Error) -> Consequence | None:
    """An item has failed and is being rolled back. Unless it is isolated, the others stop at once."""
    if _is_isolated(step, error) or is_ending(draft, step.path):
        return None
    return End(step, Ending("failed", error=error, reason=f"{child.path} failed"))


def _is_isolated(step: Step, error: e.Error) -> bool:
    """Whether the failure of one item is data, and the others go on."""
    verb = step.verb_as(ForEach)
    return verb.on_failure == "isolate" and verb.rollback != "all" and error.code != UNDO_FAILED


def _next(draft: Draft, step: Step) -> tuple[str, ...]:
    is_open = draft.state.steps[step.path].ending is None
    return next_iteration(step.path, loop_rules.loop_of(draft, step)) if is_open else ()


def behind(draft: Draft, step: Step) -> Consequence | None:
    loop = draft.state.steps[step.path].loop
    return None if loop is None or not loop.keys else FinishStep(step)


def resume(step: Step, known: StepState) -> BlockPlaces:
    return loop_rules.resume_keys(step, known, at_once=step.verb_as(ForEach).max_parallel)


BLOCKS: Final = {
    ForEach: Block(
        begin=begin,
        child_failed=child_failed,
        child_failing=child_failing,
        iteration_done=iteration_done,
        loop_left=loop_left,
        resume=resume,
        behind=behind,
        undoes=lambda step: step.verb_as(ForEach).rollback == "all",
        undoes_items=lambda step: step.verb_as(ForEach).rollback == "item",
    )
}
