"""Which servers there are: each says so every few seconds, for `hai-flow status`. Workers have leases (`claims`)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Connection, Pool

FORGOTTEN_AFTER: Final = timedelta(days=1)


class ServerRow(NamedTuple):
    """A server of that release. `up` and `seen` are how long ago it started, and last wrote that it is there
    (seconds)."""

    name: str
    release: str
    up: float
    seen: float


_SAY: Final = """
WITH gone AS (DELETE FROM servers WHERE seen_at < now() - $4::interval)
INSERT INTO servers (id, name, release) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET seen_at = now()
"""


async def say(connection: Connection | Pool, id: UUID, name: str, release: str) -> None:
    """Write that the server is there. Rows of servers that have written nothing for a day are removed."""
    await connection.execute(_SAY, id, name, release, FORGOTTEN_AFTER)


async def find_other_releases(connection: Connection | Pool, release: str) -> list[str]:
    """The releases, but this one, of the servers and workers that were there within a minute."""
    query = """
    SELECT DISTINCT coalesce(release, 'before 0.2') FROM (
      SELECT release FROM servers WHERE seen_at > now() - interval '1 minute'
      UNION ALL SELECT release FROM workers WHERE alive_until > now()) AS there
    WHERE release IS DISTINCT FROM $1 ORDER BY 1
    """
    return [row[0] for row in await connection.fetch(query, release)]


async def leave(connection: Connection | Pool, id: UUID) -> None:
    await connection.execute("DELETE FROM servers WHERE id = $1", id)


async def list_servers(connection: Connection | Pool) -> list[ServerRow]:
    """All servers that have a row, by name."""
    query = """
    SELECT name, release, extract(epoch FROM now() - started_at)::float8, extract(epoch FROM now() - seen_at)::float8
    FROM servers ORDER BY name, started_at
    """
    return [ServerRow(*row) for row in await connection.fetch(query)]
