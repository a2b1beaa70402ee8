"""Finds out whether a database still holds all that was once seen in it: it may have been restored to an earlier time,
or copied. Its *era* is a row with its place (server, database, timeline) and the transaction that wrote it. Every few
seconds a process writes a *beat* with a random token, and notes it outside of the database. Where a noted beat is
missing, the process *holds* the era: nothing is performed until a person has begun the next one (`runtime/restore`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.error_classes import raise_outcome_unknown

BEATS: Final = "beats"
KEPT_BEATS: Final = 17_280  # a day of them, every five seconds, and some more until the next removal
_BEATS_BETWEEN_REMOVALS: Final = 120  # ten minutes
IDS_BETWEEN: Final = 1_000_000  # of workers, between two eras


class Beat(msgspec.Struct, frozen=True):
    """A commit that was seen: the `n`th beat of the database, in its era, at that time of its clock."""

    database: UUID
    era: int
    n: int
    token: UUID
    at: datetime


class Era(NamedTuple):
    """The era that a database is in. `held`: why nothing may be performed; None: nothing is known against it. `moved`:
    how its server, database or timeline differ from the row; then the era should be held."""

    database: UUID
    n: int
    began_at: datetime
    held: str | None
    moved: str | None
    timeline_moved: bool


class _DatabasePosition(NamedTuple):
    system: int | None
    base: int | None
    timeline: int | None


_PLACE: Final = (
    "SELECT system_identifier FROM pg_control_system()",
    "SELECT oid::bigint FROM pg_database WHERE datname = current_database()",
    "SELECT ('x' || lpad(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), 8, '0'))::bit(32)::int",
)
_NOT_TOLD: Final = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)
# A row is written by one transaction, which no copy of it can repeat. Whoever changes the row says so anew. Not
# on Citus: its coordinator numbers transactions, and a node the rows; the other signs are looked at there, too.
_WRITTEN: Final = "pg_current_xact_id()::text::bigint"
_COLUMNS: Final = """database, n, began_at, held_why, held_at IS NOT NULL AS held, system, base, timeline,
  to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL OR xmin::text::bigint = written % 4294967296 AS original"""
_NEWEST: Final = "FROM eras ORDER BY n DESC LIMIT 1"
_ERA: Final = f"SELECT {_COLUMNS} {_NEWEST}"
_ERA_AND_PLACE: Final = (
    f"SELECT {_COLUMNS}, ({_PLACE[0]}) AS here, ({_PLACE[1]}) AS in_base, ({_PLACE[2]}) AS on_timeline {_NEWEST}"
)
_BEGIN: Final = f"""
INSERT INTO eras (n, database, system, base, timeline, written, note)
SELECT $1, $2, $3, $4, $5, {_WRITTEN}, $6 ON CONFLICT (n) DO NOTHING
"""


async def current(connection: Connection | Pool) -> Era:
    """The era; the first one begins here, where there is none."""
    era = await look(connection)
    if era is None:
        place = await _place(connection)
        with raise_outcome_unknown():
            await connection.execute(_BEGIN, 1, await _new_id(connection), *place, "")
        era = await look(connection)
        assert era is not None, "there is an era now"
    return era


async def look(connection: Connection | Pool) -> Era | None:
    """The era; None: no process has ever worked over this database."""
    row, place = await _read_era_and_place(connection)
    if row is None:
        return None
    held = (row["held_why"] or "it is held") if row["held"] else None
    was = _DatabasePosition(row["system"], row["base"], row["timeline"])
    moved = None
    if not row["original"]:
        moved = "its rows were written anew: it was restored from a dump, or replicated row by row"
    elif _differ(was.system, place.system):
        moved = "it is in another server than it was: a copy, or a server that was upgraded"
    elif _differ(was.base, place.base):
        moved = "it is a copy of another database of this server"
    timeline_moved = _differ(was.timeline, place.timeline)
    return Era(row["database"], row["n"], row["began_at"], held, moved, timeline_moved)


async def _new_id(connection: Connection | Pool) -> UUID:
    return await connection.fetchval("SELECT gen_random_uuid()")


async def _read_era_and_place(connection: Connection | Pool) -> tuple[asyncpg.Record | None, _DatabasePosition]:
    """The row of the era, and where the database is now: in one statement, if the server tells all of that at once."""
    try:
        row = await connection.fetchrow(_ERA_AND_PLACE)
    except _NOT_TOLD:
        return await connection.fetchrow(_ERA), await _place(connection)
    return row, _DatabasePosition(None, None, None) if row is None else _DatabasePosition(
        row["here"], row["in_base"], row["on_timeline"]
    )


async def _place(connection: Connection | Pool) -> _DatabasePosition:
    return _DatabasePosition(*[await _ask_server(connection, query) for query in _PLACE])


async def _ask_server(connection: Connection | Pool, query: str) -> int | None:
    """The server's answer; None where it has none, or not for this role."""
    try:
        return await connection.fetchval(query)
    except _NOT_TOLD:
        return None


def _differ(was: int | None, found: int | None) -> bool:
    return was is not None and found is not None and was != found


