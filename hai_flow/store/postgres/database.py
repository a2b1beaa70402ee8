"""The connections to PostgreSQL. No statement of the domain lives here; `error_classes` says what an error means. Two
pools: the engine's, whose plans are pinned (docs/design/store.md#locks: one cached while a table was small took 348 ms
instead of 4.6), and the API's, whose list queries need a free planner. A line can go silent, so nothing waits without
an end (`Deadlines`), and a `Session` that does not answer is cut, never asked to cancel: that would be one more
question on the same dead line."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import asyncpg
import msgspec
import structlog

from hai_flow.errors import StoreError
from hai_flow.store.postgres import database_roles, row_security
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.error_classes import FAILURES, CommitUnknown, ErrorClass, classify
from hai_flow.store.postgres.several_hosts import connect_to_one

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
    _AsyncpgPool = asyncpg.Pool[asyncpg.Record]
else:
    _Connection, _AsyncpgPool = asyncpg.Connection, asyncpg.Pool

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)

# The server lets go of us as we do of it: of a client that is lost, and of a statement whose client has hung up.
_OF_THE_LINE: Final[Mapping[str, str]] = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
    "client_connection_check_interval": "2s",
}
SETTINGS: Final[Mapping[str, str]] = {
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "5s",
    "statement_timeout": "30s",
    "jit": "off",
    "application_name": "hai-flow",
    **_OF_THE_LINE,
}
# Sorted arrays with nested loops take row locks in the order of run ids: 0 deadlocks in 1,502
# (docs/design/store.md#locks).
TOOL_IDLE_SECONDS: Final = 60  # a tool may do something else between its statements
TOOL_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": f"{TOOL_IDLE_SECONDS}s",
    "application_name": "hai-flow tool",
}
ENGINE_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Planning the commit anew takes 6 ms, running it 1: never look for a better plan than the pinned one.
    "plan_cache_mode": "force_generic_plan",
}
PIN: Final = "; ".join(
    f"SET LOCAL {name} = '{ENGINE_SETTINGS[name]}'"
    for name in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "plan_cache_mode")
)
"""The same settings for one transaction, where the session may have others."""
_LEAVE_LOCKS: Final = "SELECT pg_catalog.pg_advisory_unlock_all();"
_FOREIGN_STATEMENT: Final = "from_sql OR name !~ '^(__asyncpg_|PGBOUNCER_)'"
LEAVE_STATEMENTS: Final = f"""
DO $$ DECLARE known text; BEGIN
  FOR known IN SELECT name FROM pg_catalog.pg_prepared_statements
    WHERE {_FOREIGN_STATEMENT} LOOP
    EXECUTE 'DEALLOCATE ' || pg_catalog.quote_ident(known);
  END LOOP;
END $$
"""
DEMAND_NO_STATEMENTS: Final = f"""
SELECT 1 / (name IS NULL)::int FROM pg_catalog.pg_prepared_statement() WHERE {_FOREIGN_STATEMENT}
"""
"""A division by zero where `LEAVE_STATEMENTS`, which costs three times as much, would take anything back. Of the
function: to plan it each time out of the view costs as much as to carry it out."""
LEAVE_LOCKS_AND_STATEMENTS: Final = f"{_LEAVE_LOCKS}{LEAVE_STATEMENTS}"
"""Takes back what even a transaction that is rolled back leaves in its session."""
LEAVE_NOTHING_BUT_STATEMENTS: Final = f"""
SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES;
{_LEAVE_LOCKS}
"""
LEAVE_NOTHING: Final = f"{LEAVE_NOTHING_BUT_STATEMENTS}{LEAVE_STATEMENTS}"
"""Makes a session as it was when it was opened: also in the middle of a transaction, where DISCARD ALL can't. The
driver and a pooler keep the statements that they have prepared."""
FAREWELL_SECONDS: Final = 1.0
_IDLED_SHARE: Final = 0.9  # our clock begins a little later than the server's
RECONNECT_SECONDS_MIN: Final = 0.1
RECONNECT_SECONDS_MAX: Final = 2.0
EVERYTHING: Final = "*"


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds after which we give up waiting. Nothing that asks the database waits longer.

    `connect_seconds`: for a new connection. `acquire_seconds`: for one of the pool's to come free. `statement_seconds`:
    for the answer to a statement; above the server's own `statement_timeout`, which ends a statement that is only slow.
    `line_seconds`: for the other machine's TCP to show that it lives. `probe_seconds`: how often a connection that only
    listens is asked whether anybody is there. `close_seconds`: for a farewell."""

    connect_seconds: float = 10.0
    acquire_seconds: float = 10.0
    statement_seconds: float = 35.0
    line_seconds: float = 15.0
    probe_seconds: float = 15.0
    close_seconds: float = 5.0


