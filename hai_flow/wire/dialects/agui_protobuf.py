"""AG-UI's events as Protocol Buffers, for peers of version 1.0 (docs/design/protocols.md#binary-frames).

A frame is the event's JSON written again as the message `Event`, whose one field names its type; before it stands its
length in four bytes. The numbers are those of the protocol's own schema, for the events that the server sends. Nothing
is read here. Tests compare the bytes with those that the protocol's own encoder writes.

The schema has oddities: the type stands in `baseEvent` too, as a number; the outcome is a string with its parts beside
it; a message has one field for content that is text, one for parts and one for an activity's object."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from hai_flow import values
from hai_flow.values import Json
from hai_flow.wire.sse import Framing, encode_with_length

Write: TypeAlias = Callable[[int, Json], bytes]

CONTENT_TYPE: Final = "application/vnd.ag-ui.event+proto"

# --- the wire format ----------------------------------------------------------------------------------------------


def _encode_varint(number: int) -> bytes:
    """A number of at least 0, seven bits in each byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _bytes(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(len(content)) + content


def _encode_string(number: int, text: Json) -> bytes:
    return _bytes(number, str(text).encode())


def _text(number: int, text: Json) -> bytes:
    """A string that is left out if it is empty."""
    return _encode_string(number, text) if text else b""


def _integer(number: int, value: Json) -> bytes:
    return _encode_varint(number << 3) + _encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)


# --- google.protobuf.Value ----------------------------------------------------------------------------------------


def _value(value: Json) -> bytes:
    if value is None:
        return _integer(1, 0)
    if isinstance(value, bool):
        return _integer(4, int(value))
    if isinstance(value, int | float):
        return _encode_varint(2 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, str):
        return _encode_string(3, value)
    if isinstance(value, dict):
        return _bytes(5, _struct(value))
    return _bytes(6, b"".join(_bytes(1, _value(item)) for item in value))


def _struct(record: dict[str, Json]) -> bytes:
    return b"".join(_bytes(1, _text(1, key) + _bytes(2, _value(item))) for key, item in record.items())


def _encode_value_field(number: int, value: Json) -> bytes:
    return _bytes(number, _value(value))


def _map(number: int, record: Json) -> bytes:
    return _bytes(number, _struct(record))


# --- messages -----------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    """A field of a message: its number, its name in JSON, and how it is written."""

    number: int
    name: str
    write: Write


def _message(fields: Sequence[_Field], record: dict[str, Json]) -> bytes:
    return b"".join(field.write(field.number, record[field.name]) for field in fields if field.name in record)


def _message_field(fields: Sequence[_Field]) -> Write:
    return lambda number, record: _bytes(number, _message(fields, record))


def _repeated_field(write: Write) -> Write:
    return lambda number, items: b"".join(write(number, item) for item in items)


def _fields(*fields: tuple[int, str, Write]) -> tuple[_Field, ...]:
    return tuple(_Field(*field) for field in fields)


_SOURCES: Final = {
    "data": (1, _fields((1, "value", _text), (2, "mimeType", _text))),
    "url": (2, _fields((1, "value", _text), (2, "mimeType", _encode_string))),
    "file": (3, _fields((1, "value", _text), (2, "provider", _encode_string), (3, "mimeType", _encode_string))),
}
_PARTS: Final = {"text": 1, "image": 2, "audio": 3, "video": 4, "document": 5}


def _part(number: int, part: Json) -> bytes:
    if part["type"] == "text":
        content = _message(
            _fields((1, "text", _text), (2, "id", _encode_string), (3, "metadata", _encode_value_field)), part
        )
    else:
        source = part["source"]
        place, fields = _SOURCES[source["type"]]
        content = _bytes(1, _bytes(place, _message(fields, source)))
        content += _message(_fields((2, "metadata", _encode_value_field), (3, "id", _encode_string)), part)
    return _bytes(number, _bytes(_PARTS[part["type"]], content))


_FUNCTION: Final = _fields((1, "name", _text), (2, "arguments", _text))
_TOOL_CALL: Final = _fields((1, "id", _text), (2, "type", _text), (3, "function", _message_field(_FUNCTION)))
_MESSAGE: Final = _fields(
    (1, "id", _text),
    (2, "role", _text),
    (3, "content", _encode_string),
    (4, "name", _encode_string),
    (5, "toolCalls", _repeated_field(_message_field(_TOOL_CALL))),
    (6, "toolCallId", _encode_string),
    (7, "error", _encode_string),
    (8, "contentParts", _repeated_field(_part)),
    (9, "metadata", _map),
    (12, "activityType", _encode_string),
    (13, "activityContent", _map),
)


def _encode_message_variant(number: int, message: Json) -> bytes:
    """A message. Its content goes into the field for its kind."""
    content = message.get("content")
    place = {list: "contentParts", dict: "activityContent"}.get(type(content))
    if place is not None:
        message = {**{name: value for name, value in message.items() if name != "content"}, place: content}
    return _bytes(number, _message(_MESSAGE, message))


