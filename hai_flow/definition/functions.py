"""Functions beside those of CEL: `sum`, `sort_by`, `group_by` and `format_time`.

All four are functions of their arguments alone: no locale, no clock; time zones come from the IANA database, as those
of triggers do. Here they are computed; how `sort_by(r, r.name)` becomes CEL is in `cel_macros`.
"""

from __future__ import annotations

import datetime
import math
import zoneinfo
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hai_flow.definition import zones
from hai_flow.values import Json

SECONDS_SHOWN: Final = 5  # an offset, like +0100

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DIRECTIVES: Final = "YmdHMSjuVGABabz%"
"""The letters that may stand behind a `%` in a pattern of `format_time`."""


def total(numbers: Sequence[Json]) -> float:
    """The sum of numbers, rounded once; 0 of none. Raises ValueError for anything but numbers."""
    for each in numbers:
        if isinstance(each, bool) or not isinstance(each, int | float):
            raise ValueError(f"sum adds numbers, found {_kind(each)}; choose them first: rows.map(r, r.amount).sum()")
    return math.fsum(numbers)


def sorted_by(pairs: Sequence[Json]) -> list[Json]:
    """The second of each pair, in the order of the first; equal ones keep their order. Raises ValueError where the
    first can't be ordered."""
    kinds = {_kind(key) for key, _ in pairs}
    if len(kinds) > 1:
        raise ValueError(f"sort_by orders by values of one type, found {' and '.join(sorted(kinds))}")
    if kinds - _ORDERED:
        raise ValueError(f"sort_by orders by numbers, text, booleans or times, found {kinds.pop()}")
    return [item for _, item in sorted(pairs, key=lambda pair: pair[0])]


def grouped_by(pairs: Sequence[Json]) -> list[Json]:
    """`{key, items}` for each different first of the pairs, in the order in which they come first. Raises ValueError
    where the first is a list or a map."""
    groups: dict[Any, dict[str, Json]] = {}
    for key, item in pairs:
        if isinstance(key, list | dict):
            raise ValueError(f"group_by takes a number, text, boolean, time or null as the key, found {_kind(key)}")
        groups.setdefault((_kind(key), key), {"key": key, "items": []})["items"].append(item)
    return list(groups.values())


def format_time(moment: datetime.datetime, pattern: str, zone: str) -> str:
    """The instant as the pattern says, in a time zone. Raises ValueError for a pattern or zone that is not known."""
    fault = pattern_fault(pattern) or zone_fault(zone)
    if fault:
        raise ValueError(fault)
    local = moment.astimezone(zoneinfo.ZoneInfo(zone))
    year, week, day = local.isocalendar()
    written = {
        "Y": f"{local.year:04d}", "m": f"{local.month:02d}", "d": f"{local.day:02d}", "H": f"{local.hour:02d}",
        "M": f"{local.minute:02d}", "S": f"{local.second:02d}", "j": f"{local.timetuple().tm_yday:03d}",
        "u": str(day), "V": f"{week:02d}", "G": f"{year:04d}", "A": _DAYS[day - 1], "a": _DAYS[day - 1][:3],
        "B": _MONTHS[local.month - 1], "b": _MONTHS[local.month - 1][:3],
        "z": local.strftime("%z")[:SECONDS_SHOWN], "%": "%",
    }  # fmt: skip
    return "".join(written[part] if special else part for special, part in _parts(pattern))


def pattern_fault(pattern: str) -> str | None:
    """Why this is no pattern of `format_time`, or None."""
    unknown = next((part for special, part in _parts(pattern) if special and part not in tuple(DIRECTIVES)), None)
    if unknown is None:
        return None
    listed = " ".join(f"%{letter}" for letter in DIRECTIVES)
    return f"`%{unknown}` means nothing in format_time; there are {listed}"


def zone_fault(zone: str) -> str | None:
    """Why this is no time zone, or None."""
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zones.zone_fault(zone)
    return None


def _parts(pattern: str) -> Iterable[tuple[bool, str]]:
    """The pattern letter by letter: whether a `%` stood before it. A `%` at the end comes as an empty one."""
    letters = iter(pattern)
    for letter in letters:
        yield (True, next(letters, "")) if letter == "%" else (False, letter)


_ORDERED: Final = frozenset(("a number", "text", "a boolean", "a time", "a duration"))
_KINDS: Final = (
    (bool, "a boolean"), (int | float, "a number"), (str, "text"), (datetime.datetime, "a time"),
    (datetime.timedelta, "a duration"), (list, "a list"), (dict, "a map"), (type(None), "null"),
)  # fmt: skip


def _kind(value: Json) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "another type")
