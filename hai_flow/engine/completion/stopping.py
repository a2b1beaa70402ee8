"""Stopping a run: effects in flight end by themselves, finished steps are undone, every begun `finally` runs."""

from __future__ import annotations

from collections.abc import Iterator

from hai_flow.definition.paths import FINALLY, UNDO, depth, is_in_cleanup
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.cancellation import drop_work, record_stopped
from hai_flow.engine.completion.open_steps import has_begun, is_open_inside, open_leaves
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.state import StepState
from hai_flow.engine.state.undo_scopes import build_undo_error, next_undo
from hai_flow.engine.steps.remote_tasks import leave_task


def begin_stop(draft: Draft, reason: str) -> None:
    """Cut off the steps that people, timers and signals could still move. Effects in flight report their end; cleaning
    up goes on, unless a fork goes on with it."""
    leaves = [
        path
        for path in open_leaves(draft)
        if path not in draft.state.attempts and (not is_in_cleanup(path) or _is_inherited(draft, path))
    ]
    for path in leaves:
        drop_work(draft, path, reason)
    for path in leaves:
        stop_leaf(draft, draft.step(path), reason)


def stop_leaf(draft: Draft, step: Step, reason: str) -> None:
    """In a run that is being stopped: an effect, a question or a timer is over; its `finally` comes in its turn."""
    was_open = has_begun(draft, step.path)
    leave_task(draft, step)
    record_stopped(draft, step, reason)
    if was_open:
        note_finally(draft, step)


def note_finally(draft: Draft, step: Step) -> None:
    """In a run that is being stopped: the step has ended, its `finally` comes when its turn has come."""
    if step.finally_ is not None:
        draft.emit(e.StepEnding, path=step.path, outcome="stopped")


def stop_attempts(draft: Draft, reason: str) -> None:
    """The grace period is over: effects that were asked to cancel and have not ended are cut off."""
    for path in sorted(draft.state.attempts):
        if not is_in_cleanup(path):
            drop_work(draft, path, reason)
            stop_leaf(draft, draft.step(path), reason)


def stop_on(draft: Draft) -> None:
    """Nothing is in flight in a run that is being stopped: the next undo, then the next `finally`, inside out; then
    its end."""
    undo = next_undo(draft, "")
    if undo is not None:
        draft.emit(e.StepStopped, path="", reason=draft.state.stop_reason, handler=UNDO, ready=(undo,))
        return
    for path in sorted(_open_steps(draft), key=lambda path: (-depth(path), path)):
        step, step_state = draft.step(path), draft.state.steps[path]
        begins = step_state.handler != FINALLY or path in draft.state.owed
        if step.finally_ is not None and begins and not _is_inherited(draft, path):
            ready = _next_of(draft, step.finally_) or step.finally_
            draft.emit(e.HandlerStarted, path=path, handler=FINALLY, ready=(ready,))
            return
        if step_state.is_open or step_state.ending is not None:
            record_stopped(draft, step, "the run is being stopped")
    root = draft.state.steps.get("")
    due = root is None or not root.cleaned or "" in draft.state.owed
    if draft.plan.finally_ is not None and due and not _is_inherited(draft, ""):
        ready = _next_of(draft, draft.plan.finally_) or draft.plan.finally_
        draft.emit(e.StepStopped, path="", reason=draft.state.stop_reason, handler=FINALLY, ready=(ready,))
        return
    end_stop(draft)


def _next_of(draft: Draft, first: str) -> str | None:
    """The step with which a `finally` that begins with `first` begins, or goes on where it was cut off; None: all of it
    is done."""
    path: str | None = first
    while path is not None and (step_state := draft.state.steps.get(path)) is not None and step_state.is_done:
        if step_state.phase != "over":
            return path
        path = draft.step(path).next
    return path


def _open_steps(draft: Draft) -> Iterator[str]:
    """The steps that are open, and those in which a handler was at work behind which their `finally` comes."""
    for path, step_state in draft.state.steps.items():
        if not path:
            continue
        owes_finally = (
            step_state.handler is not None and not step_state.cleaned and draft.step(path).finally_ is not None
        )
        if step_state.is_open or step_state.ending is not None or owes_finally or path in draft.state.owed:
            yield path


def _is_cut_off(draft: Draft, path: str, known: StepState) -> bool:
    """Whether it has a `finally` that has not begun, or was at work and is so no more."""
    first = (draft.step(path) if path else draft.plan).finally_
    if first is None:
        return False
    if known.handler == FINALLY:
        return not is_open_inside(draft, path) and _next_of(draft, first) is not None
    return known.outcome == "stopped" and not known.cleaned


def list_pending_cleanups(draft: Draft) -> tuple[str, ...]:
    """The steps that were cut off without their `finally`, or within it, because it was left to a fork. In the order of
    their paths: a map of the state has none of its own."""
    return tuple(
        path
        for path, step_state in sorted(draft.state.steps.items(), key=lambda item: item[0])
        if (step_state.turn or not path) and _is_cut_off(draft, path, step_state) and _is_inherited(draft, path)
    )


def end_stop(draft: Draft) -> None:
    """The stop is over: the run is stopped; or it has failed, if something could not be undone."""
    if draft.state.undo_failed:
        draft.end_turn("failed")
        draft.emit(e.RunFailed, error=build_undo_error(draft, "", None))
    else:
        draft.end_turn("stopped")
        draft.emit(e.RunStopped, by=draft.state.stop_by, reason=draft.state.stop_reason)


def _is_inherited(draft: Draft, path: str) -> bool:
    """Whether the step ("" = the document) was begun before a fork of the run went on with it, whose it is now."""
    step_state = draft.state.steps.get(path)
    if path in draft.state.inherited_steps:
        return True
    return bool(draft.state.inherited) and (
        not path or (step_state is not None and step_state.turn <= draft.state.inherited)
    )
