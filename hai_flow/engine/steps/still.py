"""Looks whether what people approved is still so when the effect begins: `still`, and the tool as it was when they were
asked. A queue, a pause or a freeze may lie between. The attempt that begins looks first (`find_gate_to_check`) and
reports a difference as `GateChecked`: people are asked anew, with it as evidence, and their yes before is spent.
Nothing of that look is kept; after a few questions the step fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition.plan import Approval, McpTool, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import gates
from hai_flow.engine.pendings.tool_questions import find_inquiry_to_answer
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.effect_texts import find_title
from hai_flow.engine.steps.tool_calls import close_message, resolve_call
from hai_flow.values import Json

Why: TypeAlias = Literal["still", "unknown", "source", "description"]
ASKED_ANEW_MAX: Final = 3
"""How often people are asked anew in a row, before the step fails."""
VALUES_MAX: Final = 20
VALUE_CHARS_MAX: Final = 2_000  # of one value, as JSON, among the evidence


class Judgement(msgspec.Struct, frozen=True):
    """What the condition of a gate has come to. `fault`: why nobody can tell; `values`: those that it reads."""

    holds: bool
    fault: str
    values: dict[str, Json]


# --- whoever performs the effect --------------------------------------------------------------------------------------


def find_gate_to_check(state: RunState, step: Step) -> PendingState | None:
    """The approved gate that has to be looked at before the step's open attempt may begin its effect; None: nothing can
    have changed, or the attempt goes on with an effect that has begun, or may have (`find_gate_behind_loss`)."""
    return None if _may_have_begun(state, step) else _find_gate(state, step)


def find_gate_behind_loss(state: RunState, step: Step) -> PendingState | None:
    """The approved gate that has to be looked at where the effect turns out not to have begun: the attempt before was
    lost, perhaps in its own look. None: nothing can have changed, or `find_gate_to_check` says which."""
    return _find_gate(state, step) if _may_have_begun(state, step) else None


def _may_have_begun(state: RunState, step: Step) -> bool:
    return step.delivery == "resumed" and state.steps[step.path].lost > 0


def _find_gate(state: RunState, step: Step) -> PendingState | None:
    if step.approval is None:
        return None
    gate, step_state = gates.find_last_approved_gate(state, step), state.steps[step.path]
    if gate is None or (step.approval.still is None and gate.opened.source is None):
        return None
    is_answered = step_state.asked > 0 and find_inquiry_to_answer(state, step, step_state.attempt) is not None
    return None if is_answered else gate


def judge(draft: Draft, step: Step, args: str, roots: Mapping[str, Json]) -> Judgement:
    """Hold the gate's condition against the run as it is now. `roots`: `response`, where a tool was asked."""
    still = None if step.approval is None else step.approval.still
    if still is None:
        return Judgement(True, "", {})
    names = {"args": values.loads(args), **roots}
    read: dict[str, Json] = {}
    for path, value in draft.read_paths(still.condition, step, **names):
        if len(read) < VALUES_MAX:
            read[path] = _shorten(value)
    try:
        return Judgement(draft.truth(still.condition, step, **names), "", read)
    except Raised as raised:
        return Judgement(False, raised.message, read)


def _shorten(value: Json) -> Json:
    text = values.dumps(value).decode()
    return value if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}… [{len(text)} characters]"


# --- people are asked -------------------------------------------------------------------------------------------------


def needs_reading(draft: Draft, step: Step) -> bool:
    """Whether an attempt has to find out first what people are to be shown."""
    still = None if step.approval is None else step.approval.still
    return (still is not None and still.call is not None) or draft.context.sources(draft.plan, step) == ""


def read_by_engine(draft: Draft, step: Step, args: str) -> c.GateChecked:
    """The same where no tool has to be asked."""
    verdict = judge(draft, step, args, {})
    source = draft.context.sources(draft.plan, step) or None
    return c.GateChecked(path=step.path, attempt=0, values=verdict.values, source=source, fault=verdict.fault)


