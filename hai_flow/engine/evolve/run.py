"""Folds of the run itself: its statuses, its state, its notes."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from hai_flow.definition.paths import is_in_cleanup, is_undo, undone_by
from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import following, with_step, without
from hai_flow.engine.state.patch import apply_patch
from hai_flow.engine.state.state import NEAR, Map, RunState, Spent, Status
from hai_flow.engine.state.transitions import TRANSITIONS


def derive_status(state: RunState, event: e.Event, to: Status | None = None) -> dict[str, Any]:
    """The changes that a transition makes: the status, and the clock of working time."""
    allowed = TRANSITIONS[event.type].get(state.status, ())
    status = to or (allowed[0] if allowed else None)
    assert status in allowed, f"{event.type} in status {state.status} is not in the transition table"
    changes: dict[str, Any] = {"status": status}
    working = status in ("running", "stopping")  # undoing, behind a stop, is working time too: it has timeouts
    if working and state.running_since is None:
        changes["running_since"] = event.at
    elif not working and state.running_since is not None:
        changes["worked"] = state.compute_working_time(event.at)
        changes["running_since"] = None
    return changes


def _end_run(state: RunState, event: e.Event, /, **changes: Any) -> RunState:
    return following(
        state,
        event,
        **derive_status(state, event),
        ended_at=event.at,
        ready=(),
        held=Map(),
        timers=(),
        timeouts=Map(),
        attempts=Map(),
        slot=None,
        subscriptions=Map(),
        children=Map(),
        below=Map(),
        **changes,
    )


def run_started(state: RunState, event: e.RunStarted) -> RunState:
    return following(
        state,
        event,
        **derive_status(state, event),
        workflow=event.workflow,
        version=event.version,
        sha256=event.sha256,
        dev=event.dev,
        thread_id=event.thread_id,
        requester=event.requester,
        instigators=event.instigators,
        parent=event.parent,
        origin=event.origin,
        pins=event.pins,
        timeouts=Map() if event.timeout is None else Map({"": event.timeout}),
        allowance=event.allowance,
        trace=event.trace,
        key=event.key,
        trigger=event.trigger,
        scheduled_at=event.scheduled_at,
        message=event.message,
        started_at=event.at,
        input=event.input,
        state=event.state,
        ready=event.ready,
    )


def run_queued(state: RunState, event: e.RunQueued) -> RunState:
    return following(state, event, **derive_status(state, event), slot=event.slot)


def run_paused(state: RunState, event: e.RunPaused) -> RunState:
    return following(state, event, **derive_status(state, event), paused_at=event.at)


def run_resumed(state: RunState, event: e.RunResumed) -> RunState:
    """Deadlines that a pause halts are as far away as they were when it began."""
    paused = 0 if state.paused_at is None else event.at - state.paused_at
    timers, pendings = state.timers, state.pendings
    if any(timer.kind == "halting_deadline" for timer in timers):
        for halted in (timer for timer in timers if timer.kind == "halting_deadline"):
            id = state.open_pendings.get(halted.path)
            if id is not None:
                opened = replace(pendings[id].opened, deadline=halted.due + paused)
                pendings = pendings.set(id, replace(pendings[id], opened=opened))
        moved = (replace(t, due=t.due + paused) if t.kind == "halting_deadline" else t for t in timers)
        timers = tuple(sorted(moved))
    moved_on = derive_status(state, event, event.status)  # type: ignore[arg-type]
    return following(state, event, **moved_on, timers=timers, pendings=pendings, paused_at=None)


def run_stopping(state: RunState, event: e.RunStopping) -> RunState:
    """Blocks end behind the steps inside them: no timeout cuts them short any more, and no limit of the run. What the
    run is about to undo, or is undoing, is not left to an heir: nobody goes on with it (`fork.list_undone`)."""
    inherited = event.inherited or e.Inherited(0, 0)
    leaves = (*state.ready, *state.attempts, *(timer.path for timer in state.timers))
    undoing = {undone_by(path) for path in leaves if is_undo(path)}
    heir_paths = {path for path, seq in state.undoables.items() if seq <= inherited.seq and path not in undoing}
    timeouts = {
        path: due
        for path, due in state.timeouts.items()
        if path in state.attempts
        or (is_in_cleanup(path) and not (0 < state.steps[path].turn <= inherited.turn or path in inherited.steps))
    }
    return following(
        state,
        event,
        **derive_status(state, event),
        timeouts=Map(timeouts),
        timers=tuple(timer for timer in state.timers if timer.kind != "limit"),
        ready=without(state.ready, ""),
        stop_by=event.by,
        stop_reason=event.reason,
        inherited=inherited.turn,
        inherited_steps=inherited.steps,
        heir=event.heir,
        left_at=inherited.seq,
        left=Map({path: seq for path, seq in state.undoables.items() if path in heir_paths}),
        undoables=Map({path: seq for path, seq in state.undoables.items() if path not in heir_paths}),
    )


def steps_held(state: RunState, event: e.StepsHeld) -> RunState:
    return following(state, event, held=Map(event.held))


def work_taken_back(state: RunState, event: e.WorkTakenBack) -> RunState:
    return following(
        state,
        event,
        **derive_status(state, event),
        inherited=0,
        inherited_steps=(),
        heir=None,
        left_at=0,
        left=Map(),
        undoables=Map({**state.left, **state.undoables}),
        owed=event.cleanups,
        ended_at=None,
        error=None,
    )


def run_stopped(state: RunState, event: e.RunStopped) -> RunState:
    """A run that is terminated leaves nothing to anybody."""
    return _end_run(state, event, **({"heir": None, "left": Map()} if event.terminated else {}))


def run_finished(state: RunState, event: e.RunFinished) -> RunState:
    return _end_run(state, event, output=event.output)


def run_failed(state: RunState, event: e.RunFailed) -> RunState:
    return _end_run(state, event, error=event.error)


def run_needs_attention(state: RunState, event: e.RunNeedsAttention) -> RunState:
    return following(state, event, **derive_status(state, event))


def state_changed(state: RunState, event: e.StateChanged) -> RunState:
    return following(state, event, state=apply_patch(state.state, event.ops))


def custom_emitted(state: RunState, event: e.CustomEmitted) -> RunState:
    if event.name != e.PREDICTED:
        return following(state, event)
    return following(state, event, predicted=state.predicted.set(event.path, event.value))


def raw_emitted(state: RunState, event: e.RawEmitted) -> RunState:
    return following(state, event)


AGENT_PARTS_MAX: Final = 64


def parts_made(state: RunState, event: e.PartsMade) -> RunState:
    steps = with_step(state, event.path, parts=event.parts)
    if event.agent is not None:  # it has those of its newest answers
        agent = state.steps[event.agent]
        steps = steps.set(event.agent, replace(agent, parts=(*agent.parts, *event.parts)[-AGENT_PARTS_MAX:]))
    return following(state, event, steps=steps)


def model_used(state: RunState, event: e.ModelUsed) -> RunState:
    use, step = event.use, state.steps[event.path]
    label = f"{use.provider}/{use.served}"
    last_children = state.last_children
    if event.path in last_children and event.attempt == step.attempt:
        last = last_children[event.path]
        spent = {**last.spent, label: last.spent.get(label, Spent()).plus(use)}
        last_children = last_children.set(event.path, replace(last, spent=spent))
    return following(
        state,
        event,
        last_children=last_children,
        steps=with_step(state, event.path, spent=(step.spent or Spent()).plus(use)),
        spent=state.spent.plus(use),
        spent_on=state.spent_on.set(label, state.spent_on.get(label, Spent()).plus(use)),
        turn_spent=state.turn_spent.set(label, state.turn_spent.get(label, Spent()).plus(use)),
    )


def warning_raised(state: RunState, event: e.WarningRaised) -> RunState:
    return following(state, event, near=state.near or event.code == NEAR)
