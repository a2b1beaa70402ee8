"""One statement tells all loops of a process what is due; without its answer each looks for itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.primitives import instants
from hai_flow.runtime.base import pulse
from hai_flow.runtime.base.pulse import Alarm, Pulse
from hai_flow.runtime.base.queue_selection import QueueSelection
from hai_flow.runtime.messaging.triggers import Watched
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.audit import audit
from hai_flow.store.messaging import outbox, signals, triggers
from hai_flow.store.ops.pulse import DueWork, due_work
from hai_flow.store.runs import leases
from tests.runtime.conftest import ASKING, Connection, Make, is_now, start
from tests.support.waiting import until

WAITING = "steps:\n  - {id: pause, wait: {for: 1d}}\n"
QUEUED = "queue: slow\n" + WAITING
NOTHING = DueWork(False, False, frozenset())
LOOKS = (
    (outbox, "due_messages"),
    (signals, "due_signals"),
    (triggers, "take_due"),
    (triggers, "workflows_with_end_triggers"),
    (leases, "next_wake"),
    (audit, "seal"),
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each loop has looked for its own kind of work."""
    looks = Counter[str]()

    def counted(name: str, look: Any) -> Any:
        def count(*given: Any, **more: Any) -> Any:
            looks[name] += 1
            return look(*given, **more)

        return count

    for module, name in LOOKS:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return looks


@pytest.fixture
def pulses(monkeypatch: pytest.MonkeyPatch) -> list[DueWork]:
    """What was due each time that it was asked."""
    pulses: list[DueWork] = []

    async def noted(*given: Any, **more: Any) -> DueWork:
        pulses.append(await due_work(*given, **more))
        return pulses[-1]

    monkeypatch.setattr(pulse, "due_work", noted)
    return pulses


async def test_a_process_with_nothing_to_do_asks_once_for_all_of_its_loops(
    make: Make, looks: Counter[str], pulses: list[DueWork]
) -> None:
    await make(performs=True)
    await until(lambda: len(pulses) >= 3)
    before = looks.copy()
    await until(lambda: len(pulses) >= 8)
    assert looks == before
    assert {each._replace(now=None) for each in pulses} == {NOTHING}


async def test_where_it_is_not_known_what_is_due_each_loop_looks_for_itself(
    make: Make, looks: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> DueWork:
        raise PermissionError("one of the tables can't be read")

    monkeypatch.setattr(pulse, "due_work", broken)
    await make(performs=True)
    await until(lambda: all(looks[name] >= 3 for _, name in LOOKS))


@pytest.mark.parametrize("performs", [True, False])
async def test_a_message_left_by_a_dead_process_is_delivered_without_a_hint(
    make: Make, eye: Connection, looks: Counter[str], performs: bool
) -> None:
    runtime = await make(performs=performs)
    run_id = (await start(runtime, ASKING)).run_id
    taken = asyncio.Event()

    async def take(message: outbox.OutboxMessage) -> None:
        taken.set()

    runtime.delivery.handlers["left"] = take
    await until(lambda: looks["due_messages"])
    await eye.execute(
        "INSERT INTO outbox (run_id, last_seq, n, tenant, kind, target, body, due_at) "
        "VALUES ($1, 1, 0, $2, 'left', 'x', '{}', now())",
        run_id,
        LOCAL_TENANT,
    )
    await asyncio.wait_for(taken.wait(), 20)


async def test_a_run_timed_by_another_process_is_claimed_without_a_hint(
    make: Make, eye: Connection, pulses: list[DueWork]
) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, WAITING)).run_id
    await until(lambda: is_now(runtime, run_id, "waiting"))
    await until(lambda: pulses and pulses[-1].runs is not None)
    claimed = asyncio.Event()
    claim = runtime.worker.claim  # type: ignore[union-attr]

    async def noted(*given: Any) -> Any:
        found = await claim(*given)
        if any(each.run_id == run_id for each in found):
            claimed.set()
        return found

    runtime.worker.claim = noted  # type: ignore[method-assign, union-attr]
    await eye.execute("UPDATE runs SET wake_at = now() WHERE id = $1", run_id)
    await asyncio.wait_for(claimed.wait(), 20)


