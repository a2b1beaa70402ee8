"""Slots of concurrency keys, and the runs that wait for one (docs/design/store.md#slots). A slot is a row that names
its run: `<workflow>:<key>#k`. A transaction that takes one first locks the key and then looks, in a second statement:
one would see the rows before the lock. Until the commit that begins the run a slot is *promised* (`promised_until`);
that commit loses if the slot is not the run's any more, so promises can be taken back at any time. Work left half done
is a row of the index of promises, so nothing looks through all slots."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.store.commit.commit_sql import PROMISE_SECONDS
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page

PROMISE: Final = timedelta(seconds=PROMISE_SECONDS)  # as the default of promised_until, for slots of older releases
_GONE: Final = "('stopping', 'finished', 'failed', 'stopped')"
_ENDED: Final = "('finished', 'failed', 'stopped')"


class Holder(msgspec.Struct, frozen=True):
    """A run that holds a slot. `status` is None while the run is about to be stored."""

    run_id: UUID
    slot: str
    status: str | None


def derive_thread_slot(thread_id: str) -> str:
    """The slot that the active run of a thread holds, so that there is one (docs/design/store.md#slots)."""
    return f"thread:{thread_id}"


def list_seats(key: str, seats: int) -> list[str]:
    """The slots of a key that as many runs as `seats` may hold."""
    return [f"{key}#{number}" for number in range(1, seats + 1)]


@contextlib.asynccontextmanager
async def _lock_key(pool: Pool, tenant: UUID, key: str) -> AsyncGenerator[Connection]:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"slot:{tenant}:{key}")
        yield connection


# The first element, or none (NULL) where the slot is held for good. Not a CASE: Citus, which may keep a cell, takes no
# clock in one.
_TAKEN: Final = """
UPDATE slots SET promised_until = (ARRAY[now() + $4::interval])[(promised_until IS NOT NULL)::int]
WHERE tenant = $1 AND left(slot, length($2) + 1) = $2 || '#' AND run_id = $3 RETURNING slot
"""
# Read first, then written: Citus takes no INSERT ... ON CONFLICT from a table either.
_TAKE: Final = """
WITH free AS MATERIALIZED (
  SELECT k.slot FROM unnest($3::text[]) WITH ORDINALITY AS k(slot, n)
  WHERE NOT EXISTS (SELECT FROM slots s WHERE s.tenant = $1 AND s.slot = k.slot)
    AND NOT EXISTS (SELECT FROM slot_waiters w WHERE w.tenant = $1 AND w.key = $2)
    AND ($6 OR NOT EXISTS (SELECT FROM runs r WHERE r.id = $4))
  ORDER BY k.n LIMIT 1
)
INSERT INTO slots (tenant, slot, run_id, promised_until) SELECT $1, slot, $4, now() + $5::interval FROM free
ON CONFLICT DO NOTHING
RETURNING slot
"""


async def take_slot(
    pool: Pool, tenant: UUID, key: str, seats: int, run_id: UUID, promise: timedelta = PROMISE, *, moves: bool = False
) -> str | None:
    """A free slot, promised to a run that is about to be stored (the same one if it has been given one already); None
    if there is none, if others wait before it, or if the run is there. `moves`: it is there, and needs the slot to go
    on with another version of its workflow."""
    names = list_seats(key, seats)
    async with _lock_key(pool, tenant, key) as connection:
        held_slot = await connection.fetchval(_TAKEN, tenant, key, run_id, promise)
        slot: str | None = held_slot or await connection.fetchval(_TAKE, tenant, key, names, run_id, promise, moves)
        return slot


async def release_slots(pool: Pool, tenant: UUID, key: str, run_id: UUID) -> None:
    """The run counts under the key no more."""
    query = "DELETE FROM slots WHERE tenant = $1 AND run_id = $3 AND left(slot, length($2) + 1) = $2 || '#'"
    await pool.execute(query, tenant, key, run_id)


async def list_slots_promised_to(pool: Pool, tenant: UUID, key: str, run_id: UUID) -> list[str]:
    query = """
    SELECT slot FROM slots WHERE tenant = $1 AND run_id = $3 AND left(slot, length($2) + 1) = $2 || '#'
      AND promised_until IS NOT NULL
    """
    return [row[0] for row in await pool.fetch(query, tenant, key, run_id)]


