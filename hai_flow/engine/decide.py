"""The consequences of a command: the whole policy of a run, as a pure function.

Everything that does not *start* anything is drawn at once, up to the end of the document; steps that may start next are
noted in `ready`, which `go_on` takes up within the bounds of a decision (docs/design/engine.md#bounds). So a pause, a
bound and a crash leave the same state. Before the command, all that is due at `now` is decided as of the instant at
which it was due, so it makes no difference how late a timer fires (docs/decisions/0018). `now` is in ms since 1970, a
lower bound of the database's clock. Streamed text is never read here (docs/design/store.md#decisions-and-chunks)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.decision import Decision
from hai_flow.engine.draft import NO_CONTEXT, DecisionContext, Draft
from hai_flow.engine.due import pass_time, pass_time_before
from hai_flow.engine.handlers import answering, clock, control, inbound, outcomes, start, terminate
from hai_flow.engine.runs import children
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.engine.state.state import TERMINAL_STATUSES, RunState
from hai_flow.engine.steps import concurrency_slots
from hai_flow.errors import reject_unknown_run
from hai_flow.values import Json


def decide(
    plan: Plan,
    state: RunState,
    command: c.Command,
    now: int,
    limits: Bounds = DEFAULT_BOUNDS,
    log_bytes: int = 0,
    held_elsewhere: bool = False,
    context: DecisionContext = NO_CONTEXT,
) -> Decision:
    """The consequences of `command` for a run in `state`, whose log has `log_bytes`. `held_elsewhere`: another process
    holds the run, and it alone begins what nobody may simply repeat (docs/design/store.md#lost-attempts). Raises
    `Rejected` if it is refused."""
    if state.status == "new" and type(command) not in (c.Start, c.Fork):
        raise reject_unknown_run(state.run_id)
    draft = Draft(plan, state, max(now, state.at), limits, log_bytes, held_elsewhere, context)
    for_time = type(command) in _FOR_TIME
    undecided = not pass_time_before(draft, command) and not for_time
    passed = len(draft.events)
    outcome = None if undecided else _RULES[type(command)](draft, command)
    if not undecided and not for_time and (draft.already or len(draft.events) == passed):
        return Decision((), state, outcome, already=True)  # passed time has a timer of its own
    if draft.state.parent is not None:
        children.tell_parent(draft, state)
    if draft.state.status in TERMINAL_STATUSES:
        concurrency_slots.tell_freed(draft, state)
    decision = draft.decision(outcome)
    return msgspec.structs.replace(decision, undecided=True) if undecided else decision


def as_of(plan: Plan, state: RunState, now: int, limits: Bounds = DEFAULT_BOUNDS) -> RunState:
    """The run as whatever is decided at `now` finds it, with all that is due by itself. For readers of open questions:
    an answer is late even where no timer has fired yet. Nothing of it is committed, so show no more of it than that."""
    done = False
    while not done:
        draft = Draft(plan, state, max(now, state.at), limits)
        done = pass_time(draft, draft.clock, attempts=False)
        done, state = done or draft.state is state, draft.state
    return state


_FOR_TIME: Final = frozenset({c.TimerFired, c.Continue})
"""Commands that ask for nothing but the passing of time."""

_RULES: Final[dict[type[c.Command], Callable[[Draft, Any], Json]]] = {
    **start.RULES,
    **outcomes.RULES,
    **answering.RULES,
    **inbound.RULES,
    **clock.RULES,
    **control.RULES,
    **terminate.RULES,
}
