"""When a schedule fires. Pure: the time comes in as an argument, every instant is UTC.

Cron is cron's: five fields, Debian's rules, computed by cronsim in the schedule's own timezone. An instant in the hour
that the spring skips fires at the end of that hour; one in the hour that the autumn repeats fires once."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

Missed: TypeAlias = Literal["skip", "once", "all"]
Clause: TypeAlias = Literal[
    "schedule.interval", "schedule.times", "schedule.minute", "schedule.hour", "schedule.day", "schedule.weekday",
    "schedule.day_or_weekday", "schedule.month", "schedule.zone",
]  # fmt: skip

CRON_CHARS_MAX: Final = 500  # each value of each field, written out, is fewer; all that fires is found by its text
GRACE: Final = timedelta(seconds=30)
FIRES_MAX: Final = 100
TIMES_MAX: Final = 6  # of a day, that `explain_timing` names one by one
ANY: Final = ("*",)
_MONTHS: Final = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS_OF: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # at most, of each month
_WEEKDAYS: Final = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_NUMBERS: Final = {
    **{name: str(number) for number, name in enumerate(_MONTHS, 1)},
    **{name: str(number) for number, name in enumerate(_WEEKDAYS)},
}
_NAME: Final = re.compile("[A-Z]{3}")
_MICROSECOND: Final = timedelta(microseconds=1)


class Timing(msgspec.Struct, frozen=True):
    """Either `cron` in the IANA timezone `timezone`, or every `every_ms` milliseconds (which no document can say)."""

    cron: str | None
    timezone: str = "UTC"
    every_ms: int | None = None


class DueInstants(msgspec.Struct, frozen=True):
    """The instants to fire now, oldest first, and the next one after them (None: there will be none)."""

    fires: tuple[datetime, ...]
    next: datetime | None


def fault_of_cron(cron: str) -> str | None:
    """The fault of a cron expression, in cronsim's words; None when it is right."""
    if len(cron) > CRON_CHARS_MAX:
        return f"expected at most {CRON_CHARS_MAX} characters, found {len(cron)}"
    if len(cron.split()) != 5:
        return f"expected 5 fields (minute hour day month weekday), found {len(cron.split())}"
    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return str(error)
    return None


class UnevenStep(msgspec.Struct, frozen=True):
    """A step of a cron expression (`*/45`, `5/45`) that does not divide the range of its field. `in_vain`: it is as
    large as the range (also one that is written: `0-30/45`), so that the first value alone is left. `times`: the values
    at which it fires."""

    field: str
    item: str
    step: int
    size: int
    times: str
    in_vain: bool


