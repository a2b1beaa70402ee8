"""Every cell of docs/passing.md is tried: a way around a question, a kind of question, a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.passing_page import page
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from tests.engine.passing import KINDS, PEOPLE, TABLE, WAYS, attempt, rejected


def test_the_table_has_each_way_each_kind_and_a_cell_for_everybody() -> None:
    assert list(TABLE) == list(WAYS)
    for rows in TABLE.values():
        assert list(rows) == list(KINDS)
        assert {len(cells) for cells in rows.values()} == {len(PEOPLE)}


@pytest.mark.costly
@pytest.mark.parametrize("way", WAYS)
def test_a_question_is_passed_by_those_alone_that_the_table_says(way: str) -> None:
    cells = {
        (kind, person): TABLE[way][kind][n]
        for kind in KINDS
        for n, person in enumerate(PEOPLE)
        if TABLE[way][kind][n] != "-"
    }
    assert {(kind, person): attempt(way, kind, person) for kind, person in cells} == cells


@pytest.mark.parametrize(
    "kind", ["an `approve`", "a gate on a call", "an `approve` in a branch", "an `approve` in a loop"]
)
def test_behind_a_no_another_decider_does_not_skip_either(kind: str) -> None:
    case, who = rejected(kind, "a decider"), PEOPLE["a decider"]
    with pytest.raises(Rejected) as refused:
        case.play.do(c.Skip(by=who.id, who=who, path=case.at))
    assert (refused.value.status, refused.value.code) == (409, "skip.rejected")


def test_the_page_is_up_to_date() -> None:
    assert (Path(__file__).parents[2] / "docs" / "passing.md").read_text() == page(), "run `make docs`"
