"""Files: their bytes, known by their sha256 and kept once; their uploads, and the runs that refer to them.

The bytes of a file stand at a *place*. A place is a leftover from before anything is written there until the statement
that makes it a file's, and again when its file is gone: so a process that dies leaves nothing that is not cleared away,
and a file is never there in part. Whatever refers to a file touches it first, in the row that the sweep removes: of the
two, one comes first and the other notices."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast
from uuid import UUID

from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page, build_page
from hai_flow.store.runs.viewers import Viewer, render_may_read

_NIL: Final = UUID(int=0)
CLEARED_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class File:
    """A file, as one reader knows it: `name` and `media_type` are those of the reader's own upload, else of the newest.
    `size` is in bytes."""

    sha256: bytes
    place: str
    size: int
    name: str
    media_type: str


# --- their bytes --------------------------------------------------------------------------------------------------


async def add_piece(connection: Connection | Pool, tenant: UUID, place: str, n: int, body: bytes) -> None:
    """Store piece `n` (from 0) of the bytes at `place`."""
    query = "INSERT INTO blobs (place, n, tenant, body) VALUES ($1, $2, $3, $4)"
    await connection.execute(query, place, n, tenant, body)


async def get_piece(connection: Connection | Pool, place: str, n: int) -> bytes | None:
    """Piece `n` of the bytes at `place`; None behind the last."""
    return cast(
        "bytes | None", await connection.fetchval("SELECT body FROM blobs WHERE place = $1 AND n = $2", place, n)
    )


async def remove_pieces(connection: Connection | Pool, place: str) -> None:
    """Remove the bytes at `place`. Twice is harmless."""
    await connection.execute("DELETE FROM blobs WHERE place = $1", place)


# --- places -------------------------------------------------------------------------------------------------------


async def record_leftover(connection: Connection | Pool, tenant: UUID, place: str, within: timedelta) -> None:
    """Note that bytes are about to be written at `place`; they are cleared away unless a file has them within the
    time."""
    query = "INSERT INTO file_leftovers (place, tenant, due_at) VALUES ($1, $2, now() + $3::interval)"
    await connection.execute(query, place, tenant, within)


async def list_due_leftovers(connection: Connection | Pool) -> list[str]:
    """Some of the places that are to be cleared away."""
    query = "SELECT place FROM file_leftovers WHERE due_at <= now() ORDER BY due_at LIMIT $1"
    return [row["place"] for row in await connection.fetch(query, CLEARED_MAX)]


async def delete_leftover(connection: Connection | Pool, place: str) -> None:
    """The place has been cleared away."""
    await connection.execute("DELETE FROM file_leftovers WHERE place = $1", place)


# --- files --------------------------------------------------------------------------------------------------------

# A leftover that is due is being cleared away: it can become no file's any more.
# Read first, then written: Citus, which may keep a cell, takes no INSERT ... ON CONFLICT from a table.
_KEEP: Final = """
WITH there AS MATERIALIZED (
  SELECT place FROM file_leftovers WHERE place = $3 AND due_at > now()
), kept AS (
  INSERT INTO files AS f (tenant, sha256, place, size, touched_at)
  SELECT $1, $2, there.place, $4, now() FROM there
  ON CONFLICT (tenant, sha256) DO UPDATE SET touched_at = excluded.touched_at
  RETURNING f.place
), settled AS (
  DELETE FROM file_leftovers l USING kept k WHERE l.place = k.place
), uploaded AS (
  INSERT INTO uploads (tenant, sha256, principal, name, media_type, created_at)
  SELECT $1, $2, $5, $6, $7, now() FROM kept
  ON CONFLICT (tenant, sha256, principal) DO UPDATE SET
    name = excluded.name, media_type = excluded.media_type, created_at = excluded.created_at
), used AS (
  INSERT INTO file_uses (tenant, sha256, run_id) SELECT $1, $2, $8 FROM kept WHERE $8::uuid IS NOT NULL
  ON CONFLICT DO NOTHING
)
SELECT place FROM kept
"""


async def keep_file(
    connection: Connection | Pool, tenant: UUID, file: File, principal: str, *, run_id: UUID | None = None
) -> str | None:
    """Make the bytes at `file.place` a file that `principal` uploaded, or that the run `run_id` made.

    Returns the place of the file: another one where it was there already, None where the time for this one is over."""
    return cast(
        "str | None",
        await connection.fetchval(
            _KEEP, tenant, file.sha256, file.place, file.size, principal, file.name, file.media_type, run_id
        ),
    )


_OF_A_RUN: Final = """
EXISTS (SELECT FROM file_uses u JOIN runs r ON r.id = u.run_id AND r.tenant = u.tenant
  WHERE u.tenant = f.tenant AND u.sha256 = f.sha256)