_INTERRUPT: Final = _fields(
    (1, "id", _text),
    (2, "reason", _text),
    (3, "message", _encode_string),
    (4, "toolCallId", _encode_string),
    (5, "responseSchema", _encode_value_field),
    (6, "expiresAt", _encode_string),
    (7, "metadata", _encode_value_field),
)
_OPERATIONS: Final = ("add", "remove", "replace", "move", "copy", "test")


def _operation(number: int, operation: Json) -> bytes:
    kind = _OPERATIONS.index(operation["op"])
    rest = _message(
        _fields((2, "path", _text), (3, "from", _encode_string), (4, "value", _encode_value_field)), operation
    )
    return _bytes(number, (_integer(1, kind) if kind else b"") + rest)


# --- events -------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """A type of event: its number in `baseEvent`, that of its field in `Event`, and its own fields."""

    type: int
    field: int
    fields: tuple[_Field, ...]


_MESSAGE_ID: Final = (2, "messageId", _text)
_CALL_ID: Final = (2, "toolCallId", _text)
_REASONING_ID: Final = (3, "messageId", _text)
_STEP: Final = (2, "stepName", _text)
_RUN: Final = ((2, "threadId", _text), (3, "runId", _text))

_KINDS: Final[dict[str, _Kind]] = {
    name: _Kind(type, field, _fields(*fields))
    for name, type, field, fields in (
        ("TEXT_MESSAGE_START", 0, 1, (_MESSAGE_ID, (3, "role", _encode_string), (4, "name", _encode_string))),
        ("TEXT_MESSAGE_CONTENT", 1, 2, (_MESSAGE_ID, (3, "delta", _text))),
        ("TEXT_MESSAGE_END", 2, 3, (_MESSAGE_ID,)),
        ("TOOL_CALL_START", 3, 4, (_CALL_ID, (3, "toolCallName", _text), (4, "parentMessageId", _encode_string))),
        ("TOOL_CALL_ARGS", 4, 5, (_CALL_ID, (3, "delta", _text))),
        ("TOOL_CALL_END", 5, 6, (_CALL_ID,)),
        ("STATE_SNAPSHOT", 6, 7, ((2, "snapshot", _encode_value_field),)),
        ("STATE_DELTA", 7, 8, ((2, "delta", _repeated_field(_operation)),)),
        ("MESSAGES_SNAPSHOT", 8, 9, ((2, "messages", _repeated_field(_encode_message_variant)),)),
        ("RAW", 9, 10, ((2, "event", _encode_value_field), (3, "source", _encode_string))),
        ("CUSTOM", 10, 11, ((2, "name", _text), (3, "value", _encode_value_field))),
        ("RUN_STARTED", 11, 12, (*_RUN, (4, "parentRunId", _encode_string), (6, "protocolVersion", _encode_string))),
        (
            "RUN_FINISHED",
            12,
            13,
            (
                *_RUN,
                (4, "result", _encode_value_field),
                (5, "outcome", _text),
                (6, "interrupts", _repeated_field(_message_field(_INTERRUPT))),
            ),
        ),
        ("RUN_ERROR", 13, 14, ((2, "code", _encode_string), (3, "message", _text))),
        ("STEP_STARTED", 14, 15, (_STEP,)),
        ("STEP_FINISHED", 15, 16, (_STEP,)),
        (
            "TOOL_CALL_RESULT",
            21,
            22,
            (
                (3, "messageId", _text),
                (4, "toolCallId", _text),
                (5, "content", _encode_string),
                (6, "role", _encode_string),
            ),
        ),
        ("ACTIVITY_SNAPSHOT", 22, 23, (_REASONING_ID, (4, "activityType", _text), (5, "content", _map))),
        ("REASONING_START", 24, 25, (_REASONING_ID,)),
        ("REASONING_MESSAGE_START", 25, 26, (_REASONING_ID, (4, "role", _text))),
        ("REASONING_MESSAGE_CONTENT", 26, 27, (_REASONING_ID, (4, "delta", _text))),
        ("REASONING_MESSAGE_END", 27, 28, (_REASONING_ID,)),
        ("REASONING_END", 29, 30, (_REASONING_ID,)),
    )
}


def encode_event(event: dict[str, Json]) -> bytes:
    """An event that the server sends, as the message `Event`."""
    kind = _KINDS[event["type"]]
    base = _integer(1, kind.type) if kind.type else b""
    base += _message(_fields((2, "timestamp", _integer), (4, "metadata", _map)), event)
    outcome = event.get("outcome")
    if outcome is not None:
        event = {**event, "outcome": outcome["type"], "interrupts": outcome.get("interrupts", ())}
    return _bytes(kind.field, _bytes(1, base) + _message(kind.fields, event))


def _render(data: bytes, name: str, id: str | None) -> bytes:
    return encode_with_length(encode_event(values.loads(data)))


PROTOBUF: Final = Framing(CONTENT_TYPE, _render)
"""This framing has no ids: a client that loses its stream posts again."""
