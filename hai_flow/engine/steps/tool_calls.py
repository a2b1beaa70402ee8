"""Calls and messages as frontends see them: a call is shown, grows, and gets its result. Decides nothing.

A call of an agent is shown while its model writes it (`ToolCallStarted.writer`), before anybody knows whether it will
be performed. Where its step begins, it goes on with that call (`model_call`); where it never will, the call ends as
`ABORTED`. Each attempt of an answer writes calls of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow import values
from hai_flow.definition.paths import list_of
from hai_flow.definition.plan import Call, FrontendTool, Growing, Step
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.ids import (
    derive_display_call_id,
    derive_short_pending_id,
    find_id_as_written,
    message_id,
    tool_call_id,
)
from hai_flow.engine.state.state import RunState, ToolCallState
from hai_flow.values import Json

SHOWN_OUTPUT: Final = "hai.output"
"""The custom event that shows the output of an exposed effect which is no call of a tool (docs/language.md#steps)."""

SHOWN: Final = "shown"
"""The result of a call that was only shown: a history has to say that no answer is awaited."""

ABORTED: Final = "aborted"
"""The result, and the error, of a call whose arguments broke off, or that was written and will not be performed."""


def show_call(draft: Draft, step: Step, id: str, name: str, args: str, executor: str) -> None:
    """Show the frontend a call that it answers (executor frontend), or that a server tool does (server)."""
    _begin(draft, step, id, name, executor)
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=args)
    draft.emit(e.ToolCallEnded, tool_call_id=id)


def _begin(draft: Draft, step: Step, id: str, name: str, executor: str) -> None:
    around = list_of(step.path)
    # an agent's calls hang on the message that its model has written before them
    parent = draft.state.last_message.get(list_of(around) if step.of_agent else around)
    draft.emit(
        e.ToolCallStarted,
        tool_call_id=id,
        name=name,
        path=step.path,
        executor=executor,
        message_id=parent or id,
        parent_message_id=parent,
    )


def display_name(step: Step) -> str:
    verb = step.verb_as(Call)
    return f"{verb.tool.name}.{verb.function}" if verb.function else verb.tool.name


def model_call(state: RunState, path: str) -> ToolCallState | None:
    """The call of the step as its model has shown it; None if the step has yet to show its call by itself."""
    id = find_id_as_written(state, path)
    call = None if id is None else state.tool_calls.get(id)
    return None if call is None or call.error == ABORTED else call


def begin_growing_call(draft: Draft, step: Step, growing: Growing) -> None:
    """Show the frontend a call whose argument grows from now on, by the yields of the step's attempt."""
    tool = growing.tool
    id = derive_display_call_id(draft.state.run_id, step.path, draft.state.steps[step.path].attempt)
    foretell(draft, step, tool)
    _begin(draft, step, id, tool.name, "frontend")
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=encode_grown_start(growing))


def foretell(draft: Draft, step: Step, tool: FrontendTool) -> None:
    """Tell the frontend which state it may take from the arguments of the call that follows."""
    if (prediction := build_prediction(tool)) is not None:
        draft.emit(e.CustomEmitted, path=step.path, name=e.PREDICTED, value=prediction)


def build_prediction(tool: FrontendTool) -> Json:
    """Which state the frontend may take from the arguments of a call of the tool; None: none."""
    predictions = [{"state_key": name, "tool": tool.name, "tool_argument": argument} for name, argument in tool.predict]
    return predictions or None


def show_part(draft: Draft, step: Step, attempt: int, part: Json) -> None:
    """Show a file that a model has made: a structured output of the content part's type."""
    id = message_id(draft.state.run_id, step.path, attempt, draft.state.entries)
    content = {"type": part["type"], "data": {name: each for name, each in part.items() if name != "type"}}
    draft.emit(e.MessageStarted, message_id=id, path=step.path, kind="data")
    draft.emit(e.MessageChunk, message_id=id, n=0, content=draft.json_text(content))
    draft.emit(e.MessageEnded, message_id=id)


