"""The cost of identity and of row-level security (the second wall) for a request.

`auth_and_rls_cost`: the time of a request with a key, whose reads go behind the wall of row-level security, to that of
the same request of `user:local` without either. Two applications over one runtime, asked in turns in this process, so
no socket hides the difference: one run, and a page of twenty.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any, Final

import httpx2

from bench.engine import running
from bench.workflows import chain
from hai_flow.api.app import create_app
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.identity import keys

RUNS: Final = 40
AT_ONCE: Final = 8
WARM: Final = 50
ROUND: Final = 5  # requests of one application before the other's turn


async def measure(dsn: str, rounds: int) -> dict[str, Any]:
    """`rounds`: so often each application has a turn at each request."""
    async with running(dsn, chain()) as engine:
        await engine.finish_runs(RUNS, AT_ONCE)
        run_id = await engine.runtime.database.api.fetchval("SELECT id FROM runs LIMIT 1")
        _, key = await keys.create_key(
            engine.runtime.database.api, LOCAL_TENANT, "user:bench", name="bench", roles=["viewer"], created_by="bench"
        )
        proof = {"Authorization": f"Bearer {key}"}
        async with _client(engine.runtime, None, {}) as plain, _client(engine.runtime, "keys", proof) as walled:
            one = await _compared(plain, walled, f"/v1/runs/{run_id}", rounds)
            page = await _compared(plain, walled, "/v1/runs?limit=20", rounds)
    costs = [there / here for here, there in (one, page)]
    return {
        "auth_and_rls_cost": statistics.geometric_mean(costs),
        "request_milliseconds": {
            "run": one[0] * 1e3, "run_behind_the_wall": one[1] * 1e3,
            "page": page[0] * 1e3, "page_behind_the_wall": page[1] * 1e3,
        },
    }  # fmt: skip


def _client(runtime: Runtime, identity: str | None, headers: dict[str, str]) -> httpx2.AsyncClient:
    app = create_app(replace(runtime.settings, identity=identity), runtime)
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers)


async def _compared(
    plain: httpx2.AsyncClient, walled: httpx2.AsyncClient, path: str, rounds: int
) -> tuple[float, float]:
    """The median seconds of the request by both."""
    for client in (plain, walled):
        await _asked(client, path, WARM)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for client, into in zip((plain, walled), taken, strict=True):
            into.extend(await _asked(client, path, ROUND))
    return statistics.median(taken[0]), statistics.median(taken[1])


async def _asked(client: httpx2.AsyncClient, path: str, times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        answer = await client.get(path)
        found.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
    return found
