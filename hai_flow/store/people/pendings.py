"""Open questions to people, as requests read them. Commits alone write them (`commits`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.store.people.canaries import SHOWN_REQUESTER, SHOWN_WORKFLOW
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs.logs import LogRow
from hai_flow.store.runs.viewers import Viewer, render_may_read


@dataclass(frozen=True, slots=True)
class Pending:
    """`body` is the JSON text of the pending as opened; `opened_seq` the last seq of the commit that opened it."""

    run_id: UUID
    id: str
    status: str
    path: str
    digest: bytes
    deadline: datetime | None
    opened_seq: int
    opened_at: datetime
    body: bytes


@dataclass(frozen=True, slots=True)
class PendingSummary(Pending):
    """An open one, with the columns of its run that a list shows."""

    workflow: str
    started_by: str
    sha256: bytes  # of the workflow
    thread_id: str
    workflow_title: str | None
    nobody: str | None = None  # why nobody can decide it just now


_COLUMNS: Final = "run_id, id, status, path, digest, deadline, opened_seq, opened_at, body"
_OF_PENDINGS: Final = ", ".join(f"p.{column}" for column in _COLUMNS.split(", "))
_OF_LOOKED: Final = ", ".join(f"l.{column}" for column in _COLUMNS.split(", "))
# That somebody is asked the pending of the alias `l`, or has voted on it: both by primary keys. (Without a kind it was
# written by a release that had no inbox, until a sweep has seen it.)
_ASKED: Final = (
    "EXISTS (SELECT FROM inbox i WHERE i.run_id = l.run_id AND i.pending_id = l.id AND i.selector = ANY ({}::text[])) "
    "OR EXISTS (SELECT FROM votes v WHERE v.run_id = l.run_id AND v.pending_id = l.id "
    "AND v.principal = ANY ({}::text[]))"
)

# The runs that are forks of each other with the run $3, and those below them: `at` is where a question of theirs stands
# in the run itself.
_REJECTED: Final = """
WITH RECURSIVE up AS (
  SELECT id, branch_of, copied FROM runs WHERE id = $3 AND tenant = $1 AND thread_id = $2
  UNION ALL SELECT r.id, r.branch_of, r.copied FROM up JOIN runs r ON r.id = up.branch_of WHERE up.copied > 0
), family AS (
  SELECT id FROM up
  UNION SELECT r.id FROM family JOIN runs r ON r.branch_of = family.id
  WHERE r.tenant = $1 AND r.thread_id = $2 AND r.copied > 0
), below AS (
  SELECT id, '' AS at FROM family
  UNION ALL SELECT r.id, below.at || r.parent_path || '/' FROM below JOIN runs r ON r.parent_id = below.id
  WHERE r.tenant = $1 AND r.thread_id = $2
), asked AS (
  SELECT DISTINCT ON (below.at || p.path) below.at || p.path AS path, p.run_id, p.id, p.status, p.body
  FROM below JOIN pendings p ON p.run_id = below.id WHERE p.status <> 'voided' OR EXISTS (
    SELECT FROM votes v WHERE v.run_id = p.run_id AND v.pending_id = p.id AND v.decision = 'reject')
  ORDER BY below.at || p.path, p.opened_at DESC, p.id DESC
)
SELECT asked.path, asked.status, asked.body, ARRAY(
  SELECT v.body FROM votes v WHERE v.run_id = asked.run_id AND v.pending_id = asked.id AND v.decision = 'reject'
  ORDER BY v.last_seq, v.principal) AS votes
FROM asked WHERE asked.status = 'reject' OR EXISTS (
  SELECT FROM votes v WHERE v.run_id = asked.run_id AND v.pending_id = asked.id AND v.decision = 'reject')
"""
LOOKED_AT_MAX: Final = 1000
_FORMS_MAX: Final = 100  # questions of one run in which marks are looked for
# What a fork has copied stands among the questions of the other run.
_RUNS_WITH_MARKED_FORMS: Final = f"""
SELECT r.id FROM runs r CROSS JOIN LATERAL (
  SELECT count(*) AS questions, bool_or(position('"inquiry"' IN text) > 0 AND position('"pii"' IN text) > 0) AS marked
  FROM (SELECT convert_from(body, 'UTF8') AS text FROM pendings WHERE run_id = r.id LIMIT {_FORMS_MAX + 1}) p
) asked
WHERE r.tenant = $1 AND r.id = ANY ($2::uuid[])
  AND (r.copied > 0 OR asked.marked OR asked.questions > {_FORMS_MAX})
