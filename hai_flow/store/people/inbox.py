"""The index of people's inboxes: a row for each open question and selector that it asks (`user:`, `role:`, `group:`,
`anyone`), in the order of deadlines. So an inbox is a few ranges of one index, of each no more than a page. The commit
that changes the pending writes the rows; a sweep adds those that releases without an index have left out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.store.commit.commit_sql import due
from hai_flow.store.people.canaries import SHOWN_REQUESTER, SHOWN_WORKFLOW
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page, build_page

Place = tuple[datetime, str]
"""Where a pending stands in an inbox: (due, id)."""
_BEGINNING: Final[Place] = (datetime(1, 1, 2, tzinfo=UTC), "")
_END: Final = datetime(9999, 1, 1, tzinfo=UTC)
_ALWAYS: Final = datetime(1, 1, 2, tzinfo=UTC)
PAGE_MAX: Final = 500  # of `iterate_pages`
SCANNED_MAX: Final = 1000  # pendings that one page with filters looks at


class Filters(msgspec.Struct, frozen=True):
    """Filters of an inbox. `due_before`: only pendings with an earlier deadline; `words`: in lower case."""

    workflow: str | None = None
    kind: str | None = None
    opened_before: datetime | None = None
    opened_after: datetime | None = None
    due_before: datetime | None = None
    words: str | None = None

    @property
    def skip(self) -> bool:
        """Whether a pending that is read may be left out."""
        return any((self.workflow, self.kind, self.opened_before, self.opened_after, self.words))


class OpenQuestion(msgspec.Struct, frozen=True):
    """An open pending that asks somebody, with the columns of its run that the rules need, and those that are shown.
    `votes` are the JSON texts of those cast so far. `workflow` is the sha256 of its run's."""

    place: Place
    run_id: UUID
    id: str
    deadline: datetime | None
    body: bytes
    workflow: bytes
    workflow_name: str
    thread_id: str
    started_by: str
    instigators: str | None
    votes: Sequence[bytes]
    claimed_by: str | None
    claimed_until: datetime | None
    workflow_title: str | None


_RANGES: Final = """
  SELECT DISTINCT ON (i.due, i.pending_id) i.due, i.pending_id, i.run_id
  FROM unnest($2::text[]) AS mine(selector) CROSS JOIN LATERAL (
    SELECT due, pending_id, run_id FROM inbox
    WHERE tenant = $1 AND inbox.selector = mine.selector AND (due, pending_id) > ($3, $4) AND due < $5
    ORDER BY due, pending_id LIMIT $6
  ) i
  ORDER BY i.due, i.pending_id LIMIT $6
"""
_COLUMNS: Final = f"""
  p.run_id, p.id, p.deadline, p.body, r.workflow, {SHOWN_WORKFLOW} AS workflow_name, r.thread_id,
  {SHOWN_REQUESTER} AS started_by, r.instigators, p.claimed_by, p.claimed_until, p.tenant
"""
_ASKED: Final = """
  run_id, id, deadline, body, workflow, workflow_name, thread_id, started_by, instigators,
  ARRAY(SELECT v.body FROM votes v WHERE v.run_id = asked.run_id AND v.pending_id = asked.id
        ORDER BY v.last_seq, v.principal),
  claimed_by, CASE WHEN claimed_until > now() THEN claimed_until END,
  (SELECT w.title FROM workflows w WHERE w.tenant = asked.tenant AND w.sha256 = asked.workflow)
"""
_PAGE: Final = f"""
WITH found AS MATERIALIZED ({_RANGES}), asked AS MATERIALIZED (
  SELECT found.due, {_COLUMNS} FROM found
  JOIN pendings p ON p.run_id = found.run_id AND p.id = found.pending_id
  JOIN runs r ON r.id = found.run_id
  WHERE p.status = 'open'
    AND ($7::text IS NULL OR {SHOWN_WORKFLOW} = $7) AND ($8::text IS NULL OR p.kind = $8)
    AND p.opened_at < $9 AND p.opened_at >= $10 AND ($11::text IS NULL
      OR position($11 IN p.words) > 0 OR position($12 IN lower(convert_from(p.body, 'UTF8'))) > 0)
  ORDER BY found.due, found.pending_id LIMIT $13
)
SELECT found.n, found.last_due, found.last_id, asked.due, {_ASKED}
FROM (
  SELECT count(*) AS n, max(due) AS last_due, (array_agg(pending_id ORDER BY due DESC, pending_id DESC))[1] AS last_id
  FROM found
) found
LEFT JOIN asked ON true
ORDER BY asked.due, asked.id
"""


