"""Tenants: those whose runs, threads, workflows and keys are apart from all others'. Each has a row; `default` is there
from the beginning."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
DEFAULT: Final = "default"


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
    """A tenant, with the limits that were set for it."""

    id: UUID
    name: str
    created_at: datetime
    limits: Limits = Limits()


_COLUMNS: Final = f"id, name, created_at, {', '.join(LIMITS)}"


def _tenant(row: Any) -> Tenant:
    return Tenant(row[0], row[1], row[2], Limits(*row[3:]))


async def find_tenant(connection: Connection | Pool, name: str) -> Tenant | None:
    """The tenant of this name, if there is one."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM tenants WHERE name = $1", name)
    return None if row is None else _tenant(row)


async def get_tenant(connection: Connection | Pool, id: UUID) -> Tenant | None:
    """The tenant of this id, if there is one."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM tenants WHERE id = $1", id)
    return None if row is None else _tenant(row)


async def create_tenant(connection: Connection | Pool, name: str) -> Tenant | None:
    """Make the tenant `name`. None: the name is taken."""
    statement = f"""
    INSERT INTO tenants (id, name) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING {_COLUMNS}
    """
    row = await connection.fetchrow(statement, uuid4(), name)
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
