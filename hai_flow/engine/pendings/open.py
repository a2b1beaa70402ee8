"""A pending is opened: its id, its form, the content that it shows, and the digest that binds all of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from hai_flow import values
from hai_flow.definition.plan import Call, FrontendTool, Step, Template
from hai_flow.definition.schemas.schemas import compile_schema
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.answers import digest
from hai_flow.engine.pendings.deadlines import escalate, set_clock
from hai_flow.engine.pendings.votes import Rules
from hai_flow.engine.pendings.withdrawing import demand_wanted, find_event
from hai_flow.engine.state.ids import pending_id
from hai_flow.engine.state.state import PendingState, ToolCallState
from hai_flow.engine.steps import wait_for_event
from hai_flow.engine.steps.tool_calls import model_call
from hai_flow.values import Json

_ASKED: Final = ("ask", "approve", "gate")
_BLANK: Final = PendingState(e.PendingOpened(at=0, id="", path="", kind="ask", digest=""))
"""A question without an answer."""


def open_pending(
    draft: Draft, step: Step, kind: e.QuestionKind, rules: Rules, /, *, id: str | None = None,
    roots: dict[str, Json] | None = None, **shown: Any,
) -> None:  # fmt: skip
    """Open the pending and start its clock; or escalate at once, where its first stage can't be decided. `id`: its
    `new_pending_id`, where the caller has it. `roots`: what expressions of the question read beside the names of the
    step. Raises `Raised`: it is not asked."""
    faults = [votes.impossible(stage, _BLANK) for stage in (rules, *rules.escalations)]
    if all(faults):
        raise Raised("approval.impossible", f"{step.path}: nobody can decide: {faults[0]}.")
    if kind in _ASKED:
        demand_wanted(draft, step, kind, roots or {})
    due = None if rules.deadline is None else rules.find_due(draft.now, rules.deadline)
    opened = e.PendingOpened(
        at=draft.clock, turn=draft.turn, id=id or new_pending_id(draft, step), path=step.path, kind=kind, digest="",
        deadline=due, policy=votes.to_json(rules), **shown,
    )  # fmt: skip
    draft.pure_steps += 1
    draft.add(replace(opened, digest=digest(draft.state.sha256, draft.state.run_id, opened)))
    event = find_event(step) if kind in _ASKED else None
    if event is not None:
        wait_for_event.await_withdrawal(draft, step, event)
    if faults[0] is None:
        set_clock(draft, step)
    else:
        escalate(draft, step, faults[0])


def new_pending_id(draft: Draft, step: Step) -> str:
    count = draft.state.steps[step.path].asked if step.path in draft.state.steps else 0
    call = _call_shown_before(draft, step)
    return pending_id(draft.state.run_id, step.path, count) if call is None else call.id


def _call_shown_before(draft: Draft, step: Step) -> ToolCallState | None:
    """The call that the step hands to a client, where that has seen it while a model wrote it and was not asked yet."""
    if not isinstance(step.verb, Call) or not isinstance(step.verb.tool, FrontendTool):
        return None
    call = model_call(draft.state, step.path)
    return None if call is None or call.result is not None or call.id in draft.state.pendings else call


def form_of(draft: Draft, step: Step, form: Template | None, roots: dict[str, Json]) -> Json:
    """The form with its holes filled. Raises `Raised` if that gives no schema."""
    if form is None:
        return None
    raw = draft.render(form, step, **roots)
    text = values.dumps(raw)
    draft.take(len(text))
    if (fault := _check_form(text)) is not None:
        raise Raised("expression.error", f"{step.path}: its form, with the holes filled, is wrong: {fault}.")
    return raw


@lru_cache(maxsize=1024)
def _check_form(text: bytes) -> str | None:
    """The first fault of a form that is written in JSON. Most forms are the same for all runs of a workflow."""
    faults: list[str] = []
    compile_schema(
        values.loads(text), lambda path, code, message: faults.append(f"{'/'.join(map(str, path))}: {message}")
    )
    return faults[0] if faults else None


def restamp(draft: Draft, pending: PendingState) -> None:
    """The pending's content is the same; its workflow's version, or the run, is another one now."""
    bound = digest(draft.state.sha256, draft.state.run_id, pending.opened)
    draft.emit(e.PendingRestamped, id=pending.opened.id, digest=bound)
