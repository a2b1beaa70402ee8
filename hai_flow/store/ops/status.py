"""How a deployment stands, in a few statements that read no table through: for `hai-flow status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, get_args

import msgspec

from hai_flow.engine.state.state import TERMINAL_STATUSES, Status
from hai_flow.store.ops import metrics_queries
from hai_flow.store.ops.metrics_queries import COUNTED_MAX
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.runs import workers
from hai_flow.store.runs.workers import ServerRow

OPEN: Final = sorted(set(get_args(Status)) - TERMINAL_STATUSES)


class WorkerRow(NamedTuple):
    """A worker that is alive, or holds runs though it is not. `lease`: seconds until it counts as dead; negative: since
    then. `held`: how many runs it holds, counted up to `census.COUNTED_MAX`."""

    id: int
    name: str
    release: str | None
    lease: float
    held: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one cell. `runs`: how many have each open status, each counted up to `census.COUNTED_MAX` for a
    tenant. `queues` are those in which runs are due."""

    servers: Sequence[ServerRow]
    workers: Sequence[WorkerRow]
    waiting: metrics_queries.Waiting
    runs: Mapping[str, int]
    queues: Sequence[metrics_queries.InQueue] = ()


class Hour(NamedTuple):
    """The runs that began in an hour from `since` (ms) on and have ended by now, each counted up to `COUNTED_MAX` for a
    tenant."""

    since: int
    finished: int
    failed: int
    stopped: int


_LAST_DAY: Final = """
WITH RECURSIVE parse_tenants AS (
  (SELECT tenant FROM runs ORDER BY tenant LIMIT 1)
  UNION ALL
  SELECT next.tenant FROM parse_tenants t CROSS JOIN LATERAL (
    SELECT tenant FROM runs WHERE tenant > t.tenant ORDER BY tenant LIMIT 1) next
), hours AS (
  SELECT date_trunc('hour', now(), 'UTC') - make_interval(hours => n) AS since FROM generate_series(0, 23) n
)
SELECT (extract(epoch FROM h.since) * 1000)::bigint,
  coalesce(sum(c.n) FILTER (WHERE s.status = 'finished'), 0)::int,
  coalesce(sum(c.n) FILTER (WHERE s.status = 'failed'), 0)::int,
  coalesce(sum(c.n) FILTER (WHERE s.status = 'stopped'), 0)::int
FROM hours h CROSS JOIN unnest(ARRAY['finished', 'failed', 'stopped']) s(status)
LEFT JOIN parse_tenants t ON true
LEFT JOIN LATERAL (
  SELECT count(*) AS n FROM (
    SELECT FROM runs WHERE tenant = t.tenant AND status = s.status
    AND created_at >= h.since AND created_at < h.since + interval '1 hour' LIMIT $1) x) c ON true
GROUP BY h.since ORDER BY h.since
"""
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
    counts = {row[0]: row[1] for row in await connection.fetch(_RUNS, OPEN, COUNTED_MAX)}
    return Standing(
        servers=await workers.list_servers(connection),
        workers=[WorkerRow(*row) for row in await connection.fetch(_WORKERS, COUNTED_MAX)],
        waiting=await metrics_queries.waiting(connection),
        runs={status: counts.get(status, 0) for status in OPEN},
        queues=await metrics_queries.list_queues(connection),
    )


async def list_last_day(connection: Connection) -> list[Hour]:
    """The last 24 hours, the oldest first: by ranges of an index, each of them bounded."""
    return [Hour(*row) for row in await connection.fetch(_LAST_DAY, COUNTED_MAX)]
