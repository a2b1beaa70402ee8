"""Workflows as published: immutable, known by their sha256."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from hai_flow.errors import Rejected
from hai_flow.store.postgres.connections import Connection, Pool


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """A workflow as lists show it. `dev`: loaded from disk while it is edited; other bytes may have its version.

    `from_disk`: read from a file by a process that performs it (`dev`, `run`), not sent over the network.
    `retired_at`: since when no run, child or fork begins with it; None: it is in use."""

    sha256: bytes
    name: str
    version: int
    dev: bool
    title: str | None
    created_at: datetime
    from_disk: bool
    retired_at: datetime | None


@dataclass(frozen=True, slots=True)
class Workflow(WorkflowSummary):
    """`source` is the document's bytes, whose sha256 it is."""

    source: bytes


class NamedVersion(NamedTuple):
    """A parsed `name`, `name@version` or `name@version+sha8`. `sha8`: the first hex digits of the digest."""

    name: str
    version: int | None = None
    sha8: str | None = None


SUMMARY_COLUMNS: Final = "sha256, name, version, dev, title, created_at, from_disk, retired_at"
# Published before dev, in use before retired, the highest version first; of dev copies the one that was loaded last.
LATEST_FIRST: Final = (
    "dev, retired_at IS NOT NULL, CASE WHEN dev THEN 0 ELSE version END DESC, created_at DESC, version DESC"
)


def newer_than(row: str, version: str, name: str = "name") -> str:
    """A subquery for the versions by which the name of the published version in `row` means another one."""
    return f"""SELECT FROM workflows newer WHERE newer.tenant = {row}.tenant AND newer.name = {row}.{name}
    AND NOT newer.dev AND newer.retired_at IS NULL AND newer.version > {row}.{version}"""


_PUBLISH: Final = f"""
INSERT INTO workflows (tenant, sha256, name, version, dev, title, source, from_disk, visibility)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant, sha256) DO UPDATE SET dev = workflows.dev AND excluded.dev,
  from_disk = workflows.from_disk OR excluded.from_disk,
  created_at = CASE WHEN workflows.dev THEN excluded.created_at ELSE workflows.created_at END
RETURNING {SUMMARY_COLUMNS}, source
"""


async def publish_workflow(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    name: str,
    version: int,
    source: bytes,
    title: str | None = None,
    dev: bool = False,
    from_disk: bool = False,
    visibility: Sequence[str] = (),
) -> Workflow:
    """Store a workflow; storing the same bytes again changes nothing (but publishes a dev copy, and remembers that they
    were read from disk).

    Raises `Rejected` 409 `workflow_exists` when other bytes were published under this name and version. A dev copy may
    repeat a version with other bytes; saved again, it is the newest one again."""
    sha256 = hashlib.sha256(source).digest()
    arguments = (tenant, sha256, name, version, dev, title, source, from_disk, list(visibility))
    try:
        async with _savepoint(connection):
            row = await connection.fetchrow(_PUBLISH, *arguments)
    except asyncpg.UniqueViolationError:
        if await find_workflow_by_sha(connection, tenant, sha256) is None:
            raise Rejected(
                409,
                "workflow_exists",
                f"{name}@{version} is published with other content and never changes; raise its version",
                winner={"name": name, "version": version},
            ) from None
        # The same bytes, published at once by somebody else, met the index of names before that of digests.
        row = await connection.fetchrow(_PUBLISH, *arguments)
    assert row is not None, "insert or update: one row"
    return Workflow(*row)


def _savepoint(connection: Connection | Pool) -> contextlib.AbstractAsyncContextManager[Any]:
    """Around a statement that may fail: a transaction that it is part of goes on."""
    return connection.transaction() if hasattr(connection, "transaction") else contextlib.nullcontext()


async def _find_one(connection: Connection | Pool, condition: str, *arguments: Any) -> Workflow | None:
    query = f"SELECT {SUMMARY_COLUMNS}, source FROM workflows WHERE {condition} ORDER BY {LATEST_FIRST} LIMIT 1"
    row = await connection.fetchrow(query, *arguments)
    return None if row is None else Workflow(*row)


async def find_workflow_by_sha(connection: Connection | Pool, tenant: UUID, sha256: bytes) -> Workflow | None:
    """The very bytes that a run is pinned to."""
    return await _find_one(connection, "tenant = $1 AND sha256 = $2", tenant, sha256)


async def title_of(connection: Connection | Pool, tenant: UUID, sha256: bytes) -> str | None:
    """The title of the very bytes that a run is pinned to; None: they have none."""
    query = "SELECT title FROM workflows WHERE tenant = $1 AND sha256 = $2"
    title: str | None = await connection.fetchval(query, tenant, sha256)
    return title


async def visibility_of(connection: Connection | Pool, tenant: UUID, sha256: bytes) -> frozenset[str]:
    """The selectors of the people that may read its runs, beside the requesters and operators."""
    query = "SELECT visibility FROM workflows WHERE tenant = $1 AND sha256 = $2"
    return frozenset(await connection.fetchval(query, tenant, sha256) or ())


async def workflow_version(connection: Connection | Pool, tenant: UUID, name: str, version: int) -> Workflow | None:
    """`name@version`: the published one, else the newest dev copy of that version."""
    return await _find_one(connection, "tenant = $1 AND name = $2 AND version = $3", tenant, name, version)


