"""A whole process behind a transaction pooler."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.errors import StoreError
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.messaging import hints
from hai_flow.store.ops.health import is_pooler
from hai_flow.store.postgres import revisions
from hai_flow.store.postgres.database import Database
from tests.runtime.conftest import (
    ASKING,
    ECHO,
    LISTENING,
    TEXT,
    Connection,
    Make,
    answer,
    is_now,
    note,
    open_pending,
    start,
)  # fmt: skip
from tests.runtime.test_fanout import seqs_from
from tests.support.ledger import log_of
from tests.support.pgbouncer import PgBouncer, pgbouncer_program
from tests.support.proxy import Proxy
from tests.support.waiting import until

__all__ = ["pgbouncer_program"]


async def test_a_process_works_through_a_pooler_that_refuses_settings(
    database_url: str, make: Make, eye: Connection
) -> None:
    async with Proxy(database_url, pooler=True) as pooler:
        with pytest.raises(StoreError, match="unsupported startup parameter"):
            await Database.open(pooler.dsn)
        assert not await revisions.is_behind(pooler.dsn)
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


# --- the real one -----------------------------------------------------------------------------------------------------


async def through(make: Make, pooler: PgBouncer, direct: str, *, performs: bool) -> Runtime:
    return await make(
        performs=performs, dsn=pooler.dsn, database_url=pooler.dsn, database_pooled=True, database_direct_url=direct
    )


@pytest.mark.costly
async def test_a_server_and_a_worker_share_few_sessions_through_pgbouncer(
    pgbouncer_program: str, database_url: str, make: Make, eye: Connection
) -> None:
    with PgBouncer(pgbouncer_program, database_url) as pooler:
        server = await through(make, pooler, database_url, performs=False)
        worker = await through(make, pooler, database_url, performs=True)
        streamed = (await start(server, TEXT)).run_id
        asked = (await start(server, ASKING)).run_id
        followers = [asyncio.create_task(seqs_from(each, streamed)) for each in (server, worker)]
        echoes = await asyncio.gather(*(start(server, ECHO, input={"value": str(n)}) for n in range(40)))
        await until(lambda: is_now(server, asked, "waiting"))
        pending = await open_pending(server, asked)
        await server.committer.submit(asked, LOCAL_TENANT, answer(pending))
        for run_id in (streamed, asked, *(each.run_id for each in echoes)):
            await until(lambda run_id=run_id: is_now(server, run_id, "finished"))
        seen = await asyncio.wait_for(asyncio.gather(*followers), 20)
        assert seen == [list(range(1, len(await log_of(eye, streamed)) + 1))] * 2
        assert worker.faults() == server.faults() == []
        for runtime in (server, worker):
            await runtime.stop()


async def test_both_go_on_when_pgbouncer_was_killed_and_is_back(
    pgbouncer_program: str, database_url: str, make: Make, eye: Connection
) -> None:
    with PgBouncer(pgbouncer_program, database_url) as pooler:
        server = await through(make, pooler, database_url, performs=False)
        worker = await through(make, pooler, database_url, performs=True)
        started = await start(server, LISTENING)
        following = asyncio.create_task(seqs_from(server, started.run_id))
        await until(lambda: any(feed.rings for feed in server.fanout._feeds.values()))  # it has read the log
        for _ in range(2):
            pooler.kill()
            pooler.start()

            async def sent(id: str = str(uuid4())) -> bool:
                try:
                    await server.committer.submit(started.run_id, LOCAL_TENANT, note(id), command_id=id)
                except Exception:  # of unknown outcome, or not taken: the same again is harmless
                    return False
                return True

            await until(sent, 40.0)
            echo = await until(lambda: _started(server), 40.0)
            assert echo is not None
            await until(lambda echo=echo: is_now(server, echo, "finished"), 40.0)
        log = await log_of(eye, started.run_id)
        assert not following.done()
        following.cancel()
        assert len(log) >= started.seq + 2
        for runtime in (server, worker):
            await runtime.stop()


async def _started(runtime: Runtime) -> UUID | None:
    try:
        return (await start(runtime, ECHO, input={"value": "v"})).run_id
    except Exception:
        return None


async def test_a_commit_is_planned_alike_in_a_session_of_anybody_s(
    pgbouncer_program: str, database_url: str, make: Make, eye: Connection
) -> None:
    """Rows are locked in the order of run ids by nested loops alone."""
    await eye.execute("""
    CREATE TABLE planned (how text);
    CREATE FUNCTION note_plan() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO planned SELECT string_agg(current_setting(name), ' ')
      FROM unnest(ARRAY['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'plan_cache_mode']) AS name;
      RETURN NULL;
    END $$;
    CREATE TRIGGER note_plan AFTER INSERT ON log EXECUTE FUNCTION note_plan();
    """)
    with PgBouncer(pgbouncer_program, database_url) as pooler:
        server = await through(make, pooler, database_url, performs=False)
        await start(server, ASKING)
        left = await server.database.engine.fetchval("SELECT current_setting('enable_seqscan')")
        await server.stop()
    found = await eye.fetch("SELECT DISTINCT how FROM planned")
    assert [row["how"] for row in found] == ["off off off force_generic_plan"]
    assert left == "on", "the next one to get the session has it as it was"


async def test_the_doctor_tells_a_pooler_from_the_server(pgbouncer_program: str, database_url: str) -> None:
    with PgBouncer(pgbouncer_program, database_url) as pooler:
        assert await is_pooler(pooler.dsn)
        pooler.ignore("lock_timeout")
        assert await is_pooler(pooler.dsn), "one that takes settings and forgets them"
    assert not await is_pooler(database_url)
