"""Names of time zones: whether one is a place's, and what was meant by one that is none."""

from __future__ import annotations

import re
import zoneinfo
from difflib import get_close_matches
from functools import cache
from typing import Final

from hai_flow.definition.names.wording import shorten, suggestion

NO_PLACES: Final = frozenset(("localtime", "Factory", "posixrules"))
"""Names in the database that mean another zone on every machine, or none."""
_LOCAL: Final = frozenset(("local", "localtime", "system", "default"))
_OFFSET: Final = re.compile(
    r"(?:GMT|UTC|Etc/UTC|Z)?\s*(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?", re.IGNORECASE
)
_TURNED: Final = re.compile(r"Etc/GMT(?P<sign>[+-])(?P<hours>\d{1,2})")
_EXAMPLES: Final = {
    -10: "Pacific/Honolulu", -8: "America/Los_Angeles", -7: "America/Denver", -6: "America/Chicago",
    -5: "America/New_York", -3: "America/Sao_Paulo", 0: "Europe/London", 1: "Europe/Berlin", 2: "Europe/Athens",
    3: "Europe/Istanbul", 4: "Asia/Dubai", 5: "Asia/Karachi", 7: "Asia/Bangkok", 8: "Asia/Shanghai", 9: "Asia/Tokyo",
    10: "Australia/Sydney", 12: "Pacific/Auckland",
}  # fmt: skip
_BETWEEN: Final = {
    (-9, 30): "Pacific/Marquesas", (-3, 30): "America/St_Johns", (3, 30): "Asia/Tehran", (4, 30): "Asia/Kabul",
    (5, 30): "Asia/Kolkata", (5, 45): "Asia/Kathmandu", (6, 30): "Asia/Yangon", (8, 45): "Australia/Eucla",
    (9, 30): "Australia/Darwin", (10, 30): "Australia/Lord_Howe", (12, 45): "Pacific/Chatham",
}  # fmt: skip
"""Places whose time is no whole number of hours from UTC."""
_WITHOUT_SUMMER: Final = {
    "EST": "America/New_York, or America/Panama if none is meant", "HST": "Pacific/Honolulu, which has none either",
    "MST": "America/Denver, or America/Phoenix if none is meant",
}  # fmt: skip
_LIKENESS: Final = 0.8  # what is less alike may be the name of another place
_UTC: Final = frozenset(("Z", "ZULU", "UT", "UTC"))
_AMBIGUOUS: Final = {
    "ist": "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem", "cst": "America/Chicago or Asia/Shanghai",
    "ast": "America/Halifax or Asia/Riyadh", "gst": "Asia/Dubai or Atlantic/South_Georgia",
    "amt": "America/Manaus or Asia/Yerevan", "est": "America/New_York or Australia/Brisbane",
}  # fmt: skip
_MEANT: Final = {
    **dict.fromkeys(("beijing", "peking", "shenzhen", "guangzhou", "hangzhou", "chengdu"), "Asia/Shanghai"),
    **dict.fromkeys(("mumbai", "bombay", "delhi", "new_delhi", "bangalore", "bengaluru"), "Asia/Kolkata"),
    **dict.fromkeys(("chennai", "hyderabad"), "Asia/Kolkata"),
    **dict.fromkeys(("osaka", "kyoto", "jst"), "Asia/Tokyo"),
    **dict.fromkeys(("hanoi", "saigon"), "Asia/Ho_Chi_Minh"),
    **dict.fromkeys(("abu_dhabi",), "Asia/Dubai"),
    **dict.fromkeys(("munich", "muenchen", "münchen", "frankfurt", "hamburg"), "Europe/Berlin"),
    **dict.fromkeys(("cologne", "köln", "cest"), "Europe/Berlin"),
    **dict.fromkeys(("geneva", "bern", "basel"), "Europe/Zurich"),
    **dict.fromkeys(("milan", "naples"), "Europe/Rome"),
    **dict.fromkeys(("barcelona",), "Europe/Madrid"),
    **dict.fromkeys(("edinburgh", "manchester", "bst"), "Europe/London"),
    **dict.fromkeys(("san_francisco", "seattle", "las_vegas", "pst", "pdt", "pt"), "America/Los_Angeles"),
    **dict.fromkeys(("washington", "boston", "miami", "atlanta", "edt", "et"), "America/New_York"),
    **dict.fromkeys(("houston", "dallas", "austin", "cdt", "ct"), "America/Chicago"),
    **dict.fromkeys(("mdt", "mt"), "America/Denver"),
    **dict.fromkeys(("montreal", "ottawa"), "America/Toronto"),
    **dict.fromkeys(("rio", "rio_de_janeiro", "brasilia"), "America/Sao_Paulo"),
    **dict.fromkeys(("canberra", "aest", "aedt"), "Australia/Sydney"),
    **dict.fromkeys(("cape_town", "sast"), "Africa/Johannesburg"),
    "china_standard_time": "Asia/Shanghai", "india_standard_time": "Asia/Kolkata", "tokyo_standard_time": "Asia/Tokyo",
    "w._europe_standard_time": "Europe/Berlin", "central_europe_standard_time": "Europe/Budapest",
    "romance_standard_time": "Europe/Paris", "gmt_standard_time": "Europe/London",
    "eastern_standard_time": "America/New_York", "central_standard_time": "America/Chicago",
    "mountain_standard_time": "America/Denver", "pacific_standard_time": "America/Los_Angeles",
}  # fmt: skip


