"""The cost of open consoles on which nothing happens, beside tenants in which much does.

`feed_cost_idle`: how often a second one of thirty open consoles, each of another person of one tenant, has a list read,
while runs of another tenant start and end. A read is a transaction or more. Beside it stand the transactions that the
database counts without consoles and with them; their difference holds what the runs cost now more, now less.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import httpx2
from fastapi import FastAPI

from bench.engine import running
from bench.workflows import chain
from hai_flow.api.app import create_app
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import keys, tenants

CONSOLES: Final = 30
PAUSE_SECONDS: Final = 0.2  # between two starts of the other tenant
OPENED_SECONDS: Final = 30.0
SETTLED_SECONDS: Final = 2.0
FLUSHED_SECONDS: Final = 11.0  # until idle sessions of PostgreSQL have reported what they did
_COUNT: Final = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


async def measure(dsn: str, seconds: float, flushed: float = FLUSHED_SECONDS) -> dict[str, Any]:
    """`seconds`: how long each of the windows is."""
    async with running(dsn, chain(1)) as engine:
        settings = replace(engine.runtime.settings, identity="keys", streams_peer_max=2 * CONSOLES)
        app = create_app(settings, engine.runtime)
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        (busy,) = await _callers(engine.runtime, "busy", 1)
        people = await _callers(engine.runtime, "idle", CONSOLES)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000", headers={"Authorization": f"Bearer {busy}"}
        ) as client:
            without = await _transactions(engine.runtime, client, seconds, flushed)
            async with _consoles(app, people) as opened:
                await asyncio.sleep(SETTLED_SECONDS)
                before, began = app.state.lists.reads, time.perf_counter()
                beside = await _transactions(engine.runtime, client, seconds, flushed)
                reads = (app.state.lists.reads - before) / (time.perf_counter() - began)
    return {
        "feed_cost_idle": reads / CONSOLES,
        "feed_transactions_per_second": {"without_consoles": without, "with_consoles": beside},
        "feed_events_of_consoles": opened[0],
    }


async def _callers(runtime: Runtime, name: str, count: int) -> list[str]:
    """Create a tenant with a workflow. Returns the API keys of so many people who may start and see its runs."""
    pool = runtime.database.api
    made = await tenants.create_tenant(pool, name)
    assert made is not None
    await runtime.catalog.publish(made.id, chain(1))
    found = [
        await keys.create_key(
            pool, made.id, f"user:{name}-{n}", name="bench", roles=["operator", "decider"], created_by="bench"
        )
        for n in range(count)
    ]
    return [key for _, key in found]


async def _transactions(runtime: Runtime, client: httpx2.AsyncClient, seconds: float, flushed: float) -> float:
    """Transactions a second, while runs of a tenant start and end at a steady pace."""

    async def keep_starting() -> None:
        while True:
            answer = await client.post("/v1/runs", json={"workflow": "bench_chain"})
            assert answer.status_code == 201, answer.text
            await asyncio.sleep(PAUSE_SECONDS)

    starting = asyncio.create_task(keep_starting())
    try:
        await asyncio.sleep(flushed)
        before, began = await runtime.database.api.fetchval(_COUNT), time.perf_counter()
        await asyncio.sleep(seconds)
        after = await runtime.database.api.fetchval(_COUNT)
        return float(after - before) / (time.perf_counter() - began)
    finally:
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting


@contextlib.asynccontextmanager
async def _consoles(app: FastAPI, people: list[str]) -> AsyncIterator[list[int]]:
    """Open consoles, whose lists have been sent; the number of events they have got."""
    got = [0]
    ready = [asyncio.Event() for _ in people]
    following = [asyncio.create_task(_follow(app, key, got, event)) for key, event in zip(people, ready, strict=True)]
    try:
        opening = asyncio.gather(*(event.wait() for event in ready))
        await asyncio.wait((opening, *following), timeout=OPENED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in following:
            if task.done():
                task.result()
        if not opening.done():
            opening.cancel()
            raise RuntimeError(f"{sum(event.is_set() for event in ready)} of {len(ready)} consoles got their lists")
        yield got
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def _follow(app: FastAPI, key: str, got: list[int], ready: asyncio.Event) -> None:
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/v1/feed", "raw_path": b"/v1/feed", "query_string": b"", "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1:8000"), (b"accept", b"text/event-stream"),
            (b"authorization", f"Bearer {key}".encode()),
        ],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {},
    }  # fmt: skip
    topics = 0

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: Any) -> None:
        nonlocal topics
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        body = message.get("body", b"")
        topics += body.count(b"event: ")
        got[0] += body.count(b"event: ")
        if topics >= 4:
            ready.set()

    await app(scope, receive, send)
