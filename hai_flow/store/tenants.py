"""Tenants: those whose runs, threads, workflows and keys are apart from all others'. Each has a row; `default` is there
from the beginning."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from hai_flow.cells import HOME

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
DEFAULT: Final = "default"
AT_HOME: Final = (HOME,)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a tenant may have: runs that begin in a minute, runs that have not ended, streams of one process that
    only follow, bytes of logs. 0: no limit; None: what the settings give to all."""

    runs_per_minute: int | None = None
    open_runs: int | None = None
    followers: int | None = None
    log_bytes: int | None = None

    def over(self, defaults: Limits) -> Limits:
        """These, and those of `defaults` where they say nothing."""
        said = {name: value for name in LIMITS if (value := getattr(self, name)) is not None}
        return replace(defaults, **said) if said else defaults

    def as_dict(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in LIMITS}


LIMITS: Final = tuple(field.name for field in fields(Limits))
MOST: Final = {"runs_per_minute": 1_000_000, "open_runs": 10_000_000, "followers": 1_000_000, "log_bytes": 2**62}
"""The largest number that each limit can be."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, with the limits that were set for it. `cells`: those that its runs live in, by number; of several each
    thread lives in one (`hai_flow.cells.cell_of_thread`)."""

    id: UUID
    name: str
    created_at: datetime
    limits: Limits = Limits()
    cells: tuple[int, ...] = AT_HOME


_COLUMNS: Final = f"id, name, created_at, {', '.join(LIMITS)}, cells"


def _tenant(row: Any) -> Tenant:
    *limits, cells = row[3:]
    return Tenant(row[0], row[1], row[2], Limits(*limits), AT_HOME if cells is None else tuple(cells))


async def find_tenant(connection: Connection | Pool, name: str) -> Tenant | None:
    """The tenant of this name, if there is one."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM tenants WHERE name = $1", name)
    return None if row is None else _tenant(row)


async def get_tenant(connection: Connection | Pool, id: UUID) -> Tenant | None:
    """The tenant of this id, if there is one."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM tenants WHERE id = $1", id)
    return None if row is None else _tenant(row)


async def create_tenant(connection: Connection | Pool, name: str, cells: tuple[int, ...] = AT_HOME) -> Tenant | None:
    """Make the tenant `name`, which lives in these cells. None: the name is taken."""
    statement = f"""
    INSERT INTO tenants (id, name, cells) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING RETURNING {_COLUMNS}
    """
    row = await connection.fetchrow(statement, uuid4(), name, None if cells == AT_HOME else cells)
    return None if row is None else _tenant(row)


async def list_tenants(connection: Connection | Pool) -> list[Tenant]:
    """All tenants, by name."""
    return [_tenant(row) for row in await connection.fetch(f"SELECT {_COLUMNS} FROM tenants ORDER BY name")]


async def set_limits(connection: Connection | Pool, name: str, changed: dict[str, int | None]) -> Tenant | None:
    """Change those limits of the tenant that `changed` names. None: there is no such tenant."""
    given = {limit: changed[limit] for limit in LIMITS if limit in changed}
    assignments = "".join(f", {limit} = ${n}" for n, limit in enumerate(given, 2))
    statement = f"UPDATE tenants SET name = name{assignments} WHERE name = $1 RETURNING {_COLUMNS}"
    row = await connection.fetchrow(statement, name, *given.values())
    return None if row is None else _tenant(row)


async def set_cells(connection: Connection | Pool, name: str, cells: tuple[int, ...]) -> Tenant | None:
    """Let the tenant live in these cells, by number. Who asks has seen that nothing of it lives elsewhere
    (`lives_here`). None: there is no such tenant."""
    statement = f"UPDATE tenants SET cells = $2 WHERE name = $1 RETURNING {_COLUMNS}"
    row = await connection.fetchrow(statement, name, None if cells == AT_HOME else cells)
    return None if row is None else _tenant(row)


async def copy_tenant(connection: Connection | Pool, tenant: Tenant) -> None:
    """Let the connection's cell know the tenant by name, as home does: its runs are pruned and verified there, and
    people told of them, without a question to another cell."""
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
