"""Addresses at which services call back: which step of which run each is for. Of an address only its hash is kept."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page, build_page


class CallbackRow(msgspec.Struct, frozen=True):
    """The step that an address is for: the one at `path` of a run. `type`: of the signal that it becomes."""

    digest: bytes
    tenant: UUID
    run_id: UUID
    path: str
    type: str


async def add_callback(
    connection: Connection | Pool, token: str, tenant: UUID, run_id: UUID, path: str, type: str
) -> None:
    """Store an address, before any service gets it."""
    query = "INSERT INTO callbacks (digest, tenant, run_id, path, type) VALUES ($1, $2, $3, $4, $5)"
    await connection.execute(query, hash_secret(token), tenant, run_id, path, type)


async def find_callback(connection: Connection | Pool, token: str) -> CallbackRow | None:
    query = "SELECT digest, tenant, run_id, path, coalesce(type, 'callback:' || path) FROM callbacks WHERE digest = $1"
    row = await connection.fetchrow(query, hash_secret(token))
    return None if row is None else CallbackRow(*row)


_FORGET: Final = """
WITH page AS MATERIALIZED (
  SELECT digest, run_id, created_at FROM callbacks WHERE digest > $1 ORDER BY digest LIMIT $2
), gone AS (
  DELETE FROM callbacks c USING page p
  WHERE c.digest = p.digest AND p.created_at < now() - interval '1 day'
    AND NOT EXISTS (SELECT FROM runs r WHERE r.id = p.run_id AND r.status NOT IN ('finished', 'failed', 'stopped'))
  RETURNING true
)
SELECT count(*) OVER (), (SELECT count(*) FROM gone), encode(digest, 'hex') FROM page ORDER BY page.digest DESC LIMIT 1
"""


async def delete_old_callbacks(connection: Connection | Pool, after: list[Any] | None = None) -> Page:
    """Remove addresses of runs that have ended, of a page of them, a day after they were made."""
    (last,) = after or ("",)
    return build_page(await connection.fetchrow(_FORGET, bytes.fromhex(str(last)), PAGE_ROWS))
