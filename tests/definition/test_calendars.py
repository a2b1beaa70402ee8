"""Working days: instants some of them ahead, whatever the zone, its clock and its holidays."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.people.calendars import Calendar, convert_calendars, find_calendar, read_calendars
from hai_flow.primitives import instants

BERLIN = "Europe/Berlin"
OFFICE = Calendar(BERLIN, hours=(9 * 60, 17 * 60))


YEARS_END = ("2026-12-24", "2026-12-25", "2026-12-31", "2027-01-01")


def ahead(calendar: Calendar, since: str, count: int) -> str:
    """The local time of the instant so many working days after a local time."""
    zone = ZoneInfo(calendar.zone)
    moment = datetime.fromisoformat(since).replace(tzinfo=zone)
    due = instants.instant(calendar.add(instants.milliseconds(moment), count)).astimezone(zone)
    return due.strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("calendar", "since", "count", "due"),
    [
        (Calendar(BERLIN), "2026-03-02 12:00", 3, "2026-03-05 12:00"),  # Monday to Thursday
        (Calendar(BERLIN), "2026-03-05 12:00", 3, "2026-03-10 12:00"),  # over a weekend
        (Calendar(BERLIN), "2026-03-07 12:00", 1, "2026-03-10 00:00"),  # from Saturday: all of Monday
        (Calendar(BERLIN), "2026-03-27 12:00", 1, "2026-03-30 12:00"),  # summer time begins on the 29th
        (Calendar(BERLIN, holidays=("2026-03-03", "2026-03-04")), "2026-03-02 12:00", 1, "2026-03-05 12:00"),
        (Calendar(BERLIN, weekdays=(6,)), "2026-03-02 12:00", 2, "2026-03-22 00:00"),  # Sundays alone
        (Calendar(BERLIN, holidays=YEARS_END), "2026-12-23 12:00", 2, "2026-12-29 12:00"),
        (Calendar(BERLIN, holidays=YEARS_END), "2026-12-31 23:59", 1, "2027-01-05 00:00"),
        (Calendar(BERLIN, weekdays=(5, 6)), "2026-10-25 02:30", 1, "2026-10-31 02:30"),  # winter time begins
        (Calendar(BERLIN, weekdays=(5, 6)), "2026-03-28 02:30", 1, "2026-03-29 03:00"),  # an hour that is not there
        (Calendar("Africa/Cairo", weekdays=(0, 4)), "2026-04-21 12:00", 0, "2026-04-24 01:00"),  # nor is midnight
        (Calendar("Pacific/Kiritimati"), "2026-11-27 23:59", 3, "2026-12-02 23:59"),  # a Friday
        (Calendar("Asia/Shanghai", holidays=("2026-11-30", "2026-12-03")), "2026-11-27 23:59", 3, "2026-12-04 23:59"),
        (Calendar("America/New_York"), "2026-03-06 23:59", 3, "2026-03-11 23:59"),  # over the 8th, of 23 hours
        (Calendar("America/New_York"), "2026-10-30 23:59", 3, "2026-11-04 23:59"),  # over the 1st, of 25
        (Calendar("Asia/Shanghai"), "2028-02-25 23:59", 3, "2028-03-01 23:59"),  # over a leap day
        (Calendar("Asia/Shanghai"), "2100-02-26 23:59", 3, "2100-03-03 23:59"),  # and where there is none
        (Calendar("Pacific/Kiritimati", holidays=("2027-01-01",)), "2026-12-31 23:59", 1, "2027-01-04 23:59"),
        (OFFICE, "2026-03-02 08:00", 1, "2026-03-03 09:00"),
        (OFFICE, "2026-03-02 12:30", 1, "2026-03-03 12:30"),
        (OFFICE, "2026-03-06 18:00", 1, "2026-03-10 09:00"),
        (OFFICE, "2026-03-06 17:00", 1, "2026-03-10 09:00"),
    ],
)
def test_working_days_end_at_the_same_time_of_the_day(calendar: Calendar, since: str, count: int, due: str) -> None:
    assert ahead(calendar, since, count) == due


ZONES = (
    "Pacific/Kiritimati",
    "Asia/Shanghai",
    "America/New_York",
    "Africa/Cairo",
    "America/Havana",
    "Australia/Lord_Howe",
)
HOUR = 3_600_000


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_begins_later_ends_no_earlier_around_a_change_of_the_clock(zone: str, count: int) -> None:
    calendar, place = Calendar(zone, tuple(range(7))), ZoneInfo(zone)
    begin = instants.milliseconds(datetime(2026, 1, 1, tzinfo=UTC))
    offsets = [instants.instant(begin + n * HOUR).astimezone(place).utcoffset() for n in range(366 * 24)]
    changes = [begin + n * HOUR for n in range(1, len(offsets)) if offsets[n] != offsets[n - 1]]
    assert len(changes) == (0 if zone in ZONES[:2] else 2)
    for change in changes:
        first = change - (24 * count + 3) * HOUR
        dues = [calendar.add(first + n * HOUR // 12, count) for n in range(12 * 30)]
        assert dues == sorted(dues)


@given(
    st.sampled_from(ZONES),
    st.datetimes(datetime(2025, 1, 1), datetime(2028, 12, 1)),
    st.integers(0, 40),
    st.sets(st.integers(0, 6), min_size=1),
    st.sampled_from(((0, 1440), (0, 60), (150, 1020), (540, 1020), (1380, 1440))),
)
def test_a_deadline_is_on_a_working_day_and_later_if_it_counts_more(
    zone: str, since: datetime, count: int, weekdays: set[int], hours: tuple[int, int]
) -> None:
    begin = instants.milliseconds(since.replace(tzinfo=UTC))
    calendar = Calendar(zone, tuple(sorted(weekdays)), hours, ("2025-10-31", "2026-01-01", "2026-03-09"))
    near = calendar.ahead(begin, count + 1)
    due = near.add(begin, count)
    assert begin <= due < near.add(begin, count + 1)
    assert calendar.is_working(instants.instant(due).astimezone(ZoneInfo(zone)).date())


@given(
    st.datetimes(datetime(2025, 1, 1), datetime(2027, 12, 1)),
    st.integers(1, 40),
    st.sets(st.integers(0, 6), min_size=1),
    st.sets(st.dates(date(2025, 1, 1), date(2028, 1, 1)), max_size=20),
)
def test_a_deadline_lies_on_a_working_day_behind_as_many_as_it_counts(
    since: datetime, count: int, weekdays: set[int], holidays: set[date]
) -> None:
    calendar = Calendar("UTC", tuple(sorted(weekdays)), holidays=tuple(sorted(map(str, holidays))))
    begin = since.replace(tzinfo=UTC)
    due = instants.instant(calendar.add(instants.milliseconds(begin), count))
    days = (begin.date() + timedelta(days=n) for n in range(1, (due.date() - begin.date()).days + 1))
    assert calendar.is_working(due.date())
    assert sum(map(calendar.is_working, days)) == count + (not calendar.is_working(begin.date()))
    cut = calendar.ahead(instants.milliseconds(begin), count)
    assert cut.add(instants.milliseconds(begin), count) == instants.milliseconds(due)


def test_a_week_of_one_working_day_keeps_the_holidays_in_reach() -> None:
    since = instants.milliseconds(datetime(2026, 3, 2, tzinfo=UTC))
    calendar = Calendar("UTC", weekdays=(6,), holidays=("2026-09-06", "2031-01-05"))
    cut = calendar.ahead(since, 27)
    assert (cut.holidays, cut.add(since, 27)) == (("2026-09-06",), calendar.add(since, 27))


FILE = """
hai: calendars/v1
calendars:
  germany: {zone: Europe/Berlin, hours: "09:00-17:00", holidays: {2026-12-25: Christmas Day}, until: "2026-12-31"}
