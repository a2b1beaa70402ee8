"""Ending a step before its time: open steps inside it are cut off first, and its `finally` lists run before its end.

A `finally` or an `undo` that runs goes on. A step around one is `ending`: it ends as soon as nothing is open
inside it any more."""

from __future__ import annotations

from collections.abc import Iterable

from hai_flow.definition.paths import FINALLY, UNDO, depth, is_in_cleanup, is_inside, is_undo
from hai_flow.definition.plan import Run, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.consequences import (
    Consequence,
    End,
    FailStep,
    FinishStep,
    IterationDone,
    LeaveLoop,
    Settle,
)
from hai_flow.engine.completion.open_steps import has_begun, is_ending, is_left_to_the_stop, is_open_inside, open_leaves
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.budget import charge
from hai_flow.engine.state.state import Ending
from hai_flow.engine.state.undo_scopes import is_undo_scope, next_undo
from hai_flow.engine.steps.remote_tasks import leave_task
from hai_flow.engine.steps.tool_calls import close_message, finish_written

# --- one step ---------------------------------------------------------------------------------------------------------


def end(draft: Draft, due: End) -> Consequence | None:
    step, ending = due.step, due.ending
    undone = ending.outcome not in ("finished", "next", "left")  # a `return` and a won race undo nothing
    cut(draft, step.path, ending.reason, around=() if due.of is None else (due.of.path,), undone=undone)
    if not is_open_inside(draft, step.path):
        return _end_step(draft, step, ending)
    draft.emit(
        e.StepEnding,
        path=step.path,
        outcome=ending.outcome,
        output=ending.output,
        error=ending.error,
        reason=ending.reason,
    )
    return None


def settle(draft: Draft, due: Settle) -> Consequence | None:
    step = due.step
    step_state = draft.state.steps.get(step.path)
    ending = None if step_state is None else step_state.ending
    if ending is None or is_left_to_the_stop(draft, step.path) or is_open_inside(draft, step.path):
        return None
    return _end_step(draft, step, ending)


def _end_step(draft: Draft, step: Step, ending: Ending) -> Consequence | None:
    """Nothing is open inside the step any more."""
    match ending.outcome:
        case "next":
            return IterationDone(step)
        case "left":
            return LeaveLoop(step)
        case "failed":
            assert ending.error is not None
            return FailStep(step, ending.error)
        case "stopped" | "abandoned":
            return stop_step(draft, step, ending.reason, undone=ending.outcome == "stopped")
        case _:
            return FinishStep(step, ending.output)


def stop_step(draft: Draft, step: Step, reason: str = "", *, undone: bool = True) -> Consequence | None:
    """A step that was cut off has nothing open inside: it is over, if it has nothing to undo and no `finally`."""
    if not _is_stopped(draft, step, reason, undone=undone):
        return None
    return Settle(draft.step(step.parent)) if step.path else None


# --- everything inside a step -----------------------------------------------------------------------------------------


def cut(draft: Draft, scope: str, reason: str, *, around: Iterable[str] = (), undone: bool = True) -> None:
    """Cut off everything open inside `scope` ("" = everywhere), and the work of the step `scope` itself: attempts,
    pendings, timers, and the blocks around them. A `finally` or an `undo` that runs goes on; blocks that stand
    around one, and those whose `finally` runs now, end behind it.

    `undone`: the items of a `for_each` that are cut off are undone, where it says so."""
    leaves = [path for path in open_leaves(draft) if path == scope or is_inside(path, scope)]
    gone = [path for path in leaves if not is_in_cleanup(path, scope)]
    for path in gone:
        drop_work(draft, path, reason)
    blocks = _find_blocks_around(draft, [*leaves, *around], scope)
    for path in _sort_inside_out({*gone, *blocks} - {scope}):
        if not is_open_inside(draft, path):
            _is_stopped(draft, draft.step(path), reason, undone=undone)
        elif not is_ending(draft, path):
            draft.emit(e.StepEnding, path=path, outcome="stopped" if undone else "abandoned", reason=reason)