"""
Place: TypeAlias = tuple[datetime, str]  # opened_at, id


class Page(msgspec.Struct, frozen=True):
    """Pendings of a list. `following`: the place behind which the next page begins, if there may be more."""

    rows: list[PendingSummary]
    following: Place | None


class Refused(msgspec.Struct, frozen=True):
    """A question that was last answered with no, or has a vote that says no: where it stands in the run, and as it was
    asked; `votes` are the JSON texts of those that say no."""

    path: str
    status: str
    body: bytes
    votes: Sequence[bytes]


async def find_refused_in_forks(
    connection: Connection | Pool, tenant: UUID, thread_id: str, run_id: UUID
) -> list[Refused]:
    """The questions with a no of a run, of the runs that are forks of each other with it, and of those below them; of
    several at one path the newest counts."""
    return [Refused(*row) for row in await connection.fetch(_REJECTED, tenant, thread_id, run_id)]


async def find_runs_with_marked_forms(connection: Connection | Pool, tenant: UUID, runs: Collection[UUID]) -> set[UUID]:
    """Those of the runs whose tools may have asked people for personal values by forms of their own: all where they
    have, and few others."""
    return {row[0] for row in await connection.fetch(_RUNS_WITH_MARKED_FORMS, tenant, list(runs))}


async def find_why_nobody(connection: Connection | Pool, run_id: UUID, pending_id: str) -> str | None:
    """Why nobody can decide the open question just now; None: somebody can."""
    query = "SELECT nobody FROM pendings WHERE run_id = $1 AND id = $2 AND status = 'open'"
    fault: str | None = await connection.fetchval(query, run_id, pending_id)
    return fault


async def open_pendings(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    limit: int,
    before: Place | None = None,
    viewer: Viewer | None = None,
    selectors: Sequence[str] = (),
    workflow: str | None = None,
    run_id: UUID | None = None,
) -> Page:
    """The tenant's open pendings, newest first, of the `workflow` or the run where one is given. `viewer`: the
    principal whose list it is; None: it may read all runs. A viewer also sees questions of runs that it may not read,
    if they ask one of `selectors`. `before` is the place of the last one of the page before.

    Of a list that leaves some out, LOOKED_AT_MAX are looked at for a page, in the order of an index; so a page may be
    short, and has a place to go on from."""
    query, arguments = listing(tenant, limit, before, viewer, selectors, workflow, run_id)
    records = await connection.fetch(query, *arguments)
    rows = [PendingSummary(*list(row)[3:]) for row in records if row["run_id"] is not None]
    if len(rows) > limit:
        return Page(rows[:limit], (rows[limit - 1].opened_at, rows[limit - 1].id))
    count, last_at, last_id = list(records[0])[:3]
    return Page(rows, (last_at, last_id) if count == arguments[2] else None)


def listing(
    tenant: UUID,
    limit: int,
    before: Place | None,
    viewer: Viewer | None,
    selectors: Sequence[str],
    workflow: str | None,
    run_id: UUID | None,
) -> tuple[str, list[Any]]:
    """The statement of a page, and its arguments."""
    is_unfiltered = viewer is None and workflow is None
    arguments: list[Any] = [tenant, limit + 1, limit + 1 if is_unfiltered else LOOKED_AT_MAX]

    def given(*values: Any) -> list[str]:
        arguments.extend(values)
        return [f"${number}" for number in range(len(arguments) - len(values) + 1, len(arguments) + 1)]

    looked, conditions = ["p.tenant = $1 AND p.status = 'open'"], ["true"]
    if run_id is not None:
        looked.append(f"p.run_id = {given(run_id)[0]}")
    if before is not None:
        looked.append(f"(p.opened_at, p.id) < ({', '.join(given(*before))})")
    if workflow is not None:
        conditions.append(f"{SHOWN_WORKFLOW} = {given(workflow)[0]}")
    if viewer is not None:
        mine = render_may_read("r", len(arguments) + 1)
        given(*viewer.parameters())
        conditions.append(f"({mine} OR l.kind IS NULL OR {_ASKED.format(*given(list(selectors), list(viewer.ids)))})")
    query = f"""
    WITH looked AS MATERIALIZED (
      SELECT {_OF_PENDINGS}, p.kind, p.nobody FROM pendings p WHERE {" AND ".join(looked)}
      ORDER BY p.opened_at DESC, p.id DESC LIMIT $3
    ), found AS (
      SELECT {_OF_LOOKED}, {SHOWN_WORKFLOW}, {SHOWN_REQUESTER}, r.workflow, r.thread_id,
        (SELECT w.title FROM workflows w WHERE w.tenant = r.tenant AND w.sha256 = r.workflow) AS workflow_title,
        l.nobody
      FROM looked l JOIN runs r ON r.id = l.run_id WHERE {" AND ".join(conditions)}
      ORDER BY l.opened_at DESC, l.id DESC LIMIT $2
    )
    SELECT ends.count, ends.last_at, ends.last_id, found.* FROM (
      SELECT count(*) AS count, (array_agg(opened_at ORDER BY opened_at, id))[1] AS last_at,
        (array_agg(id ORDER BY opened_at, id))[1] AS last_id FROM looked
    ) ends LEFT JOIN found ON true ORDER BY found.opened_at DESC, found.id DESC
    """
    return query, arguments


async def get_pending(connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str) -> Pending | None:
    """The pending, if it is the tenant's. Its id names its run (docs/design/engine.md#ids), so no index is needed."""
    query = f"SELECT {_COLUMNS} FROM pendings WHERE run_id = $1 AND id = $2 AND tenant = $3"
    row = await connection.fetchrow(query, run_id, pending_id, tenant)
    return None if row is None else Pending(*row)


_HISTORY: Final = """
SELECT l.first_seq, l.last_seq, l.events FROM pendings p
JOIN log l ON l.run_id = p.run_id AND l.last_seq > greatest($4, p.opened_seq - 1)
WHERE p.run_id = $2 AND p.id = $3 AND p.tenant = $1 AND position(convert_to($3, 'UTF8') IN l.events) > 0
ORDER BY l.last_seq LIMIT $5
"""


async def history_of(
    connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str, after: int, limit: int
) -> list[LogRow]:
    """Up to `limit` commits of the run's log, from the one that opened the pending, that hold its id and end after the
    seq `after`. Not every event of them is about it."""
    return [LogRow(*row) for row in await connection.fetch(_HISTORY, tenant, run_id, pending_id, after, limit)]
