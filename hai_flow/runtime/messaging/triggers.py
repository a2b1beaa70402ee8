"""Starts runs by schedules, events, and the ends of other runs (docs/language.md#triggers), each exactly once: a
schedule is looked at by one process at a time, each instant is a row, and the run's id is made from (schedule,
instant), or of an event from its dedupe key or id. APScheduler only says when to look. The end of a run is a message of
its own commit if this process knows of a trigger that wants it; it asks for all of them every second, and where it
could not, every end is a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, cast
from uuid import UUID

import msgspec
import structlog

from hai_flow import schedule as times
from hai_flow import values
from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.plan import (
    EventTrigger,
    Expression,
    Plan,
    RunTrigger,
    ScheduleTrigger,
    Template,
    Trigger,
    WebhookTrigger,
)
from hai_flow.engine import commands as c
from hai_flow.engine.events import Origin, event_value
from hai_flow.engine.runs import on_end_triggers
from hai_flow.engine.state.instigators import SYSTEM, list_people_behind
from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.errors import Rejected, Unreadable
from hai_flow.primitives import file_ids, instants
from hai_flow.primitives.beside_loop import WORK_FOR, run_by_work, spend
from hai_flow.primitives.uuids import derive_uuid
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.pulse import Alarm
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.runtime.messaging.outbox import Delivery, Unreached
from hai_flow.runtime.runs.concurrency_slots import STALLED_EVERY, Slots
from hai_flow.runtime.runs.starts import Starts
from hai_flow.store.audit import audit
from hai_flow.store.catalog import workflows
from hai_flow.store.catalog.workflows import Workflow
from hai_flow.store.commit.entries import AuditRow
from hai_flow.store.messaging import signals, triggers
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.messaging.signals import Signal
from hai_flow.store.messaging.triggers import EventTriggerRow, ScheduleRow, TriggerKind
from hai_flow.store.ops.pulse import DueWork
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import files
from hai_flow.values import Json

log = structlog.get_logger(__name__)
_NEXT_FIRE_WORK: Final = 500  # microseconds: a date that comes once in a leap year takes more

WAITING_MAX: Final = 100  # instants of a schedule that wait for the run before them; later ones are skipped
OVERLAPPED: Final = "the next run of its schedule is due"
EVENT_LEASE: Final = signals.LEASE  # so long no other process delivers an event that a request is delivering

logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it tells of every wake-up


class TriggersConfig(msgspec.Struct, frozen=True):
    """`ticks`: whether this process looks for due schedules. `poll_seconds`: how often it is asked what is due.
    `lease_seconds`: so long no other process looks at a schedule that one has taken. `batch_max`: schedules taken at
    once. `sweep_seconds`: how often queues for slots are looked through; `tidy_seconds`: how often old firings are
    cleared away."""

    ticks: bool = True
    poll_seconds: float = 1.0
    lease_seconds: float = 5.0
    batch_max: int = 100
    sweep_seconds: float = 5.0
    tidy_seconds: float = 600.0


class Started(msgspec.Struct, frozen=True):
    """The outcome of an event in one workflow: a run (`already`: it was there), or a refusal; `failed` is why the event
    could not be delivered, which is tried again later."""

    workflow: str
    run_id: UUID | None = None
    already: bool = False
    refused: Rejected | None = None
    failed: Exception | None = None


class Received(msgspec.Struct, frozen=True):
    """An event as it is stored, whether it was there `already`, and its outcomes."""

    event: Signal
    already: bool
    started: list[Started]


class Triggers(Service):
    """Keeps the triggers of published workflows, and starts their runs."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        catalog: Catalog,
        delivery: Delivery,
        starts: Starts,
        slots: Slots,
        watched: Watched,
        config: TriggersConfig | None = None,
        rows: Rows | None = None,
    ) -> None:
        super().__init__()
        self._rows = rows or Rows()
        self.database = database
        self.committer = committer
        self.catalog = catalog
        self.delivery = delivery
        self.starts = starts
        self.slots = slots
        self.watched = watched
        self.config = config or TriggersConfig()
        catalog.on_publication, catalog.on_published = self.sync, self._look_anew
        delivery.listeners.append(self._hear)
        delivery.handlers[on_end_triggers.ENDED] = self._run_ended
        self._due = asyncio.Event()
        self._alarm = Alarm(self._due, committer.now_ms, self.config.poll_seconds)
        self._unsure = asyncio.Event()  # of the ends that others are told of
        self._promises_due = True
        self.of_cell: Callable[[int], Triggers] | None = None
        """The triggers of another cell of this process; None: there is none. Raises Rejected 503 where it is away."""

    # --- the ticker -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._keep(self._run_watching, "triggers by the ends of runs")
        if not self.config.ticks:
            return
        from apscheduler.schedulers.asyncio import AsyncIOScheduler  # a process without ticks needs none of it

        config = self.config
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None})
        self._keep_woken(self._due, self._start_due, "ticks of schedules", "tick_failed", of="schedules")
        self._run_each(config.sweep_seconds, asyncio.Event(), self._sweep_promises, "slots")
        self._run_each(STALLED_EVERY.total_seconds(), asyncio.Event(), self.slots.sweep_stalled, "stalled queues")
        self._run_each(config.tidy_seconds, asyncio.Event(), self._tidy, "tidy")
        self._scheduler.start()
        self._due.set()

    async def _stop(self) -> None:
        self._alarm.cancel()
        if self.config.ticks:
            self._scheduler.shutdown(wait=False)

    def _run_each(self, seconds: float, woken: asyncio.Event, work: _Work, name: str) -> None:
        """The ticker only wakes; the work is a task of ours, so that a stop ends it in order."""

        async def wake() -> None:
            woken.set()

        from apscheduler.triggers.interval import IntervalTrigger

        self._scheduler.add_job(wake, IntervalTrigger(seconds=seconds, jitter=seconds / 5), id=name)
        self._keep_woken(woken, work, f"ticks of {name}", "tick_failed", of=name)

    def look(self, due: DueWork | None, asked_at: float) -> None:
        """Fire the schedules that are due, and learn of whose ends others are told (`pulse`)."""
        if due is None:
            self._unsure.set()
        else:
            self.watched.learn(due.watched, asked_at)
        self._promises_due = self._promises_due or due is None or due.promises
        if due is None:
            self._due.set()
        elif due.schedules is not None:
            self._alarm.set(due.schedules)

    async def _sweep_promises(self) -> None:
        if self._promises_due:
            self._promises_due = False
            await self.slots.sweep_promises()

    async def _tidy(self) -> None:
        pool, every = self.database.api, timedelta(seconds=self.config.tidy_seconds)
        await orphan_cleanup.sweep(pool, "fires", every, functools.partial(triggers.delete_old_fires, pool))

    # --- schedules ------------------------------------------------------------------------------------------------

    async def _start_due(self) -> None:
        """Look at the schedules that are due, until none is."""
        pool = self.database.api
        lease = timedelta(seconds=self.config.lease_seconds)
        while schedules := await triggers.take_due(pool, self.config.batch_max, lease):
            await asyncio.gather(*(self._look_at(each, lease) for each in schedules))
        due = await triggers.next_wake(pool)
        if due is not None:
            self._alarm.set(due)

    async def _look_at(self, schedule: ScheduleRow, lease: timedelta) -> None:
        """Fire the due instants of a schedule that we have taken, and start their runs. After a fault it stays taken
        until the lease is over, and is then looked at again."""
        await self._rows.deal(Sweep.SCHEDULES, f"schedule {schedule.id}", lambda: self._fire(schedule, lease))

    async def _fire(self, schedule: ScheduleRow, lease: timedelta) -> None:
        assert schedule.wake_at is not None, "a schedule is taken until some instant"
        now = schedule.wake_at - lease
        again: datetime | None = None
        if schedule.next_fire_at is not None:
            due = times.due(schedule.timing, schedule.next_fire_at, now, schedule.missed)
            if due.next != schedule.next_fire_at:
                await triggers.fire(self.database.api, schedule, due.fires, due.next)
            again = now if due.next is not None and due.next <= now else None
        if await self._start_fires(schedule, lease):
            again = now + timedelta(seconds=self.config.poll_seconds)
        await triggers.release(self.database.api, schedule, again)

    async def _start_fires(self, schedule: ScheduleRow, lease: timedelta) -> bool:
        """Start the runs of the schedule's firings, in order; returns whether something waits for the run before it."""
        pool, last = self.database.api, schedule.last_run_id
        fires = await triggers.open_fires(pool, schedule)
        for number, instant in enumerate(fires, 1):
            run_id = self.starts.id_of("schedule", str(schedule.id), str(instants.milliseconds(instant)))
            if run_id != last:  # else a process died that was about to start it
                if schedule.overlap == "cancel_running" and number < len(fires):
                    await triggers.settle_fire(pool, schedule, instant, "skipped")
                    continue
                if not await self._is_over(schedule, last):
                    if schedule.overlap != "skip":
                        for each in _list_beyond(schedule, fires[number - 1 :]):
                            await triggers.settle_fire(pool, schedule, each, "skipped")
                        return True
                    await triggers.settle_fire(pool, schedule, instant, "skipped")
                    continue
                if not await triggers.claim_turn(pool, schedule, last, run_id, lease):
                    return True  # we were too slow, and somebody else looks at the schedule; or it is paused
            try:
                at = instants.milliseconds(instant)
                await self.begin(schedule, run_id, await self._input(schedule, at), "schedule", scheduled_at=at)
            except Rejected as rejected:
                if rejected.status in (429, 503):
                    raise
                log.warning("schedule_refused", schedule=str(schedule.id), code=rejected.code, reason=rejected.detail)
                await triggers.give_up_turn(pool, schedule, last, run_id)
                await triggers.settle_fire(pool, schedule, instant, "refused")
                continue
            await triggers.settle_fire(pool, schedule, instant, "started", run_id)
            last = run_id
        return False

    async def _input(self, schedule: ScheduleRow, at: int) -> Json:
        """The input of the schedule's run for the instant `at`. Raises `Rejected` 422 where a hole of it fails."""
        if b"${{" not in schedule.input:
            return values.loads(schedule.input)
        plan = await self.catalog.plan(schedule.tenant, schedule.workflow)
        trigger = plan.triggers[schedule.position]
        if not isinstance(trigger, ScheduleTrigger) or trigger.template is None:
            return values.loads(schedule.input)
        scope = {"event": {"at": instants.rfc3339(at)}, "now": self.committer.now_ms()}
        try:
            return await evaluate_used(trigger.template, scope, schedule.tenant)
        except ExpressionError as error:
            message = f"the schedule of {plan.name}@{plan.version}: {error.message}"
            raise Rejected(422, error.code, message) from None

    async def _is_over(self, schedule: ScheduleRow, last: UUID | None) -> bool:
        """Whether the schedule's last run has ended. Where the schedule says so, it is stopped."""
        if last is None:
            return True
        status = await triggers.find_status_of_run(self.database.api, schedule, last)
        if status is None or status in TERMINAL_STATUSES:
            return True
        if schedule.overlap != "cancel_running" or status == "starting":
            return False
        try:
            outcome = await self.committer.submit(last, schedule.tenant, c.Stop(by=SYSTEM, reason=OVERLAPPED))
        except Rejected:
            return True
        return outcome.status in TERMINAL_STATUSES

    async def begin(
        self,
        of: ScheduleRow | EventTriggerRow,
        run_id: UUID,
        input: Json,
        trigger: str,
        origin: Origin | None = None,
        *,
        named: Collection[bytes] = (),
        instigators: Sequence[str] = (),
        asked: AuditActor | None = None,
        scheduled_at: int | None = None,
    ) -> Outcome:
        """Start a run by a trigger, in a thread of its own. The same id again is the same run. `named`: the files that
        it is given; by the end of a run those of them that this run refers to. `instigators`:
        the people behind it; `asked`: the person who wants it, if one does, who is one of them."""
        behind = instigators if asked is None else list_people_behind(asked.who.id, instigators)
        plan = await self.catalog.plan(of.tenant, of.workflow)
        seat = await self._find_triggers_elsewhere(of.tenant, plan) if origin is not None else None
        if seat is not None:  # files don't go there: a run that needs them finds none
            id = seat.starts.id_of("behind", str(run_id))
            return await seat.begin(of, id, input, trigger, origin, instigators=behind, asked=asked)
        ended = UUID(origin.run_id) if origin is not None else None
        await files.hand_files(self.database.api, of.tenant, named, run_id, of=ended)
        start = c.Start(
            run_id=run_id,
            thread_id=str(run_id),
            requester=SYSTEM,
            instigators=tuple(behind),
            input=input,
            trigger=trigger,
            scheduled_at=scheduled_at,
            dev=of.dev,
            origin=origin,
        )
        return await self.starts.start(of.tenant, plan, start, asked=asked)

    async def _find_triggers_elsewhere(self, tenant: UUID, plan: Plan) -> Triggers | None:
        """The triggers of the tenant's first cell, if that is another one, where runs of the plan are counted. Only
        ends of runs come in other cells."""
        if self.of_cell is None or (seat := await self.starts.seat(tenant)) == self.starts.cell:
            return None
        return self.of_cell(seat) if await self.catalog.counts(tenant, plan) else None

    # --- schedules, by request ------------------------------------------------------------------------------------

    async def schedule(self, tenant: UUID, id: UUID, reads: Pool | None = None) -> ScheduleRow:
        """The schedule, read with `reads` by a request. Raises `Rejected` 404."""
        row = await triggers.get_schedule(reads or self.database.api, tenant, id)
        if row is None:
            raise Rejected(404, "schedule_unknown", f"there is no schedule {str(id)!r}.")
        return row

    async def run_schedule(
        self, tenant: UUID, id: UUID, key: str, *, asked: AuditActor | None = None, behind: Sequence[str] = ()
    ) -> Outcome:
        """Start a run as the schedule would, now, also while it is paused; `key` again gives the same run. `behind`:
        those for whom `asked` acts.

        Raises `Rejected` 404; 409 `schedule_busy` while its last run is active, which is stopped if `overlap` says so.
        """
        run_id = self.starts.id_of("schedule", str(id), "by request", key)
        schedule = await self._claim(tenant, id, run_id)
        at = self.committer.now_ms()
        try:
            input = await self._input(schedule, at)
            return await self.begin(
                schedule, run_id, input, "schedule", instigators=behind, asked=asked, scheduled_at=at
            )
        except Rejected as rejected:
            if rejected.status not in (429, 503):
                await triggers.give_up_turn(self.database.api, schedule, schedule.last_run_id, run_id)
            raise

    async def _claim(self, tenant: UUID, id: UUID, run_id: UUID) -> ScheduleRow:
        """The schedule as it was before the run became its last one; it may be that already. Raises `Rejected`."""
        pool, lease = self.database.api, timedelta(seconds=self.config.lease_seconds)
        schedule = await self.schedule(tenant, id)
        while await triggers.find_status_of_run(pool, schedule, run_id) is None:
            last = schedule.last_run_id
            over = await self._is_over(schedule, last)
            if over and await triggers.claim_turn(pool, schedule, last, run_id, lease, paused_too=True):
                break
            schedule = await self.schedule(tenant, id)
            if schedule.last_run_id == last:
                raise await self._busy(schedule, last)
        return schedule

    async def _busy(self, schedule: ScheduleRow, last: UUID | None) -> Rejected:
        status = await triggers.find_status_of_run(self.database.api, schedule, last) or "about to end"
        what = "is being stopped for the next one" if status == "stopping" else f"is {status}"
        message = f"the last run of this schedule of {schedule.workflow_name} {what}; wait for its end, or stop it."
        return Rejected(409, "schedule_busy", message, winner={"run_id": str(last), "status": status})

    async def pause_schedule(self, tenant: UUID, id: UUID, *, asked: AuditActor | None = None) -> ScheduleRow:
        """Let the schedule fire no more until it is resumed. Raises `Rejected` 404."""
        schedule = await self.schedule(tenant, id)
        async with audit.record_act(self.database.api, tenant, _row(asked, "schedule.paused", id)) as connection:
            await triggers.pause_schedule(connection, schedule)
        return await self.schedule(tenant, id)

    async def resume_schedule(self, tenant: UUID, id: UUID, *, asked: AuditActor | None = None) -> ScheduleRow:
        """Let the schedule go on; instants that passed meanwhile were not missed. Raises `Rejected` 404."""
        schedule = await self.schedule(tenant, id)
        following = times.next_after(schedule.timing, self.committer.now())
        async with audit.record_act(self.database.api, tenant, _row(asked, "schedule.resumed", id)) as connection:
            await triggers.resume_schedule(connection, schedule, following)
        self._due.set()
        return await self.schedule(tenant, id)

    # --- events ---------------------------------------------------------------------------------------------------

    async def receive_event(
        self, tenant: UUID, id: str, type: str, data: Json, *, sent: AuditRow | None = None, sender: str | None = None
    ) -> Received:
        """Take in an event: runs that wait for it are offered it, and workflows that want it are started.

        A refusal by one workflow (an input that does not fit, an expression that fails, a concurrency key that is
        taken) keeps no other from being started, and nor does one that can't be reached, of which delivery takes care.
        The same event again starts nothing twice, and has the same outcomes; a refused start is tried again. `sent` is
        the audit record of its `sender`, the person that stands behind the runs. Raises `Rejected` 409 `signal_exists`
        if another event has its id.
        """
        pool = self.database.api
        body = values.dumps(data)
        signal, already = await signals.store_signal(
            pool, tenant, id, type, body, due_after=EVENT_LEASE, sent=sent, sender=sender
        )
        async with contextlib.nullcontext() if already else self.delivery.kept(signal):
            started = await self._deliver(signal)
            if not already:
                try:
                    unreached = _map_failures(started) | dict(await self.delivery.offer(signal))
                    await self.delivery.settle(signal, unreached)
                except Exception as error:  # delivery of some process does it all again
                    log.warning("event_not_offered", signal=id, error=str(error) or repr(error))
        return Received(signal, already, started)

    async def _hear(self, signal: Signal, only: Collection[str] | None) -> Unreached:
        """Deliver a signal for all whose sender does not wait for its runs, or whose receiver has died."""
        started = await self._deliver(signal, only)
        for each in started:
            if each.refused is not None and each.failed is None:
                code, reason = each.refused.code, each.refused.detail
                log.warning("event_refused", signal=signal.id, workflow=each.workflow, code=code, reason=reason)
        return _map_failures(started)

    async def _deliver(self, signal: Signal, only: Collection[str] | None = None) -> list[Started]:
        """Start a run of every workflow that has an event trigger for the type and whose `match` is true."""
        rows = await triggers.list_event_triggers(self.database.api, signal.tenant, signal.type)
        if only is not None:
            rows = [each for each in rows if _name(each.workflow_name) in only]
        if not rows:
            return []
        event = event_value(signal.id, signal.type, values.loads(signal.data), instants.milliseconds(signal.sent_at))
        behind = list_people_behind("", (signal.sender or "").split())
        done = await asyncio.gather(*(self._deliver_to(each, event, behind) for each in rows))
        return [each for each in done if each is not None]

    async def _deliver_to(
        self, row: EventTriggerRow, event: Mapping[str, Json], behind: Sequence[str]
    ) -> Started | None:
        """One workflow that can't be reached must not keep the event from the others."""
        try:
            return await self._begin_by(row, event, behind)
        except Exception as error:
            refused = error if isinstance(error, Rejected) else None
            message = f"workflow {row.workflow_name} can't be started now, and is tried again later: {error}"
            return Started(
                row.workflow_name, refused=refused or Rejected(503, "workflow_unusable", message), failed=error
            )

    async def _begin_by(self, row: EventTriggerRow, event: Mapping[str, Json], behind: Sequence[str]) -> Started | None:
        plan = await self.catalog.plan(row.tenant, row.workflow)
        trigger = plan.triggers[row.position]
        assert isinstance(trigger, EventTrigger), "rows are made from the triggers of the plan"
        scope = {"event": event, "now": self.committer.now_ms()}
        try:
            if trigger.match is not None and await evaluate_used(trigger.match, scope, row.tenant) is not True:
                return None
            identity = ("event", str(row.position), event["id"])
            if trigger.dedupe is not None and (
                key := dedupe_key(await evaluate_used(trigger.dedupe, scope, row.tenant))
            ):
                identity = ("dedupe", row.type, key)
            input = event["data"] if trigger.input is None else await evaluate_used(trigger.input, scope, row.tenant)
            run_id = self.starts.id_of("event", str(row.tenant), row.workflow_name, *identity)
            named = file_ids.files_in(values.dumps(event["data"]))
            run_input = {} if input is None else input
            outcome = await self.begin(row, run_id, run_input, "event", named=named, instigators=behind)
        except ExpressionError as error:
            refused = Rejected(422, error.code, f"the event trigger of {plan.name}@{plan.version}: {error.message}")
            return Started(row.workflow_name, refused=refused)
        except Rejected as rejected:
            if rejected.status in (429, 503):
                raise
            return Started(row.workflow_name, refused=rejected)
        return Started(row.workflow_name, run_id, outcome.already)

    # --- ends of runs ---------------------------------------------------------------------------------------------

    async def _run_watching(self) -> None:
        while True:
            self._unsure.clear()
            try:
                await self.watched.read()
            except Exception as error:  # every end is sent meanwhile
                log.debug("watched_not_read", error=str(error) or repr(error))
            await self._unsure.wait()

    async def _run_ended(self, message: OutboxMessage) -> None:
        """Start the runs that the end of a run starts. Raises the error of a workflow that could not be reached, after
        all others were: the message comes again then, and starts nothing twice."""
        end = msgspec.json.decode(message.body, type=on_end_triggers.RunEnd)
        rows = await triggers.list_event_triggers(self.database.api, message.tenant, end.workflow, "run")
        started = [await self._begin_behind(row, end, message) for row in rows]
        for error in started:
            if error is not None:
                raise error

    async def _begin_behind(
        self, row: EventTriggerRow, end: on_end_triggers.RunEnd, message: OutboxMessage
    ) -> Exception | None:
        bound_log = log.bind(workflow=row.workflow_name, ended=end.run_id)
        try:
            plan = await self.catalog.plan(row.tenant, row.workflow)
            trigger = plan.triggers[row.position]
            assert isinstance(trigger, RunTrigger), "rows are made from the triggers of the plan"
            if end.status not in trigger.on:
                return None
            scope = {"event": end.event, "now": self.committer.now_ms()}
            if trigger.match is not None and await evaluate_used(trigger.match, scope, row.tenant) is not True:
                return None
            if end.origin.depth > on_end_triggers.CHAIN_MAX:
                bound_log.error(
                    "chain_cut", reason=f"{on_end_triggers.CHAIN_MAX} ends of runs in a row have started runs"
                )
                return None
            input = None if trigger.input is None else await evaluate_used(trigger.input, scope, row.tenant)
            identity = (str(row.tenant), row.workflow_name, str(row.position), message.command_id)
            run_id = self.starts.id_of("run", *identity)
            named = file_ids.files_in(values.dumps(input))
            behind, run_input = list_people_behind(end.requester, end.instigators), {} if input is None else input
            await self.begin(row, run_id, run_input, "run", end.origin, named=named, instigators=behind)
        except ExpressionError as error:
            bound_log.warning("run_trigger_refused", code=error.code)  # its words may quote values of the run
        except Rejected as rejected:
            if rejected.status in (429, 503):
                return rejected
            bound_log.warning("run_trigger_refused", code=rejected.code, reason=rejected.detail)
        except Exception as error:
            return error
        return None

    # --- publication ----------------------------------------------------------------------------------------------

    async def sync(self, connection: Connection, tenant: UUID, name: str) -> None:
        """Store the triggers of the latest version of a workflow in place of those of earlier ones, in the transaction
        that changes which one that is. Those of a version that only another release can read stay as that release has
        stored them."""
        latest = await workflows.find_latest_workflow(connection, tenant, name)
        if latest is None:
            return
        if latest.retired_at is not None:
            await triggers.replace_triggers(connection, tenant, name, [], [])
            return
        try:
            plan = await self.catalog.plan_of(tenant, latest)
        except Unreadable:
            return
        WORK_FOR.set(tenant)
        schedules = await run_by_work(_list_schedule_rows, tenant, latest, plan, self.committer.now())
        events = [
            EventTriggerRow(tenant, name, position, latest.sha256, latest.dev, *columns)
            for position, trigger in enumerate(plan.triggers)
            if (columns := _compute_row_key(trigger)) is not None
        ]
        await triggers.replace_triggers(connection, tenant, name, schedules, events)

    async def _look_anew(self) -> None:
        """Some triggers were replaced."""
        self._due.set()
        await self.watched.read()


