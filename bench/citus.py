"""`python -m bench.citus DSN`: steps per second of a cell that Citus keeps, against a database of the same server that
has no Citus.

Both are the whole engine, in turns. On Citus each statement is planned anew, by the coordinator and by the node: fewer
and larger batches pay there, so its lanes are one and its batches as large as they may be.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from bench.engine import Engine, running
from bench.workflows import STEPS, chain
from hai_flow.settings import Settings
from hai_flow.store.cells.cells import within
from hai_flow.store.postgres import migrations

LATEST: Final = Path(__file__).parent / "latest-citus.json"
ROUNDS: Final = 5
RUNS: Final = 512
ON_CITUS: Final = Settings(lanes=1, poll_seconds=5.0)


async def measure(coordinator: str) -> dict[str, Any]:
    """Medians of both, in steps per second, and their ratio."""
    rates: dict[str, list[float]] = {"citus": [], "plain": []}
    admin = await asyncpg.connect(coordinator)
    kept, plain = (f"bench_{kind}_{uuid4().hex[:8]}" for kind in ("citus", "plain"))
    beside = urlsplit(coordinator)._replace(path=f"/{plain}").geturl()
    try:
        await admin.execute(f"CREATE SCHEMA {kept}")
        await admin.execute(f"CREATE DATABASE {plain}")
        for dsn in (within(coordinator, kept), beside):
            await migrations.upgrade(dsn)
        async with AsyncExitStack() as stack:
            engines: dict[str, Engine] = {
                "citus": await stack.enter_async_context(running(within(coordinator, kept), chain(), ON_CITUS)),
                "plain": await stack.enter_async_context(running(beside, chain())),
            }
            assert engines["citus"].runtime.database.sharded, "the coordinator shards by schema"
            for engine in engines.values():
                await engine.finish_runs(RUNS // 4)
            for _ in range(ROUNDS):
                for name, engine in engines.items():
                    began = time.perf_counter()
                    await engine.finish_runs(RUNS, RUNS)
                    rates[name].append(RUNS * STEPS / (time.perf_counter() - began))
    finally:
        await admin.execute(f"DROP SCHEMA IF EXISTS {kept} CASCADE")
        await admin.execute(f"DROP DATABASE IF EXISTS {plain}")
        await admin.close()
    medians = {name: statistics.median(each) for name, each in rates.items()}
    return {"cell_on_citus_vs_plain": medians["citus"] / medians["plain"], "steps_per_second": medians}


if __name__ == "__main__":
    found = asyncio.run(measure(sys.argv[1]))
    LATEST.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
