"""Seats of people who are away: which absences can stand beside each other, and what whoever holds a seat has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from hai_flow.engine import commands as c
from hai_flow.runtime.people.absences import find_conflict, list_voices
from hai_flow.store.identity.proofs import Holding
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.people.delegations import Delegation

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def absence(person: str, delegate: str | None, first: int, last: int, groups: Sequence[str] = ()) -> AbsenceRow:
    """From the day `first` until the day `last` begins, counted from a Monday."""
    since, until = (MONDAY + timedelta(days=each) for each in (first, last))
    return AbsenceRow(
        uuid4(), person, delegate, since.date(), until.date(), "UTC", since, until, ("boss",), groups, None, person,
        MONDAY,
    )  # fmt: skip


def one_id(id: str) -> tuple[str, ...]:
    return (id,)


def code(entered: AbsenceRow, *others: AbsenceRow) -> str | None:
    conflict = find_conflict(entered, others, one_id)
    return None if conflict is None else conflict[0]


def test_an_absence_may_begin_when_another_ends_and_not_before() -> None:
    week = absence("user:ann", None, 2, 4)
    assert [code(absence("user:ann", None, *days), week) for days in ((0, 2), (4, 6))] == [None, None]
    assert {code(absence("user:ann", None, *days), week) for days in ((0, 3), (3, 6), (0, 6), (2, 3))} == {
        "absences_overlap"
    }


def test_a_cycle_is_found_on_the_day_it_closes_and_one_that_never_is_none() -> None:
    back = absence("user:bob", "user:ann", 4, 8)
    assert code(absence("user:ann", "user:bob", 2, 6), back) == "absence_circle"
    assert code(absence("user:ann", "user:bob", 5, 6), back) == "absence_circle"
    assert [code(absence("user:ann", "user:bob", *days), back) for days in ((2, 4), (8, 9))] == [None, None]


async def test_a_seats_holder_has_roles_and_groups_of_the_first_in_the_chain() -> None:
    async def in_force(delegations: Sequence[Delegation]) -> list[Delegation]:
        return list(delegations)

    async def load_no_holdings(people: Collection[str]) -> dict[str, Holding]:
        return {}

    rows = [absence("user:ann", "user:bob", 0, 9, ("team:east",)), absence("user:bob", "user:cy", 0, 9, ("team:west",))]
    voices = await list_voices(c.Principal("user:cy"), rows, one_id, in_force, load_no_holdings)
    assert {each.on_behalf_of: each.lent_groups for each in voices} == {
        "user:ann": ("team:east",), "user:bob": ("team:west",),
    }  # fmt: skip
