"""Absences: people who are away on some days, and who decides for them meanwhile.

Days are those of a zone; `since` and `until` are their instants, worked out when the absence was entered. `stage` says
how far its effect on open questions has got: it is `ahead`, has `begun`, or is `over`
(`runtime/people/absence_notices`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

OPEN_MAX: Final = 500  # absences of a tenant that are not over
KEPT: Final = timedelta(days=30)


class AbsenceRow(msgspec.Struct, frozen=True):
    """`person` is away from `since` until `until`; `delegate`, if there is one, decides for them with these roles and
    groups, which `person` had when `entered_by` entered it."""

    id: UUID
    person: str
    delegate: str | None
    first_day: date
    last_day: date
    zone: str
    since: datetime
    until: datetime
    roles: Sequence[str]
    groups: Sequence[str]
    note: str | None
    entered_by: str
    created_at: datetime


_COLUMNS: Final = (
    "id, person, delegate, first_day, last_day, zone, since, until, roles, groups, note, entered_by, created_at"
)
ANY_ABSENCE_DUE: Final = """
(EXISTS (SELECT FROM absences WHERE stage = 'ahead' AND since <= now())
  OR EXISTS (SELECT FROM absences WHERE stage = 'begun' AND until <= now()))
"""


async def lock(connection: Connection, tenant: UUID) -> None:
    """Let nobody else enter an absence of the tenant until the transaction ends: each is held against all others."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"absences:{tenant}")


async def create(connection: Connection | Pool, tenant: UUID, absence: AbsenceRow) -> None:
    query = f"""
    INSERT INTO absences (tenant, {_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    """
    await connection.execute(
        query, tenant, absence.id, absence.person, absence.delegate, absence.first_day, absence.last_day, absence.zone,
        absence.since, absence.until, list(absence.roles), list(absence.groups), absence.note, absence.entered_by,
        absence.created_at,
    )  # fmt: skip


async def list_open(connection: Connection | Pool, tenant: UUID) -> list[AbsenceRow]:
    """All absences of the tenant that are not over, the earliest first."""
    query = f"SELECT {_COLUMNS} FROM absences WHERE tenant = $1 AND until > now() ORDER BY since, id"
    return [AbsenceRow(*row) for row in await connection.fetch(query, tenant)]


async def list_page(
    connection: Connection | Pool,
    tenant: UUID,
    person: Sequence[str] | None,
    *,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
) -> list[AbsenceRow]:
    """The absences that are not over, the newest first, behind the one `before`: those of the person of these ids and
    those in which they decide for others; None: those of everybody."""
    query = f"""
    SELECT {_COLUMNS} FROM absences
    WHERE tenant = $1 AND until > now() AND ($3::timestamptz IS NULL OR (created_at, id) < ($3, $4))
      AND ($5::text[] IS NULL OR person = ANY ($5) OR delegate = ANY ($5))
    ORDER BY created_at DESC, id DESC LIMIT $2
    """
    rows = await connection.fetch(
        query, tenant, limit, *(before or (None, None)), None if person is None else [*person]
    )
    return [AbsenceRow(*row) for row in rows]


async def list_now(connection: Connection | Pool, tenant: UUID, delegate: Sequence[str] | None) -> list[AbsenceRow]:
    """The absences of the tenant that hold now; none at all, where in none of them the person of these ids decides
    for somebody. None: in any case."""
    query = f"""
    SELECT {_COLUMNS} FROM absences
    WHERE tenant = $1 AND since <= now() AND until > now() AND ($2::text[] IS NULL OR EXISTS (
      SELECT FROM absences mine
      WHERE mine.tenant = $1 AND mine.delegate = ANY ($2) AND mine.until > now() AND mine.since <= now()
    ))
    ORDER BY since, id
    """
    rows = await connection.fetch(query, tenant, None if delegate is None else [*delegate])
    return [AbsenceRow(*row) for row in rows]


async def end(connection: Connection | Pool, tenant: UUID, id: UUID, person: Sequence[str] | None) -> str | None:
    """End an absence at once, or take one back that has not begun. `person`: only if the person of these ids is away or
    decides in it. Returns who was away; None: the id is unknown, or it is over."""
    query = """
    WITH one AS (
      SELECT id, since, person FROM absences
      WHERE tenant = $1 AND id = $2 AND until > now() AND ($3::text[] IS NULL OR ARRAY[person, delegate] && $3)
      FOR UPDATE
    ), gone AS (
      DELETE FROM absences USING one WHERE absences.id = one.id AND one.since >= now()
    ), ended AS (
      UPDATE absences SET until = now() FROM one WHERE absences.id = one.id AND one.since < now()
    )
    SELECT person FROM one
    """
    away: str | None = await connection.fetchval(query, tenant, id, None if person is None else [*person])
    return away


_IS_DUE: Final = "(stage = 'ahead' AND since <= now() OR stage = 'begun' AND until <= now())"


async def list_due(pool: Pool) -> list[UUID]:
    """Absences that have begun or ended and whose open questions do not know it yet, the first that began first."""
    return [row[0] for row in await pool.fetch(f"SELECT id FROM absences WHERE {_IS_DUE} ORDER BY since LIMIT 1000")]


async def take_due(connection: Connection, id: UUID) -> tuple[UUID, AbsenceRow, str] | None:
    """The absence, locked until the transaction ends, with its tenant and its stage. None: somebody else has dealt with
    it, or is about to."""
    query = f"SELECT tenant, stage, {_COLUMNS} FROM absences WHERE id = $1 AND {_IS_DUE} FOR UPDATE SKIP LOCKED"
    row = await connection.fetchrow(query, id)
    return None if row is None else (row[0], AbsenceRow(*row[2:]), row[1])


async def is_over(connection: Connection, id: UUID) -> bool:
    """Whether the absence has ended."""
    return bool(await connection.fetchval("SELECT until <= now() FROM absences WHERE id = $1", id))


async def set_stage(connection: Connection, id: UUID, stage: str) -> None:
    """Note how far its effect on open questions has got."""
    await connection.execute("UPDATE absences SET stage = $2 WHERE id = $1", id, stage)


async def remove_old(connection: Connection | Pool) -> None:
    """Remove those that have been over for long."""
    await connection.execute("DELETE FROM absences WHERE stage = 'over' AND until < now() - $1::interval", KEPT)
