"""When a server is asked again: by the `Retry-After` of its answer, and ever more seldom."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

RETRY_AFTER_MAX: Final = 86_400.0
_CHARS_MAX: Final = 100  # of the header
_SEVERAL: Final = re.compile(r"\s*\d+(?:\s*,\s*\d+)+\s*")  # of a proxy that adds its own header
_UNIT: Final = re.compile(r"\s*s(?:ec(?:ond)?s?)?\s*\Z", re.I)  # which some servers write behind the number


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """After how many seconds a server wants to be asked again, if it says so. `headers` by lower-case names."""
    in_ms, header = headers.get("retry-after-ms"), headers.get("retry-after")
    header = header and header[:_CHARS_MAX]
    if header is not None and _SEVERAL.fullmatch(header):
        header = max(header.split(","), key=int)
    if in_ms is None and header is None:
        return None
    try:
        seconds = float(in_ms) / 1000 if in_ms is not None else float(_UNIT.sub("", header or ""))
    except ValueError:
        try:
            at = _instant_of(header or "")
        except ValueError:
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        seconds = (at - (now or datetime.now(UTC))).total_seconds()
    return None if math.isnan(seconds) else min(max(seconds, 0.0), RETRY_AFTER_MAX)


def wait_for_try(tries: int, first: float, longest: float, at_least: float | None = None) -> timedelta:
    """How long to wait after so many tries: `first` seconds, then each time twice as long, up to `longest`. Those that
    failed together do not come back together."""
    wait = min(first * 2 ** (tries - 1), longest) * random.uniform(0.8, 1.2)
    return timedelta(seconds=max(wait, at_least or 0.0))


def _instant_of(text: str) -> datetime:
    """A date as HTTP writes it, or as ISO 8601 does. Raises ValueError."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return parsedate_to_datetime(text)
