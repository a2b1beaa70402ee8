"""When a schedule fires: cron's rules, the changes of the clock, and what was missed."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow import schedule
from hai_flow.schedule import GRACE, DueInstants, Missed, Timing
from tests.support.examples import examples

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTELY = Timing("* * * * *")
BERLIN = Timing("30 2 * * *", "Europe/Berlin")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(timing: Timing, after: str, count: int) -> list[str]:
    first = schedule.next_after(timing, utc(after))
    return [f"{each:%Y-%m-%d %H:%M}" for each in schedule.next_times(timing, first, count)]


def test_monday_is_1_and_day_or_weekday_is_cron_s_or() -> None:
    assert times(Timing("0 9 * * 1"), "2026-03-01", 2) == ["2026-03-02 09:00", "2026-03-09 09:00"]
    assert times(Timing("0 9 13 * 5"), "2026-03-01", 3) == ["2026-03-06 09:00", "2026-03-13 09:00", "2026-03-20 09:00"]


def test_the_next_time_follows_the_last_in_the_schedules_timezone() -> None:
    weekdays = Timing("0 9 * * MON-FRI", "Europe/Berlin")
    assert times(weekdays, "2026-03-02T08:00:00", 2) == ["2026-03-03 08:00", "2026-03-04 08:00"]
    assert times(weekdays, "2026-03-02T07:59:59.999999", 1) == ["2026-03-02 08:00"]
    assert times(Timing("0 9 * * MON-FRI", "Asia/Shanghai"), "2026-03-02", 1) == ["2026-03-02 01:00"]


def test_an_hour_skipped_in_spring_fires_at_its_end_and_autumns_fires_once() -> None:
    assert times(BERLIN, "2026-03-28T12:00", 2) == ["2026-03-29 01:00", "2026-03-30 00:30"]
    assert times(BERLIN, "2026-10-24T12:00", 2) == ["2026-10-25 00:30", "2026-10-26 01:30"]


def test_quarter_hours_pass_both_clock_changes_without_a_gap() -> None:
    quarterly = Timing("*/15 * * * *", "Europe/Berlin")
    for day in ("2026-03-29", "2026-10-25"):
        found = schedule.next_times(quarterly, schedule.next_after(quarterly, utc(day)), 20)
        assert {b - a for a, b in itertools.pairwise(found)} == {timedelta(minutes=15)}


@pytest.mark.parametrize("cron", ["0 0 31 2 *", "61 * * * *", "@daily", "* * * * * *", ""])
def test_what_is_no_cron_expression_is_told_apart(cron: str) -> None:
    assert schedule.fault_of_cron(cron)


def test_a_schedule_explains_itself() -> None:
    assert schedule.fault_of_cron("0 9 * * MON-FRI") is None
    assert schedule.explain(Timing("0 9 * * MON-FRI", "Europe/Berlin")) == (
        "At 09:00 on Monday through Friday (Europe/Berlin)"
    )
    assert schedule.explain(Timing(None, every_ms=1500)) == "Every 1.5 s"


@pytest.mark.parametrize(
    ("cron", "clauses"),
    [
        ("0 9 * * MON-FRI", [("schedule.times", ("09:00",)), ("schedule.weekday", ("1-5",))]),
        ("0,30 8 1,L * *", [("schedule.times", ("08:00", "08:30")), ("schedule.day", ("1", "L"))]),
        (
            "*/15 8-18 * jan-MAR *",
            [("schedule.minute", ("*/15",)), ("schedule.hour", ("8-18",)), ("schedule.month", ("1-3",))],
        ),
        (
            "0 0 13 * 5",
            [
                ("schedule.times", ("00:00",)),
                ("schedule.day", ("13",)),
                ("schedule.weekday", ("5",)),
                ("schedule.day_or_weekday", ()),
            ],
        ),
        ("0 0 */2 * 5#2", [("schedule.times", ("00:00",)), ("schedule.day", ("*/2",)), ("schedule.weekday", ("5#2",))]),
        ("* * * * *", [("schedule.minute", ("*",))]),
    ],
)
def test_a_schedule_says_itself_in_clauses_for_every_language(cron: str, clauses: list[object]) -> None:
    assert schedule.explain_timing(Timing(cron, "Asia/Shanghai")) == [*clauses, ("schedule.zone", ("Asia/Shanghai",))]
    assert schedule.explain_timing(Timing(None, every_ms=1500)) == [("schedule.interval", ("1.5",))]


def test_before_its_time_nothing_fires() -> None:
    assert schedule.due(MINUTELY, NOON, NOON - timedelta(seconds=1), "all") == DueInstants((), NOON)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_what_is_a_little_late_was_not_missed(missed: Missed) -> None:
    found = schedule.due(Timing(None, every_ms=10_000), NOON, NOON + timedelta(seconds=25), missed)
    assert [(each - NOON).seconds for each in found.fires] == [0, 10, 20]
    assert found.next == NOON + timedelta(seconds=30)


@pytest.mark.parametrize(("missed", "fired"), [("skip", []), ("once", [4]), ("all", [0, 1, 2, 3, 4])])
def test_of_what_nobody_was_there_for_missed_says_what_still_fires(missed: Missed, fired: list[int]) -> None:
    found = schedule.due(MINUTELY, NOON, NOON + timedelta(minutes=4, seconds=40), missed)
    assert [(each - NOON).seconds // 60 for each in found.fires] == fired
    assert found.next == NOON + timedelta(minutes=5)


def test_a_year_of_missed_minutes_costs_no_walk_through_them() -> None:
    late = NOON + timedelta(days=365)
    assert schedule.due(MINUTELY, NOON, late, "skip") == DueInstants((late,), late + timedelta(minutes=1))
    once = schedule.due(MINUTELY, NOON, late, "once")
    assert once.fires == (late - timedelta(minutes=1), late)
    all_of_them = schedule.due(MINUTELY, NOON, late, "all")
    assert len(all_of_them.fires) == schedule.FIRES_MAX
    assert all_of_them.next == NOON + timedelta(minutes=schedule.FIRES_MAX)


def test_a_date_that_never_comes_again_has_no_next() -> None:
    assert schedule.next_after(Timing("0 0 30 2 1"), NOON) is not None  # day or weekday: any Monday in February
    assert schedule.next_times(MINUTELY, None, 3) == []


TIMINGS = st.sampled_from(
    [MINUTELY, BERLIN, Timing("*/7 1-3 * * *", "America/New_York"), Timing("0 0 1 * *"), Timing(None, every_ms=700)]
)


@settings(max_examples=examples(150), deadline=None)
@given(TIMINGS, st.integers(0, 500_000), st.lists(st.integers(0, 4_000), max_size=8), st.sampled_from(["once", "all"]))
def test_any_number_of_looks_fires_each_instant_once_in_order(
    timing: Timing, start: int, looks: list[int], missed: Missed
) -> None:
    now = NOON + timedelta(minutes=start)
    following = schedule.next_after(timing, now)
    fired: list[datetime] = []
    for seconds in looks:
        now += timedelta(seconds=seconds)
        while following is not None:
            found = schedule.due(timing, following, now, missed)
            fired += found.fires
            following = found.next
            if not found.fires:
                break
    assert fired == sorted(set(fired))
    assert following is None or following > now
    first = schedule.next_after(timing, NOON + timedelta(minutes=start))
    everything = [each for each in schedule.next_times(timing, first, len(fired) + 1) if each <= now]
    if missed == "all":
        assert fired == everything
    assert all(now - each > GRACE for each in set(everything) - set(fired))
