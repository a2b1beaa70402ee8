"""Open questions that nobody can decide just now, and why: two columns of `pendings`, which a sweep keeps right."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from hai_flow.store.postgres.connections import Connection, Pool

SELECTORS_MAX: Final = 10_000

# Each pair once, by the order of an index, however many questions ask it.
_SELECTORS: Final = f"""
WITH RECURSIVE pairs AS (
  (SELECT tenant, selector, 1 AS n FROM inbox ORDER BY tenant, selector LIMIT 1)
  UNION ALL
  SELECT next.tenant, next.selector, n + 1 FROM pairs CROSS JOIN LATERAL (
    SELECT tenant, selector FROM inbox WHERE (inbox.tenant, inbox.selector) > (pairs.tenant, pairs.selector)
    ORDER BY tenant, selector LIMIT 1) next
  WHERE n < {SELECTORS_MAX}
)
SELECT tenant, array_agg(selector) FROM pairs GROUP BY tenant
"""


async def list_selectors(connection: Connection | Pool) -> dict[UUID, list[str]]:
    """What the open questions of each tenant ask."""
    return {row[0]: row[1] for row in await connection.fetch(_SELECTORS)}


async def list_marked(connection: Connection | Pool) -> list[tuple[UUID, str]]:
    """The open questions that are marked, as run and id."""
    query = "SELECT run_id, id FROM pendings WHERE status = 'open' AND nobody IS NOT NULL"
    return [(row[0], row[1]) for row in await connection.fetch(query)]


async def mark(connection: Connection, run_id: UUID, pending_id: str, why: str | None) -> float | None:
    """Note why nobody can decide the open question; None: somebody can. Returns when it was first noted, in seconds
    since 1970, if it is new; else None."""
    query = """
    UPDATE pendings SET nobody = $3, nobody_since = CASE WHEN $3::text IS NULL THEN NULL ELSE
      coalesce(nobody_since, now()) END
    WHERE run_id = $1 AND id = $2 AND status = 'open' AND nobody IS DISTINCT FROM $3
    RETURNING CASE WHEN nobody_since = now() THEN extract(epoch FROM nobody_since)::float8 END
    """
    since: float | None = await connection.fetchval(query, run_id, pending_id, why)
    return since
