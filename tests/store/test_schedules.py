"""A schedule is looked at by one at a time, and what it fires is stored only by who has it."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from msgspec.structs import replace

from hai_flow.store.messaging import triggers
from hai_flow.store.messaging.triggers import EventTriggerRow, ScheduleRow
from hai_flow.store.postgres.database import Database
from tests.store.conftest import STRANGER, TENANT, birth, commit, now

MINUTE = timedelta(minutes=1)


def schedule(position: int = 0, *, tenant: UUID = TENANT, at: datetime | None = None, name: str = "w") -> ScheduleRow:
    return ScheduleRow(
        id=uuid4(),
        tenant=tenant,
        workflow_name=name,
        position=position,
        workflow=b"w" * 32,
        dev=False,
        cron=None,
        timezone="UTC",
        every_ms=60_000,
        missed="once",
        overlap="queue",
        input=b"{}",
        next_fire_at=at or now() - MINUTE,
    )


async def publish(db: Database, *schedules: ScheduleRow, events: tuple[str, ...] = ()) -> None:
    rows = [EventTriggerRow(TENANT, "w", number, b"w" * 32, False, type) for number, type in enumerate(events)]
    async with db.api.acquire() as connection, connection.transaction():
        await triggers.replace_triggers(connection, TENANT, "w", schedules, rows)


async def taken(db: Database) -> ScheduleRow:
    (found,) = await triggers.take_due(db.api, 10, MINUTE)
    return found


async def test_a_schedule_is_taken_by_one_until_released_or_overdue(db: Database) -> None:
    await publish(db, schedule(0), schedule(1, at=now() + timedelta(hours=1)))
    first = await taken(db)
    assert first.position == 0
    assert await triggers.take_due(db.api, 10, MINUTE) == []
    await triggers.release(db.api, first, now() - MINUTE)
    again = await taken(db)
    await triggers.release(db.api, first, now() - MINUTE)  # by who had it before: it is another's now
    assert await triggers.take_due(db.api, 10, MINUTE) == []
    await triggers.release(db.api, again)
    assert (await taken(db)).next_fire_at == first.next_fire_at, "it is looked at again when it fires next"


async def test_only_who_has_a_schedule_stores_what_it_fires(db: Database) -> None:
    await publish(db, schedule())
    late = await taken(db)
    assert late.next_fire_at is not None
    await triggers.release(db.api, late, now() - MINUTE)
    mine = await taken(db)
    instant, following = late.next_fire_at, now() + MINUTE
    await triggers.fire(db.api, late, [instant], following)
    assert await triggers.open_fires(db.api, mine) == []
    await triggers.fire(db.api, mine, [instant], following)
    await triggers.fire(db.api, mine, [instant], following)
    assert await triggers.open_fires(db.api, mine) == [instant]
    found = await triggers.get_schedule(db.api, TENANT, mine.id)
    assert found is not None
    assert (found.next_fire_at, found.last_fire_at) == (following, instant)


async def test_what_is_paused_fires_nothing_and_is_not_looked_at(db: Database) -> None:
    await publish(db, schedule())
    mine = await taken(db)
    assert mine.next_fire_at is not None
    await db.api.execute("UPDATE schedules SET paused = true")  # in this very moment
    await triggers.fire(db.api, mine, [mine.next_fire_at], now() + MINUTE)
    assert await triggers.open_fires(db.api, mine) == []
    await triggers.release(db.api, mine)
    assert await triggers.next_wake(db.api) is None
    assert await triggers.take_due(db.api, 10, MINUTE) == []


async def test_a_schedule_that_is_resumed_goes_on_from_where_it_is_told(db: Database) -> None:
    await publish(db, schedule())
    mine = await taken(db)
    assert mine.next_fire_at is not None
    await triggers.fire(db.api, mine, [mine.next_fire_at], now() + MINUTE)
    await triggers.pause_schedule(db.api, mine)
    following = now() + timedelta(hours=1)
    await triggers.resume_schedule(db.api, mine, following)
    await triggers.resume_schedule(db.api, mine, now())  # it is not paused
    resumed = await taken(db)
    assert (resumed.next_fire_at, resumed.paused) == (following, False)


async def test_of_all_who_look_at_a_schedule_one_starts_a_run(db: Database) -> None:
    await publish(db, schedule())
    mine = await taken(db)
    a, b = uuid4(), uuid4()
    assert await triggers.claim_turn(db.api, mine, None, a, MINUTE)
    assert not await triggers.claim_turn(db.api, mine, None, b, MINUTE)
    assert await triggers.find_status_of_run(db.api, mine, a) == "starting"
    assert await triggers.find_status_of_run(db.api, mine, b) is None
    await triggers.give_up_turn(db.api, mine, None, b)  # not the last one
    await triggers.give_up_turn(db.api, mine, None, a)
    assert await triggers.claim_turn(db.api, mine, None, b, -MINUTE)
    assert await triggers.find_status_of_run(db.api, mine, b) is None, "whoever was about to store it is gone"
    await commit(db, birth(b))
    assert await triggers.find_status_of_run(db.api, mine, b) == "running"
    await db.api.execute("UPDATE schedules SET paused = true")
    assert not await triggers.claim_turn(db.api, mine, b, a, MINUTE)
    assert await triggers.claim_turn(db.api, mine, b, a, MINUTE, paused_too=True)


async def test_an_instant_is_dealt_with_once_and_forgotten_when_that_is_long_ago(db: Database) -> None:
    await publish(db, schedule(at=now() - timedelta(days=9)))
    mine = await taken(db)
    long_ago, lately = now() - timedelta(days=8), now() - timedelta(days=8, hours=1)
    await triggers.fire(db.api, mine, [long_ago, lately], now() + MINUTE)
    assert await triggers.open_fires(db.api, mine) == [lately, long_ago]
    run_id = uuid4()
    await triggers.settle_fire(db.api, mine, lately, "started", run_id)
    await triggers.settle_fire(db.api, mine, lately, "skipped")
    (row,) = await db.api.fetch("SELECT outcome, run_id FROM fires WHERE fire_at = $1", lately)
    assert tuple(row) == ("started", run_id)
    await triggers.delete_old_fires(db.api)
    assert [each[0] for each in await db.api.fetch("SELECT fire_at FROM fires")] == [long_ago], (
        "nobody has dealt with it"
    )


async def test_publishing_again_keeps_the_clock_of_a_schedule_whose_timing_stays(db: Database) -> None:
    first, second = schedule(0), schedule(1)
    await publish(db, first, second, events=("paid", "shipped"))
    later = now() + timedelta(hours=5)
    await publish(db, replace(schedule(0), next_fire_at=later), replace(schedule(1), every_ms=5000, next_fire_at=later))
    kept, moved = await triggers.list_schedules(db.api, TENANT)
    assert (kept.id, kept.next_fire_at) == (first.id, first.next_fire_at)
    assert (moved.id, moved.next_fire_at, moved.wake_at) == (second.id, later, later)
    assert await triggers.list_event_triggers(db.api, TENANT, "paid") == []
    await publish(db, schedule(0))
    assert [each.position for each in await triggers.list_schedules(db.api, TENANT)] == [0]


async def test_events_find_what_wants_their_type_in_their_tenant(db: Database) -> None:
    await publish(db, schedule(), events=("paid", "shipped", "paid"))
    assert [each.position for each in await triggers.list_event_triggers(db.api, TENANT, "paid")] == [0, 2]
    assert await triggers.list_event_triggers(db.api, STRANGER, "paid") == []
    mine = await taken(db)
    assert await triggers.get_schedule(db.api, STRANGER, mine.id) is None
    assert await triggers.list_schedules(db.api, STRANGER) == []


async def test_a_schedules_last_times_are_newest_first_and_its_tenants_alone(db: Database) -> None:
    await publish(db, schedule(at=now() - 3 * MINUTE))
    mine = await taken(db)
    assert mine.next_fire_at is not None
    instants = [mine.next_fire_at, mine.next_fire_at + MINUTE, mine.next_fire_at + 2 * MINUTE]
    await triggers.fire(db.api, mine, instants, now() + MINUTE)
    run_id = uuid4()
    await triggers.settle_fire(db.api, mine, instants[0], "started", run_id)
    assert await triggers.list_last_fires(db.api, mine, 2) == [
        triggers.Fire(instants[2], None, None),
        triggers.Fire(instants[1], None, None),
    ]
    assert (await triggers.list_last_fires(db.api, mine, 9))[-1] == triggers.Fire(instants[0], "started", run_id)
    assert await triggers.list_last_fires(db.api, replace(mine, tenant=STRANGER), 9) == []
