"""Bringing a database to the schema of this release. Any number of processes may call `upgrade` at once.

A newer schema than this release knows is left alone: release N - 1 runs beside release N on one schema
(docs/design/promises.md#versions).

That release goes on working while a revision runs. So each revision is a transaction of its own, no lock that others
need is waited for longer than a moment (waiting for one makes all that come after it wait too), and no table is read
while others can't use it: a constraint is added NOT VALID and validated after that, an index is built CONCURRENTLY,
both in an `autocommit_block`. A revision that was cut off there is begun again, so its part before the block must be
true twice (IF NOT EXISTS). The tests refuse revisions that do otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

import asyncpg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from hai_flow.errors import StoreError
from hai_flow.store.postgres import database_roles, revisions
from hai_flow.store.postgres.error_classes import sqlstate_of
from hai_flow.store.postgres.several_hosts import open_connection

LOCK_KEY: Final = 0x4841_4946_4C4F_57  # "HAIFLOW"
LOCK_TIMEOUT: Final = "200ms"
UPGRADE_SECONDS_MAX: Final = 60.0  # without getting on: a lock that is not given back
OTHERS_SECONDS_MAX: Final = 3600.0  # another process may be building an index of a big table
_LOCK_NOT_AVAILABLE: Final = "55P03"
_INSUFFICIENT_PRIVILEGE: Final = "42501"


async def upgrade(dsn: str, revision: str = "head") -> None:
    """Bring the database to `revision`, one process at a time.

    No lock is waited for longer than 0.2 s at a time, because a migration that queues for a table's lock makes
    everybody behind it wait too; it gives up its place and tries again. Raises `StoreError` after a minute of that, and
    after an hour in which another process was migrating."""
    await _migrate(dsn, lambda config: command.upgrade(config, revision), upwards=True)


async def downgrade(dsn: str, revision: str) -> None:
    """Take the database back to `revision` ("base" is the empty schema). For tests and for a rollback by hand."""
    await _migrate(dsn, lambda config: command.downgrade(config, revision), upwards=False)


def is_sharded(connection: sa.Connection | None) -> bool:
    """Whether Citus keeps the tables of the session's schema, whole, on some node: it does not take every statement."""
    assert connection is not None, "revisions are carried out, not written down"
    has_catalog = connection.exec_driver_sql("SELECT to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL").scalar_one()
    query = "SELECT EXISTS (SELECT FROM pg_dist_schema WHERE schemaid = current_schema()::regnamespace)"
    return bool(has_catalog and connection.exec_driver_sql(query).scalar_one())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(revisions.directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


class _OtherMigrates(Exception):
    """Another process holds the advisory lock."""


async def _migrate(dsn: str, run: Callable[[Config], None], upwards: bool) -> None:
    began = time.monotonic()
    while True:
        try:
            return await _migrate_once(dsn, run, upwards)
        except _OtherMigrates:
            if time.monotonic() - began > OTHERS_SECONDS_MAX:
                raise StoreError(
                    f"the migration got no lock for {OTHERS_SECONDS_MAX:.0f} s: another process is migrating this "
                    "database (pg_locks, locktype advisory); see what it waits for"
                ) from None
        except (DBAPIError, asyncpg.LockNotAvailableError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            state = sqlstate_of(cause)
            if state == _INSUFFICIENT_PRIVILEGE:
                raise StoreError(
                    f"the role of the database's URL may not make the schema: {str(cause).splitlines()[0]}. Make "
                    "it the owner of the database, or GRANT CREATE, USAGE ON SCHEMA public to it"
                ) from error
            if state != _LOCK_NOT_AVAILABLE:
                raise
            if time.monotonic() - began > UPGRADE_SECONDS_MAX:
                raise StoreError(
                    f"the migration got no lock for {UPGRADE_SECONDS_MAX:.0f} s: somebody keeps a transaction open; "
                    "end it (pg_stat_activity) and start again"
                ) from error
        await asyncio.sleep(0.1)


async def _migrate_once(dsn: str, run: Callable[[Config], None], upwards: bool) -> None:
    config = _config()
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: open_connection(dsn), poolclass=NullPool
    )
    sa.event.listen(engine.sync_engine, "begin", _be_patient_for_a_moment)

    def migrate(connection: sa.Connection) -> bool:
        left_alone = upwards and _is_newer(connection)
        connection.commit()  # each revision is to have a transaction of its own
        if not left_alone:
            config.attributes["connection"] = connection
            run(config)
        return not left_alone

    try:
        async with _alone(dsn):
            async with engine.connect() as connection:
                migrated = await connection.run_sync(migrate)
            if migrated and upwards:
                await _ensure_roles(dsn)
    finally:
        await engine.dispose()


async def _ensure_roles(dsn: str) -> None:
    connection = await open_connection(dsn)
    try:
        await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        await database_roles.ensure(connection)
    finally:
        await connection.close()


def _be_patient_for_a_moment(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")


@contextlib.asynccontextmanager
async def _alone(dsn: str) -> AsyncGenerator[None]:
    """Hold the advisory lock; raises `_OtherMigrates` when another process does.

    The transaction of a connection of its own holds it: it must outlive those of the revisions, and session locks do
    not get through a transaction pooler. No process waits for it in a statement: building an index concurrently waits
    for the end of all of those."""
    connection = await open_connection(dsn)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            # By the simple protocol: a fetch of asyncpg leaves a snapshot in the transaction, and that is waited for.
            if await connection.execute(f"SELECT WHERE pg_try_advisory_xact_lock({LOCK_KEY})") != "SELECT 1":
                raise _OtherMigrates
            yield
    finally:
        await connection.close()


def _is_newer(connection: sa.Connection) -> bool:
    """Whether the database is at a revision that this release has never heard of: a newer release migrated it."""
    revision = MigrationContext.configure(connection).get_current_revision()
    return revision is not None and revision not in revisions.list_revisions()