class _Work(Protocol):
    async def __call__(self) -> None: ...


def _list_beyond(schedule: ScheduleRow, waiting: Sequence[datetime]) -> Sequence[datetime]:
    """Those of the waiting instants, the oldest first, that are more than may wait: of `queue_one` all but the newest,
    of `queue` those behind WAITING_MAX."""
    if schedule.overlap == "queue_one":
        return waiting[:-1]
    return waiting[WAITING_MAX:] if schedule.overlap == "queue" else ()


def _name(workflow: str) -> str:
    return f"workflow {workflow}"


def _map_failures(started: Iterable[Started]) -> dict[str, Exception]:
    return {_name(each.workflow): each.failed for each in started if each.failed is not None}


async def evaluate_used(uses: Expression | Template, scope: Mapping[str, Json], tenant: UUID) -> Json:
    """The value of an expression or a template of the tenant's, which sees the names that it uses and no others;
    evaluated beside the loop where that is long work. Raises `ExpressionError`."""
    WORK_FOR.set(tenant)
    evaluate = uses.evaluate if isinstance(uses, CompiledExpression) else cast("Template", uses).render
    return await run_by_work(evaluate, {name: scope[name] for name in uses.roots})


def dedupe_key(value: Json) -> str:
    """A dedupe key; empty: none."""
    if value is None:
        return ""
    return values.to_text(value)


