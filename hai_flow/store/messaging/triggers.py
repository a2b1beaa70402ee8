"""Triggers: schedules and their firings, and which workflow wants which events and ends of runs. Rows follow the latest
version of each workflow. A statement takes a schedule and moves its `wake_at` ahead, so that others pass it by until it
is released or its process is dead; no lock is held across a round trip (docs/design/store.md#locks). Each instant that
a schedule fires is a row, from which the run's id is made."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, cast
from uuid import UUID

import msgspec

from hai_flow.schedule import Missed, Timing
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page, build_page

Overlap: TypeAlias = Literal["queue", "queue_one", "skip", "cancel_running"]
TriggerKind: TypeAlias = Literal["event", "run", "webhook"]
Outcome: TypeAlias = Literal["started", "skipped", "refused"]
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleRow(msgspec.Struct, frozen=True):
    """The `position`-th trigger of a workflow. `workflow` is the sha256 of the version that it starts, `input` JSON.

    `last_run_id` is the last run that it started by itself. `wake_at`: when the schedule is looked at again; to the
    process that has taken it, the end of that time."""

    id: UUID
    tenant: UUID
    workflow_name: str
    position: int
    workflow: bytes
    dev: bool
    cron: str | None
    timezone: str
    every_ms: int | None
    missed: Missed
    overlap: Overlap
    input: bytes
    paused: bool = False
    next_fire_at: datetime | None = None
    last_fire_at: datetime | None = None
    last_run_id: UUID | None = None
    wake_at: datetime | None = None
    waiting: int = 0  # instants whose runs are not started yet, where a request reads it

    @property
    def timing(self) -> Timing:
        return Timing(self.cron, self.timezone, self.every_ms)


class Fire(msgspec.Struct, frozen=True):
    """A time at which a schedule fired. `outcome` None: it was not dealt with yet."""

    at: datetime
    outcome: Outcome | None
    run_id: UUID | None


class EventTriggerRow(msgspec.Struct, frozen=True):
    """The `position`-th trigger of a workflow, of the version `workflow`. `type` is that of the events that it wants;
    of the kind `run` it is the workflow of whose runs it wants the ends, of the kind `webhook` a path."""

    tenant: UUID
    workflow_name: str
    position: int
    workflow: bytes
    dev: bool
    type: str
    kind: TriggerKind = "event"


_COLUMNS: Final = (
    "id, tenant, workflow_name, position, workflow, dev, cron, timezone, every_ms, missed, overlap, input, paused, "
    "next_fire_at, last_fire_at, last_run_id, wake_at"
)
_READ: Final = (
    f"{_COLUMNS}, (SELECT count(*) FROM fires f WHERE f.schedule_id = schedules.id AND f.outcome IS NULL)::int"
)
_OF_SCHEDULE: Final = ", ".join(f"s.{column}" for column in _COLUMNS.split(", "))


# --- publication --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def lock_webhook_publication(pool: Pool, tenant: UUID) -> AsyncGenerator[None]:
    """Inside, no other process publishes webhooks: a path that is free when it is looked at is free when it is
    taken."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"webhooks:{tenant}")
        yield


_PUT_SCHEDULE: Final = """
INSERT INTO schedules AS s (id, tenant, workflow_name, position, workflow, dev, cron, timezone, every_ms, missed,
  overlap, input, next_fire_at, wake_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)
ON CONFLICT (tenant, workflow_name, position) DO UPDATE SET
  workflow = excluded.workflow, dev = excluded.dev, cron = excluded.cron, timezone = excluded.timezone,
  every_ms = excluded.every_ms, missed = excluded.missed, overlap = excluded.overlap, input = excluded.input,
  next_fire_at = CASE WHEN s.paused OR (s.cron, s.timezone, s.every_ms)
      IS NOT DISTINCT FROM (excluded.cron, excluded.timezone, excluded.every_ms)
    THEN s.next_fire_at ELSE excluded.next_fire_at END,
  wake_at = CASE WHEN s.paused OR (s.cron, s.timezone, s.every_ms)
      IS NOT DISTINCT FROM (excluded.cron, excluded.timezone, excluded.every_ms)
    THEN s.wake_at ELSE excluded.wake_at END
"""
_DROP_SCHEDULES: Final = """
WITH gone AS (
  DELETE FROM schedules WHERE tenant = $1 AND workflow_name = $2 AND position <> ALL ($3::int[]) RETURNING id
)
DELETE FROM fires f USING gone WHERE f.schedule_id = gone.id
"""


async def replace_triggers(
    connection: Connection,
    tenant: UUID,
    workflow_name: str,
    schedules: Sequence[ScheduleRow],
    events: Sequence[EventTriggerRow],
) -> None:
    """Make these the workflow's triggers. A schedule whose timing stays keeps its next instant, and stays paused."""
    await connection.execute(_DROP_SCHEDULES, tenant, workflow_name, [row.position for row in schedules])
    for row in schedules:
        await connection.execute(
            _PUT_SCHEDULE,
            row.id, row.tenant, row.workflow_name, row.position, row.workflow, row.dev, row.cron, row.timezone,
            row.every_ms, row.missed, row.overlap, row.input, row.next_fire_at,
        )  # fmt: skip
    await connection.execute(
        "DELETE FROM event_triggers WHERE tenant = $1 AND workflow_name = $2", tenant, workflow_name
    )
    await connection.executemany(
        "INSERT INTO event_triggers (tenant, workflow_name, position, workflow, dev, type, kind) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",  # two may publish one webhook's path at once
        [(row.tenant, row.workflow_name, row.position, row.workflow, row.dev, row.type, row.kind) for row in events],
    )


