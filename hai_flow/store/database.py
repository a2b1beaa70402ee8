"""The connections to PostgreSQL, and what its errors mean. No statement of the domain lives here.

Two pools: the engine's, whose plans are pinned (STORE B8: a plan cached while a table was small took 348 ms instead of
4.6), and the API's, whose list queries need a free planner. Nothing on the hot path holds a lock across a round trip,
and where somebody does, the timeouts below end it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from hai_flow.errors import StoreError

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]

SETTINGS: Final[Mapping[str, str]] = {
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "5s",
    "statement_timeout": "30s",
    "jit": "off",
    "application_name": "hai-flow",
}
# Sorted arrays with nested loops take row locks in the order of run ids: 0 deadlocks in 1,502 (STORE B8).
ENGINE_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Planning the commit anew takes 6 ms, running it 1: never look for a better plan than the pinned one.
    "plan_cache_mode": "force_generic_plan",
}
RECONNECT_SECONDS_MIN: Final = 0.1
RECONNECT_SECONDS_MAX: Final = 2.0
EVERYTHING: Final = "*"


class CommitUnknown(StoreError):
    """The connection broke while a statement ran: it may have happened, or not, or *may still happen*.

    A client that hangs up does not stop the server: a load right after may not see yet what lands in a moment. Late
    decisions are harmless (`version` settles them), late chunks are not: `runs.refence_runs` before anything else.
    One in three commits that a client saw fail in a crash had been committed (PROMISES, measured fact 3).
    """


# What a statement may raise. InternalClientError: the server closed an idle connection in this very moment.
FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, CommitUnknown)


class Fault(Enum):
    """What a failed statement tells its sender to do."""

    DATA = "data"  # some row of it can never be stored: halve the batch until the culprit is alone (STORE B6)
    RETRY = "retry"  # nothing happened and nothing is wrong: send the same statement again
    UNKNOWN = "unknown"  # it may have happened: load before deciding again
    OTHER = "other"  # a fault of ours or of the installation: let it be seen


_DATA_CLASSES: Final = ("21", "22", "23", "54")
_RETRYABLE: Final = frozenset({"40P01", "40001", "55P03"})
# 57014: cancelled by statement_timeout, which is never after the commit. 53: out of connections, memory or disk.
_DEFINITE: Final = frozenset({"57014"})
_CUT_CLASSES: Final = ("08",)
_CUT: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})


def sqlstate_of(error: BaseException | None) -> str | None:
    """The SQLSTATE that `error` (asyncpg's, or SQLAlchemy's wrapper of it) carries; None when it carries none."""
    while error is not None:
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
        error = error.__cause__
    return None


def is_data_error(error: BaseException) -> bool:
    """Whether some row of the statement was refused for what is in it (SQLSTATE class 21, 22, 23, 54; STORE B6).

    Text that has no UTF-8 form (a lone surrogate) is refused by the driver before anything is sent.
    """
    state = sqlstate_of(error)
    if state is None:
        return isinstance(error, (asyncpg.DataError, UnicodeError, OverflowError))
    return state[:2] in _DATA_CLASSES


def is_retryable(error: BaseException) -> bool:
    """Whether the same statement may simply be sent again: it was rolled back for others' sake (STORE B6)."""
    return sqlstate_of(error) in _RETRYABLE


def is_outcome_unknown(error: BaseException) -> bool:
    """Whether the connection broke under the statement, so that nobody here knows if it was committed."""
    if isinstance(error, CommitUnknown):
        return True
    state = sqlstate_of(error)
    if state is not None:
        return state in _CUT or state[:2] in _CUT_CLASSES
    return isinstance(error, (ConnectionError, OSError, EOFError, asyncpg.InterfaceError, asyncpg.InternalClientError))


def classify(error: BaseException) -> Fault:
    """What to do about a failed commit. `asyncpg.InterfaceError` on bad data counts as data, not as a broken line."""
    if is_data_error(error):
        return Fault.DATA
    if is_retryable(error) or sqlstate_of(error) in _DEFINITE:
        return Fault.RETRY
    if is_outcome_unknown(error):
        return Fault.UNKNOWN
    return Fault.OTHER


