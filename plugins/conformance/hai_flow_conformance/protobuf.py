"""AG-UI's binary frames, read (docs/design/protocols.md#binary-frames): the events of any endpoint, not only of
ours.

The schema is the protocol's whole one. As every reader of Protocol Buffers does, this one steps over fields that it
does not know, takes the last of a scalar that stands twice, and joins the parts of a message that does. Anything else
is `Malformed`, and nothing else is raised. The content of an event is judged in `rules`, for all forms.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hai_flow.primitives.protobuf import BYTES, FIXED_32, FIXED_64, VARINT, Malformed, WireField, fields
from hai_flow.values import Json

__all__ = ["NESTED_MAX", "Malformed", "decoded"]


NESTED_MAX: Final = 300
"""Messages within messages; one level of JSON is three of them."""


# --- the schema ---------------------------------------------------------------------------------------------------

# number name [kind] [mark]. Without a kind it is text. `!`: always there, an empty one is left out; `*`: any number.
_SCHEMA: Final = """
BaseEvent: 1 type int!, 2 timestamp int, 3 rawEvent Value, 4 metadata Struct
TEXT_MESSAGE_START: 2 messageId!, 3 role, 4 name, 5 subagentRunId
TEXT_MESSAGE_CONTENT: 2 messageId!, 3 delta!, 4 subagentRunId
TEXT_MESSAGE_END: 2 messageId!, 3 subagentRunId
TEXT_MESSAGE_CHUNK: 2 messageId, 3 role, 4 delta, 5 name, 6 subagentRunId
TOOL_CALL_START: 2 toolCallId!, 3 toolCallName!, 4 parentMessageId, 5 subagentRunId
TOOL_CALL_ARGS: 2 toolCallId!, 3 delta!, 4 subagentRunId
TOOL_CALL_END: 2 toolCallId!, 3 subagentRunId
TOOL_CALL_CHUNK: 2 toolCallId, 3 toolCallName, 4 parentMessageId, 5 delta, 6 subagentRunId
TOOL_CALL_RESULT: 2 subagentRunId, 3 messageId!, 4 toolCallId!, 5 content, 6 role, 7 contentParts Part*
STATE_SNAPSHOT: 2 snapshot Value, 3 subagentRunId
STATE_DELTA: 2 delta Operation*, 3 subagentRunId
MESSAGES_SNAPSHOT: 2 messages Message*
ACTIVITY_SNAPSHOT: 2 subagentRunId, 3 messageId!, 4 activityType!, 5 content Struct, 6 replace bool
ACTIVITY_DELTA: 2 subagentRunId, 3 messageId!, 4 activityType!, 5 patch Operation*
RAW: 2 event Value, 3 source, 4 subagentRunId
CUSTOM: 2 name!, 3 value Value, 4 subagentRunId
RUN_STARTED: 2 threadId!, 3 runId!, 4 parentRunId, 5 input Input, 6 protocolVersion
RUN_FINISHED: 2 threadId!, 3 runId!, 4 result Value, 5 outcome, 6 interrupts Interrupt*, 7 usage Usage*, \
8 pendingToolCallIds*
RUN_ERROR: 2 code, 3 message!, 4 usage Usage*
STEP_STARTED: 2 stepName!, 3 subagentRunId
STEP_FINISHED: 2 stepName!, 3 subagentRunId
REASONING_START: 2 subagentRunId, 3 messageId!
REASONING_MESSAGE_START: 2 subagentRunId, 3 messageId!, 4 role!
REASONING_MESSAGE_CONTENT: 2 subagentRunId, 3 messageId!, 4 delta!
REASONING_MESSAGE_END: 2 subagentRunId, 3 messageId!
REASONING_MESSAGE_CHUNK: 2 subagentRunId, 3 messageId, 4 delta
REASONING_END: 2 subagentRunId, 3 messageId!
REASONING_ENCRYPTED_VALUE: 2 subagentRunId, 3 subtype!, 4 entityId!, 5 encryptedValue!
SUBAGENT_STARTED: 2 subagentRunId!, 3 name!, 4 description, 5 parentSubagentRunId, 6 parentToolCallId, 7 parentMessageId
SUBAGENT_FINISHED: 2 subagentRunId!, 3 result Value, 4 outcome, 5 interruptIds*
SUBAGENT_ERROR: 2 subagentRunId!, 3 message!, 4 code
Usage: 1 provider, 2 model, 3 inputTokens int, 4 outputTokens int, 5 totalTokens int, 6 reasoningTokens int, \
7 cachedInputTokens int, 8 cacheWriteInputTokens int
Part: 1 text TextPart, 2 image MediaPart, 3 audio MediaPart, 4 video MediaPart, 5 document MediaPart
TextPart: 1 text!, 2 id, 3 metadata Value
MediaPart: 1 source Source, 2 metadata Value, 3 id
Source: 1 data DataSource, 2 url UrlSource, 3 file FileSource
DataSource: 1 value!, 2 mimeType!
UrlSource: 1 value!, 2 mimeType
FileSource: 1 value!, 2 provider, 3 mimeType
ToolCall: 1 id!, 2 type!, 3 function Function, 4 metadata Struct, 5 encryptedValue
Function: 1 name!, 2 arguments!
Message: 1 id!, 2 role!, 3 content, 4 name, 5 toolCalls ToolCall*, 6 toolCallId, 7 error, 8 contentParts Part*, \
9 metadata Struct, 10 subagentRunId, 11 encryptedValue, 12 activityType, 13 activityContent Struct
Tool: 1 name!, 2 description!, 3 parameters Value, 4 metadata Struct
Context: 1 description!, 2 value!
Resume: 1 interruptId!, 2 status!, 3 payload Value, 4 metadata Struct
Input: 1 threadId!, 2 runId!, 3 parentRunId, 4 state Value, 5 messages Message*, 6 tools Tool*, 7 context Context*, \
8 forwardedProps Value, 9 resume Resume*, 10 protocolVersion
Interrupt: 1 id!, 2 reason!, 3 message, 4 toolCallId, 5 responseSchema Value, 6 expiresAt, 7 metadata Value, \
8 subagentRunId
Operation: 1 op int!, 2 path!, 3 from, 4 value Value
Value: 1 null int, 2 number double, 3 text, 4 boolean bool, 5 struct Struct, 6 list List
Struct: 1 fields Entry*
Entry: 1 key!, 2 value Value
List: 1 values Value*
"""

# The types of events: first the field of `Event` that holds one, then its number in `baseEvent`.
_EVENTS: Final = {
    "TEXT_MESSAGE_START": (1, 0), "TEXT_MESSAGE_CONTENT": (2, 1), "TEXT_MESSAGE_END": (3, 2),
    "TOOL_CALL_START": (4, 3), "TOOL_CALL_ARGS": (5, 4), "TOOL_CALL_END": (6, 5), "STATE_SNAPSHOT": (7, 6),
    "STATE_DELTA": (8, 7), "MESSAGES_SNAPSHOT": (9, 8), "RAW": (10, 9), "CUSTOM": (11, 10), "RUN_STARTED": (12, 11),
    "RUN_FINISHED": (13, 12), "RUN_ERROR": (14, 13), "STEP_STARTED": (15, 14), "STEP_FINISHED": (16, 15),
    "TEXT_MESSAGE_CHUNK": (17, 19), "TOOL_CALL_CHUNK": (18, 20), "SUBAGENT_STARTED": (19, 16),
    "SUBAGENT_FINISHED": (20, 17), "SUBAGENT_ERROR": (21, 18), "TOOL_CALL_RESULT": (22, 21),
    "ACTIVITY_SNAPSHOT": (23, 22), "ACTIVITY_DELTA": (24, 23), "REASONING_START": (25, 24),
    "REASONING_MESSAGE_START": (26, 25), "REASONING_MESSAGE_CONTENT": (27, 26), "REASONING_MESSAGE_END": (28, 27),
    "REASONING_MESSAGE_CHUNK": (29, 28), "REASONING_END": (30, 29), "REASONING_ENCRYPTED_VALUE": (31, 30),
}  # fmt: skip
_TYPES: Final = {field: type for type, (field, _) in _EVENTS.items()}
_OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")


class _Known(NamedTuple):
    name: str
    kind: str
    mark: str


def _schema(text: str) -> dict[str, dict[int, _Known]]:
    found: dict[str, dict[int, _Known]] = {}
    for line in text.strip().splitlines():
        message, _, fields = line.partition(": ")
        found[message] = {1: _Known("base", "BaseEvent", "")} if message in _EVENTS else {}
        for field in fields.split(", "):
            parsed = re.fullmatch(r"(\d+) (\w+)(?: (\w+))?([!*]?)", field)
            assert parsed is not None, field
            found[message][int(parsed[1])] = _Known(parsed[2], parsed[3] or "text", parsed[4])
    return found


_MESSAGES: Final = _schema(_SCHEMA)

# --- the wire format ----------------------------------------------------------------------------------------------

_WIRE_TYPES: Final = {"int": VARINT, "bool": VARINT, "double": FIXED_64}
_WORDS: Final = {VARINT: "a number", FIXED_64: "eight bytes", BYTES: "a length and bytes", FIXED_32: "four bytes"}


def _fields(data: bytes, where: str) -> list[WireField]:
    try:
        return fields(data)
    except Malformed as error:
        raise Malformed(f"{where}: {error}") from None


# --- messages -----------------------------------------------------------------------------------------------------


def _message(kind: str, data: bytes, where: str, depth: int) -> dict[str, Json]:
    """A message by the names of its fields, those in it already read."""
    if depth > NESTED_MAX:
        raise Malformed(f"{where}: nested too deep")
    schema = _MESSAGES[kind]
    found: dict[int, list[Any]] = {}
    for raw in _fields(data, where):
        field = schema.get(raw.number)
        if field is None:
            continue
        expected = _WIRE_TYPES.get(field.kind, BYTES)
        if raw.wire_type != expected:
            raise Malformed(f"{where}.{field.name}: expected {_WORDS[expected]}, found {_WORDS[raw.wire_type]}")
        found.setdefault(raw.number, []).append(raw.content)
    record: dict[str, Json] = {}
    for number, field in schema.items():
        contents = found.get(number, [])
        place = f"{where}.{field.name}"
        if field.mark == "*":
            record[field.name] = [_content(field.kind, each, place, depth) for each in contents]
        elif contents and field.kind in _MESSAGES:
            record[field.name] = _content(field.kind, b"".join(contents), place, depth)
        elif contents:
            record[field.name] = _content(field.kind, contents[-1], place, depth)
        elif field.mark == "!":
            record[field.name] = 0 if field.kind == "int" else ""
    finish = _FINISHED.get(kind)
    return record if finish is None else finish(record, where)


def _content(kind: str, content: Any, where: str, depth: int) -> Json:
    match kind:
        case "int":
            return content - (1 << 64) if content >> 63 else content
        case "bool":
            return bool(content)
        case "double":
            return _number(struct.unpack("<d", content)[0], where)
        case "text":
            try:
                return content.decode()
            except UnicodeDecodeError:
                raise Malformed(f"{where}: text that is not UTF-8") from None
    return _message(kind, content, where, depth + 1)


def _number(number: float, where: str) -> Json:
    """As JSON would have it: a whole number has no fraction."""
    if not math.isfinite(number):
        raise Malformed(f"{where}: {number} is no number of JSON")
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


# --- messages as the JSON that they stand for ---------------------------------------------------------------------


def _one_of(record: Mapping[str, Json], where: str) -> tuple[str, Json]:
    """The one field that a message of alternatives has."""
    if len(record) != 1:
        raise Malformed(f"{where}: expected one of its alternatives, found {', '.join(record) or 'none'}")
    return next(iter(record.items()))


def _value(record: dict[str, Json], where: str) -> Json:
    name, value = _one_of(record, where)
    return None if name == "null" else value


def _struct(record: dict[str, Json], where: str) -> Json:
    for entry in record["fields"]:
        if "value" not in entry:
            raise Malformed(f"{where}.{entry['key']}: no value")
    return {entry["key"]: entry["value"] for entry in record["fields"]}


def _list(record: dict[str, Json], where: str) -> Json:
    return record["values"]


def _alternative(record: dict[str, Json], where: str) -> Json:
    name, value = _one_of(record, where)
    return {"type": name, **value}


def _operation(record: dict[str, Json], where: str) -> Json:
    number = record["op"]
    if not 0 <= number < len(_OPERATIONS):
        raise Malformed(f"{where}: {number} is no operation of JSON Patch")
    return {**record, "op": _OPERATIONS[number]}


def _said(record: dict[str, Json], where: str) -> Json:
    """A message. Its content has a field of its own for text, for parts and for an activity's object."""
    parts, activity = record.pop("contentParts"), record.pop("activityContent", None)
    forms = [form for form in (record.get("content"), parts or None, activity) if form is not None]
    if len(forms) > 1:
        raise Malformed(f"{where}: a message with more than one content")
    if forms:
        record["content"] = forms[0]
    elif record["role"] in ("user", "tool"):
        record["content"] = []
    return record if record["toolCalls"] else _without(record, "toolCalls")


