"""Taking back finished steps, newest first, when an error leaves the step around it (`undo_scopes` names them)."""

from __future__ import annotations

from hai_flow.definition.paths import FINALLY, UNDO, is_inside
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.cancellation import stop_step
from hai_flow.engine.completion.consequences import Consequence, Handle, Raise, UndoOver
from hai_flow.engine.completion.open_steps import is_left_to_the_stop
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.undo_scopes import (
    build_undo_error,
    find_undoing_scope,
    following_undo,
    is_undo_scope,
    next_undo,
)


def finish_undo(draft: Draft, undo: Step) -> Consequence | None:
    """The `undo` step has done its work: its step is undone, and the next one's turn has come."""
    owner = draft.step(undo.parent)
    following = following_undo(draft, owner)
    ready = () if following is None else (following,)
    draft.emit(e.StepUndone, path=owner.path, ready=ready)
    return UndoOver(owner) if following is None else None


def undo_failed(draft: Draft, owner: Step) -> Consequence | None:
    """The `undo` of `owner` has failed for good; the others go on, also where they are being cut off."""
    scope = find_undoing_scope(draft, owner)
    if scope is None:
        return None
    following = next_undo(draft, scope.path)
    if following is None:
        return UndoOver(owner)
    draft.emit(e.HandlerStarted, path=scope.path, handler=UNDO, ready=(following,))
    return None


def end_undo(draft: Draft, due: UndoOver) -> Consequence | None:
    scope = find_undoing_scope(draft, due.owner)
    if scope is None or is_left_to_the_stop(draft, scope.path):
        return None
    step_state = draft.state.steps[scope.path]
    if any(is_inside(path, scope.path) for path in draft.state.undo_failed):
        return _fail_incomplete(draft, scope, step_state.error)
    if step_state.outcome == "stopped":
        return stop_step(draft, scope)
    assert step_state.error is not None
    return Handle(scope, step_state.error)


def _fail_incomplete(draft: Draft, scope: Step, cause: e.Error | None) -> Consequence | None:
    """Some of it could not be undone: no `catch` takes that, and the run ends with it."""
    error = build_undo_error(draft, scope.path, cause)
    if scope.finally_ is not None and not draft.state.steps[scope.path].cleaned:
        draft.emit(e.StepFailed, path=scope.path, error=error, handler=FINALLY, ready=(scope.finally_,))
        return None
    if scope.path and not scope.is_iteration:
        draft.emit(e.StepFailed, path=scope.path, error=error)
    return Raise(scope, error)


def fail_behind_finally(draft: Draft, owner: Step, error: e.Error) -> Consequence | None:
    """A step that had finished fails by its own `finally`: its work is undone, and no `catch` of it is asked."""
    undo = next_undo(draft, owner.path) if is_undo_scope(draft, owner) else None
    if undo is not None:
        draft.emit(e.StepFailed, path=owner.path, error=error, handler=UNDO, ready=(undo,))
        return None
    if owner.path:
        draft.emit(e.StepFailed, path=owner.path, error=error)
    return Raise(owner, error)
