"""How a step begins, one function per verb. A pure step also ends here, an effect or a question stays open.

Not here: whether it may begin now (`decide`), and performing anything.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias

from hai_flow import values
from hai_flow.definition.durations import NotADuration
from hai_flow.definition.durations import milliseconds as duration_ms
from hai_flow.definition.plan import (
    Approve,
    Ask,
    Call,
    Fail,
    FrontendTool,
    Parallel,
    Policy,
    Return,
    Say,
    Set,
    Step,
    Switch,
    Template,
    Wait,
)
from hai_flow.engine import endings, people
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.ids import message_id, tool_call_id
from hai_flow.engine.patch import PatchError, apply_patch, parse_pointer, pointer_of

Json: TypeAlias = Any

SAY_CHUNK_CHARS: Final = 4096
STATE_BYTES_MAX: Final = 1024 * 1024


def begin(draft: Draft, step: Step) -> None:
    known = draft.state.steps.get(step.path)
    if known is not None and known.status == "running" and known.attempt:
        draft.emit(e.AttemptStarted, path=step.path, attempt=known.attempt + 1, timeout=step.timeout)
        return
    try:
        if step.condition is not None and not draft.truth(step.condition, step):
            draft.pure_steps += 1
            endings.leave(draft, step, e.StepSkipped)
            return
        _BEGINNINGS[type(step.verb)](draft, step, step.verb)
    except Raised as raised:
        draft.pure_steps += 1
        endings.fail(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))


def _started(draft: Draft, step: Step, /, **fields: Any) -> None:
    title = None if step.title is None else draft.text(step.title, step)
    draft.emit(e.StepStarted, path=step.path, verb=step.verb_name, title=title, timeout=step.timeout, **fields)


def _begin_call(draft: Draft, step: Step, verb: Call) -> None:
    known = draft.state.steps.get(step.path)
    if known is not None and known.args is not None:  # every attempt uses the arguments first rendered
        args = known.args
    else:
        args = draft.json_text(draft.render(verb.arguments, step))
    if isinstance(verb.tool, FrontendTool):
        _begin_frontend_call(draft, step, verb.tool, args)
        return
    _started(draft, step, args=args, attempt=known.attempt + 1 if known else 1)
    if step.expose:
        name = f"{verb.tool.name}.{verb.function}" if verb.function else verb.tool.name
        id = tool_call_id(draft.state.run_id, step.path, draft.state.steps[step.path].asked)
        _show_call(draft, step, id, name, args, "server")


def _begin_frontend_call(draft: Draft, step: Step, tool: FrontendTool, args: str) -> None:
    findings = tool.parameters.findings(values.loads(args)) if tool.parameters is not None else []
    if findings:
        faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in findings)
        raise Raised("tool.invalid_arguments", f"{tool.name} was called with wrong arguments: {faults}.")
    _started(draft, step, args=args)
    id = people.new_pending_id(draft, step)
    _show_call(draft, step, id, tool.name, args, "frontend")
    schema = tool.result.raw if tool.result is not None else None
    people.open_pending(draft, step, id, "tool", tool.deadline, tool=tool.name, args=args, schema=schema)


def _show_call(draft: Draft, step: Step, id: str, name: str, args: str, executor: str) -> None:
    parent = draft.state.last_message.get(step.path.rpartition("/")[0])
    draft.emit(
        e.ToolCallStarted,
        tool_call_id=id,
        name=name,
        path=step.path,
        executor=executor,
        message_id=parent or id,
        parent_message_id=parent,
    )
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=args)
    draft.emit(e.ToolCallEnded, tool_call_id=id)


def _begin_ask(draft: Draft, step: Step, verb: Ask) -> None:
    shown = _question(draft, step, verb.title, verb.message, verb.policy)
    _started(draft, step)
    id = people.new_pending_id(draft, step)
    people.open_pending(draft, step, id, "ask", verb.deadline, schema=dict(verb.form), **shown)


def _begin_approve(draft: Draft, step: Step, verb: Approve) -> None:
    shown = _question(draft, step, verb.title, verb.message, verb.policy)
    if verb.evidence is not None:
        shown["evidence"] = draft.json_text(draft.render(verb.evidence, step))
    _started(draft, step)
    schema = None if verb.form is None else dict(verb.form)
    id = people.new_pending_id(draft, step)
    people.open_pending(draft, step, id, "approve", verb.deadline, schema=schema, options=verb.options, **shown)


def _question(draft: Draft, step: Step, title: Template, message: Template | None, policy: Policy) -> dict[str, Any]:
    return {
        "title": draft.text(title, step),
        "message": None if message is None else draft.text(message, step),
        "policy": {
            "from": draft.render(policy.from_, step),
            "exclude": None if policy.exclude is None else draft.render(policy.exclude, step),
            "quorum": policy.quorum,
        },
    }


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
    _started(draft, step)
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
    _started(draft, step)
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


def _begin_switch(draft: Draft, step: Step, verb: Switch) -> None:
    draft.pure_steps += 1
    for number, (condition, first) in enumerate(verb.cases):
        if condition is None or draft.truth(condition, step):
            _started(draft, step, case=number, ready=(first,))
            return
    _started(draft, step)
    endings.finish(draft, step, {"case": None})


def _begin_parallel(draft: Draft, step: Step, verb: Parallel) -> None:
    draft.pure_steps += 1
    _started(draft, step, branches=len(verb.branches), ready=tuple(first for _, first in verb.branches))


def _begin_wait(draft: Draft, step: Step, verb: Wait) -> None:
    due = _due(draft, step, verb)
    draft.pure_steps += 1
    _started(draft, step)
    if due <= draft.now:
        endings.finish(draft, step, None)
    else:
        draft.emit(e.TimerSet, path=step.path, kind="wait", due=due)


def _due(draft: Draft, step: Step, verb: Wait) -> int:
    if isinstance(verb.for_, int):
        return draft.now + verb.for_
    if verb.for_ is not None:
        text = draft.render(verb.for_, step)
        try:
            return draft.now + duration_ms(text)
        except NotADuration as error:
            raise Raised("expression.error", f"wait.for: {error}.") from None
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


def _begin_return(draft: Draft, step: Step, verb: Return) -> None:
    value = draft.render(verb.value, step)
    _started(draft, step)
    draft.emit(e.StepFinished, path=step.path)
    endings.stop_inside(draft, "", "the run returned", around=step)
    endings.complete(draft, value)


def _begin_fail(draft: Draft, step: Step, verb: Fail) -> None:
    message = draft.text(verb.message, step)
    data = None if verb.data is None else draft.render(verb.data, step)
    _started(draft, step)
    draft.pure_steps += 1
    endings.fail(draft, step, draft.error(verb.code, message, step.path, data))


_BEGINNINGS: Final[dict[type, Callable[[Draft, Step, Any], None]]] = {
    Call: _begin_call,
    Say: _begin_say,
    Ask: _begin_ask,
    Approve: _begin_approve,
    Set: _begin_set,
    Switch: _begin_switch,
    Parallel: _begin_parallel,
    Wait: _begin_wait,
    Return: _begin_return,
    Fail: _begin_fail,
}
