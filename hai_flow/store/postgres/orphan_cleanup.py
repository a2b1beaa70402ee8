"""Looking through tables for rows that were left behind, a page at a time, for all processes together.

Most rows are removed by the process that makes them needless. For the rest a *sweep* walks through a table in the order
of its key. How far it has got, and when the next page is due, is a row: whichever process comes first takes it, so a
table is read no faster by more processes, and no statement reads more than a page. Where half of a page was to be
removed, the next one is looked at at once: so no more is left behind than there is besides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

PAGE_ROWS: Final = 500


class Page(msgspec.Struct, frozen=True):
    """`rows` were looked at, `orphans` of them were left behind; `last` is the key of the last one, None behind the
    end of the table."""

    rows: int
    orphans: int
    last: list[Any] | None


_TAKE: Final = """
WITH first AS (
  INSERT INTO sweeps (name, due_at) VALUES ($1::text, now() + $2::interval)
  ON CONFLICT DO NOTHING RETURNING 'null' AS position
), again AS (
  UPDATE sweeps SET due_at = now() + $2::interval WHERE name = $1::text AND due_at <= now()
  RETURNING coalesce(position, 'null') AS position
)
SELECT position FROM first UNION ALL SELECT position FROM again
"""


async def sweep(
    pool: Pool, name: str, every: timedelta, look: Callable[[list[Any] | None], Awaitable[Page]]
) -> int | None:
    """Go on with the sweep `name`, unless some process did in the time of `every`: then None. Returns how many rows
    were found. `look(after)` looks at the page behind the key `after`, or at the first one."""
    place = await take(pool, name, every)
    if place is None:
        return None
    after, count = msgspec.json.decode(place), 0
    while True:
        page = await look(after)
        after = page.last
        count += page.orphans
        if after is None or page.orphans * 2 < page.rows:
            break
    await leave(pool, name, after)
    return count


async def take(connection: Connection | Pool, name: str, every: timedelta) -> str | None:
    """Where the sweep `name` was left, as JSON, if it is this process that goes on with it; None: another one did in
    the time of `every`."""
    return await connection.fetchval(_TAKE, name, every)


async def leave(connection: Connection | Pool, name: str, position: Any) -> None:
    """Note where the sweep `name` goes on next time, as JSON."""
    text = msgspec.json.encode(position).decode()
    await connection.execute("UPDATE sweeps SET position = $2 WHERE name = $1", name, text)


def build_page(row: Any) -> Page:
    """The answer to a statement that gives the number of a page's rows, that of those found, and the last one's key."""
    if row is None:
        return Page(0, 0, None)
    scanned, hits, *last = row
    return Page(scanned, hits, last if scanned == PAGE_ROWS else None)
