"""The second wall: the role of requests sees the rows of the tenant that is set, and of nothing else anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.store import walls, workflows
from hai_flow.store.database import SETTINGS, Database
from hai_flow.store.tables import metadata
from hai_flow.store.walls import READ, ROLE, Reads
from tests.support.postgres import Server

MINE, YOURS = UUID(int=1), UUID(int=2)


@pytest.fixture
def dsn(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    database = await Database.open(dsn)
    for tenant, name in ((MINE, "mine"), (YOURS, "yours")):
        await workflows.publish_workflow(database.api, tenant, name=name, version=1, source=name.encode())
    yield database
    await database.close()


@pytest.fixture
async def walled(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn, server_settings={**SETTINGS, "role": ROLE})
    yield connection
    await connection.close()


async def test_a_query_that_forgets_its_tenant_sees_the_rows_of_one(db: Database) -> None:
    forgetful = "SELECT name FROM workflows ORDER BY name"
    assert [row["name"] for row in await db.api.fetch(forgetful)] == ["mine", "yours"]
    for tenant, name in ((MINE, "mine"), (YOURS, "yours")):
        reads = Reads(db, tenant)
        assert [row["name"] for row in await reads.fetch(forgetful)] == [name]
        assert await reads.fetchval(forgetful) == name
        row = await reads.fetchrow("SELECT name FROM workflows WHERE tenant = $1", MINE)
        assert (row is None) is (tenant == YOURS)
    assert await Reads(db, uuid4()).fetch(forgetful) == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM workflows",
        "SELECT name FROM workflows LIMIT 5",
        "WITH w AS MATERIALIZED (SELECT * FROM workflows) SELECT w.name FROM w JOIN workflows v USING (sha256)",
        "SELECT (SELECT min(name) FROM workflows) AS name",
        "SELECT name FROM (SELECT) AS one CROSS JOIN LATERAL (SELECT name FROM workflows ORDER BY name LIMIT 1) AS w",
        "WITH RECURSIVE up AS (SELECT name FROM workflows UNION SELECT w.name FROM up JOIN workflows w USING (name))"
        " SELECT name FROM up",
        "SELECT name FROM workflows WHERE sha256 IN (SELECT sha256 FROM workflows) -- and a comment",
        "SELECT DISTINCT ON (version) name FROM workflows ORDER BY version, name",
        "SELECT a.name FROM workflows a LEFT JOIN workflows b ON a.version = b.version AND a.name <> b.name"
        " WHERE b.name IS NULL",
    ],
)
@pytest.mark.parametrize(
    "settings", [{}, {"enable_nestloop": "off"}, {"plan_cache_mode": "force_generic_plan"}], ids=str
)
async def test_whatever_the_plan_the_tenant_is_set_before_anything_is_read(
    db: Database, dsn: str, query: str, settings: dict[str, str]
) -> None:
    connection = await asyncpg.connect(dsn, server_settings={**SETTINGS, "role": ROLE, **settings})
    try:
        for tenant, name in ((YOURS, "yours"), (MINE, "mine"), (YOURS, "yours")):
            for _ in range(7):  # by then a plan is generic
                rows = await connection.fetch(walls.behind_the_wall(query, 0), str(tenant))
                assert [row["name"] for row in rows] == [name]
            assert not await connection.fetchval("SELECT current_setting('hai.tenant', true)")  # nothing is left behind
    finally:
        await connection.close()


async def test_a_query_keeps_its_order(db: Database) -> None:
    for n in range(30):
        await workflows.publish_workflow(db.api, MINE, name=f"w{n:02}", version=1, source=b"%d" % n)
    query = "SELECT name FROM workflows WHERE tenant = $1 AND name > $2 ORDER BY name DESC LIMIT $3"
    found = [row["name"] for row in await Reads(db, MINE).fetch(query, MINE, "w05", 20)]
    assert found == [f"w{n:02}" for n in range(29, 9, -1)]


async def test_without_a_tenant_the_role_sees_nothing(db: Database, walled: asyncpg.Connection) -> None:
    for table in READ:
        assert await walled.fetch(f"SELECT FROM {table}") == [], table
    await walled.execute("SELECT set_config('hai.tenant', '', false)")
    assert await walled.fetch("SELECT FROM workflows") == []


async def test_the_role_changes_nothing_and_reads_no_other_table(db: Database, walled: asyncpg.Connection) -> None:
    for table in metadata.tables:
        for statement in (f"DELETE FROM {table}", f"INSERT INTO {table} DEFAULT VALUES", f"TRUNCATE {table}"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await walled.execute(statement)
        if table not in READ:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await walled.fetch(f"SELECT FROM {table}")
    role = await db.api.fetchrow("SELECT rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname = $1", ROLE)
    assert tuple(role or ()) == (False, False, False)


async def test_the_wall_stands_and_holds_for_owners_too(db: Database) -> None:
    assert await walls.faults(db.api) is None
    for table in READ:
        found = await db.api.fetchrow(
            "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE relname = $1", table
        )
        assert tuple(found or ()) == (True, True), table
        assert "tenant" in metadata.tables[table].columns


async def test_an_owner_without_other_rights_works_as_before_and_says_what_is_missing(db: Database, dsn: str) -> None:
    """A release without the wall, and an installation whose role may not create others."""
    role = f"owner_{uuid4().hex[:12]}"
    await db.api.execute(f"CREATE ROLE {role} LOGIN NOSUPERUSER")
    try:
        await db.api.execute(f"GRANT ALL ON workflows TO {role}")
        plain = await asyncpg.connect(dsn, server_settings={"role": role})
        try:
            assert len(await plain.fetch("SELECT FROM workflows")) == 2
            assert ROLE in (await walls.faults(plain) or "")
        finally:
            await plain.close()
    finally:
        await db.api.execute(f"REVOKE ALL ON workflows FROM {role}; DROP ROLE {role}")
