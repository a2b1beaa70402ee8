"""The PostgreSQL of a test session: one embedded server for all of pytest's processes, one database per test.

To make a database and drop it takes twenty times as long as to empty it. So a database that a test leaves is
emptied, and the next test has it under another name, unless more than its rows has changed.

The server belongs to a *keeper*, a small process that lives exactly as long as any pytest process uses the
server: each holds a shared flock on `tests`, and the keeper waits for the exclusive one. So a killed worker
neither takes the server along nor leaves one behind, and it does not matter which worker ends last."""

from __future__ import annotations

import asyncio
import concurrent.futures
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from hai_flow.embedded import EmbeddedPostgres
from hai_flow.settings import Settings

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]


VERSIONS = "alembic_version"
KEPT = frozenset((VERSIONS, "tenants", "vocabularies"))  # the tables with rows that a migration makes; they stay
GROWTH_MAX = 16 << 20  # bytes by which a database may have grown and still be handed out again

# All that a migration makes, but for rows, so that a change by a test shows: whatever a catalogue's row says, a changed
# one is a new version, by a later transaction. Relations are compared by what they say, for TRUNCATE changes them, too.
# Each migration updates the table of versions, which autovacuum therefore analyses, at any time, in the template, too.
_SCHEMA = f"""
WITH ours AS (
  SELECT oid, relname, relkind, relpersistence, reloptions, relacl FROM pg_class
  WHERE relnamespace = 'public'::regnamespace
), parts AS (
  SELECT concat_ws(' ', 'relation', oid, relname, relkind, relpersistence, reloptions, relacl) AS part FROM ours
  UNION ALL SELECT concat_ws(' ', 'columns', count(*), sum(xmin::text::bigint))
    FROM pg_attribute WHERE attrelid IN (SELECT oid FROM ours)
  UNION ALL SELECT concat_ws(' ', 'defaults', count(*), sum(xmin::text::bigint)) FROM pg_attrdef
  UNION ALL SELECT concat_ws(' ', 'constraints', count(*), sum(xmin::text::bigint)) FROM pg_constraint
  UNION ALL SELECT concat_ws(' ', 'indexes', count(*), sum(xmin::text::bigint)) FROM pg_index
  UNION ALL SELECT concat_ws(' ', 'functions', count(*), sum(xmin::text::bigint)) FROM pg_proc
  UNION ALL SELECT concat_ws(' ', 'triggers', count(*), sum(xmin::text::bigint)) FROM pg_trigger
  UNION ALL SELECT concat_ws(' ', 'statistics of', starelid) FROM pg_statistic
    WHERE starelid IN (SELECT oid FROM ours WHERE relname <> '{VERSIONS}')
  UNION ALL SELECT concat_ws(' ', 'schema', nspname, nspacl) FROM pg_namespace WHERE nspname !~ '^pg_'
  UNION ALL SELECT concat_ws(' ', 'setting', setrole, setconfig) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
  UNION ALL SELECT concat_ws(' ', 'version', version_num) FROM {VERSIONS}
)
SELECT string_agg(part, ',' ORDER BY part COLLATE "C") FROM parts
"""
# Every change of a row of these is counted until the counts are set back. Settings are of all databases, and are not.
_CATALOGS = (
    "pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_index", "pg_proc", "pg_trigger", "pg_statistic",
    "pg_namespace", VERSIONS,
)  # fmt: skip
_LOOK = f"""
SELECT array_agg(relname::text) AS tables, array_agg(relname::text) FILTER (WHERE pg_relation_size(oid) > 0) AS used,
  (SELECT sum(pg_stat_get_tuples_inserted(c::regclass) + pg_stat_get_tuples_updated(c::regclass)
      + pg_stat_get_tuples_deleted(c::regclass)) FROM unnest('{{{",".join(_CATALOGS)}}}'::text[]) c) > 0
    OR EXISTS (SELECT FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
      WHERE d.datname = current_database()) AS changed
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
"""
_RESTART = "SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace"
_COUNT_ALL = "SELECT pg_stat_force_next_flush()"  # what this session itself has changed, so that it is set back, too
_SIZE = "SELECT pg_database_size(current_database())"
_USES_PER_SIZE = 8  # a database's size is looked at every so often, for it costs as much as all else


