"""Archiving and removing runs that ended long ago. The unit is a *thread* with the runs above and below its runs; one
that has not ended keeps all others, as a later turn refers to earlier ones, a branch to the run that it left. The rows
of the runs go first, in a short transaction with a record in the audit and a row of `retired_runs` for each; their
other rows follow in small batches, which another process can take up. `retired_runs` stays for good (the end of each
chain, and where the archive is), and so do questions that the audit refers to, with their votes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import new_row
from hai_flow.store.audit.log_chain import REMOVED
from hai_flow.store.messaging.concurrency_slots import derive_thread_slot
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import PIN

PAGE_RUNS: Final = 500
UNIT_RUNS_MAX: Final = 10_000
LOCK: Final = "hai-flow retention"
_ENDED: Final = "('finished', 'failed', 'stopped')"
_FIRST: Final = UUID(int=0)


class Ended(NamedTuple):
    """A run that has ended, the newest of its thread."""

    id: UUID
    tenant: UUID
    thread_id: str
    ended_at: datetime


class Member(NamedTuple):
    """A run of a unit. `ended_at` is None while it has not ended. `opinions`: a digest of the feedback on it, which is
    in no log, so no head of a chain vouches for it; empty where there is none."""

    id: UUID
    tenant: UUID
    thread_id: str
    workflow_name: str
    workflow: bytes
    seq: int
    head: bytes
    ended_at: datetime | None
    log_bytes: int
    opinions: bytes = b""


class Archived(NamedTuple):
    """Where the archive of a unit is, and the sha256 of its content."""

    place: str
    sha256: bytes


async def alone(connection: Connection) -> bool:
    """Whether no other process archives or removes; then none does until this connection is closed."""
    return bool(await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", LOCK))


# --- which ------------------------------------------------------------------------------------------------------------

_OLD: Final = f"""
SELECT r.id, r.tenant, r.thread_id, r.ended_at FROM runs r
WHERE r.id > $1 AND ($2::uuid IS NULL OR r.tenant = $2) AND r.ended_at < now() - $3::interval
  AND r.status IN {_ENDED} AND r.parent_id IS NULL
  AND NOT EXISTS (SELECT FROM runs n WHERE n.tenant = r.tenant AND n.thread_id = r.thread_id AND n.parent_id IS NULL
    AND (n.place, n.created_at, n.id) > (r.place, r.created_at, r.id))
ORDER BY r.id LIMIT $4
"""


async def list_old_threads(connection: Connection, tenant: UUID | None, age: timedelta) -> AsyncIterator[Ended]:
    """The newest run of each thread whose newest run ended at least so long ago."""
    after = _FIRST
    while rows := await connection.fetch(_OLD, after, tenant, age, PAGE_RUNS):
        for row in rows:
            yield Ended(*row)
        after = rows[-1]["id"]


_OPINIONS: Final = """
coalesce((SELECT sha256(convert_to(string_agg(concat_ws(E'\\n', f.id, f.principal, f.rating, f.comment, f.labels,
    extract(epoch FROM f.updated_at)), E'\\n' ORDER BY f.id), 'UTF8'))
  FROM feedback f WHERE f.tenant = r.tenant AND f.thread_id = r.thread_id AND f.run_id = r.id), '')
"""
_MEMBER: Final = (
    "r.id, r.tenant, r.thread_id, r.workflow_name, r.workflow, r.seq, r.head, r.ended_at, r.log_bytes, " + _OPINIONS
)
_UNIT: Final = f"""
WITH RECURSIVE kin (id, tenant, thread_id, parent_id) AS (
  SELECT id, tenant, thread_id, parent_id FROM runs WHERE tenant = $1 AND thread_id = $2
  UNION
  SELECT near.* FROM kin CROSS JOIN LATERAL (
    SELECT r.id, r.tenant, r.thread_id, r.parent_id FROM runs r WHERE r.parent_id = kin.id
    UNION ALL SELECT r.id, r.tenant, r.thread_id, r.parent_id FROM runs r WHERE r.id = kin.parent_id
    UNION ALL SELECT r.id, r.tenant, r.thread_id, r.parent_id FROM runs r
      WHERE r.tenant = kin.tenant AND r.thread_id = kin.thread_id
  ) near
)
SELECT {_MEMBER}
FROM (SELECT id FROM kin LIMIT $3) found JOIN runs r ON r.id = found.id ORDER BY r.id
"""
# A message that waits may be for one of them, a schedule looks whether its last run goes on, a slot may be theirs.
_WANTED: Final = """
SELECT EXISTS (SELECT FROM outbox WHERE run_id = ANY($1::uuid[]) OR target = ANY($2::text[]))
  OR EXISTS (SELECT FROM schedules WHERE last_run_id = ANY($1::uuid[]))
  OR EXISTS (SELECT FROM slots WHERE run_id = ANY($1::uuid[]))
  OR EXISTS (SELECT FROM slot_waiters WHERE run_id = ANY($1::uuid[]))
