"""How revisions say what becomes of the schema, in SQL: by `op.execute`.

A revision is two plain functions, which are called in a thread. Each of their statements is sent by the loop that has
the connection, and waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import asyncpg

LOCK_TIMEOUT: Final = "200ms"
_T = TypeVar("_T")
_Send = Callable[[Callable[[asyncpg.Connection], Awaitable[Any]]], Any]
_SEND: Final[ContextVar[_Send]] = ContextVar("send")


def execute(statement: str) -> int:
    """Send a statement; the number of rows that it has written, 0 where it writes none."""
    status = _send(lambda connection: connection.execute(statement))
    count = status.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0


def fetch_value(query: str) -> Any:
    """The first value of the query's first row, None where it has no row."""
    return _send(lambda connection: connection.fetchval(query))


@contextmanager
def autocommit_block() -> Iterator[None]:
    """What came before is committed, and each statement in the block is a transaction of its own. The revision goes on
    in another one behind it."""
    _send(commit)
    yield
    _send(begin)


def is_sharded() -> bool:
    """Whether Citus keeps the tables of the session's schema, whole, on some node: it does not take every statement."""
    if not fetch_value("SELECT to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL"):
        return False
    return bool(
        fetch_value("SELECT EXISTS (SELECT FROM pg_dist_schema WHERE schemaid = current_schema()::regnamespace)")
    )


async def carry_out(connection: asyncpg.Connection, change: Callable[[], object], note: str) -> None:
    """Call `change`, one half of a revision, and execute `note`, in a transaction. Raises what the database does."""
    loop = asyncio.get_running_loop()

    def send(work: Callable[[asyncpg.Connection], Awaitable[Any]]) -> Any:
        async def sent() -> Any:
            return await work(connection)

        return asyncio.run_coroutine_threadsafe(sent(), loop).result()

    def call() -> None:
        _SEND.set(send)
        change()

    await begin(connection)
    try:
        await asyncio.to_thread(call)
        await connection.execute(note)
        await commit(connection)
    except BaseException:
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")
        raise


async def begin(connection: asyncpg.Connection) -> None:
    """Begin a transaction that waits for no lock for longer than a moment."""
    await connection.execute(f"BEGIN; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")


async def commit(connection: asyncpg.Connection) -> None:
    """Commit the transaction of the revision."""
    await connection.execute("COMMIT")


def _send(work: Callable[[asyncpg.Connection], Awaitable[_T]]) -> _T:
    return _SEND.get()(work)
