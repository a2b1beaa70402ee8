"""Bringing a database to the schema of this release. Any number of processes may call `upgrade` at once.

A newer schema than this release knows is left alone: release N - 1 runs beside release N on one schema
(docs/design/promises.md#versions).

That release goes on working while a revision runs. So each revision is a transaction of its own, no lock that others
need is waited for longer than a moment (waiting for one makes all that come after it wait too), and no table is read
while others can't use it: a constraint is added NOT VALID and validated after that, an index is built CONCURRENTLY,
both in an `autocommit_block`. A revision that was cut off there is begun again, so its part before the block must be
true twice (IF NOT EXISTS). The tests refuse revisions that do otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from collections.abc import AsyncGenerator, Iterator
from types import ModuleType
from typing import Final

import asyncpg

from hai_flow.errors import StoreError
from hai_flow.store.postgres import database_roles, op, revisions
from hai_flow.store.postgres.error_classes import sqlstate_of

LOCK_KEY: Final = 0x4841_4946_4C4F_57  # "HAIFLOW"
UPGRADE_SECONDS_MAX: Final = 60.0  # without getting on: a lock that is not given back
OTHERS_SECONDS_MAX: Final = 3600.0  # another process may be building an index of a big table
_LOCK_NOT_AVAILABLE: Final = "55P03"
_INSUFFICIENT_PRIVILEGE: Final = "42501"


async def upgrade(dsn: str, revision: str = "head") -> None:
    """Bring the database to `revision`, one process at a time.

    No lock is waited for longer than 0.2 s at a time, because a migration that queues for a table's lock makes
    everybody behind it wait too; it gives up its place and tries again. Raises `StoreError` after a minute of that, and
    after an hour in which another process was migrating.
    """
    await _migrate(dsn, revisions.head() if revision == "head" else revision, upwards=True)


async def downgrade(dsn: str, revision: str) -> None:
    """Take the database back to `revision` ("base" is the empty schema). For tests and for a rollback by hand."""
    await _migrate(dsn, None if revision == "base" else revision, upwards=False)


class _OtherMigrates(Exception):
    """Another process holds the advisory lock."""


async def _migrate(dsn: str, revision: str | None, *, upwards: bool) -> None:
    began = time.monotonic()
    while True:
        try:
            return await _migrate_once(dsn, revision, upwards=upwards)
        except _OtherMigrates:
            if time.monotonic() - began > OTHERS_SECONDS_MAX:
                raise StoreError(
                    f"the migration got no lock for {OTHERS_SECONDS_MAX:.0f} s: another process is migrating this "
                    "database (pg_locks, locktype advisory); see what it waits for"
                ) from None
        except asyncpg.PostgresError as error:
            state = sqlstate_of(error)
            if state == _INSUFFICIENT_PRIVILEGE:
                raise StoreError(
                    f"the role of the database's URL may not make the schema: {str(error).splitlines()[0]}. Make "
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


async def _migrate_once(dsn: str, revision: str | None, *, upwards: bool) -> None:
    async with _alone(dsn):
        connection = await asyncpg.connect(dsn)
        try:
            current = await revisions.read(connection)
            if upwards and current not in (None, *revisions.list_revisions()):
                return  # a newer release has migrated it to a revision that this one has never heard of
            if current is None:
                await connection.execute(_VERSIONS)
            for number, half in _list_steps(current, revision, upwards=upwards):
                change = getattr(_load(number), half)
                here = number if upwards else revisions.find_previous(number)
                note = "" if here is None else f"INSERT INTO alembic_version (version_num) VALUES ('{here}')"
                await op.carry_out(connection, change, f"DELETE FROM alembic_version; {note}")
        finally:
            await connection.close()
        if upwards:
            await _ensure_roles(dsn)


_VERSIONS: Final = """
CREATE TABLE IF NOT EXISTS alembic_version (
  version_num varchar(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))
"""
"""The table has the name and the shape that it had when Alembic kept it: earlier releases look there."""


def _list_steps(current: str | None, target: str | None, *, upwards: bool) -> Iterator[tuple[str, str]]:
    """The revisions to carry out, each with the function that does it. A revision is named by a number of four
    digits."""
    numbers = sorted(revisions.list_revisions())
    for each in filter(None, (current, target)):
        if each not in numbers:
            raise StoreError(f"expected a revision from {numbers[0]} to {numbers[-1]}, found {each}")
    begin, end = current or "", target or ""
    if upwards:
        yield from ((number, "upgrade") for number in numbers if begin < number <= end)
    else:
        yield from ((number, "downgrade") for number in reversed(numbers) if end < number <= begin)


def _load(revision: str) -> ModuleType:
    (path,) = (revisions.directory() / "versions").glob(f"{revision}_*.py")
    spec = importlib.util.spec_from_file_location(f"revision_{path.stem}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def _ensure_roles(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"SET lock_timeout = '{op.LOCK_TIMEOUT}'")
        await database_roles.ensure(connection)
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _alone(dsn: str) -> AsyncGenerator[None]:
    """Hold the advisory lock; raises `_OtherMigrates` when another process does.

    The transaction of a connection of its own holds it: it must outlive those of the revisions, and session locks do
    not get through a transaction pooler. No process waits for it in a statement: building an index concurrently waits
    for the end of all of those.
    """
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            # By the simple protocol: a fetch of asyncpg leaves a snapshot in the transaction, and that is waited for.
            if await connection.execute(f"SELECT WHERE pg_try_advisory_xact_lock({LOCK_KEY})") != "SELECT 1":
                raise _OtherMigrates
            yield
    finally:
        await connection.close()