def _compute_row_key(trigger: Trigger) -> tuple[str, TriggerKind] | None:
    """The type and kind that the trigger's row has; None if it has no row."""
    match trigger:
        case EventTrigger():
            return trigger.type, "event"
        case RunTrigger():
            return trigger.workflow, "run"
        case WebhookTrigger():
            return trigger.path, "webhook"
    return None


def _list_schedule_rows(tenant: UUID, latest: Workflow, plan: Plan, now: datetime) -> list[ScheduleRow]:
    rows: list[ScheduleRow] = []
    for position, trigger in enumerate(plan.triggers):
        if isinstance(trigger, ScheduleTrigger):
            spend(_NEXT_FIRE_WORK)
            rows.append(_schedule_row(tenant, latest, position, trigger, now))
    return rows


def _schedule_row(
    tenant: UUID, latest: Workflow, position: int, trigger: ScheduleTrigger, now: datetime
) -> ScheduleRow:
    timing = times.Timing(trigger.cron, trigger.timezone)
    return ScheduleRow(
        id=derive_uuid("schedule", str(tenant), latest.name, str(position)),
        tenant=tenant,
        workflow_name=latest.name,
        position=position,
        workflow=latest.sha256,
        dev=latest.dev,
        cron=trigger.cron,
        timezone=trigger.timezone,
        every_ms=None,
        missed=trigger.missed,
        overlap=trigger.overlap,
        input=values.dumps({} if trigger.input is None else trigger.input),
        next_fire_at=times.next_after(timing, now),
    )


def _row(asked: AuditActor | None, act: str, schedule: UUID) -> AuditRow | None:
    return None if asked is None else asked.row(act, subject=f"schedule:{schedule}")


WATCHED_SECONDS: Final = 10.0  # rows that were read so long ago do not show which ends are wanted


class Watched:
    """Knows which ends have to be sent to the triggers; every end, as long as nothing newer is known."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._workflows: frozenset[tuple[UUID, str]] = frozenset()
        self._read_at = -math.inf  # monotonic: when they were asked for

    def wants(self, tenant: UUID, workflow: str) -> bool:
        """Whether the end of a run of the workflow has to be sent."""
        return (tenant, workflow) in self._workflows or time.monotonic() - self._read_at > WATCHED_SECONDS

    async def read(self) -> None:
        """Ask the database again."""
        asked_at = time.monotonic()
        self.learn(await triggers.workflows_with_end_triggers(self._database.api), asked_at)

    def learn(self, workflows: frozenset[tuple[UUID, str]], asked_at: float) -> None:
        """These were wanted when the database was asked, unless it was asked again since."""
        if asked_at >= self._read_at:
            self._workflows, self._read_at = workflows, asked_at
