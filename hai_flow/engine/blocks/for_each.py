"""`for_each`: an iteration for each item of a list, some of them at the same time."""

from __future__ import annotations

from typing import Final

from hai_flow.definition import paths
from hai_flow.definition.plan import ForEach, Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks.block import Block, BlockPlaces
from hai_flow.engine.completion.consequences import Consequence, End, FinishStep, Settle
from hai_flow.engine.completion.open_steps import is_ending
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.retry_policy import UNDO_FAILED
from hai_flow.engine.state.state import Ending, StepState
from hai_flow.engine.steps.loops import first_iterations, next_iteration, read_items
from hai_flow.values import Json


def begin(draft: Draft, step: Step) -> Consequence | None:
    verb = _verb(step)
    items, keys = read_items(draft, step, verb)
    draft.pure_steps += 1
    if items:
        draft.record_start(step, items=items, keys=keys, ready=first_iterations(step.path, keys, verb))
        return None
    draft.record_start(step)
    return FinishStep(step, [])


def list_done(draft: Draft, step: Step, body: str) -> Consequence:
    raise AssertionError(f"{step.path} has iterations, and no list of its own")


def iteration_done(draft: Draft, step: Step, iteration: Step, output: Json) -> Consequence | None:
    following = _next(draft, step)
    draft.emit(e.IterationEnded, path=iteration.path, status="finished", output=output, ready=following)
    return _on(draft, step)


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
        return _on(draft, step)
    return End(step, Ending("failed", error=error, reason=f"{child.path} failed"))


def child_failing(draft: Draft, step: Step, child: Step, error: e.Error) -> Consequence | None:
    """An item has failed and is being rolled back. Unless it is isolated, the others stop at once."""
    if _is_isolated(step, error) or is_ending(draft, step.path):
        return None
    return End(step, Ending("failed", error=error, reason=f"{child.path} failed"))


def _is_isolated(step: Step, error: e.Error) -> bool:
    """Whether the failure of one item is data, and the others go on."""
    verb = _verb(step)
    return verb.on_failure == "isolate" and verb.rollback != "all" and error.code != UNDO_FAILED


def _next(draft: Draft, step: Step) -> tuple[str, ...]:
    step_state = draft.state.steps[step.path]
    assert step_state.loop is not None
    return () if step_state.ending is not None else next_iteration(step.path, step_state.loop)


def _on(draft: Draft, step: Step) -> Consequence | None:
    """An iteration has ended: perhaps it was the last."""
    step_state = draft.state.steps[step.path]
    assert step_state.loop is not None
    if step_state.ending is not None:
        return Settle(step)
    return FinishStep(step) if step_state.loop.ended == len(step_state.loop.keys) else None


def behind(draft: Draft, step: Step) -> Consequence | None:
    loop = draft.state.steps[step.path].loop
    return None if loop is None or not loop.keys else FinishStep(step)


def resume(step: Step, known: StepState) -> BlockPlaces:
    loop = known.loop
    if loop is None:
        return BlockPlaces()
    over = "finished" in (known.outcome, known.done)
    iterations = (
        (paths.iteration(step.path, key), over or (key in loop.results and loop.results[key].status == "finished"))
        for key in loop.keys
    )
    return BlockPlaces(iterations=iterations, at_once=_verb(step).max_parallel)


def _verb(step: Step) -> ForEach:
    assert isinstance(step.verb, ForEach)
    return step.verb


BLOCKS: Final = {
    ForEach: Block(
        begin=begin,
        list_done=list_done,
        child_failed=child_failed,
        child_failing=child_failing,
        iteration_done=iteration_done,
        loop_left=loop_left,
        resume=resume,
        behind=behind,
        undoes=lambda step: _verb(step).rollback == "all",
        undoes_items=lambda step: _verb(step).rollback == "item",
    )
}
