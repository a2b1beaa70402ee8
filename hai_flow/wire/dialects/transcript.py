"""The thread so far, as the messages of a snapshot. The dialects share this; their messages differ in a few fields.

A call belongs to its parent message; a call without one gets a message of its own, with the call's id
(docs/design/engine.md#ids). Only open calls stand without an answer: the client shows these again and answers them
(docs/design/protocols.md#reloading)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from hai_flow import values
from hai_flow.engine.state.state import MessageState, PendingState, RunState, ToolCallState
from hai_flow.engine.steps.tool_calls import ABORTED
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Entry, Profile
from hai_flow.wire.dialects.questions import Call, answer_of, confirmation


class Words(Protocol):
    """The way in which a dialect writes closed messages."""

    def message(self, message: MessageState) -> dict[str, Json] | None:
        """The message as a snapshot has it; None if this dialect does not show it."""
        ...

    def holder(self, id: str, at: int) -> dict[str, Json]:
        """The assistant's message for a call that has no parent message."""
        ...


def derive_result_id(tool_call_id: str) -> str:
    return f"{tool_call_id}:result"


class _History:
    """The messages of a snapshot under construction (docs/design/protocols.md#hai-snapshots)."""

    def __init__(self, words: Words) -> None:
        self.messages: list[dict[str, Json]] = []
        self._words = words
        self._by_id: dict[str, dict[str, Json]] = {}

    def add_message(self, message: MessageState) -> None:
        entry = self._words.message(message)
        if entry is not None:
            self._append(entry)

    def add_call(
        self, id: str, name: str, args: str, at: int, parent: str | None, answer: tuple[str, str | None] | None
    ) -> None:
        """A call belongs to its parent message, if the snapshot shows that as the assistant's. Else it gets a message
        of its own, with the call's id (docs/design/engine.md#ids)."""
        holder = self._by_id.get(parent or "", {})
        if holder.get("role") != "assistant":
            if id not in self._by_id:
                self._append(self._words.holder(id, at))
            holder = self._by_id[id]
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": args}}
        holder.setdefault("toolCalls", []).append(call)
        if answer is not None:
            content, error = answer
            result = {"id": derive_result_id(id), "role": "tool", "content": content, "toolCallId": id}
            self._append(result if error is None else {**result, "error": error})

    def _append(self, message: dict[str, Json]) -> None:
        self.messages.append(message)
        self._by_id.setdefault(message["id"], message)


def list_entries(state: RunState) -> list[Entry]:
    """The closed messages and complete calls of one run, in the order in which they began."""
    entries: list[Entry] = [message for message in state.messages.values() if not message.open]
    entries += [call for call in state.tool_calls.values() if not call.open]
    return sorted(entries, key=lambda entry: entry.n)


def drop_superseded(entries: Iterable[Entry]) -> list[Entry]:
    """The entries without the messages of attempts that broke off, where a later attempt of the same step has answered.
    The entries of several runs follow one another."""
    remaining: list[Entry] = []
    paths: set[str] = set()
    after = -1
    for entry in reversed(list(entries)):
        if entry.n >= after >= 0:  # an earlier run
            paths = set()
        after = entry.n
        if isinstance(entry, MessageState):
            if entry.aborted and entry.path in paths:
                continue
            is_answer = entry.path is not None and not entry.aborted
        else:
            is_answer = entry.error != ABORTED
        if is_answer and entry.path is not None:
            paths.add(entry.path)
        remaining.append(entry)
    remaining.reverse()
    return remaining


def _before(pending: PendingState, entry: Entry) -> bool:
    """Whether `pending` was opened before `entry` began. Times decide within a turn, because pendings have no `n`; but
    a posted message's time comes from the client and decides nothing."""
    opened = pending.opened
    if entry.turn != opened.turn:
        return opened.turn < entry.turn
    return entry.path is not None and opened.at < entry.at


def history(
    words: Words,
    profile: Profile,
    state: RunState,
    transcript: Iterable[Entry],
    call_of: Callable[[Profile, PendingState], Call | None] = confirmation,
    without: Iterable[str] = (),
) -> list[dict[str, Json]]:
    """The closed messages of the thread. Only open calls stand without an answer. `call_of` gives the call that shows a
    question; a call with the same id in the log is left out, and so are the calls `without`."""
    result = _History(words)

    def add_call(call: ToolCallState, answer: tuple[str, str | None] | None) -> None:
        args = "{}" if call.error == ABORTED and not _is_json(call.args) else call.args
        result.add_call(call.id, call.name, args, call.at, call.parent_message_id, answer)

    def add_question(pending: PendingState, call: Call) -> None:
        result.add_call(call.id, call.name, call.args, pending.opened.at, None, call.answer)

    for entry in drop_superseded(transcript):
        if isinstance(entry, MessageState):
            result.add_message(entry)
        else:  # its run is over: an answer would have no effect any more
            add_call(entry, _call_result(entry) or ("voided", "voided"))

    open_questions = [(each, call) for each in state.questions.values() if (call := call_of(profile, each)) is not None]
    open_questions.sort(key=lambda each: (each[0].opened.at, each[0].opened.id), reverse=True)
    without_ids = {call.id for _, call in open_questions}.union(without)
    for entry in drop_superseded(list_entries(state)):
        while open_questions and _before(open_questions[-1][0], entry):
            add_question(*open_questions.pop())
        if isinstance(entry, MessageState):
            result.add_message(entry)
        elif entry.id not in without_ids:
            pending = state.questions.get(entry.id)
            add_call(entry, _call_result(entry) or (answer_of(pending) if pending else None))
    for question in reversed(open_questions):
        add_question(*question)
    return result.messages


def _is_json(text: str) -> bool:
    """Whether the text is JSON. The arguments of a call in a history must be, because clients parse them; those of a
    call that broke off while a model wrote it need not be."""
    try:
        values.loads(text)
    except values.NotJson:
        return False
    return True


def _call_result(call: ToolCallState) -> tuple[str, str | None] | None:
    return None if call.result is None else (call.result, call.error)
