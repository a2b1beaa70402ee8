"""JSON values at the edge: which values may enter a run, and the one way to write them down.

A value that PostgreSQL, JavaScript or JSON itself could not carry unchanged must be refused where it enters, because
later it would poison a whole batch (docs/design/promises.md#bounds)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

Json: TypeAlias = Any
"""A JSON value: null, a boolean, a number, text, or a list or a mapping of these."""

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 64

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class NotJson(ValueError):
    """A value that is not plain JSON. The message says where (a JSON Pointer) and why."""


_FILE_ID: Final = re.compile(rb"(?<![0-9A-Za-z_])file_([0-9a-f]{64})(?![0-9A-Za-z_])")


def file_id(sha256: bytes) -> str:
    """The id of the file whose content has this sha256: values refer to the file by it."""
    return f"file_{sha256.hex()}"


def sha256_of_file(id: str) -> bytes | None:
    """The sha256 in the id of a file; None: it is no file's id."""
    found = _FILE_ID.fullmatch(id.encode(errors="replace"))
    return None if found is None else bytes.fromhex(found[1].decode())


def files_in(text: bytes) -> set[bytes]:
    """The sha256 of each file that JSON text refers to: wherever its id stands, also within a longer text."""
    return {bytes.fromhex(found.decode()) for found in _FILE_ID.findall(text)} if b"file_" in text else set()


def dumps(value: Any) -> bytes:
    """`value` as compact JSON text (UTF-8). Key order is kept, so that a value is stored as it was given."""
    return _encode(value)


def loads(text: bytes | str) -> Any:
    """The JSON value written in `text`. Raises `NotJson`."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotJson(f"expected JSON, found something else: {error}") from None
    except RecursionError:
        raise NotJson(f"expected JSON, found what is nested deeper than {DEPTH_MAX} levels") from None


_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Text of the world outside, from models, tools and servers: characters that `check` refuses are replaced
    (docs/design/promises.md#bounds)."""
    return _UNSTORABLE.sub("\ufffd", text)


def with_texts(value: Json, change: Callable[[str], str], *, names: bool = False) -> Json:
    """A JSON value with each text in it as `change` gives it; with `names` also the names of members."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key) if names else key: with_texts(each, change, names=names) for key, each in value.items()}
    return [with_texts(each, change, names=names) for each in value] if isinstance(value, list) else value


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(ms: int) -> str:
    """An instant (milliseconds since 1970, UTC) as people and programs read it: `2026-03-02T09:00:00.000Z`."""
    return instant(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(ms: int) -> datetime:
    """Milliseconds since 1970 as an aware datetime."""
    return _EPOCH + timedelta(milliseconds=ms)


def milliseconds(instant: datetime) -> int:
    """An aware datetime as milliseconds since 1970, rounded down."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def uuid7(ms: int, chance: int | None = None) -> UUID:
    """A UUIDv7 (RFC 9562): the time in milliseconds, then chance. Newer ids sort later, which keeps indexes warm. With
    `chance` 0 it is the first of its millisecond."""
    chance = int.from_bytes(os.urandom(10)) if chance is None else chance
    return uuid_of((ms & (2**48 - 1)) << 80 | chance, version=7)


def uuid_of(bits: int, version: int) -> UUID:
    """128 bits as a UUID of that version (RFC 9562), which Python's own class does not know in all releases."""
    bits = bits & ~(0xF << 76) | version << 76
    return UUID(int=bits & ~(0b11 << 62) | 0b10 << 62)


def check(value: Any) -> Any:
    """`value` itself if it is plain JSON; else raises `NotJson`, which names the place.

    Refused: NaN and infinities, integers beyond 2^53 - 1, NUL and lone surrogates in strings, keys that are not
    strings, nesting deeper than 64, and every Python type that JSON does not have (tuples become lists on the way).
    """
    _check(value, "", 0)
    return value


def _check(value: Any, pointer: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if "\x00" in value:
            raise NotJson(f"{pointer or 'the value'}: a NUL character can't be stored; remove it")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise NotJson(f"{pointer or 'the value'}: a lone surrogate is not text; replace it") from None
    elif kind is int:
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise NotJson(f"{pointer or 'the value'}: integers beyond 2^53 lose digits; send it as a string")
    elif value is None or kind is bool:
        return
    elif kind is float:
        if not math.isfinite(value):
            raise NotJson(f"{pointer or 'the value'}: {value} is not a JSON number")
    elif depth >= DEPTH_MAX:
        raise NotJson(f"{pointer}: nested deeper than {DEPTH_MAX} levels")
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            _check(item, f"{pointer}/{index}", depth + 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise NotJson(f"{pointer or 'the value'}: keys are strings, found {key!r}")
            _check(key, f"{pointer}/{key}", depth + 1)
            _check(item, f"{pointer}/{key}", depth + 1)
    else:
        raise NotJson(f"{pointer or 'the value'}: {kind.__name__} is not a JSON type")
