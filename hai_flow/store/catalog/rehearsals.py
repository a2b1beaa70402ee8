"""Results of backtests that were kept, so that a publication can demand one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

KEPT_MAX: Final = 100  # of one workflow, the newest


class KeptRehearsal(msgspec.Struct, frozen=True):
    """The runs of the workflow `name` that began within `age`, decided again under the text `sha256`. `base`: the
    digest of the workflow's latest version when that began. `complete`: all of these runs were. `differences`: how many
    would have gone otherwise, or could not be decided again. `counts`: JSON, the runs by verdict and by reason. `by`
    has kept it."""

    name: str
    sha256: bytes
    base: bytes
    age: timedelta
    complete: bool
    runs: int
    differences: int
    counts: bytes
    by: str
    at: datetime | None = None


_COLUMNS: Final = "name, sha256, base, age, complete, runs, differences, counts, kept_by"
_KEEP: Final = f"""
INSERT INTO rehearsals (tenant, {_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant, name, sha256, base) DO UPDATE SET age = excluded.age, complete = excluded.complete,
  runs = excluded.runs, differences = excluded.differences, counts = excluded.counts, kept_by = excluded.kept_by,
  at = now()
"""
_TRIM: Final = """
DELETE FROM rehearsals WHERE tenant = $1 AND name = $2 AND (sha256, base) IN (
  SELECT sha256, base FROM rehearsals WHERE tenant = $1 AND name = $2 ORDER BY at DESC, sha256, base OFFSET $3)
"""


async def keep_rehearsal(connection: Connection, tenant: UUID, rehearsal: KeptRehearsal) -> None:
    """Keep the result in place of an earlier one of the same text on the same base."""
    each = rehearsal
    values = (each.name, each.sha256, each.base, each.age, each.complete, each.runs, each.differences, each.counts)
    await connection.execute(_KEEP, tenant, *values, each.by)
    await connection.execute(_TRIM, tenant, each.name, KEPT_MAX)


async def find_rehearsal(
    connection: Connection | Pool, tenant: UUID, name: str, sha256: bytes, base: bytes
) -> tuple[KeptRehearsal, timedelta] | None:
    """The rehearsal of this text, and how long ago it was kept: that on this base if there is one, else the newest."""
    query = f"""
    SELECT now() - at, {_COLUMNS}, at FROM rehearsals WHERE tenant = $1 AND name = $2 AND sha256 = $3
    ORDER BY base = $4 DESC, at DESC LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, name, sha256, base)
    return None if row is None else (KeptRehearsal(*row[1:]), row[0])


async def lock_publication(connection: Connection, tenant: UUID, name: str) -> None:
    """Until the transaction ends, nobody else publishes or retires a version of the workflow: what is its latest
    version then stays so."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"publish:{tenant}:{name}")


async def has_runs(connection: Connection | Pool, tenant: UUID, name: str) -> bool:
    """Whether there is a run of the workflow."""
    query = "SELECT EXISTS (SELECT FROM runs WHERE tenant = $1 AND workflow_name = $2)"
    return bool(await connection.fetchval(query, tenant, name))