# --- one connection -----------------------------------------------------------------------------------------------


def _ends(statement: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """The statement as a `Session` sends it."""

    @functools.wraps(statement)
    async def send(self: Session, *given: Any, **options: Any) -> Any:
        return await self._answer(statement(self, *given, **options))

    return send


_OIDS_OF_POSTGRES_MAX: Final = 10_000  # below it are PostgreSQL's own types, the same in every database
_ARRAYS: Final = (1000, 1001, 1005, 1007, 1016, 1022, 1185, 1187, 2951, 3807)
"""The arrays of our statements: of bool, bytea, int2, int4, int8, float8, timestamptz, interval, uuid, jsonb."""


class _NotAsked:
    """In place of the statement that would have asked: no unnamed statement of the session has been overwritten."""

    name = "known already"


_types_known: Final[dict[int, Any]] = {}
"""Types of PostgreSQL's own as asyncpg describes them, by their numbers."""


class SessionTransaction(asyncpg.transaction.Transaction):
    """A transaction whose end leaves the error alone that cut the connection: the driver's own, which complains that
    there is nothing to roll back on, would swallow a cancellation."""

    _connection: Session

    async def __aexit__(self, extype: object, ex: object, tb: object) -> None:
        if ex is None or not self._connection.is_closed():
            await super().__aexit__(extype, ex, tb)


class Session(_Connection):
    """A connection whose every statement ends: answered, or with the connection cut.

    It is also cut when the task that waits for an answer is cancelled, and when an answer says that the session is no
    good any more (`ErrorClass.UNKNOWN`): a pool must never give that connection out again. A statement that was cut
    by its deadline raises `CommitUnknown`."""

    __slots__ = (
        "_answered_at",
        "_line",
        "begins_with",
        "codecs",
        "ended",
        "overdue",
        "pinned",
        "sharded",
        "spotless",
        "statement_seconds",
    )
    _aborted: bool
    _query_loggers: set[Any]
    _termination_listeners: set[Any]

    def __init__(self, protocol: Any, transport: asyncio.Transport, *given: Any) -> None:
        super().__init__(protocol, transport, *given)
        self._line = transport
        self.statement_seconds: float | None = None
        self.overdue = False
        # Why it is over, where we have not cut it: the server has ended it or does not answer, has ended it because it
        # idled within a transaction, or it was closed.
        self.ended: Literal["", "lost", "idled", "closed"] = ""
        self._answered_at = math.inf  # monotonic; infinite while a statement is under way
        self.pinned = True  # the session has the settings that were asked for: no pooler stands between
        self.sharded = False  # Citus keeps the schema
        self.begins_with = ""  # goes with the BEGIN of the next transaction, in one trip
        self.spotless = False  # nothing was left behind since it was last taken back
        self.codecs: set[tuple[str, str]] = set()  # types, with their schemas, that are converted otherwise

    def transaction(
        self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False
    ) -> SessionTransaction:
        return SessionTransaction(self, isolation, readonly, deferrable)

    async def execute(self, query: str, *given: Any, **options: Any) -> str:
        if self.begins_with and query == "BEGIN;":
            query, self.begins_with = f"{query} {self.begins_with}", ""
        return str(await self._answer(super().execute(query, *given, **options)))

    async def set_type_codec(self, typename: str, *, schema: str = "public", **codec: Any) -> None:
        self.codecs.add((typename, schema))
        await super().set_type_codec(typename, schema=schema, **codec)

    async def set_builtin_type_codec(self, typename: str, *, schema: str = "public", **codec: Any) -> None:
        self.codecs.add((typename, schema))
        await super().set_builtin_type_codec(typename, schema=schema, **codec)

    def drop_listeners(self) -> None:
        """Let nobody hear of the statements and the end of this connection any more."""
        self._query_loggers.clear()
        self._termination_listeners.clear()

    async def reset_codecs(self) -> None:
        """Convert all types as a new connection does: no statement takes that back. Raises asyncpg's errors, and
        ValueError for a type that is gone."""
        while self.codecs:
            typename, schema = next(iter(self.codecs))
            await self.reset_type_codec(typename, schema=schema)
            self.codecs.discard((typename, schema))

    executemany = _ends(asyncpg.Connection.executemany)
    fetch = _ends(asyncpg.Connection.fetch)
    fetchmany = _ends(asyncpg.Connection.fetchmany)
    fetchrow = _ends(asyncpg.Connection.fetchrow)
    fetchval = _ends(asyncpg.Connection.fetchval)

    async def _answer(self, statement: Awaitable[Answer]) -> Answer:
        seconds = self.statement_seconds
        end = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._give_up)
        answered_at, self._answered_at = self._answered_at, math.inf
        try:
            return await statement
        except asyncio.CancelledError:
            self.terminate()
            raise
        except Exception as error:
            if self.overdue:
                raise CommitUnknown(f"the database did not answer within {seconds:g} s, so the line was cut") from error
            if isinstance(
                error, asyncpg.InternalClientError
            ):  # the server is ending it, as it was idle, in this moment
                self._note_end(answered_at)
            if classify(error) is ErrorClass.UNKNOWN:
                self.terminate()
            raise
        finally:
            self._answered_at = time.monotonic()
            if end is not None:
                end.cancel()

    def _give_up(self) -> None:
        self.overdue, self.ended = True, "lost"
        self.terminate()

    def _cleanup(self) -> None:
        """The driver calls this at the end of the connection, whoever has ended it."""
        if not self._aborted:
            self._note_end(self._answered_at)
        super()._cleanup()  # type: ignore[misc]

    def _note_end(self, answered_at: float) -> None:
        """The server has ended it. Its reason for the end of one that idles does not get here, but the time does."""
        has_idled = time.monotonic() - answered_at > _IDLED_SHARE * TOOL_IDLE_SECONDS
        self.ended = self.ended or ("idled" if has_idled else "lost")

    async def _introspect_types(self, typeoids: Collection[int], timeout: float | None) -> tuple[Any, Any]:
        """The description of types that asyncpg does not know by itself: arrays, but for two. It would ask every
        connection for them, once for each set of them, with a query that takes longer to plan than any of ours."""
        missing = {oid for oid in typeoids if oid not in _types_known}
        if not missing:
            return [*_types_known.values()], _NotAsked
        oids = missing if _types_known else missing.union(_ARRAYS)
        types, statement = await super()._introspect_types(oids, timeout)  # type: ignore[misc]
        _types_known.update((each["oid"], each) for each in types if each["oid"] < _OIDS_OF_POSTGRES_MAX)
        return [*_types_known.values(), *types], statement

    async def close(self, *, timeout: float | None = None) -> None:
        """Say farewell, and cut the line if no answer comes."""
        self.ended = self.ended or "closed"
        await super().close(timeout=timeout or FAREWELL_SECONDS)

    def watch_the_line(self, seconds: float) -> None:
        """Let the kernel notice that the other machine is lost, and keep devices on the way from forgetting us."""
        line = self._line.get_extra_info("socket")
        if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
            return
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        probe = max(1, round(seconds / 3))
        for option, value in (
            ("TCP_KEEPIDLE", probe), ("TCP_KEEPINTVL", probe), ("TCP_KEEPCNT", 2),
            ("TCP_USER_TIMEOUT", round(seconds * 1000)),
        ):  # fmt: skip
            if hasattr(socket, option):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


