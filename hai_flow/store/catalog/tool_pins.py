"""Digests of the functions of servers (MCP), as they were when a workflow was published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Connection, Pool

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
    """The digests of a workflow, by name."""
    query = "SELECT name, digest FROM tool_pins WHERE tenant = $1 AND workflow = $2"
    return {row["name"]: row["digest"] for row in await connection.fetch(query, tenant, workflow)}


async def add_pins(connection: Connection | Pool, tenant: UUID, workflow: bytes, pins: Mapping[str, str]) -> None:
    """Store the digests of names that have none yet; others stay."""
    await connection.execute(_ADD, tenant, workflow, list(pins), list(pins.values()))


async def replace_pins(connection: Connection | Pool, tenant: UUID, workflow: bytes, pins: Mapping[str, str]) -> None:
    await connection.execute(_REPLACE, tenant, workflow, list(pins), list(pins.values()))
