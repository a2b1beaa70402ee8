"""Functions beside those of CEL: `sum`, `sort_by`, `group_by` and `format_time`.

All four are functions of their arguments alone: no locale, no clock; time zones come from the IANA database, as those
of triggers do. Here they are computed; how `sort_by(r, r.name)` becomes CEL is in `cel_macros`."""

from __future__ import annotations

import datetime
import math
import re
import zoneinfo
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hai_flow.definition.expressions.value_text import as_text
from hai_flow.definition.names import zones
from hai_flow.schedule import MONTHS
from hai_flow.values import Json

SECONDS_SHOWN: Final = 5  # an offset, like +0100

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DIRECTIVES: Final = "YmdHMSjuVGABabz%"
"""The letters that may stand behind a `%` in a pattern of `format_time`."""


def total(numbers: Sequence[Json]) -> float:
    """The sum of numbers, rounded once; 0 of none. Raises ValueError for anything but numbers."""
    for each in numbers:
        if isinstance(each, bool) or not isinstance(each, int | float):
            raise ValueError(f"sum adds numbers, found {_kind(each)}; choose them first: rows.map(r, r.amount).sum()")
    return math.fsum(numbers)


def sort_pairs(pairs: Sequence[Json]) -> list[Json]:
    """The second of each pair, in the order of the first; equal ones keep their order. Raises ValueError where the
    first can't be ordered."""
    kinds = {_kind(key) for key, _ in pairs}
    if len(kinds) > 1:
        raise ValueError(f"sort_by orders by values of one type, found {' and '.join(sorted(kinds))}")
    if kinds - _ORDERED:
        raise ValueError(f"sort_by orders by numbers, text, booleans or times, found {kinds.pop()}")
    return [item for _, item in sorted(pairs, key=lambda pair: pair[0])]


def group_pairs(pairs: Sequence[Json]) -> list[Json]:
    """`{key, items}` for each different first of the pairs, in the order in which they come first. Raises ValueError
    where the first is a list or a map."""
    groups: dict[Any, dict[str, Json]] = {}
    for key, item in pairs:
        if isinstance(key, list | dict):
            raise ValueError(f"group_by takes a number, text, boolean, time or null as the key, found {_kind(key)}")
        groups.setdefault((_kind(key), key), {"key": key, "items": []})["items"].append(item)
    return list(groups.values())


def texts(items: Sequence[Json]) -> list[str]:
    """The items of a list that `join` writes: numbers and booleans as they stand in texts. Raises ValueError for
    lists, maps, null, times and durations."""
    for each in items:
        if not isinstance(each, str | bool | int | float):
            raise ValueError(f"join writes texts, numbers and booleans, found {_kind(each)}; map the list to one first")
    return [as_text(each) for each in items]


def part(text: str, start: int, end: int) -> str:
    """The characters from `start` to before `end`, which may be the size of the text: for the library it may not.
    Raises ValueError where the text has no such places."""
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"substring({start}, {end}) of a text with {len(text)} characters; test its size before")
    return text[start:end]


def remainder(dividend: float, divisor: float) -> float:
    """The remainder of whole numbers, with the sign of the dividend, as for integers of CEL: numbers without a known
    type are doubles. Raises ValueError for a fraction and for a divisor of 0."""
    if not (float(dividend).is_integer() and float(divisor).is_integer()):
        raise ValueError(f"% divides whole numbers, found {dividend:g} and {divisor:g}; use math.round, or a tool")
    if divisor == 0:
        raise ValueError("modulus by zero")
    return math.fmod(dividend, divisor)


def divide(dividend: float, divisor: float) -> float:
    """The quotient. A divisor of 0 gives infinity or NaN, as for doubles of CEL."""
    if divisor == 0:
        return math.nan if dividend == 0 else math.copysign(math.inf, dividend) * math.copysign(1, divisor)
    return dividend / divisor


def add(one: float, other: float) -> float:
    return float(one + other)


def subtract(one: float, other: float) -> float:
    return float(one - other)


def multiply(one: float, other: float) -> float:
    return float(one) * float(other)


MIXED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": add, "-": subtract, "*": multiply, "/": divide, "%": remainder,
}  # fmt: skip
"""What the operators of arithmetic do with an int beside a double, which CEL has no overload for."""


