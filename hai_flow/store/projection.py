"""What a commit writes beside the log: rows that lists and look-ups need, each derived from the commit's events.

Pure. The log stays the truth; a projection can be made again from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.state import MessageState, PendingState, RunState, ToolCallState
from hai_flow.store.runs import MessageRow, PendingRow, TurnRow, VoteRow

ThreadEntry: TypeAlias = MessageState | ToolCallState
CALL_ROLE = "tool"

_encode = msgspec.json.Encoder().encode
_PROJECTED = frozenset(
    {
        e.PendingOpened,
        e.PendingDecided,
        e.PendingVoided,
        e.VoteCast,
        e.TurnStarted,
        e.TurnEnded,
        e.MessageEnded,
        e.MessagesChanged,
        e.ToolCallEnded,
        e.ToolCallResolved,
    }
)


def rows_of(events: Sequence[e.Event], state: RunState) -> dict[str, Any]:
    """The children of an entry (`pendings votes turns messages`) for `events`, which made `state`."""
    if _PROJECTED.isdisjoint(map(type, events)):
        return {}
    pendings: dict[str, PendingRow] = {}
    votes: list[VoteRow] = []
    turns: dict[int, TurnRow] = {}
    messages: dict[int, MessageRow] = {}
    for position, event in enumerate(events, 1):
        match event:
            case e.PendingOpened() | e.PendingDecided() | e.PendingVoided():
                pendings[event.id] = _pending_row(state.pendings[event.id])
            case e.VoteCast():
                votes.append(VoteRow(event.id, event.by, _encode(event)))
            case e.TurnStarted():
                sha = None if event.body_sha is None else bytes.fromhex(event.body_sha)
                turns[event.turn] = TurnRow(event.turn, position, None, event.wire_run_id, sha)
            case e.TurnEnded():
                opened = turns.get(event.turn, TurnRow(event.turn))
                turns[event.turn] = msgspec.structs.replace(opened, last=position)
            case e.MessageEnded():
                entry = state.messages[event.message_id]
                messages[entry.n] = MessageRow(entry.n, entry.id, entry.role, _encode(entry), position)
            case e.MessagesChanged():
                for posted in event.messages:
                    entry = state.messages[posted.id]
                    messages[entry.n] = MessageRow(entry.n, entry.id, entry.role, _encode(entry), position)
            case e.ToolCallEnded() | e.ToolCallResolved():
                call = state.tool_calls[event.tool_call_id]
                messages[call.n] = MessageRow(call.n, call.id, CALL_ROLE, _encode(call), position)
    return {
        "pendings": list(pendings.values()),
        "votes": votes,
        "turns": list(turns.values()),
        "messages": list(messages.values()),
    }


def _pending_row(pending: PendingState) -> PendingRow:
    opened = pending.opened
    deadline = None if opened.deadline is None else values.instant(opened.deadline)
    return PendingRow(opened.id, pending.status, opened.path, bytes.fromhex(opened.digest), deadline, _encode(opened))


def thread_entry(role: str, body: bytes) -> ThreadEntry:
    """The transcript entry that a row of `messages` holds."""
    return msgspec.json.decode(body, type=ToolCallState if role == CALL_ROLE else MessageState)
