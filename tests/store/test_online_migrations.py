"""Revisions run while the release before them is at work: nobody waits for them for longer than a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import sqlalchemy as sa
from alembic.runtime.migration import RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy.util import await_only

from hai_flow.store.postgres import migrations, revisions
from tests.support.online_migrations import faults_in, watch_transactions
from tests.support.waiting import until

VERSIONS = sorted((revisions.directory() / "versions").glob("*.py"))
# The longest that a statement of the release at work may wait for a lock: several times what a revision waits for one.
PATIENCE = "1500ms"


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_a_revision_reads_no_table_that_others_wait_for(path: Path) -> None:
    assert faults_in(path.read_text()) == []


WRONG = {
    "CREATE INDEX runs_x ON runs (seq)": "without CONCURRENTLY",
    "CREATE UNIQUE INDEX IF NOT EXISTS runs_x\n  ON runs (seq)": "without CONCURRENTLY",
    "CREATE INDEX CONCURRENTLY runs_x ON runs (seq)": "autocommit_block",
    "ALTER TABLE runs ADD COLUMN x int, ADD CONSTRAINT runs_x CHECK (x > 0)": "NOT VALID",
    "CREATE TABLE t (a int);\nALTER TABLE runs ADD CONSTRAINT runs_x CHECK (seq > 0)": "NOT VALID",
    "ALTER TABLE runs ALTER COLUMN slot SET NOT NULL": "NOT NULL",
    "ALTER TABLE runs ALTER COLUMN seq TYPE numeric": "type",
    "ALTER TABLE runs ADD COLUMN x int UNIQUE": "builds an index",
}


@pytest.mark.parametrize("statement", WRONG)
def test_the_lint_finds(statement: str) -> None:
    (fault,) = faults_in(f'def upgrade() -> None:\n    op.execute("{statement}")\n\n\ndef downgrade() -> None: ...\n')
    assert WRONG[statement] in fault


def test_the_lint_wants_sql() -> None:
    assert faults_in("def upgrade() -> None:\n    op.create_index('runs_x', 'runs', ['seq'])\n") != []


def test_the_lint_has_nothing_against_tables_that_are_new() -> None:
    assert faults_in('op.execute("CREATE TABLE t (a int); CREATE INDEX t_a ON t (a)")') == []


class Release:
    """The release that is at work: what it has known since the first revision, over and over, on connections that wait
    `PATIENCE` for a lock. `done` counts what it did."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.done = {"reads": 0, "writes": 0, "births": 0}

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Release]:
        async with asyncio.TaskGroup() as tasks:
            working = [
                tasks.create_task(self._repeat("reads", "SELECT count(*) FROM runs WHERE status = 'waiting'")),
                tasks.create_task(self._repeat("writes", WRITE)),
                tasks.create_task(self._repeat("births", BIRTH)),
            ]
            await self.has_gone_on()
            yield self
            await self.has_gone_on()
            for each in working:
                each.cancel()

    async def has_gone_on(self) -> None:
        """Return when each kind of its statements was answered again."""
        seen = dict(self.done)

        async def gone_on() -> bool:
            return all(self.done[kind] >= count + 2 for kind, count in seen.items())

        await until(gone_on)

    async def _repeat(self, kind: str, statement: str) -> None:
        connection = await asyncpg.connect(self._dsn, server_settings={"lock_timeout": PATIENCE})
        try:
            while True:
                arguments = [uuid4() for _ in range(statement.count("$"))]
                await connection.execute(statement, *arguments)
                self.done[kind] += 1
                await asyncio.sleep(0.01)
        finally:
            connection.terminate()


WRITE = "UPDATE runs SET seq = seq + 1, version = version + 1 WHERE id IN (SELECT id FROM runs LIMIT 3)"
BIRTH = """
WITH born AS (
  INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version, head,
    started_by)
  VALUES ($1, $2, 'w', 'w', 1, 't', 'waiting', 1, 1, 'h', 'user:a') RETURNING id, tenant
), logged AS (
  INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)
  SELECT id, 1, 1, tenant, 1, now(), '[]' FROM born
)
INSERT INTO slots (tenant, slot, run_id) SELECT tenant, id::text, id FROM born
"""


