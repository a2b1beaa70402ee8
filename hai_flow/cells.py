"""Cells: which one an id says, and in which one a thread of a tenant lives. Pure.

A cell is a schema of PostgreSQL that holds everything of its tenants. They are numbered; 0 is home, where a deployment
begins. An id made in another cell is a UUID that says its number, so that any process finds the run without a look-up
(docs/decisions, "An id says its cell"):

    48 bits as they were | 0110 | 12 as they were | 10 | 10 of the cell | 52 as they were

Version 6 is what tells them from the ids of home, which are of the versions 7 and 8 (4, where a test made them up) and
have never been of this one, in no release.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def cell_of_thread(thread_id: str, cells: Sequence[int]) -> int:
    """Of the cells of a tenant, the one in which the thread lives: by its id alone, which a client may have chosen. One
    that says a cell of these lives there, as do threads that are named after their first run; else its hash decides.

    So another list of cells is another place for a thread: a tenant's cells are not changed once it has threads.
    """
    if len(cells) == 1:
        return cells[0]
    said = _said(thread_id)
    if said in cells and said != HOME:
        return said
    return cells[int.from_bytes(sha256(thread_id.encode()).digest()[:8]) % len(cells)]


def _said(text: str) -> int:
    if len(text) != 36:
        return HOME
    try:
        id = UUID(text)
    except ValueError:
        return HOME
    return cell_of(id) if str(id) == text else HOME


def signed(secret: str, cell: int) -> str:
    """The secret part of an address, saying the cell whose run it leads to. Home's is as it was."""
    return secret if cell == HOME else f"{secret}.{cell}"


def cell_of_address(text: str) -> int:
    """The cell that an address says; home where it says none."""
    _, dot, number = text.rpartition(".")
    said = dot and number.isascii() and number.isdecimal() and len(number) <= 4
    return int(number) if said and 0 < int(number) <= CELLS_MAX else HOME
