"""Reads the wire format of Protocol Buffers: the fields of a message by number. The caller knows their meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
_SIZES: Final = {FIXED_64: 8, FIXED_32: 4}


class Malformed(Exception):
    """The bytes are not a message. The text names the fault."""


Messages: TypeAlias = "Mapping[int, Messages]"
"""The numbers of the fields of a message that are messages themselves, with those of each."""


class WireField(NamedTuple):
    """A field as it stands in the bytes: its content is a number of 64 bits or bytes, as its wire type says."""

    number: int
    content: Any
    wire_type: int


def fields(data: bytes) -> list[WireField]:
    """The fields of a message, in their order. Raises `Malformed`."""
    result: list[WireField] = []
    at, end = 0, len(data)
    while at < end:
        tag, at = (data[at], at + 1) if data[at] < 0x80 else varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == BYTES:
            size, at = varint(data, at)
        elif wire_type == VARINT and number:
            content, at = varint(data, at)
            result.append(WireField(number, content, wire_type))
            continue
        else:
            size = _SIZES.get(wire_type, -1)
        if number == 0 or size < 0:
            raise Malformed(f"{tag} begins no field")
        if at + size > end:
            raise Malformed(f"field {number} has {size} bytes, of which {end - at} are there")
        result.append(WireField(number, data[at : at + size], wire_type))
        at += size
    return result


def nested_fields(data: bytes, messages: Messages) -> list[tuple[int, Any]]:
    """The number and the content of each field; those that `messages` names are messages, whose fields are read too."""
    return [
        (number, nested_fields(content, messages[number]) if number in messages else content)
        for number, content, _ in fields(data)
    ]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and the index behind it: seven bits a byte, the lowest first."""
    number = 0
    for shift, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at + shift + 1
    raise Malformed("a number is cut off" if at + 10 > len(data) else "a number of over ten bytes")


def varints(data: bytes) -> Iterator[int]:
    """Numbers that stand one behind the other."""
    at = 0
    while at < len(data):
        number, at = varint(data, at)
        yield number
