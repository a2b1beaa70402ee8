"""Folds of timers, and of time that passes at once."""

from __future__ import annotations

from bisect import insort
from typing import Any

from msgspec.structs import replace

from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import following, waiting
from hai_flow.engine.state.state import PendingState, RunState, Timer


def timer_set(state: RunState, event: e.TimerSet) -> RunState:
    timers = list(state.timers)
    insort(timers, Timer(event.due, event.path, event.kind))
    changes: dict[str, Any] = {"timers": tuple(timers)}
    if event.kind == "wait":
        changes["steps"] = waiting(state, event, event.path)
    return following(state, event, **changes)


def timer_fired(state: RunState, event: e.TimerFired) -> RunState:
    timers = tuple(t for t in state.timers if not (t.path == event.path and t.kind == event.kind))
    ready = (*state.ready, event.path) if event.kind == "retry" else state.ready
    return following(state, event, timers=timers, ready=ready)


def time_jumped(state: RunState, event: e.TimeJumped) -> RunState:
    halted = ("halting_deadline",) if state.status == "paused" else ()
    still = {timer.path for timer in state.timers if timer.kind in halted}
    moved = (timer if timer.kind in halted else replace(timer, due=timer.due - event.ms) for timer in state.timers)
    pendings = state.pendings
    for path, id in state.open_pendings.items():
        pendings = pendings.set(id, later(pendings[id], -event.ms, halted=path in still))
    return following(state, event, timers=tuple(sorted(moved)), pendings=pendings)


def later(pending: PendingState, ms: int, *, halted: bool = False) -> PendingState:
    """The pending as if it had been opened so much later; a deadline that is `halted` stays."""
    deadline = pending.opened.deadline
    if deadline is not None and not halted:
        pending = replace(pending, opened=replace(pending.opened, deadline=deadline + ms))
    return replace(pending, since=pending.since + ms)
