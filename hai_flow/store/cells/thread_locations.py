"""The cells of a large tenant's names, as their anchors know them. A name is the id of a thread that a client made up,
or of one that is started under a key; its anchor is a cell that every process finds by the name. A thread lives in its
anchor, unless that has a *pointer* to another cell: a row in `slots` that holds the thread's slot for ever. So the
commit with which a run begins decides: either a run or a pointer gets the slot."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.store.messaging.concurrency_slots import derive_thread_slot
from hai_flow.store.postgres.connections import Connection, Pool

_POINTER: Final = 0xFFFF_FFFF_FFFF_0000_0000 << 48  # of no version that a run's id has; below it the cell


class ThreadLocation(NamedTuple):
    """The place of a thread as a cell knows it: whether it lives there, or to which cell it points."""

    here: bool
    points_to: int | None


_KNOWN: Final = """
SELECT (SELECT run_id FROM slots WHERE tenant = $1 AND slot = $2),
  EXISTS (SELECT FROM runs WHERE tenant = $1 AND thread_id = $3)
"""


async def locate(connection: Connection | Pool, tenant: UUID, thread_id: str) -> ThreadLocation:
    """The place of the thread as the cell knows it."""
    row = await connection.fetchrow(_KNOWN, tenant, derive_thread_slot(thread_id), thread_id)
    assert row is not None
    cell = None if row[0] is None else cell_pointed_to(row[0])
    return ThreadLocation(row[1] and cell is None, cell)


_POINT: Final = """
INSERT INTO slots (tenant, slot, run_id, promised_until) VALUES ($1, $2, $3, NULL) ON CONFLICT DO NOTHING RETURNING true
"""


async def point(connection: Connection, tenant: UUID, thread_id: str, cell: int) -> int | None:
    """Let the thread live in the cell, unless it lives here, begins here just now, or this cell points to another one.
    Returns the cell to which it points then; None: the thread is this one's.

    First the row, then the look, in a statement of its own: so a run that has begun is seen, and one that begins later
    gets no slot."""
    async with connection.transaction():
        is_new = await connection.fetchval(_POINT, tenant, derive_thread_slot(thread_id), make_pointer(cell))
        row = await connection.fetchrow(_KNOWN, tenant, derive_thread_slot(thread_id), thread_id)
        assert row is not None
        if is_new and row[1]:
            take_back = "DELETE FROM slots WHERE tenant = $1 AND slot = $2 AND run_id = $3"
            await connection.execute(take_back, tenant, derive_thread_slot(thread_id), make_pointer(cell))
            return None
    return None if row[0] is None else cell_pointed_to(row[0])


def make_pointer(cell: int) -> UUID:
    """The id that holds the slot of a name that lives in `cell`, in place of a run's."""
    return UUID(int=_POINTER | cell)


def cell_pointed_to(holder: UUID) -> int | None:
    """The cell that the holder of a slot points to; None: it is a run."""
    return holder.int & 0xFFFF if holder.int >> 48 == _POINTER >> 48 else None
