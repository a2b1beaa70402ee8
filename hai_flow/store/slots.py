"""Slots of concurrency keys, and the runs that wait for one (STORE H7).

A slot is a row that names the run that holds it: `<workflow>:<key>#k`, k from 1 to the key's limit. Whoever takes one
first locks the key and then looks, in a second statement: one statement would look at what was there before the lock.
The end of a run frees its slots in the same commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool

_GONE: Final = "('stopping', 'finished', 'failed', 'stopped')"


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that holds a slot. `status` is None while the run is about to be stored."""

    run_id: UUID
    slot: str
    status: str | None


def seats_of(key: str, seats: int) -> list[str]:
    """The slots of a key that as many runs as `seats` may hold."""
    return [f"{key}#{number}" for number in range(1, seats + 1)]


@contextlib.asynccontextmanager
async def _locked(pool: Pool, tenant: UUID, key: str) -> AsyncGenerator[Connection]:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"slot:{tenant}:{key}")
        yield connection


_TAKEN: Final = "SELECT slot FROM slots WHERE tenant = $1 AND slot = ANY ($2::text[]) AND run_id = $3"
_TAKE: Final = """
INSERT INTO slots (tenant, slot, run_id)
SELECT $1, k.slot, $4 FROM unnest($3::text[]) WITH ORDINALITY AS k(slot, n)
WHERE NOT EXISTS (SELECT FROM slots s WHERE s.tenant = $1 AND s.slot = k.slot)
  AND NOT EXISTS (SELECT FROM slot_waiters w WHERE w.tenant = $1 AND w.key = $2)
  AND NOT EXISTS (SELECT FROM runs r WHERE r.id = $4)
ORDER BY k.n LIMIT 1
ON CONFLICT DO NOTHING
RETURNING slot
"""


async def take_slot(pool: Pool, tenant: UUID, key: str, seats: int, run_id: UUID) -> str | None:
    """A free slot for a run that is about to be stored (the same one if it has been given one already); None if there
    is none, if others wait before it, or if the run is there."""
    names = seats_of(key, seats)
    async with _locked(pool, tenant, key) as connection:
        taken = await connection.fetchval(_TAKEN, tenant, names, run_id)
        slot: str | None = taken or await connection.fetchval(_TAKE, tenant, key, names, run_id)
        return slot


async def give_back(pool: Pool, tenant: UUID, slot: str, run_id: UUID) -> None:
    """The run was not stored, so it needs no slot. Nothing happens if it was: by the same start, made twice."""
    query = """
    DELETE FROM slots WHERE tenant = $1 AND slot = $2 AND run_id = $3 AND NOT EXISTS (SELECT FROM runs WHERE id = $3)
    """
    await pool.execute(query, tenant, slot, run_id)


async def vacate(pool: Pool, tenant: UUID, slot: str, run_id: UUID) -> None:
    """The run that was given the slot can't begin now."""
    await pool.execute("DELETE FROM slots WHERE tenant = $1 AND slot = $2 AND run_id = $3", tenant, slot, run_id)


async def holders(pool: Pool, tenant: UUID, key: str, seats: int) -> list[Holder]:
    """Who holds the key's slots, the oldest first."""
    query = """
    SELECT s.run_id, s.slot, r.status FROM slots s LEFT JOIN runs r ON r.id = s.run_id
    WHERE s.tenant = $1 AND s.slot = ANY ($2::text[]) ORDER BY s.taken_at, s.slot
    """
    return [Holder(*row) for row in await pool.fetch(query, tenant, seats_of(key, seats))]


async def held_above(pool: Pool, tenant: UUID, key: str, seats: int, parent_id: UUID) -> bool:
    """Whether a run, or one of those that started it, holds the key: then the runs below it need no slot."""
    query = """
    WITH RECURSIVE up AS (
      SELECT id, parent_id FROM runs WHERE id = $2
      UNION ALL SELECT r.id, r.parent_id FROM up JOIN runs r ON r.id = up.parent_id
    )
    SELECT EXISTS (SELECT FROM slots s JOIN up ON up.id = s.run_id WHERE s.tenant = $1 AND s.slot = ANY ($3::text[]))
    """
    return bool(await pool.fetchval(query, tenant, parent_id, seats_of(key, seats)))


# --- the queue ----------------------------------------------------------------------------------------------------


