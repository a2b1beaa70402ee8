"""Connections: their settings, what their failures mean, and hints."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from hai_flow.errors import StoreError
from hai_flow.store.messaging import hints
from hai_flow.store.postgres.database import Database, Deadlines, connect
from hai_flow.store.postgres.error_classes import CommitUnknown, ErrorClass, classify
from tests.store.conftest import as_owner, birth, commit, load


# docs/design/store.md#locks
async def test_the_engine_s_plans_are_pinned_and_the_api_s_are_not(db: Database) -> None:
    for name, engine, api in (
        ("enable_seqscan", "off", "on"), ("enable_hashjoin", "off", "on"), ("jit", "off", "off"),
        ("lock_timeout", "2s", "2s"), ("idle_in_transaction_session_timeout", "5s", "5s"),
    ):  # fmt: skip
        assert await db.engine.fetchval("SELECT current_setting($1)", name) == engine
        assert await db.api.fetchval("SELECT current_setting($1)", name) == api


async def test_only_a_process_first_connection_asks_for_array_types(database_url: str) -> None:
    """The driver's question takes ten milliseconds of a server's processor: longer than any statement of ours."""
    for behind_pooler in (False, True):
        for _ in range(2):
            connection = await connect(database_url, Deadlines(), behind_pooler=behind_pooler)
            asked: list[str] = []
            connection.add_query_logger(lambda query, into=asked: into.append(query.query))
            assert await connection.fetchval("SELECT $1::int[] || 4", [1, 2]) == [1, 2, 4]
            assert await connection.fetchval("SELECT $1::timestamptz[] IS NOT NULL", []) is True
            await connection.close()
        assert len(asked) == 2, "the statements, and nothing else"


async def test_a_type_of_the_database_s_own_is_asked_for_by_each_connection(database_url: str) -> None:
    """Another database may have another type of that number."""
    for number in range(2):
        connection = await connect(database_url, Deadlines())
        if not number:
            await connection.execute("CREATE TYPE colour AS ENUM ('red', 'blue')")
        asked: list[str] = []
        connection.add_query_logger(lambda query, into=asked: into.append(query.query))
        assert await connection.fetchval("SELECT enum_range(NULL::colour)") == ["red", "blue"]
        assert [query for query in asked if "typeinfo_tree" in query]
        await connection.close()


async def test_behind_a_pooler_nothing_is_prepared(database_url: str) -> None:
    db = await Database.open(database_url, behind_pooler=True, engine_connections=1)
    start = birth()
    assert (await commit(db, start))[0]
    assert (await load(db, start.run_id)).seq == 1
    assert await db.engine.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
    await db.close()


@pytest.mark.parametrize(
    ("statement_seconds", "error", "match"),
    [(3600.0, TimeoutError, None), (0.1, CommitUnknown, "did not answer within")],
    ids=["cancelled", "overdue"],
)
async def test_the_error_that_cuts_a_connection_leaves_its_transaction(
    database_url: str, statement_seconds: float, error: type[Exception], match: str | None
) -> None:
    """Else a task that is cancelled within a transaction goes on, and its service stops a second later."""
    db = await Database.open(database_url, deadlines=Deadlines(statement_seconds=statement_seconds))
    with pytest.raises(error, match=match):
        async with asyncio.timeout(1.0), db.api.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_sleep(60)")
    await db.close()


async def test_a_database_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(StoreError, match="can't be reached"):
        await Database.open("postgresql://nobody@127.0.0.1:1/nothing")


async def test_hints_arrive_also_after_the_listener_s_connection_was_cut(db: Database) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    await db.listen(hints.HINT_CHANNEL, heard.put_nowait)
    assert await heard.get() == "*", "whatever was said before was missed"
    ids = [uuid4(), uuid4()]
    await hints.notify(db.engine, ids)
    assert await heard.get() == f"{ids[0]},{ids[1]}"
    cut = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'hai-flow listen'
    """
    assert await as_owner(db, cut) == 1
    assert await heard.get() == "*"
    many = [str(uuid4()) for _ in range(201)]
    await hints.notify(db.engine, many)
    assert f"{await heard.get()},{await heard.get()}".split(",") == many


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (asyncpg.UniqueViolationError(), ErrorClass.DATA),
        (asyncpg.CharacterNotInRepertoireError(), ErrorClass.DATA),
        (asyncpg.CardinalityViolationError(), ErrorClass.DATA),
        (asyncpg.ProgramLimitExceededError(), ErrorClass.DATA),
        (asyncpg.DeadlockDetectedError(), ErrorClass.RETRY),
        (asyncpg.SerializationError(), ErrorClass.RETRY),
        (asyncpg.LockNotAvailableError(), ErrorClass.RETRY),
        (asyncpg.QueryCanceledError(), ErrorClass.RETRY),
        (asyncpg.AdminShutdownError(), ErrorClass.UNKNOWN),
        (asyncpg.ConnectionDoesNotExistError(), ErrorClass.UNKNOWN),
        (asyncpg.InterfaceError("connection is closed"), ErrorClass.UNKNOWN),
        (ConnectionResetError(), ErrorClass.UNKNOWN),
        (CommitUnknown("?"), ErrorClass.UNKNOWN),
        (asyncpg.StatementCompletionUnknownError(), ErrorClass.UNKNOWN),
        (asyncpg.DatabaseDroppedError(), ErrorClass.UNKNOWN),
        (asyncpg.ReadOnlySQLTransactionError(), ErrorClass.UNKNOWN),
        (asyncpg.InFailedSQLTransactionError(), ErrorClass.UNKNOWN),
        (asyncpg.InvalidSQLStatementNameError(), ErrorClass.UNKNOWN),
        (asyncpg.DuplicatePreparedStatementError(), ErrorClass.UNKNOWN),
        (asyncpg.RaiseError(), ErrorClass.DATA),
        (asyncpg.WithCheckOptionViolationError(), ErrorClass.DATA),
        (asyncpg.UndefinedTableError(), ErrorClass.INSTALLATION),
        (asyncpg.InsufficientPrivilegeError(), ErrorClass.INSTALLATION),
        (asyncpg.DiskFullError(), ErrorClass.INSTALLATION),
        (asyncpg.TooManyConnectionsError(), ErrorClass.INSTALLATION),
        (asyncpg.InvalidPasswordError(), ErrorClass.INSTALLATION),
        (asyncpg.PostgresIOError(), ErrorClass.INSTALLATION),
        (asyncpg.InternalServerError(), ErrorClass.INSTALLATION),
        (
            asyncpg.InternalServerError("could not commit transaction for shard 102008 on at least one active node"),
            ErrorClass.UNKNOWN,
        ),
        (asyncpg.RaiseError("could not commit transaction, says a trigger of the installation"), ErrorClass.DATA),
        (asyncpg.DataError("a lone surrogate"), ErrorClass.DATA),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), ErrorClass.DATA),
        (OverflowError("int too big to convert"), ErrorClass.DATA),
        (ZeroDivisionError(), ErrorClass.OTHER),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorClass) else type(value).__name__,
)
def test_what_a_failure_asks_of_its_sender(error: Exception, fault: ErrorClass) -> None:
    assert classify(error) is fault
