"""Whose runs a worker performs: those of its queues, and at most so many of each at a time (docs/operations.md#queues).

The setting is a list of `NAME`, `NAME=N` (at most N attempts at once, in this process) and `*` (every queue)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from hai_flow.definition.names.name_forms import WORKFLOW
from hai_flow.definition.plan import DEFAULT_QUEUE

EVERY: Final = "*"
QUEUES_MAX: Final = 1000
PLACES_MAX: Final = 10_000
_GIVEN: Final = re.compile(rf"(?P<name>{WORKFLOW}|\*)(=(?P<places>[0-9]{{1,5}}))?")


class QueueSelection(msgspec.Struct, frozen=True):
    """The queues that a process serves. `every`: also all that are not among `names`. `places`: the most attempts at
    once of a queue; those without one share the process's."""

    names: tuple[str, ...] = (DEFAULT_QUEUE,)
    every: bool = False
    places: dict[str, int] = msgspec.field(default_factory=dict)

    def serves(self, queue: str) -> bool:
        return self.every or queue in self.names

    @property
    def words(self) -> tuple[str, ...]:
        """The list as it is stored, and shown to people."""
        return (EVERY,) if self.every else self.names


NOTHING: Final = QueueSelection(())


def parse_queues(given: Iterable[str]) -> QueueSelection:
    """The queues that a setting names. Raises ValueError with a sentence for each mistake."""
    names: dict[str, None] = {}
    places: dict[str, int] = {}
    faults: list[str] = []
    for text in given:
        match = _GIVEN.fullmatch(text)
        count = None if match is None or match["places"] is None else int(match["places"])
        if match is None or (count is not None and (match["name"] == EVERY or not 0 < count <= PLACES_MAX)):
            faults.append(
                f"expected the name of a queue (a lower-case letter, then letters, digits, _ or -), NAME=N for at most "
                f"N (1 to {PLACES_MAX:,}) attempts at once, or * for every queue, found {text!r:.80}"
            )
            continue
        names[match["name"]] = None
        if count is not None:
            places[match["name"]] = count
    if len(names) > QUEUES_MAX:
        faults.append(f"expected at most {QUEUES_MAX:,} queues, found {len(names):,}; serve every queue with *")
    if faults:
        raise ValueError("; ".join(faults))
    return QueueSelection(tuple(name for name in names if name != EVERY), EVERY in names, places)
