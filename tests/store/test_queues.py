"""Runs wait in queues: a claim finds those of its own, however many wait in others; none waits behind a full one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from hai_flow.store.commit.entries import Moved
from hai_flow.store.ops import metrics_queries
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import leases, run_lists
from hai_flow.store.runs.leases import Claimed
from tests.store.conftest import LEASE, TENANT, as_owner, birth, commit, decision, now, win, worker
from tests.store.test_reads import rows_read

MANY = """
INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version, head,
  started_by, queue, wake_at)
SELECT gen_random_uuid(), $1, 'w', 'w', 1, gen_random_uuid()::text, 'running', 1, 1, 'h', 'user:a', $2,
  now() - interval '1 hour'
FROM generate_series(1, $3)
"""


async def claimed(db: Database, me: int, *given: Any, **more: Any) -> list[Claimed]:
    async with db.engine.acquire() as connection:
        return await leases.claim_runs(connection, me, *given, **more)


async def test_a_claim_takes_only_runs_of_the_queues_that_it_names(db: Database) -> None:
    me = await worker(db)
    plain, gpu = birth(), birth(queue="gpu")
    await commit(db, plain, gpu)
    assert [(each.run_id, each.queue) for each in await claimed(db, me, 10, ["gpu"])] == [(gpu.run_id, "gpu")]
    assert await claimed(db, me, 10, ["gpu"]) == []
    assert [each.run_id for each in await claimed(db, me, 10, ["other", "default"])] == [plain.run_id]


async def test_a_dead_workers_runs_are_taken_by_those_that_serve_their_queue(db: Database) -> None:
    dies, me = await worker(db), await worker(db)
    plain, gpu = birth(), birth(queue="gpu")
    await win(db, plain, gpu, worker=dies)
    await leases.retire_worker(db.engine, dies)
    assert [(each.run_id, each.lost) for each in await claimed(db, me, 10, ["default"])] == [(plain.run_id, True)]
    assert [(each.run_id, each.lost) for each in await claimed(db, me, 10, ["gpu"])] == [(gpu.run_id, True)]


async def test_every_queue_is_claimed_up_to_its_limit_when_all_are_asked_for(db: Database) -> None:
    me = await worker(db)
    for queue in ("a", "b", "c"):
        await commit(db, *(birth(queue=queue) for _ in range(5)))
    first = await claimed(db, me, 6, ["a"], [2], behind="")
    assert Counter(each.queue for each in first) == {"a": 2, "b": 4}
    then = await claimed(db, me, 6, [], [], behind="b")
    assert Counter(each.queue for each in then) == {"c": 5, "a": 1}
    assert Counter(each.queue for each in await claimed(db, me, 50, [], [], behind="c")) == {"a": 2, "b": 1}


async def test_a_process_takes_no_claim_of_a_run_whose_queue_it_does_not_serve(db: Database) -> None:
    me = await worker(db)
    born, known = birth(queue="gpu", elsewhere=True), birth(busy=False, status="waiting", queue="gpu")
    (won, _) = await win(db, born, known, worker=me)
    assert won.worker is None
    mine = birth()
    (decided, other) = await win(db, decision(known.run_id, 1, elsewhere=True), mine, worker=me)
    assert (decided.worker, other.worker) == (None, me)
    assert {each.run_id for each in await claimed(db, me, 10, ["gpu"])} == {born.run_id, known.run_id}
    (held,) = await win(db, decision(known.run_id, 2, elsewhere=True), worker=me)
    assert held.worker == me, "who holds it keeps it until it hands it on"


async def test_a_run_that_moves_to_another_version_waits_in_that_ones_queue(db: Database) -> None:
    me, run = await worker(db), birth(busy=False, status="waiting", wake_at=now())
    await win(db, run)
    moved = Moved(b"v" * 32, 2, False, "gpu")
    await win(db, decision(run.run_id, 1, busy=False, wake_at=now(), moved=moved))
    assert await claimed(db, me, 10, ["default"]) == []
    assert [each.run_id for each in await claimed(db, me, 10, ["gpu"])] == [run.run_id]


async def test_the_next_due_run_is_known_for_chosen_queues_and_all_but_some(db: Database) -> None:
    soon, later = now() + timedelta(hours=1), now() + timedelta(hours=2)
    waits = {"busy": False, "status": "waiting"}
    await win(db, birth(queue="gpu", wake_at=soon, **waits), birth(wake_at=later, **waits))
    assert await leases.next_wake(db.engine, ["default"]) == later
    assert await leases.next_wake(db.engine, [], but=True) == soon
    assert await leases.next_wake(db.engine, ["gpu"], but=True) == later
    assert await leases.next_wake(db.engine, ["gpu", "default"], but=True) is None


@pytest.mark.costly
async def test_what_waits_in_other_queues_costs_a_claim_nothing(db: Database) -> None:
    """By the rows that the statements read, among as many of another queue as make a scan tempting."""
    me, gone = await worker(db), await worker(db)
    await db.engine.execute(MANY, TENANT, "full", 20_000)
    await db.engine.execute(
        "UPDATE runs SET worker = $1, wake_at = NULL WHERE id IN (SELECT id FROM runs LIMIT 9000)", gone
    )
    await leases.retire_worker(db.engine, gone)
    await win(db, *(birth() for _ in range(5)))
    await as_owner(db, "ANALYZE runs")
    asked: list[tuple[str, tuple[Any, ...]]] = []
    async with db.engine.acquire() as connection:
        connection.add_query_logger(lambda query: asked.append((query.query, query.args)))
        await leases.claim_runs(connection, 0, 50, ["default"])  # of a worker that is not there: it takes nothing
        await leases.next_wake(connection, ["default"])
        await leases.next_wake(connection, [], but=True)
        await asyncio.sleep(0)
        assert len(asked) == 3, "a claim is one statement"
        for query, args in list(asked):
            plan = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args))[0]["Plan"]
            assert rows_read(plan) < 60, query
    assert len(await claimed(db, me, 50, ["default"])) == 5


async def test_two_thousand_queues_are_looked_through_by_their_names(db: Database) -> None:
    me = await worker(db)
    await db.engine.execute(
        MANY.replace("$2,", "'q' || n,").replace("generate_series(1, $3)", "generate_series(1, $2) n"), TENANT, 2000
    )
    await db.engine.execute(MANY, TENANT, "full", 5000)
    async with db.engine.acquire() as connection:
        query, args = leases._CLAIM_ANY, (0, 50, [], [], "full")
        plan = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args))[0]["Plan"]
    assert rows_read(plan) < 3 * 2001 + 200
    taken: set[str] = set()
    behind = "full"
    for _ in range(45):
        some = await claimed(db, me, 50, [], [], behind=behind)
        taken |= {each.queue for each in some}
        behind = max((each.queue for each in some), key=lambda name: (name <= behind, name), default=behind)
    assert len(taken) == 2001, "each had its turn"


@pytest.mark.parametrize("queues", [("default",), ("gpu", "*")])
async def test_a_queue_that_nobody_serves_is_named(db: Database, queues: tuple[str, ...]) -> None:
    await leases.register_worker(db.engine, "w", LEASE, queues=queues)
    await win(db, birth(), birth(queue="gpu"), birth(queue="later", busy=False, wake_at=now() + timedelta(days=1)))
    unserved = [] if "*" in queues else ["gpu"]
    assert (await leases.attendance(db.api)).unserved == unserved
    async with db.engine.acquire() as connection:
        await metrics_queries.look(connection, timedelta(0))
        found = await metrics_queries.read_last_counts(connection)
    assert found is not None
    assert {each.name: (each.due, each.workers) for each in found.queues} == {
        "default": (1, 1),
        "gpu": (1, 1 - len(unserved)),
    }
    assert found.waiting.due == 2


async def test_a_draining_worker_serves_no_queue_and_an_old_one_the_default(db: Database) -> None:
    await win(db, birth())
    await as_owner(db, "INSERT INTO workers (name, alive_until) VALUES ('older', now() + interval '1 minute')")
    assert (await leases.attendance(db.api)).unserved == []
    await as_owner(db, "DELETE FROM workers")
    me = await worker(db)
    await leases.begin_draining(db.engine, me)
    assert (await leases.attendance(db.api)) == (1, 1, ["default"])


async def test_the_runs_of_a_queue_are_listed_by_its_index(db: Database) -> None:
    await db.engine.execute(MANY, TENANT, "full", 3000)
    gpu = birth(queue="gpu")
    await win(db, gpu, birth())
    await as_owner(db, "ANALYZE runs")
    for queue, count in (("gpu", 1), ("default", 1), ("full", 50), ("none", 0)):
        asked: list[tuple[str, tuple[Any, ...]]] = []
        async with db.engine.acquire() as connection:
            connection.add_query_logger(lambda query, asked=asked: asked.append((query.query, query.args)))
            wanted = run_lists.Filter(queue=queue)
            assert len(await run_lists.find_runs(connection, TENANT, wanted, limit=50)) == count
            await asyncio.sleep(0)
            query, args = asked[0]
            plan = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args))[0]["Plan"]
        if queue != "default":
            assert rows_read(plan) <= 2 * count, queue