async def find_latest_workflow(connection: Connection | Pool, tenant: UUID, name: str) -> Workflow | None:
    """The highest published version that is in use, else the highest one that is retired, else the newest dev copy."""
    return await _find_one(connection, "tenant = $1 AND name = $2", tenant, name)


async def find_summary(
    connection: Connection | Pool, tenant: UUID, name: str, version: int | None
) -> WorkflowSummary | None:
    """As `workflow_version`, or as `find_latest_workflow` where no version is named, without the document's bytes."""
    query = f"""
    SELECT {SUMMARY_COLUMNS} FROM workflows WHERE tenant = $1 AND name = $2 AND ($3::int IS NULL OR version = $3)
    ORDER BY {LATEST_FIRST} LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, name, version)
    return None if row is None else WorkflowSummary(*row)


async def list_workflows(
    connection: Connection | Pool, tenant: UUID, *, limit: int | None = None, after: str = ""
) -> Sequence[WorkflowSummary]:
    """The latest of each name, by name: `limit` of them (None: all), from the first name behind `after`."""
    query = f"""
    SELECT DISTINCT ON (name) {SUMMARY_COLUMNS} FROM workflows WHERE tenant = $1 AND name > $2
    ORDER BY name, {LATEST_FIRST} LIMIT $3
    """
    return [WorkflowSummary(*row) for row in await connection.fetch(query, tenant, after, limit)]


async def names_with(connection: Connection | Pool, tenant: UUID, part: str) -> list[str]:
    """The names of the workflows whose name, or the title of whose latest version, has this part, in whatever case."""
    query = f"""
    SELECT name FROM (
      SELECT DISTINCT ON (name) name, title FROM workflows WHERE tenant = $1 ORDER BY name, {LATEST_FIRST}
    ) latest
    WHERE position(lower($2) IN lower(name)) > 0 OR position(lower($2) IN lower(coalesce(title, ''))) > 0
    ORDER BY name
    """
    return [row[0] for row in await connection.fetch(query, tenant, part)]


async def list_versions_of_workflow(
    connection: Connection | Pool, tenant: UUID, name: str
) -> Sequence[WorkflowSummary]:
    """Everything that is stored under a name, latest first."""
    query = f"SELECT {SUMMARY_COLUMNS} FROM workflows WHERE tenant = $1 AND name = $2 ORDER BY {LATEST_FIRST}"
    return [WorkflowSummary(*row) for row in await connection.fetch(query, tenant, name)]


async def is_retired(connection: Connection | Pool, tenant: UUID, sha256: bytes) -> bool:
    """Whether no run may begin with these bytes any more, as with those that the database has lost."""
    query = "SELECT FROM workflows WHERE tenant = $1 AND sha256 = $2 AND retired_at IS NULL"
    return await connection.fetchrow(query, tenant, sha256) is None


async def is_latest(connection: Connection | Pool, tenant: UUID, sha256: bytes) -> bool:
    """Whether these published bytes are in use, and the name of their workflow means them."""
    query = f"""
    SELECT retired_at IS NULL AND NOT EXISTS ({newer_than("stored", "version")}) FROM workflows stored
    WHERE tenant = $1 AND sha256 = $2
    """
    return bool(await connection.fetchval(query, tenant, sha256))


async def set_retired(connection: Connection, tenant: UUID, name: str, version: int, *, retired: bool) -> bool:
    """Retire everything that is stored as `name@version`, or take that back. Returns whether anything changed."""
    query = """
    UPDATE workflows SET retired_at = CASE WHEN $4 THEN now() END
    WHERE tenant = $1 AND name = $2 AND version = $3 AND (retired_at IS NULL) = $4
    """
    return str(await connection.execute(query, tenant, name, version, retired)) != "UPDATE 0"


_ADD: Final = """
INSERT INTO tool_pins (tenant, workflow, name, digest)
SELECT $1, $2, name, digest FROM unnest($3::text[], $4::text[]) AS given (name, digest)
ON CONFLICT (tenant, workflow, name) DO NOTHING
"""
_REPLACE: Final = """
WITH gone AS (
  DELETE FROM tool_pins WHERE tenant = $1 AND workflow = $2 AND name <> ALL ($3::text[])
)
INSERT INTO tool_pins (tenant, workflow, name, digest)
SELECT $1, $2, name, digest FROM unnest($3::text[], $4::text[]) AS given (name, digest)
ON CONFLICT (tenant, workflow, name) DO UPDATE SET digest = excluded.digest
"""


async def list_pins(connection: Connection | Pool, tenant: UUID, workflow: bytes) -> dict[str, str]:
    query = "SELECT name, digest FROM tool_pins WHERE tenant = $1 AND workflow = $2"
    return {row["name"]: row["digest"] for row in await connection.fetch(query, tenant, workflow)}


async def add_pins(connection: Connection | Pool, tenant: UUID, workflow: bytes, pins: Mapping[str, str]) -> None:
    """Store the digests of names that have none yet; others stay."""
    await connection.execute(_ADD, tenant, workflow, list(pins), list(pins.values()))


async def replace_pins(connection: Connection | Pool, tenant: UUID, workflow: bytes, pins: Mapping[str, str]) -> None:
    await connection.execute(_REPLACE, tenant, workflow, list(pins), list(pins.values()))