@contextlib.contextmanager
def outcome_known() -> Generator[None]:
    """Turn every way in which asyncpg reports a broken connection into `CommitUnknown`."""
    try:
        yield
    except CommitUnknown:
        raise
    except Exception as error:
        if classify(error) is Fault.UNKNOWN:
            raise CommitUnknown(f"the connection broke while a statement ran: {error}") from error
        raise


class Listener:
    """LISTEN on a connection of its own that comes back by itself. A hint may be lost; the poll is the truth.

    After every (re)connection the callback gets "*": whatever was said meanwhile was missed.
    """

    def __init__(self, dsn: str, channel: str, callback: Callable[[str], None]) -> None:
        self._dsn = dsn
        self._channel = channel
        self._callback = callback
        self.ready = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"listen {channel}")

    async def close(self) -> None:
        """End listening; returns when the connection is closed."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        pause = RECONNECT_SECONDS_MIN
        while True:
            try:
                await self._listen_once()
                pause = RECONNECT_SECONDS_MIN
            except FAILURES:
                pause = min(2 * pause, RECONNECT_SECONDS_MAX)
            self.ready.clear()
            await asyncio.sleep(pause)

    async def _listen_once(self) -> None:
        connection = await asyncpg.connect(
            self._dsn, server_settings={"application_name": "hai-flow listen"}, statement_cache_size=0
        )
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        try:
            await connection.add_listener(self._channel, lambda *given: self._callback(str(given[3])))
            self._callback(EVERYTHING)
            self.ready.set()
            await gone.wait()
        finally:
            await asyncio.shield(_close(connection))


class Database:
    """Both pools of one process. `engine` for commits, claims and loads; `api` for what requests read."""

    def __init__(self, dsn: str, engine: Pool, api: Pool, listen_dsn: str) -> None:
        self.dsn = dsn
        self.engine = engine
        self.api = api
        self._listen_dsn = listen_dsn
        self._listeners: list[Listener] = []

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        engine_connections: int = 4,
        api_connections: int = 4,
        listen_dsn: str | None = None,
        behind_pooler: bool = False,
    ) -> Database:
        """Connect both pools; connections beyond the first are opened when needed.

        `behind_pooler`: a transaction pooler stands between; no statement is prepared across transactions, and the
        settings must be given to the role (ALTER ROLE ... SET), because a pooler refuses them from a client.
        `listen_dsn`: a direct way to the server, which LISTEN needs behind a pooler. Raises `StoreError` when the
        server can't be reached.
        """
        try:
            engine = await _pool(dsn, engine_connections, ENGINE_SETTINGS, behind_pooler)
            try:
                api = await _pool(dsn, api_connections, SETTINGS, behind_pooler)
            except BaseException:
                await engine.close()
                raise
        except (OSError, asyncpg.PostgresError) as error:
            raise StoreError(f"the database can't be reached: {error}") from error
        return cls(dsn, engine, api, listen_dsn or dsn)

    async def listen(self, channel: str, callback: Callable[[str], None]) -> Listener:
        """Call `callback(payload)` for each hint on `channel`, until the listener or the database is closed."""
        listener = Listener(self._listen_dsn, channel, callback)
        self._listeners.append(listener)
        return listener

    @contextlib.asynccontextmanager
    async def lane(self) -> AsyncGenerator[Connection]:
        """An engine connection to keep for a while: a committer's lane. A broken one is replaced by asking again."""
        async with self.engine.acquire() as connection:
            yield connection

    async def close(self, timeout: float = 5.0) -> None:
        """Close everything; connections that do not answer within `timeout` seconds are cut."""
        for listener in self._listeners:
            await listener.close()
        for pool in (self.engine, self.api):
            try:
                await asyncio.wait_for(pool.close(), timeout)
            except TimeoutError:
                pool.terminate()


async def _pool(dsn: str, size: int, settings: Mapping[str, str], behind_pooler: bool) -> Pool:
    pool = await asyncpg.create_pool(
        dsn,
        min_size=1,
        max_size=size,
        server_settings=None if behind_pooler else dict(settings),
        statement_cache_size=0 if behind_pooler else 256,
        max_inactive_connection_lifetime=300.0,
        reset=_keep_as_it_is,
    )
    assert pool is not None
    return pool


async def _keep_as_it_is(connection: Connection) -> None:
    """Our statements leave nothing behind in a session, and asyncpg's own reset is one more trip for each release."""
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


async def _close(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    with contextlib.suppress(*FAILURES):
        await connection.close(timeout=1.0)