def _result(record: dict[str, Json], where: str) -> Json:
    parts = record.pop("contentParts")
    if parts and "content" in record:
        raise Malformed(f"{where}: a result with more than one content")
    return {"content": parts, **record}


def _outcome(*parts: str) -> Callable[[dict[str, Json], str], Json]:
    """The outcome is a word, with its parts beside it."""

    def outcome(record: dict[str, Json], where: str) -> Json:
        beside = {part: found for part in parts if (found := record.pop(part))}
        word = record.pop("outcome", "")
        record |= {"outcome": {"type": word, **beside}} if word else beside
        return record if record.get("usage", True) else _without(record, "usage")

    return outcome


def _unused(record: dict[str, Json], where: str) -> Json:
    return record if record["usage"] else _without(record, "usage")


def _without(record: dict[str, Json], name: str) -> dict[str, Json]:
    return {key: value for key, value in record.items() if key != name}


_FINISHED: Final[dict[str, Callable[[dict[str, Json], str], Json]]] = {
    "Value": _value,
    "Struct": _struct,
    "List": _list,
    "Part": _alternative,
    "Source": _alternative,
    "Operation": _operation,
    "Message": _said,
    "TOOL_CALL_RESULT": _result,
    "RUN_FINISHED": _outcome("interrupts", "pendingToolCallIds"),
    "SUBAGENT_FINISHED": _outcome("interruptIds"),
    "RUN_ERROR": _unused,
}


def decoded(frame: bytes) -> dict[str, Json]:
    """The event in a frame, as its JSON. If the schema does not know its type, the type is the number of its field.
    Raises `Malformed`."""
    arms: dict[int, bytes] = {}
    for raw in _fields(frame, "the event"):
        if raw.wire_type == BYTES:
            arms[raw.number] = arms.get(raw.number, b"") + raw.content
        elif raw.number in _TYPES:
            raise Malformed(f"{_TYPES[raw.number]}: expected a message, found {_WORDS[raw.wire_type]}")
    known = [number for number in arms if number in _TYPES]
    if len(known) != 1:
        if not known and len(arms) == 1:
            return {"type": f"#{next(iter(arms))}"}
        found = ", ".join(_TYPES[number] for number in known) or "none"
        raise Malformed(f"expected one event in a frame, found {found}")
    type = _TYPES[known[0]]
    event = _message(type, arms[known[0]], type, 0)
    base = event.pop("base", None)
    if base is None or base["type"] != _EVENTS[type][1]:
        declared = "none" if base is None else base["type"]
        raise Malformed(f"{type}: expected the type {_EVENTS[type][1]} in its baseEvent, found {declared}")
    return {**event, **base, "type": type}
