"""Time comes before commands: whatever is due by itself is decided as of the instant at which it was due."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.names.durations import spell
from hai_flow.definition.paths import is_in_cleanup, is_inside
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import go_on, take_up
from hai_flow.engine.completion import loop, stopping
from hai_flow.engine.completion.open_steps import open_leaves
from hai_flow.engine.draft import Draft
from hai_flow.engine.handlers.attempts import fail_attempt
from hai_flow.engine.handlers.terminate import stop
from hai_flow.engine.pendings import deadlines
from hai_flow.engine.runs import children
from hai_flow.engine.state import budget
from hai_flow.engine.state.jobs import Due, is_due, next_due
from hai_flow.engine.state.state import Ending, Timer
from hai_flow.engine.steps import wait_for_event
from hai_flow.values import Json


def pass_time_before(draft: Draft, command: c.Command) -> bool:
    """Let time pass up to the command. Returns whether it can be decided now: not if the bounds were reached before."""
    if isinstance(command, _OUTCOMES):  # most commands are
        until = draft.clock if command.ended_at is None else min(draft.clock, command.ended_at)
        return pass_time(draft, until)
    if isinstance(command, c.NeedAttention):
        return True  # time that passes may lead to events that can't be stored: this command must work in spite of them
    if draft.state.status == "needs_attention" and isinstance(command, _ENDINGS):
        return True
    if isinstance(command, c.TimerFired):
        draft.receipts = command.receipts
    until = min(draft.clock, command.sent_at) if isinstance(command, c.Signal) else draft.clock
    return pass_time(draft, until, attempts=isinstance(command, c.TimerFired))


def pass_time(draft: Draft, until: int, *, since: int = 0, attempts: bool = True) -> bool:
    """Let everything happen that is due by `until`, in the order in which it is due, each as of its instant, but none
    before `since`. Steps that may begin because of one have begun before the next. Returns whether all of it has
    happened: not if the bounds are reached before.

    `attempts`: their time-outs, too. Those are for the performer of the run: if that process is gone, they are lost,
    not late."""
    passed = False
    while is_due(draft.state, until, attempts=attempts):
        take_up(draft)
        due = next_due(draft.state, attempts=attempts)
        if due is None or due.at > until:
            break
        if passed and not draft.is_within_bounds():
            go_on(draft)
            return False
        passed = True
        draft.now = max(due.at, since)
        _start_due(draft, due)
        draft.now = draft.clock
    if draft.events:
        go_on(draft)
    return not draft.events or draft.is_within_bounds()


def _start_due(draft: Draft, due: Due) -> None:
    if not draft.state.turn_open and draft.state.status in ("waiting", "paused", "needs_attention"):
        draft.open_turn(c.Turn())
    if due.timer is None:
        _fail_too_late(draft, due.path)
    else:
        draft.emit(e.TimerFired, path=due.path, kind=due.timer.kind)
        _fire(draft, due.timer)


def _fire(draft: Draft, timer: Timer) -> None:
    step = draft.step(timer.path)
    match timer.kind:
        case "wait":
            loop.finish(draft, step, None)
        case "deadline" | "halting_deadline" if _is_awaiting_event(draft, timer.path):
            wait_for_event.deadline_passed(draft, step)
        case "deadline" | "halting_deadline":
            deadlines.deadline_passed(draft, step)
        case "remind":
            deadlines.remind(draft, step)
        case "grace":
            stopping.stop_attempts(draft, "the grace period of the stop is over")
        case "limit":
            _run_too_long(draft)
        case "retry":
            pass  # the fold has made the step ready


def _is_awaiting_event(draft: Draft, path: str) -> bool:
    """Whether the step waits for an event, and not for people who may be withdrawn by one."""
    return path in draft.state.subscriptions and path not in draft.state.open_pendings


def _run_too_long(draft: Draft) -> None:
    """Every step that is open, and every one that would begin, fails with the limit, unless it cleans up."""
    limit = draft.plan.limits.duration
    assert limit is not None, "its timer was set by it"
    message = f"The run has taken longer than its limit of {spell(limit)}."
    for path in open_leaves(draft):
        if is_in_cleanup(path) or path not in open_leaves(draft):
            continue
        step = draft.step(path)
        error = draft.error("limit.duration", message, path, draft.receipts.get(path))
        loop.end(draft, step, Ending("failed", error=error, reason=message))


def _fail_too_late(draft: Draft, path: str) -> None:
    """The step has worked for as long as it may."""
    if path == "":  # a child run that has no time left
        stop(draft, c.Stop(by="system", reason=children.TIMED_OUT))
        return
    step = draft.step(path)
    receipt = draft.receipts.get(path)
    if path not in draft.state.attempts:  # a block: what has come of the answers that its end cuts off
        receipt = {"received": inner} if (inner := _receipts_inside(draft, path)) else None
    error = draft.error("step.timeout", "The step took longer than its timeout.", path, receipt, retriable=True)
    if path in draft.state.attempts:
        draft.cut = True
        budget.charge(draft, step)
        fail_attempt(draft, step, error)
    else:
        loop.end(draft, step, Ending("failed", error=error, reason="its block took too long"))


def _receipts_inside(draft: Draft, block: str) -> dict[str, Json]:
    return {path: receipt for path, receipt in draft.receipts.items() if is_inside(path, block)}


_OUTCOMES: Final = (c.StepSucceeded, c.StepFailed)
"""Commands of the process that performs the run's attempts, like a timer's. Only that process knows that an attempt is
late, and not lost."""

_ENDINGS: Final = (c.Stop, c.Terminate)
