"""Cells: which one an id says, and in which ones a tenant lives. Pure.

A cell is a schema of PostgreSQL that holds everything of its tenants. They are numbered; 0 is home, where a deployment
begins. An id made in another cell is a UUID that says its number, so that any process finds the run without a look-up
(docs/decisions, "An id says its cell"):

    48 bits as they were | 0110 | 12 as they were | 10 | 10 of the cell | 52 as they were

Version 6 is what tells them from the ids of home, which are of the versions 7 and 8 (4, where a test made them up) and
have never been of this one, in no release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from uuid import UUID

HOME: Final = 0
CELLS_MAX: Final = 1023
"""The highest number that a cell can have."""

_VERSION: Final = 6
_VERSION_AT: Final = 76
_CELL_AT: Final = 52
_MARK: Final = 0xF << _VERSION_AT | 0b11 << 62 | CELLS_MAX << _CELL_AT


def placed(id: UUID, cell: int) -> UUID:
    """`id` as one of the cell: the same, but for what says so. Home marks nothing. The 112 bits that stay keep ids made
    of digests apart, and those that begin with the time in its order."""
    assert 0 <= cell <= CELLS_MAX, f"a cell has a number up to {CELLS_MAX}, not {cell}"
    if cell == HOME:
        return id
    return UUID(int=id.int & ~_MARK | _VERSION << _VERSION_AT | 0b10 << 62 | cell << _CELL_AT)


def cell_of(id: UUID) -> int:
    """The number of the cell that the id says; those that say nothing are home's."""
    bits = id.int
    if bits >> _VERSION_AT & 0xF != _VERSION or bits >> 62 & 0b11 != 0b10:
        return HOME
    return bits >> _CELL_AT & CELLS_MAX


def beside(id: UUID, other: UUID) -> UUID:
    """`id` as one of the cell that `other` says; for ids of runs that belong to it."""
    return placed(id, cell_of(other))


def drawn(name: str, cells: Sequence[int]) -> int:
    """One of the cells, by the name alone: each gets as many names as the others, and a further one takes its share of
    each, so that of any two sets the most names are in the same one (rendezvous hashing)."""
    return max(cells, key=lambda cell: sha256(f"{cell}\x00{name}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Living:
    """Where a tenant lives. `cells`: all that have something of it; the first one, its *seat*, has what there is once:
    published workflows, schedules, webhooks, delegations. `anchors`: those that it began with; they decide where a name
    lives that a client made up, so they stay as they are. `closed`: those in which nothing begins any more."""

    cells: tuple[int, ...]
    anchors: tuple[int, ...]
    closed: tuple[int, ...] = ()

    @classmethod
    def in_one(cls, cell: int) -> Living:
        return cls((cell,), (cell,))

    @property
    def seat(self) -> int:
        return self.cells[0]

    @property
    def is_large(self) -> bool:
        """Whether it lives in several cells."""
        return len(self.cells) > 1

    @property
    def open(self) -> tuple[int, ...]:
        """The cells in which threads begin."""
        return tuple(cell for cell in self.cells if cell not in self.closed)

    def anchor(self, name: str) -> int:
        """The cell that knows where the name lives: there, unless it says otherwise."""
        return drawn(name, self.anchors)

    def place(self, name: str) -> int:
        """The cell in which the name is to live if it lives nowhere yet."""
        return drawn(name, self.open)


def said_by(thread_id: str) -> int:
    """The cell that a thread says which is named after its first run; home where it says none. A client may have made
    up an id like that, so it says where to look, not where it is."""
    if len(thread_id) != 36:
        return HOME
    try:
        id = UUID(thread_id)
    except ValueError:
        return HOME
    return cell_of(id) if str(id) == thread_id else HOME


def signed(secret: str, cell: int) -> str:
    """The secret part of an address, saying the cell whose run it leads to. Home's is as it was."""
    return secret if cell == HOME else f"{secret}.{cell}"


def cell_of_address(text: str) -> int:
    """The cell that an address says; home where it says none."""
    _, dot, number = text.rpartition(".")
    said = dot and number.isascii() and number.isdecimal() and len(number) <= 4
    return int(number) if said and 0 < int(number) <= CELLS_MAX else HOME
