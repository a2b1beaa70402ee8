"""A whole process behind a transaction pooler."""

from __future__ import annotations

import asyncpg
import pytest

from hai_flow.errors import StoreError
from hai_flow.store import hints, migrations
from hai_flow.store.database import Database
from tests.runtime.conftest import ECHO, Connection, Make, is_now, start
from tests.support.proxy import Proxy
from tests.support.waiting import until


async def test_a_process_works_through_a_pooler_that_refuses_settings(
    database_url: str, make: Make, eye: Connection
) -> None:
    async with Proxy(database_url, pooler=True) as pooler:
        with pytest.raises(StoreError, match="unsupported startup parameter"):
            await Database.open(pooler.dsn)
        assert not await migrations.is_behind(pooler.dsn)
        runtime = await make(performs=True, dsn=pooler.dsn, database_url=pooler.dsn, database_pooled=True)
        assert runtime.worker is not None
        first = runtime.worker.id
        run_id = (await start(runtime, ECHO, input={"value": "v"})).run_id
        await until(lambda: is_now(runtime, run_id, "finished"))
        renewed = await eye.fetchval("SELECT alive_until FROM workers WHERE id = $1", first)
        query = "SELECT alive_until > $2 FROM workers WHERE id = $1"
        await until(lambda: eye.fetchval(query, first, renewed))
        assert pooler.lines("hai-flow heartbeat"), "its heart beats by the same way"
        assert not pooler.lines("hai-flow listen"), "nobody listens in a session that is another's in a moment"
        assert runtime.faults() == []
        await runtime.stop()


async def test_hints_come_by_the_direct_way(database_url: str, eye: Connection) -> None:
    heard: list[str] = []
    async with Proxy(database_url, pooler=True) as pooler:
        db = await Database.open(pooler.dsn, behind_pooler=True, listen_dsn=database_url)
        assert await db.listen(hints.HINT_CHANNEL, heard.append)
        await until(lambda: heard)
        await hints.notify(db.api, ["x"])
        await until(lambda: "x" in heard)
        await db.close()


async def test_without_a_direct_way_nothing_is_listened_to(database_url: str) -> None:
    db = await Database.open(database_url, behind_pooler=True)
    assert await db.listen(hints.HINT_CHANNEL, lambda payload: None) is None
    with pytest.raises(asyncpg.UndefinedTableError):
        await db.api.fetchval("SELECT 1 FROM nothing")
    await db.close()
