"""What one tool leaves in its database session, the next tool never finds: whoever's it is, and behind a pooler too."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hai_flow.errors import OutcomeLost, StepError
from hai_flow.store.postgres.database import Database, SessionTransaction
from hai_flow.store.postgres.tool_transactions import Transaction
from tests.runtime.conftest import Connection
from tests.support.pgbouncer import PgBouncer, pgbouncer_program
from tests.support.waiting import until

__all__ = ["pgbouncer_program"]

ROLE = "tool_session_role"
LEFT = {
    "role": (f"SET ROLE {ROLE}",),
    "authorization": (f"SET SESSION AUTHORIZATION {ROLE}",),
    "temporary table": ("CREATE TEMP TABLE mine AS SELECT 'of tenant A'::text AS x",),
    "temporary view": ("CREATE TEMP VIEW mine AS SELECT 'of tenant A'::text AS x",),
    "prepared statement": ("PREPARE mine AS SELECT 1",),
    "advisory lock": ("SELECT pg_advisory_lock(4711)",),
    "channel": ("LISTEN mine",),
    "setting": ("SET search_path TO pg_catalog", "SET app.tenant = 'a'", "SET statement_timeout = '1h'"),
    "cursor": ("DECLARE mine CURSOR WITH HOLD FOR SELECT 1",),
    "sequence": ("CREATE TEMP SEQUENCE numbers", "SELECT nextval('numbers')"),
}
FOUND = """
SELECT current_user::text, session_user::text, current_setting('search_path'), current_setting('statement_timeout'),
  coalesce(current_setting('app.tenant', true), ''), to_regclass('pg_temp.mine') IS NOT NULL,
  ARRAY(SELECT name FROM pg_prepared_statements WHERE from_sql),
  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
  ARRAY(SELECT pg_listening_channels()),
  ARRAY(SELECT name FROM pg_cursors WHERE is_holdable)
