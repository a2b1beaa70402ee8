"""Logs and their folds: loading runs, locking one, reading on, snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.store.commit.entries import CommandRow
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import ON_THE_NODE
from hai_flow.store.postgres.error_classes import raise_outcome_unknown
from hai_flow.store.runs.log_compaction import list_ends


class LogRow(msgspec.Struct, frozen=True, gc=False):
    """The events `first_seq` to `last_seq`, as committed together: JSON text of an array. `parts`: the commits of a row
    that stands for several (`log_compaction`)."""

    first_seq: int
    last_seq: int
    events: bytes
    parts: bytes | None = None

    @property
    def ends(self) -> list[int]:
        """The last event of each of its commits. Raises ValueError where the parts can't be read."""
        return [self.last_seq] if self.parts is None else list_ends(self.parts)


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """A run as of one moment, after `from_seq`: the seq of the caller's state, or 0 where the run is another one than
    that, or not as far. `state` is a snapshot at `snapshot_seq` when one newer than `from_seq` exists; `rows` is the
    log after it (or after `from_seq`), up to `seq`, without gaps. `used`: of the command ids that were asked for those
    that the run has carried out."""

    run_id: UUID
    tenant: UUID
    workflow: bytes
    status: str
    seq: int
    version: int
    fence: int
    worker: int | None
    wake_at: datetime | None
    thread_id: str
    started_by: str
    log_bytes: int
    abi: int
    created_at: datetime
    from_seq: int
    snapshot_seq: int | None
    state: bytes | None
    rows: list[LogRow]
    db_now: datetime
    used: Mapping[str, CommandRow] = {}


_LOADED: Final = """
  r.id, r.tenant, r.workflow, r.status, r.seq, r.version, r.fence, r.worker, r.wake_at, r.thread_id, r.started_by,
  r.log_bytes, r.abi, r.created_at, have.seq, s.seq AS snapshot_seq, s.state, l.firsts, l.last_seqs, l.events,
  clock_timestamp() AS db_now
"""
# A run that began after another of its id was removed has nothing of what the caller has; and a replica, or a standby
# that took over, may be behind that.
_HAVE: Final = """
  SELECT CASE WHEN coalesce(r.created_at = w.created_at, true) AND r.seq >= w.seq THEN w.seq ELSE 0 END AS seq"""
_LOAD: Final = f"""
SELECT {_LOADED}, u.ids, u.shas, u.outcomes
FROM unnest($1::uuid[], $2::bigint[], $3::int[], $5::timestamptz[]) AS w(id, seq, abi, created_at)
JOIN runs r ON r.id = w.id
CROSS JOIN LATERAL ({_HAVE}) have
LEFT JOIN LATERAL (
  SELECT seq, state FROM snapshots s WHERE s.run_id = r.id AND s.abi = w.abi AND s.seq > have.seq
  ORDER BY seq DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (
  SELECT array_agg(last_seq ORDER BY last_seq) AS last_seqs, array_agg(first_seq ORDER BY last_seq) AS firsts,
    array_agg(events ORDER BY last_seq) AS events
  FROM (SELECT last_seq, first_seq, events FROM log
    WHERE run_id = r.id AND last_seq > greatest(have.seq, coalesce(s.seq, 0)) AND last_seq <= r.seq
    ORDER BY last_seq LIMIT $4) AS x) l ON true
LEFT JOIN LATERAL (
  SELECT array_agg(command_id) AS ids, array_agg(body_sha) AS shas, array_agg(outcome) AS outcomes FROM commands
  WHERE run_id = r.id AND command_id = ANY ($6::text[])) u ON true
"""


async def load_runs(
    connection: Connection | Pool,
    run_ids: Sequence[UUID],
    have_seqs: Sequence[int],
    abi: int,
    rows_max: int | None = None,
    births: Sequence[datetime | None] = (),
    command_ids: Collection[str] = (),
) -> dict[UUID, Loaded]:
    """The runs, each from the seq that the caller has already (0: from the beginning) (docs/design/store.md#snapshots).

    One statement, one moment. A run that does not exist is not in the result. `abi` is the version of the state's
    encoding that the caller reads: snapshots of another are passed over. `births`: when the runs began that the caller
    has; one that began at another time is loaded from its beginning. `rows_max`: of each run's log so many commits
    at most, its oldest; `read_log` has the others. `command_ids`: which of these has each run carried out, with the
    answers (docs/design/store.md#command-ids)? The same id with the same `body_sha` gets the first outcome; with
    another it is 409."""
    abis, ids = [abi] * len(run_ids), list(command_ids)
    rows = await connection.fetch(_LOAD, run_ids, have_seqs, abis, rows_max, births, ids)
    return {row[0]: _to_loaded(row, *(each or () for each in row[21:])) for row in rows}


async def find_answered(connection: Connection | Pool, run_ids: Collection[UUID], command_id: str) -> list[str]:
    """The questions that a command of this id has answered in one of the runs."""
    query = "SELECT outcome FROM commands WHERE run_id = ANY ($1::uuid[]) AND command_id = $2"
    outcomes = [values.loads(row[0]) for row in await connection.fetch(query, list(run_ids), command_id)]
    return [each["id"] for outcome in outcomes for each in outcome["value"]["answers"]]


def _to_loaded(row: Any, ids: Sequence[str] = (), shas: Sequence[bytes] = (), outcomes: Sequence[bytes] = ()) -> Loaded:
    firsts, lasts, events = row[17] or (), row[18] or (), row[19] or ()
    log = list(map(LogRow, firsts, lasts, events))
    used = dict(zip(ids, map(CommandRow, ids, shas, outcomes), strict=True))
    return Loaded(*row[:17], rows=log, db_now=row[20], used=used)


