"""`call`, `http`, `llm`, `agent` and `run`: effects that are performed outside of the run, attempt by attempt.

The order (docs/design/engine.md#effects): arguments rendered once, `approval.when`, the gate, attempts."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.paths import UNDO
from hai_flow.definition.plan import EFFECTS, AgentTurn, Call, FrontendTool, Http, Llm, Run, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.consequences import Consequence
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import frontend_calls, gates, tool_questions
from hai_flow.engine.runs import children
from hai_flow.engine.state import budget
from hai_flow.engine.state.ids import tool_call_id
from hai_flow.engine.state.state import StepState
from hai_flow.engine.steps import still
from hai_flow.engine.steps.tool_calls import begin_growing_call, display_name, model_call, show_call

KEY_CHARS_MAX: Final = 255


def begin(draft: Draft, step: Step) -> Consequence | None:
    """The effect's arguments, its gate, its first attempt."""
    verb = step.verb
    assert isinstance(verb, EFFECTS)
    step_state = draft.state.steps.get(step.path)
    args = _arguments(draft, step, verb, step_state)
    if step.is_bare and step_state is None:
        draft.record_start(step, args=args, attempt=1)
        return None
    gate = step.approval
    if gate is not None and gates.is_approved(draft.state, step, args):
        gate = None
    attempt = step_state.next_attempt if step_state else 1
    if gate is not None and gates.is_gate_needed(draft, step, gate, args):
        key = _derive_idempotency_key(draft, step)
        if still.needs_reading(draft, step):
            draft.record_start(step, args=args, key=key, attempt=attempt, reading=True)
        else:
            draft.record_start(step, timed=False, args=args, key=key)
            still.ask(draft, step, gate, still.read_by_engine(draft, step, args))
        return None
    if isinstance(verb, Call) and isinstance(verb.tool, FrontendTool):
        return frontend_calls.begin_frontend_call(draft, step, verb.tool, args)
    budget.demand(draft, step, args)
    draft.record_start(step, args=args, key=_derive_idempotency_key(draft, step), attempt=attempt)
    _attempt_begun(draft, step, args)
    return None


def _arguments(draft: Draft, step: Step, verb: Call | Http | Llm | AgentTurn | Run, known: StepState | None) -> str:
    """The arguments as JSON text. Every attempt uses those first rendered, except behind an undo: the values they were
    rendered from may have been undone as well."""
    if known is not None and known.args is not None and not draft.state.redone:
        return known.args
    return draft.json_text(draft.render(verb.arguments, step))


def _derive_idempotency_key(draft: Draft, step: Step) -> str | None:
    """The key by which the world knows the effect, so that it happens once; None for the default, `run.id/path`."""
    owner = draft.state.steps.get(step.parent if step.body == UNDO else step.path)
    again = 0 if owner is None else owner.rounds
    if step.idempotency_key is None:
        return f"{draft.state.run_id}/{step.path}#{again + 1}" if again else None
    key = draft.text(step.idempotency_key, step)
    if not key or len(key) > KEY_CHARS_MAX:
        raise Raised(
            "expression.too_large", f"idempotency_key: expected 1 to {KEY_CHARS_MAX} characters, found {len(key)}."
        )
    return f"{key}#{again + 1}" if again else key


def begin_attempt(draft: Draft, step: Step, known: StepState) -> Consequence | None:
    """A further attempt; or the first one, behind the gate: it starts with the arguments that people have seen."""
    args = known.args
    assert args is not None, f"{step.path} is no effect"
    if not known.attempt:
        args = gates.check_gate(draft, step)
    if isinstance(step.verb, Call) and isinstance(step.verb.tool, FrontendTool):
        return frontend_calls.begin_frontend_call(draft, step, step.verb.tool, args)
    budget.demand(draft, step, args)
    timeout = None if step.timeout is None else draft.milliseconds(step.timeout, step)
    draft.emit(e.AttemptStarted, path=step.path, attempt=known.next_attempt, timeout=timeout)
    if not known.reading:
        _attempt_begun(draft, step, args, is_behind_gate=not known.attempt)
    return None


def _attempt_begun(draft: Draft, step: Step, args: str, *, is_behind_gate: bool = False) -> None:
    step_state, verb = draft.state.steps[step.path], step.verb
    if isinstance(verb, Call) and verb.into is not None:
        begin_growing_call(draft, step, verb.into)
    if isinstance(verb, Run):
        if still.find_gate_to_check(draft.state, step) is None:
            children.start(draft, step, verb, args)
    elif (
        step.expose
        and isinstance(verb, Call)
        and (is_behind_gate or not (step_state.failures or step_state.lost or _is_answered(draft, step)))
    ):
        if model_call(draft.state, step.path) is not None:
            return
        gate = gates.find_last_approved_gate(draft.state, step)
        behind = None if gate is None else gate.opened.id
        id = tool_call_id(draft.state.run_id, step.path, step_state.asked, behind=behind)
        show_call(draft, step, id, display_name(step), args, "server")


def _is_answered(draft: Draft, step: Step) -> bool:
    """Whether the attempt goes on with a call that has asked a person."""
    step_state = draft.state.steps[step.path]
    return (
        step_state.asked > 0
        and tool_questions.find_inquiry_to_answer(draft.state, step, step_state.attempt) is not None
    )


VERBS: Final = dict.fromkeys(EFFECTS, begin)
