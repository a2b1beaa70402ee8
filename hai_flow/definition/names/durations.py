"""Durations as text (docs/language.md#notation): `1h30m`, `500ms`, `P1DT2H`. Everything inside is milliseconds."""

from __future__ import annotations

import math
import re
from typing import Final

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT = re.compile(r"(?:[0-9]{1,15}(?:ms|s|m|h|d|w))+")
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d|w)")
_ORDERED = re.compile(r"(?:[0-9]+w)?(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m)?(?:[0-9]+s)?(?:[0-9]+ms)?")
_ISO = re.compile(
    r"P(?=.)(?:([0-9]{1,15})W)?(?:([0-9]{1,15})D)?"
    r"(?:T(?=.)(?:([0-9]{1,15})H)?(?:([0-9]{1,15})M)?(?:([0-9]{1,15})S)?)?"
)
_ISO_UNITS: Final = ("w", "d", "h", "m", "s")
_COMPUTED: Final = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")  # as CEL writes a length: `86399.877s`

_MEANT_UNIT: Final = r"ms|(?:second|sec|minute|min|hour|hr|day|week)s?|[smhdw]"
_MEANT = re.compile(rf"(?:[0-9]{{1,9}}(?:\.[0-9]{{1,3}})?\s*(?:{_MEANT_UNIT})[\s,]*)+(?:[0-9]{{1,2}})?")
_MEANT_PART = re.compile(rf"([0-9]+(?:\.[0-9]+)?)\s*({_MEANT_UNIT}|$)")
_MONTHS: Final = re.compile(r"[0-9]\s*M\b")
_NEXT: Final = {"d": "h", "h": "m", "m": "s"}  # `2h30` is half past

SHORTEST: Final = 1_000
LONGEST: Final = 3_650 * _UNITS["d"]


class NotADuration(ValueError):
    """A text that is no duration, or one out of bounds. The message has the expected form and the text."""


def milliseconds(text: str, *, shortest: int = SHORTEST, ordered: bool = True) -> int:
    """The duration `text` in milliseconds, between `shortest` (ms) and ten years. Raises `NotADuration`, also for
    units that are repeated or out of order (`1h1h`, `1m1h`), unless they need not be `ordered`: then a hole has given
    it, which may also be a length that CEL has computed (`86399.877s`)."""
    total = _total(text)
    if total is None and not ordered and (computed := _COMPUTED.fullmatch(text)) is not None:
        total = int(computed[2]) * 1_000 + int((computed[3] or "")[:3].ljust(3, "0"))
        if computed[1]:
            raise NotADuration(f"expected a duration from {spell(shortest)} to 10 years, found {text!r}: it is over")
    if total is None:
        raise NotADuration(f"expected a duration such as 90s, 1h30m, 7d or PT5M, found {text!r}")
    if ordered and _SHORT.fullmatch(text) and not _ORDERED.fullmatch(text):
        raise NotADuration(f"expected a duration with each unit once, the largest first, such as 1h30m, found {text!r}")
    if not shortest <= total <= LONGEST:
        raise NotADuration(f"expected a duration from {spell(shortest)} to 10 years, found {text!r}")
    return total


def format_cel_duration(text: str) -> str:
    """A duration of the language as CEL writes it (`2d` -> `172800000ms`); any other text as it is."""
    sign, rest = ("-", text[1:]) if text.startswith("-") else ("", text)
    total = _total(rest)
    return text if total is None else f"{sign}{total}ms"


def _total(text: str) -> int | None:
    if _SHORT.fullmatch(text):
        return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    iso = _ISO.fullmatch(text)
    if iso:
        return sum(int(count) * _UNITS[unit] for count, unit in zip(iso.groups(), _ISO_UNITS, strict=True) if count)
    return None


def guess_duration(text: str) -> str:
    """The duration that was meant by "5 minutes", "2h30", "1h 30m", "30m1h" or "2.5h", in the short form; "" for
    others."""
    lowered = text.strip().lower()
    if not _MEANT.fullmatch(lowered) or _MONTHS.search(text):
        return ""
    total, last = 0.0, ""
    parts: dict[str, str] = {}
    for count, word in _MEANT_PART.findall(lowered):
        unit = ("ms" if word == "ms" else word[0]) if word else _NEXT.get(last, "")
        if unit in parts:
            return ""
        total, last, parts[unit] = total + float(count) * _UNITS.get(unit, math.nan), unit, f"{count}{unit}"
    if not (SHORTEST <= total <= LONGEST and total == int(total)):
        return ""
    return spell(int(total)) if "." in lowered else "".join(parts[unit] for unit in reversed(_UNITS) if unit in parts)


def spell(duration: int) -> str:
    """`duration` (ms) in the language's short form: 5400000 -> "1h30m"."""
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, duration = divmod(duration, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