class _Made(NamedTuple):
    """A new database of the current schema: its tables, a fingerprint of its schema, its size in bytes."""

    tables: frozenset[str]
    schema: str
    size: int


class Server:
    """Where tests make their databases. `prefix` keeps the names of one pytest process from those of others."""

    def __init__(self, admin_dsn: str, directory: Path, session: str, prefix: str) -> None:
        self._admin_dsn = admin_dsn
        self._directory = directory
        self._template = f"hai_flow_template_{session}"
        self._prefix = f"t_{session}_{prefix}"
        self._count = 0
        self._made: _Made | None = None
        self._free: list[str] = []
        self.last_drop: str | None = None  # the reason why the database of the last test could not be handed out again
        self._loop = asyncio.new_event_loop()  # of the connection below, and runs only while that is asked
        self._admin: asyncpg.Connection[asyncpg.Record] | None = None

    def dsn(self, database: str) -> str:
        """How to connect to `database`."""
        parts = urlsplit(self._admin_dsn)
        # urlunsplit would leave out the empty host of a socket's DSN, and with it the slashes.
        if not parts.hostname:
            return f"{parts.scheme}://{parts.netloc}/{database}?{parts.query}"
        return urlunsplit(parts._replace(path=f"/{database}"))

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """The DSN of a database of one's own: with the current schema and no rows, or empty."""
        name = self._free.pop() if migrated and self._free else self._create(migrated=migrated)
        try:
            yield self.dsn(name)
        finally:
            again = self._ask(self._emptied(name)) if migrated else None
            if again is not None:
                self._free.append(again)

    def _create(self, *, migrated: bool) -> str:
        name, template = self._new_name(), self._migrated_template() if migrated else "template0"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        if migrated and self._made is None:
            self._made = self._ask(_looked_at(self.dsn(name)))
        return name

    def _new_name(self) -> str:
        self._count += 1
        return f"{self._prefix}_{self._count}"

    async def _emptied(self, name: str) -> str | None:
        """The new name of a database that is as good as new. None: it had to be dropped."""
        again, admin = self._new_name(), await self._administrator()
        await admin.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", name)
        try:
            # First of all: a client that still connects by the old name finds nothing.
            await admin.execute(f'ALTER DATABASE "{name}" RENAME TO "{again}"')
        except asyncpg.PostgresError as error:
            again, self.last_drop = name, f"it can't be renamed: {error}"
        else:
            assert self._made is not None, "_create has looked at the first database"
            measured = self._count % _USES_PER_SIZE == 0
            self.last_drop = await _empty(self.dsn(again), self._made, measured=measured)
            if self.last_drop is None:
                return again
        await admin.execute(f'DROP DATABASE "{again}" WITH (FORCE)')
        return None

    def drop_free(self) -> None:
        """Drop the databases that no test uses any more."""
        while self._free:
            self._execute(f'DROP DATABASE "{self._free.pop()}" WITH (FORCE)')

    def _migrated_template(self) -> str:
        done = self._directory / "template"
        with (self._directory / "template.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                from hai_flow.store.postgres import migrations

                self._execute(f'DROP DATABASE IF EXISTS "{self._template}" WITH (FORCE)')
                self._execute(f'CREATE DATABASE "{self._template}"')
                run_apart(migrations.upgrade(self.dsn(self._template)))
                done.touch()
        return self._template

    def drop_template(self) -> None:
        """Leave nothing behind on a server that outlives the session."""
        self._execute(f'DROP DATABASE IF EXISTS "{self._template}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            await (await self._administrator()).execute(statement)

        self._ask(execute())

    async def _administrator(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._admin is None or self._admin.is_closed():
            self._admin = await asyncpg.connect(self._admin_dsn)
        return self._admin

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop of the server's own connection, in a thread: as `run_apart`."""
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(self._loop.run_until_complete, work).result()

    def close(self) -> None:
        """Ask no more."""
        if self._admin is not None:
            self._ask(self._admin.close())
        self._loop.close()


async def _looked_at(dsn: str) -> _Made:
    """The facts of a new database. Its tables must have no rows: rows of a migration would be lost with the first
    test."""
    connection = await asyncpg.connect(dsn)
    try:
        (look,) = await connection.fetch(_LOOK)
        tables = frozenset(look["tables"])
        for table in tables - KEPT:
            assert not await connection.fetchval(f'SELECT EXISTS (SELECT FROM "{table}")'), f"{table} has rows"
        made = _Made(tables, await connection.fetchval(_SCHEMA), await connection.fetchval(_SIZE))
        await connection.execute(_COUNT_ALL)
        await connection.execute("SELECT pg_stat_reset()")
        return made
    finally:
        await connection.close()


async def _empty(dsn: str, made: _Made, *, measured: bool) -> str | None:
    """Remove the tables and rows that a test has added. The reason if the database can't be used again: the test has
    changed more than that, or, if `measured`, the database has grown."""
    connection = await asyncpg.connect(dsn)
    try:
        (look,) = await connection.fetch(_LOOK)
        for table in set(look["tables"]) - made.tables:
            await connection.execute(f'DROP TABLE "{table}" CASCADE')
        if look["changed"] and await connection.fetchval(_SCHEMA) != made.schema:
            return "its schema was changed"
        used = sorted(made.tables.intersection(look["used"]) - KEPT)
        # As files: rows that are deleted one by one would still be in the way of the next test's plans.
        emptied = f"TRUNCATE {', '.join(used)} RESTART IDENTITY; " if used else ""
        await connection.execute("SET session_replication_role = replica")  # the audit's triggers refuse TRUNCATE
        await connection.execute(f"{emptied}DELETE FROM tenants WHERE name <> 'default'; {_RESTART}; {_COUNT_ALL}")
        await connection.execute("SELECT pg_stat_reset()")
        size = await connection.fetchval(_SIZE) if measured else made.size
        return None if size < made.size + GROWTH_MAX else f"it has grown from {made.size} to {size} bytes"
    except asyncpg.PostgresError as error:
        return f"it can't be emptied: {error}"
    finally:
        await connection.close()


@asynccontextmanager
async def connecting(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection, which is closed at the end of the block."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def execute(dsn: str, statement: str, *values: object) -> str:
    """Execute one statement over a connection of its own. Returns its tag, such as `UPDATE 1`."""
    async with connecting(dsn) as connection:
        return await connection.execute(statement, *values)


async def fetch_value(dsn: str, query: str, *values: object) -> Any:
    """The first value of one query over a connection of its own."""
    async with connecting(dsn) as connection:
        return await connection.fetchval(query, *values)


async def fetch(dsn: str, query: str, *values: object) -> list[Any]:
    """The rows of one query over a connection of its own."""
    async with connecting(dsn) as connection:
        return list(await connection.fetch(query, *values))


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a loop and a thread of its own: the test's loop and context variables stay untouched."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


END_SECONDS_MAX: Final = 1200


@contextmanager
def serve(session: str, prefix: str, dsn: str | None = None) -> Iterator[Server]:
    """The server of the test run `session`, as the pytest process `prefix` uses it; `dsn` names one that runs
    already."""
    directory = Path(tempfile.gettempdir()) / f"hai-flow-tests-{os.getuid()}-{session}"
    directory.mkdir(mode=0o700, exist_ok=True)
    users = os.open(directory / "tests", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(users, fcntl.LOCK_SH)
    if dsn is not None:
        yield from _serve_foreign(Server(dsn, directory, session, prefix), directory, users)
        return
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.postgres", str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,  # a Ctrl-C for pytest must not end the server before the tests are torn down
    )
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"ready\n", "the keeper of the test server did not start one"
        server = Server(EmbeddedPostgres(directory).dsn("postgres"), directory, session, prefix)
        try:
            yield server
        finally:
            server.close()
    finally:
        os.close(users)
        with keeper:
            keeper.wait(END_SECONDS_MAX)  # it ends with the last process that uses it


def _serve_foreign(server: Server, directory: Path, users: int) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.drop_free()
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            server.drop_template()
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            pass  # another process of this session still needs the template; the last one drops it
        server.close()
        os.close(users)


def keep(directory: Path) -> None:
    """Own the server in `directory` until no process uses it, then remove it. Returns at once if another process
    does."""
    server = EmbeddedPostgres(directory, durable=False, binaries=Settings.from_environment().pg_bin)
    server.start()
    print("ready", flush=True)
    if not server.owner:
        return
    with (directory / "tests").open("r+") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
