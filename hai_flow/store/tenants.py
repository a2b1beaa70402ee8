"""Tenants: those whose runs, threads, workflows and keys are apart from all others'. Each has a row; `default` is there
from the beginning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Tenant:
    id: UUID
    name: str
    created_at: datetime


async def find_tenant(connection: Connection | Pool, name: str) -> Tenant | None:
    """The tenant of this name, if there is one."""
    row = await connection.fetchrow("SELECT id, name, created_at FROM tenants WHERE name = $1", name)
    return None if row is None else Tenant(*row)


async def create_tenant(connection: Connection | Pool, name: str) -> Tenant | None:
    """Make the tenant `name`. None: the name is taken."""
    statement = """
    INSERT INTO tenants (id, name) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING id, name, created_at
    """
    row = await connection.fetchrow(statement, uuid4(), name)
    return None if row is None else Tenant(*row)


async def list_tenants(connection: Connection | Pool) -> list[Tenant]:
    """All tenants, by name."""
    return [Tenant(*row) for row in await connection.fetch("SELECT id, name, created_at FROM tenants ORDER BY name")]
