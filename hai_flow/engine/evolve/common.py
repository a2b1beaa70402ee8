"""Shared by several folds: parts of the next state, each as it is behind an event.

The folds of every step name all fields that they change in one `replace`: to hand maps of changes on costs much of a
decision's time."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from hai_flow.definition import paths
from hai_flow.definition.paths import find_iteration_around, is_inside
from hai_flow.engine import events as e
from hai_flow.engine.state.state import Map, Phase, RunState, StepState, Timer
from hai_flow.engine.state.transitions import STEP_TRANSITIONS

_ROWS: Final = {kind: STEP_TRANSITIONS.get(name, {}) for kind, name in e.TYPES.items()}


def following(state: RunState, event: e.Event, /, **changes: Any) -> RunState:
    return replace(state, seq=state.seq + 1, at=event.at, **changes)


def without(items: tuple[str, ...], item: str) -> tuple[str, ...]:
    """`items` but for one of them, which need not be there."""
    if item not in items:
        return items
    return () if len(items) == 1 else tuple(each for each in items if each != item)


def remove_entry(mapping: Map[str, int], path: str) -> Map[str, int]:
    """`mapping` but for one entry, which need not be there."""
    return mapping.delete(path) if path in mapping else mapping


def remove_timers(state: RunState, path: str) -> tuple[Timer, ...]:
    """The timers but for those of one step."""
    timers = state.timers
    if not timers or all(timer.path != path for timer in timers):
        return timers
    return tuple(timer for timer in timers if timer.path != path)


def add_timeout(state: RunState, event: e.StepStarted | e.AttemptStarted) -> Map[str, int]:
    if event.timeout is None:
        return state.timeouts
    return state.timeouts.set(event.path, state.compute_working_time(event.at) + event.timeout)


# --- steps --------------------------------------------------------------------------------------------------------


def with_step(state: RunState, path: str, **changes: Any) -> Map[str, StepState]:
    return state.steps.set(path, replace(state.steps[path], **changes))


def add_inside(state: RunState, path: str) -> Map[str, tuple[str, ...]]:
    """The steps that are kept of each iteration, with one that may be new."""
    if path in state.steps or not paths.is_in_loop(path):
        return state.inside
    around = find_iteration_around(path)
    return state.inside if around is None else state.inside.set(around, (*state.inside.get(around, ()), path))


def derive_phase(event: e.Event, step: StepState | None, phase: Phase) -> Phase:
    """The phase that the event brings a step to, which has no record yet where it is None."""
    before = "new" if step is None else step.phase
    allowed = _ROWS[type(event)].get(before, ())
    assert phase in allowed, f"{event.type} brings a step from {before} to {phase}: not in the transition table"
    return phase


def working(state: RunState, event: e.Event, path: str, **changes: Any) -> Map[str, StepState]:
    """The steps, of which the one at `path` goes on with its work."""
    step = state.steps[path]
    return state.steps.set(path, replace(step, phase=derive_phase(event, step, "working"), outcome=None, **changes))


def waiting(state: RunState, event: e.Event, path: str, **changes: Any) -> Map[str, StepState]:
    """The steps, of which the one at `path` waits for people, signals or time."""
    step = state.steps[path]
    return state.steps.set(path, replace(step, phase=derive_phase(event, step, "waiting"), outcome=None, **changes))


def with_handler(step: StepState, handler: str | None) -> tuple[str, ...]:
    """The handlers of the step that have begun, when `handler` does."""
    return step.begun if handler is None else (*without(step.begun, handler), handler)


def begin_anew(state: RunState, place: str) -> tuple[RunState, Map[str, StepState]]:
    """The steps, with those of a handler that may have run before, in a run that was retried: they run once more, and
    start other children. Beside them the state, which has the steps as they were."""
    steps = state.steps
    last_children = {path: last for path, last in state.last_children.items() if not is_inside(path, place)}
    if len(last_children) < len(state.last_children):
        state = replace(state, last_children=Map(last_children))
    for path, step in state.steps.items():
        if is_inside(path, place):
            rounds = step.rounds + (step.status == "finished")
            again = replace(step, phase="pending", outcome=None, begun=(), rounds=rounds, args=None, approval=None)
            steps = steps.set(path, again)
    return state, steps
