"""The index of inboxes: its rows follow the pendings, and a page of it costs the same beside a million others."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

import pytest

from hai_flow.store.commit.entries import PendingRow, VoteRow
from hai_flow.store.people import inbox, pendings
from hai_flow.store.people.inbox import Filters
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs.viewers import Viewer
from tests.store.conftest import STRANGER, TENANT, birth, commit, decision
from tests.support import citus

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def asked(id: str, asks: str, deadline: datetime | None = None, status: str = "open", **fields: Any) -> PendingRow:
    return PendingRow(id, status, "step", b"d", deadline, b"{}", asks, "ask", "words", **fields)


async def rows(db: Database) -> list[tuple[str, str]]:
    found = await db.api.fetch("SELECT pending_id, selector FROM inbox ORDER BY pending_id, selector")
    return [(row[0], row[1]) for row in found]


async def ids(db: Database, *selectors: str, tenant: Any = TENANT) -> list[str]:
    found, _ = await inbox.page_of_inbox(db.api, tenant, selectors, Filters(), limit=9)
    return [each.id for each in found]


async def test_rows_follow_whom_a_pending_asks_and_leave_with_it(db: Database) -> None:
    start = birth(pendings=[asked("a", "user:ann role:boss"), asked("b", "anyone")])
    await commit(db, start)
    assert await rows(db) == [("a", "role:boss"), ("a", "user:ann"), ("b", "anyone")]
    await commit(db, decision(start.run_id, 1, pendings=[asked("a", "role:boss role:chief", NOON)]))
    assert await rows(db) == [("a", "role:boss"), ("a", "role:chief"), ("b", "anyone")]
    assert await db.api.fetchval("SELECT count(*) FROM inbox WHERE due = $1", NOON) == 2
    await commit(db, decision(start.run_id, 2, pendings=[asked("a", "", NOON, "approve")]))
    assert await rows(db) == [("b", "anyone")]


async def test_an_entry_that_loses_writes_no_row(db: Database) -> None:
    start = birth(pendings=[asked("a", "user:ann")])
    await commit(db, start)
    await commit(db, decision(start.run_id, 7, pendings=[asked("a", "", status="approve"), asked("b", "user:ann")]))
    assert await rows(db) == [("a", "user:ann")]


async def test_a_pending_is_found_once_by_its_nearest_deadline_in_its_tenant(db: Database) -> None:
    mine = birth(pendings=[asked("a", "user:ann role:boss"), asked("b", "role:boss", NOON), asked("c", "user:bob")])
    theirs = birth(tenant=STRANGER, pendings=[asked("d", "user:ann role:boss")])
    await commit(db, mine, theirs)
    assert await ids(db, "user:ann", "role:boss") == ["b", "a"]
    assert await ids(db, "user:ann", "role:boss", tenant=STRANGER) == ["d"]
    assert await ids(db) == []


async def test_votes_come_with_the_pending(db: Database) -> None:
    start = birth(
        pendings=[asked("a", "role:boss")], votes=[VoteRow("a", "user:x", b"1"), VoteRow("b", "user:y", b"2")]
    )
    await commit(db, start)
    ((found,), _) = await inbox.page_of_inbox(db.api, TENANT, ["role:boss"], Filters(), limit=9)
    assert list(found.votes) == [b"1"]


async def test_a_page_with_filters_looks_at_so_many_and_says_where_to_go_on(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "SCANNED_MAX", 3)
    start = birth(pendings=[asked(f"p{n}", "role:boss") for n in range(8)])
    await commit(db, start)
    await db.api.execute("UPDATE pendings SET kind = 'gate' WHERE id = 'p6'")
    after, seen, pages = None, [], 0
    while True:
        found, after = await inbox.page_of_inbox(
            db.api, TENANT, ["role:boss"], Filters(kind="gate"), limit=2, after=after
        )
        seen += [each.id for each in found]
        pages += 1
        if after is None:
            break
    assert (seen, pages) == (["p6"], 3)


async def test_a_count_is_that_of_my_pendings_and_says_when_it_stopped(db: Database) -> None:
    start = birth(pendings=[asked(f"p{n}", "role:boss user:ann") for n in range(5)])
    other = birth(workflow_name="other", pendings=[asked("q", "user:ann")])
    await commit(db, start, other)
    assert await inbox.count_by_workflow(db.api, TENANT, ["user:ann", "role:boss"], 6) == (
        {"demo": 5, "other": 1},
        True,
    )
    counts, complete = await inbox.count_by_workflow(db.api, TENANT, ["user:ann"], 3)
    assert (sum(counts.values()), complete) == (4, False)
    assert await inbox.count_by_workflow(db.api, TENANT, ["user:eve"], 3) == ({}, True)


# --- beside a million -------------------------------------------------------------------------------------------------

_PLANS_ARE_SEEN = pytest.mark.skipif(
    citus.CITUS is not None, reason="the coordinator of a Citus explains no plan of its nodes"
)
OPEN = int(os.environ.get("TEST_OPEN_PENDINGS", "20000"))  # a million with `make bench-scale`
PORTION = 100_000
MANY = """
WITH made AS (
  INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version, head,
    started_by)
  SELECT gen_random_uuid(), $1, 'w', 'demo', 1, 't', 'waiting', 1, 1, 'h', 'user:a' FROM generate_series(1, $3)
  RETURNING id
), numbered AS (SELECT id, $2 + row_number() OVER () AS n FROM made), opened AS (
  INSERT INTO pendings (run_id, id, tenant, status, path, digest, opened_seq, opened_at, body, kind, words)
  SELECT id, 'p' || n, $1, 'open', 's', 'd', 1, now(), '{}', 'ask', '' FROM numbered
)
INSERT INTO inbox (run_id, pending_id, selector, tenant, due)
SELECT id, 'p' || n, CASE n % 10 WHEN 0 THEN 'role:boss' WHEN 1 THEN 'role:clerk' ELSE 'user:u' || n % 500 END, $1,
  now() + n * interval '1 second' FROM numbered
