"""How a deployment stands, in a few statements that read no table through: for `hai-flow status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from hai_flow.engine.state.state import TERMINAL_STATUSES, Status
from hai_flow.store.ops import metrics_queries
from hai_flow.store.runs import servers

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Connection
    from hai_flow.store.runs.servers import ServerRow

OPEN: Final = sorted(set(get_args(Status)) - TERMINAL_STATUSES)


class WorkerRow(NamedTuple):
    """A worker that is alive, or holds runs though it is not. `lease`: seconds until it counts as dead; negative: since
    then. `held`: how many runs it holds, counted up to `census.COUNTED_MAX`."""

    id: int
    name: str
    release: str | None
    lease: float
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Everything of one cell. `runs`: how many have each open status, each counted up to `census.COUNTED_MAX` for a
    tenant."""

    servers: Sequence[ServerRow]
    workers: Sequence[WorkerRow]
    waiting: metrics_queries.Waiting
    runs: Mapping[str, int]


_WORKERS: Final = """
SELECT w.id, w.name, w.release, extract(epoch FROM greatest(w.alive_until, 'epoch') - now())::float8, held.n
FROM workers w CROSS JOIN LATERAL (
  SELECT count(*)::int AS n FROM (SELECT FROM runs r WHERE r.worker = w.id LIMIT $1) x) held
WHERE w.name NOT LIKE 'nobody:%' AND (w.alive_until > now() OR held.n > 0) ORDER BY w.id
"""
_RUNS: Final = """
WITH RECURSIVE groups AS (
  (SELECT tenant, status FROM runs ORDER BY tenant, status LIMIT 1)
  UNION ALL
  SELECT next.tenant, next.status FROM groups g CROSS JOIN LATERAL (
    SELECT tenant, status FROM runs WHERE (tenant, status) > (g.tenant, g.status) ORDER BY tenant, status LIMIT 1) next
)
SELECT g.status, sum(counted.n)::int FROM groups g CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM (SELECT FROM runs WHERE tenant = g.tenant AND status = g.status LIMIT $2) x) counted
WHERE g.status = ANY ($1::text[]) GROUP BY g.status
"""


async def standing(connection: Connection) -> Standing:
    """How the cell stands now."""
    counts = {row[0]: row[1] for row in await connection.fetch(_RUNS, OPEN, metrics_queries.COUNTED_MAX)}
    return Standing(
        servers=await servers.listed(connection),
        workers=[WorkerRow(*row) for row in await connection.fetch(_WORKERS, metrics_queries.COUNTED_MAX)],
        waiting=await metrics_queries.waiting(connection),
        runs={status: counts.get(status, 0) for status in OPEN},
    )
