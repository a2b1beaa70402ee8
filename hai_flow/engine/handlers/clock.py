"""Commands that ask for nothing but the passing of time, and the one of tests that lets it pass sooner."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import go_on
from hai_flow.engine.draft import Draft
from hai_flow.engine.due import pass_time
from hai_flow.engine.handlers.replies import refuse_now, run_outcome
from hai_flow.engine.state import run_size
from hai_flow.engine.state.jobs import next_timer, open_attempts
from hai_flow.errors import Rejected
from hai_flow.values import Json


def _handle_timer_fired(draft: Draft, command: c.TimerFired) -> Json:
    if not draft.events:  # due timers have fired before any command
        raise Rejected(409, "timer_early", "no timer of this run is due yet.")
    return None


def _handle_continue(draft: Draft, command: c.Continue) -> Json:
    goes_on = draft.state.status in ("running", "waiting", "stopping") and bool(draft.state.ready)
    if goes_on or run_size.is_due(draft.state, draft.log_bytes, draft.limits):
        go_on(draft)
    else:
        draft.already = not draft.events
    return None


def _handle_jump(draft: Draft, command: c.Jump) -> Json:
    """Time goes on to the next thing that is due, and to the one after it, until `ms` have passed: so the clock of a
    step that begins on the way begins on the way. It goes no further where the run works, or wants something of others:
    that takes real time. Returns how much has `passed` and is `left` (docs/decisions/0033)."""
    if draft.state.status not in _ON_A_CLOCK:
        raise refuse_now(draft, "let time pass for")
    remaining, attempts, sent = command.ms, dict(open_attempts(draft.state)), len(draft.outbox)
    while remaining and draft.state.status in _ON_A_CLOCK and draft.is_within_bounds():
        timer = next_timer(draft.state)
        step = remaining if timer is None else min(remaining, timer.due - draft.clock)
        assert step > 0, "what is due has happened before any command"
        draft.emit(e.TimeJumped, by=command.by, ms=step)
        remaining -= step
        pass_time(draft, draft.clock, attempts=False)
        working = any(attempts.get(path) != attempt for path, attempt in open_attempts(draft.state).items())
        if working or len(draft.outbox) > sent:
            break
    return {**run_outcome(draft), "passed": command.ms - remaining, "left": remaining}


_ON_A_CLOCK: Final = ("running", "waiting", "paused")


RULES: Final = {c.TimerFired: _handle_timer_fired, c.Continue: _handle_continue, c.Jump: _handle_jump}
