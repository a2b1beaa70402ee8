"""Workers and the runs that they hold: leases, claims, and how a run is given up (docs/design/store.md#claims)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, cast
from uuid import UUID

import msgspec

from hai_flow.engine.events import ABI
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.error_classes import raise_outcome_unknown

DEAD_AFTER: Final = "1 second"


class Claimed(msgspec.Struct, frozen=True):
    """A run that is now ours. `lost`: it was a dead worker's, so each open attempt is first declared lost; else no open
    attempt has begun and all are performed at once (docs/design/store.md#lost-attempts), and it was due at `due_at`."""

    run_id: UUID
    version: int
    fence: int
    lost: bool
    db_now: datetime
    due_at: datetime | None = None
    queue: str = "default"


# The names of all queues in which a run waits or will, one look into the index each, however many runs there are.
_FREE: Final = "worker IS NULL AND wake_at IS NOT NULL"
WAITING_QUEUES: Final = f"""waiting_queues(name) AS (
  (SELECT queue FROM runs WHERE {_FREE} ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT queue FROM runs WHERE {_FREE} AND queue > w.name ORDER BY queue LIMIT 1)
  FROM waiting_queues w WHERE w.name IS NOT NULL
)"""
_NAMED_QUEUES: Final = "unnest($3::text[], $4::int[]) q(name, most)"
_EVERY_QUEUE: Final = """(
    SELECT w.name, coalesce(given.most, $2) AS most
    FROM waiting_queues w LEFT JOIN unnest($3::text[], $4::int[]) given(name, most) ON given.name = w.name
    WHERE w.name IS NOT NULL ORDER BY w.name <= $5::text, w.name) q"""


def _claim(*, every: bool) -> str:
    """A run of a dead worker is found by worker and queue, a due one by queue and time: runs of other queues are not
    looked at."""
    return f"""
WITH{f" RECURSIVE {WAITING_QUEUES}," if every else ""} dead AS MATERIALIZED (
  SELECT id FROM workers WHERE alive_until < now() - interval '{DEAD_AFTER}'
), lost AS MATERIALIZED (
  SELECT r.id FROM dead JOIN runs r ON r.worker = dead.id AND r.abi <= {ABI}{"" if every else _OF_NAMED}
  LIMIT $2 FOR NO KEY UPDATE OF r SKIP LOCKED
), due AS MATERIALIZED (
  SELECT d.id, d.wake_at FROM {_EVERY_QUEUE if every else _NAMED_QUEUES} CROSS JOIN LATERAL (
    SELECT id, wake_at FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now() AND abi <= {ABI}
    ORDER BY wake_at LIMIT q.most FOR NO KEY UPDATE SKIP LOCKED) d LIMIT $2
), claimed AS (
  UPDATE runs r SET worker = $1, wake_at = NULL, fence = fence + 1, unreadable = NULL
  FROM (SELECT id, true AS lost, NULL::timestamptz AS due_at FROM lost UNION ALL SELECT id, false, wake_at FROM due) x
  WHERE r.id = x.id
    AND EXISTS (SELECT 1 FROM workers WHERE id = $1 AND alive_until > now())
  RETURNING r.id, r.version, r.fence, x.lost, x.due_at, r.queue
)
SELECT id, version, fence, lost, clock_timestamp() AS db_now, due_at, queue FROM claimed
"""


_OF_NAMED: Final = " AND r.queue = ANY ($3::text[])"
_CLAIM: Final = _claim(every=False)
_CLAIM_ANY: Final = _claim(every=True)


async def claim_runs(
    connection: Connection,
    worker_id: int,
    limit: int,
    queues: Sequence[str],
    most: Sequence[int] | None = None,
    *,
    behind: str | None = None,
) -> list[Claimed]:
    """Take up to `limit` runs that are due in `queues`, and up to as many of dead workers, of the same queues
    (docs/design/store.md#claims).

    Those of the first queue come first, and of each no more than `most` says, which has a number for each queue. The
    caller turns the queues, so that none of them waits for ever behind a full one. `behind` not None: of every queue,
    in the order of their names, first those behind this one; `queues` and `most` only bound some of them.

    Runs that a newer release has written to are passed over: this one could not read them.
    Runs that somebody else is committing to are skipped, not waited for. A worker whose lease is over gets none.
    Raises `CommitUnknown`: the heartbeat then tells which runs became ours, but not that they were lost: see
    `refence_runs`."""
    with raise_outcome_unknown():
        arguments = [worker_id, limit, queues, [limit] * len(queues) if most is None else most]
        if behind is None:
            rows = await connection.fetch(_CLAIM, *arguments)
        else:
            rows = await connection.fetch(_CLAIM_ANY, *arguments, behind)
    return [Claimed(*row) for row in rows]


async def register_worker(
    connection: Connection | Pool,
    name: str,
    lease: timedelta,
    *,
    queues: Sequence[str] = ("default",),
    release: str | None = None,
    places: int | None = None,
) -> int:
    """A new worker id, alive for `lease`. A process takes a new one at each start and after it could not renew.

    The rest of its row is for people to see: the queues that it serves (`*`: all), its release, how many attempts it
    performs at once."""
    query = """
    INSERT INTO workers (name, alive_until, queues, release, places, started_at, beat_at)
    VALUES ($1, now() + $2, $3, $4, $5, now(), now()) RETURNING id
    """
    return cast("int", await connection.fetchval(query, name, lease, list(queues), release, places))


async def begin_draining(connection: Connection | Pool, worker_id: int) -> None:
    """The worker takes no more runs, and ends when it has none."""
    await connection.execute("UPDATE workers SET draining_since = now() WHERE id = $1", worker_id)


async def retire_worker(connection: Connection | Pool, worker_id: int) -> None:
    """The worker ends. The runs that it still holds may be claimed at once, as lost."""
    await connection.execute("UPDATE workers SET alive_until = '-infinity' WHERE id = $1", worker_id)


async def list_living_workers(connection: Connection | Pool) -> list[tuple[int, str, float]]:
    """The workers whose runs may not be taken yet, as (id, name, seconds until then)."""
    query = f"""
    SELECT id, name, extract(epoch FROM alive_until + interval '{DEAD_AFTER}' - now())::float8
    FROM workers WHERE alive_until >= now() - interval '{DEAD_AFTER}' AND name NOT LIKE 'nobody:%' ORDER BY id
    """
    return [(row[0], row[1], row[2]) for row in await connection.fetch(query)]


class Attendance(NamedTuple):
    """How many workers give signs of life, and how many runs wait for one: due, and held by no worker that is alive.
    `unserved`: the queues in which runs are due and that no worker serves."""

    alive: int
    waiting: int
    unserved: Sequence[str] = ()


WAITING_COUNTED_MAX: Final = 1000
# A queue is served by a living worker that names it, or serves all. One of a release that knew no queues has no names.
SERVES: Final = """s.alive_until > now() AND s.name NOT LIKE 'nobody:%'
      AND s.draining_since IS NULL AND coalesce(s.queues, '{default}') && ARRAY['*', q.name]"""
UNSERVED_MAX: Final = 20
_ATTENDANCE: Final = f"""
WITH RECURSIVE {WAITING_QUEUES}
SELECT (SELECT count(*) FROM workers WHERE alive_until > now() AND name NOT LIKE 'nobody:%'),
  (SELECT count(*) FROM (
    SELECT FROM waiting_queues q CROSS JOIN LATERAL (
      SELECT FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now() LIMIT $1) due
    UNION ALL
    SELECT FROM workers w CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.worker = w.id LIMIT $1) held
    WHERE w.alive_until <= now()
    LIMIT $1) waiting),
  ARRAY(SELECT q.name FROM waiting_queues q WHERE EXISTS (
      SELECT FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now())
    AND NOT EXISTS (SELECT FROM workers s WHERE {SERVES})
    LIMIT $2)
"""


async def attendance(connection: Connection | Pool) -> Attendance:
    """The workers that perform runs now, of all tenants. No more than `WAITING_COUNTED_MAX` runs are counted, and no
    more than `UNSERVED_MAX` queues named."""
    row = await connection.fetchrow(_ATTENDANCE, WAITING_COUNTED_MAX, UNSERVED_MAX)
    assert row is not None, "it counts"
    return Attendance(*row)


async def delete_dead_workers(connection: Connection | Pool, dead_for: timedelta) -> int:
    """Delete the rows of workers that have been dead for so long and hold nothing; returns how many.

    The row of one that holds something stays: without it its runs would not be found."""
    query = """
    DELETE FROM workers w WHERE w.alive_until < now() - $1::interval
      AND NOT EXISTS (SELECT FROM runs r WHERE r.worker = w.id)
    """
    return int((await connection.execute(query, dead_for)).rpartition(" ")[2])


class LeasedRun(msgspec.Struct, frozen=True):
    run_id: UUID
    version: int
    fence: int


class Heartbeat(msgspec.Struct, frozen=True):
    """`alive` False: the lease is over and can't be renewed; drop everything, take a new id
    (docs/design/store.md#leases). `held` are the runs that this worker holds by the database: the poll of held runs
    (docs/design/store.md#held-runs)."""

    alive: bool
    held: list[LeasedRun]
    db_now: datetime


class Load(NamedTuple):
    """The load of a worker: the runs that it holds, the attempts that it performs, and those that wait for a place."""

    held: int = 0
    attempts: int = 0
    waiting: int = 0


_NO_LOAD: Final = Load()
_HEARTBEAT: Final = """
WITH me AS (UPDATE workers SET alive_until = now() + $2, beat_at = now(), held = $3, attempts = $4, waiting = $5
  WHERE id = $1 AND alive_until > now() RETURNING id)
SELECT (SELECT count(*) FROM me) > 0, array_agg(r.id), array_agg(r.version), array_agg(r.fence), clock_timestamp()
FROM runs r WHERE r.worker = $1
"""


async def heartbeat(
    connection: Connection | Pool, worker_id: int, lease: timedelta, load: Load = _NO_LOAD
) -> Heartbeat:
    """Renew the lease, write the worker's load, and poll the held runs (docs/design/store.md#held-runs). An aggregate,
    so that `alive` is known when nothing is held."""
    row = await connection.fetchrow(_HEARTBEAT, worker_id, lease, *load)
    assert row is not None, "aggregates return one row"
    alive, ids, versions, fences, db_now = row
    return Heartbeat(alive, list(map(LeasedRun, ids or (), versions or (), fences or ())), db_now)


# Locked in the order of their ids, as by commits, whatever plan is made of it: on Citus, or by a session that is not
# ours, it may well go by another index.
_MINE: Final = """
WITH mine AS MATERIALIZED (
  SELECT id FROM runs WHERE worker = $1 AND id = ANY($2::uuid[]) ORDER BY id FOR NO KEY UPDATE
)
"""
_REFENCE: Final = f"""{_MINE}
UPDATE runs r SET fence = r.fence + 1 FROM mine WHERE r.id = mine.id RETURNING r.id, r.version, r.fence
"""


async def refence_runs(connection: Connection, worker_id: int, run_ids: Collection[UUID]) -> list[LeasedRun]:
    """Raise the fence of those of `run_ids` that the worker holds; the others are not in the result.

    For a holder after `CommitUnknown`: its commit may still be running in the server. Chunks that land after the load
    that was to show them would be sent a second time under the same fence, and a decision that does would have the
    holder's next chunks behind it (both found by the torture). Then load.

    Only a fence that is one above the expected one proves that the claim is the one known (or taken by the commit of
    unknown outcome, which raises it by one more; 0 at birth). Any other run that turns out to be held, here or in a
    heartbeat, may come from a claim whose answer was lost, of a dead worker's run: declare its open attempts lost."""
    with raise_outcome_unknown():
        rows = await connection.fetch(_REFENCE, worker_id, sorted(run_ids))
    return [LeasedRun(*row) for row in rows]


_RELEASE: Final = f"""{_MINE}
UPDATE runs r SET worker = NULL, wake_at = $3, fence = r.fence + 1 FROM mine WHERE r.id = mine.id RETURNING r.id
"""


async def release_runs(connection: Connection, worker_id: int, run_ids: Collection[UUID], at: datetime) -> list[UUID]:
    """Hand runs back at shutdown, due at once. Only after each begun attempt was reported or declared lost
    (docs/design/store.md#lost-attempts): the next claim takes every open attempt for one that never began. Returns
    those that were still ours."""
    with raise_outcome_unknown():
        rows = await connection.fetch(_RELEASE, worker_id, sorted(run_ids), at)
    return [row[0] for row in rows]


_GIVE_BACK: Final = """
WITH given AS MATERIALIZED (
  SELECT id, given_back + 1 AS times, least($6::interval * 2 ^ least(given_back, 16), $7::interval) AS pause
  FROM runs WHERE id = $2 AND worker = $1::bigint AND fence = coalesce($3::int, fence) FOR NO KEY UPDATE
), nobody AS (
  INSERT INTO workers (name, alive_until)
  SELECT 'nobody: given back by ' || $1::bigint, now() + pause FROM given WHERE $4::bool RETURNING id
)
UPDATE runs r SET worker = (SELECT id FROM nobody), wake_at = CASE WHEN NOT $4 THEN now() + given.pause END,
  fence = fence + 1, given_back = given.times, unreadable = $5::text
FROM given WHERE r.id = given.id RETURNING given.pause
"""
GIVE_BACK_PAUSE: Final = timedelta(seconds=1)
GIVE_BACK_PAUSE_MAX: Final = timedelta(minutes=5)


async def give_back(
    connection: Connection, worker_id: int, run_id: UUID, fence: int | None, *, begun: bool, reason: str
) -> timedelta | None:
    """Give back a run that this worker holds (under `fence`, if that is known) and can't go on with, for others to
    claim after a pause that doubles each time until a commit. Returns the pause; None: it was ours no more.

    `begun`: its open attempts may have been begun. This process can't write in its log that they are lost, so the run
    goes to a worker that does not exist and dies after the pause: the claim from there declares them lost."""
    arguments = worker_id, run_id, fence, begun, reason, GIVE_BACK_PAUSE, GIVE_BACK_PAUSE_MAX
    with raise_outcome_unknown():
        return cast("timedelta | None", await connection.fetchval(_GIVE_BACK, *arguments))


_NAME_NEWER: Final = f"""
WITH RECURSIVE {WAITING_QUEUES}
UPDATE runs SET unreadable = 'a newer release wrote it, under ABI ' || abi || ', and none of its workers takes it'
WHERE id IN (SELECT r.id FROM waiting_queues q CROSS JOIN LATERAL (SELECT id FROM runs
    WHERE queue = q.name AND worker IS NULL AND wake_at < now() - $1::interval AND abi > {ABI} AND unreadable IS NULL
    LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED) r
  LIMIT 1000)
"""


async def mark_newer(connection: Connection | Pool, overdue_by: timedelta) -> int:
    """Mark runs as unreadable that this release passes over, and that have been due for so long; returns how many. A
    claim by a release that can read them removes the mark."""
    return int((await connection.execute(_NAME_NEWER, overdue_by)).rpartition(" ")[2])


EARLIEST_WAKE: Final = f"""
SELECT min(d.wake_at) FROM q CROSS JOIN LATERAL (
  SELECT wake_at FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at IS NOT NULL AND abi <= {ABI}
  ORDER BY wake_at LIMIT 1) d
"""
_NEXT_WAKE: Final = f"WITH q(name) AS (SELECT unnest($1::text[])) {EARLIEST_WAKE}"
_NEXT_WAKE_BUT: Final = f"""
WITH RECURSIVE {WAITING_QUEUES}, q(name) AS (SELECT name FROM waiting_queues WHERE name <> ALL ($1::text[]))
{EARLIEST_WAKE}
"""
LOST_RUN: Final = f"""
SELECT FROM workers w JOIN runs r ON r.worker = w.id
WHERE w.alive_until < now() - interval '{DEAD_AFTER}' AND r.abi <= {ABI}
"""


async def next_wake(connection: Connection | Pool, queues: Sequence[str], *, but: bool = False) -> datetime | None:
    """When the next free run of `queues` (`but`: of all but these) that this release can read is due; None when none
    ever will by itself."""
    return await connection.fetchval(_NEXT_WAKE_BUT if but else _NEXT_WAKE, queues)
