"""Events to all of a large tenant, in its seat, until each of its cells has them.

An event is here before any cell has it, so a sender's answer that it is taken stays true, whichever process dies. It is
in each cell under its own id, so a cell that is given it twice has it once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

AGAIN: Final = timedelta(seconds=2)
"""So long the process that has taken an event is left alone with it."""
_COLUMNS: Final = "tenant, id, type, data, sent_at, cells, sender"


class Relay(msgspec.Struct, frozen=True):
    """An event on its way. `cells`: those that do not have it yet. `sender`: the person that sent it."""

    tenant: UUID
    id: str
    type: str
    data: bytes
    sent_at: datetime
    cells: list[int]
    sender: str | None = None


async def add(
    connection: Connection | Pool,
    tenant: UUID,
    id: str,
    type: str,
    data: bytes,
    cells: Sequence[int],
    sender: str | None = None,
) -> tuple[Relay, bool]:
    """Keep the event for these cells; returns the event that is kept under its id, and whether it was there already."""
    insert = f"""
    INSERT INTO relays (tenant, id, type, data, cells, due_at, sender) VALUES ($1, $2, $3, $4, $5, now() + $6, $7)
    ON CONFLICT DO NOTHING RETURNING {_COLUMNS}
    """
    row = await connection.fetchrow(insert, tenant, id, type, data, list(cells), AGAIN, sender)
    already = row is None
    while row is None:
        row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM relays WHERE tenant = $1 AND id = $2", tenant, id)
        if row is None:  # it has arrived everywhere meanwhile
            row = await connection.fetchrow(insert, tenant, id, type, data, list(cells), AGAIN, sender)
    return Relay(*row), already


_DUE: Final = f"""
WITH due AS MATERIALIZED (
  SELECT tenant AS t, id AS i FROM relays WHERE due_at <= now() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE relays SET due_at = now() + $2 FROM due WHERE tenant = due.t AND id = due.i RETURNING {_COLUMNS}
"""


async def due(connection: Connection | Pool, limit: int) -> list[Relay]:
    """Up to `limit` events that no process is bringing, the oldest first."""
    relays = [Relay(*row) for row in await connection.fetch(_DUE, limit, AGAIN)]
    return sorted(relays, key=lambda relay: relay.sent_at)


async def record_arrival(connection: Connection | Pool, relay: Relay, cell: int) -> None:
    """The cell has the event; once all have, it is forgotten here."""
    query = """
    WITH gone AS (DELETE FROM relays WHERE tenant = $1 AND id = $2 AND cells = ARRAY[$3::int])
    UPDATE relays SET cells = array_remove(cells, $3::int) WHERE tenant = $1 AND id = $2 AND cells <> ARRAY[$3::int]
    """
    await connection.execute(query, relay.tenant, relay.id, cell)


async def drop(connection: Connection | Pool, relay: Relay) -> None:
    """The event is not taken: another one has its id."""
    query = "DELETE FROM relays WHERE tenant = $1 AND id = $2 AND type = $3 AND data = $4"
    await connection.execute(query, relay.tenant, relay.id, relay.type, relay.data)
