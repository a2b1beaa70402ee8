"""JSON Pointers (RFC 6901): made of their parts, and taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

INDEX_DIGITS_MAX: Final = 15


class NotAPointer(ValueError):
    """A text that is no JSON Pointer."""


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """The parts of a JSON Pointer. Raises `NotAPointer`."""
    if pointer == "":
        return ()
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise NotAPointer(f"expected a JSON Pointer such as /plan/0/status, found {pointer!r}")
    return tuple(unescape(part) for part in pointer[1:].split("/"))


def pointer_of(*parts: str | int) -> str:
    return "".join("/" + escape(str(part)) for part in parts)


def read_index(part: str) -> int | None:
    """The position in a list that a part means, which may lie beyond its end; None: it means none. Of digits that are
    not ASCII, or of thousands, Python makes no number."""
    if not part.isascii() or not part.isdigit() or len(part) > INDEX_DIGITS_MAX or (part[0] == "0" and part != "0"):
        return None
    return int(part)


def find_key(holder: Any, part: str) -> str | int | None:
    """The name or the position in an object or a list that a part means; None: there is nothing of that."""
    if isinstance(holder, Mapping):
        return part if part in holder else None
    index = read_index(part) if isinstance(holder, list) else None
    return index if index is not None and index < len(holder) else None


def escape(part: str) -> str:
    """A part as it stands in a pointer."""
    return part.replace("~", "~0").replace("/", "~1")


def unescape(part: str) -> str:
    """The part that stands in a pointer like this."""
    return part.replace("~1", "/").replace("~0", "~")
