"""The memory that suspended runs take in a process that performs: it should be none, for they are rows in the database.

Some runs are really started and wait for an answer; the others are copies of their rows. Each reading is that of a
child process: `python -m bench.memory DSN` starts a runtime, lets it poll for work, and prints its resident bytes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

import asyncpg

from bench.engine import running
from bench.workflows import QUESTION
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings

STARTED: Final = 10
FEW: Final = 1_000
MANY: Final = 100_000
POLLS: Final = 10
POLL_SECONDS: Final = 0.1
_TABLES: Final = ("runs", "log", "pendings", "inbox", "turns", "messages", "slots")
_ROOT: Final = Path(__file__).resolve().parents[1]


async def measure(dsn: str, *, few: int = FEW, many: int = MANY, readings: int = 3) -> dict[str, Any]:
    """The resident memory beside `many` suspended runs over that beside `few`, in the migrated database `dsn`."""
    async with running(dsn, QUESTION) as engine:
        for _ in range(STARTED):
            await engine.start_run()
    await copy_runs(dsn, few)
    beside_few = [_resident_bytes(dsn) for _ in range(readings)]
    await copy_runs(dsn, many)
    beside_many = [_resident_bytes(dsn) for _ in range(readings)]
    return {
        "suspended_memory_ratio": median(beside_many) / median(beside_few),
        "suspended_runs": {"few": few, "many": many},
        "resident_mib": {"few": median(beside_few) / 2**20, "many": median(beside_many) / 2**20},
    }


async def copy_runs(dsn: str, total: int) -> None:
    """Copy the rows of the started runs under new ids until there are `total` runs."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET synchronous_commit = off")
        count = await connection.fetchval("SELECT count(*) FROM runs")
        await connection.execute(
            "CREATE TEMP TABLE copies AS SELECT r.id AS original, gen_random_uuid() AS id "
            f"FROM generate_series(1, {total - count}) n JOIN "
            f"(SELECT id, row_number() OVER (ORDER BY created_at, id) AS n FROM runs ORDER BY 2 LIMIT {STARTED}) r "
            f"ON r.n = 1 + n.n % {STARTED}"
        )
        for table in _TABLES:
            await connection.execute(_copying(table, await _columns(connection, table)))
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def _columns(connection: asyncpg.Connection[Any], table: str) -> list[str]:
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND table_schema = 'public'"
    return [row[0] for row in await connection.fetch(query, table)]


def _copying(table: str, columns: list[str]) -> str:
    """The statement that copies a table's rows of the originals; each copy is the only run of its thread."""
    key = "id" if table == "runs" else "run_id"
    new = {
        key: "c.id",
        "thread_id": "c.id::text",
        "slot": "'thread:' || c.id",
    }
    values = [new.get(column, f"t.{column}") for column in columns]
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} "
        f"FROM {table} t JOIN copies c ON c.original = t.{key}"
    )


def _resident_bytes(dsn: str) -> int:
    child = subprocess.run(
        [sys.executable, "-m", "bench.memory", dsn], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return int(child.stdout.split()[-1])


async def _poll(dsn: str) -> None:
    """The life of the child: start, look for work for a while, report."""
    runtime = Runtime(dsn, Settings(poll_seconds=POLL_SECONDS), performs=True)
    async with runtime.lifespan():
        await asyncio.sleep(POLLS * POLL_SECONDS)
        resident = _own_resident_bytes()
    print(resident)


def _own_resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


if __name__ == "__main__":
    asyncio.run(_poll(sys.argv[1]))
