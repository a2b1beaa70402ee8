"""Transactions of tools on the run's own database: a tool's writes there commit together with the event that its step
has succeeded, in one transaction, or neither does.

The tool's statements run first. When it has returned, its transaction is *sealed*: deferred constraints are checked,
and the session is made as it was before (settings, role, temporary tables, locks, prepared statements, and the
driver's conversions of types): our commit must not meet a temporary table called `runs`, and behind a pooler the
session is anybody's after it. Then the commit of the run's events (`commits`) is sent in the same transaction, and that
compares the run's version as every commit does: where the attempt is over by then (it timed out, its process lost its
lease and another one declared it lost, the run was terminated), the decision is a refusal, and nothing commits.

A process that dies leaves a transaction that the server rolls back. One that is frozen holds the lock of its run's row
for `idle_in_transaction_session_timeout` at most; others pass the run over meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import structlog

from hai_flow.errors import OutcomeLost, StepError
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import (
    DEMAND_NO_STATEMENTS,
    LEAVE_LOCKS_AND_STATEMENTS,
    LEAVE_NOTHING_BUT_STATEMENTS,
    LEAVE_STATEMENTS,
    PIN,
    TOOL_IDLE_SECONDS,
)
from hai_flow.store.postgres.error_classes import (
    FAILURES,
    ErrorClass,
    classify,
    is_away,
    raise_outcome_unknown,
    sqlstate_of,
)

if TYPE_CHECKING:
    from hai_flow.store.commit.entries import BatchResult
    from hai_flow.store.postgres.database import Database, Session

log = structlog.get_logger(__name__)

ACQUIRE_SECONDS: Final = 60.0  # for a connection; the step's own time-out may end it before
_SEALED: Final = {"lock_timeout": "2s", "statement_timeout": "30s", "idle_in_transaction_session_timeout": "10s"}
_BEGUN: Final = "SAVEPOINT hai_flow_tool"  # it is gone if the tool ends the transaction by itself
_SEAL: Final = "; ".join((
    "RELEASE SAVEPOINT hai_flow_tool",
    "SET CONSTRAINTS ALL IMMEDIATE",
    LEAVE_NOTHING_BUT_STATEMENTS,
    *(f"SET LOCAL {name} = '{value}'" for name, value in _SEALED.items()),
    PIN,
    "SAVEPOINT hai_flow_result",
    DEMAND_NO_STATEMENTS,
))  # fmt: skip
_TAKE_BACK: Final = "ROLLBACK TO SAVEPOINT hai_flow_result"
_LEAVE: Final = f"ROLLBACK TO SAVEPOINT hai_flow_tool; {LEAVE_LOCKS_AND_STATEMENTS}"
_DIVISION: Final = "22012"
_ENDED_BY_TOOL: Final = ("3B001", "25P01")
_FAILED: Final = "25P02"
_CUT: Final = "the database has ended its session, or does not answer"
_CLOSED: Final = "the tool has closed its connection, or cancelled a statement of it"
_IDLED: Final = (
    f"the database has ended the tool's transaction, in which nothing was asked for {TOOL_IDLE_SECONDS} s; do what "
    "takes long before its first block"
)
_leaving: Final[set[asyncio.Task[None]]] = set()  # a task that nothing refers to may be collected


class Transaction:
    """The transaction of one attempt, if its tool asks for one: it begins with the first `block`, and there is one at
    most."""

    __slots__ = ("_beginning", "_connection", "_database", "_outer", "_over", "_pool", "_session")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool: Pool | None = None
        self._connection: Connection | None = None
        self._session: Session | None = None  # also when the connection has given it back
        self._outer: Any = None
        self._beginning: asyncio.Lock | None = None
        self._over = False

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @contextlib.asynccontextmanager
    async def block(self) -> AsyncGenerator[Connection]:
        """The connection. An exception takes back all statements of the block. The end of the block commits nothing:
        the commit comes when the tool has returned. Raises OutcomeLost where the connection was lost, and StepError
        where it had idled for too long."""
        self._beginning = self._beginning or asyncio.Lock()
        async with self._beginning:
            first = self._connection is None
            connection = await self._begin() if self._connection is None else self._connection
        try:
            if first:
                yield connection
            else:
                async with connection.transaction():
                    yield connection
        except BaseException as error:
            fault = self._explain_end(error)
            if first:
                await self._roll_back()
            if fault is not None:
                raise fault from error
            raise

    async def seal(self) -> None:
        """The tool has returned. Raises StepError if its transaction can't be committed, and OutcomeLost if its
        connection was lost; then it is rolled back."""
        session = self._session
        assert self._connection is not None, "only a transaction that has begun is sealed"
        try:
            if session is None or session.is_closed():
                raise asyncpg.InterfaceError(_CUT if session is not None and session.ended == "lost" else _CLOSED)
            session.drop_listeners()
            await session.reset_codecs()
            await self._connection.execute(_SEAL)
        except (*FAILURES, ValueError) as error:
            if not await self._drops_statements(error):
                fault = self._explain_end(error)
                await self._roll_back()
                raise fault or StepError(_explain_failure(error)) from error

    async def _drops_statements(self, error: Exception) -> bool:
        """Whether it can be committed after an error of its seal: it was one of the last statement of that, which
        demands that the tool has prepared nothing. A deferred constraint that fails comes before the savepoint."""
        if sqlstate_of(error) != _DIVISION or self._connection is None:
            return False
        try:
            await self._connection.execute(f"{_TAKE_BACK}; {LEAVE_STATEMENTS}")
        except FAILURES:
            return False
        return True

    async def commit(self, send: Callable[[Connection], Awaitable[BatchResult]]) -> BatchResult:
        """Commit it, with the entry that `send` sends over its connection. If the entry does not win nothing is
        committed, and it may be tried again.

        Raises the errors of the database. It may be tried again after those that `classify` calls RETRY; after all
        others the transaction is over, with an outcome that is unknown if the error says so."""
        assert self._connection is not None, "only a transaction that was sealed is committed"
        connection = self._connection
        try:
            with raise_outcome_unknown():
                try:
                    done = await send(connection)
                    if done.won:
                        await self._outer.commit()
                    else:
                        await connection.execute(_TAKE_BACK)
                except Exception as error:
                    if classify(error) is ErrorClass.RETRY:
                        await connection.execute(_TAKE_BACK)
                    raise
        except Exception as error:
            if classify(error) is not ErrorClass.RETRY:
                self.abandon()
            raise
        if done.won:
            if self._session is not None:
                self._session.spotless = True  # since it was sealed
            self.abandon()
        return done

    def abandon(self) -> None:
        """Give the connection back. Statements that were not committed are rolled back."""
        self._over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            task = asyncio.get_running_loop().create_task(self._release(connection), name="end a tool's transaction")
            _leaving.add(task)
            task.add_done_callback(_leaving.discard)

    async def _begin(self) -> Connection:
        if self._over:
            raise _is_over()
        try:
            self._pool = pool = await self._database.tools()
            connection: Any = await pool.acquire(timeout=ACQUIRE_SECONDS).__aenter__()
        except (*FAILURES, TimeoutError) as error:
            if is_away(error):
                raise _make_outcome_lost(error) from error
            message = f"no connection for the tool's transaction: {error or type(error).__name__}"
            raise StepError(message, code="tool.unavailable", retriable=True) from error
        session: Session = connection._con
        self._connection, self._outer, self._session = connection, connection.transaction(), session
        try:
            if self._over:
                raise _is_over()
            session.begins_with = _BEGUN
            await self._outer.start()
        except BaseException as error:
            session.begins_with = ""
            fault = self._explain_end(error)
            await self._roll_back()
            if fault is not None:
                raise fault from error
            raise
        return connection

    def _explain_end(self, error: BaseException) -> StepError | None:
        """The error to raise where the database has ended the session, so that nothing of the transaction is committed:
        through no fault of the tool, as while it is started anew, or because the tool let it idle."""
        ended = "" if self._session is None else self._session.ended
        if not isinstance(error, Exception) or isinstance(error, OutcomeLost):
            return None
        was_busy = isinstance(error, asyncpg.ConnectionDoesNotExistError)  # as by a cursor, which no session times
        if ended == "lost" or (ended == "idled" and was_busy):
            return _make_outcome_lost(error)
        return StepError(_IDLED) if ended == "idled" and not isinstance(error, StepError) else None

    async def _roll_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._release(connection)

    async def _release(self, connection: Any) -> None:
        """Let go of the connection: the pool rolls back a transaction that is left open, or hangs up.

        Behind a pooler the session is another client's as soon as the transaction is over, so what a rollback leaves in
        it is taken back before. A connection that is cut instead is one whose session the pooler closes."""
        session = self._session
        if session is not None:
            session.drop_listeners()
        try:
            if session is not None and session.codecs and not session.is_closed():  # of a tool that has failed
                connection.terminate()
            elif self._database.behind_pooler and not connection.is_closed() and connection.is_in_transaction():
                try:
                    await connection.execute(_LEAVE)
                except FAILURES:
                    connection.terminate()
            assert self._pool is not None, "it has lent the connection"
            await self._pool.release(connection)
        except FAILURES as error:
            log.info("tool_connection_cut", error=str(error) or repr(error))


def _make_outcome_lost(error: Exception) -> OutcomeLost:
    return OutcomeLost(f"The connection of the tool's transaction was lost, and with it what it had written: {error}.")


def _explain_failure(error: Exception) -> str:
    state = sqlstate_of(error)
    if state in _ENDED_BY_TOOL:
        return "the tool ended its transaction itself; the runtime commits it, together with the step's result"
    if state == _FAILED:
        return (
            "the tool's transaction can't be committed: a statement of it failed, and the tool went on; put what may "
            "fail into a block of its own (`async with context.transaction()`)"
        )
    return f"the tool's transaction can't be committed: {error}"


def _is_over() -> StepError:
    return StepError("the attempt is over: its transaction can't begin any more", retriable=False)