async def page_of_inbox(
    connection: Connection | Pool,
    tenant: UUID,
    selectors: Sequence[str],
    filters: Filters,
    *,
    limit: int,
    after: Place | None = None,
) -> tuple[list[OpenQuestion], Place | None]:
    """The open pendings that ask one of `selectors`, the next deadline first; and where to go on. With `words` also
    those in whose body they stand somewhere: the caller looks whether it is in what the reader may search.

    A page looks at no more than `SCANNED_MAX` of them, so with filters it may be short, or empty, though there are
    more."""
    scanned = SCANNED_MAX if filters.skip else limit
    arguments = _range(tenant, selectors, filters, after, scanned)
    rows = await connection.fetch(_PAGE, *arguments, *_conditions(filters), limit)
    items = [OpenQuestion((row[3], row[5]), *row[4:]) for row in rows if row[3] is not None]
    if len(items) == limit:
        return items, items[-1].place
    n, last_due, last_id = rows[0][:3]
    return items, (last_due, last_id) if n == scanned else None


async def iterate_pages(
    connection: Connection | Pool, tenant: UUID, selectors: Sequence[str]
) -> AsyncGenerator[list[OpenQuestion], None]:
    """All open questions that ask one of the selectors, page by page."""
    after: Place | None = None
    while selectors:
        questions, after = await page_of_inbox(connection, tenant, selectors, Filters(), limit=PAGE_MAX, after=after)
        yield questions
        if after is None:
            return


def _in_body(words: str | None) -> str | None:
    """The words as they stand in the arguments or the evidence of a body: JSON texts in JSON."""
    return None if words is None else _escape(_escape(words))


def _escape(text: str) -> str:
    return values.dumps(text).decode()[1:-1]


def _range(tenant: UUID, selectors: Sequence[str], filters: Filters, after: Place | None, most: int) -> tuple[Any, ...]:
    return (tenant, list(selectors), *(after or _BEGINNING), filters.due_before or _END, most)


def _conditions(filters: Filters) -> tuple[Any, ...]:
    return (
        filters.workflow,
        filters.kind,
        filters.opened_before or _END,
        filters.opened_after or _ALWAYS,
        filters.words,
        _in_body(filters.words),
    )


async def selectors_of(connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str) -> list[str]:
    """The selectors that the open pending asks; none if it is open no more."""
    query = "SELECT selector FROM inbox WHERE run_id = $1 AND pending_id = $2 AND tenant = $3 ORDER BY selector"
    return [row[0] for row in await connection.fetch(query, run_id, pending_id, tenant)]


async def get_asked(connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str) -> OpenQuestion | None:
    """One open pending, also one that asks other people."""
    query = f"""
    SELECT due, {_ASKED} FROM (
      SELECT {due("p.deadline")} AS due, {_COLUMNS} FROM pendings p JOIN runs r ON r.id = p.run_id
      WHERE p.run_id = $1 AND p.id = $2 AND p.tenant = $3 AND p.status = 'open'
    ) asked
    """
    row = await connection.fetchrow(query, run_id, pending_id, tenant)
    return None if row is None else OpenQuestion((row[0], row[2]), *row[1:])


_COUNTS: Final = f"""
WITH found AS MATERIALIZED ({_RANGES})
SELECT {SHOWN_WORKFLOW} AS name, count(*), (SELECT count(*) FROM found) FROM found
JOIN pendings p ON p.run_id = found.run_id AND p.id = found.pending_id AND p.status = 'open'
JOIN runs r ON r.id = found.run_id
GROUP BY 1 ORDER BY 1
"""


