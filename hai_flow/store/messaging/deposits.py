"""Deposits: starts of runs and events that other programs write in transactions of their own.

The function `hai_deposit` (migrations 0046 and 0057) writes the rows; nobody else may. A row is there if its
transaction was committed, and is removed when its run has begun, or its event is stored. One that is refused stays,
with the reason."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

HINT: Final = "deposits"  # the payload with which the function wakes workers
KEPT: Final = timedelta(days=30)
_FORGOTTEN_AT_ONCE: Final = 1000


class Deposit(msgspec.Struct, frozen=True):
    """A start or an event (`kind`: start or send), as JSON text, in the name of `principal`. `id` is that of the run
    in the home cell. `tries`: those begun so far, with this one. `at`: when its transaction began."""

    tenant: UUID
    id: UUID
    kind: str
    body: str
    principal: str
    tries: int
    at: datetime


_DUE: Final = """
WITH due AS MATERIALIZED (
  SELECT tenant AS t, id AS i FROM deposits WHERE due_at <= now() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE deposits SET due_at = now() + $2::interval * least(power(2, tries), 60), tries = tries + 1 FROM due
WHERE tenant = due.t AND id = due.i RETURNING tenant, id, kind, body, principal, tries, deposited_at
"""


async def take(connection: Connection | Pool, limit: int, lease: timedelta) -> list[Deposit]:
    """Up to `limit` that are due. One that is neither removed nor refused by then is given out again, ever later."""
    return [Deposit(*row) for row in await connection.fetch(_DUE, limit, lease)]


async def remove(connection: Connection | Pool, deposit: Deposit) -> None:
    """It has taken effect."""
    await connection.execute("DELETE FROM deposits WHERE tenant = $1 AND id = $2", deposit.tenant, deposit.id)


async def refuse(connection: Connection | Pool, deposit: Deposit, reason: str) -> None:
    """It will never take effect, for this reason."""
    query = "UPDATE deposits SET due_at = NULL, refused = $3 WHERE tenant = $1 AND id = $2"
    await connection.execute(query, deposit.tenant, deposit.id, reason)


async def forget(connection: Connection | Pool) -> None:
    """Remove some refused ones that are older than `KEPT`."""
    query = """
    DELETE FROM deposits WHERE (tenant, id) IN (
      SELECT tenant, id FROM deposits WHERE due_at IS NULL AND deposited_at < now() - $1::interval LIMIT $2)
    """
    await connection.execute(query, KEPT, _FORGOTTEN_AT_ONCE)
