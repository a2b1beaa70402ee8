"""How a step begins, one function per verb. A pure step also ends here, an effect or a question stays open.

The order of an effect (docs/design/engine.md#effects): `if`, its arguments rendered, `approval.when`, the gate, its
attempts. Not here: whether it may begin now (`decide`), and performing anything.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias

from hai_flow import values
from hai_flow.definition import paths
from hai_flow.definition.paths import in_cleanup
from hai_flow.definition.plan import (
    EFFECTS,
    Agent,
    Approve,
    Ask,
    Break,
    Call,
    Continue,
    Emit,
    Fail,
    ForEach,
    FrontendTool,
    Http,
    Iteration,
    Llm,
    Parallel,
    Repeat,
    Return,
    Run,
    Say,
    Set,
    Step,
    Switch,
    Try,
    Wait,
    WaitFor,
)
from hai_flow.engine import children, endings, people, resumption, signals
from hai_flow.engine import events as e
from hai_flow.engine.bounds import demand_wait
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.ids import message_id, tool_call_id
from hai_flow.engine.loops import first_iterations, index_of, read_items
from hai_flow.engine.patch import PatchError, apply_patch, parse_pointer, pointer_of
from hai_flow.engine.shared import STATE_BYTES_MAX
from hai_flow.engine.state import Ending, StepState

Json: TypeAlias = Any

SAY_CHUNK_CHARS: Final = 4096
KEY_CHARS_MAX: Final = 255


def begin(draft: Draft, step: Step) -> None:
    """Begin the step, its next attempt, or what is behind its gate; whatever goes wrong is its failure."""
    known = draft.state.steps.get(step.path)
    try:
        if known is None:
            _begin_first(draft, step)
        elif known.status in ("running", "waiting"):
            _begin_attempt(draft, step, known)
        elif known.status == "pending":
            _begin_first(draft, step)
        else:
            _begin_again(draft, step)
    except Raised as raised:
        draft.pure_steps += 1
        endings.fail(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))


def _begin_first(draft: Draft, step: Step) -> None:
    if step.condition is not None and not draft.truth(step.condition, step):
        draft.pure_steps += 1
        endings.skip(draft, step)
        return
    _demand_room(draft, step)
    _BEGINNINGS[type(step.verb)](draft, step, step.verb)


def _demand_room(draft: Draft, step: Step) -> None:
    """Raises `Raised` where the run's limits have no room for a further step. What cleans up is not counted."""
    limits, state = draft.plan.limits, draft.state
    if (limits.steps is None and limits.tool_calls is None) or not step.is_written or in_cleanup(step.path):
        return
    if limits.steps is not None and state.begun_steps >= limits.steps:
        raise Raised("limit.steps", f"The run has begun {state.begun_steps} steps; its limit is {limits.steps}.")
    if isinstance(step.verb, Call) and limits.tool_calls is not None and state.begun_calls >= limits.tool_calls:
        raise Raised(
            "limit.tool_calls", f"The run has made {state.begun_calls} tool calls; its limit is {limits.tool_calls}."
        )


# --- effects ----------------------------------------------------------------------------------------------------------


def _begin_effect(draft: Draft, step: Step, verb: Call | Http | Llm | Agent | Run) -> None:
    known = draft.state.steps.get(step.path)
    args = _arguments(draft, step, verb, known)
    if isinstance(verb, Call) and isinstance(verb.tool, FrontendTool):
        people.begin_frontend_call(draft, step, verb.tool, args)
        return
    gate = step.approval
    if gate is not None and people.is_approved(draft.state, step, args):
        gate = None
    if gate is not None and people.needs_gate(draft, step, gate, args):
        draft.started(step, timed=False, args=args, key=_idempotency_key(draft, step))
        people.open_gate(draft, step, gate, args)
        return
    attempt = known.next_attempt if known else 1
    draft.started(step, args=args, key=_idempotency_key(draft, step), attempt=attempt)
    _attempt_begun(draft, step, args)


def _arguments(draft: Draft, step: Step, verb: Call | Http | Llm | Agent | Run, known: StepState | None) -> str:
    """The arguments as JSON text. Every attempt uses those first rendered, except behind an undo: what they were
    rendered from may have been undone as well."""
    if known is not None and known.args is not None and not draft.state.redone:
        return known.args
    return draft.json_text(draft.render(verb.arguments, step))