"""


def _scanned(plan: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Each table that the plan reads: how, and how many rows of it."""
    found = [each for below in plan.get("Plans", ()) for each in _scanned(below)]
    if "Relation Name" in plan:
        read = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
        found.append((plan["Relation Name"], plan["Node Type"], read))
    return found


async def _explained(db: Database, statement: str, *arguments: Any) -> list[tuple[str, str, float]]:
    async with db.api.acquire() as connection:
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *arguments)
    return _scanned(json.loads(text)[0]["Plan"])


async def _open_very_many(db: Database) -> None:
    """In portions: no statement of a `Session` may take more than half a minute."""
    async with db.api.acquire() as connection:
        for done in range(0, OPEN, PORTION):
            await connection.execute(MANY, TENANT, done, min(PORTION, OPEN - done))
        await connection.execute("ANALYZE")


@_PLANS_ARE_SEEN
async def test_my_page_reads_no_more_rows_beside_very_many_open_pendings(db: Database) -> None:
    await _open_very_many(db)
    selectors = ["user:u7", "role:boss", "role:clerk", "anyone"]
    pages = [(Filters(), 51), (Filters(kind="ask", words="zzz"), 51)]
    for filters, limit in pages:
        scanned = inbox.SCANNED_MAX if filters.skip else limit
        arguments = inbox._range(TENANT, selectors, filters, None, scanned)
        read = await _explained(db, inbox._PAGE, *arguments, *inbox._conditions(filters), limit)
        assert {table for table, *_ in read} >= {"inbox", "pendings", "runs"}
        for table, how, count in read:
            assert "Seq" not in how, (table, how)
            assert count <= len(selectors) * scanned, (table, how, count)
    read = await _explained(db, inbox._COUNTS, *inbox._range(TENANT, selectors, Filters(), None, 101))
    assert all("Seq" not in how and count <= len(selectors) * 101 for _, how, count in read), read


@_PLANS_ARE_SEEN
async def test_a_list_of_open_pendings_looks_at_so_many_beside_very_many(db: Database) -> None:
    await _open_very_many(db)
    ann = Viewer(("user:u7",), ("tenant", "user:u7"))
    for viewer, workflow in ((None, None), (None, "other"), (ann, None), (ann, "demo")):
        query, arguments = pendings.listing(TENANT, 50, None, viewer, ["user:u7", "anyone"], workflow, None)
        for table, how, count in await _explained(db, query, *arguments):
            assert "Seq" not in how or table == "workflows", (viewer, table, how)
            assert count <= 2 * pendings.LOOKED_AT_MAX, (viewer, table, how, count)


async def test_who_is_asked_finds_it_in_the_list_though_the_run_is_another_s(db: Database) -> None:
    start = birth(pendings=[asked(f"p{n}", "role:boss" if n % 4 == 0 else "user:ann") for n in range(40)])
    await commit(db, start)
    boss = Viewer(("user:bob",), ("tenant", "user:bob"))

    async def page(limit: int, before: pendings.Place | None = None) -> pendings.Page:
        return await pendings.open_pendings(
            db.api, TENANT, limit=limit, before=before, viewer=boss, selectors=["user:bob", "role:boss", "anyone"]
        )

    found: list[str] = []
    following: pendings.Place | None = None
    while True:
        got = await page(3, following)
        found += [each.id for each in got.rows]
        if (following := got.following) is None:
            break
    assert sorted(found) == sorted(f"p{n}" for n in range(0, 40, 4))
    nobody = Viewer(("user:eve",), ("tenant", "user:eve"))
    none = await pendings.open_pendings(db.api, TENANT, limit=9, viewer=nobody, selectors=["user:eve", "anyone"])
    assert (none.rows, none.following) == ([], None)


async def test_pages_that_leave_much_out_are_short_and_go_on(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendings, "LOOKED_AT_MAX", 5)
    start = birth(pendings=[asked(f"p{n:02}", "role:boss") for n in range(12)])
    other = birth(workflow_name="other", pendings=[asked("q", "user:ann")])
    await commit(db, other, start)
    found: list[str] = []
    following: pendings.Place | None = None
    for _ in range(10):
        page = await pendings.open_pendings(db.api, TENANT, limit=3, before=following, workflow="other")
        found, following = found + [each.id for each in page.rows], page.following
        if following is None:
            break
    assert found == ["q"]