"""
_OWN: Final = "EXISTS (SELECT FROM uploads o WHERE o.tenant = f.tenant AND o.sha256 = f.sha256 AND o.principal = $3)"
_READABLE: Final = f"({_OWN} OR {_OF_A_RUN})"


def _render_readable_by(first: int) -> str:
    """The condition that a viewer without the right to read all runs may read the file."""
    return f"""
    ({_OWN} OR EXISTS (SELECT FROM file_uses u JOIN runs r ON r.id = u.run_id AND r.tenant = u.tenant
      WHERE u.tenant = f.tenant AND u.sha256 = f.sha256 AND {render_may_read("r", first)}))
    """


_FIND: Final = """
SELECT f.sha256, f.place, f.size, o.name, o.media_type
FROM files f CROSS JOIN LATERAL (
  SELECT name, media_type FROM uploads o WHERE o.tenant = f.tenant AND o.sha256 = f.sha256
  ORDER BY o.principal = $3 DESC, o.created_at DESC LIMIT 1) o
WHERE f.tenant = $1 AND f.sha256 = $2 AND {readable}
"""
_FIND_ANY: Final = _FIND.format(readable=_READABLE)
_FIND_MINE: Final = _FIND.format(readable=_render_readable_by(4))


async def find_file(
    connection: Connection | Pool, tenant: UUID, sha256: bytes, principal: str, viewer: Viewer | None = None
) -> File | None:
    """The file, if the principal may read it: it is their own upload, or a run refers to it that `viewer` may read;
    without one, any run of the tenant."""
    if viewer is None:
        row = await connection.fetchrow(_FIND_ANY, tenant, sha256, principal)
    else:
        row = await connection.fetchrow(_FIND_MINE, tenant, sha256, principal, *viewer.parameters())
    return None if row is None else File(*row)


async def list_runs_with_file(connection: Connection | Pool, tenant: UUID, sha256: bytes, limit: int) -> list[UUID]:
    query = """
    SELECT r.id FROM file_uses u JOIN runs r ON r.id = u.run_id AND r.tenant = u.tenant
    WHERE u.tenant = $1 AND u.sha256 = $2 ORDER BY r.created_at DESC, r.id DESC LIMIT $3
    """
    return [row[0] for row in await connection.fetch(query, tenant, sha256, limit)]


# A run may read the files of all runs of its thread: its children, which share the thread, and the runs before it.
_OF_THE_THREAD: Final = """
EXISTS (SELECT FROM runs me JOIN runs r ON r.tenant = me.tenant AND r.thread_id = me.thread_id
  JOIN file_uses u ON u.tenant = f.tenant AND u.sha256 = f.sha256 AND u.run_id = r.id
  WHERE me.id = $3 AND me.tenant = f.tenant)
"""
_FIND_OF_A_RUN: Final = f"""
SELECT f.sha256, f.place, f.size, o.name, o.media_type
FROM files f CROSS JOIN LATERAL (
  SELECT name, media_type FROM uploads o WHERE o.tenant = f.tenant AND o.sha256 = f.sha256
  ORDER BY o.created_at DESC LIMIT 1) o
