"""Durations as text (docs/language.md#notation): `1h30m`, `500ms`, `P1DT2H`. Everything inside is milliseconds."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT = re.compile(r"(?:[0-9]{1,15}(?:ms|s|m|h|d|w))+")
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d|w)")
_ISO = re.compile(
    r"P(?=.)(?:([0-9]{1,15})W)?(?:([0-9]{1,15})D)?"
    r"(?:T(?=.)(?:([0-9]{1,15})H)?(?:([0-9]{1,15})M)?(?:([0-9]{1,15})S)?)?"
)
_ISO_UNITS: Final = ("w", "d", "h", "m", "s")

SHORTEST: Final = 1_000
LONGEST: Final = 3_650 * _UNITS["d"]


class NotADuration(ValueError):
    """A text that is no duration, or one out of bounds. The message has the expected form and the text."""


def milliseconds(text: str, *, shortest: int = SHORTEST) -> int:
    """The duration `text` in milliseconds, between `shortest` (ms) and ten years. Raises `NotADuration`."""
    total = _total(text)
    if total is None:
        raise NotADuration(f"expected a duration such as 90s, 1h30m, 7d or PT5M, found {text!r}")
    if not shortest <= total <= LONGEST:
        raise NotADuration(f"expected a duration from {spell(shortest)} to 10 years, found {text!r}")
    return total


def _total(text: str) -> int | None:
    if _SHORT.fullmatch(text):
        return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    iso = _ISO.fullmatch(text)
    if iso:
        return sum(int(count) * _UNITS[unit] for count, unit in zip(iso.groups(), _ISO_UNITS, strict=True) if count)
    return None


def spell(duration: int) -> str:
    """`duration` (ms) in the language's short form: 5400000 -> "1h30m"."""
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, duration = divmod(duration, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
