"""The people behind a run beside its requester: the sender of the event, the person that let the schedule run,
everybody behind the run whose end started it, the requesters of the runs that a fork goes back to, and the senders of
the signals that it, or a run below it, has taken. They may not decide wherever requesters may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

SYSTEM: Final = "system"
"""The requester of runs that no person has asked for."""
INSTIGATORS_MAX: Final = 128
"""A run knows so many that were behind it when it began, the nearest ones."""
SENDERS_MAX: Final = 128
"""A run knows so many that have sent it signals since, the last ones, and the people of agents as far as there is
room."""
SENT_FOR: Final = "~"
"""How the id of a person begins in whose name another sent a signal."""


def list_people_behind(requester: str, *others: Iterable[str]) -> tuple[str, ...]:
    """The instigators of a run which a run, an event or a fork of these people causes: each once, the nearest first."""
    people = dict.fromkeys((requester, *(id for group in others for id in group)))
    people.pop(SYSTEM, None)
    people.pop("", None)
    return tuple(people)[:INSTIGATORS_MAX]


def read_senders(by: str | None) -> tuple[str, ...]:
    """The sender of a signal, and the people in whose name it was sent, of the text that its event has."""
    sender, *people = (by or "").split() or ("",)
    return (sender, *(SENT_FOR + each for each in people)) if sender else ()


def list_new_senders(senders: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    """Those of `more` that are not among the senders."""
    return tuple(id for id in more if id not in senders and id.removeprefix(SENT_FOR) not in senders)


def with_senders(senders: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    """The senders of a run's signals, with `more` of them; the same tuple, where it has all of those. The people
    in whose name one was sent give way first: an agent that has many of them drives out no sender."""
    new = list_new_senders(senders, more)
    if not new:
        return senders
    everybody = (*senders, *new)
    places = sorted(range(len(everybody)), key=lambda place: not everybody[place].startswith(SENT_FOR))
    return tuple(everybody[place] for place in sorted(places[-SENDERS_MAX:]))


def list_ids(people: Iterable[str]) -> Iterator[str]:
    """The ids of instigators and senders. Of a release before, one text may hold several."""
    return (id.removeprefix(SENT_FOR) for text in people for id in text.split())