async def has_slot(pool: Pool, tenant: UUID, key: str, run_id: UUID) -> bool:
    """Whether the run holds a slot of the key for good."""
    query = """
    SELECT EXISTS (SELECT FROM slots WHERE tenant = $1 AND run_id = $3 AND left(slot, length($2) + 1) = $2 || '#'
      AND promised_until IS NULL)
    """
    return bool(await pool.fetchval(query, tenant, key, run_id))


async def is_left(pool: Pool, tenant: UUID, slot: str, run_id: UUID) -> bool:
    """Whether another run has left the slot to the run, and its work, and has not taken them back."""
    query = """
    SELECT EXISTS (SELECT FROM slots WHERE tenant = $1 AND slot = $2 AND run_id = $3 AND left_by <> run_id)
    """
    return bool(await pool.fetchval(query, tenant, slot, run_id))


async def give_back(pool: Pool, tenant: UUID, key: str, slot: str, run_id: UUID) -> bool:
    """The run does not begin with the slot that was promised to it: it is promised to the next one that waits. Returns
    whether it was taken from the run; it is not if the run did begin, by the same start or admission made twice, nor if
    another run has left it the slot, and may take it back."""
    query = """
    DELETE FROM slots WHERE tenant = $1 AND slot = $2 AND run_id = $3 AND promised_until IS NOT NULL
      AND left_by IS NULL RETURNING true
    """
    async with _lock_key(pool, tenant, key) as connection:
        is_promised = bool(await connection.fetchval(query, tenant, slot, run_id))
        if is_promised:
            await connection.execute(_SEAT, tenant, key, PROMISE)
        return is_promised


async def holders(pool: Pool, tenant: UUID, key: str, seats: int) -> list[Holder]:
    """The holders of the key's slots, the oldest first."""
    query = """
    SELECT s.run_id, s.slot, r.status FROM slots s LEFT JOIN runs r ON r.id = s.run_id
    WHERE s.tenant = $1 AND s.slot = ANY ($2::text[]) ORDER BY s.taken_at, s.slot
    """
    return [Holder(*row) for row in await pool.fetch(query, tenant, list_seats(key, seats))]


async def is_held_above(pool: Pool, tenant: UUID, key: str, seats: int, parent_id: UUID) -> bool:
    """Whether a run, or one of those that started it, holds the key: then the runs below it need no slot."""
    query = """
    WITH RECURSIVE up AS (
      SELECT id, parent_id FROM runs WHERE id = $2
      UNION ALL SELECT r.id, r.parent_id FROM up JOIN runs r ON r.id = up.parent_id
    )
    SELECT EXISTS (SELECT FROM slots s JOIN up ON up.id = s.run_id WHERE s.tenant = $1 AND s.slot = ANY ($3::text[]))
    """
    return bool(await pool.fetchval(query, tenant, parent_id, list_seats(key, seats)))


async def promise_slot(pool: Pool, tenant: UUID, slot: str, run_id: UUID) -> bool:
    """Promise the slot to a run that is about to be stored, or to go on; whether the run has it now, promised or for
    good."""
    query = """
    INSERT INTO slots (tenant, slot, run_id, promised_until) VALUES ($1, $2, $3, now() + $4::interval)
    ON CONFLICT (tenant, slot) DO UPDATE
      SET promised_until = CASE WHEN slots.promised_until IS NOT NULL THEN excluded.promised_until END
      WHERE slots.run_id = excluded.run_id
    RETURNING true
    """
    return bool(await pool.fetchval(query, tenant, slot, run_id, PROMISE))


async def settle_slot(pool: Pool, tenant: UUID, slot: str, run_id: UUID) -> None:
    """The slot is the run's for good, if it has begun; else it is free."""
    promised = "s.tenant = $1 AND s.slot = $2 AND s.run_id = $3 AND s.promised_until IS NOT NULL"
    query = f"""
    WITH kept AS (UPDATE slots s SET promised_until = NULL WHERE {promised} AND {_BEGAN})
    DELETE FROM slots s WHERE {promised} AND NOT {_BEGAN}
    """
    await pool.execute(query, tenant, slot, run_id)


# --- slots of any kind ----------------------------------------------------------------------------------------------


async def slot_holder(connection: Connection | Pool, tenant: UUID, slot: str) -> UUID | None:
    return (await slot_holders(connection, [(tenant, slot)])).get((tenant, slot))


