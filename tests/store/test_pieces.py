"""The commit in pieces, as Citus is sent it, on a PostgreSQL alone: what is tested of the commit, of slots and of rows
holds for it, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hai_flow.store.commit import commits
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import CommitUnknown
from tests.store import test_commit, test_rows, test_slots, torture
from tests.store.conftest import birth, commit, decision, load, now, somebody_waits
from tests.support import citus
from tests.support.examples import by_night
from tests.support.waiting import until

_ALL = {**vars(test_commit), **vars(test_rows), **vars(test_slots)}
globals().update({name: each for name, each in _ALL.items() if name.startswith("test_")})


@pytest.fixture
async def db(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    citus.pretend(monkeypatch)
    database = await Database.open(database_url)
    assert database.sharded
    yield database
    await database.close()


async def test_a_commit_that_is_cut_between_two_pieces_is_undone_as_a_whole(db: Database) -> None:
    start, other = birth(), birth(slot="taken")
    await commit(db, start)
    async with db.lane() as blocker, db.lane() as connection:
        async with blocker.transaction():
            await blocker.execute("INSERT INTO slots VALUES ($1, 'taken', $2)", start.tenant, start.run_id)
            entries = [decision(start.run_id, 1), other]
            sent = asyncio.create_task(commits.commit(connection, entries, None, now()))
            await until(lambda: somebody_waits(db, "%INSERT INTO slots%"))  # the run has moved by then
            connection.terminate()
            with pytest.raises(CommitUnknown):
                await sent
        await until(lambda: unlocked(db))
    assert (await load(db, start.run_id)).version == 1


async def test_commits_cut_between_their_pieces_lose_and_repeat_nothing(database_url: str) -> None:
    report = await torture.torture(database_url, seconds=by_night(6, 2), processes=3, seed=7, pieces=True)
    assert report.violations == []
    assert report.numbers.get("ack"), report.numbers  # how much else fits into the time, the machine decides


async def unlocked(db: Database) -> bool:
    return bool(await db.api.fetch("SELECT FROM runs FOR UPDATE SKIP LOCKED"))
