"""The yardstick: code that one would write by hand for the same rows. No engine, no decisions, no effects.

Both forms update a row of `runs` and append one to `log`, in tables of the same migrated schema as the engine's, with
rows of the size and number that the engine was measured to write.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import msgspec

BATCH: Final = 256
CONNECTIONS: Final = 16

_GROUP_COMMIT: Final = """
WITH b AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::bytea[], $4::bigint[]) AS b(id, n, events, version)
), moved AS (
  UPDATE runs r SET seq = r.seq + b.n, version = r.version + 1, log_bytes = r.log_bytes + octet_length(b.events)
  FROM b WHERE r.id = b.id AND r.version = b.version
  RETURNING r.id, r.tenant, r.seq, r.version, b.n, b.events
), logged AS (
  INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)
  SELECT id, seq, seq - n + 1, tenant, version, clock_timestamp(), events FROM moved
)
SELECT id, version FROM moved
"""
_UPDATE: Final = """
UPDATE runs SET seq = seq + $2, version = version + 1, log_bytes = log_bytes + octet_length($3::bytea) WHERE id = $1
RETURNING tenant, seq, version
"""
_APPEND: Final = """
INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)
VALUES ($1, $2, $3, $4, $5, clock_timestamp(), $6)
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """The rows that the engine writes: `rows` of the log per step, `events` and `bytes` of each, one as `sample`, and a
    row of `runs` to copy."""

    rows: float
    events: int
    bytes: int
    sample: list[dict[str, Any]]
    run: dict[str, Any]

    def row(self, number: int) -> bytes:
        """A row's events, written as anybody would write them."""
        for event in self.sample:
            event["at"] = number
        return msgspec.json.encode(self.sample)


async def shape_of(dsn: str) -> Shape:
    """The shape of the rows that the engine has written to `dsn`, where only runs of the chain have run."""
    connection = await asyncpg.connect(dsn)
    try:
        [(rows, events, size)] = await connection.fetch(
            "SELECT count(*), round(avg(last_seq - first_seq + 1))::int, round(avg(octet_length(events)))::int FROM log"
        )
        steps = await connection.fetchval(
            """SELECT sum((length(events) - length(replace(events, 'step_finished', ''))) / length('step_finished'))
            FROM log_text"""
        )
        sample = await connection.fetchval(
            "SELECT events FROM log ORDER BY abs(octet_length(events) - $1), last_seq LIMIT 1", size
        )
        [run] = await connection.fetch("SELECT * FROM runs WHERE status = 'finished' LIMIT 1")
    finally:
        await connection.close()
    return Shape(
        rows / steps,
        events,
        size,
        msgspec.json.decode(sample),
        {**run, "result": None, "ended_at": None, "status": "running"},
    )


class Reference:
    """A pool over a migrated database of its own, with `BATCH` runs in it."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], shape: Shape, run_ids: list[UUID]) -> None:
        self._pool = pool
        self._shape = shape
        self._run_ids = run_ids
        self._version = shape.run["version"]
        self._connection: Any = None

    @classmethod
    async def open(cls, dsn: str, shape: Shape) -> Reference:
        pool = await asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS)
        run_ids = sorted(uuid4() for _ in range(BATCH))
        columns = list(shape.run)
        places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        insert = f"INSERT INTO runs ({', '.join(columns)}) VALUES ({places})"
        runs = [{**shape.run, "id": run_id, "thread_id": str(run_id)} for run_id in run_ids]
        await pool.executemany(insert, [tuple(run.values()) for run in runs])
        return cls(pool, shape, run_ids)

    async def close(self) -> None:
        if self._connection is not None:
            await self._pool.release(self._connection)
        await self._pool.close()

    async def group_commit(self, steps: int) -> None:
        """Commit `steps` steps of `BATCH` runs at once: each run hands in its row and goes on when it is committed.

        One statement at a time takes everything that was handed in meanwhile, sorted by run, and compares versions.
        """
        numbers = iter(range(round(steps * self._shape.rows)))

        async def step_some(run_id: UUID, version: int) -> None:
            for number in numbers:
                version = await committer.commit(run_id, version, self._shape.row(number))

        async with self._pool.acquire() as connection:
            rows = await connection.fetch("SELECT id, version FROM runs WHERE id = ANY($1)", self._run_ids)
            committer = _GroupCommitter(connection, self._shape.events)
            committing = asyncio.create_task(committer.run())
            await asyncio.gather(*(step_some(run_id, version) for run_id, version in rows))
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)

    async def commit_one(self) -> None:
        """One commit of one run on a connection that is kept, and nothing else."""
        if self._connection is None:
            self._connection = await self._pool.acquire()
        body = self._shape.row(self._version)
        rows = await self._connection.fetch(
            _GROUP_COMMIT, self._run_ids[:1], [self._shape.events], [body], [self._version]
        )
        self._version = rows[0]["version"]

    async def transaction_per_step(self, steps: int) -> None:
        """Commit `steps` steps, each in a transaction of its own, as many at a time as there are connections."""
        numbers = iter(range(steps))

        async def step_some(run_id: UUID) -> None:
            for number in numbers:
                events = self._shape.row(number)
                async with self._pool.acquire() as connection, connection.transaction():
                    [(tenant, seq, version)] = await connection.fetch(_UPDATE, run_id, self._shape.events, events)
                    first_seq = seq - self._shape.events + 1
                    await connection.execute(_APPEND, run_id, seq, first_seq, tenant, version, events)

        await asyncio.gather(*(step_some(run_id) for run_id in self._run_ids))


class _GroupCommitter:
    """The simplest group commit: rows wait for the statement before theirs, then go together."""

    def __init__(self, connection: Any, events: int) -> None:
        self._connection = connection
        self._events = events
        self._waiting: list[tuple[UUID, int, bytes, asyncio.Future[int]]] = []
        self._ready = asyncio.Event()

    async def commit(self, run_id: UUID, version: int, events: bytes) -> int:
        """Return the run's new version, after the commit."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((run_id, version, events, done))
        self._ready.set()
        return await done

    async def run(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            batch, self._waiting = sorted(self._waiting[:BATCH], key=lambda row: row[0].int), self._waiting[BATCH:]
            ids, versions, bodies, futures = zip(*batch, strict=True)
            counts = [self._events] * len(batch)
            won = await self._connection.fetch(_GROUP_COMMIT, ids, counts, bodies, versions)
            new = dict(map(tuple, won))
            for run_id, done in zip(ids, futures, strict=True):
                done.set_result(new[run_id])
