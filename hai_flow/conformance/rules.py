"""What every stream must obey, dialect by dialect: pure, on its events (PROTOCOLS sections 0, 1.1, 1.5, 1.6, 2.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

from hai_flow.conformance.streams import Event, Fault

Json: TypeAlias = Any


class Dialect(StrEnum):
    """Which rules hold. AGUI_0: for a peer that states no `protocolVersion`, which every 0.x client is."""

    HAI = "hai"
    AGUI = "agui"
    AGUI_0 = "agui-0"


class _Brackets:
    """What is opened and closed: START -> (CONTENT, END, the field that names it)."""

    def __init__(self, table: Mapping[str, tuple[str, str, str]]) -> None:
        self.starts = {start: (start, field) for start, (_, _, field) in table.items()}
        self.contents = {content: (start, field) for start, (content, _, field) in table.items() if content}
        self.ends = {end: (start, field) for start, (_, end, field) in table.items()}


_CALL: Final = ("TOOL_CALL_ARGS", "TOOL_CALL_END", "toolCallId")
_STEP: Final = ("", "STEP_FINISHED", "stepName")
_HAI_BRACKETS: Final = _Brackets(
    {
        "STEP_STARTED": _STEP,
        "TOOL_CALL_START": _CALL,
        "BUSINESS_DATA_START": ("BUSINESS_DATA_CONTENT", "BUSINESS_DATA_END", "messageId"),
        "AGENT_COLLABORATIVE_MESSAGE_START": (
            "AGENT_COLLABORATIVE_MESSAGE_CONTENT",
            "AGENT_COLLABORATIVE_MESSAGE_END",
            "messageId",
        ),
    }
)
_AGUI_BRACKETS: Final = _Brackets(
    {
        "STEP_STARTED": _STEP,
        "TOOL_CALL_START": _CALL,
        "TEXT_MESSAGE_START": ("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "messageId"),
        "REASONING_START": ("", "REASONING_END", "messageId"),
        "REASONING_MESSAGE_START": ("REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "messageId"),
        "SUBAGENT_STARTED": ("", "SUBAGENT_FINISHED", "subagentRunId"),
    }
)

_TEXT, _LIST, _OBJECT, _ANY = str, list, dict, object
_COMMON: Final[dict[str, dict[str, type]]] = {
    "RUN_ERROR": {"message": _TEXT},
    "STEP_STARTED": {"stepName": _TEXT},
    "STEP_FINISHED": {"stepName": _TEXT},
    "TOOL_CALL_START": {"toolCallId": _TEXT, "toolCallName": _TEXT},
    "TOOL_CALL_ARGS": {"toolCallId": _TEXT, "delta": _TEXT},
    "TOOL_CALL_END": {"toolCallId": _TEXT},
    "TOOL_CALL_RESULT": {"messageId": _TEXT, "toolCallId": _TEXT, "content": _ANY},
    "STATE_SNAPSHOT": {"snapshot": _ANY},
    "STATE_DELTA": {"delta": _LIST},
    "MESSAGES_SNAPSHOT": {"messages": _LIST},
    "RAW": {"event": _ANY},
    "CUSTOM": {"name": _TEXT, "value": _ANY},
}
_HAI_FIELDS: Final[dict[str, dict[str, type]]] = _COMMON | {
    "RUN_STARTED": {"messageId": _TEXT, "role": _TEXT},
    "RUN_FINISHED": {"messageId": _TEXT, "role": _TEXT},
    "BUSINESS_DATA_START": {"messageId": _TEXT, "role": _TEXT},
    "BUSINESS_DATA_CONTENT": {"messageId": _TEXT, "delta": _TEXT},
    "BUSINESS_DATA_END": {"messageId": _TEXT},
    "AGENT_COLLABORATIVE_MESSAGE_START": {"from": _TEXT, "to": _TEXT, "messageId": _TEXT},
    "AGENT_COLLABORATIVE_MESSAGE_CONTENT": {"messageId": _TEXT, "delta": _TEXT},
    "AGENT_COLLABORATIVE_MESSAGE_END": {"messageId": _TEXT},
    "MESSAGE_SNAPSHOT": {"messages": _LIST},
}
_SUBAGENT: Final = {"subagentRunId": _TEXT}
_MESSAGE: Final = {"messageId": _TEXT}
_AGUI_FIELDS: Final[dict[str, dict[str, type]]] = _COMMON | {
    "RUN_STARTED": {"threadId": _TEXT, "runId": _TEXT},
    "RUN_FINISHED": {"threadId": _TEXT, "runId": _TEXT},
    "TEXT_MESSAGE_START": _MESSAGE,
    "TEXT_MESSAGE_CONTENT": _MESSAGE | {"delta": _TEXT},
    "TEXT_MESSAGE_END": _MESSAGE,
    "TEXT_MESSAGE_CHUNK": {},
    "TOOL_CALL_CHUNK": {},
    "ACTIVITY_SNAPSHOT": _MESSAGE | {"activityType": _TEXT, "content": _OBJECT},
    "ACTIVITY_DELTA": _MESSAGE | {"activityType": _TEXT, "patch": _LIST},
    "REASONING_START": _MESSAGE,
    "REASONING_END": _MESSAGE,
    "REASONING_MESSAGE_START": _MESSAGE | {"role": _TEXT},
    "REASONING_MESSAGE_CONTENT": _MESSAGE | {"delta": _TEXT},
    "REASONING_MESSAGE_END": _MESSAGE,
    "REASONING_MESSAGE_CHUNK": {},
    "REASONING_ENCRYPTED_VALUE": {"subtype": _TEXT, "entityId": _TEXT, "encryptedValue": _TEXT},
    "SUBAGENT_STARTED": _SUBAGENT | {"name": _TEXT},
    "SUBAGENT_FINISHED": _SUBAGENT,
    "SUBAGENT_ERROR": _SUBAGENT | {"message": _TEXT},
}
_NOT_IN_0: Final = ("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR")
TERMINAL: Final = ("RUN_FINISHED", "RUN_ERROR")
SNAPSHOTS: Final = ("MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT")
# Their values are somebody's JSON, in which null is a value like any other.
_FREE: Final = ("snapshot", "value", "result", "event", "rawEvent", "metadata", "extra", "input")
_SAFE_INTEGER: Final = 2**53 - 1


def judge(events: Sequence[Event], dialect: Dialect, *, whole: bool = True) -> list[Fault]:
    """The faults of one response. `whole`: it was read to its end."""
    judging = _Judge(dialect)
    for event in events:
        judging.event(event)
    if whole:
        judging.end(events)
    return judging.faults


class _Judge:
    def __init__(self, dialect: Dialect) -> None:
        self.faults: list[Fault] = []
        self._dialect = dialect
        self._fields = _HAI_FIELDS if dialect is Dialect.HAI else _AGUI_FIELDS
        self._brackets = _HAI_BRACKETS if dialect is Dialect.HAI else _AGUI_BRACKETS
        self._stands = "before"  # or running, RUN_FINISHED, RUN_ERROR
        self._open: dict[tuple[str, str], None] = {}
        self._arguments: dict[str, str] = {}
        self._known_calls: set[str] = set()
        self._raw = b""

    def event(self, event: Event) -> None:
        self._raw = event.raw
        value = event.value
        self._type(event.type)
        self._no_nulls(event.type, value)
        self._timestamp(value)
        self._required(event.type, value)
        self._lifecycle(event.type)
        self._bracket(event.type, value)
        if event.type in SNAPSHOTS:
            self._snapshot(value)
        elif event.type == "BUSINESS_DATA_CONTENT":
            self._document(value.get("delta"))
        elif event.type == "RUN_FINISHED" and self._dialect is not Dialect.HAI:
            self._outcome(value)

    def end(self, events: Sequence[Event]) -> None:
        if not events:
            self._fault("stream.terminal", "a response without events")
        elif self._stands not in TERMINAL:
            self._fault("stream.terminal", f"the stream ends with {events[-1].type}")

    def _fault(self, rule: str, found: str) -> None:
        self.faults.append(Fault(rule, found, self._raw))

    # --- one event

    def _type(self, type: str) -> None:
        if type not in self._fields or (self._dialect is Dialect.AGUI_0 and type in _NOT_IN_0):
            rule = "old.types" if self._dialect is Dialect.AGUI_0 else "stream.types"
            self._fault(rule, f"{type} is no event of the protocol")

    def _no_nulls(self, where: str, record: Mapping[str, Json]) -> None:
        for name, value in record.items():
            if value is None and name not in _FREE:
                self._fault("stream.no-nulls", f"{where}: {name} is null")

    def _timestamp(self, value: Mapping[str, Json]) -> None:
        at = value.get("timestamp", 0)
        if at is not None and (isinstance(at, bool) or not isinstance(at, int) or abs(at) > _SAFE_INTEGER):
            self._fault("stream.timestamps", f"the timestamp is {at!r}")

    def _required(self, where: str, value: Mapping[str, Json]) -> None:
        for name, type in self._fields.get(where, {}).items():
            rule = "stream.deltas" if name == "delta" else "stream.fields"
            if name not in value:
                self._fault(rule, f"{where} has no {name}")
            elif not isinstance(value[name], type):
                self._fault(rule, f"{where}: {name} is {json.dumps(value[name], ensure_ascii=False)[:80]}")
        if value.get("delta") == "":
            rule = "old.deltas" if self._dialect is Dialect.AGUI_0 else "stream.empty-deltas"
            self._fault(rule, f"{where} with an empty delta")

    # --- one after the other

    def _lifecycle(self, type: str) -> None:
        before = self._stands
        if before == "before" and type not in ("RUN_STARTED", "RUN_ERROR"):
            self._fault("stream.first", f"the first event is {type}")
            self._stands = "running"
        elif before == "running" and type == "RUN_STARTED":
            self._fault("stream.first", "RUN_STARTED while a run is open")
        elif before in TERMINAL and type != "RUN_STARTED" and (before, type) != TERMINAL:
            self._fault("stream.nothing-after", f"{type} follows {before}")
        if type == "RUN_FINISHED":
            self._nothing_open()
        if type == "RUN_STARTED" or type in TERMINAL:
            self._stands = "running" if type == "RUN_STARTED" else type
            self._open.clear()

    def _nothing_open(self) -> None:
        for start, name in self._open:
            self._fault(_bracket_rule(start), f"RUN_FINISHED while {name!r} of {start} is open")

    def _bracket(self, type: str, value: Mapping[str, Json]) -> None:
        brackets = self._brackets
        if type == "SUBAGENT_ERROR":
            self._open.pop(("SUBAGENT_STARTED", str(value.get("subagentRunId"))), None)
            return
        for table in (brackets.starts, brackets.contents, brackets.ends):
            if type not in table:
                continue
            start, field = table[type]
            name = value.get(field)
            if not isinstance(name, str):
                return
            opened = (start, name) in self._open
            if table is brackets.starts:
                if opened:
                    self._fault(_bracket_rule(start), f"{type}: {name!r} is open already")
                self._open[start, name] = None
            elif not opened:
                self._fault(_bracket_rule(start), f"{type}: {name!r} is not open")
            if table is brackets.ends:
                self._open.pop((start, name), None)
            if start == "TOOL_CALL_START":
                self._call(type, name, value)

    def _call(self, type: str, id: str, value: Mapping[str, Json]) -> None:
        if type == "TOOL_CALL_START":
            if id in self._known_calls:
                self._fault("stream.calls-once", f"the call {id!r} is in the client's history already")
            self._known_calls.add(id)
            self._arguments[id] = ""
        elif type == "TOOL_CALL_ARGS" and isinstance(value.get("delta"), str):
            self._arguments[id] = self._arguments.get(id, "") + value["delta"]
        elif type == "TOOL_CALL_END" and not _is_object(self._arguments.get(id, "")):
            self._fault("stream.arguments", f"the arguments of {id!r} are {self._arguments.get(id, '')[:120]!r}")

    # --- what they carry

    def _snapshot(self, value: Mapping[str, Json]) -> None:
        messages = value.get("messages")
        seen: set[str] = set()
        for message in messages if isinstance(messages, list) else []:
            if not isinstance(message, dict) or not isinstance(message.get("id"), str) or "role" not in message:
                self._fault("stream.fields", "a message of the snapshot without its id or role")
                continue
            self._no_nulls("a message of the snapshot", message)
            if message["id"] in seen:
                self._fault("stream.fields", f"two messages of the snapshot have the id {message['id']!r}")
            seen.add(message["id"])
            for id, _, arguments in calls_of(message):
                self._known_calls.add(id)
                if not isinstance(arguments, str):
                    self._fault("stream.fields", f"the arguments of {id!r} in the snapshot are no text")

    def _document(self, delta: Json) -> None:
        """A document must survive the way in which the demo client takes a buffer apart: at every `}{`."""
        if isinstance(delta, str) and delta.lstrip().startswith('{"output"'):
            try:
                whole = [json.loads(delta)] == json.loads(f"[{delta.replace('}{', '},{')}]")
            except ValueError:
                whole = False
            if not whole:
                self._fault("hai.documents", "a delta that the client cannot take apart at `}{`")

    def _outcome(self, value: Mapping[str, Json]) -> None:
        if "outcome" not in value:
            return
        outcome = value["outcome"]
        kind = outcome.get("type") if isinstance(outcome, dict) else None
        if kind not in ("success", "interrupt", "cancelled"):
            self._fault("stream.outcome", f"the outcome is {json.dumps(outcome)[:120]}")
        elif kind == "interrupt":
            self._interrupts(outcome.get("interrupts"))
        if self._dialect is Dialect.AGUI_0 and (kind == "cancelled" or "pendingToolCallIds" in (outcome or {})):
            self._fault("old.outcome", f"the outcome is {json.dumps(outcome)[:120]}")

    def _interrupts(self, interrupts: Json) -> None:
        listed = interrupts if isinstance(interrupts, list) else []
        ids = [each.get("id") for each in listed if isinstance(each, dict)]
        if not listed or len(ids) < len(listed) or not all(isinstance(id, str) and id for id in ids):
            self._fault("stream.outcome", "an interrupt outcome without interrupts that have an id")
            return
        if len(set(ids)) < len(ids):
            self._fault("stream.outcome", "two interrupts have the same id")
        for each in listed:
            self._no_nulls(f"the interrupt {each['id']!r}", each)
            if not isinstance(each.get("reason"), str):
                self._fault("stream.outcome", f"the interrupt {each['id']!r} has no reason")


def _bracket_rule(start: str) -> str:
    return "stream.steps" if start == "STEP_STARTED" else "stream.brackets"


def _is_object(text: str) -> bool:
    try:
        return not text or isinstance(json.loads(text), dict)
    except ValueError:
        return False


def calls_of(message: Mapping[str, Json]) -> list[tuple[str, str, Json]]:
    """The calls of a message: id, name, arguments. What has another form is left out."""
    found: list[tuple[str, str, Json]] = []
    calls = message.get("toolCalls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(call.get("id"), str):
            found.append((call["id"], str(function.get("name", "")), function.get("arguments")))
    return found
