"""The workers as people see them (their state, their queues, and the runs that they hold), and the servers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

State: TypeAlias = Literal["alive", "draining", "ended", "dead"]
HOLDS_COUNTED_MAX: Final = 10_000


class WorkerRow(msgspec.Struct, frozen=True):
    """`state`: `ended`, after it handed everything back; `dead`, when its lease ran out. `holds`: the runs that it has
    now, counted up to `HOLDS_COUNTED_MAX`: of a dead worker those that no other one has taken over.

    As of its last heartbeat (`beat_at`): `held` runs, `attempts` that it performed of at most `places` at once, and
    those that waited for a place. Fields that a worker of an older release did not write are None."""

    id: int
    name: str
    state: State
    queues: Sequence[str]
    release: str | None
    started_at: datetime | None
    beat_at: datetime | None
    draining_since: datetime | None
    holds: int
    held: int | None
    attempts: int | None
    waiting: int | None
    places: int | None


_LIST: Final = """
SELECT w.id, w.name,
  CASE WHEN w.alive_until = '-infinity' THEN 'ended' WHEN w.alive_until <= now() THEN 'dead'
       WHEN w.draining_since IS NOT NULL THEN 'draining' ELSE 'alive' END,
  coalesce(w.queues, '{default}'), w.release, w.started_at, w.beat_at, w.draining_since,
  (SELECT count(*) FROM (SELECT FROM runs r WHERE r.worker = w.id LIMIT $2) held)::int,
  w.held, w.attempts, w.waiting, w.places
FROM workers w WHERE w.name NOT LIKE 'nobody:%' ORDER BY w.alive_until > now() DESC, w.id DESC LIMIT $1
"""


async def list_workers(connection: Connection | Pool, limit: int) -> list[WorkerRow]:
    """Up to `limit` workers, those that live first. One that has ended or died, and holds nothing, is forgotten after
    an hour at most."""
    return [WorkerRow(*row) for row in await connection.fetch(_LIST, limit, HOLDS_COUNTED_MAX)]


class Holder(NamedTuple):
    """The worker that holds a run, and whether it gives signs of life."""

    name: str
    alive: bool


async def holder(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> Holder | None:
    """Who performs the run now; None: nobody holds it."""
    query = """
    SELECT w.name, w.alive_until > now() FROM runs r JOIN workers w ON w.id = r.worker WHERE r.id = $2 AND r.tenant = $1
    """
    row = await connection.fetchrow(query, tenant, run_id)
    return None if row is None else Holder(*row)


FORGOTTEN_AFTER: Final = timedelta(days=1)


class ServerRow(NamedTuple):
    """A server of that release. `up` and `seen` are how long ago it started, and last wrote that it is there
    (seconds)."""

    name: str
    release: str
    up: float
    seen: float


_RENEW_SERVER: Final = """
WITH gone AS (DELETE FROM servers WHERE seen_at < now() - $4::interval)
INSERT INTO servers (id, name, release) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET seen_at = now()
"""


async def renew_server(connection: Connection | Pool, id: UUID, name: str, release: str) -> None:
    """Write that the server is there. Rows of servers that have written nothing for a day are removed."""
    await connection.execute(_RENEW_SERVER, id, name, release, FORGOTTEN_AFTER)


async def find_other_releases(connection: Connection | Pool, release: str) -> list[str]:
    """The releases, but this one, of the servers and workers that were there within a minute."""
    query = """
    SELECT DISTINCT coalesce(release, 'before 0.2') FROM (
      SELECT release FROM servers WHERE seen_at > now() - interval '1 minute'
      UNION ALL SELECT release FROM workers WHERE alive_until > now()) AS there
    WHERE release IS DISTINCT FROM $1 ORDER BY 1
    """
    return [row[0] for row in await connection.fetch(query, release)]


async def remove_server(connection: Connection | Pool, id: UUID) -> None:
    await connection.execute("DELETE FROM servers WHERE id = $1", id)


async def list_servers(connection: Connection | Pool) -> list[ServerRow]:
    query = """
    SELECT name, release, extract(epoch FROM now() - started_at)::float8, extract(epoch FROM now() - seen_at)::float8
    FROM servers ORDER BY name, started_at
    """
    return [ServerRow(*row) for row in await connection.fetch(query)]
