"""The consequences of a failure: undo, a `catch`, the `finally`; and where it is raised to.

The ends of one step, in their order (docs/language.md#failing):

    open steps inside are cut off -> its `finally` lists run -> finished steps inside are undone, if the step is the
    scope of an undo and has failed -> its `catch` -> its `finally` -> the list it stands in goes on, or the failure is
    raised to the step around it.
"""

from __future__ import annotations

import msgspec

from hai_flow.definition import paths
from hai_flow.definition.paths import FINALLY, REJECT, UNDO
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks import block_of
from hai_flow.engine.completion.compensation import fail_behind_finally, undo_failed
from hai_flow.engine.completion.consequences import Consequence, FailStep, Handle, Raise, Settle
from hai_flow.engine.completion.finish import finish_finally
from hai_flow.engine.completion.open_steps import is_ending, is_left_to_the_stop
from hai_flow.engine.draft import RUN_END, Draft
from hai_flow.engine.state.retry_policy import UNDO_FAILED, catching
from hai_flow.engine.state.state import StepState
from hai_flow.engine.state.undo_scopes import build_undo_error, is_undo_scope, next_undo
from hai_flow.engine.steps.remote_tasks import leave_task
from hai_flow.engine.steps.tool_calls import close_message


def fail(draft: Draft, due: FailStep) -> Consequence | None:
    step, error = due.step, due.error
    close_message(draft, step.path, aborted=True)
    leave_task(draft, step, error.code)
    undo = next_undo(draft, step.path) if is_undo_scope(draft, step) else None
    if undo is not None:
        draft.emit(e.StepFailed, path=step.path, error=error, approval=due.approval, handler=UNDO, ready=(undo,))
        around = draft.step(step.parent)
        return block_of(around).child_failing(draft, around, step, error) if step.is_iteration else None
    handler, first = _next_handler(step, error, None)
    if handler is not None:
        draft.emit(e.StepFailed, path=step.path, error=error, approval=due.approval, handler=handler, ready=(first,))
        return None
    if step.path and not step.is_iteration:
        draft.emit(e.StepFailed, path=step.path, error=error, approval=due.approval)
    return Raise(step, error)


def handle(draft: Draft, due: Handle) -> Consequence | None:
    step = due.step
    handler, first = _next_handler(step, due.error, draft.state.steps[step.path])
    if handler is None:
        return Raise(step, due.error)
    draft.emit(e.HandlerStarted, path=step.path, handler=handler, ready=(first,))
    return None


def _next_handler(step: Step, error: e.Error, known: StepState | None) -> tuple[str | None, str]:
    """The handler of the step that takes the error, and its first step. `known`: the step as it was recorded, if it has
    failed before: no `catch` takes an error twice."""
    cleaned = known is not None and known.cleaned
    caught = None if cleaned or (known is not None and known.caught) else catching(step.catch, error.code)
    if caught is not None:
        return paths.catch(caught[0]), caught[1].first
    return (None, "") if step.finally_ is None or cleaned else (FINALLY, step.finally_)


def propagate(draft: Draft, due: Raise) -> Consequence | None:
    step, error = due.step, due.error
    if step.path == "":
        if draft.state.undo_failed and error.code != UNDO_FAILED:
            error = build_undo_error(draft, "", error)
        draft.emit(e.StepFailed, path="", error=error, ready=(RUN_END,))
        return None
    owner = draft.step(step.parent)
    if step.body == UNDO:
        return undo_failed(draft, owner)
    if step.is_iteration:
        return block_of(owner).child_failed(draft, owner, step, error)
    if is_ending(draft, owner.path):  # it is being cut off: nothing asks why something in it failed
        return Settle(owner)
    if paths.is_handler(step.body):
        return _fail_handler(draft, owner, step.body, error)
    return block_of(owner).child_failed(draft, owner, step, error)


def _fail_handler(draft: Draft, owner: Step, handler: str, error: e.Error) -> Consequence | None:
    if is_left_to_the_stop(draft, owner.path):
        return None
    if handler == FINALLY:
        return _fail_finally(draft, owner, error)
    if paths.is_catch(handler):
        return _fail_catch(draft, owner, _replace_error(draft, owner.path, error))
    # the step's own `catch` stands around its reject list
    return FailStep(owner, _replace_error(draft, owner.path, error) if handler == REJECT else error)


def _fail_finally(draft: Draft, owner: Step, error: e.Error) -> Consequence | None:
    step_state = draft.state.steps[owner.path]
    if step_state.is_failed:
        assert step_state.error is not None
        return Raise(owner, step_state.error)  # an earlier error stands
    return finish_finally(draft, owner) if step_state.outcome == "stopped" else fail_behind_finally(draft, owner, error)


def _fail_catch(draft: Draft, owner: Step, error: e.Error) -> Consequence | None:
    """The steps of the `catch` itself are undone; then comes the `finally`."""
    undo = next_undo(draft, owner.path)
    if undo is not None:
        draft.emit(e.StepFailed, path=owner.path, error=error, handler=UNDO, ready=(undo,))
        return None
    if owner.finally_ is not None:
        draft.emit(e.StepFailed, path=owner.path, error=error, handler=FINALLY, ready=(owner.finally_,))
        return None
    if owner.path:
        draft.emit(e.StepFailed, path=owner.path, error=error)
    return Raise(owner, error)


def _replace_error(draft: Draft, path: str, error: e.Error) -> e.Error:
    """An error inside a handler replaces the one being handled, which becomes its cause: the first of all causes,
    where the error has some of its own."""
    cause = draft.state.steps[path].error if error.cause is None else _replace_error(draft, path, error.cause)
    return msgspec.structs.replace(error, cause=cause)
