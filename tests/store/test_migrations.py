"""The schema: what the revisions make is what migrations/schema.py says, however many processes make it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from hai_flow.engine.events import ABI
from hai_flow.errors import StoreError
from hai_flow.store.postgres import migrations, revisions
from migrations.schema import metadata
from tests.support.postgres import connecting

pytestmark = pytest.mark.costly

CATALOGUE = {
    "columns": """
      SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
        pg_get_expr(d.adbin, d.adrelid)
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
      LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
      WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace""",
    "constraints": """
      SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
      WHERE connamespace = 'public'::regnamespace AND conrelid <> 0""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "options": """
      SELECT relname, reloptions::text FROM pg_class
      WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace""",
}


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    async with connecting(dsn) as connection:
        yield connection


async def catalogue(dsn: str) -> dict[str, set[tuple[object, ...]]]:
    async with connected(dsn) as connection:
        return {
            name: {tuple(row) for row in await connection.fetch(query) if "alembic" not in str(row)}
            for name, query in CATALOGUE.items()
        }


async def test_the_migrated_schema_is_the_one_that_schema_py_describes(
    database_url: str, empty_database_url: str
) -> None:
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(empty_database_url), poolclass=NullPool
    )
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    described, migrated = await catalogue(empty_database_url), await catalogue(database_url)
    assert len(migrated["columns"]) > 100
    for part in CATALOGUE:
        assert migrated[part] == described[part], part


async def test_the_schema_knows_since_when_it_has_the_vocabulary_of_this_release(database_url: str) -> None:
    """Whoever raises the ABI adds a revision with its row: else decisions of the release before are violations."""
    async with connected(database_url) as connection:
        assert await connection.fetchval("SELECT max(abi) FROM vocabularies") == ABI


async def test_four_processes_may_migrate_at_once(empty_database_url: str) -> None:
    assert await revisions.current(empty_database_url) is None
    await asyncio.gather(*(migrations.upgrade(empty_database_url) for _ in range(4)))
    assert await revisions.current(empty_database_url) == revisions.head()


async def test_down_to_nothing_and_up_again(empty_database_url: str) -> None:
    empty = await catalogue(empty_database_url)
    await migrations.upgrade(empty_database_url)
    full = await catalogue(empty_database_url)
    await migrations.downgrade(empty_database_url, "base")
    assert await catalogue(empty_database_url) == empty
    await migrations.upgrade(empty_database_url)
    assert await catalogue(empty_database_url) == full


async def test_a_schema_without_kinds_of_triggers_keeps_those_of_events_alone(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url)
    async with connected(empty_database_url) as connection:
        for position, kind in enumerate(("event", "run", "webhook")):
            await connection.execute(
                "INSERT INTO event_triggers (tenant, workflow_name, position, workflow, dev, type, kind) "
                "VALUES (gen_random_uuid(), 'shop', $1, '', false, 'orders', $2)",
                position,
                kind,
            )
    await migrations.downgrade(empty_database_url, "0010")
    async with connected(empty_database_url) as connection:
        assert [row["position"] for row in await connection.fetch("SELECT position FROM event_triggers")] == [0]


async def test_a_newer_schema_is_left_alone(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await migrations.upgrade(database_url)
    assert await revisions.current(database_url) == "9999"


async def test_a_lock_that_nobody_gives_back_is_reported(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "OTHERS_SECONDS_MAX", 0.0)
    async with connected(empty_database_url) as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", migrations.LOCK_KEY)
        with pytest.raises(StoreError, match="got no lock"):
            await migrations.upgrade(empty_database_url)


def test_the_revisions_that_the_names_of_files_tell_are_those_of_alembic() -> None:
    scripts = ScriptDirectory.from_config(migrations._config())
    assert revisions.head() == scripts.get_current_head()
    assert revisions.list_revisions() == {script.revision for script in scripts.walk_revisions()}


def test_the_revisions_are_found_beside_the_package_and_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert revisions.directory() == Path(revisions.__file__).parents[3] / "migrations"
    installed = tmp_path / "hai_flow" / "_migrations"
    installed.mkdir(parents=True)
    (installed / "env.py").touch()
    monkeypatch.setattr(revisions, "__file__", str(tmp_path / "hai_flow" / "store" / "postgres" / "revisions.py"))
    assert revisions.directory() == installed
    (installed / "env.py").unlink()
    with pytest.raises(StoreError, match="found neither"):
        revisions.directory()


async def test_signals_stored_without_places_get_them_by_their_time(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url, "0006")
    async with connected(empty_database_url) as connection:
        await connection.execute(
            "INSERT INTO signals (tenant, id, type, data, sent_at) SELECT gen_random_uuid(), n::text, 't', '1', "
            "now() - make_interval(secs => n) FROM generate_series(1, 10500) AS n"
        )
        await migrations.upgrade(empty_database_url, "0007")
        await connection.execute(
            "INSERT INTO signals (tenant, id, type, data) VALUES (gen_random_uuid(), '0', 't', '1')"
        )
        rows = await connection.fetch("SELECT id, place FROM signals ORDER BY place")
        assert [int(row["id"]) for row in rows] == list(range(10500, -1, -1))
        assert len({row["place"] for row in rows}) == 10501