_RANGES: Final = (("minute", 0, 60), ("hour", 0, 24), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_STEP: Final = re.compile(r"(?:\*|(?P<first>[0-9]{1,4})(?:-(?P<last>[0-9]{1,4}))?)/(?P<step>[0-9]{1,9})")
_LISTED_MAX: Final = 8


def find_uneven_steps(cron: str) -> list[UnevenStep]:
    """The steps that fire at other gaps than they seem to say."""
    uneven: list[UnevenStep] = []
    for text, (field, first, size) in zip(cron.split(), _RANGES, strict=True):
        for item in text.split(","):
            match = _STEP.fullmatch(item)
            if match is None or (step := int(match["step"])) <= 1:
                continue
            begin = first if match["first"] is None else int(match["first"])
            end = first + size if match["last"] is None else int(match["last"]) + 1
            values = range(begin, end, step)
            in_vain = len(values) <= 1
            is_even = match["last"] is not None or (size % step == 0 and begin - first < step)
            if in_vain or not is_even:
                listed = ", ".join(map(str, values[:_LISTED_MAX])) + (", ..." if len(values) > _LISTED_MAX else "")
                uneven.append(UnevenStep(field, item, step, end - begin, f"{field} {listed}", in_vain))
    return uneven


def crons_of_every(minutes: int) -> tuple[str, ...]:
    """The cron expressions that together fire each time so many minutes are over, since midnight; none, where a day is
    not a multiple of it, or it takes more than four of them."""
    if minutes < 1 or 1440 % minutes:
        return ()
    if 60 % minutes == 0:
        return (f"*/{minutes} * * * *" if minutes > 1 else "* * * * *",) if minutes < 60 else ("0 * * * *",)
    hours: dict[int, list[int]] = {}
    for at in range(0, 1440, minutes):
        hours.setdefault(at % 60, []).append(at // 60)
    if len(hours) > 4:
        return ()
    if list(hours) == [0] and 24 % len(hours[0]) == 0 and len(hours[0]) > 1:
        return (f"0 */{24 // len(hours[0])} * * *",)
    return tuple(f"{minute} {','.join(map(str, at))} * * *" for minute, at in sorted(hours.items()))


_SHORT_FOR: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip


def remedy_of_cron(cron: str) -> str | None:
    """What to write in place of a habit of other schedulers, or of a date that never comes; None: nothing is known."""
    fields = cron.split()
    if cron.startswith("@"):
        cron_text = _SHORT_FOR.get(cron.strip().lower())
        return (
            f"write `{cron_text}`"
            if cron_text
            else "a schedule begins with no process; write when, such as `0 0 * * *`"
        )
    aws = re.fullmatch(r"cron\((.*)\)", cron.strip())
    if aws is not None and len(aws[1].split()) == 6:  # the last one is the year
        return f"write `{' '.join(aws[1].replace('?', '*').split()[:5])}`"
    if fields and (zone := re.fullmatch(r"(?:CRON_)?TZ=(\S+)", fields[0])):
        return f"write `{' '.join(fields[1:])}`, and `timezone: {zone[1]}` beside it"
    if len(fields) == 6:
        return f"leave the seconds out: `{' '.join(fields[1:]).replace('?', '*')}`"
    if len(fields) != 5:
        return None
    if "?" in fields:
        return f"write `*` for `?`: `{' '.join('*' if each == '?' else each for each in fields)}`"
    if any(re.fullmatch(r"H(?:/\d+|\(.*\))?", each) for each in fields):
        return "`H` is of Jenkins; write a minute, such as `17`"
    for number, (text, (name, first, size)) in enumerate(zip(fields, _RANGES, strict=False)):
        match = re.fullmatch(r"(\d+)-(\d+)", text)
        last = first + size - 1
        if match is not None and last >= int(match[1]) > int(match[2]) >= first:
            fields[number] = f"{match[1]}-{last},{first}-{match[2]}"
            return f"a range goes upwards; write `{fields[number]}` as the {name}"
    days, months = _numbers_of(fields[2]), _numbers_of(fields[3])
    if days and months and max(days) <= 31 and max(months) <= 12 and min(months) >= 1:
        never = [f"{day} {MONTHS[month - 1]}" for month in months for day in days if day > _DAYS_OF[month - 1]]
        if len(never) == len(days) * len(months):
            return f"{', '.join(never)} never {'comes' if len(never) == 1 else 'come'}"
    return None


def _numbers_of(field: str) -> list[int]:
    """The values of a field of numbers, names and ranges; none, where it has anything else."""
    values: set[int] = set()
    for item in _items(field.upper()):
        match = re.fullmatch(r"([0-9]{1,2})(?:-([0-9]{1,2}))?", item)
        if match is None:
            return []
        values.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(values)


def explain(timing: Timing) -> str:
    """The schedule in English: "At 09:00 on Monday through Friday (Europe/Berlin)"."""
    if timing.cron is None:
        return f"Every {(timing.every_ms or 0) / 1000:g} s"
    return f"{CronSim(timing.cron, datetime(2000, 1, 1, tzinfo=UTC)).explain()} ({timing.timezone})"


def explain_timing(timing: Timing) -> list[tuple[Clause, tuple[str, ...]]]:
    """The schedule as clauses, for sentences in any language: each a code, and its values as texts.

    `schedule.times` has times ("09:00"), `schedule.interval` seconds, `schedule.zone` the timezone. The others have the
    items of a field: "5", "1-5", "*/15", "10-30/5"; of days also "L" (the last) and "LW" (the last from Monday to
    Friday), of weekdays (0 and 7: Sunday) also "2#1" (the first Tuesday) and "5L" (the last Friday).
    `schedule.day_or_weekday` says that one of both is enough. Raises CronSimError for no cron expression."""
    if timing.cron is None:
        return [("schedule.interval", (f"{(timing.every_ms or 0) / 1000:g}",))]
    CronSim(timing.cron, datetime(2000, 1, 1, tzinfo=UTC))
    minute, hour, day, month, weekday = map(_items, timing.cron.upper().split())
    if all(map(str.isdigit, (*minute, *hour))) and len(minute) * len(hour) <= TIMES_MAX:
        times = sorted(f"{int(h):02}:{int(m):02}" for h in hour for m in minute)
        clauses: list[tuple[Clause, tuple[str, ...]]] = [("schedule.times", tuple(times))]
    else:
        clauses = [("schedule.minute", minute), ("schedule.hour", hour)]
    clauses.append(("schedule.day", day))
    clauses.append(("schedule.weekday", weekday))
    if ANY not in (day, weekday) and not (day[0].startswith("*") or weekday[0].startswith("*")):
        clauses.append(("schedule.day_or_weekday", ()))
    clauses.append(("schedule.month", month))
    stated = [each for each in clauses if each[1] != ANY or each[0] == "schedule.minute"]
    return [*stated, ("schedule.zone", (timing.timezone,))]


def _items(field: str) -> tuple[str, ...]:
    """The items of a field, with numbers for names."""
    field = _NAME.sub(lambda name: _NUMBERS.get(name[0], name[0]), field)
    return ANY if field in ("*", "*/1") else tuple(field.split(","))


def next_after(timing: Timing, after: datetime) -> datetime | None:
    """The first instant strictly after `after`; None when the expression names no date that ever comes."""
    if timing.cron is None:
        return after + _interval(timing)
    return _step(timing, after, reverse=False)


def next_times(timing: Timing, first: datetime | None, count: int) -> list[datetime]:
    """Up to `count` instants, beginning with `first`."""
    times: list[datetime] = []
    while first is not None and len(times) < count:
        times.append(first)
        first = next_after(timing, first)
    return times


def due(timing: Timing, first: datetime, now: datetime, missed: Missed, grace: timedelta = GRACE) -> DueInstants:
    """The instants that fire at `now`, if the next one is `first`. At most FIRES_MAX: `next` may be due, too.

    An instant that is late by no more than `grace` is on time, and fires whatever `missed` says. The older ones were
    missed, as no scheduler ran: of them `skip` fires none, `once` the latest and `all` each."""
    if first > now:
        return DueInstants((), first)
    fires: list[datetime] = []
    instant: datetime | None = first
    on_time = now - grace
    if first < on_time and missed != "all":
        last = _last_before(timing, first, on_time)
        if missed == "once":
            fires.append(last)
        instant = next_after(timing, last)
    while instant is not None and instant <= now and len(fires) < FIRES_MAX:
        fires.append(instant)
        instant = next_after(timing, instant)
    return DueInstants(tuple(fires), instant)


def _last_before(timing: Timing, first: datetime, limit: datetime) -> datetime:
    """The last instant before `limit`, without walking through all since `first` (which is one of them)."""
    if timing.cron is None:
        interval = _interval(timing)
        return first + (limit - first - _MICROSECOND) // interval * interval
    last = _step(timing, limit, reverse=True)
    return first if last is None or last < first else last


def _interval(timing: Timing) -> timedelta:
    assert timing.every_ms, "a schedule has a cron expression or an interval"
    return timedelta(milliseconds=timing.every_ms)


def _step(timing: Timing, moment: datetime, *, reverse: bool) -> datetime | None:
    """One instant onwards (or back). In UTC: of a repeated hour cronsim may name the same instant again."""
    assert timing.cron is not None
    start = moment.astimezone(ZoneInfo(timing.timezone))
    for local in CronSim(timing.cron, start, reverse=reverse):
        instant = local.astimezone(UTC)
        if (instant < moment) if reverse else (instant > moment):
            return instant
    return None
