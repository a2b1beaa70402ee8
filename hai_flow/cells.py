"""The cell that an id names, and the cells in which a tenant lives. Pure. A cell is a schema of PostgreSQL with
everything of its tenants; 0 is home. An id made in another cell is a UUID of version 6 (ids of home are of 7, 8 or 4),
so any process finds the run without a look-up:

48 bits as they were | 0110 | 12 as they were | 10 | 10 of the cell | 52 as they were"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

HOME: Final = 0
CELLS_MAX: Final = 1023
"""The highest number that a cell can have."""

_VERSION: Final = 6
_VERSION_AT: Final = 76
_CELL_AT: Final = 52
_MARK: Final = 0xF << _VERSION_AT | 0b11 << 62 | CELLS_MAX << _CELL_AT


def place_id(id: UUID, cell: int) -> UUID:
    """`id` with the number of the cell in it; an id of home stays as it is. The other 112 bits are unchanged, so ids
    made of digests stay distinct, and ids that begin with the time keep its order."""
    assert 0 <= cell <= CELLS_MAX, f"a cell has a number up to {CELLS_MAX}, not {cell}"
    if cell == HOME:
        return id
    return UUID(int=id.int & ~_MARK | _VERSION << _VERSION_AT | 0b10 << 62 | cell << _CELL_AT)


def cell_of(id: UUID) -> int:
    """The number of the cell that the id contains; home for an id that contains none."""
    bits = id.int
    if bits >> _VERSION_AT & 0xF != _VERSION or bits >> 62 & 0b11 != 0b10:
        return HOME
    return bits >> _CELL_AT & CELLS_MAX


def beside(id: UUID, other: UUID) -> UUID:
    """`id` with the cell of `other`: for ids of things that belong to that run."""
    return place_id(id, cell_of(other))


def draw_cell(name: str, cells: Sequence[int]) -> int:
    """One of the cells, chosen by the name alone. Each cell gets about as many names as the others. An added cell takes
    its share from each, so most names stay in the cell that they had (rendezvous hashing)."""
    return max(cells, key=lambda cell: sha256(f"{cell}\x00{name}".encode()).digest())


class TenantCells(msgspec.Struct, frozen=True):
    """The cells in which a tenant lives. `cells`: all that have data of it; the first one, its *seat*, has the things
    that exist once: published workflows, schedules, webhooks, delegations. `anchors`: the cells with which it began;
    they decide where a thread lives whose name a client made up, so they never change. `closed`: those in which no
    thread begins any more."""

    cells: tuple[int, ...]
    anchors: tuple[int, ...]
    closed: tuple[int, ...] = ()

    @classmethod
    def in_one(cls, cell: int) -> TenantCells:
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
        """The cell in which a name is looked up first: the thread lives there, or a pointer there leads to its cell."""
        return draw_cell(name, self.anchors)

    def place(self, name: str) -> int:
        """The cell in which the name is to live if it lives nowhere yet."""
        return draw_cell(name, self.open)


def cell_in_thread_id(thread_id: str) -> int:
    """The cell in the id of a thread that is named after its first run; home where the id contains none. A client may
    have made up the id, so this is only the first place to look for the thread."""
    if len(thread_id) != 36:
        return HOME
    try:
        id = UUID(thread_id)
    except ValueError:
        return HOME
    return cell_of(id) if str(id) == thread_id else HOME


def sign_address(secret: str, cell: int) -> str:
    """The secret part of an address, with the cell of the run that it leads to; for home the secret alone."""
    return secret if cell == HOME else f"{secret}.{cell}"


def cell_of_address(text: str) -> int:
    """The cell in an address; home where it contains none."""
    _, dot, number = text.rpartition(".")
    is_numbered = dot and number.isascii() and number.isdecimal() and len(number) <= 4
    return int(number) if is_numbered and 0 < int(number) <= CELLS_MAX else HOME
