"""Open questions to people, as requests read them. They are written by `runs.commit` alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from hai_flow.store.logs import LogRow
from hai_flow.store.run_lists import Viewer, may_read

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool


@dataclass(frozen=True, slots=True)
class Pending:
    """`body` is the JSON text of the pending as opened; `opened_seq` the last seq of the commit that opened it."""

    run_id: UUID
    id: str
    status: str
    path: str
    digest: bytes
    deadline: datetime | None
    opened_seq: int
    opened_at: datetime
    body: bytes


@dataclass(frozen=True, slots=True)
class Listed(Pending):
    """An open one, with the columns of its run that a list shows."""

    workflow: str
    started_by: str
    readable: bool  # whether the viewer may read its run, if a list is one's
    sha256: bytes  # of the workflow
    thread_id: str


@dataclass(frozen=True, slots=True)
class Vote:
    principal: str
    last_seq: int
    body: bytes


_COLUMNS: Final = "run_id, id, status, path, digest, deadline, opened_seq, opened_at, body"
_OF_PENDINGS: Final = ", ".join(f"p.{column}" for column in _COLUMNS.split(", "))


async def open_pendings(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    limit: int,
    before: tuple[datetime, str] | None = None,
    viewer: Viewer | None = None,
) -> list[Listed]:
    """The tenant's open pendings, newest first. `before` is (opened_at, id) of the last one of the page before.
    `viewer`: whose list it is; they may be asked a question of a run that they may not read."""
    arguments: list[Any] = [tenant, limit]
    earlier = ""
    if before is not None:
        arguments.extend(before)
        earlier = "AND (p.opened_at, p.id) < ($3, $4)"
    mine = "true"
    if viewer is not None:
        mine = may_read("r", len(arguments) + 1)
        arguments.extend(viewer.parameters())
    query = f"""
    SELECT {_OF_PENDINGS}, r.workflow_name, r.started_by, {mine}, r.workflow, r.thread_id
    FROM pendings p JOIN runs r ON r.id = p.run_id
    WHERE p.tenant = $1 AND p.status = 'open' {earlier}
    ORDER BY p.opened_at DESC, p.id DESC LIMIT $2
    """
    return [Listed(*row) for row in await connection.fetch(query, *arguments)]


async def pendings_of_run(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> list[Pending]:
    """All pendings of one run, open or not, in the order in which they were opened."""
    query = f"SELECT {_COLUMNS} FROM pendings WHERE run_id = $1 AND tenant = $2 ORDER BY opened_seq, id"
    return [Pending(*row) for row in await connection.fetch(query, run_id, tenant)]


async def get_pending(connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str) -> Pending | None:
    """The pending, if it is the tenant's. Its id names its run (docs/design/engine.md#ids), so no index is needed."""
    query = f"SELECT {_COLUMNS} FROM pendings WHERE run_id = $1 AND id = $2 AND tenant = $3"
    row = await connection.fetchrow(query, run_id, pending_id, tenant)
    return None if row is None else Pending(*row)


async def votes_of(connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str) -> list[Vote]:
    """The votes on a pending, in the order in which they were committed."""
    query = """
    SELECT principal, last_seq, body FROM votes WHERE run_id = $1 AND pending_id = $2 AND tenant = $3
    ORDER BY last_seq, principal
    """
    return [Vote(*row) for row in await connection.fetch(query, run_id, pending_id, tenant)]


_HISTORY: Final = """
SELECT l.first_seq, l.last_seq, l.events FROM pendings p
JOIN log l ON l.run_id = p.run_id AND l.last_seq > greatest($4, p.opened_seq - 1)
WHERE p.run_id = $2 AND p.id = $3 AND p.tenant = $1 AND position(convert_to($3, 'UTF8') IN l.events) > 0
ORDER BY l.last_seq LIMIT $5
"""


async def history_of(
    connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str, after: int, limit: int
) -> list[LogRow]:
    """Up to `limit` commits of the run's log, from the one that opened the pending, that hold its id and end after the
    seq `after`. Not every event of them is about it."""
    return [LogRow(*row) for row in await connection.fetch(_HISTORY, tenant, run_id, pending_id, after, limit)]
