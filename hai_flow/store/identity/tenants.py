"""Tenants: those whose runs, threads, workflows and keys are apart from all others'. Each has a row; `default` is there
from the beginning. How much a tenant uses of its limits: rows are counted up to the limit, and no further."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from hai_flow.cells import HOME, TenantCells
from hai_flow.store.postgres.connections import Connection, Pool

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
DEFAULT: Final = "default"
AT_HOME: Final = (HOME,)
_HOME_ALONE: Final = TenantCells.in_one(HOME)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a tenant may have: runs that begin in a minute, runs that have not ended, streams of one process that
    only follow, bytes of logs. 0: no limit; None: that of the settings."""

    runs_per_minute: int | None = None
    open_runs: int | None = None
    followers: int | None = None
    log_bytes: int | None = None

    def over(self, defaults: Limits) -> Limits:
        """These limits; where one is None, that of `defaults`."""
        own = {name: value for name in LIMITS if (value := getattr(self, name)) is not None}
        return replace(defaults, **own) if own else defaults

    def as_dict(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in LIMITS}


LIMITS: Final = tuple(field.name for field in fields(Limits))
MOST: Final = {"runs_per_minute": 1_000_000, "open_runs": 10_000_000, "followers": 1_000_000, "log_bytes": 2**62}
"""The largest number that each limit can be."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, with the limits that were set for it, and where it lives."""

    id: UUID
    name: str
    created_at: datetime
    limits: Limits = Limits()
    living: TenantCells = _HOME_ALONE

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells that it lives in, by number; of several each of its threads lives in one."""
        return self.living.cells


_COLUMNS: Final = (
    f"id, name, created_at, {', '.join(LIMITS)}, cells, anchors, closed, opening, coalesce(opens_at > now(), false)"
)


def _tenant(row: Any) -> Tenant:
    *limits, cells, anchors, closed, opening, waits = row[3:]
    lives_in = AT_HOME if cells is None else tuple(cells)
    waiting = tuple(opening) if waits else ()
    shut = (*(closed or ()), *waiting)
    if not set(lives_in) - set(shut):  # those that are to be closed stay open until the others are
        shut = waiting
    living = TenantCells(lives_in, lives_in[:1] if anchors is None else tuple(anchors), shut)
    return Tenant(row[0], row[1], row[2], Limits(*limits), living)


async def find_tenant(connection: Connection | Pool, name: str, *, locked: bool = False) -> Tenant | None:
    """The tenant of this name, if there is one. `locked`: the row is locked until the transaction ends."""
    lock = " FOR NO KEY UPDATE" if locked else ""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM tenants WHERE name = $1{lock}", name)
    return None if row is None else _tenant(row)


async def get_tenant(connection: Connection | Pool, id: UUID) -> Tenant | None:
    """The tenant of this id, if there is one."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM tenants WHERE id = $1", id)
    return None if row is None else _tenant(row)


async def create_tenant(connection: Connection | Pool, name: str, cells: tuple[int, ...] = AT_HOME) -> Tenant | None:
    """Make the tenant `name`, which lives in these cells. None: the name is taken."""
    statement = f"""
    INSERT INTO tenants (id, name, cells, anchors) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING
    RETURNING {_COLUMNS}
    """
    stored = None if cells == AT_HOME else cells
    row = await connection.fetchrow(statement, uuid4(), name, stored, cells if len(cells) > 1 else None)
    return None if row is None else _tenant(row)


async def list_tenants(connection: Connection | Pool) -> list[Tenant]:
    return [_tenant(row) for row in await connection.fetch(f"SELECT {_COLUMNS} FROM tenants ORDER BY name")]


async def set_limits(connection: Connection | Pool, name: str, changed: dict[str, int | None]) -> Tenant | None:
    """Change those limits of the tenant that `changed` names. None: the tenant does not exist."""
    limits = {limit: changed[limit] for limit in LIMITS if limit in changed}
    assignments = "".join(f", {limit} = ${n}" for n, limit in enumerate(limits, 2))
    statement = f"UPDATE tenants SET name = name{assignments} WHERE name = $1 RETURNING {_COLUMNS}"
    row = await connection.fetchrow(statement, name, *limits.values())
    return None if row is None else _tenant(row)


async def set_living(
    connection: Connection | Pool,
    name: str,
    living: TenantCells,
    opening: Sequence[int] = (),
    after: timedelta = timedelta(0),
) -> Tenant | None:
    """Let the tenant live there. A tenant that has data must keep its anchors, its seat and all its cells: the caller
    has checked that (`lives_here`). Nothing begins in the cells `opening` before that time has passed. None: the tenant
    does not exist."""
    statement = f"""
    UPDATE tenants SET cells = $2, anchors = $3, closed = $4, opening = $5, opens_at = now() + $6 WHERE name = $1
    RETURNING {_COLUMNS}
    """
    stored = None if living == _HOME_ALONE else living.cells
    anchors = living.anchors if living.is_large else None
    waits = (list(opening), after) if opening else (None, None)
    row = await connection.fetchrow(statement, name, stored, anchors, living.closed or None, *waits)
    return None if row is None else _tenant(row)


