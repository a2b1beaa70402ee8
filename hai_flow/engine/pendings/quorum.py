"""Whether enough of the right people agree (docs/language.md#approve). Arithmetic alone: people are ids and the
selectors that each of them matches.

A quorum is a number of people, `all` of them, or seats: each selector with a count makes that many seats, and a person
fills at most one, of a selector they match."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, TypeAlias

Quorum: TypeAlias = int | Literal["all"] | Mapping[str, int]
People: TypeAlias = Mapping[str, Collection[str]]  # id -> the selectors that this person matches

ANY = "any"  # in a map of seats: how many people in all


class Missing(NamedTuple):
    """The lack of a quorum: so many people, seats by selector, and (of `all`) people by name. Nothing = it is met."""

    people: int
    seats: Mapping[str, int]
    names: tuple[str, ...]


def is_met(quorum: Quorum, approvers: People, everyone: Collection[str] = ()) -> bool:
    """Whether `approvers` are enough. `everyone` is the meaning of `all`; an empty list is never all."""
    return missing(quorum, approvers, everyone) == _NOTHING


def missing(quorum: Quorum, approvers: People, everyone: Collection[str] = ()) -> Missing:
    """The lack of `approvers` to be a quorum."""
    if isinstance(quorum, int):
        return Missing(max(0, quorum - len(approvers)), {}, ())
    if isinstance(quorum, str):
        names = tuple(sorted(set(everyone) - approvers.keys()))
        return Missing(len(names) if everyone else 1, {}, names)
    seats = {selector: count for selector, count in quorum.items() if selector != ANY}
    needed = quorum.get(ANY, sum(seats.values()))
    return Missing(max(0, needed - len(approvers)), find_free_seats(seats, approvers), ())


_NOTHING = Missing(0, {}, ())


def find_free_seats(seats: Mapping[str, int], people: People) -> dict[str, int]:
    """The seats that stay free in the best seating, by selector: a maximum bipartite matching of people to seats.

    People sit down one after the other; where all of a person's seats are taken, somebody there moves on to another
    seat of theirs, if that frees one. A round looks at each selector once, so it ends."""
    seated: dict[str, list[str]] = {selector: [] for selector in seats}
    free = sum(seats.values())
    for person in people:
        if free == 0:
            break
        if _seat(person, seats, people, seated, set()):
            free -= 1
    return {
        selector: count - len(seated[selector]) for selector, count in seats.items() if count > len(seated[selector])
    }


def _seat(person: str, seats: Mapping[str, int], people: People, taken: dict[str, list[str]], asked: set[str]) -> bool:
    for selector in people[person]:
        if selector not in seats or selector in asked:
            continue
        asked.add(selector)
        sitting = taken[selector]
        if len(sitting) < seats[selector]:
            sitting.append(person)
            return True
        for number, other in enumerate(sitting):
            if _seat(other, seats, people, taken, asked):
                sitting[number] = person
                return True
    return False
