"""The databases that tests get are what the fixtures promise."""

from __future__ import annotations

from contextlib import AsyncExitStack

import asyncpg
import pytest

from tests.support.postgres import Server, connecting


@pytest.mark.parametrize("attempt", [1, 2])
async def test_each_test_has_a_migrated_database_of_its_own(database_url: str, attempt: int) -> None:
    async with connecting(database_url) as connection:
        assert await connection.fetchval("SELECT to_regclass('runs')") is not None
        await connection.execute("CREATE TABLE mine (n int)")


async def test_an_empty_database_has_no_tables(empty_database_url: str) -> None:
    async with connecting(empty_database_url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


async def test_a_database_is_handed_out_again_without_what_a_test_put_there(postgres_server: Server) -> None:
    postgres_server.drop_free()  # one that many tests had may have grown too large to be handed out again
    seen: list[str] = []
    async with (
        AsyncExitStack() as left_open
    ):  # nobody closes them: the next test has its database to itself all the same
        for _ in range(2):
            with postgres_server.database() as dsn:
                seen.append(dsn)
                connection = await asyncpg.connect(dsn)
                left_open.callback(connection.terminate)
                assert await connection.fetchval("SELECT count(*) FROM blobs") == 0
                assert not await connection.fetchval("SELECT to_regclass('mine') IS NOT NULL")
                await connection.execute(
                    "INSERT INTO blobs (tenant, place, n, body) VALUES (gen_random_uuid(), '', 0, '')"
                )
                await connection.execute("CREATE TABLE mine (n int)")
                seen.append(
                    str(await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()"))
                )
    assert seen[0] != seen[2], "who still has the name of the first comes back to nothing"
    assert seen[1] == seen[3], f"it is the same database ({postgres_server.last_drop})"


@pytest.mark.parametrize(
    "change",
    [
        "DROP INDEX runs_by_workflow",
        "ALTER TABLE blobs ALTER COLUMN body DROP NOT NULL",
        "ALTER TABLE log SET (fillfactor = 50)",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "UPDATE alembic_version SET version_num = '0001'",
        "ANALYZE runs; INSERT INTO blobs VALUES ('', 0, gen_random_uuid(), ''); ANALYZE blobs",
        "GRANT SELECT ON runs TO public",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
    ],
)
async def test_a_database_with_changes_beyond_its_rows_is_not_reused(postgres_server: Server, change: str) -> None:
    with postgres_server.database() as dsn:
        async with connecting(dsn) as connection:
            oid = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
            await connection.execute(change)
    with postgres_server.database() as dsn:
        async with connecting(dsn) as connection:
            assert await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()") != oid
            assert await connection.fetchval("SELECT count(*) FROM pg_database WHERE oid = $1", oid) == 0
