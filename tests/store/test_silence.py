"""Lines that break, and lines that only go silent: everything that asks the database ends, in bounded time.

Real sockets, the real PostgreSQL, and between them a proxy that does to a line what networks do. The deadlines are
short here; a test that hangs is the fault that it looks for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from hai_flow.store.messaging import hints
from hai_flow.store.postgres import revisions
from hai_flow.store.postgres.database import Database, Deadlines, Session, connect
from hai_flow.store.postgres.error_classes import CommitUnknown
from tests.store.conftest import as_owner, birth, commit, decision, load
from tests.support.proxy import Proxy
from tests.support.waiting import until

QUICK = Deadlines(connect_seconds=3.0, acquire_seconds=1.5, statement_seconds=1.5, probe_seconds=0.3, close_seconds=1.0)
SLOW_SECONDS = 20.0  # far beyond every deadline above; only a hang takes so long


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: Proxy) -> AsyncIterator[Database]:
    """The database by way of the proxy, with one engine connection."""
    database = await Database.open(proxy.dsn, engine_connections=1, api_connections=2, deadlines=QUICK)
    yield database
    await database.close()


async def in_time(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, SLOW_SECONDS)


async def test_a_statement_on_a_silent_line_ends_and_the_next_one_has_a_new_line(
    proxy: Proxy, through: Database
) -> None:
    async with through.engine.acquire() as connection:
        (line, _) = proxy.lines()
        line.swallow()
        with pytest.raises(CommitUnknown, match=r"did not answer within 1\.5 s"):
            await in_time(connection.fetchval("SELECT 1"))
    assert await in_time(through.engine.fetchval("SELECT 2")) == 2


@pytest.mark.parametrize("lost", ["to server", "to client"])
async def test_a_commit_on_a_silent_line_is_of_unknown_outcome(
    proxy: Proxy, through: Database, database_url: str, lost: Any
) -> None:
    start = birth()
    assert (await commit(through, start))[0]
    assert (await commit(through, decision(start.run_id, 1)))[0], "now it is prepared, and is one trip"
    for line in proxy.lines():
        line.swallow(lost)
    with pytest.raises(CommitUnknown):
        await in_time(commit(through, decision(start.run_id, 2)))
    direct = await Database.open(database_url)
    assert (await load(direct, start.run_id)).version == (2 if lost == "to server" else 3)
    await direct.close()
    assert (await in_time(load(through, start.run_id))).run_id == start.run_id


async def test_what_was_held_up_may_still_land_after_its_sender_gave_up(proxy: Proxy, through: Database) -> None:
    async def has_version(version: int) -> bool:
        return (await in_time(load(through, start.run_id))).version == version

    start = birth()
    assert (await commit(through, start))[0]
    assert (await commit(through, decision(start.run_id, 1)))[0]
    held = proxy.lines()
    for line in held:
        line.hold("to server")
    with pytest.raises(CommitUnknown):
        await in_time(commit(through, decision(start.run_id, 2)))
    assert await has_version(2)
    for line in held:
        line.release()
    await until(lambda: has_version(3))


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
async def test_a_line_that_is_cut_under_a_statement_is_of_unknown_outcome(
    proxy: Proxy, through: Database, reset: bool
) -> None:
    start = birth()
    assert (await commit(through, start))[0]
    for line in proxy.lines():
        line.hold("to server")
    deciding = asyncio.create_task(commit(through, decision(start.run_id, 1)))
    await asyncio.sleep(0)
    for line in proxy.lines():
        line.cut(reset=reset)
    with pytest.raises(CommitUnknown, match="the connection broke"):
        await in_time(deciding)


async def test_who_is_cancelled_on_a_silent_line_ends_at_once(proxy: Proxy) -> None:
    db = await Database.open(proxy.dsn, engine_connections=1, deadlines=Deadlines(statement_seconds=3600.0))
    asking = asyncio.create_task(db.engine.fetchval("SELECT pg_sleep(60)"))
    await until(lambda: sleepers(db))
    for line in proxy.lines():
        line.swallow()
    asking.cancel()
    assert await in_time(asyncio.wait([asking]))
    assert await in_time(db.engine.fetchval("SELECT 1")) == 1, "the pool has its place back"
    await db.close()


async def test_nobody_waits_without_an_end_for_a_connection_to_come_free(through: Database) -> None:
    async with through.engine.acquire():
        with pytest.raises(TimeoutError, match=r"came free within 1\.5 s"):
            await in_time(through.engine.fetchval("SELECT 1"))
    assert await through.engine.fetchval("SELECT 1") == 1


async def test_a_server_that_accepts_in_silence_is_unreachable(proxy: Proxy) -> None:
    proxy.silent = True
    with pytest.raises(TimeoutError, match="whoever listens there does not answer"):
        await in_time(connect(proxy.dsn, QUICK))
    with pytest.raises(OSError, match="does not answer"):
        await in_time(revisions.is_behind(proxy.dsn, QUICK))
    with pytest.raises(Exception, match="the database can't be reached: no connection within"):
        await in_time(Database.open(proxy.dsn, deadlines=QUICK))


async def test_a_silent_database_is_closed_in_bounded_time(proxy: Proxy) -> None:
    db = await Database.open(proxy.dsn, deadlines=QUICK)
    heard: asyncio.Queue[str] = asyncio.Queue()
    await db.listen(hints.HINT_CHANNEL, heard.put_nowait)
    await heard.get()
    proxy.swallow()
    lost = [asyncio.create_task(db.api.fetchval("SELECT 1")) for _ in range(6)]
    await in_time(db.close())
    for outcome in await in_time(asyncio.gather(*lost, return_exceptions=True)):
        assert isinstance(outcome, Exception)


async def test_a_listener_whose_line_went_silent_comes_back(proxy: Proxy, through: Database) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    await through.listen(hints.HINT_CHANNEL, heard.put_nowait)
    assert await heard.get() == "*"
    (line,) = proxy.lines("hai-flow listen")
    line.swallow()
    assert await in_time(heard.get()) == "*", "whatever was said meanwhile was missed"
    run_id = uuid4()
    await hints.notify(through.api, [run_id])
    assert await in_time(heard.get()) == str(run_id)


async def test_a_listener_outlives_a_callback_that_fails(through: Database) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(payload: str) -> None:
        heard.put_nowait(payload)
        if heard.qsize() == 1:
            raise ZeroDivisionError

    await through.listen(hints.HINT_CHANNEL, hear)
    await until(lambda: heard.qsize() >= 2)


async def test_a_session_that_became_read_only_is_given_to_nobody_again(through: Database) -> None:
    start = birth()
    assert (await commit(through, start))[0]
    await through.engine.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    with pytest.raises(CommitUnknown, match="read-only"):
        await commit(through, decision(start.run_id, 1))
    assert (await commit(through, decision(start.run_id, 1)))[0], "another session may write"


async def test_a_session_stripped_of_its_statements_is_never_handed_out_again(through: Database) -> None:
    start = birth()
    assert (await commit(through, start))[0]
    await through.engine.execute("DEALLOCATE ALL")
    with pytest.raises(CommitUnknown, match="does not exist"):
        await commit(through, birth())
    assert (await commit(through, birth()))[0]


async def test_a_statement_that_is_only_wrong_leaves_its_connection(through: Database) -> None:
    async with through.engine.acquire() as connection:
        pid = connection.get_server_pid()
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.fetchval("SELECT 1 / 0")
    async with through.engine.acquire() as connection:
        assert connection.get_server_pid() == pid


async def test_both_sides_look_after_the_line(through: Database) -> None:
    async with through.engine.acquire() as connection:
        session = connection._con  # type: ignore[attr-defined]
        assert isinstance(session, Session)
        line = session._line.get_extra_info("socket")
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        assert await connection.fetchval("SELECT current_setting('client_connection_check_interval')") == "2s"


async def test_the_server_gives_up_a_statement_whose_client_has_hung_up(through: Database, db: Database) -> None:
    sleeping = asyncio.create_task(through.api.fetchval("SELECT pg_sleep(25)"))
    await until(lambda: sleepers(db))
    sleeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sleeping
    await until(lambda: none_sleep(db), 15)


async def sleepers(db: Database) -> int:
    query = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%' AND state = 'active'
    """
    return int(await as_owner(db, query))


async def none_sleep(db: Database) -> bool:
    return not await sleepers(db)
