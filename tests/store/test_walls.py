"""The second wall: the role of requests sees the rows of the tenant that is set, and of nothing else anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, TIMESTAMP
from sqlalchemy.dialects.postgresql import UUID as Uuid

from hai_flow.store.catalog import workflows
from hai_flow.store.postgres import database_roles, row_security
from hai_flow.store.postgres.database import SETTINGS, Database
from hai_flow.store.postgres.database_roles import API, OF_ALL, OF_TENANTS, READ
from hai_flow.store.postgres.row_security import Reads
from migrations.schema import metadata
from tests.store.conftest import as_role, role
from tests.support.postgres import Server, connecting

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
    connection = await asyncpg.connect(dsn, server_settings={**SETTINGS, "role": API})
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
    connection = await asyncpg.connect(dsn, server_settings={**SETTINGS, "role": API, **settings})
    try:
        for tenant, name in ((YOURS, "yours"), (MINE, "mine"), (YOURS, "yours")):
            for _ in range(7):  # by then a plan is generic
                rows = await connection.fetch(row_security.wrap_in_role(query, 0), str(tenant))
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
    role = await db.api.fetchrow("SELECT rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname = $1", API)
    assert tuple(role or ()) == (False, False, False)


_CATALOG = """
SELECT c.relname::text, c.relrowsecurity AND c.relforcerowsecurity,
  EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped),
  ARRAY(SELECT p.polname::text || ': ' || coalesce(pg_get_expr(p.polqual, c.oid), '') FROM pg_policy p
    WHERE p.polrelid = c.oid AND p.polcmd = '*' AND p.polpermissive ORDER BY p.polname)
FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1
"""
WITHOUT_TENANT = {
    "alembic_version": "the revision of the schema",
    "beats": "the times at which this database was seen",
    "eras": "in which history this database is",
    "forgotten": "hashes of a tenant and a person, for those who have a credential of theirs",
    "hint_keys": "what this server's processes know each other's hints by",
    "state_keys": "what this server's processes seal for clients of `/mcp`",
    "servers": "the processes that serve, for all tenants",
    "freezes": "what every process obeys, of one tenant or of all; REST shows a tenant its own",
    "freeze_switch": "which version of them there is",
    "sweeps": "how far this server's processes have looked through all rows",
    "vocabularies": "since when the log has each vocabulary",
    "workers": "the processes, which work for all tenants",
}


async def test_every_table_with_a_tenant_is_behind_the_wall_for_its_owner_too(db: Database) -> None:
    assert await row_security.faults(db.api) is None
    found = {row[0]: row for row in await db.api.fetch(_CATALOG)}
    assert set(found) == {*metadata.tables, "alembic_version"} == {*OF_TENANTS, *OF_ALL}
    assert set(OF_ALL) == set(WITHOUT_TENANT)
    for table, forced, has_tenant, policies in found.values():
        if table in WITHOUT_TENANT:
            assert not has_tenant, table
            continue
        column = "id" if table == "tenants" else "tenant"
        assert has_tenant or table == "tenants"
        one = f"({column} = (NULLIF(current_setting('hai.tenant'::text, true), ''::text))::uuid)"
        assert forced, table
        assert policies == ["engine: true", "owner: true", f"tenant: ((CURRENT_USER <> 'hai_api'::name) OR {one})"]


async def test_of_every_table_the_role_sees_the_rows_of_the_tenant_that_is_set(dsn: str) -> None:
    """Also of those that it may not read today: who grants it one more can't forget the wall."""
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("SET LOCAL session_replication_role = 'replica'")  # no other table's rows are needed
        for table in OF_TENANTS:
            for n, of in enumerate((MINE, YOURS)):
                await connection.execute(_row_of(table, n, of))
            await connection.execute(f"GRANT SELECT ON {table} TO {API}")
        await connection.execute(f"SET LOCAL ROLE {API}")
        for table in OF_TENANTS:
            await connection.execute("SELECT set_config('hai.tenant', '', true)")
            assert await connection.fetch(f"SELECT FROM {table}") == [], table
            for of in (MINE, YOURS):
                await connection.execute("SELECT set_config('hai.tenant', $1, true)", str(of))
                found = await connection.fetch(f"SELECT {_tenant_of(table)} FROM {table}")
                assert [row[0] for row in found] == [of], table
    finally:
        await transaction.rollback()
        await connection.close()


def _tenant_of(table: str) -> str:
    return "id" if table == "tenants" else "tenant"


def _row_of(table: str, n: int, tenant: UUID) -> str:
    """The statement that inserts a row of the tenant, the `n`-th of the table."""
    needed = [
        column for column in metadata.tables[table].columns if not column.nullable and column.server_default is None
    ]
    rest = {column.name: _some(column, n) for column in needed if column.name != _tenant_of(table)}
    rest |= {column.name: "now()" for column in needed if str(column.type) == "DATE"}
    if table == "schedules":
        rest["cron"] = "'* * * * *'"
    if table == "feedback":
        rest |= {"rating": "'up'", "kind": "'message'"}
    columns, given = ", ".join([_tenant_of(table), *rest]), ", ".join([f"'{tenant}'", *rest.values()])
    return f"INSERT INTO {table} ({columns}) VALUES ({given})"


def _some(column: sa.Column[Any], n: int) -> str:
    """A value for the column, in SQL; another one for each `n`."""
    for kind, text in (
        (Uuid, f"'{UUID(int=100 + n)}'"), (ARRAY, "'{}'"), (BYTEA, f"decode(repeat('0{n}', 32), 'hex')"),
        (TIMESTAMP, "now() + interval '1 hour'" if column.name == "until" else "now()"), (sa.Boolean, "false"),
        (sa.Interval, "interval '1 day'"),
        (sa.Date, "'2026-01-01'"), ((sa.Integer, sa.BigInteger), str(n + 1)),
    ):  # fmt: skip
        if isinstance(column.type, kind):
            return text
    return f"'{column.name}{n}'"


async def test_an_owner_without_other_rights_works_and_says_which_are_missing(db: Database, dsn: str) -> None:
    """A release without the wall, and an installation whose role may not create others."""
    async with connecting(dsn) as owner, role(dsn) as plain:
        await owner.execute(f"GRANT ALL ON workflows TO {plain}")
        async with connecting(as_role(dsn, plain)) as connection:
            assert len(await connection.fetch("SELECT FROM workflows")) == 2
            assert API in (await row_security.faults(connection) or "")
            assert not await database_roles.take_on(connection)
            assert await database_roles.fault(connection) is None
