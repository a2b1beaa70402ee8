"""What a thread has said so far, as the messages of a snapshot: HAI's and AG-UI's differ in a few words only.

A call hangs on its parent message, else on one of its own with the call's id (DESIGN section 11, Ids). Only calls that
are still open are left without an answer: they are what a client shows again and answers (PROTOCOLS section 5.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeAlias

from hai_flow import values
from hai_flow.engine import events as e
from hai_flow.engine.state import MessageState, PendingState, RunState, ToolCallState
from hai_flow.wire.dialect import Entry, Profile, entries_of, without_none

Json: TypeAlias = Any

CONFIRM: Final = {"approve": "confirmAction", "gate": "confirmAction", "ask": "requestInput"}
"""The frontend tool that a client may advertise, by the kind of question that is handed to it as a call."""


class Words(Protocol):
    """How a dialect tells of closed messages."""

    def message(self, message: MessageState) -> dict[str, Json] | None:
        """The message as a snapshot has it; None if it is not one of the thread's in this dialect."""
        ...

    def holder(self, id: str, at: int) -> dict[str, Json]:
        """The assistant's message that holds a call which hangs on no other."""
        ...


def shown_as_call(profile: Profile, opened: e.PendingOpened) -> bool:
    """Whether the client is handed this question as a call: it advertised the tool for it and may answer. A question
    that does not ask who started the run is never a call."""
    asked = opened.policy is None or opened.policy.get("asks_requester", True)
    return asked and profile.may_answer and CONFIRM.get(opened.kind) in profile.client_tools


def question_args(opened: e.PendingOpened) -> str:
    """The arguments of confirmAction and requestInput (LANGUAGE section 7, Shown to a client)."""
    fields = {
        "title": opened.title,
        "message": opened.message,
        "evidence": None if opened.evidence is None else values.loads(opened.evidence),
        "tool": opened.tool,
        "arguments": None if opened.args is None else values.loads(opened.args),
        "options": list(opened.options) or None,
        "form": opened.schema,
        "deadline": opened.deadline,
        "digest": opened.digest,
    }
    return values.dumps(without_none(fields)).decode()


def result_id(tool_call_id: str) -> str:
    """The id of the message that answers a call."""
    return f"{tool_call_id}:result"


def answer_of(pending: PendingState) -> tuple[str, str | None] | None:
    """What became of a pending, as a tool message's (content, error); None while it is open."""
    match pending.status:
        case "open":
            return None
        case "answered":
            value = pending.value
            return (value if isinstance(value, str) else values.dumps(value).decode()), None
        case "declined" | "expired" | "voided":
            error = pending.reason or pending.status
            return error, error
        case decision:
            return values.dumps({"decision": decision}).decode(), None


class _History:
    """The messages of a snapshot under construction (H9, H11)."""

    def __init__(self, words: Words) -> None:
        self.messages: list[dict[str, Json]] = []
        self._words = words
        self._by_id: dict[str, dict[str, Json]] = {}

    def add_message(self, message: MessageState) -> None:
        shown = self._words.message(message)
        if shown is not None:
            self._append(shown)

    def add_call(
        self,
        id: str,
        name: str,
        args: str,
        at: int,
        parent: str | None,
        answer: tuple[str, str | None] | None,
    ) -> None:
        """A call hangs on its parent message, else on one of its own with the call's id (DESIGN section 11, Ids)."""
        if (parent or id) not in self._by_id:
            self._append(self._words.holder(parent or id, at))
        holder = self._by_id[parent or id]
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": args}}
        holder.setdefault("toolCalls", []).append(call)
        if answer is not None:
            content, error = answer
            result = {"id": result_id(id), "role": "tool", "content": content, "toolCallId": id}
            self._append(result if error is None else {**result, "error": error})

    def _append(self, message: dict[str, Json]) -> None:
        self.messages.append(message)
        self._by_id.setdefault(message["id"], message)


def _before(pending: PendingState, entry: Entry) -> bool:
    """Whether `pending` was opened before `entry` began. Pendings have no `n`, and a posted message's time is alien."""
    opened = pending.opened
    if entry.turn != opened.turn:
        return opened.turn < entry.turn
    return entry.path is not None and opened.at < entry.at


def history(words: Words, profile: Profile, state: RunState, transcript: Iterable[Entry]) -> list[dict[str, Json]]:
    """The closed messages of the thread. Only calls that are still open are left without an answer."""
    shown = _History(words)

    def add_call(call: ToolCallState, answer: tuple[str, str | None] | None) -> None:
        shown.add_call(call.id, call.name, call.args, call.at, call.parent_message_id, answer)

    def add_pending(pending: PendingState) -> None:
        opened = pending.opened
        args = question_args(opened)
        shown.add_call(opened.id, CONFIRM[opened.kind], args, opened.at, None, answer_of(pending))

    for entry in transcript:
        if isinstance(entry, MessageState):
            shown.add_message(entry)
        else:  # its run is over: nobody waits for an answer any more
            add_call(entry, _resolved(entry) or ("voided", "voided"))

    asked = [each for each in state.pendings.values() if shown_as_call(profile, each.opened)]
    asked.sort(key=lambda each: (each.opened.at, each.opened.id), reverse=True)
    for entry in entries_of(state):
        while asked and _before(asked[-1], entry):
            add_pending(asked.pop())
        if isinstance(entry, MessageState):
            shown.add_message(entry)
        else:
            pending = state.pendings.get(entry.id)
            add_call(entry, _resolved(entry) or (answer_of(pending) if pending else None))
    for pending in reversed(asked):
        add_pending(pending)
    return shown.messages


def _resolved(call: ToolCallState) -> tuple[str, str | None] | None:
    return None if call.result is None else (call.result, call.error)