# A session's settings stay at the coordinator. A transaction's own settings go to the node with it, if it is told to.
ON_THE_NODE: Final = f"SET LOCAL lock_timeout = '{SETTINGS['lock_timeout']}'"
# Citus asks of each row that a session reads of pg_class whether it is a shard, to hide it. The driver's question for
# the types of arrays, once a connection, takes 4 seconds of a processor then, and 10 ms without.
_ON_CITUS: Final[Mapping[str, str]] = {
    "citus.override_table_visibility": "off",
    "citus.propagate_set_commands": "local",
}


async def connect(
    dsn: str,
    deadlines: Deadlines,
    settings: Mapping[str, str] = SETTINGS,
    *,
    behind_pooler: bool = False,
    **options: Any,
) -> Session:
    """A connection of one's own. Raises asyncpg's errors, and `TimeoutError` where no answer comes."""
    sharded = settings.keys() >= _ON_CITUS.keys()
    if behind_pooler:  # it refuses settings from its clients, and gives the next statement to another session
        settings = {"application_name": settings["application_name"]}
        options["statement_cache_size"] = 0
    options["connection_class"] = Session
    try:
        connection = await _connect(dsn, deadlines, settings, options)
    except asyncpg.InvalidParameterValueError:  # a server on a system that can't tell whether its client has hung up
        settings = {name: value for name, value in settings.items() if name not in _OF_THE_LINE}
        connection = await _connect(dsn, deadlines, settings, options)
    connection.statement_seconds = deadlines.statement_seconds
    connection.pinned = not behind_pooler
    connection.sharded = sharded
    return connection


