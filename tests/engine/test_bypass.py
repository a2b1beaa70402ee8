"""Every cell of docs/passing.md is tried: a way around a question, a kind of question, a person."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from docs.passing_page import page
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from tests.engine.passing import KINDS, PEOPLE, TABLE, WAYS, attempt, rejected
from tests.support.runs import Play


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


_IN_DOUBT: Final = """
tools: {t: {python: tests.support.effects, effect: write}}
steps:
  - {id: look, call: t.note, with: {n: 1}, delivery: at_most_once}
  - {id: go, if: "steps.look.output.n > 0", approve: {title: Pay?, from: [role:boss]}}
"""
_REQUESTER: Final = c.Principal("user:ann", ("operator",))
_INSTIGATOR: Final = c.Principal("user:ins", ("operator",))


def _put_in_doubt(text: str) -> Play:
    play = Play(text, start=False)
    play.start(instigators=("user:ins",))
    play.lose("look")
    return play


@pytest.mark.parametrize("who", [_REQUESTER, _INSTIGATOR], ids=["the requester", "an instigator"])
def test_a_requester_settles_no_doubt_that_decides_what_is_asked(who: c.Principal) -> None:
    play = _put_in_doubt(_IN_DOUBT)
    with pytest.raises(Rejected) as refused:
        play.answer("look", who, decision="happened", result={"n": 0})
    assert (refused.value.status, refused.value.code) == (403, "pending_forbidden")
    play.answer("look", c.Principal("user:op", ("operator",)), decision="happened", result={"n": 1})
    assert play.pending("go")


def test_who_stands_for_everybody_settles_each_doubt() -> None:
    play = Play(_IN_DOUBT, start=False)
    play.do(c.Start(run_id=play.run_id, thread_id="t-1", requester=c.LOCAL_PRINCIPAL.id, input={}))
    play.lose("look")
    play.answer("look", c.LOCAL_PRINCIPAL, decision="happened", result={"n": 1})
    assert play.pending("go")


@pytest.mark.parametrize("decision", ["again", "fail"])
def test_a_requester_has_a_call_in_doubt_done_again_or_fail(decision: str) -> None:
    _put_in_doubt(_IN_DOUBT).answer("look", _REQUESTER, decision=decision)


def test_a_requester_settles_a_doubt_that_decides_nothing() -> None:
    play = _put_in_doubt(_IN_DOUBT.replace("steps.look.output.n > 0", "1 > 0"))
    play.answer("look", _REQUESTER, decision="happened", result={"n": 0})
    assert play.pending("go")


def test_the_page_is_up_to_date() -> None:
    assert (Path(__file__).parents[2] / "docs" / "passing.md").read_text() == page(), "run `make docs`"