def ask(draft: Draft, step: Step, gate: Approval, check: c.GateChecked, after: PendingState | None = None) -> None:
    """Ask people, with what was found out. `after`: the gate whose approval is spent by that. Raises `Raised`."""
    args = draft.state.steps[step.path].args
    assert args is not None, f"{step.path} is no effect"
    anew = None
    if after is not None:
        assert check.why is not None
        number = 1 if after.opened.anew is None else after.opened.anew.number + 1
        anew = e.AskedAnew(after.opened.id, check.attempt, check.why, number)
    evidence = _evidence(gate, check, after)
    if gate.title is None and (title := check.title or find_title(step)):
        evidence = {"title": title, **evidence}
    text = draft.json_text(evidence) if evidence else None
    gates.open_gate(draft, step, gate, args, evidence=text, source=check.source, anew=anew)


def _evidence(gate: Approval, check: c.GateChecked, after: PendingState | None) -> dict[str, Json]:
    evidence: dict[str, Json] = {}
    if gate.still is not None:
        evidence |= {"still": gate.still.condition.source, "values": check.values}
    if check.fault:
        evidence["unknown"] = check.fault
    if check.description is not None:
        evidence["description"] = check.description
    if after is None:
        return evidence
    before = values.loads(after.opened.evidence) if after.opened.evidence is not None else {}
    was, now = before.get("values", {}), check.values
    changed = {
        path: {"then": was.get(path), "now": now.get(path)} for path in {**was, **now} if was.get(path) != now.get(path)
    }
    if before.get("description") != check.description:
        changed["description"] = {"then": before.get("description"), "now": check.description}
    if after.opened.source != check.source:
        changed["source"] = {"then": after.opened.source, "now": check.source}
    return {"changed": changed, **evidence}


def take_check(draft: Draft, step: Step, check: c.GateChecked) -> None:
    """What an attempt has found out: people are asked, or asked anew."""
    step_state, gate = draft.state.steps[step.path], step.approval
    if gate is None:  # the run goes on with another version
        loop.fail(draft, step, draft.error("approval.digest", f"{step.path} has no gate any more.", step.path))
        return
    after = None if step_state.reading else gates.find_last_approved_gate(draft.state, step)
    try:
        _ask_anew(draft, step, gate, check, after)
    except Raised as raised:
        loop.fail(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))


def _ask_anew(draft: Draft, step: Step, gate: Approval, check: c.GateChecked, after: PendingState | None) -> None:
    close_message(draft, step.path, aborted=True)
    if after is not None:
        number = 0 if after.opened.anew is None else after.opened.anew.number
        is_last = number >= ASKED_ANEW_MAX
        error = draft.error(gates.STALE, f"{step.path} was not performed: {_REASONS[check.why or 'still']}.", step.path)
        if is_last or not step.of_agent:  # the call of an agent is shown until it has come to an end
            resolve_call(draft, step, None, error)
        if is_last:
            loop.fail(draft, step, error)
            return
    ask(draft, step, gate, check, after)


_REASONS: Final[Mapping[Why, str]] = {
    "still": "its `still` was false whenever it was to begin, however often people approved it",
    "unknown": "nobody could tell whether its `still` is true whenever it was to begin",
    "source": "the code of its tool was another one whenever it was to begin",
    "description": "its server described the function otherwise whenever it was to begin",
}


def ask_without_reading(draft: Draft, step: Step, fault: str) -> None:
    """The attempt that was to find out what people are shown has come to nothing: they are shown why."""
    attempt = draft.state.steps[step.path].attempt
    take_check(draft, step, c.GateChecked(path=step.path, attempt=attempt, fault=fault))


def find_why(gate: PendingState, step: Step, source: str | None, verdict: Judgement) -> Why | None:
    """Why the effect behind the approved gate must not begin; None: it may."""
    if gate.opened.source is not None and source is not None and source != gate.opened.source:
        verb = step.verb
        return "description" if isinstance(getattr(verb, "tool", None), McpTool) else "source"
    return "unknown" if verdict.fault else None if verdict.holds else "still"
