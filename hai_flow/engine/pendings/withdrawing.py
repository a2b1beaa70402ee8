"""A question is taken back: what its `withdraw_when` names has happened, and nobody's answer is wanted any more.

An event is a signal that the step waits for while it asks (`engine/steps/wait_for_event`). A condition reads the state:
it is looked at before people are asked, and whenever the state has changed while they are."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.checks.asked_people import find_policy
from hai_flow.definition.plan import Expression, Step, Subscription
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import votes
from hai_flow.engine.state.state import PendingState
from hai_flow.values import Json

WITHDRAWN: Final = "withdrawn"
_CODES: Final = {"ask": "ask.withdrawn"}
_CODE: Final = "approval.withdrawn"
ASKED: Final = ("ask", "approve", "gate")


def find_event(step: Step) -> Subscription | None:
    """The event that takes the question of the step back."""
    policy = find_policy(step)
    return policy.withdraw_when if policy is not None and isinstance(policy.withdraw_when, Subscription) else None


def demand_wanted(draft: Draft, step: Step, kind: str, roots: dict[str, Json]) -> None:
    """Raises `Raised` where the answer is not wanted from the start."""
    condition = _find_condition(step)
    if condition is not None and draft.truth(condition, step, **roots):
        raise Raised(_CODES.get(kind, _CODE), f"{step.path} was not asked: {_describe_condition(condition)}.")


def withdraw(draft: Draft, step: Step, pending: PendingState, reason: str) -> None:
    """Take the question back; the step fails."""
    _end(draft, step, pending, reason, draft.error(_CODES.get(pending.opened.kind, _CODE), reason, step.path))


def withdraw_unwanted(draft: Draft) -> None:
    """Take the questions back whose condition has become true, if the state is another one than when it was looked at
    last."""
    state = draft.state
    if state.state is draft.looked_at:
        return
    draft.looked_at = state.state
    for path, id in sorted(state.open_pendings.items()):
        step, pending = draft.step(path), state.pendings[id]
        condition = _find_condition(step)
        if condition is None or pending.opened.kind not in ASKED or draft.state.open_pendings.get(path) != id:
            continue
        roots = {"args": values.loads(pending.opened.args)} if pending.opened.args is not None else {}
        try:
            if not draft.truth(condition, step, **roots):
                continue
        except Raised as raised:
            error = draft.error(raised.code, f"`withdraw_when` of {path}: {raised.message}", path, raised.data)
            _end(draft, step, pending, error.message, error)
            continue
        withdraw(draft, step, pending, f"{path} was taken back: {_describe_condition(condition)}.")


def _end(draft: Draft, step: Step, pending: PendingState, reason: str, error: e.Error) -> None:
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    is_decision = pending.opened.kind != "ask"
    result = votes.envelope(pending, WITHDRAWN, reason) if is_decision else None
    draft.emit(e.PendingVoided, id=pending.opened.id, reason=reason)
    loop.fail(draft, step, error, result)


def _find_condition(step: Step) -> Expression | None:
    policy = find_policy(step)
    condition = None if policy is None else policy.withdraw_when
    return None if condition is None or isinstance(condition, Subscription) else condition


def _describe_condition(condition: Expression) -> str:
    return f"`{condition.source}` is so"
