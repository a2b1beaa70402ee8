"""The databases that tests get are what the fixtures promise."""

from __future__ import annotations

import asyncpg
import pytest


@pytest.mark.parametrize("attempt", [1, 2])
async def test_each_test_has_a_migrated_database_of_its_own(database_url: str, attempt: int) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        assert await connection.fetchval("SELECT to_regclass('runs')") is not None
        await connection.execute("CREATE TABLE mine (n int)")
    finally:
        await connection.close()


async def test_an_empty_database_has_no_tables(empty_database_url: str) -> None:
    connection = await asyncpg.connect(empty_database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    finally:
        await connection.close()