_SLOT_HOLDERS: Final = f"""
WITH found AS MATERIALIZED (
  SELECT s.tenant, s.slot, s.run_id, s.left_by, s.promised_until FROM unnest($1::uuid[], $2::text[]) AS k(tenant, slot)
  JOIN slots s ON s.tenant = k.tenant AND s.slot = k.slot
), ended AS MATERIALIZED (
  SELECT f.tenant, f.slot, f.run_id FROM found f JOIN runs r ON r.id = f.run_id
  WHERE r.status IN {_ENDED} AND f.left_by IS NULL AND (f.promised_until IS NULL OR f.promised_until <= now())
  ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED
), freed AS (
  DELETE FROM slots s USING ended e WHERE s.tenant = e.tenant AND s.slot = e.slot AND s.run_id = e.run_id
  RETURNING s.tenant, s.slot
)
SELECT tenant, slot, run_id FROM found WHERE NOT ((tenant, slot) IN (SELECT tenant, slot FROM freed))
"""


async def slot_holders(
    connection: Connection | Pool, slots: Collection[tuple[UUID, str]]
) -> dict[tuple[UUID, str], UUID]:
    """The runs that hold these slots, or were promised them, by (tenant, slot); a free slot is not in the result. A run
    that has ended holds none, unless it is promised one because it is about to go on: asking frees its slot.

    An ended run has a slot where the same Start came twice at once with two different free slots, and the second's slot
    was committed after the run had ended. It does no harm until it is wanted, and then it is asked for."""
    rows = await connection.fetch(_SLOT_HOLDERS, [tenant for tenant, _ in slots], [slot for _, slot in slots])
    return {(row[0], row[1]): row[2] for row in rows}


# --- the queue ----------------------------------------------------------------------------------------------------


async def wait_for_slot(pool: Pool, tenant: UUID, key: str, run_id: UUID, seats: int, since: datetime) -> None:
    """The run waits behind those that have waited longer. Saying so twice is harmless, and so is saying so late: a run
    that has begun or ended meanwhile waits for nothing, and would never be taken out of the queue again."""
    query = """
    INSERT INTO slot_waiters (tenant, key, run_id, seats, queued_at)
    SELECT $1, $2, id, $4, $5 FROM runs WHERE id = $3 AND status IN ('queued', 'paused') FOR SHARE
    ON CONFLICT (tenant, key, run_id) DO UPDATE SET seats = excluded.seats
    """
    await pool.execute(query, tenant, key, run_id, seats, since)


async def leave_queue(pool: Pool, tenant: UUID, key: str, run_id: UUID) -> None:
    """The run waits no more."""
    query = "DELETE FROM slot_waiters WHERE tenant = $1 AND key = $2 AND run_id = $3"
    await pool.execute(query, tenant, key, run_id)


async def step_back(pool: Pool, tenant: UUID, key: str, run_id: UUID) -> None:
    """The run can't begin now: it waits behind all others of the key."""
    query = "UPDATE slot_waiters SET queued_at = clock_timestamp() WHERE tenant = $1 AND key = $2 AND run_id = $3"
    await pool.execute(query, tenant, key, run_id)


