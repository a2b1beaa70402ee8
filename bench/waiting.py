"""`python -m bench.waiting`: the bytes on disk of a run that waits for a person, and how fast these runs are started.

The table of docs/scale.md is computed from it (`python -m docs.scale_page`).
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

import asyncpg

from bench.engine import running
from bench.server import durable_server
from bench.workflows import QUESTION

LATEST: Final = Path(__file__).parent / "latest-waiting.json"
RUNS: Final = 4000
_SIZES: Final = """
SELECT coalesce(sum(pg_table_size(oid)), 0)::bigint, coalesce(sum(pg_indexes_size(oid)), 0)::bigint,
  pg_current_wal_lsn() - '0/0'
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


async def measure(dsn: str) -> dict[str, Any]:
    """Bytes of tables, indexes and WAL for each waiting run, and runs started in a second."""
    async with running(dsn, QUESTION) as engine:
        await asyncio.gather(*(engine.start_run() for _ in range(200)))
        connection = await asyncpg.connect(dsn)
        try:
            before = await _sizes(connection)
            began = time.perf_counter()
            await asyncio.gather(*(engine.start_run() for _ in range(RUNS)))
            took = time.perf_counter() - began
            while await connection.fetchval("SELECT count(*) FROM runs WHERE status = 'waiting'") < RUNS:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            after = await _sizes(connection)
        finally:
            await connection.close()
    tables, indexes, wal = ((late - early) / RUNS for early, late in zip(before, after, strict=True))
    return {
        "table_bytes": round(tables),
        "index_bytes": round(indexes),
        "wal_bytes": round(wal),
        "starts_per_second": round(RUNS / took),
    }


async def _sizes(connection: asyncpg.Connection) -> list[int]:
    row = await connection.fetchrow(_SIZES)
    assert row is not None, "it counts"
    return [int(each) for each in row]


if __name__ == "__main__":
    with durable_server() as database:
        found = asyncio.run(measure(database("waiting")))
    LATEST.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
