"""Quorums against brute force, and the laws that any of them obeys."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine.pendings.quorum import Missing, People, Quorum, find_free_seats, is_met, missing

SELECTORS = ("role:a", "role:b", "role:c", "anyone")
PEOPLE = ("ann", "bob", "eve", "joe", "kim")

groups = st.dictionaries(
    st.sampled_from(PEOPLE), st.lists(st.sampled_from(SELECTORS), unique=True).map(tuple), max_size=5
)
seats = st.dictionaries(st.sampled_from(SELECTORS), st.integers(1, 3), max_size=4)
maps = st.builds(
    lambda wanted, total: wanted if total is None else {**wanted, "any": total}, seats, st.none() | st.integers(0, 6)
)
quorums: st.SearchStrategy[Quorum] = st.integers(1, 6) | st.just("all") | maps  # type: ignore[arg-type]


def seated_by_trying(wanted: Mapping[str, int], people: People) -> int:
    """How many seats people can fill at most, by trying every order of people against the seats in a row."""
    row = [selector for selector, count in wanted.items() for _ in range(count)]
    best = 0
    for order in permutations([*people, *[None] * len(row)], len(row)):
        taken = sum(who is not None and seat in people[who] for who, seat in zip(order, row, strict=True))
        best = max(best, taken)
    return best


def met_by_trying(quorum: Quorum, approvers: People, everyone: tuple[str, ...]) -> bool:
    if isinstance(quorum, int):
        return len(approvers) >= quorum
    if isinstance(quorum, str):
        return bool(everyone) and all(person in approvers for person in everyone)
    wanted = {selector: count for selector, count in quorum.items() if selector != "any"}
    total = sum(wanted.values())
    return seated_by_trying(wanted, approvers) == total and len(approvers) >= quorum.get("any", total)


small_seats = st.dictionaries(st.sampled_from(SELECTORS), st.integers(1, 2), max_size=2)
few = st.dictionaries(
    st.sampled_from(PEOPLE[:4]), st.lists(st.sampled_from(SELECTORS), unique=True).map(tuple), max_size=4
)


@given(small_seats, few)
def test_the_best_seating_is_that_of_trying_them_all(wanted: dict[str, int], people: People) -> None:
    free = find_free_seats(wanted, people)
    assert sum(wanted.values()) - sum(free.values()) == seated_by_trying(wanted, people)
    assert all(0 < count <= wanted[selector] for selector, count in free.items())


@given(
    st.integers(1, 5)
    | st.just("all")
    | st.builds(lambda wanted, n: {**wanted, "any": n} if n else wanted, small_seats, st.integers(0, 5)),
    few,
    st.lists(st.sampled_from(PEOPLE), unique=True).map(tuple),
)
def test_a_quorum_is_met_when_trying_everything_says_so(
    quorum: Quorum, approvers: People, everyone: tuple[str, ...]
) -> None:
    assert is_met(quorum, approvers, everyone) == met_by_trying(quorum, approvers, everyone)


@given(quorums, groups, st.sampled_from(PEOPLE), st.lists(st.sampled_from(SELECTORS), unique=True))
def test_one_more_approval_never_takes_a_quorum_away(
    quorum: Quorum, approvers: People, who: str, matches: list[str]
) -> None:
    if who not in approvers and is_met(quorum, approvers, PEOPLE[:2]):
        assert is_met(quorum, {**approvers, who: matches}, PEOPLE[:2])


@given(quorums, groups)
def test_the_order_of_the_approvals_does_not_matter(quorum: Quorum, approvers: People) -> None:
    backwards = dict(reversed(list(approvers.items())))
    assert is_met(quorum, approvers, PEOPLE) == is_met(quorum, backwards, PEOPLE)


@given(quorums, groups)
def test_what_is_missing_is_nothing_exactly_when_the_quorum_is_met(quorum: Quorum, approvers: People) -> None:
    lacking = missing(quorum, approvers, PEOPLE)
    assert is_met(quorum, approvers, PEOPLE) == (not lacking.people and not lacking.seats and not lacking.names)


def test_two_people_one_of_them_from_a_role() -> None:
    quorum = {"role:sre": 1, "any": 2}
    assert not is_met(quorum, {"ann": ["role:sre"]})
    assert not is_met(quorum, {"bob": [], "eve": []})
    assert is_met(quorum, {"ann": ["role:sre"], "bob": []})


def test_one_person_with_both_roles_is_still_one_person() -> None:
    both = {"role:sre": 1, "role:dev": 1}
    assert missing(both, {"ann": ["role:sre", "role:dev"]}) == Missing(1, {"role:dev": 1}, ())
    assert is_met(both, {"ann": ["role:sre", "role:dev"], "bob": ["role:sre"]})


def test_whoever_can_sit_elsewhere_makes_room() -> None:
    chain = {"s1": 1, "s2": 1, "s3": 1}
    people = {"ann": ["s1", "s2"], "bob": ["s1", "s3"], "eve": ["s1"]}
    assert find_free_seats(chain, people) == {}


def test_all_means_everyone_by_name_and_nobody_is_never_all() -> None:
    assert missing("all", {"ann": []}, ("ann", "bob")) == Missing(1, {}, ("bob",))
    assert is_met("all", {"ann": [], "bob": []}, ("ann", "bob"))
    assert not is_met("all", {}, ())


@pytest.mark.parametrize("count", [1, 50, 400])
def test_many_people_and_seats_are_matched_without_deep_recursion(count: int) -> None:
    people = {f"p{n}": ["role:a", "role:b"] if n % 2 else ["role:a"] for n in range(2 * count)}
    assert find_free_seats({"role:a": count, "role:b": count}, people) == {}


def test_what_is_missing_is_counted_by_people_by_seats_and_by_name() -> None:
    boss = {"user:ann": ("role:boss",)}
    assert missing(3, boss) == Missing(2, {}, ())
    assert missing({"role:boss": 2, "role:cfo": 1}, boss) == Missing(2, {"role:boss": 1, "role:cfo": 1}, ())
    assert missing({"role:cfo": 1, "any": 3}, boss) == Missing(2, {"role:cfo": 1}, ())
    assert missing("all", boss, ("user:bob", "user:ann", "user:abe")) == Missing(2, {}, ("user:abe", "user:bob"))
    assert missing("all", boss, ("user:ann",)) == Missing(0, {}, ())
    assert missing("all", boss, ()) == Missing(1, {}, ()), "of nobody one more than there is"
