"""Instants: everything counts milliseconds since 1970 in UTC; here they become text and datetimes, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
