"""Who was picked for which open questions: rows of the inbox's index, `PICKED` before the person's id."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hai_flow.store.commit.projection import PICKED
from hai_flow.store.postgres.connections import Connection, Pool


async def lock(connection: Connection, tenant: UUID) -> None:
    """Let nobody else pick people of the tenant until the transaction ends: each pick counts those before it."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"picks:{tenant}")


async def count_open(
    connection: Connection | Pool, tenant: UUID, people: Sequence[str], pending_id: str
) -> dict[str, int]:
    """For how many open questions each of the people is picked, besides this one; those that are picked for none are
    left out."""
    query = """
    SELECT substr(selector, $3), count(*) FROM inbox
    WHERE tenant = $1 AND selector = ANY ($2::text[]) AND pending_id <> $4 GROUP BY selector
    """
    rows = await connection.fetch(query, tenant, [PICKED + each for each in people], len(PICKED) + 1, pending_id)
    return {row[0]: row[1] for row in rows}