"""


def test_a_file_gives_its_calendars_and_how_long_holidays_are_known() -> None:
    file, findings = read_calendars(FILE.encode(), "calendars.yaml")
    assert findings == []
    assert file.calendars == {"germany": Calendar(BERLIN, hours=(540, 1020), holidays=("2026-12-25",))}
    assert file.known_until == {"germany": date(2026, 12, 31)}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"zone": "Mars"}, "zone"),
        ({"zone": "UTC", "weekdays": []}, "at least one day"),
        ({"zone": "UTC", "weekdays": ["monday"]}, "monday"),
        ({"zone": "UTC", "hours": "17:00-09:00"}, "hours"),
        ({"zone": "UTC", "hours": "9-5"}, "hours"),
        ({"zone": "UTC", "holidays": {"25.12.2026": "x"}}, "2026-12-25"),
        ({"zone": "UTC", "holidays": {"20261225": "x"}}, "2026-12-25"),
        ({"zone": "UTC", "holidays": {"2026-12-25": "x"}, "until": "2026-12-01"}, "until"),
        ({"zone": "UTC", "days": 5}, "days"),
        ({}, "zone"),
    ],
)
def test_a_mistake_in_a_calendar_is_said(entry: dict[str, object], words: str) -> None:
    faults = convert_calendars({"hai": "calendars/v1", "calendars": {"a": entry}})[1]
    assert faults
    assert words in "\n".join(faults)


def test_a_document_names_a_calendar_or_a_timezone() -> None:
    own = {"germany": OFFICE}
    assert find_calendar(own, "germany") == OFFICE
    assert find_calendar(own, BERLIN) == Calendar(BERLIN)
    assert find_calendar(own, "default") == Calendar()
    assert find_calendar({"default": OFFICE}, "default") == OFFICE
    assert find_calendar(own, "france") is None


FLOW = "hai: flow/v1\nname: a\nversion: 1\n{}\nsteps:\n  - approve: {{title: Go?, from: 'role:boss', {}}}\n"


@pytest.mark.parametrize(
    ("top", "more", "code"),
    [
        ("", "deadline: 3 working days", None),
        ("", "deadline: 1 working day, remind: [1 working day]", None),
        ("defaults: {deadline: 3 working days}", "confirm: true", None),
        ("", "deadline: 2d, on_deadline: [{escalate: {deadline: 2 working days}}, reject]", None),
        ("", "deadline: 0 working days", "duration.invalid"),
        ("", "deadline: 1001 working days", "duration.invalid"),
        ("", "deadline: 1.5 working days", "duration.invalid"),
        ("defaults: {timeout: 3 working days}", "confirm: true", "duration.invalid"),
    ],
)
def test_working_days_stand_where_people_are_asked(top: str, more: str, code: str | None) -> None:
    findings = check_workflow(FLOW.format(top, more).encode(), "a.flow.yaml")
    errors = [each.code for each in findings if each.severity == "error"]
    assert errors == ([] if code is None else [code])