def in_order() -> list[str]:
    """All of them, oldest first."""
    scripts = ScriptDirectory.from_config(migrations._config())
    return [script.revision for script in scripts.walk_revisions()][::-1]


async def test_every_revision_runs_beside_the_first_release(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alembic reads all revisions at each call, so one call runs them all. Before each of them, when the one before is
    committed, the release at work must go on."""
    faults: list[str] = []
    begun = 0
    make = migrations.create_async_engine

    def watched(*arguments: Any, **options: Any) -> Any:
        engine = make(*arguments, **options)
        watch_transactions(engine.sync_engine, faults.append)
        sa.event.listen(engine.sync_engine, "begin", go_on)
        return engine

    def go_on(connection: sa.Connection) -> None:
        nonlocal begun
        assert faults == []
        begun += 1
        await_only(release.has_gone_on())

    first, *later = in_order()
    await migrations.upgrade(empty_database_url, first)
    monkeypatch.setattr(migrations, "create_async_engine", watched)
    async with Release(empty_database_url).at_work() as release:
        await migrations.upgrade(empty_database_url)
    assert faults == []
    assert begun > len(later), "each revision is a transaction of its own"
    assert await revisions.current(empty_database_url) == revisions.head()


def test_a_transaction_that_reads_a_table_which_it_holds_is_seen(database_url: str) -> None:
    """By the same means as above: else that test could not fail."""
    faults: list[str] = []

    async def work() -> None:
        engine = migrations.create_async_engine(
            "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(database_url)
        )
        watch_transactions(engine.sync_engine, faults.append)
        async with engine.begin() as connection:
            await connection.execute(sa.text(BIRTH.replace("$1", f"'{uuid4()}'").replace("$2", f"'{uuid4()}'")))
        async with engine.begin() as connection:
            await connection.execute(sa.text("ALTER TABLE runs ADD CONSTRAINT x CHECK (seq > 0) NOT VALID"))
        assert faults == []
        async with engine.begin() as connection:
            await connection.execute(sa.text("ALTER TABLE runs ADD CONSTRAINT y CHECK (seq > 0)"))
        await engine.dispose()

    asyncio.run(work())
    assert faults == ["table runs was read under AccessExclusiveLock"]


async def test_a_revision_that_waits_for_a_lock_does_not_keep_others_from_theirs(empty_database_url: str) -> None:
    """A report holds on to the table for long; the revision queues for it again and again, and lets others pass."""
    before = in_order()[in_order().index("0004") - 1]
    await migrations.upgrade(empty_database_url, before)
    async with Release(empty_database_url).at_work() as release:
        report = await asyncpg.connect(empty_database_url)
        eye = await asyncpg.connect(empty_database_url)
        transaction = report.transaction()
        await transaction.start()
        await report.execute("SELECT FROM runs LIMIT 1")
        upgrading = asyncio.create_task(migrations.upgrade(empty_database_url, "0004"))
        for _ in range(3):
            await until(lambda: eye.fetchval(QUEUES))
            await release.has_gone_on()
        assert not upgrading.done()
        await transaction.rollback()
        await upgrading
        await report.close()
        await eye.close()
    assert await revisions.current(empty_database_url) == "0004"


QUEUES = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"


async def test_a_revision_that_was_cut_off_behind_its_first_half_is_begun_again(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_halves = [path.name[:4] for path in VERSIONS if "autocommit_block" in path.read_text()]
    again: list[str] = []
    make = RevisionStep.__init__

    def make_step_of_two_runs(step: RevisionStep, *arguments: Any) -> None:
        make(step, *arguments)
        once = step.migration_fn

        def run_twice(**options: Any) -> None:
            once(**options)
            if step.revision.revision in in_halves:
                again.append(step.revision.revision)
                once(**options)

        step.migration_fn = run_twice

    monkeypatch.setattr(RevisionStep, "__init__", make_step_of_two_runs)
    await migrations.upgrade(empty_database_url)
    assert "0004" in in_halves
    assert again == in_halves
    assert await revisions.current(empty_database_url) == revisions.head()
