"""Slots of concurrency keys: who is given one, who is not, and that two who ask at once are served one by one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID, uuid4

from hai_flow.store.commit import commits
from hai_flow.store.messaging import concurrency_slots
from hai_flow.store.postgres.database import Database
from tests.store.conftest import TENANT, birth, commit, decision, somebody_waits
from tests.support.values import require
from tests.support.waiting import until

KEY = "w:key"
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


async def holders(db: Database) -> list[UUID]:
    return [each.run_id for each in await concurrency_slots.holders(db.api, TENANT, KEY, 9)]


async def test_nobody_who_starts_passes_one_who_waits(db: Database) -> None:
    waiting = birth(status="queued", busy=False)
    await commit(db, waiting)
    await concurrency_slots.wait_for_slot(db.api, TENANT, KEY, waiting.run_id, 1, LONG_AGO)
    assert await concurrency_slots.take_slot(db.api, TENANT, KEY, 1, uuid4()) is None
    await concurrency_slots.seat_waiters(db.api, TENANT, KEY)
    assert await holders(db) == [waiting.run_id]


async def test_a_run_begun_or_ended_before_its_wait_is_known_blocks_no_slot(db: Database) -> None:
    for status in ("running", "finished"):
        entry = birth(status=status, busy=False)
        await commit(db, entry)
        await concurrency_slots.wait_for_slot(db.api, TENANT, KEY, entry.run_id, 1, LONG_AGO)
    assert await concurrency_slots.take_slot(db.api, TENANT, KEY, 1, uuid4()) is not None


async def test_a_run_ending_while_its_wait_becomes_known_leaves_the_queue(db: Database) -> None:
    waiting = birth(status="queued", busy=False)
    await commit(db, waiting)
    end = decision(waiting.run_id, 1, status="stopped", busy=False)
    async with db.lane() as connection, connection.transaction():
        await commits.commit(connection, [end], None, datetime.now(UTC))
        late = asyncio.create_task(concurrency_slots.wait_for_slot(db.api, TENANT, KEY, waiting.run_id, 1, LONG_AGO))
        await until(lambda: somebody_waits(db))
    await late
    assert await concurrency_slots.take_slot(db.api, TENANT, KEY, 1, uuid4()) is not None


async def test_a_start_that_is_made_again_has_the_slot_that_it_had(db: Database) -> None:
    starting = uuid4()
    slot = require(await concurrency_slots.take_slot(db.api, TENANT, KEY, 2, starting))
    assert await concurrency_slots.take_slot(db.api, TENANT, KEY, 2, starting) == slot
    assert await holders(db) == [starting]


async def test_a_run_that_is_there_needs_no_slot_to_start(db: Database) -> None:
    there = birth()
    await commit(db, there)
    assert await concurrency_slots.take_slot(db.api, TENANT, KEY, 1, there.run_id) is None
    assert await holders(db) == []


async def test_a_slot_that_is_given_back_is_promised_to_the_next_at_once(db: Database) -> None:
    starting, waiting = uuid4(), birth(status="queued", busy=False)
    slot = require(await concurrency_slots.take_slot(db.api, TENANT, KEY, 1, starting))
    await commit(db, waiting)
    await concurrency_slots.wait_for_slot(db.api, TENANT, KEY, waiting.run_id, 1, LONG_AGO)
    assert await concurrency_slots.give_back(db.api, TENANT, KEY, slot, starting)
    assert await holders(db) == [waiting.run_id]


async def test_who_asks_for_a_key_waits_until_who_asked_before_is_done(db: Database) -> None:
    async with concurrency_slots._lock_key(db.api, TENANT, KEY) as before:
        asking = asyncio.create_task(concurrency_slots.take_slot(db.api, TENANT, KEY, 1, uuid4()))
        waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        await until(lambda: before.fetchval(waits))
        assert not asking.done()
    assert await asking is not None


async def test_a_run_that_is_being_stopped_is_not_one_of_too_many(db: Database) -> None:
    oldest, stopping = birth(slot=f"{KEY}#1"), birth(slot=f"{KEY}#2")
    newer = [birth(status="queued", busy=False) for _ in range(2)]
    for entry in (oldest, stopping, *newer):
        await commit(db, entry)
    await commit(db, decision(stopping.run_id, 1, status="stopping"))
    await concurrency_slots.wait_for_slot(db.api, TENANT, KEY, newer[0].run_id, 2, LONG_AGO)
    assert await concurrency_slots.too_many(db.api, TENANT, KEY, 2) == []
    await concurrency_slots.wait_for_slot(db.api, TENANT, KEY, newer[1].run_id, 2, LONG_AGO)
    assert await concurrency_slots.too_many(db.api, TENANT, KEY, 2) == [oldest.run_id]
