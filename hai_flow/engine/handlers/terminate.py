"""An operator ends the run: in order, or at once."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import go_on
from hai_flow.engine.completion import stopping
from hai_flow.engine.completion.cancellation import stop_everything
from hai_flow.engine.draft import Draft
from hai_flow.engine.handlers.replies import demand_active, refuse_now, run_outcome
from hai_flow.engine.runs import children
from hai_flow.engine.runs.fork import refuse_overtaken
from hai_flow.engine.steps.remote_tasks import leave_task, list_left_to_heir
from hai_flow.values import Json


def stop(draft: Draft, command: c.Stop) -> Json:
    if draft.state.status in ("stopping", "stopped"):
        if command.inherited is not None and draft.state.heir != command.heir:
            raise refuse_overtaken(draft.state)
        draft.already = True
        return run_outcome(draft)
    demand_active(draft)
    in_flight = len(draft.state.attempts)
    draft.emit(
        e.RunStopping,
        by=command.by,
        reason=command.reason,
        in_flight=in_flight,
        inherited=command.inherited,
        heir=command.heir,
    )
    children.pass_down(draft, "stop", command.by, command.reason)
    stopping.begin_stop(draft, "the run is being stopped")
    if in_flight:
        draft.emit(e.TimerSet, path="", kind="grace", due=draft.clock + draft.limits.stop_grace)
    go_on(draft)
    return {**run_outcome(draft), "in_flight": in_flight}


def _take_back(draft: Draft, command: c.TakeBack) -> Json:
    """The run undoes and cleans up what it had left to its heir. Raises Rejected 409 where the run has ended since the
    caller looked, so that its slots have to be seized first."""
    state = draft.state
    if state.heir is None or state.heir.run_id != command.heir:
        draft.already = True
        return run_outcome(draft)
    if state.ended != command.seized:
        raise refuse_now(draft, "take back the work of")
    cleanups = stopping.list_pending_cleanups(draft)
    paths = list_left_to_heir(state)
    draft.emit(e.WorkTakenBack, heir=command.heir, cleanups=cleanups)
    for path in paths:
        leave_task(draft, draft.step(path))
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    go_on(draft)
    return run_outcome(draft)


def _terminate(draft: Draft, command: c.Terminate) -> Json:
    if draft.state.status == "stopped":
        draft.already = True
        return run_outcome(draft)
    demand_active(draft)
    in_flight = len(draft.state.attempts)
    children.pass_down(draft, "terminate", command.by, command.reason)
    stop_everything(draft, "the run was terminated")
    draft.end_turn("stopped")
    draft.emit(e.RunStopped, by=command.by, reason=command.reason, terminated=True)
    return {**run_outcome(draft), "in_flight": in_flight}


RULES: Final = {c.Stop: stop, c.TakeBack: _take_back, c.Terminate: _terminate}