_OF_EVENTS: Final = "SELECT tenant, workflow_name, position, workflow, dev, type, kind FROM event_triggers"


async def list_event_triggers(
    pool: Pool, tenant: UUID, type: str, kind: TriggerKind = "event"
) -> list[EventTriggerRow]:
    """The latest versions that want events of this type, or the triggers of another `kind`."""
    query = f"{_OF_EVENTS} WHERE tenant = $1 AND type = $2 AND kind = $3 ORDER BY workflow_name, position"
    return [EventTriggerRow(*row) for row in await pool.fetch(query, tenant, type, kind)]


async def run_triggers(pool: Pool, tenant: UUID) -> list[EventTriggerRow]:
    query = f"{_OF_EVENTS} WHERE tenant = $1 AND kind = 'run' ORDER BY workflow_name, position"
    return [EventTriggerRow(*row) for row in await pool.fetch(query, tenant)]


async def workflows_with_end_triggers(pool: Pool) -> frozenset[tuple[UUID, str]]:
    """The workflows, of any tenant, whose runs' ends start others."""
    query = "SELECT DISTINCT tenant, type FROM event_triggers WHERE kind = 'run'"
    return frozenset((row[0], row[1]) for row in await pool.fetch(query))


# --- firing -------------------------------------------------------------------------------------------------------

_TAKE: Final = f"""
WITH due AS MATERIALIZED (
  SELECT id FROM schedules WHERE wake_at <= now() ORDER BY wake_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE schedules s SET wake_at = statement_timestamp() + $2 FROM due WHERE s.id = due.id RETURNING {_OF_SCHEDULE}
"""


async def take_due(pool: Pool, limit: int, lease: timedelta) -> list[ScheduleRow]:
    """Up to `limit` schedules that are to be looked at. No other process looks at them until they are released, or
    until the lease is over."""
    return [ScheduleRow(*row) for row in await pool.fetch(_TAKE, limit, lease)]


async def next_wake(pool: Pool) -> datetime | None:
    """When the next schedule of any tenant is to be looked at."""
    query = "SELECT wake_at FROM schedules WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1"
    return cast("datetime | None", await pool.fetchval(query))


_FIRE: Final = """
WITH moved AS (
  UPDATE schedules SET next_fire_at = $4,
    last_fire_at = greatest(last_fire_at, (SELECT max(f) FROM unnest($5::timestamptz[]) f))
  WHERE id = $1 AND next_fire_at = $2 AND wake_at = $3 AND NOT paused
  RETURNING id, tenant
)
INSERT INTO fires (schedule_id, fire_at, tenant)
SELECT moved.id, f, moved.tenant FROM moved, unnest($5::timestamptz[]) f
ON CONFLICT DO NOTHING
"""


async def fire(pool: Pool, schedule: ScheduleRow, fires: Sequence[datetime], next: datetime | None) -> None:
    """Store the firings of a schedule that we have taken, and when it fires next. Nothing happens if another process
    has taken it meanwhile, paused or published anew."""
    await pool.execute(_FIRE, schedule.id, schedule.next_fire_at, schedule.wake_at, next, list(fires))


async def open_fires(pool: Pool, schedule: ScheduleRow) -> list[datetime]:
    """The instants of the schedule that are not dealt with, the oldest first."""
    query = "SELECT fire_at FROM fires WHERE schedule_id = $1 AND outcome IS NULL ORDER BY fire_at"
    return [row[0] for row in await pool.fetch(query, schedule.id)]


_CLAIM: Final = """
UPDATE schedules SET last_run_id = $3, claimed_until = statement_timestamp() + $5
WHERE id = $1 AND last_run_id IS NOT DISTINCT FROM $2 AND (NOT paused OR $4) RETURNING true
"""


async def claim_turn(
    pool: Pool, schedule: ScheduleRow, after: UUID | None, run_id: UUID, lease: timedelta, *, paused_too: bool = False
) -> bool:
    """Make `run_id` the schedule's last run, before it is stored, if that is `after` still. Of all processes that look
    at one schedule, however late, one at a time starts a run: one that is refused must look again. For so long as
    `lease` the run counts as `starting`."""
    return bool(await pool.fetchval(_CLAIM, schedule.id, after, run_id, paused_too, lease))


async def give_up_turn(pool: Pool, schedule: ScheduleRow, after: UUID | None, run_id: UUID) -> None:
    """The run was refused: the one before it is the schedule's last again."""
    query = "UPDATE schedules SET last_run_id = $2 WHERE id = $1 AND last_run_id = $3"
    await pool.execute(query, schedule.id, after, run_id)