"""


async def list_unit(connection: Connection, tenant: UUID, thread_id: str) -> list[Member]:
    """The runs that go together with this thread. More than `UNIT_RUNS_MAX` of them are too many to go at all."""
    return [Member(*row) for row in await connection.fetch(_UNIT, tenant, thread_id, UNIT_RUNS_MAX + 1)]


async def is_wanted(connection: Connection, unit: Sequence[Member]) -> bool:
    """Whether something else refers to a run of the unit: a message on its way, a schedule, a slot."""
    ids = [each.id for each in unit]
    return bool(await connection.fetchval(_WANTED, ids, list(map(str, ids))))


async def has_decisions(connection: Connection, unit: Sequence[Member]) -> bool:
    """Whether the audit refers to a question of one of these runs."""
    query = """
    SELECT EXISTS (SELECT FROM audit WHERE tenant = $1 AND run_id = ANY($2::uuid[]) AND subject LIKE 'pending:%')
    """
    return bool(await connection.fetchval(query, unit[0].tenant, [each.id for each in unit]))


async def archive_of(connection: Connection, unit: Sequence[Member]) -> Archived | None:
    """The archive that has these very runs as they are now; None if there is none, or one of them went on since, or
    somebody has given an opinion on it."""
    query = "SELECT run_id, head, place, sha256, opinions FROM retired_runs WHERE run_id = ANY($1::uuid[])"
    rows = {row["run_id"]: row for row in await connection.fetch(query, [each.id for each in unit])}
    places = {Archived(row["place"], row["sha256"]) for row in rows.values()}
    same = [(each.head, each.opinions) for each in unit]
    is_complete = same == [(row["head"], row["opinions"]) for each in unit if (row := rows.get(each.id)) is not None]
    return places.pop() if is_complete and len(places) == 1 and None not in next(iter(places)) else None


# --- archived and removed ---------------------------------------------------------------------------------------------

# The runs as the unit has them, which is what the archive has: they may have gone on since, and ended again. (Citus,
# which may keep a cell, takes no INSERT ... ON CONFLICT from a table.)
_RETIRE: Final = """
WITH r AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $5::uuid[], $6::text[], $7::text[], $8::bigint[], $9::bytea[], $10::timestamptz[],
    $11::bytea[]) AS k (id, tenant, thread_id, workflow_name, seq, head, ended_at, opinions)
)
INSERT INTO retired_runs AS x (run_id, tenant, thread_id, workflow_name, seq, head, ended_at, place, sha256,
  archived_at, removed_at, opinions)
SELECT r.id, r.tenant, r.thread_id, r.workflow_name, r.seq, r.head, r.ended_at, $2, $3,
  CASE WHEN $2::text IS NOT NULL THEN now() END, CASE WHEN $4::bool THEN now() END, r.opinions
FROM r
ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, head = excluded.head, ended_at = excluded.ended_at,
  place = excluded.place, sha256 = excluded.sha256, archived_at = coalesce(x.archived_at, excluded.archived_at),
  removed_at = excluded.removed_at, opinions = excluded.opinions