async def _connect(dsn: str, deadlines: Deadlines, settings: Mapping[str, str], options: Mapping[str, Any]) -> Session:
    seconds = deadlines.connect_seconds

    async def open_one(host: str, seconds: float) -> Session:
        return await asyncpg.connect(host, timeout=seconds, server_settings=dict(settings), **options)

    try:
        connection = await connect_to_one(dsn, seconds, open_one)
    except TimeoutError as error:
        raise TimeoutError(f"no connection within {seconds:g} s: whoever listens there does not answer") from error
    connection.watch_the_line(deadlines.line_seconds)
    return connection


@contextlib.asynccontextmanager
async def transaction(connection: Connection, settings: str = "") -> AsyncGenerator[None]:
    """A transaction, with these settings. (With BEGIN in one trip, Citus would send BEGIN to its nodes twice.)"""
    await connection.execute("BEGIN")
    try:
        if settings:
            await connection.execute(settings)
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


# --- hints --------------------------------------------------------------------------------------------------------


class Listener:
    """LISTEN on a connection of its own that comes back by itself. A hint may be lost; the poll is the truth.

    After every (re)connection the callback gets "*": all hints meanwhile were missed. A line that has gone silent looks
    like one without hints, so it is asked now and then."""

    def __init__(self, dsn: str, channel: str, callback: Callable[[str], None], deadlines: Deadlines) -> None:
        self._dsn = dsn
        self._deadlines = deadlines
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
            except Exception:  # whatever it is: without hints every follower waits for the poll
                pause = min(2 * pause, RECONNECT_SECONDS_MAX)
            self.ready.clear()
            await asyncio.sleep(pause)

    async def _listen_once(self) -> None:
        deadlines = self._deadlines
        settings = {**_OF_THE_LINE, "application_name": "hai-flow listen"}
        connection = await connect(self._dsn, deadlines, settings, statement_cache_size=0)
        connection.statement_seconds = deadlines.connect_seconds  # a probe is answered as soon as a greeting
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        try:
            await connection.add_listener(self._channel, lambda *given: self._callback(str(given[3])))
            self._callback(EVERYTHING)
            self.ready.set()
            while not gone.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(deadlines.probe_seconds):
                        await gone.wait()
                if not gone.is_set():
                    await connection.execute("SELECT")
        finally:
            await asyncio.shield(_close(connection))


# --- all of a process's -------------------------------------------------------------------------------------------


_OWN_ROLE: Final[Mapping[str, str]] = {}


async def _take_on(pool: Pool) -> Mapping[str, str]:
    """Let the pool, of one connection, work as `hai_engine`. Returns the setting that does so for further ones."""
    if await database_roles.take_on(pool):
        return {"role": database_roles.ENGINE}
    if (fault := await database_roles.fault(pool)) is not None:
        log.warning("no_role_of_its_own", reason=fault)
    return _OWN_ROLE


PLANS_ANEW: Final[Mapping[str, str]] = {"plan_cache_mode": "auto", **_ON_CITUS}


async def _plan_anew(pool: Pool) -> Mapping[str, str]:
    """The settings of the pool's connections, all opened after this, where Citus keeps the schema: each statement is
    planned anew, because it finds no node for a pinned plan with arrays. None on a PostgreSQL alone."""
    async with pool.acquire() as connection:
        if not await connection.fetchval("SELECT to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL"):
            return {}
        query = "SELECT EXISTS (SELECT FROM pg_dist_schema WHERE schemaid = current_schema()::regnamespace)"
        if not await connection.fetchval(query):
            return {}
    await pool.expire_connections()  # this one was opened before it was known
    return PLANS_ANEW


