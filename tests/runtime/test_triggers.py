"""Schedules and events over a real database: what is fired is started, once, whoever looks and whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.errors import DefinitionError, Rejected, StoreError, Unreadable
from hai_flow.primitives import instants
from hai_flow.primitives.uuids import derive_uuid
from hai_flow.runtime.base.sweep_isolation import Sweep
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.messaging.triggers import EVENT_LEASE, Started
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.catalog import workflows
from hai_flow.store.messaging import signals, triggers
from hai_flow.store.messaging.triggers import ScheduleRow
from tests.runtime.conftest import ASKING, Make, is_now, start, state_of, status_of
from tests.support.values import require
from tests.support.waiting import until
from tests.support.workers import Nursery, alive

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PLAIN = "steps:\n  - {say: hello}\n"
ORDER = "input: {type: object, properties: {order: {type: string}}, required: [order]}\n"
DAILY = '  - schedule: {cron: "0 6 * * *", timezone: Europe/Berlin%s}\n'


OF_A_DAY = "input: {type: object, properties: {day: {type: string}}}\n" + PLAIN


async def publish(runtime: Runtime, listed: str, body: str = PLAIN, *, name: str = "timed", version: int = 1) -> Any:
    head = f"hai: flow/v1\nname: {name}\nversion: {version}\n"
    return await runtime.catalog.publish(LOCAL_TENANT, (head + "triggers:\n" + listed + body).encode())


async def schedules(runtime: Runtime) -> list[ScheduleRow]:
    return await triggers.list_schedules(runtime.database.api, LOCAL_TENANT)


async def only_schedule(runtime: Runtime) -> ScheduleRow:
    (schedule,) = await schedules(runtime)
    return schedule


async def due_since(eye: Connection, seconds: float) -> datetime:
    """Make the one schedule due, as if its instant had been so many seconds ago; returns that instant."""
    query = "UPDATE schedules SET next_fire_at = now() - $1::interval, wake_at = now() RETURNING next_fire_at"
    instant: datetime = await eye.fetchval(query, timedelta(seconds=seconds))
    return instant


async def fires(eye: Connection) -> list[tuple[datetime, str | None]]:
    return [(row[0], row[1]) for row in await eye.fetch("SELECT fire_at, outcome FROM fires ORDER BY fire_at")]


async def outcomes(eye: Connection, count: int) -> list[str | None]:
    """The outcomes of the schedule's firings, as soon as there are so many and all are dealt with."""

    async def settled() -> list[str | None]:
        found = [outcome for _, outcome in await fires(eye)]
        return found if len(found) == count and None not in found else []

    return await until(settled)


async def send(runtime: Runtime, id: str, type: str, data: Any = None) -> list[Started]:
    return (await runtime.triggers.receive_event(LOCAL_TENANT, id, type, data)).started


async def last_run(runtime: Runtime) -> UUID:
    return require((await only_schedule(runtime)).last_run_id)


# --- publication ----------------------------------------------------------------------------------------------------


