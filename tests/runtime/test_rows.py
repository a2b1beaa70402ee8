"""One bad neighbour harms nobody: in every sweep a row that can't be dealt with leaves the others alone."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from hai_flow.cells import TenantCells
from hai_flow.engine import commands as c
from hai_flow.engine.steps.concurrency_slots import THREAD_FREED
from hai_flow.errors import Unreadable
from hai_flow.notify.channels import read_channels
from hai_flow.runtime.base import sweep_isolation
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.sweep_isolation import PASSING_MAX, Rows, Sweep
from hai_flow.runtime.people import inbox
from hai_flow.runtime.people.absence_notices import Reseating
from hai_flow.runtime.people.notifier import Notifier
from hai_flow.runtime.people.picks import Picks
from hai_flow.runtime.people.roster import Rosters
from hai_flow.runtime.people.undecidable import Staff, Stranded
from hai_flow.runtime.replication import Spreading
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.worker import sweeper
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.store.cells import event_relays
from hai_flow.store.cells.event_relays import Relay
from hai_flow.store.commit.projection import PICKED
from hai_flow.store.identity import tenants
from hai_flow.store.messaging import concurrency_slots, outbox, signals, triggers
from hai_flow.store.messaging import message_queue as queue
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.people import absences, notifications, undecidable
from hai_flow.store.postgres.orphan_cleanup import Page
from tests.runtime.conftest import ASKING, Connection, Make, answer, is_now, open_pending, start, state_of, status_of
from tests.runtime.test_message_queue import BODY, enqueue, exists
from tests.runtime.test_slots import begin, keyed, settle
from tests.support.examples import sample
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
ERRORS = [
    Unreadable("a newer release wrote it"),
    ValueError("what nobody expected"),
    KeyError("brand_new_key"),
    asyncpg.DataError("invalid byte sequence"),
    asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Stage:
    """A sweep over a bad row and, behind it, a good one. `spoiled`: whether the bad one is still bad."""

    runtime: Runtime
    patch: pytest.MonkeyPatch
    error: Exception
    spoiled: bool = True
    done: list[str] = field(default_factory=list)

    async def deal_with(self, name: str) -> None:
        if name == "bad" and self.spoiled:
            raise self.error
        self.done.append(name)


Round: TypeAlias = Callable[[], Awaitable[object]]
Scene: TypeAlias = Callable[[Stage], Round]


def tidying(stage: Stage) -> Round:
    async def forget_bad(*_: Any) -> Page:
        await stage.deal_with("bad")
        return Page(0, 0, None)

    async def forget_good(*_: Any) -> None:
        await stage.deal_with("good")

    stage.patch.setattr(signals, "forget_subscriptions", forget_bad)
    stage.patch.setattr(notifications, "forget", forget_good)
    made = sweeper.Sweeper(
        stage.runtime.database,
        stage.runtime.committer,
        SimpleNamespace(),  # type: ignore[arg-type]
        sweeper.SweeperConfig(tidy_seconds=0.0),
        rows=stage.runtime.rows,
    )
    return made.tidy


def inboxes(stage: Stage) -> Round:
    async def page(*_: Any) -> list[Any]:
        return [SimpleNamespace(id=each) for each in ("bad", "good")]

    async def correction(listed: Any) -> None:
        await stage.deal_with(listed.id)

    stage.patch.setattr(inbox.inbox, "open_page", page)
    stage.patch.setattr(stage.runtime.inbox, "_correction", correction)
    return lambda: stage.runtime.inbox.tidy(timedelta(0))


def queued_messages(stage: Stage) -> Round:
    async def stalled(*_: Any) -> Any:
        return {(LOCAL_TENANT, "bad"), (LOCAL_TENANT, "good")}, Page(2, 2, None)

    async def advance(tenant: UUID, thread: str) -> None:
        await stage.deal_with(thread)

    stage.patch.setattr(queue, "find_stalled_threads", stalled)
    stage.patch.setattr(stage.runtime.messages, "advance", advance)
    return lambda: stage.runtime.messages._advance_stalled(None)


def _keys(stage: Stage) -> Round:
    async def admit(tenant: UUID, key: str, overdue: Any = ()) -> None:
        await stage.deal_with(key)

    stage.patch.setattr(stage.runtime.slots, "admit", admit)
    return stage.runtime.slots.sweep


def promised_slots(stage: Stage) -> Round:
    async def overdue(*_: Any) -> list[Any]:
        return [concurrency_slots.Overdue(LOCAL_TENANT, each, []) for each in ("bad", "good")]

    stage.patch.setattr(concurrency_slots, "overdue_promises", overdue)
    return _keys(stage)


def waiting_keys(stage: Stage) -> Round:
    async def stalled(*_: Any) -> Any:
        return [(LOCAL_TENANT, "bad"), (LOCAL_TENANT, "good")], Page(2, 2, None)

    stage.patch.setattr(concurrency_slots, "find_stalled_keys", stalled)
    _keys(stage)
    return lambda: stage.runtime.slots._admit_stalled(None)


def waiting_runs(stage: Stage) -> Round:
    ids = {"bad": uuid4(), "good": uuid4()}

    async def seated(*_: Any) -> list[Any]:
        return [
            concurrency_slots.Holder(id, f"k#{name}", "queued") for name, id in ids.items() if name not in stage.done
        ]

    async def nothing(*_: Any) -> bool:
        return False

    async def begin(tenant: UUID, key: str, seat: Any) -> bool:
        await stage.deal_with(seat.slot.removeprefix("k#"))
        return False

    for name in ("step_back", "give_back"):
        stage.patch.setattr(concurrency_slots, name, nothing)
    stage.patch.setattr(concurrency_slots, "seat_waiters", seated)
    stage.patch.setattr(stage.runtime.slots, "_begin", begin)
    return lambda: stage.runtime.slots.admit(LOCAL_TENANT, "k")


def outboxes(stage: Stage) -> Round:
    messages = [
        OutboxMessage(uuid4(), 1, number, LOCAL_TENANT, "probe", name, b"{}")
        for number, name in enumerate(("bad", "good"))
    ]

    async def deliver(message: OutboxMessage) -> None:
        await stage.deal_with(message.target)

    async def delete(*_: Any) -> bool:
        return False

    stage.runtime.delivery.handlers["probe"] = deliver
    stage.patch.setattr(outbox, "delete_message", delete)

    async def round() -> None:
        await asyncio.gather(*(stage.runtime.delivery._deliver(each) for each in messages))

    return round


def offered_signals(stage: Stage) -> Round:
    async def offer(signal: Any, only: Any = None) -> dict[str, Exception]:
        await stage.deal_with(signal.id)
        return {}

    async def settle(*_: Any) -> None: ...

    stage.patch.setattr(stage.runtime.delivery, "offer", offer)
    stage.patch.setattr(stage.runtime.delivery, "settle", settle)

    async def round() -> None:
        for id in ("bad", "good"):
            signal: Any = SimpleNamespace(id=id, tenant=LOCAL_TENANT, run_id=1, undelivered=None)
            await stage.runtime.delivery._spread(signal)

    return round


def sent_notifications(stage: Stage) -> Round:
    file, _ = read_channels(b"hai: notify/v1\nchannels: {}\n", "notify.yaml")
    runtime = stage.runtime
    rosters = Rosters(runtime.tenants, file, None, by_keys=True)
    now = runtime.committer.now
    made = Notifier(runtime.database, runtime.inbox, rosters, file, {}, HttpConfig(), now, rows=runtime.rows)

    async def divide(given: Any) -> None:
        await stage.deal_with(given.id)

    stage.patch.setattr(made, "_divide", divide)

    async def round() -> None:
        for id in ("bad", "good"):
            await made._deal_with(SimpleNamespace(id=id, channel=None))  # type: ignore[arg-type]

    return round


def schedules(stage: Stage) -> Round:
    given: list[list[Any]] = []

    async def due(*_: Any) -> list[Any]:
        return given.pop() if given else []

    async def fires(schedule: Any, lease: Any) -> bool:
        await stage.deal_with(schedule.id)
        return False

    async def nothing(*_: Any) -> None:
        return None

    stage.patch.setattr(triggers, "take_due", due)
    for name in ("release", "next_wake"):
        stage.patch.setattr(triggers, name, nothing)
    stage.patch.setattr(stage.runtime.triggers, "_start_fires", fires)

    async def round() -> None:
        given.append([SimpleNamespace(id=id, wake_at=NOW, next_fire_at=None) for id in ("bad", "good")])
        await stage.runtime.triggers._start_due()

    return round


def relayed_events(stage: Stage) -> Round:
    made = Spreading(stage.runtime, lambda cell: stage.runtime, lambda: [stage.runtime])

    async def due(*_: Any) -> list[Relay]:
        return [Relay(LOCAL_TENANT, id, "t", b"{}", NOW, [stage.runtime.cell]) for id in ("bad", "good")]

    async def bring(seat: Runtime, relay: Relay) -> None:
        await stage.deal_with(relay.id)

    stage.patch.setattr(event_relays, "due", due)
    stage.patch.setattr(made, "bring", bring)
    return made.send_due_relays


def mirrored_tenants(stage: Stage) -> Round:
    made = Spreading(stage.runtime, lambda cell: stage.runtime, lambda: [stage.runtime])

    async def large(*_: Any) -> list[Any]:
        return [SimpleNamespace(id=name, name=name, living=TenantCells.in_one(0)) for name in ("bad", "good")]

    async def repeat(tenant: Any, living: TenantCells) -> None:
        await stage.deal_with(tenant)

    stage.patch.setattr("hai_flow.runtime.replication.MIRRORED_EVERY", timedelta(0))
    stage.patch.setattr(tenants, "large_tenants", large)
    stage.patch.setattr(made, "repeat", repeat)
    return made.send_due_again


def sweep_absences(stage: Stage) -> Round:
    made = Reseating(stage.runtime.database, lambda tenant: None, stage.runtime.rows)

    async def due(*_: Any) -> list[str]:
        return ["bad", "good"]

    stage.patch.setattr(absences, "list_due", due)
    stage.patch.setattr(made, "_tell", stage.deal_with)
    return made.take_due


def make_rosters(stage: Stage) -> Rosters:
    return Rosters(stage.runtime.tenants, None, None, by_keys=True)


def show_questions(stage: Stage, selector: str) -> None:
    """Let there be two questions, whose people this selector names."""

    async def selectors(*_: Any) -> dict[UUID, list[str]]:
        return {LOCAL_TENANT: [selector]}

    async def page(*_: Any, **more: Any) -> tuple[list[Any], None]:
        return [SimpleNamespace(id=id, run_id=UUID(int=1)) for id in ("bad", "good")], None

    stage.patch.setattr(undecidable, "list_selectors", selectors)
    stage.patch.setattr("hai_flow.store.people.inbox.page_of_inbox", page)


def judge_questions(stage: Stage) -> Round:
    made = Stranded(stage.runtime.database, stage.runtime.catalog, make_rosters(stage), stage.runtime.rows)

    async def judge(tenant: UUID, staff: Staff, verdicts: Any, question: Any) -> None:
        await stage.deal_with(question.id)

    show_questions(stage, "role:nobody")
    stage.patch.setattr(made, "_judge", judge)
    return made.look


def replace_picked_people(stage: Stage) -> Round:
    runtime = stage.runtime
    made = Picks(runtime.database, runtime.committer, runtime.catalog, make_rosters(stage), runtime.rows)

    async def look_at(tenant: UUID, roster: Any, away: Any, question: Any) -> None:
        await stage.deal_with(question.id)

    show_questions(stage, PICKED)
    stage.patch.setattr(made, "_look_at", look_at)
    return made.look


SCENES: dict[Sweep, Scene] = {
    Sweep.TIDYING: tidying,
    Sweep.INBOX: inboxes,
    Sweep.QUEUED_MESSAGES: queued_messages,
    Sweep.PROMISED_SLOTS: promised_slots,
    Sweep.WAITING_KEYS: waiting_keys,
    Sweep.WAITING_RUNS: waiting_runs,
    Sweep.OUTBOX: outboxes,
    Sweep.SIGNALS: offered_signals,
    Sweep.NOTIFICATIONS: sent_notifications,
    Sweep.SCHEDULES: schedules,
    Sweep.RELAYS: relayed_events,
    Sweep.MIRRORS: mirrored_tenants,
    Sweep.ABSENCES: sweep_absences,
    Sweep.STRANDED: judge_questions,
    Sweep.PICKS: replace_picked_people,
}
NAMED_OTHERWISE = (Sweep.TIDYING, Sweep.WAITING_RUNS, Sweep.OUTBOX)  # than "bad": by a kind or an id


def test_every_sweep_has_a_scene() -> None:
    assert set(SCENES) == set(Sweep)


@pytest.mark.parametrize(("sweep", "error"), sample(itertools.product(Sweep, ERRORS), 25))
async def test_a_failing_row_is_logged_once_and_retried_and_the_next_is_done(
    make: Make, monkeypatch: pytest.MonkeyPatch, sweep: Sweep, error: Exception
) -> None:
    stage = Stage(await make(), monkeypatch, error)
    stage.runtime.rows.again_seconds = 0.01
    look = SCENES[sweep](stage)
    with capture_logs() as said:
        for _ in range(4):
            await look()
            await asyncio.sleep(0)
        assert "good" in stage.done
        assert "bad" not in stage.done
        assert stage.runtime.rows.failed[sweep] >= 1
        told = [each for each in said if each["event"] == "row_put_off" and each["sweep"] == sweep.value]
        assert len(told) == 1
        assert "bad" in told[0]["row"] or sweep in NAMED_OTHERWISE
        stage.spoiled = False

        async def mended() -> bool:
            await look()
            return "bad" in stage.done

        await until(mended)


# --- no sweep is forgotten --------------------------------------------------------------------------------------------

LOOPS: dict[str, tuple[Sweep, ...]] = {
    "runtime/worker/sweeper.py: tidying": (Sweep.TIDYING, Sweep.INBOX),
    "runtime/runs/message_queue.py: stalled messages": (Sweep.QUEUED_MESSAGES,),
    "runtime/messaging/triggers.py: ticks of {name}": (
        Sweep.PROMISED_SLOTS, Sweep.WAITING_KEYS, Sweep.WAITING_RUNS,
    ),
    "runtime/messaging/triggers.py: ticks of schedules": (Sweep.SCHEDULES,),
    "runtime/messaging/outbox.py: messages between runs": (Sweep.OUTBOX,),
    "runtime/messaging/outbox.py: signals": (Sweep.SIGNALS,),
    "runtime/people/notifier.py: notifications": (Sweep.NOTIFICATIONS,),
    "runtime/messaging/pushes.py: push notifications": (Sweep.NOTIFICATIONS,),
    "runtime/people/chat_cards.py: cards in chats": (Sweep.NOTIFICATIONS,),
    "runtime/people/absence_notices.py: absences that begin and end": (Sweep.ABSENCES,),
    "runtime/people/undecidable.py: questions that nobody can decide": (Sweep.STRANDED,),
    "runtime/people/picks.py: people who are picked": (Sweep.PICKS,),
    "runtime/cells.py: events to all of a tenant": (Sweep.RELAYS,),
    "runtime/cells.py: what a seat has once": (Sweep.MIRRORS,),
}  # fmt: skip
ROWLESS = {
    "runtime/cells.py: cell {self.name(number)}": "starts one runtime",
    "runtime/base/pulse.py: what is due": "one statement, without which every loop looks for itself",
    "runtime/commit/committer.py: clock": "reads a clock",
    "runtime/commit/committer.py: hints": "sends hints, which polls make good",
    "runtime/messaging/deposits.py: deposits": "one that can't take effect is refused, or left for its lease, alone",
    "runtime/commit/freeze_cache.py: freezes": "one statement",
    "runtime/worker/thaws.py: runs held by freezes": "sends each run a command, decided with others of its run",
    "runtime/commit/committer.py: lane {number}": "a run that can't be decided is failed or set apart (recovery)",
    "runtime/commit/committer.py: late answers": "one answer each",
    "runtime/commit/committer.py: loads": "a run that can't be loaded is loaded apart from the others (commit/loader)",
    "runtime/ops/rollback_guard.py: beats": "writes one row",
    "runtime/streams/fanout.py: followed runs": "each run is read by a task of its own",
    "runtime/runs/message_queue.py: queued messages": "one statement, which gives ids",
    "runtime/worker/registry.py: presence": "writes one row",
    "runtime/ops/replicas.py: looking at the replica": "one statement",
    "runtime/ops/audit_seal.py: sealing": "hashes bytes as they are",
    "runtime/worker/sweeper.py: claims": "a run that can't be read is given back (runtime/commit/ownership)",
    "runtime/streams/thread_feed.py: waited-for threads": "one statement, which gives ids",
    "runtime/messaging/triggers.py: triggers by the ends of runs": "one statement, which gives names",
    "runtime/worker/worker.py: timers of held runs": "reports a command, which is decided with others of its run",
    "telemetry/database_gauges.py: census": "counts",
    "telemetry/loop_watch.py: loop watch": "measures the time between two beats",
    "telemetry/otlp_exporter.py: metrics": "sends what is in memory",
    "telemetry/otlp_exporter.py: spans": "sends what is in memory",
}


def _loops() -> Iterator[str]:
    for file in sorted((ROOT / "hai_flow").rglob("*.py")):
        if "_keep" not in (source := file.read_text()) and "PulsedService" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            names: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                names = node.args[{"_keep": slice(1, 2), "_keep_woken": slice(2, 3)}.get(node.func.attr, slice(0))]
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):  # of a `PulsedService`
                written = dict(zip(ast.unparse(node.targets[0]).strip("()").split(", "), node.value.elts, strict=False))
                names = [value for name, value in written.items() if name == "TASK"]
            if names and isinstance(names[0], (ast.Constant, ast.JoinedStr)):
                name = ast.unparse(names[0]).removeprefix("f").strip(chr(39))
                yield f"{file.relative_to(ROOT / 'hai_flow')}: {name}"


@pytest.mark.slow
def test_every_loop_of_a_service_names_its_sweeps_or_says_why_it_has_none() -> None:
    assert sorted(_loops()) == sorted([*LOOPS, *ROWLESS])
    assert {each for sweeps in LOOPS.values() for each in sweeps} == set(Sweep)


# --- putting off ------------------------------------------------------------------------------------------------------


async def test_a_rows_delay_grows_to_a_bound_and_is_reset_once_it_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now, bad = 0.0, True
    monkeypatch.setattr(sweep_isolation.time, "monotonic", lambda: now)
    made = Rows(again_seconds=1.0, again_seconds_max=8.0)

    async def work() -> None:
        if bad:
            raise ValueError("still bad")

    async def wait() -> float:
        nonlocal now
        found = await made.deal(Sweep.OUTBOX, "row", work)
        now += found
        return found

    assert [await wait() for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    bad = False
    assert await wait() == 0.0
    bad = True
    assert await wait() == 1.0


async def test_a_page_is_left_without_database_and_slow_rows_yield_to_the_rest() -> None:
    made, seen, slow = Rows(), list[int](), set(range(PASSING_MAX))

    async def work(row: int) -> None:
        if row in slow:
            raise asyncpg.QueryCanceledError("canceling statement due to statement timeout")
        seen.append(row)

    with pytest.raises(asyncpg.QueryCanceledError):
        await made.go_through(Sweep.INBOX, range(10), str, work)
    assert seen == []
    await made.go_through(Sweep.INBOX, range(10), str, work)
    assert seen == list(range(PASSING_MAX, 10))


# --- with rows of a newer release -------------------------------------------------------------------------------------

STRANGE = "UPDATE log SET events = convert_to(replace(convert_from(events, 'UTF8'), $2, $3), 'UTF8') WHERE run_id = $1"


async def make_unreadable(eye: Connection, run_id: UUID) -> None:
    await eye.execute(STRANGE, run_id, '{"type":"run_started"', '{"type":"run_started","novelty":1')


async def odd_workflow(eye: Connection) -> bytes:
    source = b"hai: flow/v1\nname: odd\nversion: 1\non_message: enqueue\nbrand_new_key: 1\nsteps: []\n"
    sha = hashlib.sha256(source).digest()
    await eye.execute(
        "INSERT INTO workflows (tenant, sha256, name, version, dev, source) VALUES ($1, $2, 'odd', 1, false, $3)",
        LOCAL_TENANT, sha, source,
    )  # fmt: skip
    return sha


async def test_a_message_for_an_unreadable_workflow_waits_and_the_next_is_sent(make: Make, eye: Connection) -> None:
    runtime = await make()

    async def forget(message: object) -> None: ...

    runtime.delivery.handlers[THREAD_FREED] = forget  # as where the process died that had the end's message
    bad, good = sorted((uuid4(), uuid4()))
    first, other = [(await start(runtime, BODY, thread=thread)).run_id for thread in ("a", "b")]
    await enqueue(runtime, first, bad)
    await enqueue(runtime, other, good)
    for run in (first, other):
        await runtime.committer.submit(run, LOCAL_TENANT, answer(await open_pending(runtime, run)))
    await eye.execute("UPDATE queued_messages SET workflow = $1 WHERE run_id = $2", await odd_workflow(eye), bad)
    await runtime.messages.sweep()
    assert await exists(eye, good)
    assert await eye.fetchval("SELECT refused IS NULL FROM queued_messages WHERE run_id = $1", bad)
    late = uuid4()
    command = c.Start(run_id=late, thread_id="a", requester="user:local", input={}, message="next")
    stored = await runtime.messages.add(
        LOCAL_TENANT, bytes.fromhex((await state_of(runtime, good)).sha256), command,
        AuditActor(who=c.LOCAL_PRINCIPAL, way="local"), command_id="late", body_sha=b"b" * 32,
    )  # fmt: skip
    assert stored.run_id == late, "who sends a message behind it hears nothing of it"


async def test_an_unreadable_waiting_run_lets_the_next_of_its_key_begin(make: Make, eye: Connection) -> None:
    runtime = await make()
    body = keyed()
    first, bad, good = [await begin(runtime, body) for _ in range(3)]
    assert [await status_of(runtime, each) for each in (bad, good)] == ["queued", "queued"]
    await make_unreadable(eye, bad)
    other = await make()
    await runtime.stop()
    await settle(other, first)
    await until(lambda: is_now(other, good, "waiting"))
    assert await eye.fetchval("SELECT count(*) FROM slot_waiters WHERE run_id = $1", bad) == 1


async def test_a_newer_releases_question_keeps_no_kind_of_row_from_removal(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run = (await start(runtime, ASKING)).run_id
    await eye.execute("UPDATE runs SET workflow = $1 WHERE id = $2", await odd_workflow(eye), run)
    await eye.execute("INSERT INTO forgotten (sha256, at) VALUES ('\\x01', now() - interval '3 days')")
    await runtime._sweeper.tidy()
    assert await eye.fetchval("SELECT count(*) FROM forgotten") == 0


async def test_a_question_that_fails_indexing_keeps_no_other_out_of_the_inbox(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    bad, good = [await open_pending(runtime, (await start(runtime, ASKING)).run_id) for _ in range(2)]
    await eye.execute("DELETE FROM inbox")
    mend = inbox.inbox.mend

    async def refuse(pool: Any, wrong: Any) -> None:
        if any(listed.id == bad for listed, *_ in wrong):
            raise asyncpg.DataError("a value that can't be stored")
        await mend(pool, wrong)

    monkeypatch.setattr(inbox.inbox, "mend", refuse)
    await runtime.inbox.tidy(timedelta(0))
    assert {row[0] for row in await eye.fetch("SELECT pending_id FROM inbox")} == {good}