async def test_what_is_due_is_told_by_its_kind(make: Make, eye: Connection) -> None:
    runtime = await make()
    here, slow = [await start(runtime, flow) for flow in (WAITING, QUEUED)]
    for number, outcome in enumerate((slow, here)):
        await eye.execute(
            "UPDATE runs SET wake_at = timestamptz '2030-01-01' - make_interval(days => $2) WHERE id = $1",
            outcome.run_id,
            number,
        )
    await eye.execute(
        "INSERT INTO slots (tenant, slot, run_id, promised_until) VALUES ($1, 'x', $2, now() - interval '1 s')",
        LOCAL_TENANT,
        uuid4(),
    )
    dead = await eye.fetchval("INSERT INTO workers (name, alive_until) VALUES ('w', '-infinity') RETURNING id")
    due = await _due(runtime, ["default"])
    assert (due.promises, due.lost, due.messages, due.signals) == (True, False, False, False)
    assert due.runs is not None
    assert due.runs.isoformat() == "2029-12-31T00:00:00+00:00"
    assert (await _due(runtime, ["slow"])).runs == due.runs + timedelta(days=1)
    assert (await _due(runtime, None)).runs == due.runs
    assert (await _due(runtime, None, performs=False))._replace(now=None) == NOTHING
    await eye.execute("UPDATE runs SET worker = $2, wake_at = NULL WHERE id = $1", here.run_id, dead)
    assert (await _due(runtime, ["default"])).lost
    await eye.execute(
        "INSERT INTO event_triggers (tenant, workflow_name, position, workflow, dev, kind, type) "
        "VALUES ($1, 'w', 0, 'x', false, 'run', 'order placed')",
        LOCAL_TENANT,
    )
    assert (await _due(runtime, None, performs=False)).watched == {(LOCAL_TENANT, "order placed")}


async def _due(runtime: Runtime, queues: list[str] | None, *, performs: bool = True) -> DueWork:
    async with runtime.database.engine.acquire() as connection:
        return await due_work(connection, queues, performs=performs)


async def test_an_alarm_rings_at_its_time_unless_a_pulse_comes_first() -> None:
    event, now = asyncio.Event(), 1_000_000
    alarm = Alarm(event, lambda: now, poll_seconds=1.0)
    alarm.set(instants.instant(now + 60_000))
    assert not _rings(alarm)
    alarm.set(instants.instant(now + 20))
    assert _rings(alarm)
    await asyncio.wait_for(event.wait(), 10)
    event.clear()
    alarm.set(instants.instant(now + 20))
    alarm.cancel()
    assert not _rings(alarm)
    alarm.set(instants.instant(now - 20))
    assert event.is_set()


def _rings(alarm: Alarm) -> bool:
    return alarm._timer is not None


async def test_an_older_answer_does_not_hide_whose_ends_are_wanted_since() -> None:
    watched = Watched(None)  # type: ignore[arg-type]
    wanted = UUID(int=1), "sale"
    loop = asyncio.get_running_loop().time()
    watched.learn(frozenset({wanted}), loop)
    watched.learn(frozenset(), loop - 1.0)
    assert watched.wants(*wanted)
    watched.learn(frozenset(), loop + 1.0)
    assert not watched.wants(*wanted)


async def test_on_citus_nothing_is_asked_and_every_loop_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def ask(*given: Any, **_: Any) -> DueWork:
        asked.append(given)
        return NOTHING

    monkeypatch.setattr(pulse, "due_work", ask)
    told: list[DueWork | None] = []
    beating = Pulse(_OnCitus(), QueueSelection(), 0.01)  # type: ignore[arg-type]
    beating.looks.append(lambda due, _: told.append(due))
    async with beating.lifespan():
        await until(lambda: len(told) >= 2)
    assert set(told) == {None}
    assert asked == []


class _OnCitus:
    """A database in which records of the audit do not queue themselves."""

    engine: Any
    sharded = True

    def __init__(self) -> None:
        self.engine = self

    def acquire(self) -> _OnCitus:
        return self

    async def __aenter__(self) -> _OnCitus:
        return self

    async def __aexit__(self, *_: object) -> None: ...
