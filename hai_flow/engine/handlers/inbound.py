"""Something arrives from elsewhere: a signal, news of a child run, a log that could not be stored."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import go_on
from hai_flow.engine.completion import stopping
from hai_flow.engine.completion.cancellation import stop_everything
from hai_flow.engine.draft import Draft
from hai_flow.engine.handlers.replies import demand_active
from hai_flow.engine.runs import children
from hai_flow.engine.steps import wait_for_event
from hai_flow.values import Json


def _signal(draft: Draft, command: c.Signal) -> Json:
    demand_active(draft)
    outcome = wait_for_event.receive_signal(draft, command)
    go_on(draft)
    return outcome


def _child_moved(draft: Draft, command: c.ChildMoved) -> Json:
    children.child_moved(draft, command)
    go_on(draft)
    return None


def _child_told(draft: Draft, command: c.ChildTold) -> Json:
    children.apply_child_news(draft, command)
    go_on(draft)
    return None


def _child_ended(draft: Draft, command: c.ChildEnded) -> Json:
    children.child_ended(draft, command)
    go_on(draft)
    return None


def _handle_need_attention(draft: Draft, command: c.NeedAttention) -> Json:
    if draft.state.status == "stopping":  # a stop always ends: steps whose events can't be stored are cut off
        stop_everything(draft, command.reason)
        stopping.end_stop(draft)
        return None
    if draft.state.status not in ("running", "waiting", "paused"):
        draft.already = True
        return None
    draft.emit(e.RunNeedsAttention, path="", reason=command.reason)
    go_on(draft)
    return None


RULES: Final = {
    c.Signal: _signal,
    c.ChildMoved: _child_moved,
    c.ChildTold: _child_told,
    c.ChildEnded: _child_ended,
    c.NeedAttention: _handle_need_attention,
}
