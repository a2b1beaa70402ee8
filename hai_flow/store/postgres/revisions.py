"""The revision of a database's schema, and those that this release knows.

Every process asks at its start. The answer is in the names of the files, so that only `migrations`, which changes a
schema, imports the libraries that do so: they would take a quarter of the time in which a process starts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hai_flow.errors import StoreError
from hai_flow.store.postgres.database import Deadlines, connect


async def current(dsn: str, deadlines: Deadlines | None = None) -> str | None:
    """The revision of the database, None when it is empty."""
    deadlines = deadlines or Deadlines()
    connection = await connect(dsn, deadlines, behind_pooler=True)  # whether there is one or not
    connection.statement_seconds = deadlines.connect_seconds
    try:
        if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
            return None
        return await connection.fetchval("SELECT version_num FROM alembic_version")
    finally:
        await connection.close()


async def is_behind(dsn: str, deadlines: Deadlines | None = None) -> bool:
    """Whether the database's schema is older than this release. On a newer one old code still runs
    (docs/design/promises.md#versions)."""
    revision = await current(dsn, deadlines)
    return revision is None or revision in list_revisions() - {head()}


@cache
def list_revisions() -> frozenset[str]:
    """All revisions that this release knows: `0001` is in `versions/0001_first_schema.py`."""
    return frozenset(path.name.partition("_")[0] for path in (directory() / "versions").glob("[0-9]*_*.py"))


def head() -> str:
    """The newest revision that this release knows: each one follows the one before it by number."""
    return max(list_revisions())


def directory() -> Path:
    """Where the revisions are: at the top of a checkout, inside the package when installed from a wheel."""
    package = Path(__file__).resolve().parents[2]
    for place in (package / "_migrations", package.parent / "migrations"):
        if (place / "env.py").is_file():
            return place
    raise StoreError(f"expected the migrations in {package / '_migrations'} or beside the package; found neither")