"""


async def record_archive(connection: Connection, unit: Sequence[Member], archived: Archived) -> None:
    await _retire(connection, unit, archived, is_removed=False)


async def _retire(
    connection: Connection, unit: Sequence[Member], archived: Archived | None, *, is_removed: bool
) -> None:
    place, digest = archived or (None, None)
    await connection.execute(
        _RETIRE, [each.id for each in unit], place, digest, is_removed, [each.tenant for each in unit],
        [each.thread_id for each in unit], [each.workflow_name for each in unit], [each.seq for each in unit],
        [each.head for each in unit], [each.ended_at for each in unit], [each.opinions for each in unit],
    )  # fmt: skip


async def remove(connection: Connection, unit: Sequence[Member], archived: Archived | None, by: str) -> bool:
    """Remove the runs of the unit, if they have not changed since. False: one of them went on, or is wanted.

    Holds the slots of their threads meanwhile, so that none of them begins another run."""
    ids = [each.id for each in unit]
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '2s'")
        threads = sorted({(each.tenant, derive_thread_slot(each.thread_id)) for each in unit})
        query = """
        INSERT INTO slots (tenant, slot, run_id, promised_until) SELECT tenant, slot, $3, now() + interval '1 minute'
        FROM unnest($1::uuid[], $2::text[]) AS wanted (tenant, slot) ON CONFLICT DO NOTHING RETURNING slot
        """
        held = await connection.fetch(query, [each[0] for each in threads], [each[1] for each in threads], _FIRST)
        await connection.execute("SELECT FROM runs WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE", ids)
        now = await list_unit(connection, unit[0].tenant, unit[0].thread_id)
        await connection.execute("DELETE FROM slots WHERE run_id = $1", _FIRST)
        if len(held) < len(threads) or now != list(unit) or await is_wanted(connection, unit):
            return False
        await _retire(connection, unit, archived, is_removed=True)
        place = None if archived is None else archived.place
        for each in unit:
            body = {"workflow": each.workflow_name, "events": each.seq, "archive": place}
            row = new_row(REMOVED, by, body, subject=f"run:{each.id}", digest=each.head)
            await audit.write(connection, each.tenant, [row], run_id=each.id)
        await connection.execute("DELETE FROM runs WHERE id = ANY($1::uuid[])", ids)
    return True


_UNCLEARED: Final = """
SELECT run_id FROM retired_runs WHERE removed_at IS NOT NULL AND cleared_at IS NULL ORDER BY removed_at LIMIT $1
"""
# The other rows of removed runs, by table, with the condition for those that are removed.
_KEPT: Final = """
NOT EXISTS (SELECT FROM audit a WHERE a.tenant = t.tenant AND a.subject = 'pending:' || t.{id})
"""
_CLEARED: Final[Mapping[str, str]] = {
    "log": "true",
    "commands": "true",
    "messages": "true",
    "turns": "true",
    "snapshots": "true",
    "inbox": "true",
    "subscriptions": "true",
    "pushes": "true",
    "rule_uses": "true",
    "canaries": "true",
    "openings": "true",
    "chat_buttons": "true",
    "chat_cards": "true",
    "pendings": _KEPT.format(id="id"),
    "votes": _KEPT.format(id="pending_id"),
    "notifications": "true",
}


async def find_uncleared(connection: Connection, limit: int = 100) -> list[UUID]:
    """Some of the removed runs that may have rows left."""
    return [row[0] for row in await connection.fetch(_UNCLEARED, limit)]


async def clear(connection: Connection, run_ids: Sequence[UUID], rows_max: int) -> int:
    """Remove at most so many rows of removed runs; returns how many there were. 0: nothing is left of them.

    The planner does not know how few rows a run has: to find the first thousand it would read the whole log."""
    async with connection.transaction():
        await connection.execute(PIN)
        return await _clear(connection, run_ids, rows_max)


async def _clear(connection: Connection, run_ids: Sequence[UUID], rows_max: int) -> int:
    for table, condition in _CLEARED.items():
        query = f"""
        DELETE FROM {table} WHERE ctid = ANY (ARRAY(
          SELECT t.ctid FROM {table} t WHERE t.run_id = ANY($1::uuid[]) AND {condition} LIMIT $2))
        """
        removed = int((await connection.execute(query, run_ids, rows_max)).rpartition(" ")[2])
        if removed:
            return removed
    query = """
    DELETE FROM feedback f USING retired_runs x
    WHERE x.run_id = ANY($1::uuid[]) AND f.tenant = x.tenant AND f.thread_id = x.thread_id AND f.run_id = x.run_id
    """
    await connection.execute(query, run_ids)
    await connection.execute("DELETE FROM signals WHERE run_id = ANY($1::uuid[])", run_ids)
    await connection.execute("UPDATE retired_runs SET cleared_at = now() WHERE run_id = ANY($1::uuid[])", run_ids)
    return 0


async def vacuum(connection: Connection) -> None:
    """Give the room of removed rows back to the next ones. It locks out no reader or writer: the files do not become
    shorter."""
    for table in ("log", "messages"):
        await connection.execute(f"VACUUM (TRUNCATE false, SKIP_LOCKED true) {table}")


# --- out and in again -------------------------------------------------------------------------------------------------

# The tables of an archive: the condition that finds the rows of the runs $1, and their order.
ARCHIVED: Final[Mapping[str, tuple[str, str]]] = {
    "workflows": (
        "(t.tenant, t.sha256) IN (SELECT r.tenant, r.workflow FROM runs r WHERE r.id = ANY($1::uuid[]))",
        "tenant, sha256",
    ),
    "runs": ("t.id = ANY($1::uuid[])", "id"),
    "log": ("t.run_id = ANY($1::uuid[])", "run_id, last_seq"),
    "commands": ("t.run_id = ANY($1::uuid[])", "run_id, command_id"),
    "pendings": ("t.run_id = ANY($1::uuid[])", "run_id, id"),
    "votes": ("t.run_id = ANY($1::uuid[])", "run_id, pending_id, principal"),
    "turns": ("t.run_id = ANY($1::uuid[])", "run_id, n"),
    "messages": ("t.run_id = ANY($1::uuid[])", "run_id, n"),
    "feedback": (
        "(t.tenant, t.thread_id, t.run_id) IN "
        "(SELECT r.tenant, r.thread_id, r.id FROM runs r WHERE r.id = ANY($1::uuid[]))",
        "run_id, id",
    ),
}
# Tables whose rows may be there when an archive is restored: others use the workflow, or the audit refers to the row.
_MAY_BE_THERE: Final = ("workflows", "pendings", "votes", "feedback")


async def read_rows(connection: Connection, table: str, run_ids: Sequence[UUID]) -> AsyncIterator[str]:
    """The rows of a table of `ARCHIVED`, each as JSON text, as PostgreSQL writes it. Inside a transaction."""
    condition, order = ARCHIVED[table]
    query = f"SELECT row_to_json(t)::text FROM {table} t WHERE {condition} ORDER BY {order}"
    async for row in connection.cursor(query, run_ids, prefetch=100):
        yield row[0]


async def columns(connection: Connection) -> dict[str, list[str]]:
    """The columns of the tables of `ARCHIVED`."""
    query = """
    SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.oid = ANY(ARRAY(SELECT to_regclass(name) FROM unnest($1::text[]) AS name)) AND a.attnum > 0
      AND NOT a.attisdropped ORDER BY c.relname, a.attnum
    """
    by_table: dict[str, list[str]] = {name: [] for name in ARCHIVED}
    for table, column in await connection.fetch(query, list(ARCHIVED)):
        by_table[table].append(column)
    return by_table


async def write_rows(connection: Connection, table: str, names: Sequence[str], rows: Sequence[str]) -> None:
    """Store rows that `read_rows` gave, with the columns that they have. Raises asyncpg's errors."""
    listed = ", ".join(f'"{name}"' for name in names)
    again = "ON CONFLICT DO NOTHING" if table in _MAY_BE_THERE else ""
    query = f"""
    INSERT INTO {table} ({listed}) SELECT {listed} FROM json_populate_recordset(NULL::{table}, $1::text::json) {again}
    """
    await connection.execute(query, f"[{','.join(rows)}]")


