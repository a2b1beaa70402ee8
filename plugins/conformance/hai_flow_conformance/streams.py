"""The bytes of a stream, read as a forgiving client would, with a note of everything that breaks a strict one.

Written for the conformance kit alone: it shares nothing with the encoders, so that a mistake there cannot hide here.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from hai_flow.values import Json
from hai_flow_conformance import protobuf

EVENT_STREAM: Final = "text/event-stream"
HAI_BINARY: Final = "application/vnd.hai.event+msgpack"
AGUI_BINARY: Final = "application/vnd.ag-ui.event+proto"


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that is broken: its id, a sentence, and the bytes that show it."""

    rule: str
    found: str
    shown: bytes = b""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its JSON object, and the bytes it came in."""

    value: dict[str, Json]
    raw: bytes

    @property
    def type(self) -> str:
        return str(self.value.get("type", ""))


def read_sse(stream: bytes) -> tuple[list[Event], list[Fault]]:
    """The events of a whole SSE response and the faults of its framing (docs/design/protocols.md#http-exchange)."""
    faults: list[Fault] = []
    if b"\r" in stream:
        at = stream.index(b"\r")
        faults.append(Fault("stream.line-feeds", "a carriage return ends a line", stream[max(0, at - 60) : at + 2]))
        stream = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if stream and not stream.endswith(b"\n\n"):
        faults.append(Fault("stream.last-blank", "the last event lacks its blank line", stream[-120:]))
    events: list[Event] = []
    for block in stream.removeprefix(b"\xef\xbb\xbf").split(b"\n\n"):
        event = _event(block, faults)
        if event is not None:
            events.append(event)
    return events, faults


def _event(block: bytes, faults: list[Fault]) -> Event | None:
    data: list[bytes] = []
    for line in block.split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        if not line.startswith(b"data: "):
            faults.append(Fault("stream.data-space", "`data:` without the space behind it", line))
        data.append(line[5:].removeprefix(b" "))
    return None if not data else _object_of(b"\n".join(data), block, faults)


def _object_of(data: bytes, raw: bytes, faults: list[Fault]) -> Event | None:
    """The one JSON object with a type that `data` must be."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        faults.append(Fault("stream.one-object", f"not one JSON document: {error}", raw))
        return None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        faults.append(Fault("stream.one-object", "no JSON object with a type", raw))
        return None
    return Event(value, raw)


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def frames(stream: bytes) -> tuple[list[bytes], str]:
    """The frames behind their length in four big-endian bytes; and the fault, or ""."""
    found: list[bytes] = []
    position = 0
    while position + 4 <= len(stream):
        (length,) = struct.unpack_from(">I", stream, position)
        frame = stream[position + 4 : position + 4 + length]
        if len(frame) < length:
            return found, f"a frame of {length} bytes is cut off after {len(frame)}"
        position += 4 + length
        found.append(frame)
    return found, "" if position == len(stream) else "a frame's length is cut off"


def read_message_pack(stream: bytes) -> tuple[list[Event], str]:
    """The events of HAI's binary form, in which an empty frame keeps the connection alive; and the fault, or ""."""
    return _read(stream, lambda frame: _unpacked(frame) if frame else None)


def read_protobuf(stream: bytes) -> tuple[list[Event], str]:
    """The events of AG-UI's binary form; and the fault, or ""."""
    return _read(stream, protobuf.decoded)


def _read(stream: bytes, decoded: Callable[[bytes], dict[str, Json] | None]) -> tuple[list[Event], str]:
    found, wrong = frames(stream)
    events: list[Event] = []
    for number, frame in enumerate(found):
        try:
            value = decoded(frame)
        except protobuf.Malformed as error:
            return events, f"frame {number}: {error}"
        if value is not None:
            events.append(Event(value, frame))
    return events, wrong


def _unpacked(frame: bytes) -> dict[str, Json]:
    try:
        value = msgspec.msgpack.decode(frame)
        plain = _is_plain(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise protobuf.Malformed(f"it is not MessagePack: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise protobuf.Malformed("it is no map with a type")
    if not plain:
        raise protobuf.Malformed("it holds something that JSON has not")
    return value


def _is_plain(value: Json) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(each) for name, each in value.items())
    if isinstance(value, list):
        return all(_is_plain(each) for each in value)
    return isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value))


BINARY_FORMS: Final = {HAI_BINARY: read_message_pack, AGUI_BINARY: read_protobuf}