"""
ENDS = ("committed", "lost", "failed", "aborted")


class _Sent:
    def __init__(self, won: bool) -> None:
        self.won = won


@pytest.fixture(params=["direct", "pooled"])
async def database(request: pytest.FixtureRequest, database_url: str, eye: Connection) -> AsyncIterator[Database]:
    """With one connection for tools; behind the pooler there is one session for all."""
    await eye.execute(f"DO $$ BEGIN CREATE ROLE {ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with contextlib.ExitStack() as stack:
        dsn, pooled = database_url, request.param == "pooled"
        if pooled:
            program = request.getfixturevalue("pgbouncer_program")
            dsn = stack.enter_context(PgBouncer(program, database_url, sessions=1)).dsn
        made = await Database.open(dsn, behind_pooler=pooled, tool_connections=1)
        yield made
        await made.close()


async def use(database: Database, statements: tuple[str, ...], end: str) -> None:
    """A tool sends the statements, and its attempt ends so."""
    transaction = Transaction(database)
    with contextlib.suppress(ValueError):
        async with transaction.block() as connection:
            for each in statements:
                await connection.execute(each)
            if end == "aborted":
                with contextlib.suppress(Exception):
                    await connection.execute("SELECT 1 / 0")
            if end in ("failed", "aborted"):
                raise ValueError
    if end not in ("failed", "aborted"):
        await transaction.seal()

        async def send(connection: Any) -> Any:
            return _Sent(end == "committed")

        await transaction.commit(send)
        transaction.abandon()


async def found(database: Database) -> tuple[Any, ...]:
    transaction = Transaction(database)
    async with transaction.block() as connection:
        row = await connection.fetchrow(FOUND)
    transaction.abandon()
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("left", LEFT)
async def test_the_next_tool_finds_the_session_as_it_was_before(database: Database, left: str, end: str) -> None:
    before = await found(database)
    await use(database, LEFT[left], end)
    after = await found(database)
    assert after == before
    await use(database, LEFT[left], end)  # and the same tool may do it again
    assert await found(database) == before


@pytest.mark.parametrize("end", ENDS)
async def test_codecs_and_listeners_of_a_tool_reach_no_commit_and_no_next_tool(database: Database, end: str) -> None:
    heard: list[Any] = []
    transaction = Transaction(database)

    async def read(connection: Any) -> None:
        assert await connection.fetchval("SELECT 7::int8") == 7
        assert await connection.fetchval("SELECT '{}'::json") == "{}"
        assert heard == []

    async def send(connection: Any) -> Any:
        await read(connection)
        return _Sent(end == "committed")

    with contextlib.suppress(ValueError):
        async with transaction.block() as connection:
            for name in ("json", "int8"):
                await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=lambda text: -1)
            connection.add_query_logger(heard.append)
            connection.add_termination_listener(heard.append)
            if end in ("failed", "aborted"):
                raise ValueError
    heard.clear()
    if end not in ("failed", "aborted"):
        await transaction.seal()
        await transaction.commit(send)
        transaction.abandon()
    following = Transaction(database)
    async with following.block() as connection:
        await read(connection)
    following.abandon()


async def test_a_failing_tools_leftovers_are_rolled_back_after_a_committed_one(database: Database) -> None:
    before = await found(database)
    await use(database, ("SELECT 1",), "committed")
    await use(database, LEFT["advisory lock"], "failed")
    assert await found(database) == before


@pytest.mark.parametrize(
    ("statement", "question", "answer"),
    [
        ("CREATE TEMP TABLE runs (id uuid)", "to_regclass('runs') = to_regclass('public.runs')", True),
        ("SET LOCAL enable_indexscan = off; SET LOCAL work_mem = '64kB'", "current_setting('enable_indexscan')", "on"),
    ],
)
async def test_a_tools_own_tables_and_settings_are_not_the_commit_s(
    database: Database, statement: str, question: str, answer: Any
) -> None:
    transaction = Transaction(database)
    async with transaction.block() as connection:
        await connection.execute(statement)
    await transaction.seal()
    seen: list[Any] = []

    async def send(connection: Any) -> Any:
        seen.append(await connection.fetchval(f"SELECT {question}"))
        return _Sent(True)

    await transaction.commit(send)
    assert seen == [answer]


async def test_an_attempt_ended_while_waiting_for_a_connection_begins_none(database: Database) -> None:
    transaction, pool = Transaction(database), await database.tools()
    held = await pool.acquire().__aenter__()

    async def begin() -> None:
        async with transaction.block() as connection:
            await connection.execute("SELECT 1")

    beginning = asyncio.create_task(begin())
    await until(lambda: transaction._beginning is not None and transaction._beginning.locked())
    transaction.abandon()
    await pool.release(held)
    with pytest.raises(StepError, match="the attempt is over"):
        await beginning
    assert not transaction.is_open
    assert await found(database), "its connection has gone back"


async def test_a_database_away_when_the_first_tool_comes_is_an_outcome_lost(
    database: Database,
) -> None:
    there, database.dsn = database.dsn, "postgresql://nobody@127.0.0.1:1/nowhere"
    with pytest.raises(OutcomeLost, match="The connection of the tool's transaction was lost"):
        await found(database)
    database.dsn = there
    assert await found(database), "the next one finds it"


async def test_an_attempt_cancelled_while_it_lets_go_of_its_connection_does(
    database: Database,
) -> None:
    transaction = Transaction(database)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        async with transaction.block() as connection:
            await connection.execute("SELECT 1")
            begun.set()
            await goes_on.wait()
            raise ValueError

    failing = asyncio.create_task(fail())
    await begun.wait()
    async with database._opening:  # as while another pool is opened
        goes_on.set()
        await asyncio.sleep(0.05)
        failing.cancel()
        await asyncio.wait([failing])
    assert await asyncio.wait_for(found(database), 10)


async def test_a_connection_that_was_cut_is_an_outcome_that_was_lost(database: Database, eye: Connection) -> None:
    """As where the database was started anew."""
    transaction = Transaction(database)
    async with transaction.block() as connection:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> $1"
        await eye.execute(cut, eye.get_server_pid())
        lent: Any = connection
        await until(lambda: lent._con is None or database.behind_pooler)
    with pytest.raises(OutcomeLost, match="The connection of the tool's transaction was lost") as raised:
        await transaction.seal()
    assert "the tool has" not in raised.value.message
    assert not transaction.is_open


async def test_no_free_connection_is_a_failure_and_no_loss(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hai_flow.store.postgres.tool_transactions.ACQUIRE_SECONDS", 0.05)
    pool = await database.tools()
    async with pool.acquire():
        with pytest.raises(StepError, match="came free within") as raised:
            await found(database)
    assert (type(raised.value), raised.value.code) == (StepError, "tool.unavailable")


async def test_a_connection_that_is_cut_before_its_transaction_begins_is_lost(
    database: Database, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database.behind_pooler:
        pytest.skip("the pooler begins it in another session")
    begin = SessionTransaction.start

    async def cut_and_begin(self: SessionTransaction) -> None:
        await eye.execute("SELECT pg_terminate_backend($1, 5000)", self._connection.get_server_pid())
        await until(self._connection.is_closed)
        await begin(self)

    monkeypatch.setattr(SessionTransaction, "start", cut_and_begin)
    with pytest.raises(OutcomeLost, match="The connection of the tool's transaction was lost"):
        await found(database)
    monkeypatch.undo()
    assert await found(database)


async def test_a_statement_in_the_very_moment_of_the_cut_is_lost(database: Database) -> None:
    """The driver has read that the session is over, and not yet that the line is."""

    async def meet_the_end() -> None:
        raise asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress")

    transaction = Transaction(database)

    async def ask() -> None:
        async with transaction.block() as connection:
            lent: Any = connection
            await lent._con._answer(meet_the_end())

    with pytest.raises(OutcomeLost, match="The connection of the tool's transaction was lost"):
        await ask()


async def end_long_statement(eye: Connection) -> None:
    """End the session in which a statement sleeps, once it has for longer than a tool may idle."""
    asked = "pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"

    async def has_slept() -> bool:
        return bool(await eye.fetchval(f"SELECT count(*) FROM {asked} AND query_start < now() - interval '0.2 s'"))

    await until(has_slept)
    await eye.execute(f"SELECT pg_terminate_backend(pid) FROM {asked}")


@pytest.mark.parametrize("way", ["a statement", "a prepared statement", "a cursor", "a copy"])
async def test_a_long_statement_of_any_kind_is_no_idling(
    database: Database, eye: Connection, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("hai_flow.store.postgres.database.TOOL_IDLE_SECONDS", 0.1)
    transaction = Transaction(database)

    async def sleep() -> None:
        async with transaction.block() as connection:
            if way == "a statement":
                await connection.execute("SELECT pg_sleep(60)")
            elif way == "a prepared statement":
                await (await connection.prepare("SELECT pg_sleep(60)")).fetchval()
            elif way == "a cursor":
                async for _ in connection.cursor("SELECT pg_sleep(60)"):
                    pass
            else:
                await connection.copy_from_query("SELECT pg_sleep(60)", output=io.BytesIO())

    sleeping = asyncio.create_task(sleep())
    await end_long_statement(eye)
    with pytest.raises(OutcomeLost, match="The connection of the tool's transaction was lost"):
        await sleeping


@pytest.mark.parametrize("wraps", [True, False])
async def test_a_tool_that_takes_the_error_of_a_long_statement_did_not_idle(
    database: Database, eye: Connection, monkeypatch: pytest.MonkeyPatch, wraps: bool
) -> None:
    """It goes on, or raises one of its own, as libraries on top of the driver do."""
    monkeypatch.setattr("hai_flow.store.postgres.database.TOOL_IDLE_SECONDS", 0.1)
    transaction = Transaction(database)

    async def sleep() -> None:
        async with transaction.block() as connection:
            try:
                await connection.execute("SELECT pg_sleep(60)")
            except asyncpg.PostgresError as error:
                if wraps:
                    raise ValueError("no answer") from error
        await transaction.seal()

    sleeping = asyncio.create_task(sleep())
    await end_long_statement(eye)
    with pytest.raises(OutcomeLost, match="The connection of the tool's transaction was lost"):
        await sleeping
