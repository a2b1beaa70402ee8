"""Selectors: whom they mean, who can be listed, and taking somebody for somebody."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hai_flow.engine.commands import Principal
from hai_flow.engine.pendings.selectors import (
    NotASelector,
    World,
    acting_as,
    expand_selectors,
    find_sure_ids,
    is_sure_match,
    list_excluding_selectors,
    list_matching_selectors,
    list_people,
    person_of,
    principal_selectors,
    selectors_of,
    voting_person,
)

WORLD = World("user:req", {"board": ("user:ann", "user:bob"), "money": ("user:joe", "group:finance")})


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("user:ann", ("user:ann",)),
        (["role:a", "requester", "anyone", "role:a"], ("role:a", "requester", "anyone")),
        ([["user:ann", "user:bob"], "user:ann"], ("user:ann", "user:bob")),
        ([], ()),
    ],
)
def test_what_is_rendered_is_one_selector_or_a_list_each_once(value: Any, found: tuple[str, ...]) -> None:
    assert selectors_of(value) == found


@pytest.mark.parametrize(
    "value", ["ann", "user:", "user:a b", "team:x", "editor", 5, None, {}, [1], [["x"]], "", [True]]
)
def test_anything_else_names_nobody(value: Any) -> None:
    with pytest.raises(NotASelector, match="expected a selector"):
        selectors_of(value)


def test_an_exclusion_may_name_the_editor() -> None:
    assert selectors_of(["editor"], editor=True) == ("editor",)


@pytest.mark.parametrize(
    ("selectors", "people"),
    [
        (["user:ann", "requester"], ("user:ann", "user:req")),
        (["role:board", "user:bob"], ("user:ann", "user:bob")),
        (["role:money"], None),  # it has a group
        (["role:elsewhere"], None),
        (["group:finance"], None),
        (["anyone"], None),
        (["group:board"], None),  # of the name of a role
    ],
)
def test_people_and_roles_that_list_people_can_be_listed(selectors: list[str], people: tuple[str, ...] | None) -> None:
    assert list_people(selectors, WORLD) == people


@pytest.mark.parametrize(
    ("selector", "id", "surely"),
    [
        ("user:ann", "user:ann", True),
        ("user:ann", "user:bob", False),
        ("role:board", "user:ann", True),
        ("role:board", "user:joe", False),
        ("role:money", "user:joe", True),
        ("role:money", "user:ann", False),
        ("role:elsewhere", "user:ann", False),
        ("group:finance", "user:ann", False),
        ("requester", "user:req", True),
        ("anyone", "user:ann", True),
    ],
)
def test_of_somebody_known_by_id_alone_it_is_told_what_is_sure(selector: str, id: str, surely: bool) -> None:
    assert is_sure_match(selector, id, WORLD) == surely
    everybody_sure = find_sure_ids([selector], WORLD)
    assert (everybody_sure is None or id in everybody_sure) == surely
    assert everybody_sure is None or all(each.startswith("user:") for each in everybody_sure), "a group is nobody"


def test_somebody_is_taken_for_somebody_with_roles_and_groups() -> None:
    assert acting_as("user:ann") == Principal("user:ann")
    assert acting_as("user:ann, role:controller,role:sre,group:finance,for=user:bob") == Principal(
        "user:ann", ("controller", "sre"), ("finance",), "user:bob"
    )
    composed, decomposed = "user:zo\u00e9", "user:zoe\u0301"
    assert acting_as(f"{composed},for=user:bob").aliases == (decomposed,)
    assert acting_as(f"user:ann,for={composed}").lent_aliases == (decomposed,)


@pytest.mark.parametrize(
    "text",
    [
        "", "role:boss", "user:ann,user:bob", "ann", "user:ann,boss", "user:ann,for:bob", "user:ann,for=user:",
        "user:ann,for=user:bob,for=user:joe", "user:ann,off=user:bob", "user:ann,for=role:boss",
    ],
)  # fmt: skip
def test_whoever_is_not_exactly_one_user_is_nobody(text: str) -> None:
    with pytest.raises(NotASelector):
        acting_as(text)


def test_everybody_who_is_asked_can_be_named_without_the_run() -> None:
    selectors = ["requester", "role:money", "role:board", "role:boss", "group:x", "anyone", "user:ann"]
    assert expand_selectors(selectors, WORLD) == (
        "user:req", "user:joe", "group:finance", "user:ann", "user:bob", "role:boss", "group:x", "anyone",
    )  # fmt: skip


def test_of_roles_that_only_look_alike_the_one_as_written_is_meant() -> None:
    composed, decomposed = "\u00e9quipe", "e\u0301quipe"
    world = World("user:req", {composed: ("user:ann",), decomposed: ("user:bob",)})
    assert list_people([f"role:{composed}"], world) == ("user:ann",)
    assert list_people([f"role:{decomposed}"], world) == ("user:bob",)
    assert list_people([f"role:{decomposed}"], World("user:req", {composed: ("user:ann",)})) == ("user:ann",)


def test_a_group_or_a_person_with_the_name_of_a_role_is_not_the_role() -> None:
    assert expand_selectors(["group:money", "user:money"], WORLD) == ("group:money", "user:money")


def test_a_delegate_to_whom_nothing_was_lent_brings_what_they_have() -> None:
    acting = Principal("user:joe", ("boss",), ("x",), "user:ann")
    assert voting_person(acting) == Principal("user:ann", ("boss",), ("x",))
    assert (person_of(acting), person_of(Principal("user:joe"))) == ("user:ann", "user:joe")


def test_who_is_asked_has_one_of_the_names_by_which_they_are_found() -> None:
    who = Principal("user:joe", ("boss",), ("x",))
    assert principal_selectors(who) == ("user:joe", "role:boss", "group:x", "anyone")
    vouched = msgspec.structs.replace(who, issuer="key:shop")
    assert principal_selectors(vouched) == ("user:joe", "anyone")
    assert list_matching_selectors(["role:boss", "user:joe", "group:x", "anyone"], vouched, WORLD) == ("anyone",)
    bot = msgspec.structs.replace(who, id="agent:bot")
    assert principal_selectors(bot) == ("agent:bot", "anyone")
    selectors = ["role:boss", "agent:bot", "group:x", "anyone"]
    assert list_matching_selectors(selectors, bot, WORLD) == ("agent:bot", "anyone")
    for selectors in (["role:money"], ["role:boss"], ["group:x"], ["anyone"], ["requester"], ["role:board"]):
        asked = bool(list_matching_selectors(selectors, who, WORLD))
        assert asked == bool(set(expand_selectors(selectors, WORLD)) & set(principal_selectors(who))), selectors


def test_the_people_behind_a_run_are_excluded_by_the_word_for_them_alone() -> None:
    world = World("user:req", {}, ("user:req", "user:ann"))
    for id in ("user:req", "user:ann"):
        assert list_excluding_selectors(["requester", "role:boss", "user:bob"], Principal(id), world) == ("requester",)


@pytest.mark.parametrize("through", [("role:clerk",), ("user:joe", "group:b"), ("user:zoe", "user:joe")])
def test_an_exclusion_of_anybody_by_whom_a_vote_came_excludes_it(through: tuple[str, ...]) -> None:
    caller = Principal("user:ann", through=through)
    assert list_excluding_selectors(["role:boss", *through], caller, WORLD) == through
    assert list_excluding_selectors(["role:role:clerk", "user:clerk", "group:clerk"], caller, WORLD) == ()


LENT = Principal("user:bob", ("clerk",), ("b",), on_behalf_of="user:ann", lent_roles=("boss",), lent_groups=("a",))


def test_a_delegate_is_asked_as_the_other_and_only_as_the_other() -> None:
    assert principal_selectors(LENT) == ("user:ann", "role:boss", "group:a", "anyone")
    asked = ["user:ann", "user:bob", "role:boss", "role:clerk", "group:a", "group:b"]
    assert list_matching_selectors(asked, LENT, World("user:req", {})) == ("user:ann", "role:boss", "group:a")


@pytest.mark.parametrize("selector", ["user:ann", "user:bob", "role:boss", "role:clerk", "group:a", "group:b"])
def test_what_keeps_out_a_delegate_or_the_other_keeps_the_vote_out(selector: str) -> None:
    assert list_excluding_selectors([selector], LENT, World("user:req", {})) == (selector,)


@pytest.mark.parametrize("requester", ["user:ann", "user:bob"])
def test_neither_a_delegate_nor_the_other_may_have_started_the_run(requester: str) -> None:
    assert list_excluding_selectors(["requester"], LENT, World(requester, {})) == ("requester",)


@pytest.mark.parametrize("written", ["user:jos\u00e9", "user:jose\u0301"])
@pytest.mark.parametrize("caller", ["user:jos\u00e9", "user:jose\u0301"])
def test_two_spellings_of_one_id_are_one_person(written: str, caller: str) -> None:
    """Also in logs of before ids were composed."""
    who, role = Principal(caller, ("lead",)), caller.removeprefix("user:")
    world = World(written, {"board": (written,), f"r{written[5:]}": ("user:ann",)}, (written,))
    assert list_matching_selectors(("requester", written, "role:board"), who, world)
    assert list_excluding_selectors(("requester",), who, World("user:x", {}, (written,)))
    assert list_excluding_selectors((f"role:{written[5:]}",), Principal("user:x", (role,)), world)
    assert list_excluding_selectors((f"group:{written[5:]}",), Principal("user:x", (), (role,)), world)
    assert expand_selectors((f"role:r{role}",), world) == ("user:ann",)
    assert selectors_of(written) == ("user:jos\u00e9",)
    assert acting_as(written).id == "user:jos\u00e9"
    assert set(acting_as(caller).aliases) == {"user:jose\u0301"}
