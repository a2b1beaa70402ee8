"""Something arrives from elsewhere: a signal, news of a child run, a log that could not be stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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


def _by_going_on(draw: Callable[[Draft, Any], None]) -> Callable[[Draft, Any], Json]:
    """The rule of a command by which the run goes on, and that has no answer."""

    def rule(draft: Draft, command: Any) -> Json:
        draw(draft, command)
        go_on(draft)
        return None

    return rule


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
    c.ChildMoved: _by_going_on(children.child_moved),
    c.ChildTold: _by_going_on(children.apply_child_news),
    c.ChildEnded: _by_going_on(children.child_ended),
    c.NeedAttention: _handle_need_attention,
}