async def large_tenants(connection: Connection | Pool) -> list[Tenant]:
    """The tenants that live in several cells."""
    rows = await connection.fetch(f"SELECT {_COLUMNS} FROM tenants WHERE cardinality(cells) > 1 ORDER BY name")
    return [_tenant(row) for row in rows]


async def copy_tenant(connection: Connection | Pool, tenant: Tenant) -> None:
    """Let the connection's cell know the tenant by name, as home does: so that runs can be pruned and verified there,
    and notifications sent, without a question to another cell."""
    statement = """
    INSERT INTO tenants (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET id = excluded.id
    """
    await connection.execute(statement, tenant.id, tenant.name, tenant.created_at)


_LIVES: Final = """
SELECT EXISTS (SELECT FROM runs WHERE tenant = $1) OR EXISTS (SELECT FROM workflows WHERE tenant = $1)
  OR EXISTS (SELECT FROM files WHERE tenant = $1) OR EXISTS (SELECT FROM signals WHERE tenant = $1)
  OR EXISTS (SELECT FROM retired_runs WHERE tenant = $1)
"""


async def lives_here(connection: Connection | Pool, id: UUID) -> bool:
    """Whether the connection's cell has something of the tenant that would stay behind if it moved."""
    return bool(await connection.fetchval(_LIVES, id))


async def lodgers(connection: Connection | Pool) -> dict[int, int]:
    """How many tenants live in each cell, by its number; those of home, which knows it."""
    statement = """
    SELECT cell, count(*) FROM tenants, unnest(coalesce(cells, ARRAY[0])) AS cell GROUP BY cell
    """
    return {row[0]: row[1] for row in await connection.fetch(statement)}


@dataclass(frozen=True, slots=True)
class UsedQuota:
    """`earliest`: when the earliest of the last `runs_per_minute` runs began, None if it was more than a minute ago;
    `now` by the same clock. `open_runs`: how many have not ended, counted up to the limit."""

    earliest: datetime | None
    now: datetime
    open_runs: int


# A status at a time, as the index has them: those that have ended are not walked through.
_OPEN: Final = "('queued'), ('running'), ('waiting'), ('paused'), ('stopping'), ('needs_attention')"
_USED: Final = f"""
SELECT (SELECT created_at FROM runs WHERE tenant = $1 AND parent_id IS NULL AND created_at > now() - interval '1 minute'
  ORDER BY created_at DESC, id DESC OFFSET $2 - 1 LIMIT 1),
  now(),
  (SELECT count(*) FROM (SELECT FROM (VALUES {_OPEN}) AS wanted (status) CROSS JOIN LATERAL (
    SELECT FROM runs r WHERE r.tenant = $1 AND r.status = wanted.status LIMIT $3) r LIMIT $3) AS counted)
"""


async def used(connection: Connection | Pool, tenant: UUID, runs_per_minute: int, open_runs: int) -> UsedQuota:
    """The tenant's runs, counted up to these limits; 0: no limit, so they are not counted."""
    row = await connection.fetchrow(_USED, tenant, max(1, runs_per_minute), open_runs)
    assert row is not None
    return UsedQuota(row[0] if runs_per_minute else None, row[1], row[2])


@dataclass(frozen=True, slots=True)
class UsedInCell:
    """The counts of one cell of several: runs begun in the last minute and runs that have not ended, each counted up to
    its limit. `seconds`: until the earliest of those that have begun is more than a minute old."""

    started: int
    seconds: float
    open_runs: int


_USED_IN_CELL: Final = f"""
SELECT count(*), coalesce(60 - extract(epoch FROM now() - min(b.created_at)), 0)::float8,
  (SELECT count(*) FROM (SELECT FROM (VALUES {_OPEN}) AS wanted (status) CROSS JOIN LATERAL (
    SELECT FROM runs r WHERE r.tenant = $1 AND r.status = wanted.status LIMIT $3) r LIMIT $3) AS counted)
FROM (SELECT created_at FROM runs WHERE tenant = $1 AND parent_id IS NULL AND created_at > now() - interval '1 minute'
  ORDER BY created_at DESC, id DESC LIMIT $2) b
"""


async def count_used_in_cell(
    connection: Connection | Pool, tenant: UUID, runs_per_minute: int, open_runs: int
) -> UsedInCell:
    """The counts of the tenant in one of its cells; 0: no limit, so they are not counted."""
    row = await connection.fetchrow(_USED_IN_CELL, tenant, runs_per_minute, open_runs)
    assert row is not None
    return UsedInCell(*row)


async def log_bytes(connection: Connection | Pool, tenant: UUID) -> int:
    """How large the logs of all its runs are. Reads all of them: ask seldom."""
    return await connection.fetchval("SELECT coalesce(sum(log_bytes), 0)::bigint FROM runs WHERE tenant = $1", tenant)
