"""How a step is completed, and how the flow goes on behind it: the next step of its list, the end of its list, its
`finally`."""

from __future__ import annotations

from hai_flow.definition import paths
from hai_flow.definition.paths import FINALLY, REJECT, UNDO
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks import block_of
from hai_flow.engine.completion.compensation import finish_undo
from hai_flow.engine.completion.consequences import (
    Consequence,
    End,
    FailStep,
    FinishStep,
    IterationDone,
    LeaveLoop,
    ListDone,
    Raise,
    Settle,
    SkipStep,
)
from hai_flow.engine.completion.open_steps import (
    find_iteration_around,
    has_undone_inside,
    is_ending,
    is_left_to_the_stop,
)
from hai_flow.engine.completion.root_step import finish_document
from hai_flow.engine.completion.stopping import note_finally
from hai_flow.engine.draft import RUN_END, Draft
from hai_flow.engine.state.state import Ending


def finish(draft: Draft, due: FinishStep) -> Consequence | None:
    step = due.step
    if step.path == "":
        return finish_document(draft, due.output)
    if step.body == UNDO:
        draft.emit(e.StepFinished, path=step.path, output=due.output, notes=due.notes)
        return finish_undo(draft, step)
    stopping = is_left_to_the_stop(draft, step.path)
    handler, ready, last = None, (), None
    if not stopping and step.finally_ is not None:
        handler, ready = FINALLY, (step.finally_,)
    elif not stopping:
        ready, last = behind(draft, step)
    draft.add(
        e.StepFinished(
            at=draft.clock,
            turn=draft.turn,
            path=step.path,
            output=due.output,
            approval=due.approval,
            undoable=step.undo is not None,
            handler=handler,
            ready=ready,
            notes=due.notes,
        )
    )
    if stopping:
        note_finally(draft, step)
    return None if last is None else ListDone(last)


def skip(draft: Draft, due: SkipStep) -> Consequence | None:
    ready, last = behind(draft, due.step)
    draft.emit(e.StepSkipped, path=due.step.path, ready=ready)
    return None if last is None else ListDone(last)


def behind(draft: Draft, step: Step) -> tuple[tuple[str, ...], Step | None]:
    """The steps that may begin behind `step`; or the step whose list has ended with it. Behind a list that handled
    something the flow goes on behind the step that it belongs to."""
    while True:
        following = _find_first_not_done(draft, step.next)
        if is_ending(draft, step.parent):
            return (), step
        if following is not None:
            return (following,), None
        if step.body != FINALLY and not paths.is_catch(step.body):
            return ((RUN_END,), None) if step.parent == "" and step.body == "" else ((), step)
        owner = draft.step(step.parent)
        if is_left_to_the_stop(draft, owner.path) or (paths.is_catch(step.body) and owner.finally_ is not None):
            return (), step
        if not draft.state.steps[owner.path].is_done:
            return (), step
        if owner.path == "":
            return (RUN_END,), None
        if owner.is_iteration:
            return (), step
        step = owner


def _find_first_not_done(draft: Draft, path: str | None) -> str | None:
    """The first step from `path` on that is not done. After a Retry there may be some that are, behind one that was
    undone."""
    while path is not None:
        step_state = draft.state.steps.get(path)
        if step_state is None or not step_state.is_done or has_undone_inside(draft, draft.step(path)):
            return path
        path = draft.step(path).next
    return None


# --- lists ------------------------------------------------------------------------------------------------------------


def list_done(draft: Draft, due: ListDone) -> Consequence | None:
    owner, body = draft.step(due.last.parent), due.last.body
    if is_ending(draft, owner.path):
        return Settle(owner)
    if not paths.is_handler(body):
        return block_of(owner).list_done(draft, owner, body)
    if body == FINALLY:
        return finish_finally(draft, owner)
    if paths.is_catch(body):
        assert owner.finally_ is not None, "without a finally the flow goes on behind the step"
        draft.emit(e.HandlerStarted, path=owner.path, handler=FINALLY, ready=(owner.finally_,))
        return None
    if body == REJECT:
        error = draft.state.steps[owner.path].error
        assert error is not None
        return FailStep(owner, error)
    # an option of the author's own: in a `repeat` the rest of the iteration is skipped
    return End(
        find_iteration_around(draft, owner), Ending("next", reason="the rest of the iteration is skipped"), of=owner
    )


def finish_finally(draft: Draft, owner: Step) -> Consequence | None:
    """The step's `finally` has run and the flow does not go on behind it: the interrupted end goes on."""
    step_state = draft.state.steps[owner.path]
    if is_left_to_the_stop(draft, owner.path):
        return None
    if step_state.is_failed:
        assert step_state.error is not None
        return Raise(owner, step_state.error)
    if owner.path and is_ending(draft, owner.parent):
        return Settle(draft.step(owner.parent))
    if step_state.is_done and owner.path:
        _, last = behind(draft, owner)
        return None if last is None else ListDone(last)
    return None


# --- iterations -------------------------------------------------------------------------------------------------------


def iteration_done(draft: Draft, due: IterationDone) -> Consequence | None:
    loop = draft.step(due.iteration.parent)
    return block_of(loop).iteration_done(draft, loop, due.iteration, due.output)


def loop_left(draft: Draft, due: LeaveLoop) -> Consequence | None:
    loop = draft.step(due.iteration.parent)
    return block_of(loop).loop_left(draft, loop, due.iteration)
