"""Files: what their statements promise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from uuid import UUID, uuid4

import pytest

from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import files
from hai_flow.store.runs.files import File
from tests.store.conftest import STRANGER, TENANT, birth, commit, somebody_waits
from tests.support.values import require
from tests.support.waiting import until

ANN, BOB = "user:ann", "user:bob"
DAY = timedelta(days=1)
LONG_AGO = "UPDATE files SET touched_at = now() - interval '8 days'"


async def kept(
    db: Database, body: bytes = b"x", principal: str = ANN, *, run_id: UUID | None = None, name: str = "x.txt"
) -> File:
    """A file that the principal uploaded, with its place in the table of leftovers behind it."""
    file = File(sha256(body).digest(), f"pg:{uuid4().hex}", len(body), name, "text/plain")
    await files.record_leftover(db.api, TENANT, file.place, DAY)
    await files.add_piece(db.api, TENANT, file.place, 0, body)
    place = require(await files.keep_file(db.api, TENANT, file, principal, run_id=run_id))
    return replace(file, place=place)


async def born(db: Database) -> UUID:
    run_id = uuid4()
    await commit(db, birth(run_id, thread_id=str(run_id), slot=None))
    return run_id


async def swept(db: Database) -> int:
    return (await files.delete_unused_files(db.api, 7 * DAY)).orphans


async def test_a_file_is_its_uploaders_and_no_strangers(db: Database) -> None:
    file = await kept(db)
    assert await files.find_file(db.api, TENANT, file.sha256, ANN) == file
    assert await files.find_file(db.api, TENANT, file.sha256, BOB) is None
    assert await files.find_file(db.api, STRANGER, file.sha256, ANN) is None


async def test_a_file_that_a_run_refers_to_is_read_by_those_who_see_the_run(db: Database) -> None:
    file, run_id = await kept(db), uuid4()
    assert await files.record_files(db.api, TENANT, [file.sha256], ANN, run_id) == {file.sha256}
    assert await files.find_file(db.api, TENANT, file.sha256, BOB) is None, "there is no such run yet"
    await commit(db, birth(run_id))
    assert await files.find_file(db.api, TENANT, file.sha256, BOB) == file
    assert await files.find_file(db.api, STRANGER, file.sha256, ANN) is None


async def test_who_may_not_read_a_file_puts_neither_it_nor_others_into_a_run(db: Database) -> None:
    anns, bobs, run_id = await kept(db, b"a", ANN), await kept(db, b"b", BOB), await born(db)
    assert await files.record_files(db.api, TENANT, [anns.sha256, bobs.sha256], BOB, run_id) == {bobs.sha256}
    assert await files.find_file(db.api, TENANT, anns.sha256, BOB) is None
    assert await files.find_file(db.api, TENANT, bobs.sha256, ANN) is None, "nothing was noted"


async def test_the_same_bytes_are_one_file_whoever_uploads_them(db: Database) -> None:
    first = await kept(db, b"same", ANN, name="a.txt")
    second = await kept(db, b"same", BOB, name="b.txt")
    assert second.place == first.place
    for principal, name in ((ANN, "a.txt"), (BOB, "b.txt")):
        assert require(await files.find_file(db.api, TENANT, first.sha256, principal)).name == name
    left = await db.api.fetchval("SELECT count(*) FROM file_leftovers")
    assert left == 1, "the second place belongs to nothing"


async def test_what_is_being_cleared_away_becomes_no_file(db: Database) -> None:
    place = f"pg:{uuid4().hex}"
    await files.record_leftover(db.api, TENANT, place, timedelta(seconds=-1))
    assert await files.list_due_leftovers(db.api) == [place]
    file = File(b"s" * 32, place, 1, "", "text/plain")
    assert await files.keep_file(db.api, TENANT, file, ANN) is None
    assert await files.find_file(db.api, TENANT, file.sha256, ANN) is None


async def test_only_unreferenced_files_are_swept_and_only_after_a_while(db: Database) -> None:
    unused, used = await kept(db, b"unused"), await kept(db, b"used")
    made = await kept(db, b"made", "run:x", run_id=await born(db))
    await files.record_files(db.api, TENANT, [used.sha256], ANN, await born(db))
    await files.record_files(db.api, TENANT, [unused.sha256], ANN, uuid4())  # that command was refused: no such run
    assert await swept(db) == 0, "they were touched just now"
    await db.api.execute(LONG_AGO)
    assert await swept(db) == 1
    assert await files.find_file(db.api, TENANT, unused.sha256, ANN) is None
    assert await files.list_due_leftovers(db.api) == [unused.place]
    for file in (used, made):
        assert await files.find_file(db.api, TENANT, file.sha256, ANN) is not None
    assert await db.api.fetchval("SELECT count(*) FROM uploads") == 2
    assert await db.api.fetchval("SELECT count(*) FROM file_uses") == 2


@pytest.mark.parametrize("again", ["uploaded", "put into a run"])
async def test_a_file_that_is_touched_while_it_is_swept_stays(db: Database, again: str) -> None:
    file = await kept(db)
    await db.api.execute(LONG_AGO)
    async with db.api.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        if again == "uploaded":
            await files.record_leftover(connection, TENANT, "pg:again", DAY)
            await files.keep_file(connection, TENANT, replace(file, place="pg:again"), ANN)
        else:
            await files.record_files(connection, TENANT, [file.sha256], ANN, await born(db))
        sweeping = asyncio.ensure_future(swept(db))
        await until(lambda: somebody_waits(db))
        await transaction.commit()
    assert await sweeping == 0
    assert await files.find_file(db.api, TENANT, file.sha256, ANN) == file
