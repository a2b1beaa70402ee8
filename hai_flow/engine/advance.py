"""Draw every consequence that may be drawn now: start the ready, end the finished, end the turn."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop, stopping
from hai_flow.engine.completion.open_steps import is_open_inside
from hai_flow.engine.draft import RUN_END, Draft
from hai_flow.engine.pendings.withdrawing import withdraw_unwanted
from hai_flow.engine.state import run_size
from hai_flow.engine.state.jobs import has_ready, is_working, next_ready
from hai_flow.engine.steps import start_step
from hai_flow.engine.steps.held_steps import hold_ready

ONCE_ONLY: Final = ("asked", "at_most_once")
"""How steps are delivered whose attempts nobody may simply repeat."""


def go_on(draft: Draft) -> None:
    """Draw every consequence that may be drawn now: start the ready, end the finished."""
    take_up(draft)
    if draft.state.status != "stopping":
        _suspend(draft)


def take_up(draft: Draft) -> None:
    """As `go_on`, but the turn stays open."""
    run_size.keep(draft)
    withdraw_unwanted(draft)
    if draft.state.status == "stopping":
        _stop_on(draft)
    elif draft.state.status in ("running", "waiting") and draft.state.ready:
        _hold(draft)
        if not draft.state.turn_open and has_ready(draft.state):
            draft.open_turn(c.Turn())
        _advance(draft)


def _hold(draft: Draft) -> None:
    """Note which of the ready steps are held by freezes, where these are others than before."""
    freezes = draft.context.freezes
    if not freezes and not draft.state.held:
        return
    held = hold_ready(draft.plan, draft.state, freezes)
    if held != dict(draft.state.held):
        reasons = {freeze.id: freeze.reason for freeze in freezes}
        draft.emit(e.StepsHeld, held=held, reason=next((reasons[id] for id in held.values()), ""))


def _advance(draft: Draft) -> None:
    while draft.state.status == "running" and draft.state.ready:
        path = _next_of(draft)
        if path is None or not draft.is_within_bounds():
            return
        if path == RUN_END:
            loop.conclude(draft)
        else:
            start_step.begin(draft, draft.step(path))
            withdraw_unwanted(draft)
            _hold(draft)


def _next_of(draft: Draft) -> str | None:
    """The first ready step that this process may begin. An effect that nobody may simply repeat is left to the holder
    of the run: where its process has died unnoticed, whoever claims the run knows that it was not begun."""
    if not draft.held_elsewhere:
        return next_ready(draft.state)
    ready = [path for path in draft.state.ready if path != RUN_END]
    return next_ready(draft.state, {path for path in ready if draft.step(path).delivery in ONCE_ONLY})


def _stop_on(draft: Draft) -> None:
    """Effects in flight end first; then finished steps are undone, then every begun `finally` runs."""
    while draft.state.status == "stopping":
        _hold(draft)
        path = _next_of(draft)
        if path is not None:
            if not draft.is_within_bounds():
                return
            if not draft.state.turn_open:
                draft.open_turn(c.Turn())
            start_step.begin(draft, draft.step(path))
        elif is_open_inside(draft, ""):  # also what is held, or left to the holder of the run
            return
        else:
            stopping.stop_on(draft)


def _suspend(draft: Draft) -> None:
    """End the turn if nothing but people, or a distant timer, can move the run."""
    state = draft.state
    if is_working(state) or not state.turn_open:
        return
    if state.status == "running" and not has_ready(state):
        near = draft.now + draft.limits.turn_linger
        if not any(t.due <= near and t.kind in ("wait", "retry") for t in state.timers):
            draft.end_turn("waiting")
    elif state.status == "paused":
        draft.end_turn("paused")
    elif state.status == "needs_attention":
        draft.end_turn("needs_attention")
