"""Tests in YAML bring calendars of their own for the working days of a workflow."""

from __future__ import annotations

from pathlib import Path

from tests.testing.support import findings_of, played

FLOW = """\
hai: flow/v1
name: a
version: 1
calendar: germany
steps:
  - id: go
    approve:
      title: Go?
      from: role:boss
      deadline: 1 working day
      on_deadline: [{escalate: {from: role:chief, deadline: 1 working day}}, reject]
"""
TESTS = """\
hai: test/v1
workflow: expense.flow.yaml
now: "2026-03-02T11:00:00Z"
calendars: {germany: {zone: Europe/Berlin, holidays: {2026-03-03: Carnival}}}
people: {bo: [role:boss]}
cases:
  - name: the holiday does not count
    script:
      - advance: 47h
      - expect: {pending: [go], escalated: {go: 0}}
      - advance: 1h
      - expect: {pending: [go], escalated: {go: 1}}
"""


def test_a_test_plays_by_its_calendars(tmp_path: Path) -> None:
    (result,) = played(tmp_path, TESTS, FLOW)
    assert result.passed, result


def test_a_mistake_in_them_is_a_finding() -> None:
    (finding,) = findings_of(TESTS.replace("Europe/Berlin", "Mars"))
    assert (finding.code, "zone" in finding.message) == ("test.calendars", True)
