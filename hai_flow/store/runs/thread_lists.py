"""Threads as lists show them. A thread has no row: it is where its newest run is (docs/design/store.md#threads)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs.viewers import NO_OPEN_CANARY, Viewer, readable


class ThreadSummary(msgspec.Struct, frozen=True):
    """`run_id`, `workflow_name`, `status` and `run_created_at` are of its newest run that is nobody's child;
    `created_at` is when its first run was made, `updated_at` when the newest one has last committed."""

    id: str
    run_id: UUID
    workflow_name: str
    status: str
    run_created_at: datetime
    created_at: datetime
    updated_at: datetime


_SUMMARY: Final = """
SELECT r.thread_id, r.id, r.workflow_name, r.status, r.created_at,
  (SELECT min(f.created_at) FROM runs f WHERE f.tenant = r.tenant AND f.thread_id = r.thread_id),
  (SELECT l.at FROM log l WHERE l.run_id = r.id ORDER BY l.last_seq DESC LIMIT 1)
"""


async def list_threads(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
    viewer: Viewer | None = None,
) -> list[ThreadSummary]:
    """The tenant's threads, the one with the newest run first; only those whose newest run `viewer` may read, where one
    is given. `before` is (run_created_at, run_id) of the last one of the page before."""
    arguments: list[Any] = [tenant, limit]
    earlier = ""
    if before is not None:
        arguments.extend(before)
        earlier = "AND (r.created_at, r.id) < ($3, $4)"

    # OFFSET 0 keeps the planner from sorting all runs, as it would, believing that none but one of them will do. And
    # LIMIT, not NOT EXISTS: so this is no join over all runs either, only a look at the index for each until the page
    # is full.
    def page(mine: str) -> str:
        return f"""
        SELECT r.* FROM (
          SELECT r.* FROM runs r WHERE r.tenant = $1 AND r.parent_id IS NULL AND {NO_OPEN_CANARY} {earlier} {mine}
          ORDER BY r.created_at DESC, r.id DESC OFFSET 0) r
        WHERE r.id = (
          SELECT n.id FROM runs n WHERE n.tenant = r.tenant AND n.thread_id = r.thread_id AND n.parent_id IS NULL
          ORDER BY n.place DESC, n.created_at DESC, n.id DESC LIMIT 1)
        LIMIT $2
        """

    pages = page("")
    if viewer is not None:
        pages = readable(page("AND {}"), len(arguments) + 1)
        arguments.extend(viewer.parameters())
    query = f"{_SUMMARY} FROM ({pages}) r ORDER BY r.created_at DESC, r.id DESC LIMIT $2"
    return [ThreadSummary(*row) for row in await connection.fetch(query, *arguments)]


async def get_thread(connection: Connection | Pool, tenant: UUID, thread_id: str) -> ThreadSummary | None:
    """The thread, if the tenant has one of this id: if it has a run."""
    query = f"""
    {_SUMMARY} FROM runs r WHERE r.tenant = $1 AND r.thread_id = $2 AND r.parent_id IS NULL
    ORDER BY r.place DESC, r.created_at DESC, r.id DESC LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, thread_id)
    return None if row is None else ThreadSummary(*row)
