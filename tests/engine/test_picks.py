"""`pick` in the engine: nobody decides before people are picked, then they alone do."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.definition.compiler import check_workflow
from hai_flow.engine import commands as c
from hai_flow.engine.pendings.votes import describe_needs
from hai_flow.errors import Rejected
from tests.support.runs import Play

FLOW = """
steps:
  - id: go
    approve: {title: "Spend it?", from: role:boss, pick: 2, deadline: 1d, FIELDS}
"""
DAN, BOB, CAT = (c.Principal(f"user:{name}", ("boss",)) for name in ("dan", "bob", "cat"))


def begin_asking(fields: str = "quorum: 1") -> Play:
    play = Play(FLOW.replace("FIELDS", fields))
    play.start()
    return play


def pick(play: Play, *people: str, before: tuple[str, ...] | None = None, stages_left: int = 0) -> None:
    id = play.pending("go")
    play.do(c.PickPeople(id=id, stages_left=stages_left, before=before, people=people, note="" if people else "few"))


def test_nobody_decides_before_people_are_picked() -> None:
    play = begin_asking()
    with pytest.raises(Rejected, match="being picked"):
        play.answer("go", DAN, decision="approve")


def test_only_those_who_were_picked_decide_and_their_delegates_do() -> None:
    play = begin_asking()
    pick(play, "user:dan", "user:bob")
    with pytest.raises(Rejected, match="user:dan, user:bob were picked"):
        play.answer("go", CAT, decision="approve")
    delegate = c.Principal("user:cat", ("boss",), on_behalf_of="user:dan", lent_roles=("boss",))
    play.answer("go", delegate, decision="approve")
    assert play.status == "finished"


def test_where_nobody_could_be_picked_all_decide() -> None:
    play = begin_asking()
    pick(play)
    play.answer("go", CAT, decision="approve")
    assert play.status == "finished"


@pytest.mark.parametrize(
    ("people", "more"),
    [
        (("user:ann",), {}),
        (("user:dan", "user:bob"), {"before": ("user:cat",)}),
        (("user:dan", "user:bob"), {"stages_left": 1}),
    ],
)
def test_a_pick_of_the_requester_or_of_another_question_is_refused(people: tuple[str, ...], more: Any) -> None:
    play = Play(FLOW.replace("FIELDS", "quorum: 1"))
    play.start()
    with pytest.raises(Rejected) as refused:
        pick(play, *people, **more)
    assert refused.value.code == "pick_idle"


def test_a_quorum_that_the_picked_can_reach_no_more_is_a_rejection() -> None:
    play = begin_asking("quorum: 2, reject_when: unreachable")
    pick(play, "user:dan", "user:bob")
    play.answer("go", BOB, decision="reject")
    assert play.error.code == "approval.rejected"


def test_a_quorum_from_a_hole_picks_as_many_as_it_needs() -> None:
    play = begin_asking("quorum: '${{ 1 + 2 }}'")
    policy: Any = play.state.pendings[play.pending("go")].opened.policy
    assert policy["pick"] == 3


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ("from: role:boss, pick: 2, quorum: 1", 2),
        ("from: role:boss, pick: 2, quorum: 2", 2),
        ("from: role:boss, pick: 1, quorum: '${{ 1 + 2 }}'", 3),
        ("from: \"${{ ['user:dan', 'user:bob', 'user:cat'] }}\", pick: 2, quorum: \"${{ 'all' }}\"", None),
        ("from: \"${{ ['user:dan', 'user:bob'] }}\", pick: 2", None),
        ("from: \"${{ ['user:dan', 'user:bob', 'user:cat'] }}\", pick: 2", 2),
        ("from: role:boss", None),
    ],
)
def test_as_many_are_picked_as_the_quorum_needs_and_none_of_everybody(fields: str, number: int | None) -> None:
    play = Play(f'steps:\n  - id: go\n    approve: {{title: "Spend it?", deadline: 1d, {fields}}}\n')
    play.start()
    needs = describe_needs(play.state.pendings[play.pending("go")])
    assert needs.get("pick") == number
    assert ("picked" in needs) == (number is not None)


def test_the_needs_of_a_question_say_who_was_picked_or_why_nobody() -> None:
    play = begin_asking()
    parts = ("pick", "picked", "pick_note")

    def read() -> dict[str, Any]:
        needs = describe_needs(play.state.pendings[play.pending("go")])
        return {name: needs[name] for name in parts if name in needs}

    assert read() == {"pick": 2, "picked": None}
    pick(play, "user:dan", "user:bob")
    assert read() == {"pick": 2, "picked": ["user:dan", "user:bob"]}
    pick(play, before=("user:dan", "user:bob"))
    assert read() == {"pick": 2, "picked": [], "pick_note": "few"}


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ("from: role:boss, pick: 2", []),
        ("from: 'group:board', pick: 1", []),
        ("from: role:boss, pick: 2, quorum: 2, reject_when: unreachable", []),
        ("from: role:boss, pick: 1, quorum: 2", ["pick.quorum"]),
        ("from: role:boss, pick: 2, quorum: all", ["pick.quorum"]),
        ("from: role:boss, pick: 2, quorum: {role:boss: 1}", ["pick.quorum"]),
        ("from: role:boss, pick: 2, reject_when: 3", ["reject_when.impossible"]),
        ("from: user:ann, pick: 1", ["pick.role"]),
        ("from: [requester, user:ann], pick: 1", ["pick.role"]),
        ("from: role:listed, pick: 2", ["pick.everybody"]),
        ("from: role:listed, pick: 1", []),
    ],
)
def test_findings_about_pick(fields: str, codes: list[str]) -> None:
    text = f"""
hai: flow/v1
name: a
version: 1
roles: {{listed: [user:ann, user:bob], boss: [group:bosses]}}
steps:
  - id: go
    approve: {{title: a, deadline: 1d, {fields}}}
"""
    found_codes = [each.code for each in check_workflow(text.encode()) if each.code != "role.unused"]
    assert found_codes == codes


def test_a_pick_of_none_is_an_error() -> None:
    text = "hai: flow/v1\nname: a\nversion: 1\nsteps: [{approve: {title: a, from: role:x, pick: 0, deadline: 1d}}]\n"
    assert [each.severity for each in check_workflow(text.encode())] == ["error"]
