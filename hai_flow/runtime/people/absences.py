"""Who holds the seat of somebody who is away: their delegate; or, where that one is away too, the delegate's.

Pure, but for `list_voices`. A chain has at most `CHAIN_MAX` absences. One that is longer, goes round in a circle or
ends with somebody who is away and has not named a delegate leaves the seat empty, and `Seat.why` says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from hai_flow.engine import commands as c
from hai_flow.engine.pendings.selectors import name_holdings
from hai_flow.runtime.people.delegates import AllIds
from hai_flow.store.identity.proofs import Holding
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.people.delegations import Delegation

CHAIN_MAX: Final = 5


class Seat(NamedTuple):
    """Who decides for somebody who is away: `holder`, None: nobody, and `why`. `chain`: the absences by which it is
    so, that of the person first."""

    holder: str | None
    chain: tuple[AbsenceRow, ...]
    why: str = ""

    def list_ids_between(self, all_ids: AllIds) -> tuple[str, ...]:
        """By whom the seat came to its holder, by all of their ids: the people that are away between, and those who
        entered the absences for somebody else."""
        away = [each.person for each in self.chain[1:]]
        others = [each.entered_by for each in self.chain if each.entered_by not in all_ids(each.person)]
        return tuple(dict.fromkeys(id for person in (*away, *others) for id in all_ids(person)))

    def list_selectors_between(self, all_ids: AllIds, holdings: Mapping[str, Holding]) -> tuple[str, ...]:
        """The same people, and the roles and groups of any of them: those that they had when they entered that they are
        away, and those of their keys in `holdings`. So an exclusion of a role excludes them, too."""
        ids = self.list_ids_between(all_ids)
        held = [holdings[id] for id in ids if id in holdings]
        roles = {role for each in (*self.chain[1:], *held) for role in each.roles or ()}
        groups = {group for each in (*self.chain[1:], *held) for group in each.groups}
        return (*ids, *name_holdings(sorted(roles), sorted(groups)))


def map_absences(rows: Iterable[AbsenceRow], all_ids: AllIds) -> dict[str, AbsenceRow]:
    """The absences that hold at one moment, by the id that each person is known by first."""
    return {all_ids(each.person)[0]: each for each in rows}


def find_seat(person: str, away: Mapping[str, AbsenceRow], all_ids: AllIds) -> Seat:
    """The seat of somebody who is `away`."""
    chain: list[AbsenceRow] = []
    holder = person
    while (row := away.get(holder)) is not None:
        if row in chain:
            names = " to ".join(each.person for each in chain)
            return Seat(None, tuple(chain), f"the absences go round in a circle: {names} to {holder}")
        if len(chain) == CHAIN_MAX:
            return Seat(None, tuple(chain), f"more than {CHAIN_MAX} people in a row are away for {person}")
        chain.append(row)
        if row.delegate is None:
            return Seat(None, tuple(chain), f"{row.person} is away until {row.last_day} and has not named a delegate")
        holder = all_ids(row.delegate)[0]
    return Seat(holder, tuple(chain))


def find_conflict(entered: AbsenceRow, others: Sequence[AbsenceRow], all_ids: AllIds) -> tuple[str, str] | None:
    """Why the absence can't stand beside the `others`, which are not over: a code and a sentence; None: it can.

    Who is away changes only when an absence begins, so it is enough to look at these moments."""
    person = all_ids(entered.person)[0]
    beside = [each for each in others if each.since < entered.until and entered.since < each.until]
    for each in beside:
        if all_ids(each.person)[0] == person:
            days = f"from {each.first_day} until {each.last_day}"
            return "absences_overlap", f"{person} is away {days} already; end that absence first."
    for moment in sorted({entered.since, *(each.since for each in beside if each.since > entered.since)}):
        away = map_absences((entered, *(each for each in beside if each.since <= moment < each.until)), all_ids)
        for first in _list_before(person, away, all_ids):
            seat = find_seat(first, away, all_ids)
            if seat.holder is None and seat.chain[-1].delegate is not None:
                return "absence_circle", f"{seat.why}, on {moment:%Y-%m-%d}; name somebody else."
    return None


def _list_before(person: str, away: Mapping[str, AbsenceRow], all_ids: AllIds) -> list[str]:
    """The person, and everybody whose seat comes to them."""
    people = [person]
    for last in people:
        before = (id for id, row in away.items() if row.delegate is not None and all_ids(row.delegate)[0] == last)
        people += [id for id in before if id not in people]
    return people


def as_delegation(row: AbsenceRow) -> Delegation:
    """The absence as what it is for its delegate: they have what its person had then and has still."""
    return Delegation(
        row.id, row.person, row.delegate or "", row.roles, row.groups, row.since, row.until, row.note, row.created_at
    )


async def list_voices(
    who: c.Principal,
    rows: Sequence[AbsenceRow],
    all_ids: AllIds,
    in_force: Callable[[Sequence[Delegation]], Awaitable[list[Delegation]]],
    load_holdings: Callable[[Collection[str]], Awaitable[Mapping[str, Holding]]],
) -> list[c.Principal]:
    """The principal in the seat of each person that is away and whose seat is theirs by the absences that hold now.
    An absence whose person may decide no more gives no seat, and takes none on. `load_holdings`: what people have by
    their keys."""
    away = map_absences(rows, all_ids)
    mine = {who.id, *who.aliases}
    seats = {person: seat for person in away if (seat := find_seat(person, away, all_ids)).holder in mine}
    chained = {row.id: row for seat in seats.values() for row in seat.chain}
    holdings = await load_holdings({id for seat in seats.values() for id in seat.list_ids_between(all_ids)})
    lent = {each.id: each for each in await in_force([as_delegation(row) for row in chained.values()])}
    return [
        msgspec.structs.replace(
            who,
            on_behalf_of=person,
            lent_roles=tuple(lent[seat.chain[0].id].roles),
            lent_groups=tuple(lent[seat.chain[0].id].groups),
            lent_aliases=tuple(all_ids(person)[1:]),
            through=(
                *who.through,
                *seat.list_selectors_between(all_ids, holdings),
                *dict.fromkeys(selector for row in seat.chain for selector in lent[row.id].held),
            ),
        )
        for person, seat in seats.items()
        if person not in mine and all(row.id in lent for row in seat.chain)
    ]