async def test_a_version_whose_triggers_can_not_be_stored_is_not_published(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the version before would be started by its schedule until somebody publishes once more."""
    runtime = await make()
    await publish(runtime, DAILY % "")
    before = await schedules(runtime)

    async def break_off(*_: object) -> None:
        raise OSError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(triggers, "replace_triggers", break_off)
        with pytest.raises(OSError, match="away"):
            await publish(runtime, DAILY % "", version=2)
    stored, _ = await runtime.catalog.resolve(LOCAL_TENANT, "timed")
    assert (stored.version, await schedules(runtime)) == (1, before)
    await publish(runtime, DAILY % "", version=2)
    assert (await only_schedule(runtime)).workflow != before[0].workflow


async def test_publishing_keeps_the_triggers_of_the_latest_version(make: Make) -> None:
    runtime = await make()
    both = DAILY % "" + "  - event: {type: order.paid}\n"
    stored, _ = await publish(runtime, both, version=2)
    first = await only_schedule(runtime)
    assert (first.cron, first.timezone, first.missed, first.overlap) == ("0 6 * * *", "Europe/Berlin", "skip", "skip")
    assert first.next_fire_at is not None
    assert first.next_fire_at > datetime.now(UTC)
    await publish(runtime, DAILY % "" + DAILY % "", version=1)
    assert [each.workflow for each in await schedules(runtime)] == [stored.sha256], "an older version changes nothing"
    await publish(runtime, "  - api: {}\n", version=3)
    assert await schedules(runtime) == []
    assert await triggers.list_event_triggers(runtime.database.api, LOCAL_TENANT, "order.paid") == []


async def test_a_schedule_that_stays_keeps_its_next_instant_and_stays_paused(make: Make, eye: Connection) -> None:
    runtime = await make()
    await publish(runtime, DAILY % "")
    await eye.execute("UPDATE schedules SET next_fire_at = next_fire_at + interval '9 days'")
    before = await only_schedule(runtime)
    await publish(runtime, DAILY % ", missed: all", version=2)
    after = await only_schedule(runtime)
    assert (after.id, after.next_fire_at, after.missed) == (before.id, before.next_fire_at, "all")
    await runtime.triggers.pause_schedule(LOCAL_TENANT, after.id)
    await publish(runtime, '  - schedule: {cron: "0 7 * * *", timezone: UTC}\n', version=3)
    paused = await only_schedule(runtime)
    assert (paused.paused, paused.next_fire_at, paused.wake_at, paused.cron) == (True, None, None, "0 7 * * *")
    resumed = await runtime.triggers.resume_schedule(LOCAL_TENANT, paused.id)
    assert resumed.next_fire_at is not None
    assert resumed.next_fire_at.hour == 7


# --- schedules ------------------------------------------------------------------------------------------------------


async def test_a_due_schedule_starts_a_run_of_the_system_with_its_input(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await publish(runtime, DAILY % ", input: {order: o1}", ORDER + PLAIN)
    instant = await due_since(eye, 1)
    assert await outcomes(eye, 1) == ["started"]
    run = await state_of(runtime, await last_run(runtime))
    assert (run.requester, run.trigger, run.input, run.status) == ("system", "schedule", {"order": "o1"}, "finished")
    schedule = await only_schedule(runtime)
    assert schedule.last_fire_at == instant
    assert schedule.next_fire_at is not None
    assert schedule.next_fire_at > datetime.now(UTC)


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 3)])
async def test_what_nobody_was_there_for_is_fired_as_the_schedule_says(
    make: Make, eye: Connection, missed: str, count: int
) -> None:
    runtime = await make()
    await publish(runtime, DAILY % f", missed: {missed}")
    schedule = await only_schedule(runtime)
    assert schedule.next_fire_at is not None
    await eye.execute(
        "UPDATE schedules SET next_fire_at = $1, wake_at = now()", schedule.next_fire_at - timedelta(days=3)
    )
    ticking = await make(performs=True)
    await until(lambda: caught_up(ticking))
    assert await outcomes(eye, count) == ["started"] * count if count else not await fires(eye)


async def caught_up(runtime: Runtime) -> bool:
    schedule = await only_schedule(runtime)
    return (
        schedule.wake_at is not None
        and schedule.wake_at == schedule.next_fire_at
        and schedule.wake_at > datetime.now(UTC)
    )


async def test_where_runs_may_not_overlap_the_next_one_is_skipped(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await publish(runtime, DAILY % ", overlap: skip", ASKING)
    await due_since(eye, 2)
    assert await outcomes(eye, 1) == ["started"]
    await due_since(eye, 1)
    assert await outcomes(eye, 2) == ["started", "skipped"]
    await runtime.committer.submit(await last_run(runtime), LOCAL_TENANT, c.Stop(by="user:op"))
    await due_since(eye, 0)
    assert await outcomes(eye, 3) == ["started", "skipped", "started"]


async def test_where_they_queue_the_next_one_begins_when_the_last_has_ended(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await publish(runtime, DAILY % ", overlap: queue", ASKING)
    await due_since(eye, 2)
    assert await outcomes(eye, 1) == ["started"]
    first = await last_run(runtime)
    await due_since(eye, 1)
    await until(lambda: waits(eye))
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1
    await runtime.committer.submit(first, LOCAL_TENANT, c.Stop(by="user:op"))
    assert await outcomes(eye, 2) == ["started", "started"]
    assert await status_of(runtime, await last_run(runtime)) == "waiting"


async def test_each_missed_instant_reaches_its_run_and_the_schedules_input(make: Make, eye: Connection) -> None:
    runtime = await make()
    told = 'input: {type: object, properties: {day: {type: string}}}\noutput: "${{ run.scheduled_at }}"\n' + PLAIN
    await publish(runtime, DAILY % ', missed: all, input: {day: "on ${{ event.at }}"}', told)
    due = require((await only_schedule(runtime)).next_fire_at)
    await eye.execute("UPDATE schedules SET next_fire_at = $1, wake_at = now()", due - timedelta(days=3))
    ticking = await make(performs=True)
    assert await outcomes(eye, 3) == ["started"] * 3
    await until(lambda: caught_up(ticking))
    for row in await eye.fetch("SELECT fire_at, run_id FROM fires"):
        at = instants.rfc3339(instants.milliseconds(row["fire_at"]))
        run = await state_of(ticking, row["run_id"])
        assert (run.input, run.scheduled_at) == ({"day": f"on {at}"}, instants.milliseconds(row["fire_at"]))
        assert await status_of(ticking, row["run_id"]) == "finished"


async def test_a_hole_of_a_schedules_input_that_fails_refuses_its_instant(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await publish(runtime, DAILY % ', input: {n: "${{ int(event.at) }}"}')
    await due_since(eye, 1)
    assert await outcomes(eye, 1) == ["refused"]


async def test_an_earlier_releases_row_has_no_holes_and_its_input_is_literal(make: Make, eye: Connection) -> None:
    written = {"day": "on $${{ event.at }}"}
    runtime = await make()
    await publish(runtime, DAILY % f", input: {values.dumps(written).decode()}", OF_A_DAY)
    ticking = await make(performs=True)
    for stored in (written, {}, {"day": "today"}):  # also such as another version of the document would give
        await eye.execute("UPDATE schedules SET input = $1", values.dumps(stored))
        await due_since(eye, 1)
        await until(lambda: caught_up(ticking))
        run_id = require((await only_schedule(ticking)).last_run_id)
        assert (await state_of(ticking, run_id)).input == stored
        await until(partial(is_now, ticking, run_id, "finished"))
    assert {outcome for _, outcome in await fires(eye)} == {"started"}


async def test_an_unreadable_versions_schedule_is_left_to_its_release(make: Make, eye: Connection) -> None:
    newer = await make()
    await publish(newer, DAILY % ', input: {day: "on ${{ event.at }}"}', OF_A_DAY)
    await eye.execute("UPDATE workflows SET source = 'hai: flow/v9 '::bytea || source")
    older = await make(performs=True)
    await publish(older, DAILY % "", name="other")
    await due_since(eye, 1)
    await until(lambda: older.rows.failed[Sweep.SCHEDULES] > 0)
    other = "SELECT count(*) FROM runs JOIN workflows w ON w.sha256 = runs.workflow WHERE w.name = 'other'"
    await until(lambda: eye.fetchval(other))
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1, "nothing is begun with a text that is no instant"
    (row,) = [each for each in await schedules(older) if each.workflow_name == "timed"]
    assert row.last_fire_at is not None
    with pytest.raises((Rejected, Unreadable)):
        await older.triggers.run_schedule(LOCAL_TENANT, row.id, "now")
    await eye.execute("UPDATE workflows SET source = substring(source FROM 14) WHERE name = 'timed'")
    await make(performs=True)
    assert await outcomes(eye, 2) == ["started"] * 2
    (run,) = await eye.fetch("SELECT run_id FROM fires WHERE schedule_id = $1", row.id)
    assert (await state_of(newer, run["run_id"])).input == {
        "day": f"on {instants.rfc3339(instants.milliseconds(row.last_fire_at))}"
    }


@pytest.mark.parametrize(
    ("overlap", "left"), [("queue_one", ["started", "skipped", None]), ("queue", ["started", None, None])]
)
async def test_a_bounded_number_of_instants_waits_behind_a_run_and_is_shown(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, overlap: str, left: list[str | None]
) -> None:
    monkeypatch.setattr("hai_flow.runtime.messaging.triggers.WAITING_MAX", 2)
    runtime = await make(performs=True)
    await publish(runtime, DAILY % f", overlap: {overlap}", ASKING)
    await due_since(eye, 4)
    assert await outcomes(eye, 1) == ["started"]

    async def are(wanted: list[str | None]) -> bool:
        return [outcome for _, outcome in await fires(eye)] == wanted

    await due_since(eye, 3)
    await until(lambda: are(["started", None]))
    await due_since(eye, 2)
    await until(lambda: are(left))
    await due_since(eye, 1)
    wanted = [*left[:-1], "skipped", None] if overlap == "queue_one" else [*left, "skipped"]
    await until(lambda: are(wanted))
    assert (await only_schedule(runtime)).waiting == wanted.count(None)


async def waits(eye: Connection) -> bool:
    return (await fires(eye))[-1][1] is None and len(await fires(eye)) == 2


async def test_where_the_running_one_is_cancelled_it_is_stopped_for_the_next(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await publish(runtime, DAILY % ", overlap: cancel_running", ASKING)
    await due_since(eye, 2)
    assert await outcomes(eye, 1) == ["started"]
    first = await last_run(runtime)
    await due_since(eye, 1)
    assert await outcomes(eye, 2) == ["started", "started"]
    assert await status_of(runtime, first) == "stopped"
    assert await status_of(runtime, await last_run(runtime)) == "waiting"


async def test_who_dies_after_the_run_was_started_starts_no_second_one(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    await publish(runtime, DAILY % "", ASKING)
    real, deaths = triggers.settle_fire, []

    async def die(*arguments: Any) -> None:
        deaths.append(arguments)
        raise ConnectionError("the process died")

    monkeypatch.setattr(triggers, "settle_fire", die)
    instant = await due_since(eye, 1)
    ticking = await make(performs=True)
    await until(lambda: deaths)
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1
    monkeypatch.setattr(triggers, "settle_fire", real)
    await eye.execute("UPDATE schedules SET wake_at = now()")  # the lease of the dead is over
    assert await outcomes(eye, 1) == ["started"]
    schedule = await only_schedule(ticking)
    assert schedule.last_run_id == run_of(schedule.id, instant)
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1


async def test_a_run_that_is_refused_is_noted_and_the_next_instant_fires(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    keyed = "concurrency: {key: one, on_conflict: reject}\n"
    await publish(runtime, DAILY % "" + "  - event: {type: go}\n", keyed + ASKING)
    (started,) = await send(runtime, "e1", "go")
    await due_since(eye, 2)
    assert await outcomes(eye, 1) == ["refused"]
    assert started.run_id is not None
    await runtime.committer.submit(started.run_id, LOCAL_TENANT, c.Stop(by="user:op"))
    await due_since(eye, 1)
    assert await outcomes(eye, 2) == ["refused", "started"]


async def test_a_slow_process_waking_after_another_starts_no_second_run(make: Make, eye: Connection) -> None:
    runtime = await make()
    await publish(runtime, DAILY % "", ASKING)
    await due_since(eye, 3)
    (slow,) = await triggers.take_due(runtime.database.api, 1, timedelta(seconds=5))
    await triggers.fire(runtime.database.api, slow, [datetime.now(UTC) - timedelta(seconds=n) for n in (2, 1)], None)
    await eye.execute("UPDATE schedules SET wake_at = now()")  # its lease is over
    other = await make(performs=True)
    assert await outcomes(eye, 2) == ["started", "skipped"]
    await eye.execute("UPDATE fires SET outcome = NULL, run_id = NULL WHERE outcome = 'skipped'")
    assert await runtime.triggers._start_fires(slow, timedelta(seconds=5)), (
        "it leaves the schedule to whoever has it now"
    )
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1
    assert (await only_schedule(other)).last_run_id == await eye.fetchval("SELECT id FROM runs")


async def test_a_run_that_a_dead_process_was_about_to_start_is_started(make: Make, eye: Connection) -> None:
    runtime = await make()
    await publish(runtime, DAILY % "", ASKING)
    instant = await due_since(eye, 1)
    (taken,) = await triggers.take_due(runtime.database.api, 1, timedelta(seconds=5))
    await triggers.fire(runtime.database.api, taken, [instant], None)
    run_id = run_of(taken.id, instant)
    assert await triggers.claim_turn(runtime.database.api, taken, None, run_id, timedelta(seconds=5))
    await eye.execute("UPDATE schedules SET wake_at = now()")
    heir = await make(performs=True)
    assert await outcomes(eye, 1) == ["started"]
    assert await is_now(heir, run_id, "waiting")


async def test_a_paused_schedule_fires_only_by_request_and_has_missed_nothing(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await publish(runtime, DAILY % ", missed: all")
    schedule = await only_schedule(runtime)
    await runtime.triggers.pause_schedule(LOCAL_TENANT, schedule.id)
    asked = await runtime.triggers.run_schedule(LOCAL_TENANT, schedule.id, "a")
    await until(lambda: is_now(runtime, asked.run_id, "finished"))
    await eye.execute(
        "UPDATE schedules SET last_fire_at = now() - interval '4 days', next_fire_at = now() - interval '3 days'"
    )
    resumed = await runtime.triggers.resume_schedule(LOCAL_TENANT, schedule.id)
    assert (resumed.paused, resumed.last_run_id) == (False, asked.run_id)
    assert resumed.next_fire_at is not None
    assert resumed.next_fire_at > datetime.now(UTC)
    assert await fires(eye) == []


async def test_a_request_starts_one_run_a_key_but_none_beside_an_active_one(make: Make, eye: Connection) -> None:
    runtimes = [await make(), await make()]
    await publish(runtimes[0], DAILY % "", ASKING)
    schedule = await only_schedule(runtimes[0])

    async def ask(n: int, key: str) -> UUID | str:
        try:
            return (await runtimes[n % 2].triggers.run_schedule(LOCAL_TENANT, schedule.id, key)).run_id
        except Rejected as rejected:
            return rejected.code

    answers = await asyncio.gather(*(ask(n, f"key {n // 2}") for n in range(8)))
    started = [each for each in answers if each != "schedule_busy"]
    assert len(set(started)) == 1, "one key came first"
    assert 1 <= len(started) <= 2, "it was sent twice"
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1
    await runtimes[0].committer.submit(await last_run(runtimes[0]), LOCAL_TENANT, c.Stop(by="user:op"))
    assert await ask(0, "later") not in started


async def test_a_request_stops_the_last_run_where_overlap_says_so(make: Make) -> None:
    runtime = await make(performs=True)
    await publish(runtime, DAILY % ", overlap: cancel_running", ASKING)
    schedule = await only_schedule(runtime)
    first, second = [await runtime.triggers.run_schedule(LOCAL_TENANT, schedule.id, key) for key in ("a", "b")]
    assert await status_of(runtime, first.run_id) == "stopped"
    assert await status_of(runtime, second.run_id) == "waiting"


async def test_a_request_that_is_refused_leaves_the_schedule_as_it_was(make: Make) -> None:
    runtime = await make()
    keyed = "concurrency: {key: one, on_conflict: reject}\n"
    await publish(runtime, DAILY % "" + "  - event: {type: go}\n", keyed + ASKING)
    (other,) = await send(runtime, "e1", "go")
    schedule = await only_schedule(runtime)
    with pytest.raises(Rejected, match="at most one run of the concurrency key"):
        await runtime.triggers.run_schedule(LOCAL_TENANT, schedule.id, "a")
    assert await only_schedule(runtime) == schedule
    assert other.run_id is not None
    await runtime.committer.submit(other.run_id, LOCAL_TENANT, c.Stop(by="user:op"))
    again = await runtime.triggers.run_schedule(LOCAL_TENANT, schedule.id, "a")
    assert await status_of(runtime, again.run_id) == "waiting"


async def test_a_version_that_can_not_be_published_leaves_the_triggers_alone(make: Make) -> None:
    runtime = await make()
    await publish(runtime, DAILY % "")
    before = await only_schedule(runtime)
    with pytest.raises(Rejected, match="never changes"):
        await publish(runtime, '  - schedule: {cron: "1 1 * * *", timezone: UTC}\n')
    assert await only_schedule(runtime) == before


# --- events ---------------------------------------------------------------------------------------------------------


async def test_of_two_publishers_of_one_webhook_path_one_hears_it_is_taken(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found the path free before either has taken it."""
    one, other = await make(), await make()
    hook = '  - webhook: {path: pay, secret: "${{ secrets.PAY }}"}\n'
    real, checked, is_checked = workflows.publish_workflow, Catalog._check, asyncio.Event()

    async def check(self: Catalog, *given: Any, **more: Any) -> Any:
        found = await checked(self, *given, **more)
        if self is other.catalog:
            is_checked.set()
        return found

    async def store(*given: Any, **more: Any) -> Any:
        await is_checked.wait()
        return await real(*given, **more)

    monkeypatch.setattr(Catalog, "_check", check)
    monkeypatch.setattr(workflows, "publish_workflow", store)
    publishing = [publish(runtime, hook, name=name) for runtime, name in ((one, "first"), (other, "second"))]
    done = await asyncio.gather(*publishing, return_exceptions=True)
    (refused,) = [each for each in done if isinstance(each, DefinitionError)]
    assert [each.code for each in refused.findings] == ["webhook.path_taken"]
    (row,) = await triggers.list_event_triggers(one.database.api, LOCAL_TENANT, "pay", "webhook")
    stored = await workflows.list_workflows(one.database.api, LOCAL_TENANT)
    assert [each.name for each in stored] == [row.workflow_name]


PAID = """  - event:
      type: order.paid
      match: event.data.total > 100
      dedupe: "${{ event.data.order }}"
      input: {order: "${{ event.data.order }}"}
"""


async def test_an_event_starts_each_workflow_that_wants_it_with_its_input(make: Make) -> None:
    runtime = await make()
    await publish(runtime, PAID, ORDER + PLAIN, name="big")
    await publish(
        runtime,
        "  - event: {type: order.paid}\n",
        name="all",
        body="input: {additionalProperties: true, type: object}\n" + PLAIN,
    )
    await publish(runtime, "  - event: {type: order.lost}\n", name="other")
    small = await send(runtime, "e1", "order.paid", {"order": "o1", "total": 5})
    assert [each.workflow for each in small] == ["all"]
    big = await send(runtime, "e2", "order.paid", {"order": "o2", "total": 500})
    assert [each.workflow for each in big] == ["all", "big"]
    assert big[0].run_id is not None
    assert big[1].run_id is not None
    copied, chosen = await state_of(runtime, big[0].run_id), await state_of(runtime, big[1].run_id)
    assert copied.input == {"order": "o2", "total": 500}
    assert (chosen.input, chosen.requester, chosen.trigger) == ({"order": "o2"}, "system", "event")


async def test_one_dedupe_key_has_one_run_however_often_and_wherever_sent(make: Make, eye: Connection) -> None:
    runtimes = [await make(), await make()]
    await publish(runtimes[0], PAID, ORDER + PLAIN)
    event = {"order": "o1", "total": 500}
    sent = await asyncio.gather(*(send(runtimes[n % 2], f"e{n}", "order.paid", event) for n in range(10)))
    assert len({each.run_id for found in sent for each in found}) == 1
    assert sorted(each.already for found in sent for each in found) == [False] + [True] * 9
    await publish(runtimes[1], PAID, ORDER + PLAIN + "output: later\n", version=2)
    (again,) = await send(runtimes[1], "e99", "order.paid", event)
    assert again.already, "the key is the workflow's, not the version's"
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1


async def test_a_repeated_event_without_dedupe_key_starts_nothing_a_new_one_does(make: Make) -> None:
    runtime = await make()
    await publish(runtime, "  - event: {type: ping}\n")
    (first,), (again,), (other,) = [await send(runtime, id, "ping", {}) for id in ("e1", "e1", "e2")]
    assert (first.run_id, first.already, again.already) == (again.run_id, False, True)
    assert other.run_id != first.run_id


async def test_a_repeated_event_answers_alike_and_a_changed_one_is_refused(make: Make) -> None:
    runtime = await make()
    await publish(runtime, "  - event: {type: ping}\n")
    first, again = [await runtime.triggers.receive_event(LOCAL_TENANT, "e1", "ping", {}) for _ in range(2)]
    assert (first.already, again.already, first.event) == (False, True, again.event)
    assert [each.run_id for each in first.started] == [each.run_id for each in again.started]
    with pytest.raises(Rejected, match="another signal") as refused:
        await runtime.triggers.receive_event(LOCAL_TENANT, "e1", "ping", {"n": 1})
    assert (refused.value.status, refused.value.code) == (409, "signal_exists")


async def test_one_event_starts_runs_and_goes_to_those_that_wait_for_it(make: Make, eye: Connection) -> None:
    runtime = await make()
    waiting = "steps:\n  - {id: paid, wait_for: {event: ping, deadline: 1d}}\noutput: ${{ steps.paid.output.data }}\n"
    run = await start(runtime, waiting)
    await publish(runtime, "  - event: {type: ping}\n", "input: {type: object, additionalProperties: true}\n" + PLAIN)
    await until(lambda: eye.fetchval("SELECT count(*) FROM subscriptions"))
    (started,) = await send(runtime, "e1", "ping", {"n": 1})
    assert started.run_id is not None
    assert await status_of(runtime, run.run_id) == "finished"
    assert (await state_of(runtime, run.run_id)).output == (await state_of(runtime, started.run_id)).input == {"n": 1}


async def test_a_signal_for_all_starts_what_it_starts_too(make: Make, eye: Connection) -> None:
    runtime = await make()
    await publish(runtime, "  - event: {type: ping}\n")
    await runtime.delivery.send(LOCAL_TENANT, "e1", "ping", {})
    await until(lambda: eye.fetchval("SELECT count(*) FROM runs"))
    ((again),) = await send(runtime, "e1", "ping", {})
    assert again.already
    to_one = await start(runtime, ASKING)
    await runtime.delivery.send(LOCAL_TENANT, "e2", "ping", {}, to_one.run_id)
    await until(lambda: eye.fetchval("SELECT count(*) = 0 FROM signals WHERE due_at IS NOT NULL"))
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2, "what is sent to one run starts no other"


async def test_an_event_whose_receiver_died_is_delivered_by_another(make: Make, eye: Connection) -> None:
    runtime = await make()
    await publish(runtime, "  - event: {type: ping}\n")
    await signals.store_signal(runtime.database.api, LOCAL_TENANT, "e1", "ping", b"{}", due_after=EVENT_LEASE)
    assert await eye.fetchval("SELECT count(*) FROM runs") == 0
    await eye.execute("UPDATE signals SET due_at = now()")
    await until(lambda: eye.fetchval("SELECT count(*) FROM runs"))


async def test_an_empty_dedupe_key_is_none_and_keys_belong_to_one_type(make: Make) -> None:
    runtime = await make()
    keyed = '  - event: {type: %s, dedupe: "${{ event.data.key }}", input: {}}\n'
    await publish(runtime, keyed % "paid" + keyed % "lost")
    events = [("e1", "paid", ""), ("e2", "paid", ""), ("e3", "paid", "k"), ("e4", "lost", "k"), ("e5", "lost", None)]
    found = [(await send(runtime, id, type, {"key": key}))[0] for id, type, key in events]
    assert len({each.run_id for each in found}) == 5


@pytest.mark.parametrize("data", [None, 5, "text", [1], {"a": {"b": [None, 2**60, 1e300, "\x00"]}}])
async def test_whatever_an_event_says_starts_a_run_or_is_refused(make: Make, data: Any) -> None:
    runtime = await make()
    await publish(runtime, "  - event: {type: ping}\n", "input: {type: object, additionalProperties: true}\n" + PLAIN)
    keys = 'match: event.data.a != 1, dedupe: "${{ event.data }}", input: "${{ event.data.a }}"'
    await publish(runtime, f"  - event: {{type: ping, {keys}}}\n", name="picky")
    for each in await send(runtime, "e1", "ping", data):
        assert (each.run_id is None) == (each.refused is not None)
        assert each.refused is None or each.refused.status == 422


async def test_what_one_workflow_refuses_keeps_no_other_from_being_started(make: Make) -> None:
    runtime = await make()
    await publish(runtime, "  - event: {type: ping}\n", ORDER + PLAIN, name="strict")
    await publish(runtime, "  - event: {type: ping, match: event.data.no.such > 1}\n", name="broken")
    await publish(runtime, "  - event: {type: ping}\n", name="willing")
    found = {each.workflow: each for each in await send(runtime, "e1", "ping", {})}
    assert found["willing"].run_id is not None
    refusals = {name: each.refused.code for name, each in found.items() if each.refused is not None}
    assert refusals == {"strict": "input.invalid", "broken": "expression.absent"}


async def test_a_workflow_without_an_api_trigger_is_not_started_by_request(make: Make) -> None:
    runtime = await make()
    await publish(runtime, PAID + DAILY % ", input: {order: x}", ORDER + PLAIN)
    with pytest.raises(Rejected, match="is started by its event and schedule triggers only") as refused:
        await runtime.catalog.resolve_startable(LOCAL_TENANT, "timed")
    assert (refused.value.status, refused.value.code) == (409, "trigger_missing")
    stored, _ = await publish(runtime, PAID + "  - api: {}\n", ORDER + PLAIN, version=2)
    assert (await runtime.catalog.resolve_startable(LOCAL_TENANT, "timed"))[0].sha256 == stored.sha256


# --- many processes -------------------------------------------------------------------------------------------------

SCHEDULES = 50
INSTANTS = 8


@pytest.mark.costly
async def test_fifty_schedules_at_one_hertz_through_a_death_miss_and_double_none(
    database_url: str, make: Make, eye: Connection
) -> None:
    runtime = await make()
    await publish(runtime, DAILY % ", missed: all", "input: {type: object, properties: {n: {type: integer}}}\n" + PLAIN)
    (daily,) = await schedules(runtime)
    first = await eye.fetchval("SELECT date_trunc('second', now()) + interval '1 second'")
    ticking = [
        replace(daily, id=UUID(int=n + 1), position=n, input=values.dumps({"n": n}), cron=None, every_ms=1000)
        for n in range(SCHEDULES)
    ]
    with Nursery(database_url) as nursery:
        processes = [nursery.fork() for _ in range(4)]
        await until(lambda: all_registered(eye))
        async with runtime.database.api.acquire() as connection, connection.transaction():
            await connection.execute("DELETE FROM schedules")
            due = [replace(each, next_fire_at=first) for each in ticking]
            await triggers.replace_triggers(connection, LOCAL_TENANT, "timed", due, [])
        await until(lambda: fired_everywhere(eye, first + timedelta(seconds=INSTANTS // 2)))
        assert sum(map(alive, processes)) == 4
        os.kill(processes[0], signal.SIGKILL)
        await until(lambda: not alive(processes[0]))
        last = await eye.fetchval("SELECT max(fire_at) FROM fires") + timedelta(seconds=INSTANTS // 2)
        await until(lambda: fired_everywhere(eye, last), 60)
    rows = await eye.fetch(
        "SELECT schedule_id, array_agg(fire_at ORDER BY fire_at) AS at, array_agg(run_id ORDER BY fire_at) AS runs "
        "FROM fires WHERE fire_at <= $1 GROUP BY 1",
        last,
    )
    assert len(rows) == SCHEDULES
    expected = [first + timedelta(seconds=n) for n in range(round((last - first).total_seconds()) + 1)]
    started = {row[0]: row[1] for row in await eye.fetch("SELECT id, input FROM runs")}
    for row in rows:
        assert row["at"] == expected, "no gap, and nothing in between"
        assert len(set(row["runs"])) == len(expected), "each instant has a run of its own"
        assert {values.loads(started[run])["n"] for run in row["runs"]} == {row["schedule_id"].int - 1}
        assert row["runs"] == [run_of(row["schedule_id"], at) for at in expected]
    later = await eye.fetch("SELECT schedule_id, fire_at FROM fires WHERE fire_at > $1", last)
    theirs = {run for row in rows for run in row["runs"]}
    assert theirs <= started.keys() <= theirs | {run_of(*row) for row in later}, "no run without its instant"


def run_of(schedule_id: UUID, instant: datetime) -> UUID:
    return derive_uuid("schedule", str(schedule_id), str(instants.milliseconds(instant)))


async def all_registered(eye: Connection) -> bool:
    return await eye.fetchval("SELECT count(*) FROM workers") == 4


async def fired_everywhere(eye: Connection, instant: datetime) -> bool:
    query = "SELECT count(*) FROM fires WHERE fire_at = $1 AND outcome = 'started'"
    return await eye.fetchval(query, instant) == SCHEDULES


async def test_a_workflow_whose_plan_fails_keeps_an_event_from_nobody_else(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    runtime.delivery.config = replace(runtime.delivery.config, again_seconds=0.0)
    broken, _ = await publish(runtime, "  - event: {type: ping}\n", name="broken")
    await publish(runtime, "  - event: {type: ping}\n", name="sound")
    real, asked, mended = runtime.catalog.plan, [], asyncio.Event()

    async def plan(tenant: UUID, digest: bytes) -> Any:
        asked.append(digest)
        if digest == broken.sha256 and not mended.is_set():
            raise StoreError("its document is of a newer release")
        return await real(tenant, digest)

    monkeypatch.setattr(runtime.catalog, "plan", plan)
    told = {each.workflow: each for each in await send(runtime, "e1", "ping")}
    assert (told["sound"].refused, told["sound"].run_id is not None) == (None, True)
    assert told["broken"].refused is not None
    assert (told["broken"].refused.status, told["broken"].refused.code) == (503, "workflow_unusable")
    runtime.delivery._signals.set()
    await until(lambda: asked.count(broken.sha256) > 2)
    assert len(asked) - asked.count(broken.sha256) == 2, "the sound one is asked for a first time, and to be started"
    mended.set()
    await until(lambda: heard_by_all(eye))
    names = await eye.fetch("SELECT workflow_name FROM runs ORDER BY 1")
    assert [row[0] for row in names] == ["broken", "sound"]


async def heard_by_all(eye: Connection) -> bool:
    return bool(await eye.fetchval("SELECT count(*) FROM signals WHERE due_at IS NULL AND undelivered IS NULL"))
