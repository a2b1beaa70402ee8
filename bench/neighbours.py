"""The effect on a tenant of a neighbour that is at its limit and goes on asking.

`neighbour_at_limit`: the rate at which one tenant starts runs while another, which has started as many as it may in a
minute, sends start after start and is refused each time, divided by its rate while the other is silent. Both have the
same number of clients, none of which pauses, and all go to one process: 0.5 would mean that each gets half of it. A
refusal costs less than a run, so the rate has to be higher.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import httpx2

from bench.engine import running
from bench.workflows import chain
from hai_flow.api.app import create_app
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import keys, tenants

CLIENTS: Final = 4  # of each tenant
RUNS: Final = 40  # in a turn
MINUTE_RUNS: Final = 1  # that the neighbour may start


async def measure(dsn: str, rounds: int) -> dict[str, Any]:
    """`rounds`: so often the tenant has a turn alone, and one beside its neighbour."""
    async with running(dsn, chain(1)) as engine:
        app = create_app(replace(engine.runtime.settings, identity="keys"), engine.runtime)
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        async with (
            _client(transport, await _caller(engine.runtime, "quiet", None)) as quiet,
            _client(transport, await _caller(engine.runtime, "noisy", MINUTE_RUNS)) as noisy,
        ):
            while (await _start(noisy)).status_code != 429:
                pass
            await _rate(quiet)
            alone: list[float] = []
            beside: list[float] = []
            refused = 0
            for _ in range(rounds):
                alone.append(await _rate(quiet))
                async with _hammering(noisy) as counted:
                    beside.append(await _rate(quiet))
                refused += counted[0]
    return {
        "neighbour_at_limit": statistics.median(beside) / statistics.median(alone),
        "neighbour_starts_per_second": {"alone": statistics.median(alone), "beside": statistics.median(beside)},
        "neighbour_refusals_a_start": refused / (rounds * RUNS),
    }


async def _caller(runtime: Runtime, name: str, runs_per_minute: int | None) -> str:
    """Create a tenant with a workflow and this limit. Returns an API key that may start runs of it."""
    pool = runtime.database.api
    made = await tenants.create_tenant(pool, name)
    assert made is not None
    tenant: UUID = made.id
    await tenants.set_limits(pool, name, {"runs_per_minute": runs_per_minute})
    await runtime.catalog.publish(tenant, chain(1))
    _, key = await keys.create_key(pool, tenant, "user:bench", name="bench", roles=["operator"], created_by="bench")
    return key


def _client(transport: httpx2.ASGITransport, key: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers)


async def _start(client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.post("/v1/runs", json={"workflow": "bench_chain"})


async def _rate(client: httpx2.AsyncClient) -> float:
    """Starts per second, of `CLIENTS` at once."""
    numbers = iter(range(RUNS))

    async def some() -> None:
        for _ in numbers:
            answer = await _start(client)
            assert answer.status_code == 201, answer.text

    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(CLIENTS)))
    return RUNS / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def _hammering(client: httpx2.AsyncClient) -> AsyncIterator[list[int]]:
    """Clients that are refused and ask again at once; the number of refusals."""
    counted, over = [0], False

    async def ask() -> None:
        while not over:
            counted[0] += (await _start(client)).status_code == 429

    asking = [asyncio.create_task(ask()) for _ in range(CLIENTS)]
    try:
        yield counted
    finally:
        over = True
        await asyncio.gather(*asking)