def check_zone(name: str) -> str | None:
    """Why this is no time zone of a place, and what to write; None: it is one."""
    if name in NO_PLACES or name.lower() in _LOCAL:
        return f"expected an IANA timezone such as Europe/Berlin, found `{name}`, which is another one on every machine"
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"expected an IANA timezone such as Europe/Berlin, found `{shorten(name)}`{guess_zone(name)}"
    return None


def check_sign(name: str) -> str | None:
    """The doubt about `Etc/GMT+2`, which is two hours behind UTC, and about `EST`; None for others."""
    if name in _WITHOUT_SUMMER:
        return f"`{name}` has no summer time; write {_WITHOUT_SUMMER[name]}"
    match = _TURNED.fullmatch(name)
    if match is None or not int(match["hours"]):
        return None
    sign, hours = match["sign"], match["hours"]
    real = "-" if sign == "+" else "+"
    return f"`{name}` is UTC{real}{hours}, for its sign is turned around; UTC{sign}{hours} is `Etc/GMT{real}{hours}`"


def guess_zone(name: str) -> str:
    """What to write in place of a name that is no zone, as the end of a sentence."""
    offset = _OFFSET.fullmatch(name.strip())
    if offset is not None:
        return _find_zone(offset)
    city = name.rpartition("/")[2].lower().replace(" ", "_").replace("-", "_")
    meant = _list_cities().get(city) or _MEANT.get(city)
    if meant:
        return f"; did you mean `{meant}`?"
    if name.upper() in _UTC:
        return "; write `UTC`"
    if city in _AMBIGUOUS:
        return f", which is the time of several places; write one of them, such as {_AMBIGUOUS[city]}"
    if name.isupper() and len(name) <= 5:  # what is near to an abbreviation is hours away from it
        return "; write the name of a place, for an abbreviation is none"
    near = get_close_matches(city, _list_cities(), n=1, cutoff=_LIKENESS)
    if near:
        return f"; did you mean `{_list_cities()[near[0]]}`?"
    return suggestion(name, _list_zones() - NO_PLACES, likeness=_LIKENESS)


def _find_zone(offset: re.Match[str]) -> str:
    hours, minutes = int(offset["hours"]), int(offset["minutes"] or 0)
    ahead = hours if offset["sign"] == "+" else -hours
    place = _EXAMPLES.get(ahead) if not minutes else _BETWEEN.get((ahead, minutes))
    turned = "-" if offset["sign"] == "+" else "+"
    fixed = f"`Etc/GMT{turned}{hours}`, whose sign is turned around" if not minutes and 0 < hours <= 12 else ""
    if not hours and not minutes:
        return "; write `UTC`"
    parts = [part for part in (f"a place such as {place}" if place else "the name of a place", fixed) if part]
    return f"; write {', or '.join(parts)}"


@cache
def _list_zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


@cache
def _list_cities() -> dict[str, str]:
    places = sorted(zone for zone in _list_zones() if "/" in zone and not zone.startswith(("Etc/", "posix/", "right/")))
    return {zone.rpartition("/")[2].lower(): zone for zone in places}