def format_time(moment: datetime.datetime, pattern: str, zone: str) -> str:
    """The instant as the pattern says, in a time zone. Raises ValueError for a pattern or zone that is not known."""
    fault = check_pattern(pattern) or check_zone(zone)
    if fault:
        raise ValueError(fault)
    local = moment.astimezone(zoneinfo.ZoneInfo(zone))
    year, week, day = local.isocalendar()
    by_directive = {
        "Y": f"{local.year:04d}", "m": f"{local.month:02d}", "d": f"{local.day:02d}", "H": f"{local.hour:02d}",
        "M": f"{local.minute:02d}", "S": f"{local.second:02d}", "j": f"{local.timetuple().tm_yday:03d}",
        "u": str(day), "V": f"{week:02d}", "G": f"{year:04d}", "A": _DAYS[day - 1], "a": _DAYS[day - 1][:3],
        "B": MONTHS[local.month - 1], "b": MONTHS[local.month - 1][:3],
        "z": local.strftime("%z")[:SECONDS_SHOWN], "%": "%",
    }  # fmt: skip
    return "".join(by_directive[part] if special else part for special, part in _parts(pattern))


def check_pattern(pattern: str) -> str | None:
    """Why this is no pattern of `format_time`, or None."""
    unknown = next((part for special, part in _parts(pattern) if special and part not in tuple(DIRECTIVES)), None)
    if unknown is None:
        return None
    listed = " ".join(f"%{letter}" for letter in DIRECTIVES)
    return f"`%{unknown}` means nothing in format_time; there are {listed}"


def check_foreign_pattern(pattern: str) -> str | None:
    """The remedy for a pattern of Java, .NET, moment.js, PHP or Go, which `format_time` would write as it stands; None
    where there is a `%`, or this looks like none of them."""
    meant = None if "%" in pattern else _to_directives(pattern)
    if meant is None:
        return None
    return f"`{pattern[:80]}` is a pattern of another language, and has no directive of format_time; write `{meant}`"


_NONE: Final = "\0"  # for what no directive writes
_LETTERS: Final = {
    "Y": ("YYYY", "yyyy", "uuuu", "YY", "yy", "y"), "m": ("MM", "M", "mo"), "B": ("MMMM",), "b": ("MMM",),
    "d": ("DD", "dd", "D", "d"), "A": ("dddd", "EEEE"), "a": ("ddd", "EEE", "EE", "E"), "j": ("DDD", "DDDD"),
    "H": ("HH", "H", "hh", "h", "kk", "k"), "M": ("mm", "m"), "S": ("ss", "s"), "V": ("ww", "WW"),
    "z": ("Z", "ZZ", "ZZZ", "XXX", "XX", "X", "xxx", "xx", "z", "zzz", "K"),
}  # fmt: skip
_OF_JAVA: Final = {
    **{token: f"%{letter}" for letter, tokens in _LETTERS.items() for token in tokens}, "T": "T",
    **dict.fromkeys(("a", "A", "tt", "SSS", "SS", "S", "fff", "SSSSSS"), _NONE),
}  # fmt: skip
_OF_PHP: Final = {
    "Y": "%Y", "y": "%Y", "m": "%m", "n": "%m", "d": "%d", "j": "%d", "H": "%H", "G": "%H", "h": "%H", "i": "%M",
    "s": "%S", "D": "%a", "l": "%A", "F": "%B", "M": "%b", "T": "T", "P": "%z", "O": "%z",
}  # fmt: skip
_REFERENCE_TIME: Final = {
    "2006": "%Y", "January": "%B", "Jan": "%b", "Monday": "%A", "Mon": "%a", "01": "%m", "02": "%d", "15": "%H",
    "04": "%M", "05": "%S", "-0700": "%z",
}  # fmt: skip
_OF_GO: Final = re.compile("|".join(_REFERENCE_TIME))  # a layout of Go is one certain time
_RUN: Final = re.compile(r"'([^']*)'|\[([^\]]*)\]|(([A-Za-z])\4*)")


def _to_directives(pattern: str) -> str | None:
    """A pattern made of runs of letters (`yyyy-MM-dd`), of single ones (`Y-m-d`) or of parts of Go's certain time
    (`2006-01-02`) as directives; None: it is none."""
    if re.search(r"2006|15:04", pattern):
        return _OF_GO.sub(lambda part: _REFERENCE_TIME[part[0]], pattern)
    tokens = [run[3] for run in _RUN.finditer(pattern) if run[3]]
    if any(len(token) > 1 for token in tokens):
        directives = _OF_JAVA
    elif len(tokens) > 1 and not re.search("[A-Za-z]{2}", pattern):
        directives = _OF_PHP
    else:
        return None
    if not all(token in directives for token in tokens):
        return None
    translated = _RUN.sub(lambda run: directives[run[3]] if run[3] else run[1] or run[2] or "", pattern)
    return re.sub(rf"[.,: ]?{_NONE}", "", translated).strip() or None


def check_zone(zone: str) -> str | None:
    """Why this is no time zone, or None."""
    if zone in zones.NO_PLACES:
        return zones.check_zone(zone)
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zones.check_zone(zone)
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
