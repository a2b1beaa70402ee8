"""Calls and messages as frontends see them: a call is shown, grows, and gets its result. Decides nothing."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.paths import list_of
from hai_flow.definition.plan import Call, FrontendTool, Growing, Step
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft
from hai_flow.engine.growing import GROWN_BEHIND, grown_before
from hai_flow.engine.ids import short_pending_id, shown_call_id, tool_call_id
from hai_flow.engine.state import ToolCallState
from hai_flow.values import Json

SHOWN_OUTPUT: Final = "hai.output"
"""The custom event that shows the output of an exposed effect which is no call of a tool (docs/language.md#steps)."""

SHOWN: Final = "shown"
"""The result of a call that was only shown: a history has to say that no answer is awaited."""

ABORTED: Final = "aborted"
"""The same of one whose arguments broke off."""


def show_call(draft: Draft, step: Step, id: str, name: str, args: str, executor: str) -> None:
    """Show the frontend a call that it answers (executor frontend), or that a server tool does (server)."""
    _begin(draft, step, id, name, executor)
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=args)
    draft.emit(e.ToolCallEnded, tool_call_id=id)


def _begin(draft: Draft, step: Step, id: str, name: str, executor: str) -> None:
    around = list_of(step.path)
    # an agent's calls hang on the message that its model has said before them
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


def begin_growing_call(draft: Draft, step: Step, growing: Growing) -> None:
    """Show the frontend a call whose argument grows from now on, by the yields of the step's attempt."""
    tool = growing.tool
    id = shown_call_id(draft.state.run_id, step.path, draft.state.steps[step.path].attempt)
    foretell(draft, step, tool)
    _begin(draft, step, id, tool.name, "frontend")
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=grown_before(growing))


def foretell(draft: Draft, step: Step, tool: FrontendTool) -> None:
    """Tell the frontend which state it may take from the arguments of the call that follows."""
    if tool.predict:
        told = [{"state_key": name, "tool": tool.name, "tool_argument": argument} for name, argument in tool.predict]
        draft.emit(e.CustomEmitted, path=step.path, name=e.PREDICTED, value=told)


def resolve_call(draft: Draft, step: Step, output: Json, error: e.Error | None) -> None:
    """Show the result of an exposed call to the frontend that saw it begin, or the output of another exposed effect."""
    known = draft.state.steps[step.path]
    if not step.expose:
        return
    if not isinstance(step.verb, Call):
        if error is None:
            arguments = None if known.args is None else values.loads(known.args)
            shown = {"path": step.path, "arguments": arguments, "output": output}
            draft.emit(e.CustomEmitted, path=step.path, name=SHOWN_OUTPUT, value=shown)
        return
    call = _last_call_shown(draft, step.path, known.asked)
    if call is None:
        return
    id = call.id
    if error is not None:
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=error.message, error=error.code)
    else:
        content = output if isinstance(output, str) else values.dumps(output).decode()
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=content)


def _last_call_shown(draft: Draft, path: str, asked: int) -> ToolCallState | None:
    """The last call that the step has shown, whichever release did. Each question that it has asked has a number, too:
    the one of a call in doubt comes behind the call."""
    run_id, calls = draft.state.run_id, draft.state.tool_calls
    for n in reversed(range(asked)):
        call = calls.get(tool_call_id(run_id, path, n)) or calls.get(
            tool_call_id(run_id, path, n, behind=short_pending_id(run_id, path, n))
        )
        if call is not None:
            return call
    return None


def close_message(draft: Draft, path: str, *, aborted: bool = False) -> None:
    """End the messages, and the call, that the step's attempt was streaming."""
    if draft.state.open_messages:
        for id, owner in sorted(draft.state.open_messages.items()):  # a map of the state has an order of chance
            if owner == path:
                draft.emit(e.MessageEnded, message_id=id, aborted=aborted)
    verb = draft.step(path).verb
    if isinstance(verb, Call) and verb.into is not None:
        _close_growing_call(draft, path, aborted)


def _close_growing_call(draft: Draft, path: str, aborted: bool) -> None:
    known = draft.state.steps.get(path)
    id = shown_call_id(draft.state.run_id, path, known.attempt if known is not None else 0)
    call = draft.state.tool_calls.get(id)
    if call is None or not call.open:
        return
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=GROWN_BEHIND)
    draft.emit(e.ToolCallEnded, tool_call_id=id)
    result = ABORTED if aborted else SHOWN
    draft.emit(e.ToolCallResolved, tool_call_id=id, content=result, error=ABORTED if aborted else None)
