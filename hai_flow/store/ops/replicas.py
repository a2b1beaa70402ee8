"""History read from a replica of the database, always the same as the database itself would give. The database says how
far a request may read a run; the replica's answer is taken only if it is of the same run (born in the same instant) and
nothing is missing up to there. For a list the database gives the end of its log (WAL), and the replica answers once it
has come so far. Anything else is read from the database, so a client always reads its own writes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import asyncpg
import msgspec
import structlog
from msgspec.structs import replace

from hai_flow.errors import StoreError
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.postgres.row_security import Reads
from hai_flow.store.runs import logs
from hai_flow.store.runs.logs import Loaded, LogRow

log = structlog.get_logger(__name__)

PROBE_SECONDS: Final = 0.05
WAITS: Final = (0.005, 0.01, 0.02, 0.0)  # between looks whether it has all that a list needs
SAMPLES: Final = 600  # of how far the database was, one for each look
Answer = TypeVar("Answer")

_INSERTED: Final = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_DATABASE: Final = "pg_control_system() s, pg_database d WHERE d.datname = current_database()"
_WRITTEN: Final = f"""
SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, s.system_identifier, d.oid::bigint,
  ('x' || lpad(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), 8, '0'))::bit(32)::int
FROM {_DATABASE}
"""
_WHICH: Final = f"SELECT s.system_identifier, d.oid FROM {_DATABASE}"
_REPLAYED: Final = f"""
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0'::pg_lsn END, s.system_identifier,
  d.oid::bigint, c.timeline_id
FROM pg_control_checkpoint() c, {_DATABASE}
"""


class Standby(msgspec.Struct, frozen=True):
    """The facts on a replica for `hai-flow doctor`. `follows`: it is a standby. `same`: of the very server and
    database. `seconds`: in how many it had all that the database had; None: not while it was waited for."""

    follows: bool
    same: bool
    seconds: float | None


async def probe(dsn: str, primary: Connection, seconds: float) -> Standby:
    """Look at the replica, and wait so long for it to have all that the database has now. Raises asyncpg's errors."""
    replica = await asyncpg.connect(dsn, timeout=10, statement_cache_size=0)
    try:
        follows = bool(await replica.fetchval("SELECT pg_is_in_recovery()"))
        same = await replica.fetchrow(_WHICH) == await primary.fetchrow(_WHICH)
        if not (follows and same):
            return Standby(follows, same, None)
        position, began = await primary.fetchval(_WRITTEN), time.monotonic()
        while (await replica.fetchval(_REPLAYED) or 0) < position:
            if time.monotonic() - began > seconds:
                return Standby(follows, same, None)
            await asyncio.sleep(PROBE_SECONDS)
        return Standby(follows, same, time.monotonic() - began)
    finally:
        await replica.close()


class Replica:
    """One streaming replica. `look` says whether it is used: `lag_max` seconds behind it is not."""

    def __init__(self, dsn: str, primary: Database, *, lag_max: float) -> None:
        self._dsn = dsn
        self._primary = primary
        self._lag_max = lag_max
        self._database: Database | None = None
        self._written: deque[tuple[float, int]] = deque(maxlen=SAMPLES)
        self.lag: float | None = None
        """How many seconds it was behind at most at the last look; None: unknown."""
        self._told = False
        self.fault: str | None = "it has not been looked at yet"
        self.reads = 0
        """How many readings it has answered, since the start."""
        self.refused = 0
        """How many it lacked something of, or did not answer: the database did."""

    @property
    def usable(self) -> bool:
        return self.fault is None

    async def look(self) -> None:
        """Find out how late it is: remember where the log of the database was at which time, by our own clock alone."""
        try:
            fault = await self._look()
        except (*FAILURES, StoreError, TimeoutError) as error:
            self.lag, fault = None, str(error) or type(error).__name__
        if self.fault is not None and fault is None:
            log.info("replica_used", lag_seconds=self.lag)
        elif fault is not None and (self.fault is None or not self._told):
            log.warning("replica_unused", reason=fault, until="replica_used")
        self.fault, self._told = fault, True

    async def _look(self) -> str | None:
        began = time.monotonic()
        position, *here = await _row(self._primary.api, _WRITTEN)
        self._written.append((began, int(position)))
        database = self._database = self._database or await self._open()
        replayed, *replica_row = await _row(database.api, _REPLAYED)
        if replayed is None:
            return "it is no replica, or one that took over"
        if here != replica_row:  # its places in a log of its own say nothing
            return "it is of another server or database, or of a history that the database has left"
        reached = [at for at, place in self._written if place <= replayed]
        self.lag = time.monotonic() - reached[-1] if reached else None
        if self.lag is None or self.lag > self._lag_max:
            return f"it is more than {self._lag_max:g} s behind"
        return None

    async def _open(self) -> Database:
        deadlines = self._primary.deadlines
        hasty = replace(deadlines, connect_seconds=2.0, acquire_seconds=1.0, statement_seconds=5.0)
        return await Database.open(
            self._dsn, engine_connections=1, deadlines=hasty, behind_pooler=False, listen_dsn=None
        )

    async def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await database.close()

    async def ask_replica(self, tenant: UUID | None, ask: Callable[[Pool], Awaitable[Answer | None]]) -> Answer | None:
        """The answer of `ask` from the replica; None: it lacks something, or does not answer. `tenant`: behind the
        second wall."""
        database = self._database
        if not self.usable or database is None:
            return None
        try:
            answer = await ask(database.api if tenant is None else cast("Pool", Reads(database, tenant)))
        except (*FAILURES, TimeoutError) as error:
            log.info("replica_not_read", error=str(error) or type(error).__name__)
            if not str(getattr(error, "sqlstate", "")).startswith("40"):  # it cancels a reading that is in its way
                self.fault = str(error) or type(error).__name__
            answer = None
        if answer is None:
            self.refused += 1
        else:
            self.reads += 1
        return answer

    async def ask_replica_now(
        self, tenant: UUID, walled: bool, ask: Callable[[Pool], Awaitable[Answer]]
    ) -> Answer | None:
        """As `ask_replica`, for an answer that does not show by itself whether it is complete, like a list: the replica
        answers once it has everything that was committed before this was asked, and is waited for no longer than a
        moment."""
        if not self.usable:
            return None
        position = await self._primary.api.fetchval(_INSERTED)

        async def once_it_has_all(pool: Pool) -> Answer | None:
            assert self._database is not None, "it is usable"
            for rest in WAITS:
                if (await self._database.api.fetchval(_REPLAYED) or 0) >= position:
                    return await ask(pool)
                await asyncio.sleep(rest)
            return None

        return await self.ask_replica(tenant if walled else None, once_it_has_all)


