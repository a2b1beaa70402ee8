"""Conversations: a thread is its runs in the order of their birth, and has no row of its own.

That order is `runs.place`, a number that each takes with its thread's slot: clocks step back, and ids come from clocks.
(Runs of before there were places have 0, and stand in the order of their time in front of the others.)

Where it was branched, its *line* leaves out what a branch has abandoned: from its newest run backwards, each run comes
after the one that was born before it, but a branch comes after the one that it `follows`. A fork stands in the place of
the run that it was forked from, whose events it has copied. Nothing is forgotten: a branch can be left in its turn.

No query of a POST reads all of a thread: a line is walked backwards, as far as it is needed. A client is shown the
`WINDOW` of it at once, and its own history is compared with that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs.run_lists import SUMMARY_COLUMNS, RunSummary
from hai_flow.store.runs.viewers import Viewer, render_may_read


class Turn(msgspec.Struct, frozen=True):
    """Turn `n` of a run: events `first_seq` to `last_seq` (None while it is open)."""

    run_id: UUID
    n: int
    wire_run_id: str | None
    body_sha: bytes | None
    first_seq: int
    last_seq: int | None


class Message(msgspec.Struct, frozen=True):
    run_id: UUID
    n: int
    id: str
    role: str
    body: bytes
    seq: int


class Window(NamedTuple):
    """As much of a line as is shown at once: so many of its newest runs, and of those and their children so many of the
    newest messages and calls."""

    runs: int
    messages: int


WINDOW: Final = Window(200, 2000)
ALL: Final = Window(2**31 - 2, 2**31 - 1)


class Position(NamedTuple):
    """How far a thread has got: its newest run that is no child, and that run's seq."""

    run_id: UUID
    seq: int


async def newest_positions(
    connection: Connection | Pool, keys: Sequence[tuple[UUID, str]]
) -> dict[tuple[UUID, str], Position]:
    """How far each of the threads `(tenant, thread_id)` has got; one without a run is not there."""
    query = """
    SELECT wanted.tenant, wanted.thread_id, newest.id, newest.seq
    FROM unnest($1::uuid[], $2::text[]) AS wanted (tenant, thread_id)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM runs
        WHERE tenant = wanted.tenant AND thread_id = wanted.thread_id AND parent_id IS NULL
        ORDER BY place DESC, created_at DESC, id DESC LIMIT 1
    ) AS newest
    """
    rows = await connection.fetch(query, [tenant for tenant, _ in keys], [thread for _, thread in keys])
    return {(row[0], row[1]): Position(row[2], row[3]) for row in rows}


LAST_RUN: Final = f"""
SELECT {SUMMARY_COLUMNS} FROM runs WHERE tenant = $1 AND thread_id = $2 AND parent_id IS NULL
ORDER BY place DESC, created_at DESC, id DESC LIMIT 1
"""


async def last_run(connection: Connection | Pool, tenant: UUID, thread_id: str) -> RunSummary | None:
    """The thread's newest run that is no child: the one that a POST may mean
    (docs/design/protocols.md#one-active-run)."""
    row = await connection.fetchrow(LAST_RUN, tenant, thread_id)
    return None if row is None else RunSummary(*row)


