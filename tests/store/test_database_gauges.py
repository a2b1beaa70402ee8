"""Counting what waits, a page at a time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.store.ops import health, metrics_queries
from hai_flow.store.people import undecidable
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import leases
from tests.store.conftest import LEASE, STRANGER, TENANT, birth, commit, now

AT_ONCE = timedelta()
AN_HOUR = timedelta(hours=1)


async def look(db: Database, every: timedelta = AT_ONCE) -> metrics_queries.MetricsRound:
    async with db.engine.acquire() as connection:
        await metrics_queries.look(connection, every)
        found = await metrics_queries.read_last_counts(connection)
    assert found is not None
    return found


async def counted(db: Database) -> Counter[tuple[str, str]]:
    """The runs of a whole round, from its beginning."""
    while (await look(db)).place is not None:
        pass
    found = await look(db)
    while found.place is not None:
        found = await look(db)
    assert found.runs is not None
    return Counter({(workflow, status): number for workflow, status, number in found.runs})


@pytest.mark.parametrize(("runs", "groups"), [(1, 1000), (3, 1000), (2, 2), (1000, 1), (1000, 1000)])
async def test_a_round_counts_each_open_run_once_whatever_the_pages(
    db: Database, monkeypatch: pytest.MonkeyPatch, runs: int, groups: int
) -> None:
    monkeypatch.setattr(metrics_queries, "PAGE_RUNS", runs)
    monkeypatch.setattr(metrics_queries, "PAGE_GROUPS", groups)
    assert await counted(db) == Counter()
    statuses = ["waiting", "running", "finished", "paused", "failed", "waiting", "queued"]
    made: Counter[tuple[str, str]] = Counter()
    for number in range(12):
        status, workflow = statuses[number % len(statuses)], "ab"[number % 2]
        tenant = (TENANT, STRANGER, UUID(int=3))[number % 3]
        await commit(db, birth(tenant=tenant, status=status, workflow_name=workflow, busy=status == "running"))
        made[workflow, status] += status not in ("finished", "failed")
    assert await counted(db) == +made


async def test_runs_that_were_born_in_one_moment_are_counted_across_pages(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_queries, "PAGE_RUNS", 2)
    await commit(db, *(birth(status="waiting", busy=False) for _ in range(7)))
    assert await counted(db) == {("demo", "waiting"): 7}


async def test_one_process_looks_in_the_time_and_all_of_them_know(db: Database) -> None:
    await commit(db, birth(status="waiting", busy=False))
    first = await look(db, AN_HOUR)
    await commit(db, birth(status="waiting", busy=False))
    assert await look(db, AN_HOUR) == first
    assert first.runs == [("demo", "waiting", 1)]
    async with db.engine.acquire() as connection:
        assert not await metrics_queries.look(connection, AN_HOUR)


async def test_workflows_beyond_the_bound_are_counted_together(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_queries, "WORKFLOWS_MAX", 3)
    for number in range(6):
        await commit(db, birth(status="waiting", busy=False, workflow_name=f"w{number}"))
    found = await counted(db)
    assert len(found) == 4
    assert found[metrics_queries.OTHER, "waiting"] == 3


async def test_what_is_due_and_what_is_late_is_told_with_its_age(db: Database) -> None:
    assert (await look(db)).waiting == metrics_queries.Waiting()
    for seconds in (1, 60, 600):
        entry = birth(status="waiting", busy=False, wake_at=now() - timedelta(seconds=seconds))
        await commit(db, entry)
    await commit(db, birth(status="waiting", busy=False, wake_at=now() + AN_HOUR))
    waiting = (await look(db)).waiting
    assert (waiting.due, waiting.overdue) == (3, 2)
    assert 600 <= waiting.due_age < 700


async def test_what_a_dead_worker_holds_is_late(db: Database) -> None:
    async with db.engine.acquire() as connection:
        worker = await leases.register_worker(connection, "w", LEASE)
        await commit(db, birth(), worker=worker)
        assert (await look(db)).waiting.workers == 1
        assert (await look(db)).waiting.overdue == 0
        await leases.retire_worker(connection, worker)
    waiting = (await look(db)).waiting
    assert (waiting.workers, waiting.overdue) == (0, 1)


async def test_open_questions_are_counted_and_the_oldest_of_all_tenants_is_known(db: Database) -> None:
    for tenant, seconds, status in ((TENANT, 5, "open"), (STRANGER, 500, "open"), (UUID(int=9), 9000, "approve")):
        entry = birth(tenant=tenant)
        await commit(db, entry)
        await db.api.execute(
            "INSERT INTO pendings (run_id, id, tenant, status, path, digest, opened_seq, opened_at, body) "
            "VALUES ($1, 'p', $2, $3, 's', '', 1, now() - $4::interval, '')",
            entry.run_id,
            tenant,
            status,
            timedelta(seconds=seconds),
        )
    waiting = (await look(db)).waiting
    assert waiting.pendings == 2
    assert 500 <= waiting.pendings_age < 600


def scans(plan: dict[str, Any]) -> list[tuple[str, str]]:
    found = [scan for below in plan.get("Plans", ()) for scan in scans(below)]
    return [*found, (plan["Node Type"], plan["Relation Name"])] if "Relation Name" in plan else found


async def test_no_look_goes_through_a_table(db: Database) -> None:
    """The database could choose to, if an index did not fit: seq scans are only made dear."""
    await commit(db, *(birth(status="waiting", busy=False) for _ in range(200)))
    asked: list[tuple[str, tuple[Any, ...]]] = []
    async with db.engine.acquire() as connection:
        connection.add_query_logger(lambda query: asked.append((query.query, query.args)))
        await metrics_queries.look(connection, AT_ONCE)
        looked = [(query, args) for query, args in asked if "sweeps" not in query]
        assert len(looked) == 4
        for query, args in looked:
            (answer,) = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {query}", *args))
            through = [table for kind, table in scans(answer["Plan"]) if kind == "Seq Scan" and table != "workers"]
            assert through == [], query


async def test_stranded_questions_are_found_without_the_other_open_ones(db: Database) -> None:
    entry = birth()
    await commit(db, entry)
    await db.api.execute(
        "INSERT INTO pendings (run_id, id, tenant, status, path, digest, opened_seq, opened_at, body, nobody) "
        "SELECT $1, n::text, $2, 'open', 's', '', 1, now(), '', CASE WHEN n = 1 THEN 'on leave' END "
        "FROM generate_series(1, 1000) n",
        entry.run_id,
        TENANT,
    )
    asked: list[tuple[str, tuple[Any, ...]]] = []
    async with db.api.acquire() as connection:
        await connection.execute("ANALYZE pendings")
        connection.add_query_logger(lambda query: asked.append((query.query, query.args)))
        await metrics_queries.look(connection, AT_ONCE)
        await health.read_facts(connection)
        assert await undecidable.list_marked(connection) == [(entry.run_id, "1")]
        await asyncio.sleep(0)  # the driver tells of a statement a moment later
        looked = [(query, args) for query, args in asked if "nobody IS NOT NULL" in query]
        assert len(looked) == 3
        for query, args in looked:
            (answer,) = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args))
            assert count_rows_left_out(answer["Plan"]) < 10, query


def count_rows_left_out(plan: dict[str, Any]) -> int:
    """The rows that were read and not wanted."""
    return plan.get("Rows Removed by Filter", 0) + sum(count_rows_left_out(below) for below in plan.get("Plans", ()))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["waiting", "queued"])), max_size=30))
def test_what_is_kept_of_a_round_is_read_as_it_was(counts: list[tuple[str, str]]) -> None:
    found = metrics_queries.MetricsRound(at=1.5, counting=[(name, status, 3) for name, status in counts])
    found.place = metrics_queries.RoundPosition(TENANT, "waiting", "2026-03-02 12:00:00.123456+00", STRANGER)
    assert msgspec.json.decode(msgspec.json.encode(found), type=metrics_queries.MetricsRound) == found
