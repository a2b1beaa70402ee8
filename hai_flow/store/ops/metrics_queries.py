"""Counts that only the database can give: how many runs there are in each status, and how long things have waited. No
query looks through a table: due and open rows are counted up to a bound at one end of an index, and runs in *rounds*, a
page of the index in a look. The counts are kept in a row of `sweeps`: one process looks, and all show them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, get_args
from uuid import UUID

import msgspec

from hai_flow.engine.state.state import TERMINAL_STATUSES, Status
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.runs.leases import SERVES, WAITING_QUEUES

NAME: Final = "census"
PAGE_RUNS: Final = 20_000
PAGE_GROUPS: Final = 1000  # of runs of one tenant in one status
COUNTED_MAX: Final = 10_000
OVERDUE: Final = timedelta(seconds=10)
WORKFLOWS_MAX: Final = 200
OTHER: Final = "(other)"
QUEUES_MAX: Final = 50
QUEUE_COUNTED_MAX: Final = 1000
_OPEN: Final = sorted(set(get_args(Status)) - TERMINAL_STATUSES)


class RoundPosition(msgspec.Struct, frozen=True):
    """How far a round is: behind this run. `created_at` is as PostgreSQL writes it."""

    tenant: UUID
    status: str
    created_at: str
    id: UUID


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of things that wait, of all tenants. Numbers are exact up to `COUNTED_MAX`, and never more. Ages are
    in seconds, 0 where nothing waits.

    `due`: runs that a worker is to take; `overdue`: those whose time came more than `OVERDUE` ago, and those of dead
    workers. A deadline or a timer of a run that waits is its time. `outbox`: messages between runs that are due.
    `unsealed_age`: of the oldest record of the audit that has no seal. `stranded`: questions that nobody can decide."""

    due: int = 0
    due_age: float = 0.0
    overdue: int = 0
    pendings: int = 0
    pendings_age: float = 0.0
    outbox: int = 0
    outbox_age: float = 0.0
    unsealed_age: float = 0.0
    workers: int = 0
    stranded: int = 0


class InQueue(msgspec.Struct, frozen=True):
    """The due runs of one queue: how many, up to `QUEUE_COUNTED_MAX`, for how long the first of them has been due, and
    how many workers serve the queue."""

    name: str
    due: int
    age: float
    workers: int


class MetricsRound(msgspec.Struct, kw_only=True):
    """The result of the looks so far. `queues`: the `QUEUES_MAX` queues whose first run has been due for longest.
    `runs`: how many a workflow has in a status, as (workflow, status, number), of the last round that was finished;
    None: none has been. `counting` are those of the round that goes on, behind `place`."""

    at: float = 0.0
    waiting: Waiting = Waiting()
    queues: list[InQueue] = []
    runs: list[tuple[str, str, int]] | None = None
    counting: list[tuple[str, str, int]] = []
    place: RoundPosition | None = None


async def read_last_counts(connection: Connection) -> MetricsRound | None:
    """The result of the last look of any process."""
    text = await connection.fetchval("SELECT position FROM sweeps WHERE name = $1", NAME)
    return None if text is None else msgspec.json.decode(text, type=MetricsRound)


async def look(connection: Connection, every: timedelta) -> bool:
    """Look, unless some process did in the time of `every`; returns whether it was looked here."""
    stored = await orphan_cleanup.take(connection, NAME, every)
    if stored is None:
        return False
    counts = msgspec.json.decode(stored, type=MetricsRound | None) or MetricsRound()
    counts.at, counts.waiting = await _waiting(connection)
    counts.queues = await list_queues(connection)
    await _count(connection, counts)
    await orphan_cleanup.leave(connection, NAME, counts)
    return True


async def _count(connection: Connection, found: MetricsRound) -> None:
    place = found.place
    start = (UUID(int=0), "") if place is None else (place.tenant, place.status)
    groups = await connection.fetch(_GROUPS, *start, PAGE_GROUPS + 1)  # the first may be done already
    behind = ("-infinity", UUID(int=0))
    if place is not None and groups and tuple(groups[0]) == start:
        behind = (place.created_at, place.id)
    tenants, statuses = [row[0] for row in groups], [row[1] for row in groups]
    rows = await connection.fetch(_PAGE, tenants, statuses, *behind, PAGE_RUNS, _OPEN)
    counts = {(workflow, status): number for workflow, status, number in found.counting}
    counted = 0
    for workflow, status, number, *_ in rows:
        key = (workflow, status) if (workflow, status) in counts or len(counts) < WORKFLOWS_MAX else (OTHER, status)
        counts[key] = counts.get(key, 0) + number
        counted += number
    found.counting = [(workflow, status, number) for (workflow, status), number in counts.items()]
    if counted >= PAGE_RUNS:
        last = max(rows, key=lambda row: row[3])[3:]
        n, created_at, id = last
        found.place = RoundPosition(tenants[n - 1], statuses[n - 1], created_at, id)
    elif len(groups) > PAGE_GROUPS:
        found.place = RoundPosition(tenants[-1], statuses[-1], "infinity", UUID(int=2**128 - 1))
    else:
        found.runs, found.counting, found.place = found.counting, [], None


