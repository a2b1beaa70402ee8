"""The PostgreSQL that is measured on: embedded, durable, in a directory that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hai_flow.embedded import EmbeddedPostgres
from hai_flow.store.postgres import migrations


@contextlib.contextmanager
def durable_server() -> Iterator[Callable[[str], str]]:
    """A server with fsync on. Yields a function that makes a migrated database by name and returns its DSN."""
    with (
        tempfile.TemporaryDirectory(prefix="hai-flow-bench-") as directory,
        EmbeddedPostgres(Path(directory)) as server,
    ):

        def database(name: str) -> str:
            server.ensure_database(name)
            asyncio.run(migrations.upgrade(server.dsn(name)))
            return server.dsn(name)

        yield database