WHERE f.tenant = $1 AND f.sha256 = $2 AND {_OF_THE_THREAD}
"""


async def find_file_of_run(connection: Connection | Pool, tenant: UUID, sha256: bytes, run_id: UUID) -> File | None:
    """The file, if the run refers to it, or another run of its thread does."""
    row = await connection.fetchrow(_FIND_OF_A_RUN, tenant, sha256, run_id)
    return None if row is None else File(*row)


async def list_files_of_run(
    connection: Connection | Pool, tenant: UUID, sha256s: Collection[bytes], run_id: UUID
) -> set[bytes]:
    """Those of the files that the run refers to, or another run of its thread."""
    query = f"SELECT f.sha256 FROM files f WHERE f.tenant = $1 AND f.sha256 = ANY ($2::bytea[]) AND {_OF_THE_THREAD}"
    return {row["sha256"] for row in await connection.fetch(query, tenant, list(sha256s), run_id)}


async def filter_readable_files(
    connection: Connection | Pool,
    tenant: UUID,
    sha256s: Collection[bytes],
    principal: str,
    viewer: Viewer | None = None,
) -> set[bytes]:
    """Those of the files that the principal may read, as in `find_file`. They are kept as if they had just been
    uploaded."""
    readable, more = (_READABLE, ()) if viewer is None else (_render_readable_by(4), viewer.parameters())
    query = f"""
    UPDATE files f SET touched_at = now() WHERE f.tenant = $1 AND f.sha256 = ANY ($2::bytea[]) AND {readable}
    RETURNING f.sha256
    """
    return {row["sha256"] for row in await connection.fetch(query, tenant, list(sha256s), principal, *more)}


_HAND: Final = f"""
WITH touched AS (
  UPDATE files f SET touched_at = now()
  WHERE f.tenant = $1 AND f.sha256 = ANY ($2::bytea[]) AND ($3::uuid IS NULL OR {_OF_THE_THREAD})
  RETURNING f.sha256
)
INSERT INTO file_uses (tenant, sha256, run_id) SELECT $1, sha256, $4 FROM touched ON CONFLICT DO NOTHING
"""


async def hand_files(
    connection: Connection | Pool, tenant: UUID, sha256s: Collection[bytes], run_id: UUID, *, of: UUID | None = None
) -> None:
    """Note that a commit of the run is about to refer to these files, as far as they are there. `of`: it was given them
    by that run, so only those count that it refers to."""
    if sha256s:
        await connection.execute(_HAND, tenant, list(sha256s), of, run_id)


_USE: Final = """
WITH readable AS MATERIALIZED (
  SELECT f.sha256 FROM files f WHERE f.tenant = $1 AND f.sha256 = ANY ($2::bytea[]) AND {readable}
), touched AS (
  UPDATE files f SET touched_at = now() FROM readable r
  WHERE f.tenant = $1 AND f.sha256 = r.sha256 AND (SELECT count(*) FROM readable) = cardinality($2::bytea[])
  RETURNING f.sha256
), used AS (
  INSERT INTO file_uses (tenant, sha256, run_id) SELECT $1, sha256, $4 FROM touched ON CONFLICT DO NOTHING
)
SELECT sha256 FROM readable WHERE (SELECT count(*) FROM readable) < cardinality($2::bytea[])
UNION SELECT sha256 FROM touched
"""
_USE_ANY: Final = _USE.format(readable=_READABLE)
_USE_MINE: Final = _USE.format(readable=_render_readable_by(5))


async def record_files(
    connection: Connection | Pool,
    tenant: UUID,
    sha256s: Collection[bytes],
    principal: str,
    run_id: UUID,
    viewer: Viewer | None = None,
) -> set[bytes]:
    """Note that a commit of the run is about to refer to these (different) files. Returns those that the principal may
    read; if these are not all of them, nothing is noted."""
    arguments = (tenant, list(sha256s), principal, run_id)
    if viewer is None:
        rows = await connection.fetch(_USE_ANY, *arguments)
    else:
        rows = await connection.fetch(_USE_MINE, *arguments, *viewer.parameters())
    return {row["sha256"] for row in rows}


# A run that was removed and is in an archive may come back: it refers to its files as long.
_OF_AN_ARCHIVE: Final = """
EXISTS (SELECT FROM file_uses u JOIN retired_runs r ON r.run_id = u.run_id AND r.tenant = u.tenant
  WHERE u.tenant = f.tenant AND u.sha256 = f.sha256 AND r.place IS NOT NULL)
"""
# A message that waits in the queue of its thread is a run's that is not born.
_OF_A_MESSAGE: Final = """
EXISTS (SELECT FROM file_uses u JOIN queued_messages q ON q.tenant = u.tenant AND q.run_id = u.run_id
  WHERE u.tenant = f.tenant AND u.sha256 = f.sha256 AND q.refused IS NULL)
"""
# A row that somebody writes meanwhile, because a run refers to the file again, has another xmin, and stays. (Citus,
# which may keep a cell, finds no rows by ctid here.)
_FORGET: Final = f"""
WITH page AS MATERIALIZED (
  SELECT xmin AS version, tenant, sha256, touched_at FROM files
  WHERE (tenant, sha256) > ($1, $2) ORDER BY tenant, sha256 LIMIT $3
), gone AS (
  DELETE FROM files f USING page
  WHERE f.tenant = page.tenant AND f.sha256 = page.sha256 AND f.xmin = page.version
    AND page.touched_at < now() - $4::interval AND NOT {_OF_A_RUN} AND NOT {_OF_A_MESSAGE} AND NOT {_OF_AN_ARCHIVE}
  RETURNING f.tenant, f.sha256, f.place
), uploaded AS (
  DELETE FROM uploads o USING gone g WHERE o.tenant = g.tenant AND o.sha256 = g.sha256
), used AS (
  DELETE FROM file_uses u USING gone g WHERE u.tenant = g.tenant AND u.sha256 = g.sha256
), leftover AS (
  INSERT INTO file_leftovers (place, tenant, due_at) SELECT place, tenant, now() FROM gone
)
SELECT count(*) OVER (), (SELECT count(*) FROM gone), tenant::text, encode(sha256, 'hex') FROM page
ORDER BY page.tenant DESC, page.sha256 DESC LIMIT 1
"""


async def delete_unused_files(
    connection: Connection | Pool, kept_for: timedelta, after: list[Any] | None = None
) -> Page:
    """Remove files that neither a run nor a waiting message refers to, and that were not touched for `kept_for`, of a
    page of them. Their bytes become leftovers."""
    tenant, sha256 = after or (_NIL, "")
    row = await connection.fetchrow(_FORGET, UUID(str(tenant)), bytes.fromhex(sha256), PAGE_ROWS, kept_for)
    return build_page(row)