def stop_everything(draft: Draft, reason: str) -> None:
    """Cut off all of the run at once; nothing runs any more."""
    leaves = open_leaves(draft)
    for path in leaves:
        drop_work(draft, path, reason)
    # blocks in which nothing is open are open too, while a stop goes on around them
    blocks = {path for path, step in draft.state.steps.items() if path and step.is_open}
    blocks |= _find_blocks_around(draft, leaves, "")
    for path in _sort_inside_out({*leaves, *blocks}):
        record_stopped(draft, draft.step(path), reason)


def _sort_inside_out(found: Iterable[str]) -> list[str]:
    return sorted(found, key=lambda path: (-depth(path), path))


def _find_blocks_around(draft: Draft, leaves: Iterable[str], scope: str) -> set[str]:
    """The blocks inside `scope` that are open around any of the steps."""
    blocks: set[str] = set()
    for path in leaves:
        step, undoes = draft.step(path), is_undo(path)
        while step.parent and is_inside(step.parent, scope):
            around = draft.step(step.parent)
            step_state = draft.state.steps.get(around.path)
            handling = (step.body, UNDO) if undoes else (step.body,)
            if step_state is not None and (step_state.is_open or step_state.handler in handling):
                blocks.add(around.path)
            step = around
    return blocks


# --- what is cut off --------------------------------------------------------------------------------------------------


def drop_work(draft: Draft, path: str, reason: str) -> None:
    """The work of the step is over: its attempt, its question, its message, its child run."""
    pending = draft.state.open_pendings.get(path)
    if pending is not None:
        draft.emit(e.PendingVoided, id=pending, reason=reason)
    leave_task(draft, draft.step(path))
    draft.cut = draft.cut or path in draft.state.attempts
    charge(draft, draft.step(path), asked=False)
    close_message(draft, path, aborted=True)
    finish_written(draft, path, draft.error("run.stopped", f"Cut off: {reason}.", path))
    if path in draft.state.children:
        tell_child(draft, path, "stop", draft.state.stop_by or "system", reason)


def tell_child(draft: Draft, path: str, what: str, by: str, reason: str) -> None:
    """Send a control to the child run of the step at `path`, unless it was started to be left alone."""
    if not draft.step(path).verb_as(Run).detach:
        draft.send(what, draft.state.children[path], {"by": by, "reason": reason})


def _is_stopped(draft: Draft, step: Step, reason: str, *, undone: bool) -> bool:
    """Whether a step that was cut off is over; else it is undone (an item, where `undone`), or its `finally` runs."""
    step_state = draft.state.steps.get(step.path)
    handler = None if step_state is None else step_state.handler
    if undone and handler is None and step.is_iteration and is_undo_scope(draft, step):
        undo = next_undo(draft, step.path)
        if undo is not None:
            draft.emit(e.StepStopped, path=step.path, reason=reason, handler=UNDO, ready=(undo,))
            return False
    if step.finally_ is not None and step_state is not None and handler != FINALLY and has_begun(draft, step.path):
        if step_state.is_open:
            draft.emit(e.StepStopped, path=step.path, reason=reason, handler=FINALLY, ready=(step.finally_,))
        else:
            draft.emit(e.HandlerStarted, path=step.path, handler=FINALLY, ready=(step.finally_,))
        return False
    record_stopped(draft, step, reason)
    return True


def record_stopped(draft: Draft, step: Step, reason: str) -> None:
    """Record that the step was cut off, unless it had come to something before."""
    if step.is_iteration:
        draft.emit(e.IterationEnded, path=step.path, status="stopped")
        return
    step_state = draft.state.steps.get(step.path)
    # over, all but its `finally`
    if step_state is not None and step_state.ending is not None and not step_state.is_open:
        draft.emit(e.HandlerStarted, path=step.path, handler=step_state.handler or FINALLY)
    elif step_state is None or step_state.is_open or step_state.handler is None or step.path in draft.state.ready:
        draft.emit(e.StepStopped, path=step.path, reason=reason)
