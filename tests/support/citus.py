"""Schemas of a Citus cluster in the place of databases, for `make test-citus` (`HAI_FLOW_TEST_CITUS`: its coordinator).

Making one takes many seconds there, so one that was used is emptied and used again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from uuid import uuid4

import pytest

from hai_flow.store.cells.cells import within
from hai_flow.store.postgres import database
from tests.support.postgres import connecting, execute

CITUS: Final = os.environ.get("HAI_FLOW_TEST_CITUS")
_KEPT: Final = ("alembic_version", "tenants", "vocabularies")
_free: list[str] = []


@contextmanager
def schema() -> Iterator[str]:
    """The DSN of a schema of one's own with the current tables and no rows."""
    name = _free.pop() if _free else asyncio.run(_made())
    try:
        yield within(_coordinator(), name)
    finally:
        asyncio.run(_emptied(name))
        _free.append(name)


@asynccontextmanager
async def cells(count: int) -> AsyncIterator[list[str]]:
    """The names of so many new schemas; they are gone at the end."""
    names = [await _made() for _ in range(count)]
    try:
        yield names
    finally:
        for name in names:
            await _dropped(name)


def pretend(patch: pytest.MonkeyPatch) -> None:
    """Treat a plain PostgreSQL like Citus: it gets the settings of Citus, and the statements that Citus can route."""

    async def plan_anew(pool: database.Pool) -> Mapping[str, str]:
        await pool.expire_connections()
        return database.PLANS_ANEW

    patch.setattr(database, "_plan_anew", plan_anew)


def drop_free() -> None:
    """Drop the databases that no test uses any more."""
    while _free:
        asyncio.run(_dropped(_free.pop()))


def _coordinator() -> str:
    assert CITUS is not None, "who asks has looked for it"
    return CITUS


async def _made() -> str:
    name = f"test_{uuid4().hex[:12]}"
    async with connecting(_coordinator()) as connection:
        await connection.execute(f"CREATE SCHEMA {name}")
        database = await connection.fetchval("SELECT quote_ident(current_database())")
        await connection.execute(f"ALTER DATABASE {database} SET citus.override_table_visibility = off")
    from hai_flow.store.postgres import migrations  # each of pytest's processes reads this module

    await migrations.upgrade(within(_coordinator(), name))
    return name


async def _emptied(name: str) -> None:
    """Delete all rows: to truncate so many tables takes Citus several seconds."""
    async with connecting(_coordinator()) as connection:
        rows = await connection.fetch("SELECT tablename::text FROM pg_tables WHERE schemaname = $1", name)
        for row in rows:
            if row[0] not in _KEPT:
                await connection.execute(f"DELETE FROM {name}.{row[0]}")
        await connection.execute(f"DELETE FROM {name}.tenants WHERE name <> 'default'")


async def _dropped(name: str) -> None:
    await execute(_coordinator(), f"DROP SCHEMA {name} CASCADE")
