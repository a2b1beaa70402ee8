"""What starts runs by itself: schedules and their firings, and which workflow wants which events.

Rows follow the latest version of each workflow and are written by its publication alone. A schedule fires exactly once
across processes: one statement moves `next_fire_at` from the value that was read and stores the firings, so of many
who saw it due one wins; a stored firing is given out until somebody has started its run, whose id is made from
(schedule, instant). Nobody holds a lock across a round trip, so nobody's death holds anybody up (STORE B8).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from hai_flow.schedule import Missed, Timing

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool

AGAIN_AFTER: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """The `position`-th trigger of a workflow. `workflow` is the sha256 of the version that it starts, `input` JSON.

    `last_run_id` is the run that its last firing started (or would have, had `overlap` not skipped it).
    """

    id: UUID
    tenant: UUID
    workflow_name: str
    position: int
    workflow: bytes
    cron: str | None
    timezone: str
    every_ms: int | None
    missed: Missed
    overlap: str
    input: bytes
    paused: bool = False
    next_fire_at: datetime | None = None
    last_fire_at: datetime | None = None
    last_run_id: UUID | None = None

    @property
    def timing(self) -> Timing:
        return Timing(self.cron, self.timezone, self.every_ms)


@dataclass(frozen=True, slots=True)
class EventTriggerRow:
    tenant: UUID
    workflow_name: str
    position: int
    workflow: bytes
    type: str


@dataclass(frozen=True, slots=True)
class Advance:
    """A schedule that was read due, what it fires, and when it will be due again."""

    schedule: ScheduleRow
    fires: Sequence[datetime]
    next: datetime | None


@dataclass(frozen=True, slots=True)
class Fire:
    """A firing whose run is to be started."""

    schedule: ScheduleRow
    fire_at: datetime


_COLUMNS: Final = (
    "id, tenant, workflow_name, position, workflow, cron, timezone, every_ms, missed, overlap, input, paused, "
    "next_fire_at, last_fire_at, last_run_id"
)
_OF_SCHEDULE: Final = ", ".join(f"s.{column}" for column in _COLUMNS.split(", "))


# --- publication --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def publication(connection: Connection, tenant: UUID, workflow_name: str) -> AsyncGenerator[None]:
    """A transaction in which a workflow is published with its triggers; one at a time for each name."""
    async with connection.transaction():
        name = f"publish:{tenant}:{workflow_name}"
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)
        yield


_PUT_SCHEDULE: Final = """
INSERT INTO schedules (id, tenant, workflow_name, position, workflow, cron, timezone, every_ms, missed, overlap, input,
  next_fire_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (tenant, workflow_name, position) DO UPDATE SET
  workflow = excluded.workflow, cron = excluded.cron, timezone = excluded.timezone, every_ms = excluded.every_ms,
  missed = excluded.missed, overlap = excluded.overlap, input = excluded.input,
  next_fire_at = CASE WHEN (schedules.cron, schedules.timezone, schedules.every_ms)
      IS NOT DISTINCT FROM (excluded.cron, excluded.timezone, excluded.every_ms)
    THEN schedules.next_fire_at ELSE excluded.next_fire_at END
"""


async def replace_triggers(
    connection: Connection,
    tenant: UUID,
    workflow_name: str,
    schedules: Sequence[ScheduleRow],
    events: Sequence[EventTriggerRow],
) -> None:
    """Make these the workflow's triggers. A schedule whose timing stays keeps its next instant, and stays paused."""
    gone = [row.position for row in schedules]
    await connection.execute(
        "WITH gone AS (DELETE FROM schedules WHERE tenant = $1 AND workflow_name = $2 AND position <> ALL ($3::int[]) "
        "RETURNING id) DELETE FROM fires f USING gone WHERE f.schedule_id = gone.id",
        tenant, workflow_name, gone,
    )  # fmt: skip
    for row in schedules:
        await connection.execute(
            _PUT_SCHEDULE,
            row.id, row.tenant, row.workflow_name, row.position, row.workflow, row.cron, row.timezone, row.every_ms,
            row.missed, row.overlap, row.input, row.next_fire_at,
        )  # fmt: skip
    await connection.execute(
        "DELETE FROM event_triggers WHERE tenant = $1 AND workflow_name = $2", tenant, workflow_name
    )
    await connection.executemany(
        "INSERT INTO event_triggers (tenant, workflow_name, position, workflow, type) VALUES ($1, $2, $3, $4, $5)",
        [(row.tenant, row.workflow_name, row.position, row.workflow, row.type) for row in events],
    )


async def event_triggers_of(connection: Connection | Pool, tenant: UUID, type: str) -> list[EventTriggerRow]:
    """Which latest versions want events of this type."""
    query = """
    SELECT tenant, workflow_name, position, workflow, type FROM event_triggers WHERE tenant = $1 AND type = $2
    ORDER BY workflow_name, position
    """
    return [EventTriggerRow(*row) for row in await connection.fetch(query, tenant, type)]


# --- firing -------------------------------------------------------------------------------------------------------


async def due_schedules(connection: Connection | Pool, limit: int) -> list[ScheduleRow]:
    """Schedules whose instant has come, the longest due first."""
    query = f"""
    SELECT {_COLUMNS} FROM schedules WHERE NOT paused AND next_fire_at <= clock_timestamp()
    ORDER BY next_fire_at LIMIT $1
    """
    return [ScheduleRow(*row) for row in await connection.fetch(query, limit)]


async def next_fire(connection: Connection | Pool) -> datetime | None:
    """When the next schedule of any tenant is due."""
    query = "SELECT next_fire_at FROM schedules WHERE NOT paused AND next_fire_at IS NOT NULL ORDER BY 1 LIMIT 1"
    return cast("datetime | None", await connection.fetchval(query))


_ADVANCE: Final = """
WITH a AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) AS a(id, expected, next)
), mine AS MATERIALIZED (
  SELECT s.id, a.next FROM schedules s JOIN a ON a.id = s.id
  WHERE s.next_fire_at = a.expected AND NOT s.paused FOR NO KEY UPDATE OF s SKIP LOCKED
), f AS MATERIALIZED (
  SELECT * FROM unnest($4::uuid[], $5::timestamptz[]) AS f(id, fire_at)
), moved AS (
  UPDATE schedules s SET next_fire_at = mine.next,
    last_fire_at = coalesce((SELECT max(f.fire_at) FROM f WHERE f.id = s.id), s.last_fire_at)
  FROM mine WHERE s.id = mine.id
  RETURNING s.id, s.tenant
), fired AS (
  INSERT INTO fires (schedule_id, fire_at, tenant, due_at)
  SELECT f.id, f.fire_at, moved.tenant, clock_timestamp() + $6 FROM f JOIN moved ON moved.id = f.id
  ON CONFLICT DO NOTHING
)
SELECT id FROM moved
"""


async def advance_schedules(
    connection: Connection | Pool, advances: Sequence[Advance], again_after: timedelta = AGAIN_AFTER
) -> list[Fire]:
    """Let schedules fire that were read due; returns the firings that are ours to start.

    Whoever moves a schedule from the instant that was read gets its firings; others get nothing. The firings are
    stored by the same statement and given out to anybody after `again_after`, so a process that dies loses none.
    """
    fires = [(advance.schedule.id, instant) for advance in advances for instant in advance.fires]
    rows = await connection.fetch(
        _ADVANCE,
        [advance.schedule.id for advance in advances],
        [advance.schedule.next_fire_at for advance in advances],
        [advance.next for advance in advances],
        [id for id, _ in fires],
        [instant for _, instant in fires],
        again_after,
    )
    moved = {row[0] for row in rows}
    return [Fire(a.schedule, instant) for a in advances if a.schedule.id in moved for instant in a.fires]


_DUE_FIRES: Final = f"""
WITH due AS MATERIALIZED (
  SELECT schedule_id, fire_at FROM fires WHERE due_at <= clock_timestamp()
  ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE fires f SET due_at = clock_timestamp() + $2 FROM due d
  WHERE f.schedule_id = d.schedule_id AND f.fire_at = d.fire_at
  RETURNING f.schedule_id, f.fire_at
)
SELECT taken.fire_at, {_OF_SCHEDULE} FROM taken JOIN schedules s ON s.id = taken.schedule_id ORDER BY taken.fire_at
"""


async def due_fires(connection: Connection | Pool, limit: int, again_after: timedelta = AGAIN_AFTER) -> list[Fire]:
    """Firings that nobody has started yet, though somebody meant to. Given out again after `again_after`."""
    rows = await connection.fetch(_DUE_FIRES, limit, again_after)
    return [Fire(ScheduleRow(*row[1:]), row[0]) for row in rows]


async def fired(connection: Connection | Pool, fire: Fire, run_id: UUID) -> None:
    """The firing's run is there (or never will be). Saying so twice is harmless."""
    await connection.execute(
        "WITH gone AS (DELETE FROM fires WHERE schedule_id = $1 AND fire_at = $2 RETURNING schedule_id) "
        "UPDATE schedules s SET last_run_id = $3 FROM gone WHERE s.id = gone.schedule_id AND s.last_fire_at <= $2",
        fire.schedule.id, fire.fire_at, run_id,
    )  # fmt: skip


_FIRE_NOW: Final = """
WITH s AS (
  UPDATE schedules SET last_fire_at = greatest(last_fire_at, clock_timestamp()) WHERE tenant = $1 AND id = $2
  RETURNING id, tenant, last_fire_at
), f AS (
  INSERT INTO fires (schedule_id, fire_at, tenant, due_at) SELECT id, last_fire_at, tenant, clock_timestamp() + $3 FROM s
  RETURNING fire_at
)
SELECT fire_at FROM f
"""


async def fire_now(
    connection: Connection | Pool, schedule: ScheduleRow, again_after: timedelta = AGAIN_AFTER
) -> Fire | None:
    """Let a schedule fire once, now, whatever its times are and also while it is paused. None: it is gone."""
    fire_at = await connection.fetchval(_FIRE_NOW, schedule.tenant, schedule.id, again_after)
    return None if fire_at is None else Fire(schedule, fire_at)


# --- what requests read and change ----------------------------------------------------------------------------------


async def list_schedules(connection: Connection | Pool, tenant: UUID) -> list[ScheduleRow]:
    """All schedules of the tenant, by workflow."""
    query = f"SELECT {_COLUMNS} FROM schedules WHERE tenant = $1 ORDER BY workflow_name, position"
    return [ScheduleRow(*row) for row in await connection.fetch(query, tenant)]


async def get_schedule(connection: Connection | Pool, tenant: UUID, id: UUID) -> ScheduleRow | None:
    """The schedule, if it is the tenant's."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM schedules WHERE tenant = $1 AND id = $2", tenant, id)
    return None if row is None else ScheduleRow(*row)


async def set_paused(
    connection: Connection | Pool, schedule: ScheduleRow, paused: bool, next_fire_at: datetime | None
) -> None:
    """Pause a schedule, or let it go on from `next_fire_at`: instants that passed meanwhile were not missed."""
    arguments: tuple[Any, ...] = (schedule.tenant, schedule.id, paused, next_fire_at)
    await connection.execute(
        "UPDATE schedules SET paused = $3, next_fire_at = $4 WHERE tenant = $1 AND id = $2 AND paused <> $3", *arguments
    )
