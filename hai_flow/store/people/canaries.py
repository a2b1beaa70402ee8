"""Canaries: which runs are seeded questions, what these show, and what has become of them.

`render_workflow` and `render_requester` are columns of a run as its open questions show them, so that no list gives a
canary away before it is decided. Other runs cost a comparison."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

import msgspec

from hai_flow.engine.canaries import CANARY
from hai_flow.store.postgres.connections import Connection, Pool

LISTED_MAX: Final = 500
LOOKED_AT_MAX: Final = 20_000
MODELS_MAX: Final = 10  # questions of a step that are tried as models of a canary


def _render(run: str, column: str, other: str) -> str:
    return (
        f"CASE WHEN {run}.workflow_name = '{CANARY}' THEN coalesce((SELECT c.{column} FROM canaries c "
        f"WHERE c.run_id = {run}.id), {run}.{other}) ELSE {run}.{other} END"
    )


SHOWN_WORKFLOW: Final = _render("r", "workflow", "workflow_name")
SHOWN_REQUESTER: Final = _render("r", "started_by", "started_by")


class CanaryRow(msgspec.Struct, frozen=True):
    """A canary. `workflow`, `path`, `tool` and `started_by` are those that its question shows; `status` says what has
    become of it: `caught` (refused), `missed` (anything else that people have decided), `open`, `expired`, `withdrawn`,
    or `spoilt` (who seeded it has voted). Without a run it
    is withdrawn: the server stopped before it began one. `pending_id` is None while its run waits to ask."""

    run_id: UUID
    workflow: str
    path: str
    tool: str | None
    started_by: str
    reason: str
    seeded_by: str
    at: datetime
    pending_id: str | None
    status: str


async def add_canary(
    connection: Connection | Pool,
    tenant: UUID,
    run_id: UUID,
    looks: tuple[str, str, str | None, str],
    reason: str,
    seeded_by: str,
) -> None:
    """Keep that this run, which begins next, is a canary. `looks`: workflow, path, tool and requester."""
    query = """
    INSERT INTO canaries (run_id, tenant, workflow, path, tool, started_by, reason, seeded_by)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    """
    await connection.execute(query, run_id, tenant, *looks, reason, seeded_by)


async def drop_canary(connection: Connection | Pool, run_id: UUID) -> None:
    """Forget the canary whose run could not begin. One that has begun stays: its question needs its disguise."""
    query = "DELETE FROM canaries c WHERE run_id = $1 AND NOT EXISTS (SELECT FROM runs r WHERE r.id = c.run_id)"
    await connection.execute(query, run_id)


_STATUS: Final = """
CASE WHEN EXISTS (SELECT FROM votes v WHERE v.run_id = c.run_id AND v.principal = c.seeded_by) THEN 'spoilt'
  WHEN p.status = 'reject' THEN 'caught'
  WHEN p.status = 'voided' OR (p.status IS NULL AND (r.id IS NULL OR r.ended_at IS NOT NULL)) THEN 'withdrawn'
  WHEN p.status IN ('open', 'expired') THEN p.status
  WHEN p.status IS NULL THEN 'open' ELSE 'missed' END
"""
_FROM: Final = """
FROM canaries c LEFT JOIN runs r ON r.id = c.run_id
LEFT JOIN pendings p ON p.run_id = c.run_id AND p.kind IN ('approve', 'gate')
"""
_COLUMNS: Final = f"""
SELECT c.run_id, c.workflow, c.path, c.tool, c.started_by, c.reason, c.seeded_by, c.at, p.id, {_STATUS} {_FROM}
"""


async def list_canaries(connection: Connection | Pool, tenant: UUID, age: timedelta) -> list[CanaryRow]:
    """The tenant's canaries that were seeded within the `age`, at most 500, the last one first."""
    query = f"{_COLUMNS} WHERE c.tenant = $1 AND c.at > now() - $2::interval ORDER BY c.at DESC, c.run_id LIMIT $3"
    return [CanaryRow(*row) for row in await connection.fetch(query, tenant, age, LISTED_MAX)]


async def find_canary(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> CanaryRow | None:
    """The canary whose question this run asks."""
    row = await connection.fetchrow(f"{_COLUMNS} WHERE c.tenant = $1 AND c.run_id = $2", tenant, run_id)
    return None if row is None else CanaryRow(*row)


_COUNTS: Final = f"""
SELECT coalesce({{}}, ''), count(*), count(*) FILTER (WHERE status = 'caught'),
  count(*) FILTER (WHERE status = 'missed')
FROM (SELECT c.workflow, c.tool, {_STATUS} AS status {_FROM}
  WHERE c.tenant = $1 AND c.at > now() - $2::interval ORDER BY c.at DESC LIMIT $3) seeded
WHERE status NOT IN ('withdrawn', 'spoilt') GROUP BY 1
"""


async def count_canaries(
    connection: Connection | Pool, tenant: UUID, by: Literal["workflow", "tool"], age: timedelta
) -> dict[str, tuple[int, int, int]]:
    """How many were seeded, caught and missed of those within the `age`, by the workflow or the tool that they show
    ("": none)."""
    rows = await connection.fetch(_COUNTS.format(by), tenant, age, LOOKED_AT_MAX)
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


async def count_own_canaries(
    connection: Connection | Pool, tenant: UUID, person: str, age: timedelta
) -> tuple[int, int, int]:
    """How many canaries that are decided have a vote of the person within the `age`, in how many of these they have
    voted to refuse, and in how many otherwise."""
    query = """
    SELECT count(*), count(*) FILTER (WHERE v.decision = 'reject'), count(*) FILTER (WHERE v.decision <> 'reject')
    FROM votes v JOIN canaries c ON c.run_id = v.run_id AND c.tenant = v.tenant
    JOIN pendings p ON p.run_id = v.run_id AND p.id = v.pending_id AND p.status NOT IN ('open', 'voided')
    WHERE v.tenant = $1 AND v.principal = $2 AND v.at > now() - $3::interval AND v.principal <> c.seeded_by
    """
    (row,) = await connection.fetch(query, tenant, person, age)
    return (row[0], row[1], row[2])


_NEWEST: Final = rf"""
SELECT opened_at, run_id, id FROM (
  SELECT run_id, id, path, opened_at FROM pendings
  WHERE tenant = $1 AND kind IN ('approve', 'gate') AND status <> 'voided'
  ORDER BY opened_at DESC, id DESC LIMIT {LOOKED_AT_MAX}
) newest WHERE regexp_replace(path, '\[[^\]]*\]', '[]', 'g') = $3
  AND EXISTS (SELECT FROM runs r WHERE r.id = newest.run_id AND r.workflow_name = $2)
ORDER BY opened_at DESC, id DESC LIMIT {MODELS_MAX}
"""


async def list_models(
    connection: Connection | Pool, tenant: UUID, workflow: str, path: str
) -> list[tuple[datetime, UUID, str]]:
    """The newest questions of the plan's step `path` among the tenant's newest 20,000: when each was asked, its run and
    its id."""
    return [(row[0], row[1], row[2]) for row in await connection.fetch(_NEWEST, tenant, workflow, path)]
