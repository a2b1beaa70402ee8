"""Which schedule a person means."""

from __future__ import annotations

import pytest

from hai_flow.cli.errors import UsageError
from hai_flow.cli.runs.schedules import id_of

SCHEDULES = [
    {"id": "aa11", "workflow": "nightly"},
    {"id": "aa22", "workflow": "report"},
    {"id": "bb33", "workflow": "report"},
    {"id": "cc44", "workflow": "aa"},
]


@pytest.mark.parametrize(("text", "id"), [("nightly", "aa11"), ("aa2", "aa22"), ("bb33", "bb33"), ("aa", "cc44")])
def test_a_schedule_is_known_by_its_workflow_or_the_beginning_of_its_id(text: str, id: str) -> None:
    assert id_of(text, SCHEDULES) == id


@pytest.mark.parametrize(
    ("text", "says"), [("weekly", "found 'weekly'"), ("", "found ''"), ("report", "means 2 schedules.*aa22, bb33")]
)
def test_what_means_none_or_several_is_refused_with_what_there_is(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        id_of(text, SCHEDULES)
