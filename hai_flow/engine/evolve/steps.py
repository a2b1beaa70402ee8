"""Folds of the life of a step, by the rows of STEP_TRANSITIONS."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec.structs import replace

from hai_flow.definition import paths
from hai_flow.definition.paths import is_inside
from hai_flow.engine import events as e
from hai_flow.engine.evolve.children import end_messages_below, remove_below
from hai_flow.engine.evolve.common import (
    add_inside,
    add_timeout,
    begin_anew,
    derive_phase,
    following,
    remove_entry,
    remove_timers,
    with_handler,
    with_step,
    without,
    working,
)
from hai_flow.engine.evolve.loops import AGENT_CALLS, begin_loop, build_loop_output, close_loop
from hai_flow.engine.state.state import Ending, Phase, RunState, StepState

_End: TypeAlias = e.StepFinished | e.StepSkipped | e.StepFailed | e.StepStopped
_LOOPS: Final = frozenset({"for_each", "repeat", "agent", "agent_calls"})
_NEW: Final = StepState("new", 0)
"""A step that has no record yet."""


def step_started(state: RunState, event: e.StepStarted) -> RunState:
    path = event.path
    before = state.steps.get(path, _NEW)
    step = StepState(
        derive_phase(event, before, "working"),
        event.at,
        event.verb,
        event.turn,
        event.attempt,
        past=0 if event.attempt else max(before.attempt, before.past),
        asked=before.asked,
        args=event.args,
        # a gate that was passed stays passed, as long as it is for the same arguments
        approval=before.approval if event.attempt and before.args == event.args else None,
        timeout=None if event.attempt else event.timeout,
        key=event.key,
        rounds=before.rounds,
        loop=begin_loop(state, event, before) if event.verb in _LOOPS else None,
        case=event.case,
        left=event.branches,
        reading=event.reading,
    )
    return replace(
        state,
        seq=state.seq + 1,
        at=event.at,
        steps=state.steps.set(path, step),
        inside=add_inside(state, path),
        begun_steps=state.begun_steps + 1,
        begun_calls=state.begun_calls + (event.verb == "call"),
        redo=state.redo and tuple(each for each in state.redo if each != path and not is_inside(each, path)),
        attempts=state.attempts.set(path, event.attempt) if event.attempt else state.attempts,
        timeouts=state.timeouts if event.timeout is None else add_timeout(state, event),
        ready=(*without(state.ready, path), *event.ready),
    )


def attempt_started(state: RunState, event: e.AttemptStarted) -> RunState:
    path = event.path
    return replace(
        state,
        seq=state.seq + 1,
        at=event.at,
        steps=working(state, event, path, attempt=event.attempt),
        attempts=state.attempts.set(path, event.attempt),
        timers=remove_timers(state, path),
        timeouts=add_timeout(state, event),
        ready=without(state.ready, path),
    )


def step_finished(state: RunState, event: e.StepFinished) -> RunState:
    path, handler = event.path, event.handler
    before = state.steps.get(path)
    step_state = StepState("pending", event.at) if before is None else before
    loop = step_state.loop
    closed = replace(
        step_state,
        phase=derive_phase(event, before, "over" if handler is None else "handling"),
        outcome="finished",
        begun=with_handler(step_state, handler),
        replaced="handled" if step_state.outcome == "handled" else step_state.replaced,  # a document behind its `catch`
        ending=None,
        output=event.output
        if loop is None or not loop.keys or step_state.verb == AGENT_CALLS
        else build_loop_output(loop),
        approval=step_state.approval if event.approval is None else event.approval,
        lost=0,
    )
    after = _close_step(state, event, closed, handler, event.ready)
    if event.undoable:
        after = replace(after, undoables=after.undoables.set(path, after.seq))
    return after if loop is None else close_loop(after, path, loop)


def step_skipped(state: RunState, event: e.StepSkipped) -> RunState:
    path, handler = event.path, event.handler
    before = state.steps.get(path)
    phase = derive_phase(event, before, "over" if handler is None else "handling")
    if event.by is not None:
        return _skip_by_person(state, event, before, phase)
    if handler is None and event.approval is None:
        return replace(
            state,
            seq=state.seq + 1,
            at=event.at,
            steps=state.steps.set(path, StepState(phase, event.at, outcome="skipped")),
            inside=add_inside(state, path),
            ready=(*without(state.ready, path), *event.ready),
        )
    step_state = StepState("pending", event.at) if before is None else before
    closed = replace(
        step_state,
        phase=phase,
        outcome="skipped",
        begun=with_handler(step_state, handler),
        ending=None,
        approval=event.approval,
        output=event.approval,
    )
    return _close_step(state, event, closed, handler, event.ready)


def _skip_by_person(state: RunState, event: e.StepSkipped, before: StepState | None, phase: Phase) -> RunState:
    """A person had the step skipped, whatever its phase was: an earlier outcome counts no more."""
    path, handler = event.path, event.handler
    step_state = StepState("pending", event.at) if before is None else before
    closed = replace(
        step_state,
        phase=phase,
        outcome="skipped",
        begun=with_handler(step_state, handler),
        replaced=None,
        ending=None,
        error=None,
        approval=None,
        output=event.output,
        given=True,
        lost=0,
    )
    redo = tuple(each for each in state.redo if each != path)
    return _close_step(replace(state, redo=redo), event, closed, handler, event.ready)


def step_failed(state: RunState, event: e.StepFailed) -> RunState:
    path, handler = event.path, event.handler
    before = state.steps.get(path)
    step_state = StepState("pending", event.at) if before is None else before
    spoiled = step_state.cleaned and (step_state.outcome in ("finished", "skipped") or step_state.handled)
    output, approval = step_state.output, step_state.approval
    if not spoiled and step_state.loop is not None and step_state.loop.keys and step_state.verb != AGENT_CALLS:
        output = build_loop_output(step_state.loop)
    elif event.approval is not None:
        output = event.approval
    closed = replace(
        step_state,
        phase=derive_phase(event, before, "over" if handler is None else "handling"),
        outcome="handled" if handler is not None and paths.is_catch(handler) else "failed",
        begun=with_handler(step_state, handler),
        replaced=step_state.outcome if spoiled else step_state.done,
        ending=None,
        error=event.error,
        output=output,
        approval=approval if event.approval is None else event.approval,
    )
    after = _close_step(state, event, closed, handler, event.ready)
    if paths.is_undo(path):
        after = _undo_ended(after, path, failed=True)
    return replace(after, failure=event.error) if "" in event.ready else after


def step_stopped(state: RunState, event: e.StepStopped) -> RunState:
    path, handler = event.path, event.handler
    before = state.steps.get(path)
    step_state = StepState("pending", event.at) if before is None else before
    closed = replace(
        step_state,
        phase=derive_phase(event, before, "over" if handler is None else "handling"),
        outcome="stopped",
        begun=with_handler(step_state, handler),
        replaced="handled" if step_state.outcome == "handled" else step_state.replaced,
        ending=None,
    )
    if handler == paths.FINALLY:
        state = replace(state, owed=without(state.owed, path))
    return _close_step(state, event, closed, handler, event.ready)


def _close_step(
    state: RunState, event: _End, closed: StepState, handler: str | None, ready: tuple[str, ...]
) -> RunState:
    """Shared by every end of a step: no attempt, no timer, no place in the frontier; its successors are ready."""
    path, steps = event.path, state.steps
    if path in state.children:
        below = {"below": remove_below(state, path), **end_messages_below(state, path)}
        state = replace(state, children=state.children.delete(path), **below)
    if path in state.last_children and not isinstance(event, e.StepFailed | e.StepStopped):
        state = replace(state, last_children=state.last_children.delete(path))
    if state.retried and handler is not None and handler != paths.UNDO:
        state, steps = begin_anew(state, paths.inside(path, handler))
    return replace(
        state,
        seq=state.seq + 1,
        at=event.at,
        steps=steps.set(path, closed),
        inside=add_inside(state, path),
        subscriptions=state.subscriptions.delete(path) if path in state.subscriptions else state.subscriptions,
        attempts=remove_entry(state.attempts, path),
        timers=remove_timers(state, path) if state.timers else (),
        timeouts=remove_entry(state.timeouts, path),
        ready=(*without(state.ready, path), *ready) if state.ready else ready,
    )


def step_undone(state: RunState, event: e.StepUndone) -> RunState:
    step = state.steps[event.path]
    phase = derive_phase(event, step, step.phase)
    undone = replace(step, phase=phase, outcome="undone", rounds=step.rounds + 1)
    steps, ready = state.steps.set(event.path, undone), (*state.ready, *event.ready)
    return _undo_ended(following(state, event, steps=steps, ready=ready), event.path)


def _undo_ended(state: RunState, path: str, *, failed: bool = False) -> RunState:
    owner = path if not failed else paths.undone_by(path)
    undoables = state.undoables.delete(owner) if owner in state.undoables else state.undoables
    if failed:
        return replace(state, undoables=undoables, undo_failed=(*state.undo_failed, owner))
    return replace(state, undoables=undoables, undone=(*state.undone, owner))


def step_ending(state: RunState, event: e.StepEnding) -> RunState:
    path, before = event.path, state.steps.get(event.path)
    ending = Ending(event.outcome, event.output, event.error, event.reason)
    if before is None:
        step = StepState(derive_phase(event, None, "working"), event.at, ending=ending)
    else:
        step = replace(before, ending=ending)
    return replace(
        state,
        seq=state.seq + 1,
        at=event.at,
        steps=state.steps.set(path, step),
        inside=add_inside(state, path),
        timeouts=remove_entry(state.timeouts, path),
    )


def handler_started(state: RunState, event: e.HandlerStarted) -> RunState:
    path, handler, steps = event.path, event.handler, state.steps
    if state.retried and event.ready and handler != paths.UNDO:
        state, steps = begin_anew(state, paths.inside(path, handler))
    elif path in state.owed and event.ready:  # it was at work, and cut off in this step
        state, steps = begin_anew(state, event.ready[0])
    before = steps[path]
    step = replace(
        before,
        phase=derive_phase(event, before, "handling"),
        outcome="handled" if paths.is_catch(handler) else before.outcome,
        begun=with_handler(before, handler),
        ending=None,
    )
    owed = without(state.owed, path) if handler == paths.FINALLY else state.owed
    return following(state, event, steps=steps.set(path, step), ready=(*state.ready, *event.ready), owed=owed)


def step_retried(state: RunState, event: e.StepRetried) -> RunState:
    """The next attempt of a step that has a child run starts another one."""
    step = state.steps[event.path]
    last_children = state.last_children
    return following(
        state,
        event,
        last_children=last_children.delete(event.path) if event.path in last_children else last_children,
        steps=with_step(
            state,
            event.path,
            lost=step.lost + (not event.held) if event.lost else 0,
            failures=step.failures + (not event.lost),
        ),
        attempts=remove_entry(state.attempts, event.path),
        timeouts=remove_entry(state.timeouts, event.path),
        ready=state.ready if event.due is not None else (*without(state.ready, event.path), event.path),
    )


def branch_ended(state: RunState, event: e.BranchEnded) -> RunState:
    step = state.steps[event.path]
    others = tuple(each for each in step.winners if each != event.branch)
    if event.failed:
        return following(state, event, steps=with_step(state, event.path, dropped=step.dropped + 1, winners=others))
    won = step.winners if event.branch in step.winners else (*others, event.branch)
    return following(state, event, steps=with_step(state, event.path, left=step.left - 1, winners=won))
