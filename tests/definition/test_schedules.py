"""Findings about schedules: steps that don't divide their range, habits of other schedulers, zones that are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.names.zones import check_zone
from hai_flow.schedule import Timing, crons_of_every, find_uneven_steps, next_after
from tests.support.runs import HEAD


def findings(body: str) -> list[tuple[str, str]]:
    document = f"{HEAD}triggers: [{{schedule: {{{body}}}}}]\nsteps: [{{say: x}}]\n"
    return [(each.severity, each.message) for each in check_workflow(document.encode()) if "schedule." in each.code]


@pytest.mark.parametrize(
    ("cron", "severity", "part"),
    [
        ("*/90 * * * *", "error", "`0 0,3,6,9,12,15,18,21 * * *` and `30 1,4,7,10,13,16,19,22 * * *`"),
        ("*/60 * * * *", "error", "minute 0 alone"),
        ("0 */24 * * *", "error", "hour 0 alone"),
        ("0 0 */31 * *", "error", "day 1 alone"),
        ("*/45 * * * *", "warning", "minute 0, 45"),
        ("0 */5 * * *", "warning", "hour 0, 5, 10, 15, 20"),
        ("5,*/45 * * * *", "warning", "minute 0, 45"),
        ("0/90 * * * *", "error", "minute 0 alone"),
        ("10-50/45 * * * *", "error", "minute 10 alone"),
        ("40/20 * * * *", "error", "minute 40 alone"),
        ("0/45 * * * *", "warning", "minute 0, 45"),
        ("30/20 * * * *", "warning", "minute 30, 50"),
        ("0 0 * * ?", "error", "`0 0 * * *`"),
        ("0 0 12 * * ?", "error", "leave the seconds out: `0 12 * * *`"),
        ("cron(0 12 * * ? *)", "error", "write `0 12 * * *`"),
        ("TZ=UTC 0 12 * * *", "error", "write `0 12 * * *`, and `timezone: UTC` beside it"),
        ("@hourly", "error", "write `0 * * * *`"),
        ("@weekly", "error", "write `0 0 * * 0`"),
        ("@reboot", "error", "begins with no process"),
        ("H 0 * * *", "error", "Jenkins"),
        ("0 22-2 * * *", "error", "`22-23,0-2`"),
        ("0 0 30 2 *", "error", "30 February never comes"),
        ("0 0 31 APR *", "error", "31 April never comes"),
        ("0 0 30,31 2 *", "error", "30 February, 31 February never come"),
        ("0 0 31 4,6,9,11 *", "error", "31 November never come"),
        ("rate(5 minutes)", "error", "`*/5 * * * *`"),
    ],
)
def test_a_cron_expression_that_fires_otherwise_than_it_seems_is_a_finding(cron: str, severity: str, part: str) -> None:
    ((found, message),) = findings(f'cron: "{cron}", timezone: UTC')
    assert found == severity
    assert part in message


@pytest.mark.parametrize(
    "cron", ["*/15 * * * *", "0 */6 * * *", "*/1 * * * *", "0 0 1 */3 *", "0 9-17/2 * * *", "5/20 * * * *"]
)
def test_a_step_that_divides_its_range_is_none(cron: str) -> None:
    assert not findings(f'cron: "{cron}", timezone: UTC')


@pytest.mark.parametrize(
    ("every", "part"),
    [
        ("1h", '`cron: "0 * * * *"`'),
        ("15m", "*/15 * * * *"),
        ("90m", "30 1,4,7"),
        ("1d", "0 0 * * *"),
        ("7s", "`cron`"),
    ],
)
def test_every_is_answered_with_the_cron_expression_that_was_meant(every: str, part: str) -> None:
    ((severity, message),) = findings(f"every: {every}")
    assert severity == "error"
    assert part in message


@given(st.sampled_from([each for each in range(1, 1441) if 1440 % each == 0]))
def test_the_expressions_for_every_so_many_minutes_fire_just_so(minutes: int) -> None:
    crons = crons_of_every(minutes)
    if not crons:
        return
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    fires = set()
    for cron in crons:
        assert not find_uneven_steps(cron)
        at = next_after(Timing(cron), begin - timedelta(seconds=1))
        while at is not None and at < begin + timedelta(days=2):
            fires.add(at)
            at = next_after(Timing(cron), at)
    assert fires == {begin + timedelta(minutes=minutes * n) for n in range(2880 // minutes)}


@pytest.mark.parametrize(
    ("zone", "part"),
    [
        ("GMT+2", "Europe/Athens, or `Etc/GMT-2`"),
        ("UTC+2", "Europe/Athens, or `Etc/GMT-2`"),
        ("utc-5", "America/New_York, or `Etc/GMT+5`"),
        ("+02:00", "Europe/Athens, or `Etc/GMT-2`"),
        ("+05:30", "Asia/Kolkata"),
        ("UTC+5:45", "Asia/Kathmandu"),
        ("-03:30", "America/St_Johns"),
        ("utc", "write `UTC`"),
        ("UTC+00:00", "`UTC`"),
        ("Asia/Beijing", "`Asia/Shanghai`"),
        ("Mumbai", "`Asia/Kolkata`"),
        ("Berlin", "`Europe/Berlin`"),
        ("PST", "`America/Los_Angeles`"),
        ("IST", "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem"),
        ("CST", "America/Chicago or Asia/Shanghai"),
        ("Z", "write `UTC`"),
        ("Asia/Bombay", "`Asia/Kolkata`"),
        ("Europe/Muenchen", "`Europe/Berlin`"),
        ("Europe/Frankfort", "found `Europe/Frankfort`"),
        ("W. Europe Standard Time", "`Europe/Berlin`"),
        ("America/New York", "`America/New_York`"),
        ("SGT", "write the name of a place"),
        ("Asia/Calcuta", "`Asia/Calcutta`"),
        ("localtime", "on every machine"),
        ("Local", "on every machine"),
        ("Factory", "on every machine"),
        ("posixrules", "on every machine"),
    ],
)
def test_a_zone_that_is_none_gets_the_one_that_was_meant(zone: str, part: str) -> None:
    ((severity, message),) = findings(f'cron: "0 9 * * *", timezone: "{zone}"')
    assert severity == "error"
    assert part in message
    assert part in (check_zone(zone) or "")


def test_a_zone_whose_sign_is_turned_around_is_doubted() -> None:
    ((severity, message),) = findings('cron: "0 9 * * *", timezone: Etc/GMT+2')
    assert (severity, "UTC+2 is `Etc/GMT-2`" in message) == ("warning", True)
    assert not findings('cron: "0 9 * * *", timezone: Etc/UTC')


ASKED = "steps: [{approve: {title: t, from: anyone}}]"
LATER = "steps: [{for_each: {items: [1], steps: [{ask: {title: t, from: anyone, form: {type: object}}}]}}]"


@pytest.mark.parametrize(
    ("overlap", "steps", "doubted"),
    [
        ("queue", ASKED, True),
        ("queue", LATER, True),
        ("queue", "steps: [{say: x}]", False),
        ("queue_one", ASKED, False),
        ("skip", ASKED, False),
    ],
)
def test_instants_that_wait_behind_a_question_are_doubted(overlap: str, steps: str, doubted: bool) -> None:
    trigger = f'triggers: [{{schedule: {{cron: "* * * * *", timezone: UTC, overlap: {overlap}}}}}]'
    found = [each for each in check_workflow(f"{HEAD}{trigger}\n{steps}\n".encode()) if each.code == "schedule.overlap"]
    assert [each.severity for each in found] == (["warning"] if doubted else [])
    assert all("`overlap: queue_one`" in each.message for each in found)


@pytest.mark.parametrize(("value", "counts"), [("${{ state.n + 1 }}", True), ("${{ item }}", False)])
def test_a_counter_that_parallel_items_add_to_differs_from_a_lost_value(value: str, counts: bool) -> None:
    loop = f"for_each: {{items: [1, 2], max_parallel: 2, steps: [{{set: {{n: '{value}'}}}}]}}"
    document = f"{HEAD}state: {{n: {{type: integer, default: 0}}}}\nsteps: [{{{loop}}}]\n"
    (message,) = [each.message for each in check_workflow(document.encode()) if each.code == "set.parallel"]
    assert ("each of them counts" in message) is counts
    assert "the last one wins" in message


def test_a_name_with_a_dot_is_written_in_brackets() -> None:
    input = "input: {type: object, required: [a.b], properties: {a.b: {type: string}}, additionalProperties: false}"
    document = f"{HEAD}{input}\nsteps: [{{say: '${{{{ input.a.b }}}}'}}]\n"
    (finding,) = [each for each in check_workflow(document.encode()) if each.severity == "error"]
    assert 'input["a.b"]' in finding.message
