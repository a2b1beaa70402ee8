"""UUIDs that Python does not make in all releases: of time and chance, and of given bits (RFC 9562)."""

from __future__ import annotations

import os
from hashlib import sha256
from uuid import UUID


def uuid7(ms: int, chance: int | None = None) -> UUID:
    """A UUIDv7 (RFC 9562): the time in milliseconds, then chance. Newer ids sort later, which keeps indexes warm. With
    `chance` 0 it is the first of its millisecond."""
    chance = int.from_bytes(os.urandom(10)) if chance is None else chance
    return uuid_of((ms & (2**48 - 1)) << 80 | chance, version=7)


def uuid_of(bits: int, version: int) -> UUID:
    """128 bits as a UUID of that version (RFC 9562), which Python's own class does not know in all releases."""
    bits = bits & ~(0xF << 76) | version << 76
    return UUID(int=bits & ~(0b11 << 62) | 0b10 << 62)


def derive_uuid(*parts: str) -> UUID:
    """An id made from its parts: the same parts give the same id."""
    return uuid_of(int.from_bytes(sha256("\x00".join(parts).encode()).digest()[:16]), version=8)
