"""The rules of every stream, dialect by dialect: pure, on its events (docs/design/protocols.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from hai_flow.values import Json
from hai_flow_conformance.streams import Event, Fault


class Dialect(StrEnum):
    """The dialect whose rules hold. AGUI_0: for a peer that sends no `protocolVersion`, which is true of every 0.x
    client."""

    HAI = "hai"
    AGUI = "agui"
    AGUI_0 = "agui-0"


class _Brackets:
    """The events that open and close things: START -> (CONTENT, END, the field with the thing's id)."""

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

# The content of a field: a type, or the words that it may be.
Kind: TypeAlias = type | tuple[type, ...] | frozenset[str]


class _Shape(NamedTuple):
    """The fields of an event or a message: those it must have and those it may have."""

    required: Mapping[str, Kind]
    optional: Mapping[str, Kind]

    def kind(self, name: str) -> Kind | None:
        return self.required.get(name, self.optional.get(name))


_TEXT, _LIST, _OBJECT, _ANY = str, list, dict, object
_ROLE: Final = frozenset(("developer", "system", "assistant", "user"))
_COMMON: Final[dict[str, tuple[dict[str, Kind], dict[str, Kind]]]] = {
    "RUN_ERROR": ({"message": _TEXT}, {"code": _TEXT, "usage": _LIST}),
    "STEP_STARTED": ({"stepName": _TEXT}, {}),
    "STEP_FINISHED": ({"stepName": _TEXT}, {}),
    "TOOL_CALL_START": ({"toolCallId": _TEXT, "toolCallName": _TEXT}, {"parentMessageId": _TEXT}),
    "TOOL_CALL_ARGS": ({"toolCallId": _TEXT, "delta": _TEXT}, {}),
    "TOOL_CALL_END": ({"toolCallId": _TEXT}, {}),
    "TOOL_CALL_RESULT": (
        {"messageId": _TEXT, "toolCallId": _TEXT, "content": (_TEXT, _LIST)},
        {"role": frozenset(("tool",))},
    ),
    "STATE_SNAPSHOT": ({"snapshot": _ANY}, {}),
    "STATE_DELTA": ({"delta": _LIST}, {}),
    "MESSAGES_SNAPSHOT": ({"messages": _LIST}, {}),
    "RAW": ({"event": _ANY}, {"source": _TEXT}),
    "CUSTOM": ({"name": _TEXT, "value": _ANY}, {}),
}
_ALWAYS: Final[dict[str, Kind]] = {"type": _TEXT, "timestamp": _ANY, "rawEvent": _ANY, "metadata": _OBJECT}
_TURN: Final[dict[str, Kind]] = {"messageId": _TEXT, "role": _TEXT}
_TURN_IDS: Final[dict[str, Kind]] = {"threadId": _TEXT, "runId": _TEXT}
_PLACED: Final[dict[str, Kind]] = {"blockId": _TEXT}
_HAI_FIELDS: Final = {
    type: _Shape(required, optional | _ALWAYS)
    for type, (required, optional) in (
        _COMMON
        | {
            "RUN_STARTED": (_TURN, _TURN_IDS),
            "RUN_FINISHED": (_TURN, _TURN_IDS),
            "BUSINESS_DATA_START": (_TURN, {}),
            "BUSINESS_DATA_CONTENT": ({"messageId": _TEXT, "delta": _TEXT}, _PLACED),
            "BUSINESS_DATA_END": ({"messageId": _TEXT}, {"role": _TEXT}),
            "AGENT_COLLABORATIVE_MESSAGE_START": ({"from": _TEXT, "to": _TEXT, "messageId": _TEXT}, {}),
            "AGENT_COLLABORATIVE_MESSAGE_CONTENT": ({"messageId": _TEXT, "delta": _TEXT}, {}),
            "AGENT_COLLABORATIVE_MESSAGE_END": ({"messageId": _TEXT}, {}),
            "MESSAGE_SNAPSHOT": ({"messages": _LIST}, {}),
        }
    ).items()
}
_SUBAGENT: Final[dict[str, Kind]] = {"subagentRunId": _TEXT}
_MESSAGE: Final[dict[str, Kind]] = {"messageId": _TEXT}
_ACTIVITY: Final[dict[str, Kind]] = _MESSAGE | {"activityType": _TEXT}
_PARENTS: Final = ("parentSubagentRunId", "parentToolCallId", "parentMessageId")
# The fields that name an event's subagent; an event of the whole run has none.
_NOT_OF_A_SUBAGENT: Final = ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT")
_AGUI_FIELDS: Final = {
    type: _Shape(required, optional | _ALWAYS | ({} if type in _NOT_OF_A_SUBAGENT else _SUBAGENT))
    for type, (required, optional) in (
        _COMMON
        | {
            "RUN_STARTED": (_TURN_IDS, {"protocolVersion": _TEXT, "parentRunId": _TEXT, "input": _OBJECT}),
            "RUN_FINISHED": (_TURN_IDS, {"result": _ANY, "outcome": _ANY, "usage": _LIST}),
            "TEXT_MESSAGE_START": (_MESSAGE, {"role": _ROLE, "name": _TEXT}),
            "TEXT_MESSAGE_CONTENT": (_MESSAGE | {"delta": _TEXT}, {}),
            "TEXT_MESSAGE_END": (_MESSAGE, {}),
            "TEXT_MESSAGE_CHUNK": ({}, _MESSAGE | {"role": _ROLE, "delta": _TEXT, "name": _TEXT}),
            "TOOL_CALL_CHUNK": (
                {},
                {"toolCallId": _TEXT, "toolCallName": _TEXT, "parentMessageId": _TEXT, "delta": _TEXT},
            ),
            "ACTIVITY_SNAPSHOT": (_ACTIVITY | {"content": _OBJECT}, {"replace": bool}),
            "ACTIVITY_DELTA": (_ACTIVITY | {"patch": _LIST}, {}),
            "REASONING_START": (_MESSAGE, {}),
            "REASONING_END": (_MESSAGE, {}),
            "REASONING_MESSAGE_START": (_MESSAGE | {"role": frozenset(("reasoning",))}, {}),
            "REASONING_MESSAGE_CONTENT": (_MESSAGE | {"delta": _TEXT}, {}),
            "REASONING_MESSAGE_END": (_MESSAGE, {}),
            "REASONING_MESSAGE_CHUNK": ({}, _MESSAGE | {"delta": _TEXT}),
            "REASONING_ENCRYPTED_VALUE": (
                {"subtype": frozenset(("tool-call", "message")), "entityId": _TEXT, "encryptedValue": _TEXT},
                {},
            ),
            "SUBAGENT_STARTED": (_SUBAGENT | {"name": _TEXT}, {"description": _TEXT, **dict.fromkeys(_PARENTS, _TEXT)}),
            "SUBAGENT_FINISHED": (_SUBAGENT, {"result": _ANY, "outcome": _OBJECT}),
            "SUBAGENT_ERROR": (_SUBAGENT | {"message": _TEXT}, {"code": _TEXT}),
        }
    ).items()
}
_SAID_ALWAYS: Final[dict[str, Kind]] = {
    "id": _TEXT,
    "role": _TEXT,
    "name": _TEXT,
    "encryptedValue": _TEXT,
    "metadata": _OBJECT,
    "subagentRunId": _TEXT,
}
_MESSAGES: Final = {
    role: _Shape(required, optional | _SAID_ALWAYS)
    for role, required, optional in (
        ("developer", {"content": _TEXT}, {}),
        ("system", {"content": _TEXT}, {}),
        ("user", {"content": (_TEXT, _LIST)}, {}),
        ("assistant", {}, {"content": _TEXT, "toolCalls": _LIST}),
        ("tool", {"content": (_TEXT, _LIST), "toolCallId": _TEXT}, {"error": _TEXT}),
        ("activity", {"activityType": _TEXT, "content": _OBJECT}, {}),
        ("reasoning", {"content": _TEXT}, {}),
    )
}
_HAI_ROLES: Final = ("developer", "system", "user", "assistant", "tool")
# kind of source -> its required fields
_SOURCES: Final = {"data": ("value", "mimeType"), "url": ("value",), "file": ("value",)}
_MEDIA: Final = ("image", "audio", "video", "document")
# operation -> the field that it needs beside its path
_OPERATIONS: Final = {"add": "value", "replace": "value", "test": "value", "remove": "", "move": "from", "copy": "from"}
_NOT_IN_0: Final = ("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR")
HAI_TYPES: Final = frozenset(_HAI_FIELDS)
AGUI_TYPES: Final = frozenset(_AGUI_FIELDS)
TERMINAL: Final = ("RUN_FINISHED", "RUN_ERROR")
SNAPSHOTS: Final = ("MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT")
# Their values are somebody's JSON, in which null is a value like any other.
_FREE: Final = ("snapshot", "value", "result", "event", "rawEvent", "metadata", "extra", "input")
_SAFE_INTEGER: Final = 2**53 - 1


def judge(events: Sequence[Event], dialect: Dialect, *, begun: bool = True, whole: bool = True) -> list[Fault]:
    """The faults of one response. `begun`: it is here from its beginning on; else anything that was opened before is
    not judged. `whole`: it was read to its end."""
    judging = _Judge(dialect, begun)
    for event in events:
        judging.event(event)
    if whole:
        judging.end(events)
    return judging.faults


class _Judge:
    def __init__(self, dialect: Dialect, begun: bool) -> None:
        self.faults: list[Fault] = []
        self._dialect = dialect
        self._fields = _HAI_FIELDS if dialect is Dialect.HAI else _AGUI_FIELDS
        self._brackets = _HAI_BRACKETS if dialect is Dialect.HAI else _AGUI_BRACKETS
        self._stands = "before"  # or running, RUN_FINISHED, RUN_ERROR
        self._blind = not begun  # the thing may have been opened before
        self._run: dict[str, Json] = {}
        self._open: dict[tuple[str, str], None] = {}
        self._arguments: dict[str, str] = {}
        self._known_calls: set[str] = set()
        self._cut_off: list[Fault] = []
        self._raw = b""

    def event(self, event: Event) -> None:
        self._raw = event.raw
        value = event.value
        if event.type not in self._brackets.ends and event.type != "CUSTOM":
            self._settle(broken_off=event.type == "RUN_ERROR" or value.get("outcome") == {"type": "cancelled"})
        self._type(event.type)
        self._no_nulls(event.type, value)
        self._timestamp(value)
        self._has_fields(event.type, value)
        self._lifecycle(event.type, value)
        self._bracket(event.type, value)
        match event.type:
            case "MESSAGE_SNAPSHOT" | "MESSAGES_SNAPSHOT":
                self._snapshot(value)
            case "BUSINESS_DATA_CONTENT":
                self._document(value.get("delta"))
            case "STATE_DELTA":
                self._patch(value.get("delta"))
            case "ACTIVITY_DELTA":
                self._patch(value.get("patch"))
            case "RUN_FINISHED" if self._dialect is not Dialect.HAI:
                self._outcome(value)

    def end(self, events: Sequence[Event]) -> None:
        self._settle(broken_off=False)
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

    def _has_fields(self, type: str, value: Mapping[str, Json]) -> None:
        shape = self._fields.get(type)
        if shape is None:
            return
        for name in shape.required:
            if name not in value:
                self._fault("stream.deltas" if name == "delta" else "stream.fields", f"{type} has no {name}")
        for name, field in value.items():
            kind = shape.kind(name)
            if kind is None:
                self._unknown(type, name)
            elif not _fits(field, kind) and (field is not None or name in shape.required):
                rule = "stream.deltas" if name == "delta" else "stream.fields"
                self._fault(rule, f"{type}: {name} is {_shown(field)}")
        if value.get("delta") == "":
            rule = "old.deltas" if self._dialect is Dialect.AGUI_0 else "stream.empty-deltas"
            self._fault(rule, f"{type} with an empty delta")

    def _unknown(self, where: str, name: str) -> None:
        """A fault for an unknown field, except in HAI: its events and messages may have further fields."""
        if self._dialect is not Dialect.HAI:
            self._fault("stream.unknown-fields", f"{where}: {name} is no field of the protocol")

    # --- one after the other

    def _lifecycle(self, type: str, value: Mapping[str, Json]) -> None:
        before = self._stands
        if self._blind:
            pass
        elif before == "before" and type not in ("RUN_STARTED", "RUN_ERROR"):
            self._fault("stream.first", f"the first event is {type}")
            self._stands = "running"
        elif before == "running" and type == "RUN_STARTED":
            self._fault("stream.first", "RUN_STARTED while a run is open")
        elif before in TERMINAL and type != "RUN_STARTED" and (before, type) != TERMINAL:
            self._fault("stream.nothing-after", f"{type} follows {before}")
        if type == "RUN_FINISHED":
            self._finishes(value)
        if type == "RUN_STARTED" or type in TERMINAL:
            self._run = dict(value) if type == "RUN_STARTED" else {}
            self._stands = "running" if type == "RUN_STARTED" else type
            self._blind = False
            self._open.clear()

    def _finishes(self, value: Mapping[str, Json]) -> None:
        """A run's end leaves nothing open, and names the run that began."""
        for start, name in self._open:
            self._fault(_bracket_rule(start), f"RUN_FINISHED while {name!r} of {start} is open")
        for name in ("threadId", "runId"):
            if name in self._run and name in value and self._run[name] != value[name]:
                self._fault("stream.ids", f"RUN_FINISHED: {name} {value[name]!r}, begun was {self._run[name]!r}")

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
            elif not opened and not self._blind:
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
        elif id not in self._arguments:
            return
        elif type == "TOOL_CALL_ARGS" and isinstance(value.get("delta"), str):
            self._arguments[id] += value["delta"]
        elif type == "TOOL_CALL_END" and not _is_object(self._arguments[id]):
            found = f"the arguments of {id!r} are {self._arguments[id][:120]!r}"
            self._cut_off.append(Fault("stream.arguments", found, self._raw))

    def _settle(self, *, broken_off: bool) -> None:
        """A run that breaks off in the middle of a call, or is cancelled there, closes it as far as it got and ends."""
        if not broken_off:
            self.faults += self._cut_off
        self._cut_off.clear()

    # --- their content

    def _snapshot(self, value: Mapping[str, Json]) -> None:
        messages = value.get("messages")
        seen: set[str] = set()
        for message in messages if isinstance(messages, list) else []:
            if not isinstance(message, dict) or not isinstance(message.get("id"), str) or "role" not in message:
                self._fault("stream.messages", "a message of the snapshot without its id or role")
                continue
            where = f"the snapshot's message {message['id']!r}"
            self._no_nulls(where, message)
            if message["id"] in seen:
                self._fault("stream.messages", f"two messages of the snapshot have the id {message['id']!r}")
            seen.add(message["id"])
            self._message(where, message)
            self._known_calls.update(id for id, _, _ in calls_of(message))

    def _message(self, where: str, message: Mapping[str, Json]) -> None:
        role = message["role"]
        shape = _MESSAGES.get(role) if isinstance(role, str) else None
        if shape is None or (self._dialect is Dialect.HAI and role not in _HAI_ROLES):
            self._fault("stream.messages", f"{where}: the role is {_shown(role)}")
            return
        self._calls(where, message.get("toolCalls", []))
        if self._dialect is Dialect.HAI:  # a BaseMessage needs nothing but its id and role
            return
        for name in shape.required:
            if name not in message:
                self._fault("stream.messages", f"{where}: {role} without {name}")
        for name, field in message.items():
            kind = shape.kind(name)
            if kind is None:
                self._unknown(where, name)
            elif field is not None and not _fits(field, kind):
                self._fault("stream.messages", f"{where}: {name} is {_shown(field)}")
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if not self._is_part(part):
                self._fault("stream.messages", f"{where}: {_shown(part)} is no content part")

    def _calls(self, where: str, calls: Json) -> None:
        for call in calls if isinstance(calls, list) else [calls]:
            function = call.get("function") if isinstance(call, dict) else None
            wanted = (
                (call.get("id"), function.get("name"), function.get("arguments")) if isinstance(function, dict) else ()
            )
            if len(wanted) != 3 or not all(isinstance(each, str) for each in wanted) or call.get("type") != "function":
                self._fault("stream.messages", f"{where}: {_shown(call)} is no call with its arguments as text")

    def _is_part(self, part: Json) -> bool:
        if not isinstance(part, dict):
            return False
        if part.get("type") == "text":
            return isinstance(part.get("text"), str)
        if part.get("type") == "binary":
            return self._dialect is Dialect.AGUI_0
        source = part.get("source")
        if part.get("type") not in _MEDIA or not isinstance(source, dict):
            return False
        needed = _SOURCES.get(str(source.get("type")))
        return needed is not None and all(isinstance(source.get(name), str) for name in needed)

    def _patch(self, operations: Json) -> None:
        for operation in operations if isinstance(operations, list) else []:
            needed = _OPERATIONS.get(str(operation.get("op"))) if isinstance(operation, dict) else None
            if needed is None or not isinstance(operation.get("path"), str) or (needed and needed not in operation):
                self._fault("stream.patches", f"{_shown(operation)} is no operation of JSON Patch")

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
            self._fault("stream.outcome", f"the outcome is {_shown(outcome)}")
        elif kind == "interrupt":
            self._interrupts(outcome.get("interrupts"))
        too_new = kind == "cancelled" or (isinstance(outcome, dict) and "pendingToolCallIds" in outcome)
        if self._dialect is Dialect.AGUI_0 and too_new:
            self._fault("old.outcome", f"the outcome is {_shown(outcome)}")

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
            if "expiresAt" in each and self._dialect is Dialect.AGUI_0:
                self._fault("old.expiry", f"the interrupt {each['id']!r} expires at {each['expiresAt']}")


def _fits(value: Json, kind: Kind) -> bool:
    if isinstance(kind, frozenset):
        return isinstance(value, str) and value in kind
    return isinstance(value, kind)


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:120]


def _bracket_rule(start: str) -> str:
    return "stream.steps" if start == "STEP_STARTED" else "stream.brackets"


def _is_object(text: str) -> bool:
    try:
        return not text or isinstance(json.loads(text), dict)
    except ValueError:
        return False


def calls_of(message: Mapping[str, Json]) -> list[tuple[str, str, Json]]:
    """The calls of a message: id, name, arguments. Calls of another form are left out."""
    found: list[tuple[str, str, Json]] = []
    calls = message.get("toolCalls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(call.get("id"), str):
            found.append((call["id"], str(function.get("name", "")), function.get("arguments")))
    return found
