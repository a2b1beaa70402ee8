"""The role that processes work as: it does all that they do, and can't do what they never do."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg
import pytest

from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import new_row
from hai_flow.store.postgres import database_roles, migrations
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.database_roles import API, ENGINE, OF_ALL, OF_TENANTS, READ
from tests.store.conftest import TENANT, as_role, birth, role, win
from tests.support.postgres import Server, connecting


async def test_whoever_may_works_as_the_engine_s_role(db: Database) -> None:
    for pool in (db.engine, db.api):
        for _ in range(2):
            assert await pool.fetchval("SELECT current_user::text") == ENGINE
    async with db.engine.acquire() as one, db.engine.acquire() as another, db.engine.acquire() as third:
        for connection in (one, another, third):  # also on connections that are opened later
            assert await connection.fetchval("SELECT current_user::text") == ENGINE
    beside = await db.connect({"application_name": "hai-flow heartbeat"})
    assert await beside.fetchval("SELECT current_user::text") == ENGINE
    await beside.close()
    await win(db, birth())


async def test_the_roles_own_nothing_and_stand_above_no_policy(db: Database) -> None:
    query = """
    SELECT rolname::text, rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolcanlogin OR rolreplication,
      (SELECT count(*) FROM pg_class WHERE relowner = r.oid),
      (SELECT count(*) FROM pg_auth_members WHERE member = r.oid)
    FROM pg_roles r WHERE rolname = ANY ($1) ORDER BY 1
    """
    found = [tuple(row) for row in await db.api.fetch(query, [ENGINE, API])]
    assert found == [(API, False, 0, 0), (ENGINE, False, 0, 0)]


@pytest.mark.parametrize("table", ["audit", "audit_details", "audit_seals"])
async def test_the_engine_adds_to_the_audit_and_changes_nothing_of_it(db: Database, table: str) -> None:
    await audit.write(db.api, TENANT, [new_row("key.created", "user:ann", {"way": "key"})])
    assert await audit.seal(db.api) == 1
    for statement in (f"UPDATE {table} SET tenant = tenant", f"DELETE FROM {table}", f"TRUNCATE {table}"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f"permission denied for table {table}"):
            await db.api.execute(statement)
    for statement in (
        f"ALTER TABLE {table} DISABLE TRIGGER ALL",
        f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY",
        f"DROP POLICY tenant ON {table}",
        f"DROP TABLE {table}",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="must be owner"):
            await db.api.execute(statement)


async def test_the_rights_are_those_that_are_listed_and_no_others(db: Database) -> None:
    rights = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
    query = "SELECT has_table_privilege($1, $2::text, $3)"
    for table, wanted in {**OF_TENANTS, **OF_ALL}.items():
        for right in rights:
            has = await db.api.fetchval(query, ENGINE, table, right)
            assert has is (right in wanted.split(", ")), (table, right)
            has = await db.api.fetchval(query, API, table, right)
            assert has is (right == "SELECT" and table in READ), (table, right)


async def test_a_migration_gives_the_roles_what_they_lack(database_url: str) -> None:
    async with connecting(database_url) as admin:
        await admin.execute(f"REVOKE ALL ON keys, runs FROM {ENGINE}, {API}; DROP POLICY engine ON log")
        assert not await database_roles.take_on(admin)
        assert "owner" in (await database_roles.fault(admin) or "")
        await migrations.upgrade(database_url)
        assert await admin.fetchval("SELECT count(*) FROM pg_policies WHERE policyname = 'engine'") == len(OF_TENANTS)
        assert await database_roles.take_on(admin)
        assert await database_roles.fault(admin) is None


async def test_a_member_that_owns_nothing_needs_no_other_rights(database_url: str) -> None:
    """As behind a pooler, where no session takes a role on."""
    async with role(database_url, f"IN ROLE {ENGINE}, {API}") as member:
        db = await Database.open(as_role(database_url, member), behind_pooler=True)
        assert await db.engine.fetchval("SELECT current_user::text") == member
        assert await database_roles.fault(db.api) is None
        await win(db, birth())
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await db.api.execute("DELETE FROM audit")
        await db.close()


@pytest.mark.costly
async def test_an_owner_that_may_not_make_roles_works_as_before_and_is_told(
    postgres_server: Server, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with postgres_server.database(migrated=False) as empty:
        async with role(empty) as owner, connecting(empty) as admin:
            await admin.execute(f'ALTER DATABASE "{urlsplit(empty).path[1:]}" OWNER TO {owner}')
            await migrations.upgrade(as_role(empty, owner))
            db = await Database.open(as_role(empty, owner))
            assert await db.engine.fetchval("SELECT current_user::text") == owner
            assert "no_role_of_its_own" in capsys.readouterr().out
            await win(db, birth())
            await db.close()
            # What the sentence says: who may makes it a member, and the migration does the rest.
            await admin.execute(f"GRANT {ENGINE}, {API} TO {owner}")
            await migrations.upgrade(as_role(empty, owner))
            db = await Database.open(as_role(empty, owner))
            assert await db.engine.fetchval("SELECT current_user::text") == ENGINE
            await win(db, birth())
            await db.close()
            await admin.execute(f'ALTER DATABASE "{urlsplit(empty).path[1:]}" OWNER TO CURRENT_USER')