_LOAD_AT: Final = f"""
SELECT {_LOADED}
FROM runs r
CROSS JOIN LATERAL (SELECT $5::bigint, $6::timestamptz) AS w(seq, created_at)
CROSS JOIN LATERAL ({_HAVE}) have
LEFT JOIN LATERAL (
  SELECT seq, state FROM snapshots s WHERE s.run_id = r.id AND s.abi = $4 AND s.seq <= $3 AND s.seq > have.seq
  ORDER BY seq DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (
  SELECT array_agg(last_seq ORDER BY last_seq) AS last_seqs, array_agg(first_seq ORDER BY last_seq) AS firsts,
    array_agg(events ORDER BY last_seq) AS events
  FROM log
  WHERE run_id = r.id AND last_seq > coalesce(s.seq, have.seq) AND first_seq <= $3 AND last_seq <= r.seq) l ON true
WHERE r.tenant = $1 AND r.id = $2
"""


async def load_run_at(
    connection: Connection | Pool,
    tenant: UUID,
    run_id: UUID,
    seq: int,
    abi: int,
    have_seq: int = 0,
    birth: datetime | None = None,
) -> Loaded | None:
    """The rows for `state_at(seq)`: the nearest snapshot at or before `seq` and the log after it, as far as `seq`; of
    both only what lies behind `have_seq`, up to which the caller has the state of a run that began at `birth`.

    The last row may go beyond `seq` (rows are commits): fold only its first events. None: the tenant has no run of that
    id."""
    row = await connection.fetchrow(_LOAD_AT, tenant, run_id, seq, abi, have_seq, birth)
    return None if row is None else _to_loaded(row)


_UNLOCKED: Final = "SELECT id FROM runs WHERE id = ANY($1::uuid[]) FOR NO KEY UPDATE SKIP LOCKED"


async def find_locked_runs(connection: Connection | Pool, run_ids: Collection[UUID]) -> set[UUID]:
    """Those of `run_ids` whose rows somebody holds locked in this moment (or that do not exist)."""
    return set(run_ids) - {row[0] for row in await connection.fetch(_UNLOCKED, run_ids)}


@contextlib.asynccontextmanager
async def lock_run(
    connection: Connection, run_id: UUID, have_seq: int, abi: int, birth: datetime | None = None,
    command_ids: Collection[str] = (),
) -> AsyncGenerator[Loaded | None]:  # fmt: skip
    """Take one run alone: a run that lost three times is decided on this state, and committed inside
    (docs/design/store.md#decisions-and-chunks).

    The only place that holds a row's lock across round trips; `idle_in_transaction_session_timeout` ends it when the
    process is stopped. Raises `CommitUnknown` when the connection breaks, at the end of the block as well."""
    with raise_outcome_unknown():
        async with connection.transaction():
            if getattr(connection, "sharded", False):
                await connection.execute(ON_THE_NODE)
            await connection.execute("SELECT FROM runs WHERE id = $1 FOR NO KEY UPDATE", run_id)
            # A statement of its own: the snapshot of the locking one is older than the lock.
            loaded = await load_runs(connection, [run_id], [have_seq], abi, None, [birth], command_ids)
            yield loaded.get(run_id)


async def read_log(connection: Connection | Pool, run_id: UUID, after_seq: int, limit: int) -> list[LogRow]:
    """Up to `limit` commits of the log with an event after `after_seq`, in order. The first may begin before it."""
    query = """
    SELECT first_seq, last_seq, events, parts FROM log WHERE run_id = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3
    """
    return [LogRow(*row) for row in await connection.fetch(query, run_id, after_seq, limit)]


async def find_last_with(connection: Connection | Pool, run_id: UUID, text: bytes, before_seq: int) -> LogRow | None:
    """The newest commit of the log that begins before `before_seq` and has `text` in its JSON, from the end of the log
    backwards. A value that somebody gave may have it, too: look at the events."""
    query = """
    SELECT first_seq, last_seq, events FROM log
    WHERE run_id = $1 AND first_seq < $2 AND position($3::bytea in events) > 0 ORDER BY last_seq DESC LIMIT 1
    """
    row = await connection.fetchrow(query, run_id, before_seq, text)
    return None if row is None else LogRow(*row)


class RunVersion(msgspec.Struct, frozen=True):
    run_id: UUID
    seq: int
    version: int


async def poll_versions(connection: Connection | Pool, run_ids: Sequence[UUID]) -> list[RunVersion]:
    """How far these runs are: the poll of followed runs, for when hints are lost."""
    rows = await connection.fetch("SELECT id, seq, version FROM runs WHERE id = ANY($1::uuid[])", run_ids)
    return [RunVersion(*row) for row in rows]


_SAVE_SNAPSHOT: Final = """
WITH saved AS (
  INSERT INTO snapshots (run_id, seq, tenant, abi, state)
  SELECT id, $2, tenant, $3, $4 FROM runs WHERE id = $1 AND seq >= $2
  ON CONFLICT (run_id, seq) DO UPDATE SET abi = excluded.abi, state = excluded.state WHERE snapshots.abi < excluded.abi
  RETURNING run_id, seq
)
UPDATE runs r SET snapshot_seq = greatest(r.snapshot_seq, saved.seq) FROM saved WHERE r.id = saved.run_id
"""


async def save_snapshot(connection: Connection, run_id: UUID, seq: int, abi: int, state: bytes) -> None:
    """Keep the fold of the first `seq` events. Outside the commit; it may be lost or come late without harm."""
    await connection.execute(_SAVE_SNAPSHOT, run_id, seq, abi, state)
