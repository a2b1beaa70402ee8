"""A database of one's own, opened; and builders for the least that a commit needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import Born, CommitResult, Entry
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import leases, logs
from hai_flow.store.runs.logs import Loaded
from tests.support import citus
from tests.support.postgres import fetch_value

TENANT = UUID(int=1)
STRANGER = UUID(int=2)
LEASE = timedelta(seconds=30)


def as_role(dsn: str, role: str) -> str:
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()


@asynccontextmanager
async def role(dsn: str, attributes: str = "") -> AsyncIterator[str]:
    """A role that can log in, for as long as the test."""
    name = f"role_{uuid4().hex[:12]}"
    admin = await asyncpg.connect(dsn)
    try:
        await admin.execute(f"CREATE ROLE {name} LOGIN NOSUPERUSER {attributes}")
        yield name
    finally:
        await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
        await admin.close()


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    database = await Database.open(database_url)
    yield database
    await database.close()


async def as_owner(db: Database, query: str, *given: Any) -> Any:
    """The first value of the query by who owns the tables, who sees and may do more than the role of the engine."""
    return await fetch_value(db.dsn, query, *given)


async def somebody_waits(db: Database, statement: str = "%") -> bool:
    """Whether a statement like this waits for a lock, on Citus on some node."""
    query = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE {statement}
    """
    if citus.CITUS is None:
        return bool(await as_owner(db, query.format(statement="$1"), statement))
    everywhere = "SELECT sum(result::int) FROM run_command_on_all_nodes(format($1, $2::text)) WHERE success"
    return bool(await as_owner(db, everywhere, query.format(statement="%1$L"), statement))


def now() -> datetime:
    return datetime.now(UTC)


def birth(run_id: UUID | None = None, **changes: Any) -> Entry:
    """The first entry of a run, with one event; `slot`, `thread_id`, ... go to `Born`, the rest to the entry."""
    born: dict[str, Any] = {
        "workflow": b"w" * 32,
        "workflow_name": "demo",
        "workflow_version": 1,
        "thread_id": "thread",
        "started_by": "user:a",
    }
    born |= {name: changes.pop(name) for name in list(changes) if name in Born.__struct_fields__}
    entry: dict[str, Any] = {"tenant": TENANT, "n": 1, "events": b'["start"]', "status": "running", "busy": True}
    return Entry(run_id=run_id or uuid4(), born=Born(**born), **entry | changes)


def decision(run_id: UUID, version: int, **changes: Any) -> Entry:
    entry: dict[str, Any] = {"tenant": TENANT, "n": 1, "events": b'["decided"]', "busy": True}
    return Entry(run_id=run_id, version=version, **entry | changes)


def chunks(run_id: UUID, fence: int, **changes: Any) -> Entry:
    return Entry(run_id=run_id, tenant=TENANT, n=1, events=b'["chunk"]', fence=fence, **changes)


async def commit(db: Database, *entries: Entry, worker: int | None = None) -> list[CommitResult | None]:
    """What became of each entry: None lost."""
    async with db.lane() as connection:
        committed = await commits.commit(connection, entries, worker, now())
    return [committed.won.get(number) for number in range(len(entries))]


async def win(db: Database, *entries: Entry, worker: int | None = None) -> list[CommitResult]:
    """What became of the entries, none of which may lose."""
    outcomes = await commit(db, *entries, worker=worker)
    won = [each for each in outcomes if each is not None]
    assert len(won) == len(entries), f"an entry lost: {outcomes}"
    return won


async def load(db: Database, run_id: UUID, have: int = 0) -> Loaded:
    return (await logs.load_runs(db.engine, [run_id], [have], 1))[run_id]


async def worker(db: Database, lease: timedelta = LEASE) -> int:
    return await leases.register_worker(db.engine, "test", lease)


@pytest.fixture(params=[True, False], ids=["lone", "of_several"])
def either_statement(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone entry is committed by a statement of its own, and by that of several."""
    if not request.param:
        monkeypatch.setattr(commits, "_list_single_parts", lambda entry: ())
