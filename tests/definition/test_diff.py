"""What a version changes against another, in the words of its author."""

from __future__ import annotations

from typing import Any

from hai_flow.definition.diff import diff
from tests.support.runs import plan_of

FLOW = """
input: {type: object, properties: {n: {type: integer, default: 1}}}
state: {log: {type: array, items: {type: string}, default: []}}
steps:
  - id: book
    call: t.book
    with: {n: "${{ input.n }}"}
  - {id: fine, approve: {title: Fine?, from: role:lead, deadline: 1d}}
  - id: both
    parallel:
      left: [{id: l, say: left}]
      right: [{id: r, say: right}]
  - say: done
output: {ok: true}
"""


def changes(new: str, old: str = FLOW) -> list[tuple[Any, ...]]:
    """(kind, path) of every step, or (kind, path, was) of one that moved, and the keys that changed."""
    found = diff(plan_of(old), plan_of(new)).steps
    places = [(each.kind, each.path) if each.was is None else (each.kind, each.path, each.was) for each in found]
    return [(*place, *(part.key for part in each.parts)) for place, each in zip(places, found, strict=True)]


def test_comments_and_lines_and_the_order_of_keys_are_no_change() -> None:
    respaced = FLOW.replace("  - id: book\n    call: t.book\n", "  # it books\n\n  - call: t.book\n    id: book\n")
    respaced = respaced.replace("from: role:lead, deadline: 1d}", "deadline: 24h, from: 'role:lead'}")
    assert not diff(plan_of(FLOW), plan_of(respaced))


def test_a_changed_argument_is_shown_as_it_is_written() -> None:
    found = diff(plan_of(FLOW), plan_of(FLOW.replace("input.n }}", "input.n + 1 }}")))
    assert found.as_dict() == {
        "document": [],
        "steps": [
            {
                "kind": "changed",
                "path": "book",
                "verb": "call",
                "parts": [{"key": "with", "from": {"n": "${{ input.n }}"}, "to": {"n": "${{ input.n + 1 }}"}}],
            }
        ],
    }


def test_a_changed_policy_names_its_key() -> None:
    assert changes(FLOW.replace("role:lead", "role:boss")) == [("changed", "fine", "from")]
    assert changes(FLOW.replace("deadline: 1d", "deadline: 2d")) == [("changed", "fine", "deadline")]


def test_a_call_that_gets_a_key_of_its_own_has_changed_by_nothing_else() -> None:
    assert changes(FLOW.replace("call: t.book\n", "call: t.book\n    idempotency_key: k\n")) == [
        ("changed", "book", "idempotency_key")
    ]


def test_another_verb_under_the_same_id_is_a_change_of_the_verb() -> None:
    (change,) = diff(plan_of(FLOW), plan_of(FLOW.replace("{id: l, say: left}", "{id: l, wait: {for: 1h}}"))).steps
    assert (change.kind, change.path) == ("changed", "both/left/l")
    assert [(part.old, part.new) for part in change.parts if part.key == "verb"] == [("say", "wait")]


def test_steps_that_came_and_went() -> None:
    without = FLOW.replace("  - say: done\n", "")
    assert changes(without) == [("removed", "say#1")]
    assert changes(FLOW, without) == [("added", "say#1")]
    assert ("added", "both/third/x") in changes(FLOW.replace("right: [{", "third: [{id: x, say: x}]\n      right: [{"))


def test_a_step_before_the_others_shifts_the_paths_of_those_without_an_id() -> None:
    assert changes(FLOW.replace("  - id: book", "  - say: hello\n  - id: book")) == [
        ("added", "say#1"),
        ("moved", "say#2", "say#1"),
    ]


def test_a_step_put_elsewhere_in_its_list_has_moved_and_the_others_not() -> None:
    body = FLOW.replace("  - say: done\n", "").replace("steps:\n", "steps:\n  - say: done\n")
    assert changes(body) == [("moved", "say#1", "say#1")]


def test_a_step_is_known_by_its_id_wherever_it_stands() -> None:
    moved = FLOW.replace("{id: l, say: left}", "{id: new, say: new}").replace("- say: done", "- {id: l, say: left}")
    assert changes(moved) == [("added", "both/left/new"), ("moved", "l", "both/left/l"), ("removed", "say#1")]


def test_what_stands_in_a_renamed_block_is_not_listed_again() -> None:
    assert changes(FLOW.replace("id: both", "id: all")) == [("moved", "all", "both")]


def test_what_stands_outside_of_the_steps_is_told_by_key() -> None:
    new = FLOW.replace("default: 1}", "default: 2}").replace("{ok: true}", "{ok: 1}").replace("log:", "notes:")
    keys = [part.key for part in diff(plan_of(FLOW), plan_of(new)).document]
    assert keys == ["input", "output", "state.log", "state.notes"]