class Database:
    """The pools of one process. `engine` for commits, claims and loads; `api` for the reads of requests; `tools`, which
    opens when the first tool wants a transaction; `make_row_secured_pool`, which opens when the first caller with a key
    reads."""

    def __init__(
        self,
        dsn: str,
        engine: Pool,
        api: Pool,
        *,
        deadlines: Deadlines,
        behind_pooler: bool,
        listen_dsn: str | None,
        tool_connections: int = 8,
        role: Mapping[str, str] = _OWN_ROLE,
        sharded: bool = False,
    ) -> None:
        self.dsn = dsn
        self.sharded = sharded  # Citus keeps the schema on one of its nodes
        self._role = role  # the role to work as, and the other settings of all connections
        self._tool_connections = tool_connections
        self._tools: Pool | None = None
        self._walled: Pool | None = None
        self._opening = asyncio.Lock()
        self.engine = engine
        self.api = api
        self.deadlines = deadlines
        self.behind_pooler = behind_pooler
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
        deadlines: Deadlines | None = None,
        tool_connections: int = 8,
    ) -> Database:
        """Connect both pools; connections beyond the first are opened when needed.

        `behind_pooler`: a transaction pooler stands between; no statement is prepared across transactions, and the
        settings must be given to the role (ALTER ROLE ... SET), because a pooler refuses them from a client.
        `listen_dsn`: a direct way to the server, which LISTEN needs behind a pooler; without one nothing is listened
        to there. Raises `StoreError` when the server can't be reached."""
        deadlines = deadlines or Deadlines()
        try:
            settings = dict(ENGINE_SETTINGS)
            engine = await _pool(dsn, engine_connections, settings, behind_pooler, deadlines)
            try:
                sharded = await _plan_anew(engine)
                settings.update(sharded)  # of the connections that are opened later
                role = _OWN_ROLE if behind_pooler else _ON_CITUS if sharded else await _take_on(engine)
                settings.update(role)
                api = await _pool(dsn, api_connections, {**SETTINGS, **role}, behind_pooler, deadlines)
            except BaseException:
                engine.terminate()
                raise
        except FAILURES as error:
            raise StoreError(f"the database can't be reached: {error}") from error
        listen_dsn = listen_dsn or (None if behind_pooler else dsn)
        return cls(
            dsn,
            engine,
            api,
            deadlines=deadlines,
            behind_pooler=behind_pooler,
            listen_dsn=listen_dsn,
            tool_connections=tool_connections,
            role=role,
            sharded=bool(sharded),
        )

    async def tools(self) -> Pool:
        """The pool for the transactions of tools. They hold a connection for as long as they like, so they have their
        own. Raises asyncpg's errors."""
        async with self._opening:
            if self._tools is None:
                size, deadlines = self._tool_connections, self.deadlines
                settings = {**TOOL_SETTINGS, **(_ON_CITUS if self.sharded else {})}
                self._tools = await _pool(
                    self.dsn, size, settings, self.behind_pooler, deadlines, keep_sessions=self.behind_pooler
                )
            return self._tools

    async def make_row_secured_pool(self) -> Pool:
        """The pool for the reads of requests on behalf of a principal: behind the second wall (`row_security`), where
        it stands; else the pool of the other reads. Raises asyncpg's errors."""
        if self._walled is not None:
            return self._walled
        async with self._opening:
            if self._walled is None:
                self._walled = await self._open_walled()
            return self._walled

    async def _open_walled(self) -> Pool:
        if self.behind_pooler:  # it refuses a role from its clients, and would keep one of ours for others
            fault = "a pooler stands between this server and the database; see docs/pooler.md"
        elif self.sharded:
            fault = "Citus asks its nodes as the role of the session, and hai_api can't log in there; see docs/scale.md"
        else:
            fault = await row_security.faults(self.api)
        if fault is not None:
            log.warning("no_second_wall", reason=fault)
            return self.api
        size = self.api.get_max_size()
        return await _pool(self.dsn, size, {**SETTINGS, "role": database_roles.API}, self.behind_pooler, self.deadlines)

    async def connect(self, settings: Mapping[str, str]) -> Session:
        """A connection beside the pools, over the same way as theirs. May be called in another loop."""
        return await connect(self.dsn, self.deadlines, {**settings, **self._role}, behind_pooler=self.behind_pooler)

    async def listen(self, channel: str, callback: Callable[[str], None]) -> Listener | None:
        """Call `callback(payload)` for each hint on `channel`, until the listener or the database is closed.

        None where no hint can come: behind a pooler, without a direct way to the server."""
        if self._listen_dsn is None:
            return None
        listener = Listener(self._listen_dsn, channel, callback, self.deadlines)
        self._listeners.append(listener)
        return listener

    @contextlib.asynccontextmanager
    async def lane(self) -> AsyncGenerator[Connection]:
        """An engine connection to keep for a while: a committer's lane. A broken one is replaced by asking again."""
        async with self.engine.acquire() as connection:
            yield connection

    async def close(self) -> None:
        """Close everything; connections that do not answer in time are cut."""
        await asyncio.gather(*(listener.close() for listener in self._listeners))
        walled = None if self._walled is self.api else self._walled
        pools = [pool for pool in (self.engine, self.api, self._tools, walled) if pool is not None]
        await asyncio.gather(*(self._close_pool(pool) for pool in pools))

    async def _close_pool(self, pool: Pool) -> None:
        try:
            async with asyncio.timeout(self.deadlines.close_seconds):
                await pool.close()
        except FAILURES:  # also the timeout
            pool.terminate()