# As many seats as the run wants that has come last: it is of the newest version. OFFSET 0: as many waiting runs are
# looked at, in their order, as there are free slots for; a join over all of them would read the whole queue. count(*),
# not EXISTS: that the planner turns into a join as well, here with all slots.
_SEAT: Final = """
WITH free AS MATERIALIZED (
  SELECT k.slot, row_number() OVER (ORDER BY k.k) AS n
  FROM (SELECT k, $2 || '#' || k AS slot FROM generate_series(1, (
    SELECT seats FROM slot_waiters WHERE tenant = $1 AND key = $2 ORDER BY queued_at DESC, run_id DESC LIMIT 1)) k) k
  WHERE (SELECT count(*) = 0 FROM slots s WHERE s.tenant = $1 AND s.slot = k.slot)
), waiting AS MATERIALIZED (
  SELECT run_id, row_number() OVER () AS n FROM (
    SELECT w.run_id FROM (
      SELECT run_id FROM slot_waiters WHERE tenant = $1 AND key = $2 ORDER BY queued_at, run_id OFFSET 0) w
    WHERE (SELECT r.status = 'queued' FROM runs r WHERE r.id = w.run_id) AND (
      SELECT count(*) = 0 FROM slots s WHERE s.run_id = w.run_id AND left(s.slot, length($2) + 1) = $2 || '#')
    LIMIT (SELECT count(*) FROM free)) w
)
INSERT INTO slots (tenant, slot, run_id, promised_until)
SELECT $1, free.slot, waiting.run_id, now() + $3::interval FROM free JOIN waiting USING (n)
ON CONFLICT DO NOTHING
"""
_SEATED: Final = """
SELECT s.run_id, s.slot, r.status
FROM generate_series(1, (
  SELECT seats FROM slot_waiters WHERE tenant = $1 AND key = $2 ORDER BY queued_at DESC, run_id DESC LIMIT 1)) k
CROSS JOIN LATERAL (SELECT run_id, slot FROM slots WHERE tenant = $1 AND slot = $2 || '#' || k OFFSET 0) s
JOIN slot_waiters w ON w.tenant = $1 AND w.key = $2 AND w.run_id = s.run_id
JOIN runs r ON r.id = w.run_id
ORDER BY w.queued_at, w.run_id
"""
# Commits say of a run that it began with its slot; those of the release before did not, so the run is asked as well.
# One that was paused in the queue waits still. The slot of its thread (`runs.slot`) a run has from its birth to its
# end, also in the queue: only by that release can it look like a promise.
_KEY: Final = "regexp_replace(s.slot, '#[0-9]+$', '')"
_BEGAN: Final = f"""EXISTS (
  SELECT FROM runs r WHERE r.id = s.run_id AND r.status NOT IN {_ENDED} AND (r.slot = s.slot
    OR r.status <> 'queued' AND NOT (r.status = 'paused' AND EXISTS (
      SELECT FROM slot_waiters w WHERE w.tenant = s.tenant AND w.key = {_KEY} AND w.run_id = s.run_id))))"""
_TAKE_BACK: Final = f"""
DELETE FROM slots s
WHERE s.tenant = $1 AND s.slot = ANY ($2::text[]) AND s.promised_until <= now() AND s.left_by IS NULL AND NOT {_BEGAN}
"""


async def seat_waiters(pool: Pool, tenant: UUID, key: str, overdue: Sequence[str] = ()) -> list[Holder]:
    """Promise free slots of the key, and those that are `overdue`, to the runs that have waited longest; returns all in
    the queue that have one now: also those whose admission a process left half done."""
    async with _lock_key(pool, tenant, key) as connection:
        if overdue:
            await connection.execute(_TAKE_BACK, tenant, list(overdue))
        await connection.execute(_SEAT, tenant, key, PROMISE)
        return [Holder(*row) for row in await connection.fetch(_SEATED, tenant, key)]


async def too_many(pool: Pool, tenant: UUID, key: str, seats: int) -> list[UUID]:
    """Of the runs that hold the key or wait for it, the oldest, so that `seats` are left. Those that are being stopped
    are not counted."""
    query = f"""
    SELECT r.id FROM runs r WHERE r.status NOT IN {_GONE} AND r.id IN (
      SELECT s.run_id FROM slots s WHERE s.tenant = $1 AND s.slot = ANY ($3::text[])
      UNION SELECT w.run_id FROM slot_waiters w WHERE w.tenant = $1 AND w.key = $2)
    ORDER BY r.place DESC, r.created_at DESC, r.id DESC OFFSET $4
    """
    return [row[0] for row in await pool.fetch(query, tenant, key, list_seats(key, seats), seats)]


# --- left behind by others ----------------------------------------------------------------------------------------

_KEPT: Final = f"""
WITH overdue AS MATERIALIZED (
  SELECT tenant, slot, run_id FROM slots WHERE promised_until <= now() ORDER BY promised_until LIMIT $1
  FOR UPDATE SKIP LOCKED
), began AS MATERIALIZED (
  SELECT s.tenant, s.slot FROM overdue s WHERE {_BEGAN}
)
UPDATE slots s SET promised_until = NULL, left_by = NULL FROM began b WHERE s.tenant = b.tenant AND s.slot = b.slot
"""
_OVERDUE: Final = f"""
SELECT s.tenant, {_KEY} AS key, array_agg(s.slot)
FROM (SELECT tenant, slot FROM slots WHERE promised_until <= now() AND left_by IS NULL
  ORDER BY promised_until LIMIT $1) s GROUP BY 1, 2
"""


