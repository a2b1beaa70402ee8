"""Who holds a run after a commit, a claim or a heartbeat, when it wakes, and whose late chunks lose by its fence."""

from __future__ import annotations

from datetime import datetime, timedelta

from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import leases
from hai_flow.store.runs.leases import Claimed
from hai_flow.store.runs.logs import Loaded
from tests.store.conftest import LEASE, birth, chunks, commit, decision, load, now, worker

SECOND = timedelta(seconds=1)


def held(loaded: Loaded) -> tuple[int | None, int]:
    """Who holds the run, and its fence."""
    return loaded.worker, loaded.fence


async def claimed_by(db: Database, me: int, *queues: str) -> list[Claimed]:
    async with db.lane() as connection:
        return await leases.claim_runs(connection, me, 10, queues or ("default",))


async def test_a_run_that_rests_is_given_back_and_late_chunks_of_its_holder_lose(db: Database) -> None:
    me = await worker(db)
    start = birth()
    (born,) = await commit(db, start, worker=me)
    assert born is not None
    (rests,) = await commit(db, decision(start.run_id, 1, busy=False, status="waiting"), worker=me)
    assert rests is not None
    assert (rests.worker, rests.fence) == (None, born.fence + 1)
    assert await commit(db, chunks(start.run_id, born.fence), worker=me) == [None]
    (again,) = await commit(db, decision(start.run_id, 2, busy=False), worker=me)
    assert again is not None
    assert again.fence == rests.fence, "nobody held it, so nobody's chunks can be late"


async def test_a_decision_that_claims_raises_the_fence_and_the_holders_does_not(db: Database) -> None:
    me, other = await worker(db), await worker(db)
    start = birth(busy=False, status="waiting")
    (born,) = await commit(db, start)
    (mine,) = await commit(db, decision(start.run_id, 1), worker=me)
    (still,) = await commit(db, decision(start.run_id, 2), worker=other)
    assert born is not None
    assert mine is not None
    assert still is not None
    assert (mine.worker, mine.fence) == (me, born.fence + 1)
    assert (still.worker, still.fence) == (me, mine.fence), "who holds a run keeps it, whoever decides"


async def test_what_is_busy_and_held_by_nobody_is_due_at_once(db: Database) -> None:
    me = await worker(db)
    born, decided = birth(), birth(busy=False, status="waiting", wake_at=now() + timedelta(hours=1))
    await commit(db, born, decided)
    assert [each.run_id for each in await claimed_by(db, me)] == [born.run_id]
    await commit(db, decision(decided.run_id, 1))
    assert [each.run_id for each in await claimed_by(db, me)] == [decided.run_id]
    assert (await load(db, decided.run_id)).wake_at is None, "what is held has no other clock than its holder's"


async def test_chunks_leave_claim_and_clock_as_they_are(db: Database) -> None:
    me = await worker(db)
    start = birth()
    (born,) = await commit(db, start, worker=me)
    assert born is not None
    await commit(db, chunks(start.run_id, born.fence), worker=me)
    loaded = await load(db, start.run_id)
    assert (held(loaded), loaded.status, loaded.wake_at) == ((me, born.fence), "running", None)


async def test_only_runs_of_the_dead_are_lost_to_a_claim(db: Database) -> None:
    alive, dead, me = await worker(db), await worker(db, -2 * SECOND), await worker(db)
    theirs, lost = birth(), birth()
    await commit(db, theirs, worker=alive)
    await commit(db, lost)
    await db.api.execute("UPDATE runs SET worker = $1, wake_at = NULL WHERE id = $2", dead, lost.run_id)
    assert [(each.run_id, each.lost) for each in await claimed_by(db, me)] == [(lost.run_id, True)]
    assert await claimed_by(db, me) == []


async def test_a_claim_passes_by_what_somebody_is_committing_to(db: Database) -> None:
    me = await worker(db)
    locked, free = birth(busy=False, wake_at=now() - SECOND), birth(busy=False, wake_at=now() - SECOND)
    await commit(db, locked, free)
    async with db.lane() as blocker, blocker.transaction():
        await blocker.execute("SELECT FROM runs WHERE id = $1 FOR NO KEY UPDATE", locked.run_id)
        assert [each.run_id for each in await claimed_by(db, me)] == [free.run_id]
    assert [each.run_id for each in await claimed_by(db, me)] == [locked.run_id]


async def test_what_is_handed_back_has_a_new_fence_and_is_claimed_as_not_begun(db: Database) -> None:
    me, other = await worker(db), await worker(db)
    start = birth()
    (born,) = await commit(db, start, worker=me)
    assert born is not None
    async with db.lane() as connection:
        assert await leases.release_runs(connection, me, [start.run_id], now()) == [start.run_id]
    assert held(await load(db, start.run_id)) == (None, born.fence + 1)
    (claimed,) = await claimed_by(db, other)
    assert (claimed.fence, claimed.lost) == (born.fence + 2, False)


async def test_a_heartbeat_renews_the_lease_and_tells_of_nobody_elses_runs(db: Database) -> None:
    async def alive_until(of: int) -> datetime:
        found: datetime = await db.api.fetchval("SELECT alive_until FROM workers WHERE id = $1", of)
        return found

    me, other = await worker(db, SECOND * 20), await worker(db)
    await commit(db, birth(), worker=other)
    before, others = await alive_until(me), await alive_until(other)
    beat = await leases.heartbeat(db.engine, me, LEASE)
    assert (beat.alive, beat.held) == (True, [])
    assert await alive_until(me) > before + SECOND
    assert await alive_until(other) == others


async def test_the_next_wake_is_of_the_queues_asked_for_and_of_what_nobody_holds(db: Database) -> None:
    soon, later = now() + timedelta(minutes=1), now() + timedelta(hours=1)
    await commit(
        db, birth(busy=False, wake_at=later), birth(busy=False, wake_at=soon, queue="other"), birth(busy=False)
    )
    assert await leases.next_wake(db.engine, ["default"]) == later
    assert await leases.next_wake(db.engine, ["default", "other"]) == soon
    assert await leases.next_wake(db.engine, ["nobody's"]) is None


async def test_attendance_counts_live_workers_and_runs_without_a_live_holder(db: Database) -> None:
    assert await leases.attendance(db.api) == (0, 0, [])
    due, later, held_by_dead = birth(), birth(busy=False, status="waiting", wake_at=now() + timedelta(hours=1)), birth()
    await commit(db, due, later)
    assert await leases.attendance(db.api) == (0, 1, ["default"])
    dies, lives = await worker(db), await worker(db)
    await commit(db, held_by_dead, worker=dies)
    assert await leases.attendance(db.api) == (2, 1, [])
    await leases.retire_worker(db.api, dies)
    assert await leases.attendance(db.api) == (1, 2, [])
    await claimed_by(db, lives)
    assert await leases.attendance(db.api) == (1, 0, [])
    await leases.retire_worker(db.api, lives)
    assert await leases.attendance(db.api) == (0, 2, []), "held by dead workers, not waiting in a queue"
    await commit(db, decision(due.run_id, 1, busy=False, status="finished"))
    assert await leases.attendance(db.api) == (0, 1, [])
