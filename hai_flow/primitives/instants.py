"""Instants: everything counts milliseconds since 1970 in UTC; here they become text and datetimes, and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):([0-5]\d|60)(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(ms: int) -> str:
    """An instant (milliseconds since 1970, UTC) as people and programs read it: `2026-03-02T09:00:00.000Z`."""
    second, rest = divmod(ms, 1000)
    return f"{_render_second(second)}.{rest:03}Z"


@lru_cache(maxsize=1024)
def _render_second(second: int) -> str:
    """A page of a run has thousands of instants, many of the same second: to make one anew takes ten times as long."""
    return instant(second * 1000).isoformat()[:-6]


def instant(ms: int) -> datetime:
    """Milliseconds since 1970 as an aware datetime."""
    return _EPOCH + timedelta(milliseconds=ms)


def milliseconds(instant: datetime) -> int:
    """An aware datetime as milliseconds since 1970, rounded down."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def read_rfc3339(text: str) -> int:
    """The instant that a text names, as milliseconds since 1970, rounded down. RFC 3339, which allows `t` and `z` in
    small letters and a leap second; the offset may lack its colon, as `%z` of `format_time` writes it.

    Raises ValueError for anything else: without an offset, with a space for the `T`, or on a day that never comes."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("expected an instant as RFC 3339 has it")
    day, minute, second, fraction, offset = match.groups()
    leap = second == "60"
    zone = "+00:00" if offset in ("Z", "z") else offset
    moment = datetime.fromisoformat(f"{day}T{minute}:{'59' if leap else second}{zone}")
    whole_seconds = milliseconds(moment)
    if leap and whole_seconds % 86_400_000 != 86_399_000:
        raise ValueError("a leap second is the last one of a day in UTC")
    return whole_seconds + (1000 if leap else int((fraction or ".0")[1:4].ljust(3, "0")))
