"""The size of one run: how much it waits for at once, and how long its log gets. Too many waits fail the step that
would be one more. A full log fails the run, which no `catch` takes; cleaning up has a quarter more, and behind that all
is cut off. A warning comes before. The bounds are this process's: a log holds the decisions made by them, so its fold
depends on none."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.paths import UNDO, is_in_cleanup
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.commands import Turn
from hai_flow.engine.completion import loop
from hai_flow.engine.completion.cancellation import stop_everything
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.retry_policy import LOG_FULL
from hai_flow.engine.state.state import NEAR, Ending, RunState
from hai_flow.engine.state.undo_scopes import build_undo_error

TOO_MANY_WAITS: Final = "limit.waits"
TRACE: Final = "tool.trace"
TRACES_UNTIL: Final = 0.1
WARN_AT: Final = 0.8
CUT_AT: Final = 1.25


def demand_wait(draft: Draft, step: Step) -> None:
    """Raises `Raised` if the run waits for as much as it may. Steps that clean up are not counted."""
    state, most = draft.state, draft.limits.waits
    if len(state.open_pendings) + len(state.timers) + len(state.children) < most or is_in_cleanup(step.path):
        return  # most runs wait for little, and each wait has a timer
    waits = {*state.open_pendings, *state.subscriptions, *state.children}
    waits.update(timer.path for timer in state.timers if timer.kind == "wait")
    if len(waits) >= most:
        raise Raised(
            TOO_MANY_WAITS,
            f"The run waits for {len(waits)} answers, events, times and child runs already, which is the most; let a "
            "`for_each` begin fewer of them at once (`max_parallel`).",
        )


def used(state: RunState, log_bytes: int, limits: Bounds) -> float:
    """The share of its log's bound that the run has used: 1.0 is all."""
    return max(state.seq / limits.run_events, log_bytes / limits.run_bytes)


def is_due(state: RunState, log_bytes: int, limits: Bounds) -> bool:
    """Whether something follows from the length of the run's log as soon as it goes on."""
    if state.seq / limits.run_events < WARN_AT and log_bytes / limits.run_bytes < WARN_AT:
        return False  # as of nearly all runs
    if state.status not in ("running", "waiting", "stopping"):
        return False
    share = used(state, log_bytes, limits)
    return share >= CUT_AT or (share >= 1 and not _is_over(state)) or not state.near


def keep(draft: Draft) -> None:
    """Warn, or end the run, if its log asks for that."""
    state = draft.state
    if not is_due(state, draft.log_bytes, draft.limits):
        return
    if not state.turn_open:
        draft.open_turn(Turn())
    share = used(state, draft.log_bytes, draft.limits)
    if not state.near:
        draft.emit(e.WarningRaised, code=NEAR, message=f"{_length(draft)} At the bound it fails.")
    if share >= CUT_AT:
        _cut(draft)
    elif share >= 1 and not _is_over(state):
        error = draft.error(LOG_FULL, _length(draft), "")
        loop.end(draft, draft.step(""), Ending("failed", error=error, reason="the run's log is full"))


def keep_trace(draft: Draft, step: Step, trace: str | None) -> None:
    """Note where a tool failed, as long as that does not bring the run near the bound of its log: a list may have
    thousands of items that all fail in the same place."""
    if trace is not None and used(draft.state, draft.log_bytes, draft.limits) < TRACES_UNTIL:
        draft.emit(e.WarningRaised, code=TRACE, message=trace, path=step.path)


def _length(draft: Draft) -> str:
    limits = draft.limits
    return (
        f"The run's log has {draft.state.seq} events and {draft.log_bytes} bytes; it may have {limits.run_events} "
        f"events and {limits.run_bytes} bytes."
    )


def _is_over(state: RunState) -> bool:
    """Whether the run only ends: it is being stopped, undone or cleaned up."""
    root = state.steps.get("")
    ending = root is not None and (root.ending is not None or root.cleaned or root.handler == UNDO)
    return ending or state.failure is not None or state.status == "stopping"


def _cut(draft: Draft) -> None:
    stop_everything(draft, "the run's log is full")
    draft.end_turn("failed")
    error = draft.error(LOG_FULL, f"{_length(draft)} What cleans up was cut off, too.", "")
    if draft.state.undo_failed:
        error = build_undo_error(draft, "", error)
    draft.emit(e.RunFailed, error=error)
