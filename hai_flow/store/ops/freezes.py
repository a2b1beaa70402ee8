"""Rows of freezes, and of the runs with steps that one of them holds.

Rows stay when a freeze ends. `freeze_switch` has one row from the first freeze on, whose version grows with each
change: a process compares it with the version of what it knows."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.store.commit.commit_sql import FREEZE_VERSION, RAISE_FREEZE_VERSION
from hai_flow.store.postgres.connections import Connection, Pool


class FreezeRow(NamedTuple):
    """`tenant`: None of all tenants. `owner`: the tenant whose operators may end it; None: those of the deployment.
    `mode` and `scope` as in `engine/steps/held_steps`."""

    id: UUID
    tenant: UUID | None
    owner: UUID | None
    mode: str
    scope: str
    name: str
    reason: str
    created_by: str
    created_at: datetime
    thawed_by: str | None
    thawed_at: datetime | None


class FrozenRun(NamedTuple):
    """A run with held steps: the ids of the freezes, as its row has them."""

    id: UUID
    tenant: UUID


_COLUMNS: Final = (
    "id, of_tenant AS tenant, owner, mode, scope, name, reason, created_by, created_at, thawed_by, thawed_at"
)
# By the few different texts of the column, not by run.
_TEXTS: Final = """
WITH RECURSIVE texts(held) AS (
  (SELECT held FROM runs WHERE held <> '' ORDER BY held LIMIT 1)
  UNION ALL
  SELECT (SELECT runs.held FROM runs WHERE runs.held <> '' AND runs.held > texts.held ORDER BY runs.held LIMIT 1)
  FROM texts WHERE texts.held IS NOT NULL
)"""
_OVER: Final = """EXISTS (
  SELECT FROM unnest(string_to_array(texts.held, ' ')) AS id
  WHERE NOT EXISTS (SELECT FROM freezes WHERE freezes.id = id::uuid AND thawed_at IS NULL)
)"""
ANY_TO_RELEASE: Final = f"({_TEXTS} SELECT EXISTS (SELECT FROM texts WHERE held IS NOT NULL AND {_OVER}))"
"""Whether a run is held by a freeze that is over, in SQL."""


async def in_force(connection: Connection | Pool) -> tuple[int, list[FreezeRow]]:
    """The version of the switch, and the freezes that are not over, the first first."""
    rows = await connection.fetch(
        f"SELECT switch.version, f.* FROM (SELECT {FREEZE_VERSION} AS version) switch "
        f"LEFT JOIN (SELECT {_COLUMNS} FROM freezes WHERE thawed_at IS NULL) f ON true ORDER BY created_at, id"
    )
    freezes = [FreezeRow(*row[1:]) for row in rows if row["id"] is not None]
    return rows[0]["version"], freezes


async def list_freezes(connection: Connection | Pool, tenant: UUID | None, *, over: bool) -> list[FreezeRow]:
    """The freezes of the tenant and those of all, at most 1,000, the last one first; None: of every tenant. `over`:
    also those that have ended."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM freezes WHERE ($1::uuid IS NULL OR of_tenant IS NULL OR of_tenant = $1) "
        "AND ($2 OR thawed_at IS NULL) ORDER BY created_at DESC, id LIMIT 1000",
        tenant,
        over,
    )
    return [FreezeRow(*row) for row in rows]


async def find_freeze(connection: Connection | Pool, id: UUID) -> FreezeRow | None:
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM freezes WHERE id = $1", id)
    return None if row is None else FreezeRow(*row)


_MENTIONS: Final = """
SELECT EXISTS (SELECT FROM workflows WHERE tenant = $1 AND position($2 IN convert_from(source, 'UTF8')) > 0)
"""
_EXISTS: Final = {
    "workflow": "SELECT EXISTS (SELECT FROM workflows WHERE tenant = $1 AND name = $2)",
    "tool": _MENTIONS,
    "model": _MENTIONS,
    "principal": """
      SELECT EXISTS (SELECT FROM runs WHERE tenant = $1 AND started_by = $2)
        OR EXISTS (SELECT FROM keys WHERE tenant = $1 AND principal = $2)""",
}


async def exists(connection: Connection | Pool, tenant: UUID, scope: str, name: str) -> bool:
    """Whether the tenant has what a freeze names: a workflow, a tool or a model that a workflow mentions, a person who
    has started a run or has a key."""
    return bool(await connection.fetchval(_EXISTS[scope], tenant, name.partition(".")[0] if scope == "tool" else name))


async def freeze(
    connection: Connection,
    id: UUID,
    tenant: UUID | None,
    owner: UUID | None,
    mode: str,
    scope: str,
    name: str,
    reason: str,
    by: str,
) -> tuple[FreezeRow, bool]:
    """Write a freeze, which all processes obey within seconds, and whether it is new: the same id again is the same
    freeze."""
    is_new = await connection.fetchval(
        "INSERT INTO freezes (id, of_tenant, owner, mode, scope, name, reason, created_by) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING true",
        id, tenant, owner, mode, scope, name, reason, by,
    )  # fmt: skip
    await connection.execute(RAISE_FREEZE_VERSION)
    row = await find_freeze(connection, id)
    assert row is not None, "it was just written, or was there"
    return row, is_new is True


async def thaw(connection: Connection, id: UUID, by: str) -> FreezeRow | None:
    """End a freeze. None if it is over, or there is none."""
    row = await connection.fetchrow(
        f"UPDATE freezes SET thawed_at = clock_timestamp(), thawed_by = $2 WHERE id = $1 AND thawed_at IS NULL "
        f"RETURNING {_COLUMNS}",
        id,
        by,
    )
    if row is None:
        return None
    await connection.execute(RAISE_FREEZE_VERSION)
    return FreezeRow(*row)


async def runs_to_release(connection: Connection | Pool, but: Collection[UUID], most: int) -> list[FrozenRun]:
    """Runs with steps that are held by a freeze that is over, `but` these. Which ones is left to chance, so that
    several processes seldom take the same."""
    rows = await connection.fetch(
        f"{_TEXTS} SELECT runs.id, runs.tenant FROM texts JOIN runs ON runs.held = texts.held "
        f"WHERE texts.held IS NOT NULL AND runs.held <> '' AND {_OVER} AND runs.id <> ALL ($1::uuid[]) "
        "ORDER BY random() LIMIT $2",
        list(but),
        most,
    )
    return [FrozenRun(*row) for row in rows]