async def wait_for_slot(pool: Pool, tenant: UUID, key: str, run_id: UUID, seats: int, since: datetime) -> None:
    """The run waits behind those that have waited longer. Saying so twice is harmless."""
    query = """
    INSERT INTO slot_waiters (tenant, key, run_id, seats, queued_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant, key, run_id) DO UPDATE SET seats = excluded.seats
    """
    await pool.execute(query, tenant, key, run_id, seats, since)


async def leave_queue(pool: Pool, tenant: UUID, key: str, run_id: UUID) -> None:
    """The run waits no more."""
    query = "DELETE FROM slot_waiters WHERE tenant = $1 AND key = $2 AND run_id = $3"
    await pool.execute(query, tenant, key, run_id)


_SEAT: Final = """
WITH waiting AS MATERIALIZED (
  SELECT w.run_id, w.seats, row_number() OVER (ORDER BY w.queued_at, w.run_id) AS n
  FROM slot_waiters w JOIN runs r ON r.id = w.run_id
  WHERE w.tenant = $1 AND w.key = $2 AND r.status = 'queued' AND NOT EXISTS (
    SELECT FROM slots s
    WHERE s.run_id = w.run_id AND s.slot IN (SELECT $2 || '#' || k FROM generate_series(1, w.seats) k))
), free AS MATERIALIZED (
  SELECT k.slot, row_number() OVER (ORDER BY k.k) AS n
  FROM (SELECT k, $2 || '#' || k AS slot FROM generate_series(1, (SELECT max(seats) FROM waiting)) k) k
  WHERE NOT EXISTS (SELECT FROM slots s WHERE s.tenant = $1 AND s.slot = k.slot)
)
INSERT INTO slots (tenant, slot, run_id) SELECT $1, free.slot, waiting.run_id FROM free JOIN waiting USING (n)
ON CONFLICT DO NOTHING
"""
_SEATED: Final = """
SELECT s.run_id, s.slot, r.status FROM slot_waiters w JOIN slots s ON s.run_id = w.run_id JOIN runs r ON r.id = w.run_id
WHERE w.tenant = $1 AND w.key = $2 AND s.slot IN (SELECT $2 || '#' || k FROM generate_series(1, w.seats) k)
ORDER BY w.queued_at, w.run_id
"""


async def seat_waiters(pool: Pool, tenant: UUID, key: str) -> list[Holder]:
    """Give free slots of the key to the runs that have waited longest; returns all in the queue that hold one now:
    also those whose admission somebody left half done."""
    async with _locked(pool, tenant, key) as connection:
        await connection.execute(_SEAT, tenant, key)
        return [Holder(*row) for row in await connection.fetch(_SEATED, tenant, key)]


async def too_many(pool: Pool, tenant: UUID, key: str, seats: int) -> list[UUID]:
    """Of the runs that hold the key or wait for it, the oldest, so that `seats` are left. Those that are being stopped
    are not counted."""
    query = f"""
    SELECT r.id FROM runs r WHERE r.status NOT IN {_GONE} AND r.id IN (
      SELECT s.run_id FROM slots s WHERE s.tenant = $1 AND s.slot = ANY ($3::text[])
      UNION SELECT w.run_id FROM slot_waiters w WHERE w.tenant = $1 AND w.key = $2)
    ORDER BY r.created_at DESC, r.id DESC OFFSET $4
    """
    return [row[0] for row in await pool.fetch(query, tenant, key, seats_of(key, seats), seats)]


_STUCK: Final = """
SELECT w.tenant, w.key FROM slot_waiters w GROUP BY w.tenant, w.key
HAVING max(w.seats) > (
    SELECT count(*) FROM generate_series(1, max(w.seats)) k
    JOIN slots s ON s.tenant = w.tenant AND s.slot = w.key || '#' || k)
  OR bool_or(EXISTS (
    SELECT FROM slots s
    WHERE s.run_id = w.run_id AND s.slot IN (SELECT w.key || '#' || k FROM generate_series(1, w.seats) k)))
ORDER BY min(w.queued_at) LIMIT $1
"""


async def keys_to_admit(pool: Pool, limit: int = 500) -> list[tuple[UUID, str]]:
    """Keys that runs wait for though they have a free slot, or that have admissions half done."""
    return [(row[0], row[1]) for row in await pool.fetch(_STUCK, limit)]


_FORGET: Final = """
DELETE FROM slots s WHERE s.taken_at < now() - $1::interval AND NOT EXISTS (SELECT FROM runs r WHERE r.id = s.run_id)
"""


async def forget_unborn(pool: Connection | Pool, after: timedelta = timedelta(minutes=1)) -> None:
    """Free slots that were taken for runs which nobody has stored since."""
    await pool.execute(_FORGET, after)
