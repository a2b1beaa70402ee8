"""How much a tenant uses of each of its limits. Rows are counted up to the limit, and no further."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Connection, Pool


@dataclass(frozen=True, slots=True)
class UsedQuota:
    """`earliest`: when the earliest of the last `runs_per_minute` runs began, None if it was more than a minute ago;
    `now` by the same clock. `open_runs`: how many have not ended, counted up to the limit."""

    earliest: datetime | None
    now: datetime
    open_runs: int


# A status at a time, as the index has them: those that have ended are not walked through.
_OPEN: Final = "('queued'), ('running'), ('waiting'), ('paused'), ('stopping'), ('needs_attention')"
_USED: Final = f"""
SELECT (SELECT created_at FROM runs WHERE tenant = $1 AND parent_id IS NULL AND created_at > now() - interval '1 minute'
  ORDER BY created_at DESC, id DESC OFFSET $2 - 1 LIMIT 1),
  now(),
  (SELECT count(*) FROM (SELECT FROM (VALUES {_OPEN}) AS wanted (status) CROSS JOIN LATERAL (
    SELECT FROM runs r WHERE r.tenant = $1 AND r.status = wanted.status LIMIT $3) r LIMIT $3) AS counted)
"""


async def used(connection: Connection | Pool, tenant: UUID, runs_per_minute: int, open_runs: int) -> UsedQuota:
    """The tenant's runs, counted up to these limits; 0: no limit, so they are not counted."""
    row = await connection.fetchrow(_USED, tenant, max(1, runs_per_minute), open_runs)
    assert row is not None
    return UsedQuota(row[0] if runs_per_minute else None, row[1], row[2])


@dataclass(frozen=True, slots=True)
class UsedInCell:
    """The counts of one cell of several: runs begun in the last minute and runs that have not ended, each counted up to
    its limit. `seconds`: until the earliest of those that have begun is more than a minute old."""

    begun: int
    seconds: float
    open_runs: int


_USED_IN_CELL: Final = f"""
SELECT count(*), coalesce(60 - extract(epoch FROM now() - min(b.created_at)), 0)::float8,
  (SELECT count(*) FROM (SELECT FROM (VALUES {_OPEN}) AS wanted (status) CROSS JOIN LATERAL (
    SELECT FROM runs r WHERE r.tenant = $1 AND r.status = wanted.status LIMIT $3) r LIMIT $3) AS counted)
FROM (SELECT created_at FROM runs WHERE tenant = $1 AND parent_id IS NULL AND created_at > now() - interval '1 minute'
  ORDER BY created_at DESC, id DESC LIMIT $2) b
"""


async def count_used_in_cell(
    connection: Connection | Pool, tenant: UUID, runs_per_minute: int, open_runs: int
) -> UsedInCell:
    """The counts of the tenant in one of its cells; 0: no limit, so they are not counted."""
    row = await connection.fetchrow(_USED_IN_CELL, tenant, runs_per_minute, open_runs)
    assert row is not None
    return UsedInCell(*row)


async def log_bytes(connection: Connection | Pool, tenant: UUID) -> int:
    """How large the logs of all its runs are. Reads all of them: ask seldom."""
    return await connection.fetchval("SELECT coalesce(sum(log_bytes), 0)::bigint FROM runs WHERE tenant = $1", tenant)