async def next_run(
    connection: Connection | Pool, tenant: UUID, thread_id: str, after: UUID | None = None
) -> RunSummary | None:
    """The thread's first run that is no child and was born after the run `after`; without one, its very first."""
    behind = (
        "" if after is None else "AND (place, created_at, id) > (SELECT place, created_at, id FROM runs WHERE id = $3)"
    )
    query = f"""
    SELECT {SUMMARY_COLUMNS} FROM runs
    WHERE tenant = $1 AND thread_id = $2 AND parent_id IS NULL {behind} ORDER BY place, created_at, id LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, thread_id, *(() if after is None else (after,)))
    return None if row is None else RunSummary(*row)


TURN_OF_WIRE_RUN: Final = """
SELECT t.run_id, t.n, t.wire_run_id, t.body_sha, t.first_seq, t.last_seq
FROM turns t JOIN runs r ON r.id = t.run_id
WHERE t.tenant = $1 AND t.thread_id = $2 AND t.wire_run_id = $3
ORDER BY COALESCE(t.body_sha = $4, false) DESC, r.place DESC, r.created_at DESC, r.id DESC, t.n DESC LIMIT 1
"""


async def find_turn_of_wire_run(
    connection: Connection | Pool, tenant: UUID, thread_id: str, wire_run_id: str, body_sha: bytes | None = None
) -> Turn | None:
    """The turn that a client's POST opened under its own run id: should there be several, the one of that very body,
    else the newest."""
    row = await connection.fetchrow(TURN_OF_WIRE_RUN, tenant, thread_id, wire_run_id, body_sha)
    return None if row is None else Turn(*row)


async def find_turn_of_run(
    connection: Connection | Pool, tenant: UUID, thread_id: str, run_id: UUID, n: int
) -> Turn | None:
    """Turn `n` of a run of the thread that is no child."""
    query = """
    SELECT t.run_id, t.n, t.wire_run_id, t.body_sha, t.first_seq, t.last_seq
    FROM turns t JOIN runs r ON r.id = t.run_id
    WHERE t.run_id = $3 AND t.n = $4 AND t.tenant = $1 AND t.thread_id = $2 AND r.parent_id IS NULL
    """
    row = await connection.fetchrow(query, tenant, thread_id, run_id, n)
    return None if row is None else Turn(*row)


# From the run $3 (of a child: from the run at whose root it stands) backwards, at most $4 runs, and (where it is said)
# no further than the key $5 to $7. `back` is 1 for the first. Each step is one look at an index.
_LINE: Final = """
RECURSIVE up AS (
  SELECT id, parent_id FROM runs WHERE id = $3 AND tenant = $1 AND thread_id = $2
  UNION ALL SELECT r.id, r.parent_id FROM up JOIN runs r ON r.id = up.parent_id
), line AS (
  SELECT r.id, r.branch_of, r.follows, r.place, r.created_at, 1 AS back
  FROM up JOIN runs r ON r.id = up.id WHERE up.parent_id IS NULL
  UNION ALL
  SELECT p.*, line.back + 1 FROM line CROSS JOIN LATERAL (
    (SELECT f.id, f.branch_of, f.follows, f.place, f.created_at FROM runs f
     WHERE line.branch_of IS NOT NULL AND f.id = line.follows)
    UNION ALL
    (SELECT e.id, e.branch_of, e.follows, e.place, e.created_at FROM runs e
     WHERE line.branch_of IS NULL AND e.tenant = $1 AND e.thread_id = $2 AND e.parent_id IS NULL
       AND (e.place, e.created_at, e.id) < (line.place, line.created_at, line.id)
     ORDER BY e.place DESC, e.created_at DESC, e.id DESC LIMIT 1)
  ) p
  WHERE line.back < $4
    AND ($5::bigint IS NULL OR (line.place, line.created_at, line.id) > ($5, $6::timestamptz, $7::uuid))
)
"""
# The messages of the line, the newest first; of each run with those below it, in the order of their birth. $8: not in
# the first $8 runs of it; $9: at most. `{readable}`: which runs of the line; those below one go with it.
_SAID_IN: Final = f"""
WITH {_LINE}, shown AS (
  SELECT id, back, place, created_at FROM line WHERE back > $8 {{readable}}
  UNION ALL
  SELECT c.id, shown.back, c.place, c.created_at FROM shown JOIN runs c ON c.parent_id = shown.id AND c.thread_id = $2
)
SELECT m.run_id, m.n, m.id, m.role, m.body, m.seq FROM shown JOIN messages m ON m.run_id = shown.id
WHERE m.tenant = $1 AND m.thread_id = $2
ORDER BY shown.back, shown.place DESC, shown.created_at DESC, shown.id DESC, m.n DESC LIMIT $9
"""
_SAID: Final = _SAID_IN.format(readable="")
_SAID_TO: Final = _SAID_IN.format(
    readable=f"AND EXISTS (SELECT FROM runs r WHERE r.id = line.id AND {render_may_read('r', 10)})"
)
_NO_END: Final = (None, None, None)


async def line(
    connection: Connection | Pool, tenant: UUID, thread_id: str, tip: UUID, limit: int = ALL.runs
) -> list[UUID]:
    """The thread as its run `tip` goes on with it: the runs before it, oldest first, and itself; the last `limit` of
    them. Without children."""
    query = f"WITH {_LINE} SELECT id FROM line ORDER BY back DESC"
    return [row[0] for row in await connection.fetch(query, tenant, thread_id, tip, limit, *_NO_END)]


class Relative(msgspec.Struct, frozen=True):
    """Another run of a thread, whose log begins with the same `shared` events."""

    run_id: UUID
    shared: int


async def relatives(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> list[Relative]:
    """The runs of its thread with which the run has a beginning in common, because one was forked from the other, or
    both from the same run."""
    query = """
    SELECT id, branch_of, copied FROM runs
    WHERE tenant = $1 AND thread_id = (SELECT thread_id FROM runs WHERE id = $2) AND parent_id IS NULL AND copied > 0
    """
    forks = {row[0]: (row[1], row[2]) for row in await connection.fetch(query, tenant, run_id)}
    own = _origins(run_id, forks)
    shared_by_run = dict[UUID, int]()
    for other in {*forks, *(of for of, _ in forks.values())} - {run_id}:
        theirs = _origins(other, forks)
        shared_by_run[other] = max((min(own[each], theirs[each]) for each in own.keys() & theirs.keys()), default=0)
    return [Relative(other, shared) for other, shared in shared_by_run.items() if shared]


def _origins(run_id: UUID, forks: Mapping[UUID, tuple[UUID, int]]) -> dict[UUID, int]:
    """The run, and those that it was forked from, each with how many of its events the run has."""
    lengths, copied, run = {run_id: 2**53}, 2**53, run_id
    while run in forks:
        run, most = forks[run]
        copied = min(copied, most)
        lengths[run] = copied
    return lengths


async def transcript(
    connection: Connection | Pool,
    tenant: UUID,
    thread_id: str,
    *,
    before: UUID | None = None,
    window: Window = ALL,
    viewer: Viewer | None = None,
) -> list[Message]:
    """The messages of the line of the thread's newest run, or of those that come before the run `before` in its: the
    runs in order, each with its children's, each run's messages in order. Only messages in the `window`, and of runs
    that `viewer` may read, where one is given."""
    tip = before
    if tip is None:
        newest = await last_run(connection, tenant, thread_id)
        if newest is None:
            return []
        tip = newest.id
    left_out = 0 if before is None else 1
    arguments = (tip, window.runs + left_out, *_NO_END, left_out, window.messages)
    if viewer is None:
        rows = await connection.fetch(_SAID, tenant, thread_id, *arguments)
    else:
        rows = await connection.fetch(_SAID_TO, tenant, thread_id, *arguments, *viewer.parameters())
    return [Message(*row) for row in reversed(rows)]


async def message_ids(
    connection: Connection | Pool, tenant: UUID, thread_id: str, tip: UUID, window: Window = WINDOW
) -> list[tuple[str, str]]:
    """(id, role) of the messages and calls of the line that ends with `tip`, in order; only those in the `window`."""
    query = f"SELECT said.id, said.role FROM ({_SAID}) AS said"
    rows = await connection.fetch(query, tenant, thread_id, tip, window.runs, *_NO_END, 0, window.messages)
    return [(row[0], row[1]) for row in reversed(rows)]


async def find_unseen(
    connection: Connection | Pool,
    tenant: UUID,
    thread_id: str,
    message_ids: Collection[str],
    *,
    behind: tuple[UUID, int] | None = None,
) -> set[str]:
    """Those of `message_ids` that the thread does not have; those that it did not have yet `behind` an event (run,
    seq), in the line of that run."""
    query = """
    SELECT m.id, m.run_id, m.seq, r.place, r.created_at FROM messages m JOIN runs r ON r.id = m.run_id
    WHERE m.tenant = $1 AND m.thread_id = $2 AND m.id = ANY($3::text[])
    """
    rows = await connection.fetch(query, tenant, thread_id, list(message_ids))
    if rows and behind is not None:
        tip, last_seq = behind
        oldest = min((row[3], row[4], row[1]) for row in rows)
        walked = f"WITH {_LINE} SELECT id FROM line"
        visible = {row[0] for row in await connection.fetch(walked, tenant, thread_id, tip, ALL.runs, *oldest)}
        rows = [row for row in rows if row[1] in visible and (row[1] != tip or row[2] <= last_seq)]
    return set(message_ids) - {row[0] for row in rows}
