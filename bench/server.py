"""The PostgreSQL that is measured on: embedded, durable, in a directory that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg

from hai_flow.embedded import EmbeddedPostgres
from hai_flow.store.postgres import migrations


@contextlib.contextmanager
def durable_server(commit_delay_ms: float = 0.0) -> Iterator[Callable[[str], str]]:
    """A server with fsync on. Yields a function that makes a migrated database by name and returns its DSN.

    Each flush of the log takes `commit_delay_ms` longer, as on a slower disk (at most 100).
    """
    with (
        tempfile.TemporaryDirectory(prefix="hai-flow-bench-") as directory,
        EmbeddedPostgres(Path(directory)) as server,
    ):
        if commit_delay_ms:
            asyncio.run(_delay_commits(server.dsn("postgres"), commit_delay_ms))

        def database(name: str) -> str:
            server.ensure_database(name)
            asyncio.run(migrations.upgrade(server.dsn(name)))
            return server.dsn(name)

        yield database


async def _delay_commits(dsn: str, delay_ms: float) -> None:
    """PostgreSQL waits for others who commit before it flushes; without siblings it waits each time."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"ALTER SYSTEM SET commit_delay = {delay_ms * 1000:.0f}")
        await connection.execute("ALTER SYSTEM SET commit_siblings = 0")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()
