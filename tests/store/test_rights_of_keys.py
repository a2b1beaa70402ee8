"""The engine's role of the database revokes keys and notes their use; it gives nobody a role."""

from __future__ import annotations

import asyncpg
import pytest

from hai_flow.store.postgres import database_roles
from tests.support.postgres import Server, connecting

MAY = ("revoked_at", "used_at")


async def test_the_engine_changes_no_key_but_that_it_was_revoked_and_used(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        async with connecting(dsn) as connection:
            await connection.execute(
                f"GRANT UPDATE, DELETE ON keys TO {database_roles.ENGINE}"
            )  # of an earlier release
            await database_roles.ensure(connection)  # as each migration does, which may be repeated
            names = await connection.fetch(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = 'keys'::regclass AND attnum > 0 "
                "AND NOT attisdropped AND has_column_privilege('hai_engine', 'keys', attname, 'UPDATE')"
            )
            assert sorted(row[0] for row in names) == list(MAY)
            assert await database_roles.has_all_roles(dsn)
            await connection.execute(f"SET ROLE {database_roles.ENGINE}")
            for column in ("roles", "principal", "groups", "sha256", "expires_at", "speaks_for"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(f"UPDATE keys SET {column} = {column}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("DELETE FROM keys")
            await connection.execute("UPDATE keys SET revoked_at = now(), used_at = now()")
            await connection.execute("SELECT id FROM keys FOR UPDATE")