def resolve_call(draft: Draft, step: Step, output: Json, error: e.Error | None) -> None:
    """Show the result of an exposed call to the frontend that saw it begin, or the output of another exposed effect."""
    if not step.expose:
        return
    step_state = draft.state.steps[step.path]
    if not isinstance(step.verb, Call):
        if error is None:
            arguments = None if step_state.args is None else values.loads(step_state.args)
            report = {"path": step.path, "arguments": arguments, "output": output}
            draft.emit(e.CustomEmitted, path=step.path, name=SHOWN_OUTPUT, value=report)
        return
    call = _find_last_call_shown(draft, step.path, step_state.asked)
    if call is None:
        return
    id = call.id
    if error is not None:
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=error.message, error=error.code)
    else:
        content = values.to_text(output)
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=content)


def _find_last_call_shown(draft: Draft, path: str, asked: int) -> ToolCallState | None:
    """The last call that the step has shown, whichever release did. Each question that it has asked has a number, too:
    the one of a call in doubt comes behind the call."""
    run_id, calls = draft.state.run_id, draft.state.tool_calls
    for n in reversed(range(asked)):
        call = calls.get(tool_call_id(run_id, path, n)) or calls.get(
            tool_call_id(run_id, path, n, behind=derive_short_pending_id(run_id, path, n))
        )
        if call is not None:
            return call
    return model_call(draft.state, path)


def finish_written(draft: Draft, path: str, error: e.Error | None) -> None:
    """The step that makes a call of an agent is over: the call that its model has shown has a result, too, if no
    person was asked for it."""
    call = model_call(draft.state, path)
    if call is None or call.result is not None or call.id in draft.state.pendings:
        return
    if error is None:
        draft.emit(e.ToolCallResolved, tool_call_id=call.id, content=SHOWN)
    else:
        draft.emit(e.ToolCallResolved, tool_call_id=call.id, content=error.message, error=error.code)


def end_written(draft: Draft, answer: str, asked: Mapping[str, tuple[str, str | None]] | None) -> None:
    """The answer is over, and with it all calls that it was writing. `asked`: the calls of the answer by their ids: the
    arguments, and why the call will not be made, or None. Without `asked` no call is made."""
    if not draft.state.open_calls:
        return
    calls = [draft.state.tool_calls[id] for id, by in draft.state.open_calls.items() if by == answer]
    for call in sorted(calls, key=lambda each: each.n):
        args, refusal = ("", ABORTED) if asked is None else asked.get(call.id, ("", ABORTED))
        if args.startswith(call.args) and args != call.args:
            draft.emit(e.ToolCallArgsChunk, tool_call_id=call.id, content=args[len(call.args) :])
        draft.emit(e.ToolCallEnded, tool_call_id=call.id)
        if refusal is not None:
            draft.emit(e.ToolCallResolved, tool_call_id=call.id, content=refusal, error=ABORTED)


def close_message(draft: Draft, path: str, *, aborted: bool = False) -> None:
    """End the messages, and the calls, that the step's attempt was streaming. Those that an answer has written end with
    it only if it is no answer: `end_written` ends them behind one."""
    if draft.state.open_messages:
        for id, owner in sorted(draft.state.open_messages.items()):  # a map of the state has an order of chance
            if owner == path:
                draft.emit(e.MessageEnded, message_id=id, aborted=aborted)
    if aborted:
        end_written(draft, path, None)
    verb = draft.step(path).verb
    if isinstance(verb, Call) and verb.into is not None:
        _close_growing_call(draft, path, aborted)


def _close_growing_call(draft: Draft, path: str, aborted: bool) -> None:
    step_state = draft.state.steps.get(path)
    id = derive_display_call_id(draft.state.run_id, path, step_state.attempt if step_state is not None else 0)
    call = draft.state.tool_calls.get(id)
    if call is None or not call.open:
        return
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=GROWN_BEHIND)
    draft.emit(e.ToolCallEnded, tool_call_id=id)
    result = ABORTED if aborted else SHOWN
    draft.emit(e.ToolCallResolved, tool_call_id=id, content=result, error=ABORTED if aborted else None)


GROWN_BEHIND: Final = '"}'


def encode_grown_start(growing: Growing) -> str:
    """The arguments up to where the text begins."""
    return values.dumps({growing.argument: ""}).decode().removesuffix(GROWN_BEHIND)


def encode_grown_piece(text: str) -> str:
    """A piece of the text, as it stands between the two."""
    return values.dumps(text).decode()[1:-1]
