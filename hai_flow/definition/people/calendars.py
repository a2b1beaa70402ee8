"""Working days: the calendars of the deployment (`HAI_FLOW_CALENDARS`), and instants that are some working days ahead.

    hai: calendars/v1
    calendars:
      germany:
        zone: Europe/Berlin
        weekdays: [mon, tue, wed, thu, fri]        # without it, these
        hours: 09:00-17:00                         # without it, whole days
        holidays: {2026-12-25: Christmas Day, 2026-12-26: Boxing Day}
        until: 2026-12-31                          # up to here the holidays are known; without it, the last of them

A document names one of them with `calendar:`, or a timezone, whose Mondays to Fridays are working days then. Without
that it is the calendar `default`, or Monday to Friday in UTC. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from hai_flow.definition.names.zones import check_zone
from hai_flow.definition.yaml.document import parse
from hai_flow.errors import Finding
from hai_flow.primitives import instants
from hai_flow.values import Json

VERSION: Final = "calendars/v1"
DEFAULT: Final = "default"
WORKING_DAYS_MAX: Final = 1_000
HORIZON: Final = timedelta(days=60)  # before the end of what a file knows, the doctor warns
_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)
_COUNT: Final = re.compile(r"([0-9]{1,9}) working days?")
_WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])")


class Calendar(msgspec.Struct, frozen=True, omit_defaults=True):
    """Working days in a zone. `weekdays` from 0, Monday; `hours`: from and until which minute of the day people work,
    `holidays`: days as ISO 8601 writes them."""

    zone: str = "UTC"
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4)
    hours: tuple[int, int] = (0, 24 * 60)
    holidays: tuple[str, ...] = ()

    def is_working(self, day: date) -> bool:
        return day.weekday() in self.weekdays and day.isoformat() not in self.holidays

    def add(self, since: int, count: int) -> int:
        """The instant `count` working days after `since`, both in milliseconds: at the same time of the day; of an
        instant at which nobody works, from the next at which somebody does. What begins later ends no earlier: a clock
        that is set back counts from the end of the hour that it repeats, one that is set forward to the end of the hour
        that it leaves out."""
        zone = ZoneInfo(self.zone)
        moment = _leave_repeated_hour(instants.instant(since).astimezone(zone))
        day, minute = moment.date(), moment.hour * 60 + moment.minute
        clock = moment.timetz()
        if minute >= self.hours[1] or not self.is_working(day):
            day = self._next(day)
            clock = self._opening(zone)
        elif minute < self.hours[0]:
            clock = self._opening(zone)
        for _ in range(count):
            day = self._next(day)
        return instants.milliseconds(_leave_missing_hour(datetime.combine(day, clock)))

    def _opening(self, zone: ZoneInfo) -> time:
        return time(*divmod(self.hours[0], 60), tzinfo=zone)

    def _next(self, day: date) -> date:
        """The next working day. A calendar has one in every week, but for holidays, of which there is an end."""
        day += _DAY
        while not self.is_working(day):
            day += _DAY
        return day

    def ahead(self, since: int, count: int) -> Calendar:
        """The calendar with those holidays alone that matter for so many working days from then on, or from two months
        later."""
        first = instants.instant(since).date() - _DAY
        last = instants.instant(self.add(since, count)).date() + timedelta(days=2 * count + 60)
        near = tuple(each for each in self.holidays if first.isoformat() <= each <= last.isoformat())
        return msgspec.structs.replace(self, holidays=near)


def _leave_repeated_hour(moment: datetime) -> datetime:
    """The moment; the end of the hour if the clock shows that hour for the second time."""
    while moment.fold:
        moment = (moment.astimezone(UTC) + _MINUTE).astimezone(moment.tzinfo).replace(second=0, microsecond=0)
    return moment


def _leave_missing_hour(moment: datetime) -> datetime:
    """The moment; the end of the hour if the clock never shows that hour of the day."""
    while moment.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) != moment.replace(tzinfo=None):
        moment = moment.replace(second=0, microsecond=0) + _MINUTE
    return moment


Calendars = Mapping[str, Calendar]


def find_calendar(calendars: Calendars, name: str) -> Calendar | None:
    """The calendar that a document names; None: there is none of this name."""
    if name in calendars:
        return calendars[name]
    if name == DEFAULT:
        return Calendar()
    return None if check_zone(name) is not None else Calendar(zone=name)


def count_working_days(text: str) -> int | None:
    """How many working days the text says, like `3 working days`; None: it says something else."""
    match = _COUNT.fullmatch(text.strip())
    return None if match is None else int(match[1])


# --- the file ---------------------------------------------------------------------------------------------------------


class _CalendarEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    zone: str
    weekdays: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ("mon", "tue", "wed", "thu", "fri")
    hours: str | None = None
    holidays: dict[str, str] = {}
    until: str | None = None


class _CalendarsContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hai: Literal["calendars/v1"]
    calendars: dict[Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_-]{0,62}$")], _CalendarEntry]


class CalendarFile(msgspec.Struct, frozen=True):
    """The calendars by name, and the day up to which the holidays of each are known, if it has any."""

    calendars: dict[str, Calendar] = {}
    known_until: dict[str, date] = {}


def read_calendars(source: bytes, file: str) -> tuple[CalendarFile, list[Finding]]:
    content, faults = convert_calendars(parse(source, file).value)
    return content, [Finding(file, 0, 0, "error", "calendars.invalid", each) for each in faults]


def convert_calendars(value: Json) -> tuple[CalendarFile, list[str]]:
    """The calendars of a file with this content, and its mistakes as sentences."""
    try:
        entries = msgspec.convert(value, _CalendarsContent).calendars
    except msgspec.ValidationError as error:
        return CalendarFile(), [str(error)]
    faults: list[str] = []
    calendars: dict[str, Calendar] = {}
    known_until: dict[str, date] = {}
    for name, entry in entries.items():
        where = f"calendars.{name}"
        if (fault := check_zone(entry.zone)) is not None:
            faults.append(f"{where}.zone: {fault}")
        if not entry.weekdays:
            faults.append(f"{where}.weekdays: expected at least one day, or nobody ever works")
        days = [day for text in entry.holidays if (day := _read_day(text, f"{where}.holidays", faults)) is not None]
        until = None if entry.until is None else _read_day(entry.until, f"{where}.until", faults)
        if until is not None and days and max(days) > until:
            faults.append(f"{where}.until: expected a day not before the last holiday, {max(days)}, found {until}")
        if until is not None or days:
            known_until[name] = until or max(days)
        weekdays = tuple(sorted({_WEEKDAYS.index(each) for each in entry.weekdays}))
        hours = _read_hours(entry.hours, f"{where}.hours", faults)
        calendars[name] = Calendar(entry.zone, weekdays, hours, tuple(sorted(day.isoformat() for day in days)))
    return CalendarFile(calendars, known_until), faults


def _read_day(text: str, where: str, faults: list[str]) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or not 2000 <= day.year <= 2200 or day.isoformat() != text:
        faults.append(f"{where}: expected days such as 2026-12-25, found {text!r:.60}")
        return None
    return day


def _read_hours(text: str | None, where: str, faults: list[str]) -> tuple[int, int]:
    match = _HOURS.fullmatch(text or "00:00-24:00")
    minutes = (0, 0) if match is None else (int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4]))
    if not minutes[0] < minutes[1] <= 24 * 60:
        faults.append(f"{where}: expected hours such as 09:00-17:00, found {text!r:.60}")
    return minutes
