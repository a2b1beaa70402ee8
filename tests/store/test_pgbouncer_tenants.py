"""The second wall through a real PgBouncer in transaction mode: the tenant that one caller's transaction was set to is
never that of the next one, though both have the same session of the server.

HAI Flow itself takes on no role behind a pooler (docs/pooler.md), so here a role does that always acts as `hai_api`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Final
from uuid import UUID

import asyncpg
import pytest

from hai_flow.store.catalog import workflows
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.database_roles import API, ENGINE
from hai_flow.store.postgres.row_security import wrap_in_role
from tests.store.conftest import role
from tests.support.pgbouncer import PgBouncer, pgbouncer_program
from tests.support.postgres import Server, execute

__all__ = ["pgbouncer_program"]

MINE, YOURS = UUID(int=1), UUID(int=2)
NAMES: Final = {MINE: "mine", YOURS: "yours"}
FORGETFUL: Final = "SELECT name FROM workflows ORDER BY name"
SESSIONS: Final = 2  # of the server, for all clients


@pytest.fixture
def dsn(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture
async def pooled(pgbouncer_program: str, dsn: str) -> AsyncIterator[str]:
    """The way through the pooler, as a role that always acts as that of requests. Two tenants have workflows."""
    database = await Database.open(dsn)
    for tenant, name in NAMES.items():
        await workflows.publish_workflow(database.api, tenant, name=name, version=1, source=name.encode())
    await database.close()
    async with role(dsn) as login:
        await execute(dsn, f"GRANT {API}, {ENGINE} TO {login}; ALTER ROLE {login} SET role = '{API}'")
        with PgBouncer(pgbouncer_program, dsn.replace("postgres@", f"{login}@", 1), sessions=SESSIONS) as pooler:
            yield pooler.dsn


async def _names(connection: asyncpg.Connection, query: str, *given: object) -> list[str]:
    return [row["name"] for row in await connection.fetch(query, *given)]


async def test_many_callers_on_two_sessions_see_their_own_tenant_or_nothing(pooled: str) -> None:
    walled, sessions = wrap_in_role(FORGETFUL, 0), set[int]()

    async def caller(number: int) -> None:
        chance = random.Random(number)
        connection = await asyncpg.connect(pooled, statement_cache_size=0)
        try:
            for _ in range(30):
                tenant = chance.choice((MINE, YOURS))
                match chance.randrange(4):
                    case 0:
                        assert await _names(connection, FORGETFUL) == []
                    case 1:
                        assert await _names(connection, walled, str(tenant)) == [NAMES[tenant]]
                    case 2:  # cut off in the middle, with the tenant set
                        with pytest.raises(asyncpg.DivisionByZeroError):
                            await connection.fetch(wrap_in_role("SELECT 1 / (random() * 0)::int", 0), str(tenant))
                    case _:  # one transaction of several statements
                        async with connection.transaction():
                            assert await _names(connection, walled, str(tenant)) == [NAMES[tenant]]
                            assert await _names(connection, FORGETFUL) == [NAMES[tenant]]
                            sessions.add(await connection.fetchval("SELECT pg_backend_pid()"))
        finally:
            await connection.close()

    await asyncio.gather(*(caller(number) for number in range(8)))
    assert 1 <= len(sessions) <= SESSIONS, "they share sessions, or nothing would be shown"


async def test_a_tenant_set_for_a_session_would_leak_to_the_next_caller(pooled: str) -> None:
    """What the test above would find: so the setting has to end with its transaction."""
    leaking = wrap_in_role(FORGETFUL, 0).replace(", true) AS tenant", ", false) AS tenant")
    assert leaking != wrap_in_role(FORGETFUL, 0)
    one, other = [await asyncpg.connect(pooled, statement_cache_size=0) for _ in range(2)]
    try:
        found: list[str] = []
        for _ in range(2 * SESSIONS):
            assert await _names(one, leaking, str(MINE)) == ["mine"]
            found += await _names(other, FORGETFUL)
        assert set(found) == {"mine"}
    finally:
        await one.close()
        await other.close()


async def test_who_works_as_the_engine_can_t_switch_the_walls_off(pooled: str) -> None:
    connection = await asyncpg.connect(pooled, statement_cache_size=0)
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {ENGINE}")
            assert await _names(connection, FORGETFUL) == ["mine", "yours"], "it works for all tenants"
            assert not await connection.fetchval("SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = user")
        async with connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {ENGINE}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connection.transaction():
                    await connection.execute("ALTER TABLE workflows DISABLE ROW LEVEL SECURITY")
        assert await _names(connection, FORGETFUL) == [], "and the next one does not work as it"
    finally:
        await connection.close()
