"""Folds of turns, messages and calls: all that a thread shows."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hai_flow.definition import paths
from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import following, with_step
from hai_flow.engine.evolve.run import derive_status
from hai_flow.engine.state.state import Map, MessageState, RunState, ToolCallState, TurnState


def turn_started(state: RunState, event: e.TurnStarted) -> RunState:
    turn = TurnState(
        event.turn,
        state.seq + 1,
        True,
        event.wire_run_id,
        event.dialect,
        event.profile,
        event.client_tools,
        event.body_sha,
        event.at,
    )
    slot = None if state.status == "queued" else state.slot  # the run still waits for `slot`
    return following(
        state, event, **derive_status(state, event), turn=turn, last_message=Map(), slot=slot, turn_spent=Map()
    )


def turn_ended(state: RunState, event: e.TurnEnded) -> RunState:
    changes = derive_status(state, event) if event.reason == "waiting" else {}
    assert state.turn is not None
    return following(state, event, turn=replace(state.turn, open=False), predicted=Map(), **changes)


def messages_changed(state: RunState, event: e.MessagesChanged) -> RunState:
    messages, n = state.messages, state.entries
    for message in event.messages:
        messages = messages.set(
            message.id,
            MessageState(
                n,
                message.id,
                message.role,
                message.timestamp or event.at,
                event.turn,
                content=message.content,
                name=message.name,
                extra=message.extra,
            ),
        )
        n += 1
    return following(state, event, messages=messages, entries=n)


def build_message(state: RunState, event: e.MessageStarted | e.ChildSaid, **more: Any) -> MessageState:
    """The message that begins, or comes whole, with the event."""
    return MessageState(
        state.entries,
        event.message_id,
        event.role,
        event.at,
        event.turn,
        event.kind,
        event.path,
        block_id=event.block_id,
        layout=event.layout,
        style=event.style,
        **more,
    )


def message_started(state: RunState, event: e.MessageStarted) -> RunState:
    message = build_message(state, event, open=True)
    return following(
        state,
        event,
        messages=state.messages.set(event.message_id, message),
        open_messages=state.open_messages.set(event.message_id, event.path),
        entries=state.entries + 1,
    )


def message_chunk(state: RunState, event: e.MessageChunk) -> RunState:
    message = state.messages[event.message_id]
    assert event.n == message.chunks, f"chunk {event.n} of {message.id} after {message.chunks} chunks"
    grown = replace(message, content=message.content + event.content, chunks=event.n + 1)
    return following(state, event, messages=state.messages.set(message.id, grown))


def message_ended(state: RunState, event: e.MessageEnded) -> RunState:
    message = state.messages[event.message_id]
    closed = replace(message, open=False, aborted=event.aborted)
    return following(
        state,
        event,
        messages=state.messages.set(message.id, closed),
        open_messages=state.open_messages.delete(message.id),
        last_message=state.last_message.set(paths.list_of(message.path or ""), message.id),
    )


def tool_call_started(state: RunState, event: e.ToolCallStarted) -> RunState:
    call = ToolCallState(
        state.entries,
        event.tool_call_id,
        event.name,
        event.path,
        event.executor,
        event.message_id,
        event.turn,
        event.at,
        event.parent_message_id,
    )
    steps, open_calls = state.steps, state.open_calls
    if event.writer is not None:
        open_calls = open_calls.set(call.id, event.writer)
    elif event.executor == "server":  # a frontend's call is counted by its pending
        steps = with_step(state, event.path, asked=steps[event.path].asked + 1)
    return following(
        state,
        event,
        steps=steps,
        open_calls=open_calls,
        tool_calls=state.tool_calls.set(call.id, call),
        entries=state.entries + 1,
    )


def _call(state: RunState, id: str, **changes: Any) -> Map[str, ToolCallState]:
    return state.tool_calls.set(id, replace(state.tool_calls[id], **changes))


def tool_call_args_chunk(state: RunState, event: e.ToolCallArgsChunk) -> RunState:
    args = state.tool_calls[event.tool_call_id].args + event.content
    return following(state, event, tool_calls=_call(state, event.tool_call_id, args=args))


def tool_call_ended(state: RunState, event: e.ToolCallEnded) -> RunState:
    id, changes = event.tool_call_id, {}
    if id in state.open_calls:
        changes["open_calls"] = state.open_calls.delete(id)
    return following(state, event, tool_calls=_call(state, id, open=False), **changes)


def tool_call_resolved(state: RunState, event: e.ToolCallResolved) -> RunState:
    calls = _call(state, event.tool_call_id, result=event.content, error=event.error)
    return following(state, event, tool_calls=calls)