def _idempotency_key(draft: Draft, step: Step) -> str | None:
    """What the effect's performer tells the world, so that it happens once; None for the default, `run.id/path`."""
    owner = draft.state.steps.get(step.parent if step.body == paths.UNDO else step.path)
    again = 0 if owner is None else owner.rounds
    if step.idempotency_key is None:
        return f"{draft.state.run_id}/{step.path}#{again + 1}" if again else None
    key = draft.text(step.idempotency_key, step)
    if not key or len(key) > KEY_CHARS_MAX:
        raise Raised(
            "expression.too_large", f"idempotency_key: expected 1 to {KEY_CHARS_MAX} characters, found {len(key)}."
        )
    return f"{key}#{again + 1}" if again else key


def _begin_attempt(draft: Draft, step: Step, known: StepState) -> None:
    """A further attempt; or the first one, behind the gate: it starts with the arguments that people have seen."""
    args = known.args
    assert args is not None, f"{step.path} is no effect"
    if not known.attempt:
        args = people.check_gate(draft, step)
    timeout = None if step.timeout is None else draft.milliseconds(step.timeout, step)
    draft.emit(e.AttemptStarted, path=step.path, attempt=known.next_attempt, timeout=timeout)
    _attempt_begun(draft, step, args)


def _attempt_begun(draft: Draft, step: Step, args: str) -> None:
    known, verb = draft.state.steps[step.path], step.verb
    if isinstance(verb, Call) and verb.into is not None:
        people.begin_growing_call(draft, step, verb.into)
    if isinstance(verb, Run):
        children.start(draft, step, verb, args)
    elif step.expose and isinstance(verb, Call) and not (known.failures or known.lost):
        name = f"{verb.tool.name}.{verb.function}" if verb.function else verb.tool.name
        gate = people.approved_gate(draft.state, step)
        behind = None if gate is None else gate.opened.id
        id = tool_call_id(draft.state.run_id, step.path, known.asked, behind=behind)
        people.show_call(draft, step, id, name, args, "server")


# --- blocks -----------------------------------------------------------------------------------------------------------


def _begin_switch(draft: Draft, step: Step, verb: Switch) -> None:
    draft.pure_steps += 1
    for number, (condition, first) in enumerate(verb.cases):
        if condition is None or draft.truth(condition, step):
            draft.started(step, case=number, ready=(first,))
            return
    draft.started(step)
    endings.finish(draft, step, {"case": None})


def _begin_parallel(draft: Draft, step: Step, verb: Parallel) -> None:
    draft.pure_steps += 1
    draft.started(step, branches=len(verb.branches), ready=tuple(first for _, first in verb.branches))


def _begin_try(draft: Draft, step: Step, verb: Try) -> None:
    draft.pure_steps += 1
    draft.started(step, ready=(verb.first,))


def _begin_for_each(draft: Draft, step: Step, verb: ForEach) -> None:
    items, keys = read_items(draft, step, verb)
    draft.pure_steps += 1
    if items:
        draft.started(step, items=items, keys=keys, ready=first_iterations(step.path, keys, verb))
    else:
        draft.started(step)
        endings.finish(draft, step, [])


def _begin_repeat(draft: Draft, step: Step, verb: Repeat) -> None:
    draft.pure_steps += 1
    known = draft.state.steps.get(step.path)
    first = 0 if known is None or known.loop is None else known.loop.last + 1
    if endings.wants_more(draft, step, verb, step, 0):
        draft.started(step, ready=(paths.iteration(step.path, first),))
    else:
        draft.started(step)
        endings.finish(draft, step, {"count": 0})


def _begin_iteration(draft: Draft, step: Step, verb: Iteration) -> None:
    draft.pure_steps += 1
    key = paths.key_of(step.path)
    loop = draft.state.steps[step.parent].loop
    assert loop is not None
    index = index_of(loop, key) if loop.keys else int(key)
    draft.emit(e.IterationStarted, path=step.path, index=index, ready=(verb.first,))