class Overdue(msgspec.Struct, frozen=True):
    """Slots of a key that were promised to runs which have not begun with them."""

    tenant: UUID
    key: str
    slots: list[str]


async def overdue_promises(pool: Pool, limit: int = 500) -> list[Overdue]:
    """Up to `limit` slots whose promise is over, by key. `seat_waiters` takes them back."""
    if not await pool.fetchval("SELECT EXISTS (SELECT FROM slots WHERE promised_until <= now())"):
        return []
    await pool.execute(_KEPT, limit)
    return [Overdue(*row) for row in await pool.fetch(_OVERDUE, limit)]


# --- slots that were left to an heir ------------------------------------------------------------------------------


async def seize(pool: Pool, tenant: UUID, leaver: UUID) -> bool:
    """Give the slots that the run `leaver` has left to its heir back to it, unless the heir has begun. From then on the
    heir can't begin. Returns whether the run has them."""
    query = """
    UPDATE slots SET run_id = $2, promised_until = now() + $3::interval
    WHERE tenant = $1 AND left_by = $2 AND promised_until IS NOT NULL RETURNING true
    """
    return bool(await pool.fetchval(query, tenant, leaver, PROMISE))


async def keep_seized(pool: Pool, tenant: UUID, leaver: UUID) -> None:
    """The run works again, with the slots that it has seized."""
    query = "UPDATE slots SET promised_until = NULL, left_by = NULL WHERE tenant = $1 AND run_id = $2 AND left_by = $2"
    await pool.execute(query, tenant, leaver)


async def release_seized(pool: Pool, tenant: UUID, leaver: UUID) -> list[str]:
    """The run has nothing to take back: the slots that it has seized are free. Returns their names."""
    query = "DELETE FROM slots WHERE tenant = $1 AND run_id = $2 AND left_by = $2 RETURNING slot"
    return [row[0] for row in await pool.fetch(query, tenant, leaver)]


async def list_overdue_heirs(pool: Pool, limit: int = 100) -> list[tuple[UUID, UUID]]:
    """Runs, each with its tenant, that have left their slots to an heir which has not begun in time; and those whose
    process died while they took them back."""
    query = """
    SELECT DISTINCT tenant, left_by FROM (
      SELECT tenant, left_by FROM slots WHERE promised_until <= now() AND left_by IS NOT NULL
      ORDER BY promised_until LIMIT $1) s
    """
    return [(row[0], row[1]) for row in await pool.fetch(query, limit)]


_STALLED: Final = """
WITH RECURSIVE keys AS (
  (SELECT tenant, key, 1 AS n FROM slot_waiters WHERE (tenant, key) > ($1, $2) ORDER BY tenant, key LIMIT 1)
  UNION ALL
  SELECT next.tenant, next.key, keys.n + 1 FROM keys CROSS JOIN LATERAL (
    SELECT w.tenant, w.key FROM slot_waiters w WHERE (w.tenant, w.key) > (keys.tenant, keys.key)
    ORDER BY w.tenant, w.key LIMIT 1) next
  WHERE keys.n < $3
)
SELECT keys.tenant, keys.key, EXISTS (
  SELECT FROM generate_series(1, (
    SELECT seats FROM slot_waiters w WHERE w.tenant = keys.tenant AND w.key = keys.key
    ORDER BY queued_at DESC, run_id DESC LIMIT 1)) k
  WHERE (SELECT count(*) = 0 FROM slots s WHERE s.tenant = keys.tenant AND s.slot = keys.key || '#' || k))
FROM keys ORDER BY keys.n
"""


async def find_stalled_keys(pool: Pool, after: list[Any] | None = None) -> tuple[list[tuple[UUID, str]], Page]:
    """Of a page of the keys that runs wait for, those with a free slot: the process that should have admitted a run is
    gone, or all waiting runs are paused."""
    tenant, key = after or (UUID(int=0), "")
    rows = await pool.fetch(_STALLED, UUID(str(tenant)), key, PAGE_ROWS)
    stalled = [(row[0], row[1]) for row in rows if row[2]]
    last = [str(rows[-1][0]), rows[-1][1]] if len(rows) == PAGE_ROWS else None
    return stalled, Page(len(rows), len(stalled), last)
