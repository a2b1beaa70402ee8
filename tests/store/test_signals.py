"""Signals are kept, given out until they are settled, and found by whoever waits for them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest

from hai_flow.engine.state.state import TERMINAL_STATUSES, Status
from hai_flow.errors import Rejected
from hai_flow.store.messaging import signals
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.orphan_cleanup import Page
from tests.store.conftest import STRANGER, TENANT, as_owner, birth, commit, decision
from tests.support.waiting import until

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
AT_ONCE = timedelta(0)


async def keep(db: Database, id: str, type: str = "paid", run_id: UUID | None = None) -> signals.Signal:
    stored, already = await signals.store_signal(db.api, TENANT, id, type, b'{"id": "%s"}' % id.encode(), run_id)
    assert not already
    return stored


async def found_by(db: Database, run_id: UUID, *types: str, **how: object) -> list[str]:
    query = {"since": LONG_AGO, "limit": 10} | how
    reaches = [signals.Reach(type) for type in types]
    found = await signals.signals_for(db.api, TENANT, run_id, reaches, **query)  # type: ignore[arg-type]
    return [signal.id for signal in found]


def types(*names: str) -> dict[str, bytes | None]:
    return dict.fromkeys(names)


async def test_a_repeated_signal_is_recognised_and_a_changed_one_refused(db: Database) -> None:
    first = await keep(db, "s1")
    assert await signals.store_signal(db.api, TENANT, "s1", "paid", first.data) == (first, True)
    for other in (("refunded", first.data, None), ("paid", b"2", None), ("paid", first.data, uuid4())):
        with pytest.raises(Rejected) as refused:
            await signals.store_signal(db.api, TENANT, "s1", *other)
        assert (refused.value.status, refused.value.code) == (409, "signal_exists")
    stored, already = await signals.store_signal(db.api, STRANGER, "s1", "paid", b"2")
    assert (stored.tenant, already) == (STRANGER, False)
    assert await signals.get_signal(db.api, uuid4(), "s1") is None


async def test_a_signal_is_given_out_again_until_it_is_settled(db: Database) -> None:
    for id in ("s1", "s2"):
        await keep(db, id)
    assert [signal.id for signal in await signals.due_signals(db.api, 10)] == ["s1", "s2"]
    assert await signals.due_signals(db.api, 10) == []  # somebody has them
    await db.api.execute("UPDATE signals SET due_at = now() WHERE due_at IS NOT NULL")  # who is gone by now
    first, second = await signals.due_signals(db.api, 10, AT_ONCE)
    await signals.settle_signal(db.api, first)
    assert await signals.due_signals(db.api, 10) == [second]


async def test_a_signal_finds_runs_waiting_for_its_type_or_its_addressee(db: Database) -> None:
    a, b, c = sorted(uuid4() for _ in range(3))
    await signals.subscribe(db.api, TENANT, a, "one", types("paid", "shipped"), 3)
    await signals.subscribe(db.api, TENANT, a, "two", types("paid"), 7)
    await signals.subscribe(db.api, TENANT, b, "one", types("paid"), 2)
    await signals.subscribe(db.api, STRANGER, c, "one", types("paid"), 2)
    to_all, to_b = await keep(db, "s1"), await keep(db, "s2", run_id=b)
    assert await signals.subscribers(db.api, to_all) == [signals.Subscriber(a, 7), signals.Subscriber(b, 2)]
    assert await signals.subscribers(db.api, to_b) == [signals.Subscriber(b, 2)]
    assert await signals.subscribers(db.api, await keep(db, "s3", "paid", c)) == []


async def test_a_newer_subscription_is_not_removed_with_the_one_before(db: Database) -> None:
    run_id = uuid4()
    signal = await keep(db, "s1")
    await signals.subscribe(db.api, TENANT, run_id, "one", types("paid"), 3)
    await signals.subscribe(db.api, TENANT, run_id, "one", types("paid"), 8)
    await signals.subscribe(
        db.api, TENANT, run_id, "one", types("paid"), 3
    )  # the message of before, delivered once more
    await signals.unsubscribe(db.api, run_id, "paid", 3)
    assert await signals.subscribers(db.api, signal) == [signals.Subscriber(run_id, 8)]
    await signals.unsubscribe(db.api, run_id, "paid", 8)
    assert await signals.subscribers(db.api, signal) == []


async def test_a_run_finds_its_signals_oldest_first_from_its_position(db: Database) -> None:
    run_id = uuid4()
    before = await keep(db, "s1")
    ours = await keep(db, "s2", run_id=run_id)
    await keep(db, "s3", run_id=uuid4())
    await keep(db, "s4", "shipped")
    await keep(db, "s5", "lost")
    assert await found_by(db, run_id, "paid", "shipped") == ["s1", "s2", "s4"]
    assert await found_by(db, run_id, "paid", limit=1) == ["s1"]
    assert await found_by(db, run_id, "paid", since=before.sent_at + timedelta(microseconds=1)) == ["s2"]
    for reach, left in [
        (signals.Reach("paid", before.place), ["s2"]),
        (signals.Reach("paid", before.place - 1, ours.place), ["s1"]),
        (signals.Reach("paid", before.place, ours.place), []),
    ]:
        found = await signals.signals_for(db.api, TENANT, run_id, [reach], since=LONG_AGO, limit=10)
        assert [signal.id for signal in found] == left
    by_id = await signals.signals_by_id(db.api, TENANT, run_id, ["s5", "s3", "s2", "s1", "gone"])
    assert [signal.id for signal in by_id] == ["s1", "s2", "s5"]


async def test_what_nobody_can_take_any_more_is_forgotten(db: Database) -> None:
    await keep(db, "before")
    live, ended = birth(), birth()
    await commit(db, live, ended)
    await commit(db, decision(ended.run_id, 1, status="finished", busy=False))
    await keep(db, "since")
    await keep(db, "due")
    for run in (live, ended):
        await signals.subscribe(db.api, TENANT, run.run_id, "one", types("paid"), 1)
    await db.api.execute("UPDATE signals SET due_at = NULL WHERE id <> 'due'")
    assert await signals.forget_subscriptions(db.api) == Page(2, 1, None)
    assert await signals.delete_old_signals(db.api) == Page(3, 0, None)
    assert [row[0] for row in await db.api.fetch("SELECT id FROM signals ORDER BY id")] == ["before", "due", "since"]
    assert [row[0] for row in await db.api.fetch("SELECT run_id FROM subscriptions")] == [live.run_id]
    await signals.delete_old_signals(db.api, kept_for=AT_ONCE)
    assert [row[0] for row in await db.api.fetch("SELECT id FROM signals ORDER BY id")] == ["due", "since"]


async def test_what_is_on_its_way_is_not_forgotten(db: Database) -> None:
    await keep(db, "yet to be offered")
    ended = birth()
    await commit(db, ended)
    await commit(db, decision(ended.run_id, 1, status="failed", busy=False))
    await signals.subscribe(db.api, TENANT, ended.run_id, "again", types("paid"), 3)  # it is being retried
    await signals.subscribe(db.api, TENANT, ended.run_id, "before", types("paid"), 2)
    await signals.forget_subscriptions(db.api)
    await signals.delete_old_signals(db.api, kept_for=AT_ONCE)
    assert [row[0] for row in await db.api.fetch("SELECT id FROM signals")] == ["yet to be offered"]
    assert [row[0] for row in await db.api.fetch("SELECT path FROM subscriptions")] == ["again"]


async def test_older_signals_of_a_type_that_nobody_has_offered_yet_are_found(db: Database) -> None:
    first, second, third = await keep(db, "s1"), await keep(db, "s2"), await keep(db, "s3")
    await keep(db, "s4", "shipped")
    last = await keep(db, "s5")
    await signals.settle_signal(db.api, second)
    await signals.put_off_signal(db.api, third, ["somebody"], AT_ONCE)
    assert await signals.find_unsettled_before(db.api, last) == [first]
    assert await signals.find_unsettled_before(db.api, first) == []


async def test_signals_of_a_type_become_visible_in_the_order_of_their_places(db: Database) -> None:
    """Who has read up to a place must never find another one before it, whichever commit takes long."""
    run_id = uuid4()
    async with db.api.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        first, _ = await signals.store_signal(slow, TENANT, "slow", "paid", b"1")
        second = asyncio.create_task(keep(db, "quick"))
        await until(lambda: _waits_for_a_turn(db))
        others = [await keep(db, "other type", "shipped"), await keep(db, "to one", run_id=run_id)]
        assert await found_by(db, run_id, "paid") == ["to one"]  # not "quick"
        assert not second.done()
        await transaction.commit()
    assert first.place < min(other.place for other in others) < (await second).place
    assert await found_by(db, run_id, "paid") == ["slow", "to one", "quick"]


async def _waits_for_a_turn(db: Database) -> bool:
    return bool(await db.api.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))


@pytest.mark.parametrize("analyzed", [False, True])
async def test_what_a_run_reads_does_not_depend_on_how_many_signals_came_before(db: Database, analyzed: bool) -> None:
    """Nor on how many came for other runs, or on how many other runs wait."""
    run_id = uuid4()
    many = """
    INSERT INTO signals (tenant, id, type, run_id, data, due_at)
    SELECT $1, n::text, 'paid', CASE n % 3 WHEN 0 THEN $2::uuid WHEN 1 THEN gen_random_uuid() END, 'x', NULL
    FROM generate_series(1, 6000) AS n
    """
    await db.api.execute(many, TENANT, run_id)
    await db.api.execute(
        "INSERT INTO subscriptions (run_id, path, type, tenant, opened_seq) "
        "SELECT gen_random_uuid(), 'one', 'paid', $1, 1 FROM generate_series(1, 3000)",
        TENANT,
    )
    if analyzed:
        await as_owner(db, "ANALYZE signals, subscriptions")
    last = await keep(db, "last", run_id=run_id)
    reads: list[tuple[str, list[object]]] = [
        (signals._FOR_RUN, [TENANT, run_id, ["paid"], [last.place - 1], [last.place - 1], LONG_AGO, 10]),
        (signals._UNSETTLED_BEFORE, [TENANT, "paid", last.place]),
        (signals._ITS_SUBSCRIBERS, [TENANT, "paid", run_id]),
    ]
    for query, given in reads:
        plan = json.loads(await db.api.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *given))[0]["Plan"]
        assert _rows_read(plan) <= 5, plan


def _rows_read(plan: dict[str, Any]) -> float:
    """The rows that the scans of tables touched, given back or not."""
    read = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    own = read if "Relation Name" in plan else 0
    return own + sum(_rows_read(below) for below in plan.get("Plans", ()))


def test_every_status_of_a_run_that_has_not_ended_keeps_signals() -> None:
    assert {*signals.LIVING} == {*get_args(Status)} - TERMINAL_STATUSES - {"new"}