def _begin_again(draft: Draft, step: Step) -> None:
    """A Retry comes by a step that was over: it goes on inside it, where something in there is left to do."""
    frontier = resumption.inside(draft, step)
    if not frontier.ready and not isinstance(step.verb, Iteration):
        _begin_first(draft, step)
        return
    draft.pure_steps += 1
    draft.emit(e.StepReopened, path=step.path, **frontier.fields())
    if not frontier.ready:
        endings.iteration_done(draft, step)


# --- people and signals -----------------------------------------------------------------------------------------------


def _begin_ask(draft: Draft, step: Step, verb: Ask) -> None:
    draft.pure_steps += 1
    people.begin_ask(draft, step, verb)


def _begin_approve(draft: Draft, step: Step, verb: Approve) -> None:
    draft.pure_steps += 1
    people.begin_approve(draft, step, verb)


def _begin_wait_for(draft: Draft, step: Step, verb: WaitFor) -> None:
    draft.pure_steps += 1
    signals.begin_wait_for(draft, step, verb)


# --- pure steps -------------------------------------------------------------------------------------------------------


def _begin_say(draft: Draft, step: Step, verb: Say) -> None:
    content = draft.render(verb.content, step)
    kind = "data" if verb.kind in ("fold", "output") else verb.kind
    if kind == "text" or (kind == "thinking" and not isinstance(content, dict)):
        if isinstance(content, str):
            text = content
            draft.take(len(text.encode()))
        else:
            text = draft.json_text(content)
    elif verb.kind == "output":
        text = draft.json_text(content)
    else:
        text = draft.json_text({"type": verb.kind, "data": content})
        kind = "data"
    draft.started(step)
    draft.pure_steps += 1
    id = message_id(draft.state.run_id, step.path, 1, draft.state.entries)
    draft.emit(
        e.MessageStarted,
        message_id=id,
        path=step.path,
        kind=kind,
        block_id=None if verb.block_id is None else draft.text(verb.block_id, step),
        layout=None if verb.layout is None else draft.render(verb.layout, step),
        style=None if verb.style is None else draft.render(verb.style, step),
    )
    size = len(text) or 1 if kind == "data" else SAY_CHUNK_CHARS  # structured output is one document, one chunk
    for n, start in enumerate(range(0, len(text), size)):
        draft.emit(e.MessageChunk, message_id=id, n=n, content=text[start : start + size])
    draft.emit(e.MessageEnded, message_id=id)
    endings.finish(draft, step, None)


def _begin_set(draft: Draft, step: Step, verb: Set) -> None:
    ops = _operations(draft, step, verb)
    try:
        after = apply_patch(draft.state.state, ops)
    except PatchError as error:
        raise Raised("state.invalid", f"The change of state does not apply: {error}.") from None
    findings = draft.plan.state_schema.findings(after)
    if findings:
        faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in findings)
        raise Raised("state.invalid", f"The state would not fit its types: {faults}.", findings)
    if len(values.dumps(after)) > STATE_BYTES_MAX:
        raise Raised("state.invalid", f"The state would be larger than {STATE_BYTES_MAX} bytes.")
    draft.started(step)
    draft.pure_steps += 1
    draft.rendered_bytes += len(values.dumps(ops))
    draft.emit(e.StateChanged, path=step.path, ops=tuple(ops))
    endings.finish(draft, step, None)


def _operations(draft: Draft, step: Step, verb: Set) -> list[dict[str, Json]]:
    if verb.ops is not None:
        return draft.render(verb.ops, step)
    document, ops = draft.state.state, []
    for key, template in verb.assign:
        value = draft.render(template, step)
        op = _pointer_operation(document, key, value) if key.startswith("/") else None
        ops.append(op or _variable_operation(draft, document, key, value))
        try:
            document = apply_patch(document, ops[-1:])
        except PatchError as error:
            raise Raised("state.invalid", f"{key} can't be set: {error}.") from None
    return ops


def _pointer_operation(document: Json, pointer: str, value: Json) -> dict[str, Json]:
    try:
        parts = parse_pointer(pointer)
        apply_patch(document, [{"op": "replace", "path": pointer, "value": value}])
    except PatchError:
        return {"op": "add", "path": pointer, "value": value}
    return {"op": "replace", "path": pointer_of(*parts), "value": value}