class _Pool(_AsyncpgPool):
    """A pool that is not waited for without an end, whatever the holders of its connections do."""

    def __init__(self, dsn: str, acquire_seconds: float, **options: Any) -> None:
        super().__init__(dsn, **options)
        self._acquire_seconds = acquire_seconds

    def acquire(self, *, timeout: float | None = None) -> Any:
        return _Acquired(super().acquire(), timeout or self._acquire_seconds)


class _Acquired:
    """As asyncpg's own, with an end. (Given a timeout, asyncpg makes a task for each acquisition.)"""

    __slots__ = ("_acquiring", "_seconds")

    def __init__(self, acquiring: Any, seconds: float) -> None:
        self._acquiring = acquiring
        self._seconds = seconds

    async def __aenter__(self) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._acquiring.__aenter__()
        except TimeoutError as error:
            raise TimeoutError(f"no connection to the database came free within {self._seconds:g} s") from error

    async def __aexit__(self, *error: Any) -> None:
        await self._acquiring.__aexit__(*error)


async def _pool(
    dsn: str,
    size: int,
    settings: Mapping[str, str],
    behind_pooler: bool,
    deadlines: Deadlines,
    *,
    keep_sessions: bool = True,
) -> Pool:
    """`keep_sessions`: nothing is left behind in a session, so nothing is taken back between two uses."""

    async def connect_one(dsn: str, **options: Any) -> Session:
        return await connect(dsn, deadlines, settings, behind_pooler=behind_pooler, **options)

    return await _Pool(
        dsn,
        deadlines.acquire_seconds,
        connect=connect_one,
        connection_class=Session,
        record_class=asyncpg.Record,
        init_size=1,
        min_size=1,
        max_size=size,
        max_queries=50_000,
        max_inactive_connection_lifetime=300.0,
        statement_cache_size=256,
        max_cached_statement_lifetime=0,  # for ever: a person who answers after minutes must not wait for a new plan
        max_cacheable_statement_size=0,  # of any size: a commit of all its parts has 17 kB
        setup=None,
        init=None,
        reset=_keep_as_it_is if keep_sessions else _leave_nothing,
        loop=None,
    )


async def _keep_as_it_is(connection: Connection) -> None:
    """Our statements leave nothing behind in a session, and asyncpg's own reset is one more trip for each release."""
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


async def _leave_nothing(connection: Session) -> None:
    if not connection.spotless:
        await connection.execute(LEAVE_NOTHING)
    connection.spotless = False


async def _close(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    with contextlib.suppress(*FAILURES):
        await connection.close()


async def read_clock(connection: Connection | Pool) -> datetime:
    """The time by the database's clock, now: not that at which a transaction began."""
    return cast("datetime", await connection.fetchval("SELECT clock_timestamp()"))
