"""The people behind a run beside its requester: the sender of the event, the person that let the schedule run,
everybody behind the run whose end started it, the requesters of the runs that a fork goes back to, and the senders of
the signals that it, or a run below it, has taken. They may not decide wherever requesters may not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SYSTEM: Final = "system"
"""The requester of runs that no person has asked for."""
INSTIGATORS_MAX: Final = 128
"""A run knows so many that were behind it when it began, the nearest ones."""
SENDERS_MAX: Final = 128
"""A run knows so many that have sent it signals since, the last ones."""


def list_people_behind(requester: str, *others: Iterable[str]) -> tuple[str, ...]:
    """The instigators of a run which a run, an event or a fork of these people causes: each once, the nearest first."""
    people = dict.fromkeys((requester, *(id for group in others for id in group)))
    people.pop(SYSTEM, None)
    people.pop("", None)
    return tuple(people)[:INSTIGATORS_MAX]


def with_senders(senders: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    """The senders of a run's signals, with `more` of them; the same tuple, where it has all of those."""
    new = tuple(id for id in more if id not in senders)
    return (*senders, *new)[-SENDERS_MAX:] if new else senders