async def _row(pool: Pool, query: str) -> Sequence[Any]:
    row = await pool.fetchrow(query)
    assert row is not None, "each server has one control file"
    return tuple(row)


class History:
    """The log of one run, as far as a request has found that it goes: `seq`. `tenant`: None where requests read
    without the second wall. Its run was born at `created_at`."""

    def __init__(
        self, replica: Replica | None, reads: Pool, tenant: UUID | None, run_id: UUID, created_at: datetime, seq: int
    ) -> None:
        self._replica = replica
        self._reads = reads
        self._tenant = tenant
        self._run_id = run_id
        self._created_at = created_at
        self._seq = seq

    async def read_log(self, after: int, limit: int) -> list[LogRow]:
        """The same as `logs.read_log`, for this run."""

        async def ask(pool: Pool) -> list[LogRow] | None:
            rows = await pool.fetch(_READ, self._run_id, self._created_at, after, limit)
            return _keep_if_gapless([logs.LogRow(*row) for row in rows], after, self._seq, limit)

        log_rows = None if self._replica is None else await self._replica.ask_replica(self._tenant, ask)
        return log_rows if log_rows is not None else await logs.read_log(self._reads, self._run_id, after, limit)

    async def load_at(self, tenant: UUID, seq: int, abi: int) -> Loaded | None:
        """The same as `logs.load_run_at`, for this run."""

        async def ask(pool: Pool) -> Loaded | None:
            born = await pool.fetchval("SELECT created_at FROM runs WHERE id = $1", self._run_id)
            if born != self._created_at:
                return None
            loaded = await logs.load_run_at(pool, tenant, self._run_id, seq, abi)
            if loaded is None:
                return None
            from_seq, last_seq = loaded.snapshot_seq or 0, min(seq, self._seq)
            reaches = from_seq >= last_seq or _keep_if_gapless(loaded.rows, from_seq, last_seq, None) is not None
            return loaded if reaches else None

        run_loaded = None if self._replica is None else await self._replica.ask_replica(self._tenant, ask)
        return (
            run_loaded
            if run_loaded is not None
            else await logs.load_run_at(self._reads, tenant, self._run_id, seq, abi)
        )


_READ: Final = """
SELECT l.first_seq, l.last_seq, l.events FROM runs r JOIN log l ON l.run_id = r.id
WHERE r.id = $1 AND r.created_at = $2 AND l.last_seq > $3 ORDER BY l.last_seq LIMIT $4
"""


def _keep_if_gapless(rows: list[LogRow], after: int, seq: int, limit: int | None) -> list[LogRow] | None:
    """The commits, if none is missing between `after` and `seq`, or the last of `limit`; else None."""
    if after >= seq:
        return rows
    place = after
    for row in rows:
        if row.first_seq > place + 1:
            return None
        place = row.last_seq
    return rows if place >= seq or (limit is not None and len(rows) == limit) else None
