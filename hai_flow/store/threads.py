"""Conversations: a thread is its runs in the order of their creation, and has no row of its own (STORE H13).

Where it was branched, its *line* leaves out what a branch has abandoned: from its newest run backwards, each run comes
after the one that was created before it, but a branch comes after the one that it `follows`. A fork stands in the place
of the run that it was forked from, whose events it has copied. Nothing is forgotten: a branch can be left in its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from hai_flow.store.runs import SUMMARY_COLUMNS, RunSummary

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn `n` of a run: events `first_seq` to `last_seq` (None while it is open)."""

    run_id: UUID
    n: int
    wire_run_id: str | None
    body_sha: bytes | None
    first_seq: int
    last_seq: int | None


@dataclass(frozen=True, slots=True)
class Message:
    run_id: UUID
    n: int
    id: str
    role: str
    body: bytes
    seq: int


class Place(NamedTuple):
    """How far a thread has got: its newest run that is nobody's child, and that run's seq."""

    run_id: UUID
    seq: int


async def newest_places(
    connection: Connection | Pool, keys: Sequence[tuple[UUID, str]]
) -> dict[tuple[UUID, str], Place]:
    """How far each of the threads `(tenant, thread_id)` has got; one without a run is not there."""
    query = """
    SELECT wanted.tenant, wanted.thread_id, newest.id, newest.seq
    FROM unnest($1::uuid[], $2::text[]) AS wanted (tenant, thread_id)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM runs
        WHERE tenant = wanted.tenant AND thread_id = wanted.thread_id AND parent_id IS NULL
        ORDER BY created_at DESC, id DESC LIMIT 1
    ) AS newest
    """
    rows = await connection.fetch(query, [tenant for tenant, _ in keys], [thread for _, thread in keys])
    return {(row[0], row[1]): Place(row[2], row[3]) for row in rows}


async def runs_of_thread(connection: Connection | Pool, tenant: UUID, thread_id: str) -> list[RunSummary]:
    """The thread's runs, oldest first."""
    query = f"""
    SELECT {SUMMARY_COLUMNS} FROM runs WHERE tenant = $1 AND thread_id = $2 ORDER BY created_at, id
    """
    return [RunSummary(*row) for row in await connection.fetch(query, tenant, thread_id)]


async def last_run(connection: Connection | Pool, tenant: UUID, thread_id: str) -> RunSummary | None:
    """The thread's newest run that is nobody's child: the one that a POST may mean (DESIGN section 11)."""
    query = f"""
    SELECT {SUMMARY_COLUMNS} FROM runs WHERE tenant = $1 AND thread_id = $2 AND parent_id IS NULL
    ORDER BY created_at DESC, id DESC LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, thread_id)
    return None if row is None else RunSummary(*row)


async def turn_of_wire_run(
    connection: Connection | Pool, tenant: UUID, thread_id: str, wire_run_id: str, body_sha: bytes | None = None
) -> Turn | None:
    """The turn that a client's POST opened under its own run id: should there be several, the one of that very body,
    else the newest."""
    query = """
    SELECT t.run_id, t.n, t.wire_run_id, t.body_sha, t.first_seq, t.last_seq
    FROM turns t JOIN runs r ON r.id = t.run_id
    WHERE t.tenant = $1 AND t.thread_id = $2 AND t.wire_run_id = $3
    ORDER BY COALESCE(t.body_sha = $4, false) DESC, r.created_at DESC, r.id DESC, t.n DESC LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, thread_id, wire_run_id, body_sha)
    return None if row is None else Turn(*row)