async def count_by_workflow(
    connection: Connection | Pool, tenant: UUID, selectors: Sequence[str], most: int
) -> tuple[dict[str, int], bool]:
    """How many open pendings of each workflow ask one of `selectors`; and whether all were counted: of more than `most`
    only the first ones are."""
    rows = await connection.fetch(_COUNTS, *_range(tenant, selectors, Filters(), None, most + 1))
    return {row[0]: row[1] for row in rows}, not rows or rows[0][2] <= most


# --- claims and decisions ---------------------------------------------------------------------------------------------


async def claim(
    connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str, person: str, time: timedelta
) -> bool:
    """Mark the open pending as that of `person` for so long. False: another person has it now, or it is not open."""
    query = """
    UPDATE pendings SET claimed_by = $4, claimed_until = now() + $5
    WHERE run_id = $1 AND id = $2 AND tenant = $3 AND status = 'open'
      AND (claimed_by = $4 OR claimed_until IS NULL OR claimed_until <= now())
    RETURNING id
    """
    return await connection.fetchval(query, run_id, pending_id, tenant, person, time) is not None


async def release(connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str, person: str) -> bool:
    """Take the person's own mark away. False: there is none."""
    query = """
    UPDATE pendings SET claimed_by = NULL, claimed_until = NULL
    WHERE run_id = $1 AND id = $2 AND tenant = $3 AND claimed_by = $4 RETURNING id
    """
    return await connection.fetchval(query, run_id, pending_id, tenant, person) is not None


class Decided(msgspec.Struct, frozen=True):
    """A person's answer to a pending, by themselves or by a delegate. `status` is the pending's now; `opened` and
    `said` are JSON texts."""

    at: datetime
    pending_id: str
    run_id: UUID
    principal: str
    on_behalf_of: str | None
    decision: str | None
    status: str
    workflow: str
    opened: bytes
    said: bytes
    workflow_title: str | None


_DECIDED: Final = f"""
WITH mine AS MATERIALIZED (
  (SELECT at, pending_id, run_id, principal FROM votes
   WHERE tenant = $1 AND principal = $2 AND at IS NOT NULL AND (at, pending_id) < ($3, $4)
   ORDER BY at DESC, pending_id DESC LIMIT $5)
  UNION
  (SELECT at, pending_id, run_id, principal FROM votes
   WHERE tenant = $1 AND on_behalf_of = $2 AND (at, pending_id) < ($3, $4)
   ORDER BY at DESC, pending_id DESC LIMIT $5)
  ORDER BY at DESC, pending_id DESC LIMIT $5
)
SELECT v.at, v.pending_id, v.run_id, v.principal, v.on_behalf_of, v.decision, p.status,
  CASE WHEN p.status = 'open' THEN {SHOWN_WORKFLOW} ELSE r.workflow_name END, p.body, v.body,
  (SELECT w.title FROM workflows w WHERE w.tenant = r.tenant AND w.sha256 = r.workflow)
FROM mine
JOIN votes v ON v.run_id = mine.run_id AND v.pending_id = mine.pending_id AND v.principal = mine.principal
JOIN pendings p ON p.run_id = mine.run_id AND p.id = mine.pending_id
JOIN runs r ON r.id = mine.run_id
ORDER BY v.at DESC, v.pending_id DESC
"""


async def list_decided_by(
    connection: Connection | Pool, tenant: UUID, person: str, *, limit: int, before: Place | None = None
) -> list[Decided]:
    """The answers of the person, and those of others in their name, the newest first."""
    at, id = before or (_END, "")
    return [Decided(*row) for row in await connection.fetch(_DECIDED, tenant, person, at, id, limit)]


# --- rows that other releases have left out ---------------------------------------------------------------------------


class InboxRow(msgspec.Struct, frozen=True):
    """An open pending as it stands in the inbox: `asks` are the selectors of its rows, `current` says that they, and
    the columns by which it is found, are of its deadline."""

    tenant: UUID
    opened_at: datetime
    id: str
    run_id: UUID
    body: bytes
    workflow: bytes
    started_by: str
    asks: Sequence[str]
    current: bool


