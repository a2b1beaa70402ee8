"""Tools that leave traces: every perform is a row of `effects` in the test's database, by a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator

import asyncpg
import structlog
from opentelemetry import trace

from hai_flow.steps.tools import Context, tool

MODULES = ("hai_flow.examples", "tests.support.effects")  # where the tests' deployments take tools from
LEDGER = "CREATE TABLE effects (run_id uuid, path text, attempt int, at timestamptz DEFAULT clock_timestamp())"
FLOW = b"""
hai: flow/v1
name: effects
version: 1
input: {type: object, properties: {n: {type: integer, default: 0}}}
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - {id: one, call: fx.note, with: {n: "${{ input.n }}"}}
  - id: both
    parallel:
      left: [{id: left, call: fx.note, with: {n: 1}}]
      right: [{id: right, call: fx.streamed, stream: text, with: {n: 2}}]
  - {id: last, call: fx.blocking, with: {n: 3}}
output: {n: "${{ input.n }}"}
"""
PATHS = {"one", "both/left/left", "both/right/right", "last"}

_dsn = ""
_connections: dict[asyncio.AbstractEventLoop, asyncpg.Connection[asyncpg.Record]] = {}
_lock = asyncio.Lock()
gate = asyncio.Event()
begun: list[tuple[str, str, int]] = []


def write_to(dsn: str) -> None:
    """Let this process keep its ledger in the database `dsn`, and shut the gate."""
    global _dsn, _lock, gate
    _dsn, _lock, gate = dsn, asyncio.Lock(), asyncio.Event()
    begun.clear()


def ledger_name(pid: int) -> str:
    """The application name of the connection of the process `pid` to the ledger."""
    return f"ledger of {pid}"


async def _connected() -> asyncpg.Connection[asyncpg.Record]:
    loop = asyncio.get_running_loop()
    connection = _connections.get(loop)
    if connection is None:
        name = {"application_name": ledger_name(os.getpid())}
        connection = _connections[loop] = await asyncpg.connect(_dsn, server_settings=name)
    return connection


async def _note(context: Context) -> None:
    async with _lock:
        connection = await _connected()
        await connection.execute(
            "INSERT INTO effects (run_id, path, attempt) VALUES ($1, $2, $3)",
            context.run_id, context.path, context.attempt,
        )  # fmt: skip


async def close() -> None:
    """Hang up the ledger of this loop."""
    connection = _connections.pop(asyncio.get_running_loop(), None)
    if connection is not None:
        await connection.close()


@tool
async def note(n: int, context: Context) -> int:
    await _note(context)
    await asyncio.sleep(0.02)
    return n


@tool
async def keyed(n: int, context: Context) -> int:
    """A service that recognises a repetition by its key: a row of `keyed` for each key."""
    async with _lock:
        connection = await _connected()
        await connection.execute(
            "INSERT INTO keyed (key, path, n) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            context.idempotency_key, context.path, n,
        )  # fmt: skip
    return n


@tool
async def streamed(n: int, context: Context) -> AsyncIterator[object]:
    await _note(context)
    for piece in range(3):
        yield f"piece {piece} "
        await asyncio.sleep(0.01)
    yield {"n": n}


@tool
def blocking(n: int) -> int:
    time.sleep(0.005)
    return n


@tool
async def gated(context: Context) -> str:
    """Begins, and ends when the test opens the gate."""
    begun.append((context.run_id, context.path, context.attempt))
    await gate.wait()
    return "through the gate"


@tool
async def tidying(context: Context) -> str:
    """Begins, and when it is cancelled, tidies up until the test opens the gate."""
    begun.append((context.run_id, context.path, context.attempt))
    try:
        await gate.wait()
    except asyncio.CancelledError:
        begun.append((context.run_id, "tidying up", context.attempt))
        await gate.wait()
    return "tidied up"


@tool
async def stubborn() -> None:
    """Goes on for a while after it was cancelled."""
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        await asyncio.sleep(20)


@tool
async def echo(value: object) -> object:
    return value


@tool
def logs(context: Context) -> None:
    """Logs in its thread, by a logger that knows nothing of it."""
    structlog.get_logger("somebody").info("told")


@tool
def traced(context: Context) -> list[str | None]:
    """Its place in a trace: by its context, and by the current span that libraries see."""
    above = trace.get_current_span().get_span_context()
    return [context.traceparent, f"{above.span_id:016x}" if above.is_valid else None]


@tool
async def text(words: int) -> AsyncIterator[str]:
    for word in range(words):
        yield f"word {word} "
        await asyncio.sleep(0.002)


@tool
async def hesitant(context: Context) -> AsyncIterator[str]:
    """Says something. Its first attempt ends when the test opens the gate."""
    yield f"attempt {context.attempt} begins "
    if context.attempt == 1:
        begun.append((context.run_id, context.path, context.attempt))
        await gate.wait()
    yield "and ends"


@tool
async def impatient() -> str:
    """Times out in its first `await`: the timeout cancels the task that the tool runs in."""
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        return "gave up"
    raise AssertionError("nobody sets it")


@tool
async def cancels_itself() -> None:
    """Raises CancelledError although nothing has cancelled it."""
    raise asyncio.CancelledError


@tool
async def flood() -> AsyncIterator[object]:
    """A lot of text in one piece."""
    yield "x" * 200_000
    yield {"done": True}


@tool
async def breaks() -> None:
    raise ValueError("the till is locked")


@tool
async def counting(context: Context) -> str:
    """Tells a hundred times in quick succession how far it is."""
    for number in range(1, 101):
        context.progress("counting", done=number, total=100)
        await asyncio.sleep(0)
    return "counted"


# --- tools that write into the run's own database -----------------------------------------------------------------

PAYMENTS = """
CREATE SCHEMA shop;
CREATE TABLE shop.payments (run_id uuid, path text, attempt int, note text);
CREATE TABLE shop.orders (id int PRIMARY KEY);
CREATE TABLE shop.lines (id int REFERENCES shop.orders DEFERRABLE INITIALLY DEFERRED)
"""
_PAY = "INSERT INTO shop.payments VALUES ($1::text::uuid, $2, $3, $4)"


@tool
async def pay(context: Context, then: str = "return", attempts: int = 0) -> str:
    """Writes a payment in its transaction, and then acts by `then`, in its first `attempts` attempts (0: all)."""
    async with context.transaction() as connection:
        await connection.execute(_PAY, context.run_id, context.path, context.attempt, "paid")
        if attempts and context.attempt > attempts:
            return "paid"
        begun.append((context.run_id, context.path, context.attempt))
        match then:
            case "raise":
                raise ValueError("after the payment")
            case "hang":
                await asyncio.Event().wait()
            case "wait":
                await gate.wait()
            case "end":
                await connection.execute("COMMIT")
            case "end and begin":
                await connection.execute("COMMIT; BEGIN; SAVEPOINT a")
            case "ignore":
                with contextlib.suppress(asyncpg.PostgresError):
                    await connection.execute("SELECT 1 / 0")
            case "overlap":
                await asyncio.gather(connection.execute("SELECT pg_sleep(1)"), connection.execute("SELECT 1"))
            case "owe":
                await connection.execute("INSERT INTO shop.lines VALUES (1)")
            case "hurry":
                async with asyncio.timeout(0.05):
                    await connection.execute("SELECT pg_sleep(60)")
            case "hurry on":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await connection.execute("SELECT pg_sleep(60)")
            case "doze" | "doze on":
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '100ms'")
                gone = asyncio.Event()
                connection.add_termination_listener(lambda _: gone.set())
                await gone.wait()
                if then == "doze":
                    await connection.execute("SELECT 1")
            case "close":
                await connection.close()
                await connection.execute("SELECT 1")
            case "outlive":  # the connection, if somebody cuts it
                await gate.wait()
                await connection.execute("SELECT 1")
            case "outlive within":
                async with context.transaction() as nested:
                    await gate.wait()
                    await nested.execute("SELECT 1")
            case "settings":
                await connection.execute("SET LOCAL search_path TO shop; SET LOCAL ROLE nobody_much")
            case "set":
                return {1, 2}  # type: ignore[return-value]
    return "paid"


@tool
async def pay_in_part(context: Context) -> list[str]:
    """A block that raises rolls back its own statements, and no more."""
    async with context.transaction() as connection:
        await connection.execute(_PAY, context.run_id, context.path, context.attempt, "kept")
    with contextlib.suppress(LookupError):
        async with context.transaction() as connection:
            await connection.execute(_PAY, context.run_id, context.path, context.attempt, "taken back")
            raise LookupError
    async with context.transaction() as connection:
        return [row["note"] for row in await connection.fetch("SELECT note FROM shop.payments")]


@tool
def pay_in_a_thread(context: Context) -> int:
    with context.transaction() as connection:
        connection.execute(_PAY, context.run_id, context.path, context.attempt, "paid")
        connection.executemany(_PAY, [(context.run_id, context.path, context.attempt, "more")])
        ours = "FROM shop.payments WHERE run_id = $1::text::uuid AND path = $2"
        row = connection.fetchrow(f"SELECT count(*) AS n {ours}", context.run_id, context.path)
        assert len(connection.fetch(f"SELECT {ours}", context.run_id, context.path)) == row["n"]
        return int(connection.fetchval(f"SELECT count(*) {ours}", context.run_id, context.path))


PAYING = b"""
hai: flow/v1
name: effects
version: 1
input: {type: object, properties: {n: {type: integer, default: 0}}}
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - {id: one, call: fx.pay}
  - id: both
    parallel:
      left: [{id: left, call: fx.pay}]
      right: [{id: right, call: fx.pay_in_a_thread}]
  - {id: note, call: fx.note, with: {n: 1}}
  - {id: last, call: fx.pay}
"""
PAID = {"one": 1, "both/left/left": 1, "both/right/right": 2, "last": 1}


@tool
async def search(query: str) -> list[str]:
    """Look for pages about something."""
    return [f"https://example.com/{query}/{n}" for n in (1, 2)]


@tool
async def fetch(url: str) -> str:
    """Read a page."""
    return hostile.pop(0) if hostile else f"What is written at {url}"


hostile: list[str] = []
"""Texts of pages whose authors try to give orders to a model."""


@tool
async def order() -> dict[str, object]:
    """A receipt whose numbers have nineteen digits."""
    return {"id": 1234567890123456789, "lines": [{"id": 1234567890123456790}]}