async def find_last_beat(connection: Connection | Pool) -> Beat | None:
    """The newest beat of the database."""
    row = await connection.fetchrow(f"{_BEATS} ORDER BY b.n DESC LIMIT 1")
    return None if row is None else Beat(*row)


_BEATS: Final = "SELECT e.database, b.era, b.n, b.token, b.at FROM beats b JOIN eras e ON e.n = b.era"


async def lacks(connection: Connection | Pool, era: Era, seen: Beat) -> bool:
    """Whether the beat was of this database and is not in it any more. One that is older than all that are kept, and
    one of an era that a person has ended, proves nothing."""
    if seen.database != era.database or seen.era < era.n:
        return False
    if seen.era > era.n:
        return True
    row = await connection.fetchrow("SELECT (SELECT token FROM beats WHERE n = $1), min(n) FROM beats", seen.n)
    assert row is not None, "an aggregate returns a row"
    token, oldest = row
    return token != seen.token and not (token is None and oldest is not None and seen.n < oldest)


# On the disk before it is noted outside, also where the database answers earlier: else a crash looks like a restore.
_WRITE: Final = """
WITH set AS (
  SELECT set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true) AS to
)
INSERT INTO beats (era) SELECT $1 FROM set RETURNING n, token, at
"""


async def beat(connection: Connection, era: Era, every: timedelta) -> Beat | None:
    """Write a beat; None if some process did in the time of `every`."""
    if await orphan_cleanup.take(connection, BEATS, every) is None:
        return None
    with raise_outcome_unknown():
        row = await connection.fetchrow(_WRITE, era.n)
    assert row is not None, "an insertion of one row returns it"
    n, token, at = row
    if n % _BEATS_BETWEEN_REMOVALS == 1:
        await connection.execute("DELETE FROM beats WHERE n <= $1", n - KEPT_BEATS)
    return Beat(era.database, era.n, n, token, at)


async def follow_timeline(connection: Connection, era: Era) -> None:
    """The server has another timeline, and no beat is missing: write the new timeline into the era."""
    place = await _place(connection)
    with raise_outcome_unknown():
        await connection.execute(
            f"UPDATE eras SET timeline = $2, written = {_WRITTEN} WHERE n = $1", era.n, place.timeline
        )


_HOLD: Final = f"""
WITH held AS (
  UPDATE eras SET held_at = now(), held_why = $2, written = CASE WHEN $3 THEN {_WRITTEN} ELSE written END
  WHERE n = $1 AND held_at IS NULL RETURNING n
)
UPDATE workers SET alive_until = '-infinity' WHERE EXISTS (SELECT FROM held)
"""


async def hold(connection: Connection, era: Era, why: str) -> None:
    """Let no worker perform anything: all leases end, and a worker without a lease takes and keeps no claim."""
    with raise_outcome_unknown():
        await connection.execute(_HOLD, era.n, why, era.moved is None)


_NEXT: Final = f"""
WITH ended AS (UPDATE workers SET alive_until = '-infinity'), ids AS (
  SELECT pg_get_serial_sequence('workers', 'id')::regclass AS name
), fenced AS (
  SELECT setval(name, nextval(name) + {IDS_BETWEEN}) FROM ids
)
INSERT INTO eras (n, database, system, base, timeline, written, note)
SELECT $1, $2, $3, $4, $5, {_WRITTEN}, $6 FROM fenced
"""


async def begin_next(connection: Connection, era: Era, note: str) -> int:
    """Begin the era behind `era`: its number. For the owner. New workers get ids that no worker of the lost history can
    have had: one of those may still be alive, and believe that it holds runs."""
    place = await _place(connection)
    with raise_outcome_unknown():
        await connection.execute(_NEXT, era.n + 1, era.database, *place, note)
    return era.n + 1


PAGE_RUNS: Final = 500
_OPEN: Final = """
SELECT id, tenant, workflow, workflow_name, status FROM runs WHERE ended_at IS NULL AND id > $1 ORDER BY id LIMIT $2
"""


async def open_runs(connection: Connection) -> AsyncIterator[Sequence[Any]]:
    """The runs that have not ended, as (id, tenant, workflow's digest, its name, status), in pages."""
    after = UUID(int=0)
    while rows := await connection.fetch(_OPEN, after, PAGE_RUNS):
        after = rows[-1][0]
        yield rows


async def count_undelivered(connection: Connection) -> int:
    """How many messages and signals are on their way to runs."""
    return await connection.fetchval(
        "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM signals WHERE due_at IS NOT NULL)"
    )


async def pause_due_schedules(connection: Connection) -> list[str]:
    """Pause the schedules one of whose instants has passed: it may have started its run already, in the time that is
    forgotten. Returns their workflows. One that is resumed goes on from then."""
    query = """
    UPDATE schedules SET paused = true, next_fire_at = NULL, wake_at = NULL
    WHERE NOT paused AND (next_fire_at <= now() OR id IN (SELECT schedule_id FROM fires WHERE outcome IS NULL))
    RETURNING workflow_name
    """
    return sorted(row[0] for row in await connection.fetch(query))
