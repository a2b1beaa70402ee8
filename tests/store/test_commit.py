"""One commit: who wins, who loses, and what is written. Named after the failures of docs/design/store.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import CommandRow, Entry, MessageRow, OutboxRow, PendingRow, TurnRow, VoteRow
from hai_flow.store.messaging import concurrency_slots, triggers
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import CommitUnknown, ErrorClass, classify
from hai_flow.store.postgres.orphan_cleanup import Page
from hai_flow.store.runs import leases, logs, run_lists
from tests.store.conftest import (
    LEASE,
    STRANGER,
    TENANT,
    birth,
    chunks,
    commit,
    decision,
    load,
    now,
    somebody_waits,
    win,
    worker,
)
from tests.support import citus
from tests.support.values import require
from tests.support.waiting import until


# docs/design/store.md#one-entry-per-run
async def test_a_run_twice_in_one_batch_is_refused_before_it_is_sent(db: Database) -> None:
    start = birth()
    with pytest.raises(AssertionError, match="at most once"):
        await commit(db, start, decision(start.run_id, 1))


async def test_entries_in_any_order_are_told_their_own_outcome(db: Database) -> None:
    starts = [birth() for _ in range(20)]
    await commit(db, *starts)
    entries = [decision(start.run_id, 1, n=i + 1) for i, start in enumerate(starts)]
    entries[7] = decision(starts[7].run_id, 2)
    entries.insert(3, birth(n=40))
    outcome = await commit(db, *entries)
    assert require(outcome.pop(3)).seq == 40
    assert [won and won.seq for won in outcome] == [i + 2 if i != 7 else None for i in range(20)]


# docs/design/store.md#locks
async def test_rows_are_locked_by_id_whatever_the_order_of_entries(db: Database) -> None:
    starts = [birth() for _ in range(8)]
    await commit(db, *starts)
    first, *others = sorted(start.run_id for start in starts)
    async with db.api.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", first)
        sent = asyncio.create_task(commit(db, *(decision(run_id, 1) for run_id in (*reversed(others), first))))
        await until(lambda: somebody_waits(db))
        assert await logs.find_locked_runs(db.api, [first, *others]) == {first}, (
            "it waits before it holds any of the others"
        )
    assert None not in await sent


async def test_a_log_row_says_which_events_it_holds_and_the_chain_covers_them(db: Database) -> None:
    start = birth(n=2, events=b"[1,2]")
    await commit(db, start)
    await commit(db, decision(start.run_id, 1, n=3, events=b"[3,4,5]"))
    loaded = await load(db, start.run_id)
    assert [(row.first_seq, row.last_seq, row.events) for row in loaded.rows] == [(1, 2, b"[1,2]"), (3, 5, b"[3,4,5]")]
    assert (loaded.seq, loaded.version, loaded.log_bytes) == (5, 2, 12)
    assert await db.api.fetchval("SELECT head = sha256(sha256('[1,2]') || '[3,4,5]') FROM runs")


async def test_a_run_is_born_once(db: Database) -> None:
    start = birth()
    assert (await commit(db, start))[0]
    assert await commit(db, start) == [None]
    outcomes = await asyncio.gather(*(commit(db, birth(UUID(int=9))) for _ in range(8)))
    assert Counter(won is not None for (won,) in outcomes) == {True: 1, False: 7}
    assert len((await load(db, UUID(int=9))).rows) == 1


async def test_of_two_decisions_on_one_version_one_wins(db: Database) -> None:
    start = birth()
    await commit(db, start)
    outcomes = await asyncio.gather(*(commit(db, decision(start.run_id, 1)) for _ in range(6)))
    assert Counter(won is not None for (won,) in outcomes) == {True: 1, False: 5}
    assert (await load(db, start.run_id)).seq == 2


# docs/design/store.md#tenants
async def test_another_tenant_s_entry_loses_and_writes_nothing(db: Database) -> None:
    start = birth()
    await commit(db, start)
    vote = VoteRow("p", "user:b", b"{}")
    assert await commit(db, decision(start.run_id, 1, tenant=STRANGER, votes=[vote])) == [None]
    assert await db.api.fetchval("SELECT count(*) FROM votes") == 0
    assert await run_lists.get_run(db.api, STRANGER, start.run_id) is None


# docs/design/store.md#claims
async def test_a_zombie_reports_what_it_began_but_does_not_get_the_claim_back(db: Database) -> None:
    a, b = await worker(db), await worker(db)
    start = birth()
    (won,) = await win(db, start, worker=a)
    assert won.worker == a
    await leases.retire_worker(db.engine, a)
    async with db.lane() as connection:
        (claimed,) = await leases.claim_runs(connection, b, 10, ["default"])
    assert (claimed.run_id, claimed.lost, claimed.fence, claimed.version) == (start.run_id, True, won.fence + 1, 1)
    (late,) = await win(db, decision(start.run_id, 1), worker=a)
    assert late.worker == b
    assert await commit(db, chunks(start.run_id, late.fence), worker=a) == [None]
    assert await commit(db, chunks(start.run_id, won.fence), worker=a) == [None]


async def test_a_dead_worker_s_commit_takes_no_claim_so_that_somebody_alive_can(db: Database) -> None:
    a, b = await worker(db), await worker(db)
    start = birth(busy=False, status="waiting")
    await commit(db, start)
    await leases.retire_worker(db.engine, a)
    (won,) = await win(db, decision(start.run_id, 1), worker=a)
    assert won.worker is None
    async with db.lane() as connection:
        (claimed,) = await leases.claim_runs(connection, b, 10, ["default"])
    assert not claimed.lost


async def test_the_heartbeat_reports_unknown_runs_and_decisions_by_others(db: Database) -> None:
    me = await worker(db)
    start = birth()
    await commit(db, start, worker=me)  # imagine that the answer was lost
    await commit(db, decision(start.run_id, 1))  # and an API process decided
    beat = await leases.heartbeat(db.engine, me, LEASE)
    assert beat.alive
    assert [(held.run_id, held.version) for held in beat.held] == [(start.run_id, 2)]


async def test_a_lease_that_is_over_is_not_renewed_even_when_nothing_is_held(db: Database) -> None:
    me = await worker(db, timedelta(0))
    beat = await leases.heartbeat(db.engine, me, LEASE)
    assert (beat.alive, beat.held) == (False, [])
    await commit(db, birth(busy=False, wake_at=now()))
    async with db.lane() as connection:
        assert await leases.claim_runs(connection, me, 10, ["default"]) == []


# docs/design/store.md#decisions-and-chunks
@pytest.mark.usefixtures("either_statement")
async def test_chunks_neither_lose_to_decisions_nor_defeat_them(db: Database) -> None:
    me = await worker(db)
    start = birth()
    (born,) = await win(db, start, worker=me)
    (won,) = await win(db, chunks(start.run_id, born.fence), worker=me)
    assert (won.seq, won.version) == (2, 1)
    (vote,) = await win(db, decision(start.run_id, 1))
    assert (vote.seq, vote.version, vote.worker) == (3, 2, me)
    assert (await commit(db, chunks(start.run_id, born.fence), worker=me))[0]
    assert (await commit(db, decision(start.run_id, 2, cut=True)))[0]
    assert await commit(db, chunks(start.run_id, born.fence), worker=me) == [None]


@pytest.mark.usefixtures("either_statement")
async def test_a_raised_fence_keeps_out_what_the_holder_sent_before(db: Database) -> None:
    me, other = await worker(db), await worker(db)
    start, foreign = birth(), birth()
    (born,) = await win(db, start, worker=me)
    await commit(db, foreign, worker=other)
    async with db.lane() as connection:
        held = await leases.refence_runs(connection, me, [foreign.run_id, start.run_id])
    assert [(each.run_id, each.fence) for each in held] == [(start.run_id, born.fence + 1)]
    assert await commit(db, chunks(start.run_id, born.fence), worker=me) == [None]
    assert await commit(db, decision(start.run_id, 1, fence=born.fence), worker=me) == [None]
    late, ours = decision(start.run_id, 1, fence=born.fence), decision(foreign.run_id, 1)
    assert [won is not None for won in await commit(db, late, ours, worker=me)] == [False, True]
    assert (await commit(db, decision(start.run_id, 1), worker=other))[0]
    assert (await commit(db, decision(start.run_id, 2, fence=born.fence + 1), worker=me))[0]


# docs/design/store.md#refused-batches
async def test_a_nul_in_a_text_is_a_data_error_and_stores_none_of_the_batch(db: Database) -> None:
    good, bad = birth(), birth(commands=[CommandRow("nul\x00", b"", b"")])
    with pytest.raises(asyncpg.PostgresError) as failure:
        await commit(db, good, bad)
    assert classify(failure.value) is ErrorClass.DATA
    assert await run_lists.list_runs(db.api, TENANT, limit=5) == []
    assert (await commit(db, good))[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"commands": [CommandRow("\ud800", b"", b"")]},
        {"n": 2**40},
        {"votes": [VoteRow("p", "user:a", b""), VoteRow("p", "user:a", b"")]},
        {"pendings": [PendingRow("p", s, "a", b"", None, b"") for s in ("open", "approve")]},
    ],
    ids=["a lone surrogate", "a number too large", "the same row twice", "a pending twice"],
)
async def test_whatever_can_never_be_stored_is_a_data_error(db: Database, changes: dict[str, Any]) -> None:
    with pytest.raises(Exception) as failure:  # noqa: PT011 - which one is the driver's business
        await commit(db, birth(**changes))
    assert classify(failure.value) is ErrorClass.DATA


# docs/design/store.md#command-ids
async def test_a_command_id_is_carried_out_once_and_its_outcome_is_kept(db: Database) -> None:
    start = birth()
    await commit(db, start)
    vote = CommandRow("c1", b"sha", b'{"first":true}')
    assert (await commit(db, decision(start.run_id, 1, commands=[vote])))[0]
    again = decision(start.run_id, 2, commands=[CommandRow("c0", b"", b""), CommandRow("c1", b"other", b"{}")])
    assert await commit(db, again) == [None]
    (stored,) = (await logs.load_runs(db.engine, [start.run_id], [0], 1, command_ids=["c0", "c1"])).values()
    assert stored.used == {"c1": CommandRow("c1", b"sha", b'{"first":true}')}
    other = birth(commands=[vote])
    assert (await commit(db, other))[0], "ids are the run's own"
    third = birth()
    await commit(db, third)
    assert (await commit(db, decision(third.run_id, 1, commands=[vote])))[0], "also those of a run that is there"


# docs/design/store.md#slots
async def slots_of(db: Database) -> list[str]:
    """The slots of the tenant that are taken; to ask who holds one would free those of runs that have ended."""
    return [row[0] for row in await db.api.fetch("SELECT slot FROM slots WHERE tenant = $1", TENANT)]


@pytest.mark.usefixtures("either_statement")
async def test_a_finished_run_frees_its_slot_in_the_same_commit(db: Database) -> None:
    start = birth(slot="thread:1")
    await commit(db, start)
    assert await concurrency_slots.slot_holder(db.api, TENANT, "thread:1") == start.run_id
    assert await commit(db, birth(slot="thread:1")) == [None]
    assert (await commit(db, birth(slot="thread:1", tenant=STRANGER)))[0], "slots are the tenant's own"
    await commit(db, decision(start.run_id, 1, status="finished", busy=False, result=b'{"output":1}'))
    assert await slots_of(db) == []
    run = require(await run_lists.get_run(db.api, TENANT, start.run_id))
    assert run.result == b'{"output":1}'
    assert run.ended_at is not None


@pytest.mark.usefixtures("either_statement")
async def test_a_run_begins_with_the_slot_that_is_its_own_already(db: Database) -> None:
    start, rival = birth(slot="k#1"), birth(slot="k#1")
    await db.api.execute("INSERT INTO slots (tenant, slot, run_id) VALUES ($1, 'k#1', $2)", TENANT, start.run_id)
    assert await commit(db, rival) == [None]
    assert (await commit(db, start))[0]


@pytest.mark.usefixtures("either_statement")
async def test_a_start_repeated_with_another_slot_takes_none(db: Database) -> None:
    start = birth(slot="k#1")
    await commit(db, start)
    assert await commit(db, birth(start.run_id, slot="k#2")) == [None]
    assert await concurrency_slots.slot_holder(db.api, TENANT, "k#2") is None


async def test_a_reopened_run_takes_its_slot_again_or_loses(db: Database) -> None:
    start = birth(slot="thread:1")
    await commit(db, start)
    await commit(db, decision(start.run_id, 1, status="failed", busy=False, result=b'{"error":1}'))
    rival = birth(slot="thread:1")
    await commit(db, rival)
    retry = decision(start.run_id, 2, status="running", take_slot="thread:1")
    assert await commit(db, retry) == [None]
    await commit(db, decision(rival.run_id, 1, status="stopped", busy=False))
    assert await commit(db, decision(start.run_id, 1, status="running", take_slot="thread:1")) == [None]
    assert await slots_of(db) == [], "a loser takes nothing"
    assert (await commit(db, retry))[0]
    assert await concurrency_slots.slot_holder(db.api, TENANT, "thread:1") == start.run_id
    run = require(await run_lists.get_run(db.api, TENANT, start.run_id))
    assert (run.status, run.result, run.ended_at) == ("running", None, None)


@pytest.mark.usefixtures("either_statement")
async def test_a_run_ending_in_its_first_commit_needs_its_slot_and_frees_it(db: Database) -> None:
    done = {"status": "finished", "busy": False, "result": b"{}"}
    assert (await commit(db, birth(slot="thread:1", **done)))[0]
    assert await slots_of(db) == []
    await commit(db, birth(slot="thread:1"))
    assert await commit(db, birth(slot="thread:1", **done)) == [None]


# docs/design/store.md#slots
async def test_forty_times_eight_starts_race_for_one_slot_and_one_gets_it(db: Database) -> None:
    for number in range(40):
        rivals = [birth(slot=f"s{number}") for _ in range(8)]
        outcomes = await asyncio.gather(*(commit(db, *pair) for pair in zip(rivals[::2], rivals[1::2], strict=True)))
        winners = [won for pair in outcomes for won in pair if won]
        assert len(winners) == 1, f"round {number}"
    assert await db.api.fetchval("SELECT count(*) FROM slots") == 40
    assert await db.api.fetchval("SELECT count(*) FROM runs") == 40


async def test_related_rows_are_written_together_with_the_runs_own_numbers(db: Database) -> None:
    start = birth(n=3, thread_id="t1", turns=[TurnRow(1, first=2, wire_run_id="w1", body_sha=b"s")])
    await commit(db, start)
    entry = decision(
        start.run_id, 1, n=4, busy=False, status="waiting",
        pendings=[PendingRow("p", "open", "a/b", b"digest", None, b"{}")],
        outbox=[OutboxRow("child_started", "x", b"1"), OutboxRow("child_started", "y", b"2")],
        turns=[TurnRow(1, last=1), TurnRow(2, first=2, last=4)],
        messages=[MessageRow(0, "m", "user", b"old", 3)],
    )  # fmt: skip
    await commit(db, entry)
    await commit(
        db,
        decision(
            start.run_id, 2, pendings=[PendingRow("p", "approve", "a/b", b"edited", None, b"[1]")],
            messages=[MessageRow(0, "m", "user", b"new", 1)],
        ),
    )  # fmt: skip
    turns = await db.api.fetch("SELECT n, thread_id, wire_run_id, first_seq, last_seq FROM turns ORDER BY n")
    assert list(map(tuple, turns)) == [(1, "t1", "w1", 2, 4), (2, "t1", None, 5, 7)]
    outbox = await db.api.fetch("SELECT last_seq, n, target FROM outbox ORDER BY n")
    assert list(map(tuple, outbox)) == [(7, 0, "x"), (7, 1, "y")]
    pendings = await db.api.fetch("SELECT status, opened_seq, tenant, digest, body FROM pendings")
    assert list(map(tuple, pendings)) == [("approve", 7, TENANT, b"edited", b"[1]")]
    messages = await db.api.fetch("SELECT body, seq, thread_id FROM messages")
    assert list(map(tuple, messages)) == [(b"new", 6, "t1")]


async def test_after_three_losses_a_run_is_taken_alone_and_wins(db: Database) -> None:
    start = birth()
    await commit(db, start)
    async with db.lane() as connection, logs.lock_run(connection, start.run_id, 0, 1) as loaded:
        assert loaded is not None
        rival = asyncio.create_task(commit(db, decision(start.run_id, loaded.version)))
        await until(lambda: somebody_waits(db))
        alone = await commits.commit(connection, [decision(start.run_id, loaded.version)], None, now())
        assert alone.won
    assert await rival == [None]


async def test_a_connection_cut_in_a_commit_is_an_unknown_outcome(db: Database) -> None:
    if db.sharded:
        pytest.skip("a commit of several statements goes on without its client as far as the end of one of them")
    start = birth()
    await commit(db, start)
    async with db.lane() as blocker, db.lane() as connection:
        async with blocker.transaction():
            await blocker.execute("SELECT FROM runs FOR UPDATE")
            task = asyncio.create_task(commits.commit(connection, [decision(start.run_id, 1)], None, now()))
            await until(lambda: somebody_waits(db))
            connection.terminate()
            with pytest.raises(CommitUnknown):
                await task
        # The client is gone, the server goes on: what was unknown happens now.
        while (await load(db, start.run_id)).version == 1:
            pass


async def test_a_lock_that_is_kept_is_given_up_and_may_be_tried_again(db: Database) -> None:
    start = birth()
    await commit(db, start)
    async with db.lane() as blocker, blocker.transaction():
        await blocker.execute("SELECT FROM runs FOR UPDATE")
        async with db.lane() as connection:
            await connection.execute("SET lock_timeout = '20ms'")
            with pytest.raises(asyncpg.PostgresError) as failure:
                await commits.commit(connection, [decision(start.run_id, 1)], None, now())
            await connection.execute("RESET lock_timeout")
    assert classify(failure.value) is ErrorClass.RETRY


async def test_claims_take_what_is_due_in_the_queues_asked_for(db: Database) -> None:
    me = await worker(db)
    due = birth(busy=False, wake_at=now() - timedelta(seconds=1))
    later = birth(busy=False, wake_at=now() + timedelta(hours=1))
    elsewhere = birth(busy=False, wake_at=now() - timedelta(seconds=1), queue="other")
    never = birth(busy=False)
    await commit(db, due, later, elsewhere, never)
    assert await leases.next_wake(db.engine, ["default"]) == due.wake_at
    async with db.lane() as connection:
        claimed = await leases.claim_runs(connection, me, 10, ["default"])
        assert [(each.run_id, each.lost) for each in claimed] == [(due.run_id, False)]
        assert await leases.next_wake(db.engine, ["default"]) == later.wake_at
        handed_back = await leases.release_runs(connection, me, [due.run_id, later.run_id], now())
        assert handed_back == [due.run_id]
        again = await leases.claim_runs(connection, me, 10, ["default", "other"])
    assert {each.run_id for each in again} == {due.run_id, elsewhere.run_id}


async def test_workers_are_forgotten_only_when_they_hold_nothing(db: Database) -> None:
    a, b = await worker(db), await worker(db)
    await commit(db, birth(), worker=a)
    for each in (a, b):
        await leases.retire_worker(db.engine, each)
    assert await leases.delete_dead_workers(db.engine, timedelta(days=1)) == 1
    assert await db.api.fetch("SELECT id FROM workers") == [(a,)]


async def test_whoever_asks_for_the_slot_of_an_ended_run_frees_it(db: Database) -> None:
    start, live = birth(status="finished", busy=False), birth(slot="s2")
    await commit(db, start, live)
    insert = "INSERT INTO slots (tenant, slot, run_id, promised_until) VALUES ($1, $2, $3, $4)"
    later = datetime.now(UTC) + timedelta(minutes=1)
    await db.api.execute(insert, TENANT, "s1", start.run_id, None)
    await db.api.execute(insert, TENANT, "s3", start.run_id, later)  # it is about to go on
    asked = [(TENANT, "s1"), (TENANT, "s2"), (TENANT, "s3")]
    holders = {(TENANT, "s2"): live.run_id, (TENANT, "s3"): start.run_id}
    assert await concurrency_slots.slot_holders(db.engine, asked) == holders
    assert (await commit(db, birth(slot="s1")))[0]


# --- promised slots -------------------------------------------------------------------------------------------------

KEY, SEAT = "w:k", "w:k#1"


async def promised(db: Database, run_id: UUID, seats: int = 1) -> str | None:
    return await concurrency_slots.take_slot(db.api, TENANT, KEY, seats, run_id)


async def promises(db: Database) -> dict[UUID, bool]:
    """Who has a slot of the key, and whether it is only promised."""
    query = "SELECT run_id, promised_until IS NOT NULL FROM slots WHERE slot LIKE 'w:k#%'"
    return dict(map(tuple, await db.api.fetch(query)))


async def end_promises(db: Database) -> None:
    await db.api.execute("UPDATE slots SET promised_until = now() - interval '1 s' WHERE promised_until IS NOT NULL")


async def sweep(db: Database) -> None:
    for overdue in await concurrency_slots.overdue_promises(db.api):
        await concurrency_slots.seat_waiters(db.api, overdue.tenant, overdue.key, overdue.slots)


async def test_a_run_that_is_born_with_the_slot_it_was_promised_holds_it(db: Database) -> None:
    start = birth(slot="thread:1", seat=SEAT)
    assert await promised(db, start.run_id) == SEAT
    assert (await commit(db, start, birth(slot="thread:2"), birth()))[0]
    assert await promises(db) == {start.run_id: False}
    assert await db.api.fetchval("SELECT count(*) FROM slots WHERE promised_until IS NOT NULL") == 0
    await end_promises(db)
    await sweep(db)
    assert await promises(db) == {start.run_id: False}


@pytest.mark.parametrize("beside", [0, 20])
async def test_a_birth_that_comes_too_late_loses_its_promised_slot_to_another(db: Database, beside: int) -> None:
    late, other = birth(slot="thread:1", seat=SEAT), birth(seat=SEAT)
    await promised(db, late.run_id)
    assert await promised(db, other.run_id) is None
    await end_promises(db)
    await sweep(db)
    assert await promised(db, other.run_id) == SEAT
    rest = [birth(slot=f"s{number}") for number in range(beside)]
    won = await commit(db, other, late, *rest)
    assert [each is not None for each in won] == [True, False, *[True] * beside]
    assert await concurrency_slots.slot_holder(db.api, TENANT, "thread:1") is None, "a loser takes nothing"
    assert await promises(db) == {other.run_id: False}


async def test_a_birth_that_loses_for_another_reason_leaves_its_slot_a_promise(db: Database) -> None:
    await commit(db, birth(slot="thread:1"))
    start = birth(slot="thread:1", seat=SEAT)
    await promised(db, start.run_id)
    assert await commit(db, start) == [None]
    assert await promises(db) == {start.run_id: True}
    assert await concurrency_slots.give_back(db.api, TENANT, KEY, SEAT, start.run_id)
    assert await promises(db) == {}


async def test_a_run_that_ends_in_its_first_commit_leaves_its_promised_slot_free(db: Database) -> None:
    start = birth(seat=SEAT, status="finished", busy=False)
    await promised(db, start.run_id)
    assert (await commit(db, start))[0]
    assert await promises(db) == {}


async def test_a_slot_is_not_given_back_once_its_run_has_begun(db: Database) -> None:
    start = birth(seat=SEAT)
    await promised(db, start.run_id)
    await commit(db, start)
    assert not await concurrency_slots.give_back(db.api, TENANT, KEY, SEAT, start.run_id)
    assert await promises(db) == {start.run_id: False}


async def test_who_takes_a_slot_back_waits_for_the_commit_that_begins_with_it(db: Database) -> None:
    start = birth(seat=SEAT)
    await promised(db, start.run_id)
    await end_promises(db)
    async with db.lane() as connection, connection.transaction():
        await commits.commit(connection, [start], None, now())
        assert await promised(db, uuid4()) is None
        back = asyncio.create_task(concurrency_slots.seat_waiters(db.api, TENANT, KEY, [SEAT]))
        await until(lambda: somebody_waits(db))
    await back
    assert await promises(db) == {start.run_id: False}


async def test_a_waiting_run_is_promised_a_slot_and_begins_only_while_holding_it(db: Database) -> None:
    holder, waiting = birth(seat=SEAT), birth(status="queued", busy=False)
    await promised(db, holder.run_id)
    await commit(db, holder, waiting)
    await concurrency_slots.wait_for_slot(db.api, TENANT, KEY, waiting.run_id, 1, now())
    assert await concurrency_slots.seat_waiters(db.api, TENANT, KEY) == []
    admitted = decision(waiting.run_id, 1, status="running", seat=SEAT)
    assert await commit(db, admitted) == [None]
    await commit(db, decision(holder.run_id, 1, status="finished", busy=False))
    (seat,) = await concurrency_slots.seat_waiters(db.api, TENANT, KEY)
    assert (seat.run_id, seat.slot, seat.status) == (waiting.run_id, SEAT, "queued")
    await end_promises(db)
    await sweep(db)
    assert await promises(db) == {waiting.run_id: True}, "promised anew: it still waits"
    assert (await commit(db, admitted))[0]
    assert await promises(db) == {waiting.run_id: False}


async def test_what_the_release_before_takes_is_no_promise_once_its_run_is_there(db: Database) -> None:
    alive, ended = birth(), birth(status="finished", busy=False)
    await commit(db, alive, ended)
    insert = "INSERT INTO slots (tenant, slot, run_id) VALUES ($1, $2, $3)"
    for number, run_id in enumerate((alive.run_id, ended.run_id, uuid4()), 1):
        await db.api.execute(insert, TENANT, f"{KEY}#{number}", run_id)
    await end_promises(db)
    await sweep(db)
    assert await promises(db) == {alive.run_id: False}


async def test_the_queue_is_read_no_further_than_there_are_free_slots(db: Database) -> None:
    waiting = [birth(status="queued", busy=False) for _ in range(40)]
    await commit(db, *waiting)
    for number, each in enumerate(waiting):
        since = now() + timedelta(seconds=number)
        await concurrency_slots.wait_for_slot(db.api, TENANT, KEY, each.run_id, 3, since)
    assert [seat.run_id for seat in await concurrency_slots.seat_waiters(db.api, TENANT, KEY)] == [
        each.run_id for each in waiting[:3]
    ]


async def test_keys_that_nobody_serves_are_found_page_by_page(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency_slots, "PAGE_ROWS", 2)
    waiting = [birth(status="queued", busy=False) for _ in range(6)]
    await commit(db, *waiting)
    for number, each in enumerate(waiting):
        await concurrency_slots.wait_for_slot(db.api, TENANT, f"w:{number // 2}", each.run_id, 1, now())
    await concurrency_slots.take_slot(db.api, TENANT, "w:1", 1, waiting[2].run_id)
    await concurrency_slots.seat_waiters(db.api, TENANT, "w:1")
    first, page = await concurrency_slots.find_stalled_keys(db.api)
    assert (first, page.rows, page.orphans) == ([(TENANT, "w:0")], 2, 1)
    assert (await concurrency_slots.find_stalled_keys(db.api, page.last))[0] == [(TENANT, "w:2")]


# --- sweeps ---------------------------------------------------------------------------------------------------------


async def test_a_sweep_goes_on_where_any_process_stopped_and_only_when_due(db: Database) -> None:
    asked: list[list[int] | None] = []

    async def look(after: list[int] | None) -> Page:
        asked.append(after)
        at = 0 if after is None else after[0]
        return Page(10, orphans=6 if at < 2 else 1, last=[at + 1] if at < 4 else None)

    async def go_on(every: timedelta) -> int | None:
        return await orphan_cleanup.sweep(db.api, "test", every, look)

    assert await go_on(timedelta(0)) == 13, "where most is to be removed, the next page comes at once"
    assert await go_on(timedelta(hours=1)) == 1
    assert await go_on(timedelta(0)) is None
    assert asked == [None, [1], [2], [3]]
    await db.api.execute("UPDATE sweeps SET due_at = now()")
    assert [await go_on(timedelta(0)) for _ in range(2)] == [1, 13]
    assert asked[4:] == [[4], None, [1], [2]]


async def test_an_unknown_run_loses_and_is_not_loaded(db: Database) -> None:
    assert await commit(db, decision(uuid4(), 1)) == [None]
    assert await logs.load_runs(db.engine, [uuid4()], [0], 1) == {}


async def test_old_firings_are_forgotten_through_all_pages(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (triggers, orphan_cleanup):
        monkeypatch.setattr(module, "PAGE_ROWS", 2)
    insert = """
    INSERT INTO fires SELECT $1, now() - $2::interval - n * interval '1 h', $1, 'started' FROM generate_series(1, 5) n
    """
    for age in (timedelta(days=8), timedelta(0)):
        await db.api.execute(insert, uuid4(), age)
    removed = 0
    for _ in range(5):
        removed += (
            await orphan_cleanup.sweep(db.api, "fires", timedelta(0), partial(triggers.delete_old_fires, db.api)) or 0
        )
        await db.api.execute("UPDATE sweeps SET due_at = now()")
    assert removed == 5
    assert await db.api.fetchval("SELECT count(*) FROM fires") == 5


# --- what a commit writes -------------------------------------------------------------------------------------------


@pytest.mark.skipif(citus.CITUS is not None, reason="the coordinator of a Citus counts no updates of its nodes")
async def test_of_a_run_that_is_held_only_the_last_commit_writes_its_indexes(db: Database) -> None:
    """No index holds what a step changes (a heap-only update): the others cost one entry in none of seven."""
    me = await worker(db)
    start = birth()
    async with db.lane() as connection:

        async def committed(*entries: Entry) -> None:
            assert len((await commits.commit(connection, entries, me, now())).won) == len(entries)

        await committed(start)
        for version in range(1, 6):
            await committed(decision(start.run_id, version, status="running", cut=True))
            await committed(chunks(start.run_id, version))
        assert await updates(connection, 10) == (10, 10)
        await committed(decision(start.run_id, 6, status="finished", busy=False))
        assert await updates(connection, 11) == (11, 10)


async def updates(connection: Any, sent: int) -> tuple[int, int]:
    """How many updates of runs there were, and how many of them wrote no index, as soon as all are counted."""

    async def counted() -> tuple[int, int] | None:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs'"
        ((updated, hot),) = await connection.fetch(query)
        return (updated, hot) if updated == sent else None

    return require(await until(counted))
