"""How a step begins: for the first time, with a further attempt, behind its gate, or once more after a Retry.

Its verb goes on in `verbs` and `blocks`. Not here: whether it may begin now (`decide`), performing."""

from __future__ import annotations

from hai_flow.definition.paths import is_in_cleanup
from hai_flow.definition.plan import Call, Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks import BLOCKS, block_of
from hai_flow.engine.completion import consequences
from hai_flow.engine.completion.consequences import Consequence
from hai_flow.engine.completion.loop import draw
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state import budget
from hai_flow.engine.steps import retry
from hai_flow.engine.verbs import VERBS
from hai_flow.engine.verbs.effects import begin_attempt


def begin(draft: Draft, step: Step) -> None:
    """Begin the step, its next attempt, or the call behind its gate; whatever goes wrong is its failure."""
    try:
        draw(draft, _begin_or_go_on(draft, step))
    except Raised as raised:
        draft.pure_steps += 1
        error = draft.error(raised.code, raised.message, step.path, raised.data)
        draw(draft, consequences.FailStep(step, error))


def _begin_or_go_on(draft: Draft, step: Step) -> Consequence | None:
    step_state = draft.state.steps.get(step.path)
    if step_state is None or step_state.phase == "pending":
        return _begin_first(draft, step)
    if step_state.is_open:
        return begin_attempt(draft, step, step_state)
    return _begin_again(draft, step)


def _begin_first(draft: Draft, step: Step) -> Consequence | None:
    if step.condition is not None and not draft.truth(step.condition, step):
        draft.pure_steps += 1
        return consequences.SkipStep(step)
    _demand_room(draft, step)
    block = BLOCKS.get(type(step.verb))
    return VERBS[type(step.verb)](draft, step) if block is None else block.begin(draft, step)


def _demand_room(draft: Draft, step: Step) -> None:
    """Raises `Raised` where the run's limits have no room for a further step. Steps that clean up are not counted."""
    limits, state = budget.limits_of(draft), draft.state
    if (limits.steps is None and limits.tool_calls is None) or step.is_iteration or is_in_cleanup(step.path):
        return
    if limits.steps is not None and state.begun_steps >= limits.steps:
        raise Raised("limit.steps", f"The run has begun {state.begun_steps} steps; its limit is {limits.steps}.")
    if isinstance(step.verb, Call) and limits.tool_calls is not None:
        budget.demand_call(draft, limits.tool_calls)


def _begin_again(draft: Draft, step: Step) -> Consequence | None:
    """A Retry comes by a step that was over: it goes on inside it, where something in there is left to do; a block that
    failed, or was cut off, behind all that goes on behind it."""
    if step.is_iteration and not draft.state.steps[step.path].verb:
        return _begin_first(draft, step)  # it was cut off before it began
    frontier, block = retry.inside(draft, step), BLOCKS.get(type(step.verb))
    if frontier.ready or step.is_iteration:
        draft.pure_steps += 1
        draft.emit(e.StepReopened, path=step.path, **frontier.fields())
        return None if frontier.ready else block_of(step).list_done(draft, step, "")
    cut_short = draft.state.steps[step.path].outcome in ("failed", "stopped")
    behind = block.behind(draft, step) if block is not None and cut_short else None
    if behind is None:
        return _begin_first(draft, step)
    draft.pure_steps += 1
    further = (behind,) if isinstance(behind, str) else ()
    draft.emit(e.StepReopened, path=step.path, reopened=(step.path,), ready=further)
    return None if isinstance(behind, str) else behind