async def turns_of_run(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> list[Turn]:
    """The run's turns in order."""
    query = """
    SELECT run_id, n, wire_run_id, body_sha, first_seq, last_seq FROM turns WHERE run_id = $1 AND tenant = $2 ORDER BY n
    """
    return [Turn(*row) for row in await connection.fetch(query, run_id, tenant)]


async def turn_of_run(connection: Connection | Pool, tenant: UUID, thread_id: str, run_id: UUID, n: int) -> Turn | None:
    """Turn `n` of a run of the thread that is nobody's child."""
    query = """
    SELECT t.run_id, t.n, t.wire_run_id, t.body_sha, t.first_seq, t.last_seq
    FROM turns t JOIN runs r ON r.id = t.run_id
    WHERE t.run_id = $3 AND t.n = $4 AND t.tenant = $1 AND t.thread_id = $2 AND r.parent_id IS NULL
    """
    row = await connection.fetchrow(query, tenant, thread_id, run_id, n)
    return None if row is None else Turn(*row)


class _Member(NamedTuple):
    """A run of a thread, as far as its line depends on it."""

    id: UUID
    parent_id: UUID | None
    branch_of: UUID | None
    follows: UUID | None


async def _members(connection: Connection | Pool, tenant: UUID, thread_id: str) -> list[_Member]:
    query = """
    SELECT id, parent_id, branch_of, follows FROM runs WHERE tenant = $1 AND thread_id = $2 ORDER BY created_at, id
    """
    return [_Member(*row) for row in await connection.fetch(query, tenant, thread_id)]


def _line(members: Sequence[_Member], tip: UUID | None) -> list[UUID]:
    """The line that ends with `tip`; that of a child ends with the run at whose root it stands."""
    own = [each for each in members if each.parent_id is None]
    parents = {each.id: each.parent_id for each in members}
    while tip is not None and (parent := parents.get(tip)) is not None:
        tip = parent
    before: dict[UUID, UUID | None] = {}
    for n, run in enumerate(own):
        before[run.id] = run.follows if run.branch_of is not None else own[n - 1].id if n else None
    found: list[UUID] = []
    while tip is not None:
        found.append(tip)
        tip = before[tip]
    return found[::-1]


def _with_children(members: Sequence[_Member], line: Sequence[UUID]) -> list[UUID]:
    """Each run of the line with those below it, in the order of their creation."""
    below: dict[UUID, list[UUID]] = {run_id: [run_id] for run_id in line}
    roots = {run_id: run_id for run_id in line}
    for run in members:
        root = roots.get(run.parent_id) if run.parent_id is not None else None
        if root is not None:
            roots[run.id] = root
            below[root].append(run.id)
    return [run_id for root in line for run_id in below[root]]


_IN_LINE: Final = """
FROM messages m JOIN unnest($3::uuid[]) WITH ORDINALITY AS line(run_id, place) USING (run_id)
WHERE m.tenant = $1 AND m.thread_id = $2 ORDER BY line.place, m.n
"""


async def line(connection: Connection | Pool, tenant: UUID, thread_id: str, tip: UUID) -> list[UUID]:
    """The thread as its run `tip` goes on with it: the runs before it, oldest first, and itself. Without children."""
    return _line(await _members(connection, tenant, thread_id), tip)


async def transcript(
    connection: Connection | Pool, tenant: UUID, thread_id: str, *, before: UUID | None = None
) -> list[Message]:
    """The messages of the line of the thread's newest run, or of those that come before the run `before` in its: the
    runs in order, each with its children's, each run's messages in order."""
    members = await _members(connection, tenant, thread_id)
    newest = next((each.id for each in reversed(members) if each.parent_id is None), None)
    line = _line(members, before or newest)
    query = f"SELECT m.run_id, m.n, m.id, m.role, m.body, m.seq {_IN_LINE}"
    shown = _with_children(members, line[:-1] if before is not None else line)
    return [Message(*row) for row in await connection.fetch(query, tenant, thread_id, shown)]


async def message_ids(connection: Connection | Pool, tenant: UUID, thread_id: str, tip: UUID) -> list[tuple[str, str]]:
    """(id, role) of the messages and calls of the line that ends with `tip`, in order."""
    members = await _members(connection, tenant, thread_id)
    query = f"SELECT m.id, m.role {_IN_LINE}"
    shown = _with_children(members, _line(members, tip))
    return [(row[0], row[1]) for row in await connection.fetch(query, tenant, thread_id, shown)]


async def unseen(
    connection: Connection | Pool,
    tenant: UUID,
    thread_id: str,
    message_ids: Collection[str],
    *,
    behind: tuple[UUID, int] | None = None,
) -> set[str]:
    """Those of `message_ids` that the thread does not have; those that it did not have yet `behind` an event (run,
    seq), in the line of that run."""
    query = "SELECT id, run_id, seq FROM messages WHERE tenant = $1 AND thread_id = $2 AND id = ANY($3::text[])"
    rows = await connection.fetch(query, tenant, thread_id, list(message_ids))
    if rows and behind is not None:
        tip, last_seq = behind
        shown = set(await line(connection, tenant, thread_id, tip))
        rows = [row for row in rows if row[1] in shown and (row[1] != tip or row[2] <= last_seq)]
    return set(message_ids) - {row[0] for row in rows}