def _variable_operation(draft: Draft, document: Json, name: str, value: Json) -> dict[str, Json]:
    reduce, before = draft.plan.state[name].reduce, document.get(name)
    path = pointer_of(name)
    if reduce == "append":
        if isinstance(before, list):
            return {"op": "add", "path": path + "/-", "value": value}
        value = [value]
    elif reduce == "merge" and isinstance(before, dict):
        if not isinstance(value, dict):
            raise Raised("state.invalid", f"{name} is merged: expected a map, found {type(value).__name__}.")
        value = {**before, **value}
    elif reduce == "max" and before is not None:
        try:
            value = max(before, value)
        except TypeError:
            raise Raised("state.invalid", f"{name} keeps the larger number; found {value!r}.") from None
    return {"op": "replace" if name in document else "add", "path": path, "value": value}


def _begin_wait(draft: Draft, step: Step, verb: Wait) -> None:
    due = _due(draft, step, verb)
    if due > draft.now:
        demand_wait(draft, step)
    draft.pure_steps += 1
    draft.started(step)
    if due <= draft.now:
        endings.finish(draft, step, None)
    else:
        draft.emit(e.TimerSet, path=step.path, kind="wait", due=due)


def _due(draft: Draft, step: Step, verb: Wait) -> int:
    if verb.for_ is not None:
        return draft.now + draft.milliseconds(verb.for_, step)
    assert verb.until is not None
    text = draft.text(verb.until, step)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise Raised(
            "expression.error",
            f"wait.until: expected a timestamp with offset such as 2026-03-02T09:00:00Z, found {text!r}.",
        )
    return int(instant.timestamp() * 1000)


def _begin_emit(draft: Draft, step: Step, verb: Emit) -> None:
    content = draft.render(verb.content, step)
    draft.take(len(values.dumps(content)))
    draft.started(step)
    draft.pure_steps += 1
    if verb.kind == "custom":
        draft.emit(e.CustomEmitted, path=step.path, name=content["name"], value=content.get("value"))
    elif verb.kind == "raw":
        draft.emit(e.RawEmitted, path=step.path, event=content["event"], source=content.get("source"))
    else:
        between = {"from_": content["from"], "to": content["to"], "task": content["task"]}
        draft.emit(e.CollaborationStarted, path=step.path, **between)
        draft.emit(e.CollaborationEnded, path=step.path, **between)
    endings.finish(draft, step, None)


def _begin_return(draft: Draft, step: Step, verb: Return) -> None:
    value = draft.render(verb.value, step)
    draft.started(step)
    draft.pure_steps += 1
    draft.emit(e.StepFinished, path=step.path)
    endings.end(draft, draft.step(""), Ending("finished", value, reason="the run returned"), of=step)


def _begin_break(draft: Draft, step: Step, verb: Break) -> None:
    _leave(draft, step, Ending("left", reason="the loop was left"))


def _begin_continue(draft: Draft, step: Step, verb: Continue) -> None:
    _leave(draft, step, Ending("next", reason="the rest of the iteration is skipped"))


def _leave(draft: Draft, step: Step, ending: Ending) -> None:
    draft.started(step)
    draft.pure_steps += 1
    draft.emit(e.StepFinished, path=step.path)
    endings.end(draft, endings.iteration_around(draft, step), ending, of=step)


def _begin_fail(draft: Draft, step: Step, verb: Fail) -> None:
    message = draft.text(verb.message, step)
    data = None if verb.data is None else draft.render(verb.data, step)
    draft.started(step)
    draft.pure_steps += 1
    endings.fail(draft, step, draft.error(verb.code, message, step.path, data))


_BEGINNINGS: Final[dict[type, Callable[[Draft, Step, Any], None]]] = {
    **dict.fromkeys(EFFECTS, _begin_effect),
    Switch: _begin_switch,
    Parallel: _begin_parallel,
    Try: _begin_try,
    ForEach: _begin_for_each,
    Repeat: _begin_repeat,
    Iteration: _begin_iteration,
    Ask: _begin_ask,
    Approve: _begin_approve,
    WaitFor: _begin_wait_for,
    Say: _begin_say,
    Emit: _begin_emit,
    Set: _begin_set,
    Wait: _begin_wait,
    Break: _begin_break,
    Continue: _begin_continue,
    Return: _begin_return,
    Fail: _begin_fail,
}
