"""The statements of `hai-flow recover`, over a database that has gone back in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Connection

PAGE_RUNS: Final = 500
_OPEN: Final = """
SELECT id, tenant, workflow, workflow_name, status FROM runs WHERE ended_at IS NULL AND id > $1 ORDER BY id LIMIT $2
"""


async def open_runs(connection: Connection) -> AsyncIterator[Sequence[Any]]:
    """The runs that have not ended, as (id, tenant, workflow's digest, its name, status), in pages."""
    after = UUID(int=0)
    while rows := await connection.fetch(_OPEN, after, PAGE_RUNS):
        after = rows[-1][0]
        yield rows


async def count_undelivered(connection: Connection) -> int:
    """How many messages and signals are on their way to runs."""
    return await connection.fetchval(
        "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM signals WHERE due_at IS NOT NULL)"
    )


async def pause_due_schedules(connection: Connection) -> list[str]:
    """Pause the schedules one of whose instants has passed: it may have started its run already, in the time that is
    forgotten. Returns their workflows. One that is resumed goes on from then."""
    query = """
    UPDATE schedules SET paused = true, next_fire_at = NULL, wake_at = NULL
    WHERE NOT paused AND (next_fire_at <= now() OR id IN (SELECT schedule_id FROM fires WHERE outcome IS NULL))
    RETURNING workflow_name
    """
    return sorted(row[0] for row in await connection.fetch(query))
