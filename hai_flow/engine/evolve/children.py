"""Folds of child runs: the questions, words and steps of the runs below."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from hai_flow import values
from hai_flow.definition.paths import is_inside
from hai_flow.engine import events as e
from hai_flow.engine.evolve.common import following, remove_entry, without
from hai_flow.engine.evolve.thread import build_message
from hai_flow.engine.state.instigators import with_senders
from hai_flow.engine.state.state import Expense, LastChild, Map, PendingState, RelayedState, RunState, ToolCallState


def collaboration_started(state: RunState, event: e.CollaborationStarted) -> RunState:
    """A child run watches its timeout itself."""
    if event.run_id is None:
        return following(state, event)
    granted, last = state.granted, state.last_children.get(event.path)
    if event.allowance is not None:
        granted = granted.set(event.run_id, event.allowance)
    if last is None or last.run_id != event.run_id:
        step = state.steps[event.path]
        last = LastChild(event.run_id, event.to, hash_args(step.args), step.rounds)
    return following(
        state,
        event,
        granted=granted,
        last_children=state.last_children.set(event.path, last),
        children=state.children.set(event.path, event.run_id),
        idle=without(state.idle, event.path),
        timeouts=remove_entry(state.timeouts, event.path),
    )


def hash_args(args: str | None) -> str:
    """A digest of a step's arguments (JSON text), by which a Retry knows whether they are the same."""
    return sha256((args or "").encode()).hexdigest()[:32]


def collaboration_ended(state: RunState, event: e.CollaborationEnded) -> RunState:
    if event.run_id is None:
        return following(state, event)
    settled: dict[str, Any] = {}
    if event.senders:
        settled["senders"] = with_senders(state.senders, event.senders)
    if event.run_id in state.granted:
        settled["granted"] = state.granted.delete(event.run_id)
    if event.run_id in state.expenses:
        settled["expenses"] = state.expenses.delete(event.run_id)
    if event.tool_calls:
        settled["begun_calls"] = state.begun_calls + event.tool_calls
        last = state.last_children.get(event.path)
        if last is not None and last.run_id == event.run_id:
            counted = replace(last, calls=last.calls + event.tool_calls)
            settled["last_children"] = state.last_children.set(event.path, counted)
    if state.children.get(event.path) != event.run_id:  # its step had given it up
        return following(state, event, **settled)
    return following(
        state,
        event,
        **settled,
        children=state.children.delete(event.path),
        idle=without(state.idle, event.path),
        below=remove_below(state, event.path),
        **end_messages_below(state, event.path),
    )


def child_moved(state: RunState, event: e.ChildMoved) -> RunState:
    idle, expenses = without(state.idle, event.path), state.expenses
    senders = with_senders(state.senders, event.senders)
    if event.used or event.tool_calls:
        expense = Expense(event.path, state.attempts[event.path], event.used, event.tool_calls)
        expenses = expenses.set(state.children[event.path], expense)
    if event.working:
        return following(state, event, idle=idle, expenses=expenses, senders=senders)
    silenced = end_messages_below(state, event.path)
    return following(state, event, idle=(*idle, event.path), expenses=expenses, senders=senders, **silenced)


def child_asked(state: RunState, event: e.ChildAsked) -> RunState:
    """The question, and its votes, get turns and times of this run, because those of the child run mean nothing in this
    log."""
    opened = event.opened
    question = state.relayed.get(opened.id)
    before = None if question is None else question.pending
    first = opened if before is None else before.opened
    votes_before = () if before is None else before.votes
    decided = event.status != "open"
    pending = PendingState(
        replace(opened, at=event.at if before is None else first.at, turn=event.turn if before is None else first.turn),
        status=event.status,
        by=event.by,
        at=event.at if decided else None,
        value=event.value,
        reason=event.reason,
        edits=event.edits,
        votes=(*votes_before, *(replace(vote, turn=event.turn) for vote in event.votes[len(votes_before) :])),
    )
    changes: dict[str, Any] = {}
    if opened.kind == "tool":
        changes = _relay_call(state, pending)
    relayed = state.relayed.set(opened.id, RelayedState(event.path, event.run_id, pending))
    return following(state, event, relayed=relayed, **changes)


def _relay_call(state: RunState, pending: PendingState) -> dict[str, Any]:
    """The changes by which a frontend tool's call of a run below stands here."""
    opened = pending.opened
    call = state.tool_calls.get(opened.id)
    entries = state.entries
    if call is None:
        call = ToolCallState(
            entries,
            opened.id,
            opened.tool or "",
            opened.path,
            "frontend",
            opened.id,
            opened.turn,
            opened.at,
            args=opened.args or "{}",
            open=False,
        )
        entries += 1
    if pending.status == "answered":
        text = pending.value if isinstance(pending.value, str) else values.dumps(pending.value).decode()
        call = replace(call, result=text)
    elif pending.status == "declined":
        call = replace(call, result=pending.reason or "", error="tool.declined")
    return {"tool_calls": state.tool_calls.set(opened.id, call), "entries": entries}


def child_said(state: RunState, event: e.ChildSaid) -> RunState:
    before = state.messages.get(event.message_id)
    if before is None:
        message = build_message(state, event, content=event.content, aborted=event.aborted, chunks=1)
        return following(state, event, messages=state.messages.set(message.id, message), entries=state.entries + 1)
    grown = replace(before, content=event.content, aborted=event.aborted, chunks=before.chunks + 1, open=False)
    opened = state.open_messages.delete(before.id) if before.open else state.open_messages
    return following(state, event, messages=state.messages.set(before.id, grown), open_messages=opened)


def child_stepped(state: RunState, event: e.ChildStepped) -> RunState:
    below = state.below
    if event.status == "running":
        return following(state, event, below=below.set(event.path, event.turn))
    below = below.delete(event.path) if event.path in below else below
    return following(state, event, below=below, **end_messages_below(state, event.path))


def child_shared(state: RunState, event: e.ChildShared) -> RunState:
    return following(state, event, shared=state.shared.update(event.values))


def remove_below(state: RunState, path: str) -> Map[str, int]:
    """The open steps of the runs below, but for those of the child of the step `path`."""
    if not state.below:
        return state.below
    return Map({each: turn for each, turn in state.below.items() if not is_inside(each, path)})


def end_messages_below(state: RunState, path: str) -> dict[str, Any]:
    """The changes by which messages of the runs below the step `path` end whose rest will not come any more."""
    unfinished = [id for id, owner in state.open_messages.items() if is_inside(owner, path)]
    if not unfinished:
        return {}
    messages, opened = state.messages, state.open_messages
    for id in unfinished:
        messages, opened = messages.set(id, replace(messages[id], open=False, aborted=True)), opened.delete(id)
    return {"messages": messages, "open_messages": opened}