async def settle_fire(
    pool: Pool, schedule: ScheduleRow, fire_at: datetime, outcome: Outcome, run_id: UUID | None = None
) -> None:
    """The instant is dealt with. Saying so twice is harmless."""
    query = "UPDATE fires SET outcome = $3, run_id = $4 WHERE schedule_id = $1 AND fire_at = $2 AND outcome IS NULL"
    await pool.execute(query, schedule.id, fire_at, outcome, run_id)


_RELEASE: Final = """
UPDATE schedules SET wake_at = CASE WHEN paused THEN NULL ELSE coalesce($3, next_fire_at) END
WHERE id = $1 AND wake_at = $2
"""


async def release(pool: Pool, schedule: ScheduleRow, wake_at: datetime | None = None) -> None:
    """We have looked at the schedule; it is looked at again when it fires next, or at `wake_at`."""
    await pool.execute(_RELEASE, schedule.id, schedule.wake_at, wake_at)


async def find_status_of_run(pool: Pool, schedule: ScheduleRow, run_id: UUID | None) -> str | None:
    """The status of a run of the schedule, `starting` while somebody is about to store it; None if there is none."""
    query = """
    SELECT coalesce(
      (SELECT status FROM runs WHERE id = $1 AND tenant = $2),
      (SELECT 'starting' FROM schedules WHERE id = $3 AND last_run_id = $1 AND claimed_until > clock_timestamp()))
    """
    return cast("str | None", await pool.fetchval(query, run_id, schedule.tenant, schedule.id))


_FORGET: Final = """
WITH page AS MATERIALIZED (
  SELECT ctid AS place, schedule_id, fire_at, outcome FROM fires
  WHERE (schedule_id, fire_at) > ($1, $2) ORDER BY schedule_id, fire_at LIMIT $3
), gone AS (
  DELETE FROM fires WHERE ctid = ANY (ARRAY(
    SELECT place FROM page WHERE outcome IS NOT NULL AND fire_at < now() - $4::interval))
  RETURNING true
)
SELECT count(*) OVER (), (SELECT count(*) FROM gone), schedule_id::text, fire_at::text FROM page
ORDER BY page.schedule_id DESC, page.fire_at DESC LIMIT 1
"""


async def delete_old_fires(
    pool: Connection | Pool, after: list[Any] | None = None, kept_for: timedelta = timedelta(days=7)
) -> Page:
    """Remove the firings that were dealt with long ago, of a page of them."""
    schedule_id, fire_at = (UUID(after[0]), datetime.fromisoformat(after[1])) if after else (UUID(int=0), _BEGINNING)
    return build_page(await pool.fetchrow(_FORGET, schedule_id, fire_at, PAGE_ROWS, kept_for))


# --- read and changed by requests -----------------------------------------------------------------------------------


async def list_schedules(
    pool: Pool, tenant: UUID, *, limit: int | None = None, after: tuple[str, int] = ("", 0)
) -> list[ScheduleRow]:
    """The schedules of the tenant by (workflow, position): `limit` of them (None: all), from behind `after` on."""
    query = f"""
    SELECT {_READ} FROM schedules WHERE tenant = $1 AND (workflow_name, position) > ($2, $3)
    ORDER BY workflow_name, position LIMIT $4
    """
    return [ScheduleRow(*row) for row in await pool.fetch(query, tenant, *after, limit)]


async def get_schedule(pool: Pool, tenant: UUID, id: UUID) -> ScheduleRow | None:
    """The schedule, if it is the tenant's."""
    row = await pool.fetchrow(f"SELECT {_READ} FROM schedules WHERE tenant = $1 AND id = $2", tenant, id)
    return None if row is None else ScheduleRow(*row)


async def list_last_fires(pool: Pool, schedule: ScheduleRow, limit: int) -> list[Fire]:
    """The last times at which the schedule fired, the newest first."""
    query = """
    SELECT fire_at, outcome, run_id FROM fires WHERE tenant = $1 AND schedule_id = $2 ORDER BY fire_at DESC LIMIT $3
    """
    return [Fire(*row) for row in await pool.fetch(query, schedule.tenant, schedule.id, limit)]


async def pause_schedule(pool: Connection | Pool, schedule: ScheduleRow) -> None:
    """The schedule fires no more; firings without a run stay for when it is resumed."""
    query = "UPDATE schedules SET paused = true, next_fire_at = NULL, wake_at = NULL WHERE tenant = $1 AND id = $2"
    await pool.execute(query, schedule.tenant, schedule.id)


async def resume_schedule(pool: Connection | Pool, schedule: ScheduleRow, next_fire_at: datetime | None) -> None:
    """The schedule goes on from `next_fire_at`: instants that passed meanwhile were not missed. Nothing happens if it
    is not paused."""
    query = """
    UPDATE schedules SET paused = false, next_fire_at = $3, wake_at = now() WHERE tenant = $1 AND id = $2 AND paused
    """
    await pool.execute(query, schedule.tenant, schedule.id, next_fire_at)