_OPEN: Final = f"""
SELECT p.tenant, p.opened_at, p.id, p.run_id, p.body, r.workflow, r.started_by, coalesce(i.asks, '{{}}'),
  p.words IS NOT NULL AND coalesce(i.current, false)
FROM pendings p JOIN runs r ON r.id = p.run_id CROSS JOIN LATERAL (
  SELECT array_agg(i.selector) AS asks, bool_and(i.due = {due("p.deadline")}) AS current FROM inbox i
  WHERE i.run_id = p.run_id AND i.pending_id = p.id
) i
WHERE p.status = 'open' AND (p.tenant, p.opened_at, p.id) > ($1, $2, $3)
ORDER BY p.tenant, p.opened_at, p.id LIMIT $4
"""


async def open_page(connection: Connection | Pool, after: Sequence[Any] | None) -> list[InboxRow]:
    """A page of the open pendings of all tenants, behind the one with the key `after`: tenant, time, id."""
    tenant, opened_at, id = after or (str(UUID(int=0)), _ALWAYS.isoformat(), "")
    arguments = (UUID(tenant), datetime.fromisoformat(opened_at), id, PAGE_ROWS)
    return [InboxRow(*row) for row in await connection.fetch(_OPEN, *arguments)]


_LOCK: Final = "SELECT id FROM runs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"
_MEND: Final = f"""
WITH given AS MATERIALIZED (
  SELECT p.run_id, p.id, p.tenant, {due("p.deadline")} AS due, string_to_array(g.asks, ' ') AS asks, g.kind, g.words
  FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[])
    g(run_id, id, body, asks, kind, words)
  JOIN pendings p ON p.run_id = g.run_id AND p.id = g.id AND p.status = 'open' AND p.body = g.body
  WHERE p.run_id = ANY($7::uuid[])
), named AS (
  UPDATE pendings p SET kind = given.kind, words = given.words FROM given
  WHERE p.run_id = given.run_id AND p.id = given.id
), old_inbox AS (
  DELETE FROM inbox USING given
  WHERE inbox.run_id = given.run_id AND inbox.pending_id = given.id AND inbox.selector <> ALL (given.asks)
)
INSERT INTO inbox (run_id, pending_id, selector, tenant, due)
SELECT given.run_id, given.id, selector, given.tenant, given.due FROM given, unnest(given.asks) selector
ON CONFLICT (run_id, pending_id, selector) DO UPDATE SET due = excluded.due WHERE inbox.due <> excluded.due
"""


async def mend(pool: Pool, found: Sequence[tuple[InboxRow, str, str, str]]) -> None:
    """Write the rows of pendings that are as they were read; each with its selectors, kind and words.

    Their runs are locked first, as a commit does; those that a commit has just now are left to it, or to the next time.
    """
    columns = [[each.run_id for each, *_ in found], [each.id for each, *_ in found], [each.body for each, *_ in found]]
    parts = [list(column) for column in zip(*(each[1:] for each in found), strict=True)]
    async with pool.acquire() as connection, connection.transaction():
        locked = [row[0] for row in await connection.fetch(_LOCK, columns[0])]
        await connection.execute(_MEND, *columns, *parts, locked)


_FORGET: Final = """
WITH page AS MATERIALIZED (
  SELECT run_id, pending_id, selector FROM inbox WHERE (run_id, pending_id, selector) > ($1, $2, $3)
  ORDER BY run_id, pending_id, selector LIMIT $4
), gone AS (
  DELETE FROM inbox i USING page
  WHERE i.run_id = page.run_id AND i.pending_id = page.pending_id AND i.selector = page.selector
    AND NOT EXISTS (SELECT FROM pendings p WHERE p.run_id = i.run_id AND p.id = i.pending_id AND p.status = 'open')
  RETURNING true
)
SELECT count(*) OVER (), (SELECT count(*) FROM gone), run_id::text, pending_id, selector FROM page
ORDER BY page.run_id DESC, page.pending_id DESC, page.selector DESC LIMIT 1
"""


async def delete_closed(connection: Connection | Pool, after: Sequence[Any] | None = None) -> Page:
    """Remove the rows of pendings that are open no more, of a page of rows: a release without inboxes closed them."""
    run_id, pending_id, selector = after or (str(UUID(int=0)), "", "")
    return build_page(await connection.fetchrow(_FORGET, UUID(run_id), pending_id, selector, PAGE_ROWS))