async def filter_existing_runs(connection: Connection, run_ids: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in await connection.fetch("SELECT id FROM runs WHERE id = ANY($1::uuid[])", run_ids)]


async def filter_uncleared(connection: Connection, run_ids: Sequence[UUID]) -> list[UUID]:
    """Those of the runs that were removed, and whose rows are not all gone yet."""
    query = """
    SELECT run_id FROM retired_runs WHERE run_id = ANY($1::uuid[]) AND removed_at IS NOT NULL AND cleared_at IS NULL
    """
    return [row[0] for row in await connection.fetch(query, run_ids)]


RESTORED: Final = "run.restored"
"""The act of restoring a run from an archive."""


async def record_restored(connection: Connection, unit: Sequence[Member], place: str, by: str) -> None:
    """The runs are back, as the archive has them."""
    query = "UPDATE retired_runs SET removed_at = NULL, cleared_at = NULL WHERE run_id = ANY($1::uuid[])"
    await connection.execute(query, [each.id for each in unit])
    for each in unit:
        row = new_row(RESTORED, by, {"archive": place}, subject=f"run:{each.id}", digest=each.head)
        await audit.write(connection, each.tenant, [row], run_id=each.id)


async def members(connection: Connection, run_ids: Sequence[UUID]) -> list[Member]:
    query = f"SELECT {_MEMBER} FROM runs r WHERE r.id = ANY($1::uuid[]) ORDER BY r.id"
    return [Member(*row) for row in await connection.fetch(query, run_ids)]
