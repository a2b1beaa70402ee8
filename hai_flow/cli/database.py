"""The database that a command works over: opened, reached, and held against the schema of this release."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from hai_flow.cli.errors import OK
from hai_flow.cli.options import load_settings
from hai_flow.cli.run_until_signal import exit_code_for, handling
from hai_flow.cli.terminal import note, program
from hai_flow.errors import StoreError
from hai_flow.settings import Settings, variable
from hai_flow.store.postgres.connections import Connection

if TYPE_CHECKING:
    from hai_flow.embedded import EmbeddedPostgres

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RunDatabase:
    """The database of the runs. `dsn` leads to it, `shown` is the same without a password. `postgres` is the embedded
    server, if it is one; `direct` a way past a pooler; `said_in` the setting that names it."""

    dsn: str
    shown: str
    postgres: EmbeddedPostgres | None = None
    direct: str | None = None
    said_in: str = "HAI_FLOW_DATABASE_URL"

    @property
    def heading(self) -> str:
        """`shown`, as a sentence begins with it."""
        return self.shown[:1].upper() + self.shown[1:]


@contextlib.contextmanager
def open_database(settings: Settings, *, interrupted: int = OK, make: bool = True) -> Iterator[RunDatabase]:
    """The database of the settings; an embedded one is started here, or attached to, and let go of at the end. One that
    is not there yet is made, unless `make` is false: StoreError then.

    Called on the main thread, outside any loop: a server ends with the thread that started it. A signal in here ends
    the process as one later does (`live`)."""
    if settings.database_url is not None:
        yield RunDatabase(
            settings.database_url, _place_of_url(settings.database_url), direct=settings.database_direct_url
        )
        return
    from hai_flow.embedded import EmbeddedPostgres

    postgres = EmbeddedPostgres(settings.data_dir, binaries=settings.pg_bin)

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(exit_code_for(number, interrupted))

    with handling(end):
        try:
            if not postgres.data.exists():
                if not make:
                    raise StoreError(
                        f"There is no PostgreSQL in {settings.data_dir}. Name another place with --data-dir or "
                        f"HAI_FLOW_DATABASE_URL, or make one: {program()} migrate."
                    )
                note(f"Making a PostgreSQL in {settings.data_dir}; the first time takes some seconds.")
            postgres.start()
            postgres.ensure_database()
            yield RunDatabase(postgres.dsn(), f"the PostgreSQL in {settings.data_dir}", postgres)
        finally:
            postgres.stop()


def _place_of_url(url: str) -> str:
    """The database's place without user and password."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] or "localhost"
    return f"the PostgreSQL database {parts.path.lstrip('/') or 'postgres'} at {place}"


async def migrate_if_behind(database: RunDatabase) -> None:
    """Bring the database to this release's schema. Raises StoreError.

    Only a schema that is behind, or roles that lack a right, import the libraries that change one: they are a quarter
    of the time in which `dev` starts."""
    from hai_flow.store.postgres import database_roles, revisions

    dsn = database.direct or database.dsn
    async with reachable(database):
        if await revisions.is_behind(dsn) or not await database_roles.has_all_roles(dsn):
            from hai_flow.store.postgres import migrations

            await migrations.upgrade(dsn)
            await _fill_inbox(dsn)


async def _fill_inbox(dsn: str) -> None:
    """Write who is asked by open questions of releases that kept no inbox. Where that fails, the workers do it."""
    from hai_flow.runtime.catalog.catalog import Catalog
    from hai_flow.runtime.people.inbox import Inbox
    from hai_flow.steps.runner import Registry
    from hai_flow.store.postgres.database import Database as Pools

    pools = await Pools.open(dsn)
    try:
        await Inbox(pools, Catalog(pools, Registry({}))).fill()
    finally:
        await pools.close()


@contextlib.asynccontextmanager
async def reachable(database: RunDatabase) -> AsyncIterator[None]:
    """Turn the failures of a database that does not answer into a sentence for people."""
    import asyncpg

    try:
        yield
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        why = str(error) or type(error).__name__  # a timeout says nothing
        raise StoreError(f"{database.heading} does not answer: {why}. Look at {database.said_in}.") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(f"{database.heading} refuses its role: {error}. Grant it what it needs.") from error
    except asyncpg.InvalidCatalogNameError as error:
        raise StoreError(f"{database.heading}: {error}. Create it, then run {program()} migrate.") from error


def run_over_database(data_dir: Path | None, work: Callable[[Connection], Awaitable[Result]]) -> Result:
    """The result of `work` over the database of the settings, which has to be there. Raises StoreError."""
    settings = load_settings(data_dir=data_dir)
    if settings.database_pooled and settings.database_direct_url is None:
        raise StoreError(
            "this command needs a session of its own, and a pooler keeps none: set "
            f"{variable('database_direct_url')} to the address of the server itself."
        )

    async def connected() -> Result:
        from hai_flow.store.postgres.several_hosts import open_connection

        async with reachable(database):
            await demand_schema(database)
            connection = await open_connection(database.direct or database.dsn)
            try:
                return await work(connection)
            finally:
                await connection.close()

    with open_database(settings, make=False) as database:
        return asyncio.run(connected())


async def demand_schema(database: RunDatabase) -> None:
    """Raises StoreError unless the database has this release's schema."""
    from hai_flow.store.postgres import revisions

    if await revisions.is_behind(database.dsn):
        raise StoreError(f"{database.heading} does not have the schema of this release: run {program()} migrate.")
