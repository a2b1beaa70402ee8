"""Deadlines in working days: worked out when the question opens, and kept in its event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.people.calendars import Calendar
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.runs.replay import decide_again
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.state import RunState
from hai_flow.primitives import instants

RUN = UUID(int=7)
FLOW = """
hai: flow/v1
name: a
version: 1
calendar: NAME
steps:
  - id: go
    approve:
      title: Go?
      from: role:boss
      deadline: 3 working days
      remind: [1 working day]
      on_deadline: [{escalate: {from: role:chief, deadline: 1 working day}}, reject]
"""
OWN = {"germany": Calendar("Europe/Berlin", holidays=("2026-03-03", "2026-03-06"))}


def at(text: str) -> int:
    return instants.milliseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


def opened(calendars: dict[str, Calendar], name: str = "germany", flow: str = FLOW) -> Any:
    """The plan, and the state and events of a run that has asked on a Monday at 11:00."""
    plan = compile_workflow(flow.replace("NAME", name).encode(), "a.flow.yaml")
    start = c.Start(run_id=RUN, thread_id="t", requester="user:req", input={})
    decision = decide(plan, RunState(str(RUN)), start, at("2026-03-02 11:00"), Bounds(calendars=calendars))
    return plan, decision.state, decision.events


def test_the_deadline_is_an_instant_by_the_calendar_of_the_workflow() -> None:
    _, state, events = opened(OWN)
    (pending,) = state.pendings.values()
    assert pending.opened.deadline == at("2026-03-09 11:00")  # the 3rd and the 6th are holidays, the 7th is Saturday
    rules = pending.opened.policy
    assert (rules["deadline"], rules["escalations"][0]["deadline"]) == ("3 working days", "1 working day")
    (reminder,) = [each for each in events if isinstance(each, e.TimerSet) and each.kind == "remind"]
    assert reminder.due == at("2026-03-04 11:00")


@pytest.mark.parametrize(("name", "due"), [("default", "2026-03-05 11:00"), ("Asia/Tokyo", "2026-03-05 11:00")])
def test_without_a_calendar_of_the_deployment_mondays_to_fridays_count(name: str, due: str) -> None:
    _, state, _ = opened({}, name)
    (pending,) = state.pendings.values()
    assert pending.opened.deadline == at(due)


def test_a_question_whose_calendar_is_not_there_fails_with_that_code() -> None:
    _, state, _ = opened({}, "germany")
    assert (state.status, state.error and state.error.code) == ("failed", "approval.calendar")


def test_a_holiday_that_is_entered_later_moves_nothing_of_an_open_question() -> None:
    own = {"germany": Calendar("Europe/Berlin", holidays=(*OWN["germany"].holidays, "2026-03-10"))}
    plan, state, _ = opened(own)
    due = at("2026-03-09 11:00")
    later = Bounds(calendars={"germany": Calendar("Europe/Berlin", holidays=("2026-03-11",))})
    for limits in (later, Bounds()):
        decision = decide(plan, state, c.TimerFired(), due, limits)
        (pending,) = decision.state.pendings.values()
        assert pending.opened.deadline == at("2026-03-11 11:00"), "the stage counts by the calendar of the opening"


def test_a_log_is_decided_again_as_it_was_whatever_the_calendars_are_now() -> None:
    plan, _, events = opened(OWN)
    stored = e.decode_events(e.encode_events(events))
    for limits in (Bounds(), Bounds(calendars={"germany": Calendar("UTC")}), Bounds(calendars=OWN)):
        assert decide_again(plan, RunState(str(RUN)), stored, 0, limits).left is None


def test_the_event_keeps_no_more_holidays_than_the_deadlines_need() -> None:
    many = tuple(f"{year}-12-25" for year in range(2000, 2200))
    _, state, _ = opened({"germany": Calendar("Europe/Berlin", holidays=many)})
    (pending,) = state.pendings.values()
    assert len(msgspec.json.encode(pending.opened.policy["calendar"])) < 100


def test_the_event_keeps_the_holidays_of_all_stages_together() -> None:
    flow = FLOW.replace("3 working days", "200 working days").replace("deadline: 1 working", "deadline: 200 working")
    _, state, _ = opened({"germany": Calendar("Europe/Berlin", holidays=("2029-03-01", "2035-03-01"))}, flow=flow)
    (pending,) = state.pendings.values()
    assert pending.opened.policy["calendar"]["holidays"] == ["2029-03-01"]


@pytest.mark.parametrize("days", [0, 1_001])
def test_a_computed_number_of_working_days_is_checked_against_its_bounds(days: int) -> None:
    _, state, _ = opened(
        OWN, flow=FLOW.replace("3 working days", f"\"${{{{ string({days} + 0) + ' working days' }}}}\"")
    )
    assert (state.status, state.error and state.error.code) == ("failed", "expression.error")


def test_reminders_come_the_shortest_first_whatever_they_count() -> None:
    _, _, events = opened(OWN, flow=FLOW.replace("[1 working day]", "[2 working days, 30h, 1 working day]"))
    (reminder,) = [each for each in events if isinstance(each, e.TimerSet) and each.kind == "remind"]
    assert reminder.due == at("2026-03-04 11:00")