_GROUPS: Final = """
WITH RECURSIVE groups AS (
  (SELECT tenant, status, 1 AS n FROM runs WHERE (tenant, status) >= ($1::uuid, $2::text)
   ORDER BY tenant, status LIMIT 1)
  UNION ALL
  SELECT next.tenant, next.status, n + 1 FROM groups g CROSS JOIN LATERAL (
    SELECT tenant, status FROM runs WHERE (tenant, status) > (g.tenant, g.status) ORDER BY tenant, status LIMIT 1) next
  WHERE n < $3
) SELECT tenant, status FROM groups
"""
_PAGE: Final = """
WITH page AS MATERIALIZED (
  SELECT g.n, g.status, r.workflow_name, r.created_at, r.id
  FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY g(tenant, status, n) CROSS JOIN LATERAL (
    SELECT workflow_name, created_at, id FROM runs
    WHERE tenant = g.tenant AND status = g.status AND (created_at, id) > (
      CASE WHEN g.n = 1 THEN $3::text::timestamptz ELSE '-infinity' END,
      CASE WHEN g.n = 1 THEN $4::uuid ELSE '00000000-0000-0000-0000-000000000000' END)
    ORDER BY created_at, id LIMIT $5) r
  WHERE g.status = ANY ($6::text[]) LIMIT $5
), last AS (SELECT n, created_at, id FROM page ORDER BY n DESC, created_at DESC, id DESC LIMIT 1)
SELECT p.workflow_name, p.status, count(*)::int, l.n::int, l.created_at::text, l.id
FROM page p CROSS JOIN last l GROUP BY p.workflow_name, p.status, l.n, l.created_at, l.id
"""


async def list_queues(connection: Connection) -> list[InQueue]:
    """The `QUEUES_MAX` queues whose first run has been due for longest."""
    return [InQueue(*row) for row in await connection.fetch(_QUEUES, QUEUE_COUNTED_MAX, QUEUES_MAX)]


async def waiting(connection: Connection) -> Waiting:
    """The counts as they are now, from a look of our own."""
    return (await _waiting(connection))[1]


async def _waiting(connection: Connection) -> tuple[float, Waiting]:
    row = await connection.fetchrow(_WAITING, COUNTED_MAX, OVERDUE, PAGE_GROUPS)
    assert row is not None, "it counts"
    names = Waiting.__struct_fields__
    return row[0], Waiting(**{name: value or 0 for name, value in zip(names, row[1:], strict=True)})


# The first of each group by the order of its index: of the pendings of a tenant the oldest.
_WAITING: Final = f"""
WITH RECURSIVE {WAITING_QUEUES}, oldest AS (
  (SELECT tenant, opened_at, 1 AS n FROM pendings WHERE status = 'open' ORDER BY tenant, opened_at LIMIT 1)
  UNION ALL
  SELECT next.tenant, next.opened_at, n + 1 FROM oldest o CROSS JOIN LATERAL (
    SELECT tenant, opened_at FROM pendings WHERE status = 'open' AND tenant > o.tenant
    ORDER BY tenant, opened_at LIMIT 1) next
  WHERE n < $3
), due AS MATERIALIZED (
  SELECT d.wake_at FROM waiting_queues q CROSS JOIN LATERAL (
    SELECT wake_at FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now() ORDER BY wake_at LIMIT $1) d
  LIMIT $1
), lost AS MATERIALIZED (
  SELECT FROM workers w CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.worker = w.id LIMIT $1) held
  WHERE w.alive_until < now() AND w.name NOT LIKE 'nobody:%' LIMIT $1
)
SELECT extract(epoch FROM now())::float8,
  (SELECT count(*) FROM due)::int,
  (SELECT extract(epoch FROM now() - min(wake_at)) FROM due)::float8,
  ((SELECT count(*) FROM due WHERE wake_at < now() - $2::interval) + (SELECT count(*) FROM lost))::int,
  (SELECT count(*) FROM (SELECT FROM pendings WHERE status = 'open' LIMIT $1) p)::int,
  (SELECT extract(epoch FROM now() - min(opened_at)) FROM oldest)::float8,
  (SELECT count(*) FROM (SELECT FROM outbox WHERE due_at <= now() LIMIT $1) o)::int,
  (SELECT greatest(0, extract(epoch FROM now() - (SELECT due_at FROM outbox ORDER BY due_at LIMIT 1))))::float8,
  (SELECT extract(epoch FROM now() - min(a.at)) FROM (SELECT tenant, id FROM audit_unsealed LIMIT $1) u
    JOIN audit a ON a.tenant = u.tenant AND a.id = u.id)::float8,
  (SELECT count(*) FROM workers WHERE alive_until > now() AND name NOT LIKE 'nobody:%')::int,
  (SELECT count(*) FROM (SELECT FROM pendings WHERE status = 'open' AND nobody IS NOT NULL LIMIT $1) p)::int
"""

_QUEUES: Final = f"""
WITH RECURSIVE {WAITING_QUEUES}, late AS MATERIALIZED (
  SELECT q.name, d.wake_at FROM waiting_queues q CROSS JOIN LATERAL (
    SELECT wake_at FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now() ORDER BY wake_at LIMIT 1) d
  ORDER BY d.wake_at LIMIT $2
)
SELECT q.name,
  (SELECT count(*) FROM (
    SELECT FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now() LIMIT $1) d)::int,
  extract(epoch FROM now() - q.wake_at)::float8,
  (SELECT count(*) FROM workers s WHERE {SERVES})::int
FROM late q ORDER BY q.wake_at, q.name
"""
