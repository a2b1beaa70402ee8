"""Delivers messages between runs, and events from outside to the runs that wait for them. Nothing is sent from memory:
a message is a row of the sender's commit, and a signal a row before any run hears of it, so any process can deliver it
again without harm. The process that wrote a row delivers it at once; the poll is for rows left behind. Only deliveries
with an order wait for each other: of one sender to one target, and of one type of signal. A receiver that can't be
reached is tried again by itself, ever more seldom, and given up in the end with an error in the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.engine.events import Error, Heard
from hai_flow.engine.handlers.control import FINISHED
from hai_flow.engine.runs import children
from hai_flow.engine.state.state import ToolCallState
from hai_flow.engine.steps.wait_for_event import LEFT_MAX, SUBSCRIBE
from hai_flow.errors import Rejected, reject_unknown_run
from hai_flow.primitives import file_ids, instants
from hai_flow.runtime.base.service import KeyedQueue, Service
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.states import state_at
from hai_flow.runtime.runs.starts import Starts
from hai_flow.store.commit.entries import AuditRow
from hai_flow.store.messaging import outbox, signals
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.messaging.signals import Reach, Signal
from hai_flow.store.ops.pulse import DueWork
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import files
from hai_flow.values import Json

Handle: TypeAlias = Callable[[OutboxMessage], Awaitable[None]]
Unreached: TypeAlias = Mapping[str, Exception]
"""The receivers that could not be reached with a signal, and why."""
Listener: TypeAlias = Callable[[Signal, Collection[str] | None], Awaitable[Unreached]]
"""Brings a signal to the listener's receivers, or to those of them that are named (None: all); returns the ones that it
could not reach."""
log = structlog.get_logger(__name__)

FINAL_REFUSALS: Final = frozenset({404, 409, 410})
NO_CHILD: Final = frozenset({404, 413, 422})  # a start that is refused so can never succeed
_NO_CHILD_CODES: Final = frozenset({"concurrency_busy", "workflow_retired"})
NAMES_MAX: Final = 1000  # receivers that the process's log has reported as out of reach
EVERYBODY: Final = "every listener"
AGAIN_SECONDS_MAX: Final = 60.0
ALL_OF_IT: Final = 2**31 - 1  # more events than any log has
FIRST_PAGE: Final = 10  # a loop takes the first that fits, so seldom more are needed


class DeliveryConfig(msgspec.Struct, frozen=True):
    """`batch_max`: messages, or
    signals, under way at once. `page_max`: stored signals that are read at once for a run that begins to wait. A
    receiver that could not be reached is tried again after `again_seconds`, each time after twice as long, but at least
    every `again_seconds_max`; `tries_max` times in all."""

    batch_max: int = 100
    page_max: int = 100
    again_seconds: float = 5.0
    again_seconds_max: float = 600.0
    tries_max: int = 12


class _Subscription(msgspec.Struct):
    path: str
    types: list[str]
    since: int
    heard: dict[str, Heard] = {}


@dataclass(slots=True)
class _SignalReading:
    """A type's stored signals, as they are read and offered to one run. `to_all` and `own` are the places up to which
    they were read; `offered` names as many of them as the run can be given: all, unless too many are left."""

    left: int
    to_all: int | None
    own: int
    passed: list[c.Passed] = field(default_factory=list)
    offered: c.Offered | None = None

    def read(self, signal: Signal, *, passed: bool) -> None:
        """The signal was offered, unless it can't be in time; `passed`: the run may take it yet."""
        if signal.run_id is None:
            self.to_all = signal.place
        else:
            self.own = signal.place
        if passed:
            self.passed.append(c.Passed(signal.id, signal.place, signal.run_id is not None))
        if len(self.passed) <= LEFT_MAX - self.left:
            self.offered = c.Offered(self.to_all or 0, self.own, tuple(self.passed))


class Delivery(Service):
    """Delivers messages between runs, and signals.

    `handlers`: how a message of some kind is delivered; a kind without one is a command for its target. A handler
    raises `Rejected` where the message will never be accepted; any other error, and it is delivered again later.
    `listeners` hear of every signal that is for all, at least once, beside the runs that wait for it."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        catalog: Catalog,
        starts: Starts,
        *,
        handlers: Mapping[str, Handle] | None = None,
        rows: Rows | None = None,
    ) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.catalog = catalog
        self.starts = starts
        self.config = DeliveryConfig()
        self._rows = rows or Rows()
        self.handlers: dict[str, Handle] = {
            children.START: self._start_child,
            children.START_DETACHED: self._start_detached,
            children.RETRY: self._retry_child,
            SUBSCRIBE: self._subscribe,
            **(handlers or {}),
        }
        self.listeners: list[Listener] = []
        self._mail = asyncio.Event()
        self._signals = asyncio.Event()
        self._unreached: dict[str, str] = {}  # receivers that the process's log has reported

    async def _start(self) -> None:
        self.committer.listeners.outbox.append(self._mail.set)
        most = self.config.batch_max
        self._messages = KeyedQueue[OutboxMessage](most, self._deliver, lambda work: self._spawn(work, "a message"))
        self._offers = KeyedQueue[Signal](most, self._spread, lambda work: self._spawn(work, "signals of a type"))
        take_messages = partial(self._run, self._mail, self._take_messages, "delivery_failed")
        take_signals = partial(self._run, self._signals, self._take_signals, "offering_failed")
        self._keep(take_messages, "messages between runs")
        self._keep(take_signals, "signals")

    async def _stop(self) -> None:
        self.committer.listeners.outbox.remove(self._mail.set)

    def look(self, due: DueWork | None, asked_at: float) -> None:
        """Take what is due (`pulse`)."""
        if due is None or due.messages:
            self._mail.set()
        if due is None or due.signals:
            self._signals.set()

    async def _run(self, woken: asyncio.Event, take: Callable[[], Awaitable[int]], failure: str) -> None:
        while True:
            woken.clear()
            count = 0
            try:
                count = await take()
            except Exception as error:
                log.warning(failure, error=str(error) or repr(error))
            if not count:  # else there may be more
                await woken.wait()

    # --- messages between runs ------------------------------------------------------------------------------------

    async def _take_messages(self) -> int:
        """Begin to deliver due messages, as far as there is room; returns how many messages were found."""
        room = self._messages.room
        if not room:
            return 0
        async with self.database.api.acquire() as connection:
            messages = await outbox.due_messages(connection, room)
        for message in messages:
            self._messages.add((message.run_id, message.target), message.command_id, message)
        return len(messages)

    async def _deliver(self, message: OutboxMessage) -> None:
        crowded, behind = not self._messages.room, False

        async def deliver() -> None:
            nonlocal behind
            behind = await self._bring(message)

        # A fault is of unknown outcome: it is delivered again under the same id.
        wait = await self._rows.deal(Sweep.OUTBOX, f"message {message.command_id}", deliver)
        if wait > self._rows.again_seconds:
            later = timedelta(seconds=min(wait, AGAIN_SECONDS_MAX))  # another process may be able to
            put_off = partial(outbox.put_off, self.database.api, message, later)
            await self._rows.deal(Sweep.OUTBOX, f"message {message.command_id}, put off", put_off)
        if behind or crowded:
            self._mail.set()

    async def _bring(self, message: OutboxMessage) -> bool:
        """Bring a message to its receiver. It is removed once the receiver has taken it, or has refused it for good;
        else it is given out again after a while.

        Returns whether another message of the same sender to the same receiver waits behind it."""
        handle = self.handlers.get(message.kind, self._submit)
        try:
            await handle(message)
        except Rejected as rejected:
            if rejected.status not in FINAL_REFUSALS:
                return False
            log.info("message_refused", message=message.command_id, kind=message.kind, code=rejected.code)
        async with self.database.api.acquire() as connection:
            return await outbox.delete_message(connection, message)

    async def _submit(self, message: OutboxMessage) -> None:
        command = children.build_command(message.kind, message.target, msgspec.json.decode(message.body))
        if command is None:
            raise ValueError(f"no release of ours sends messages of the kind {message.kind!r}")
        if isinstance(command, c.ChildTold) and (command.streamed or command.growing or command.calls):
            command = await self._with_text(message, command)
        await self.committer.submit(
            UUID(message.target),
            message.tenant,
            command,
            command_id=message.command_id,
            body_sha=sha256(message.body).digest(),
        )

    async def _begin(self, message: OutboxMessage, body: Json) -> None:
        """Start the run that a message with this `body` wants."""
        plan = await self.catalog.load_plan_of_child(message.tenant, body["workflow"], body["sha256"])
        kind = children.START if message.kind == children.RETRY else message.kind
        start = children.build_command(kind, message.target, body)
        assert isinstance(start, c.Start), "only messages of these kinds are handled here"
        digest = sha256(message.body).digest()
        if start.parent is None:  # a child has those of its thread
            named = file_ids.files_in(message.body)
            await files.hand_files(self.database.api, message.tenant, named, start.run_id, of=message.run_id)
        await self.starts.start(message.tenant, plan, start, command_id=message.command_id, body_sha=digest)

    async def _with_text(self, message: OutboxMessage, command: c.ChildTold) -> c.ChildTold:
        """The command with the streamed text, as the sender's log has it: nothing is added to a message behind its end.
        A message that grows may have more by now; then the next one brings nothing new."""
        run = self.committer.peek(message.run_id)
        state = None if run is None or not run.owned or run.state.seq < message.last_seq else run.state
        if state is None:  # a run that nobody holds may be another one of the same id by now
            state = await state_at(self.database, message.tenant, message.run_id, ALL_OF_IT, known=run)
        if state is None:
            raise reject_unknown_run(message.run_id)
        streamed, growing = (
            tuple(replace(each, content=state.messages[each.message_id].content) for each in messages)
            for messages in (command.streamed, command.growing)
        )
        calls = tuple(_as_it_is(each, state.tool_calls[each.id]) for each in command.calls)
        return replace(command, streamed=streamed, growing=growing, calls=calls)

    async def _start_child(self, message: OutboxMessage) -> None:
        """Start a child run; if it can't be started, its parent hears of that as of a child that has failed."""
        body = msgspec.json.decode(message.body)
        try:
            await self._begin(message, body)
        except Rejected as rejected:
            if rejected.status not in NO_CHILD and rejected.code not in _NO_CHILD_CODES:
                raise
            await self._refuse(message, body["parent"], rejected)

    async def _retry_child(self, message: OutboxMessage) -> None:
        """A child goes on where it ended, for the run above was retried. One that was never born is started. Its
        parent hears of one that has finished meanwhile, or can't go on. One that has not ended yet is asked later."""
        try:
            await self._submit(message)
        except Rejected as rejected:
            if rejected.code == "run_unknown":
                await self._start_child(message)
            elif rejected.code == FINISHED:
                await self._tell_end(message)
            elif rejected.status in FINAL_REFUSALS | NO_CHILD:  # 503: it has not ended yet
                await self._refuse(message, msgspec.json.decode(message.body)["parent"], rejected)
            else:
                raise

    async def _tell_end(self, message: OutboxMessage) -> None:
        """Tell the sender how its child has ended, for the attempt that waits for it now."""
        child = UUID(message.target)
        state = await state_at(self.database, message.tenant, child, ALL_OF_IT)
        if state is None:
            raise reject_unknown_run(child)
        parent = msgspec.json.decode(message.body)["parent"]
        body = {**children.outcome_of(state), "path": parent["path"], "attempt": parent["attempt"]}
        ended = msgspec.convert(body, c.ChildEnded)
        await self.committer.submit(message.run_id, message.tenant, ended, command_id=f"{message.command_id}/ended")

    async def _start_detached(self, message: OutboxMessage) -> None:
        """Start a run that no run waits for; the step that wanted it hears that it is there, or why it can't be."""
        body = msgspec.json.decode(message.body)
        try:
            await self._begin(message, body)
        except Rejected as rejected:
            if rejected.status not in FINAL_REFUSALS | NO_CHILD:
                raise
            await self._refuse(message, body["by"], rejected)
            return
        by, output = body["by"], {"run_id": message.target}
        started = c.ChildEnded(path=by["path"], attempt=by["attempt"], status="finished", output=output)
        await self.committer.submit(message.run_id, message.tenant, started, command_id=f"{message.command_id}/started")

    async def _refuse(self, message: OutboxMessage, parent: Json, rejected: Rejected) -> None:
        findings = list(rejected.findings) or None
        error = Error(rejected.code, rejected.detail, at=self.committer.now_ms(), data=findings)
        ended = c.ChildEnded(path=parent["path"], attempt=parent["attempt"], status="failed", error=error)
        command_id = f"{message.command_id}/refused"
        await self.committer.submit(message.run_id, message.tenant, ended, command_id=command_id)

    # --- signals --------------------------------------------------------------------------------------------------

    async def send(
        self,
        tenant: UUID,
        id: str,
        type: str,
        data: Json,
        run_id: UUID | None = None,
        *,
        sent: AuditRow | None = None,
        sent_at: datetime | None = None,
        sender: str | None = None,
    ) -> tuple[Signal, bool]:
        """Store a signal and see to it that it is offered to the runs that wait for it; returns it, and whether it was
        there already. `sent` is the audit record of its `sender`, a person; `sent_at`: when another cell had it. Raises
        `Rejected` 409 if another one has its id."""
        stored = await signals.store_signal(
            self.database.api, tenant, id, type, values.dumps(data), run_id, sent=sent, sent_at=sent_at, sender=sender
        )
        self._signals.set()
        return stored

    async def _subscribe(self, message: OutboxMessage) -> None:
        """A run waits: offer it the stored signals, and remember that it is to be offered those that come.

        Stored signals are offered twice, before the subscription is written and behind it: so old ones come before new
        ones, and none that was stored in between is missed. Where the run has heard all, nothing is read again; but for
        those that it knows as left."""
        subscription = msgspec.json.decode(message.body, type=_Subscription)
        readings = {type: _reading(subscription.heard.get(type)) for type in subscription.types}
        missed = [id for heard in subscription.heard.values() for id in heard.left]
        pool, tenant, run_id = self.database.api, message.tenant, message.run_id
        again = await signals.signals_by_id(pool, tenant, run_id, missed) if missed else []
        awaited = await self._send_stored(message, subscription.since, readings, again)
        if awaited:
            offered = {type: _encode_offers(readings[type].offered) for type in awaited}
            await signals.subscribe(pool, tenant, run_id, subscription.path, offered, message.last_seq)
            await self._send_stored(message, subscription.since, {type: readings[type] for type in awaited}, ())

    async def _send_stored(
        self, message: OutboxMessage, since: int, readings: Mapping[str, _SignalReading], left: Sequence[Signal]
    ) -> list[str]:
        """Offer the run the stored signals of these types that were not read yet, and those `left`; returns the types
        that it still awaits."""
        tenant, run_id = message.tenant, message.run_id
        awaited, limit, again = list(readings), min(FIRST_PAGE, self.config.page_max), list(left)
        while awaited:
            reaches = [Reach(type, readings[type].to_all, readings[type].own) for type in awaited]
            page = await signals.signals_for(
                self.database.api, tenant, run_id, reaches, since=instants.instant(since), limit=limit
            )
            last = len(page) < limit
            due = [signal for signal in again if last or signal.place < page[-1].place]
            again = again[len(due) :]
            for signal in sorted([*due, *page], key=lambda signal: signal.place):
                reading = readings[signal.type]
                if signal.type in awaited:
                    outcome = await self._send_unless_taken(run_id, signal, since, reading.offered)
                    awaited = (
                        [type for type in awaited if type in outcome["awaits"]] if outcome is not None else awaited
                    )
                    is_accepted = outcome is None or outcome["taken"]
                    if signal not in due:
                        reading.read(signal, passed=not is_accepted)
            if last:
                break
            limit = self.config.page_max
        return awaited

    async def _send_unless_taken(self, run_id: UUID, signal: Signal, since: int, offered: c.Offered | None) -> Json:
        """Offer the run a stored signal. None: it has taken it before, or it was sent before the run started."""
        run = self.committer.peek(run_id)
        if run is not None and signal.id in run.state.signals:
            return None
        if signal.run_id is None and instants.milliseconds(signal.sent_at) < since:
            return None
        return await self._offer(run_id, signal, offered)

    async def _offer(self, run_id: UUID, signal: Signal, offered: c.Offered | None = None) -> Json:
        """Offer the run a signal; whether it has it then, and the types that it waits for after that."""
        await files.hand_files(self.database.api, signal.tenant, file_ids.files_in(signal.data), run_id)
        command = c.Signal(
            id=signal.id,
            name=signal.type,
            data=values.loads(signal.data),
            sent_at=instants.milliseconds(signal.sent_at),
            place=signal.place,
            own=signal.run_id is not None,
            by=signal.sender,
            offered=offered,
        )
        try:
            outcome = await self.committer.submit(run_id, signal.tenant, command)
        except Rejected as rejected:
            if rejected.status not in FINAL_REFUSALS:
                raise
            return {"taken": False, "awaits": ()}  # it has ended
        return outcome.value

    async def _take_signals(self) -> int:
        """Begin to offer due signals to the runs that wait, as far as there is room; returns how many there were."""
        room = self._offers.room
        if not room:
            return 0
        async with self.database.api.acquire() as connection:
            due = await signals.due_signals(connection, room)
        for signal in due:
            # A signal that is left for some receivers stands in no line: the order is over, and they may be slow.
            line = (signal.tenant, signal.id if signal.undelivered is not None else signal.type, signal.run_id)
            self._offers.add(line, (signal.tenant, signal.id), signal)
        return len(due)

    async def _spread(self, signal: Signal) -> None:
        crowded = not self._offers.room

        async def spread() -> None:
            only = None if not signal.undelivered else signal.undelivered
            async with self.kept(signal):
                unreached = dict(await self.offer(signal, only))
                if signal.run_id is None:
                    unreached |= await self._notify_listeners(signal, only)
                await self.settle(signal, unreached)

        # It is given out again; those behind it must not wait for that.
        await self._rows.deal(Sweep.SIGNALS, f"signal {signal.id} of {signal.tenant}", spread)
        if crowded:
            self._signals.set()

    @contextlib.asynccontextmanager
    async def kept(self, signal: Signal) -> AsyncGenerator[None]:
        """Inside, no other process is given the signal, however many there are to be offered it."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(signals.LEASE.total_seconds() / 3)
                try:
                    await signals.keep_signal(self.database.api, signal)
                except Exception as error:  # then another one may offer it as well, which is harmless
                    log.debug("signal_not_kept", signal=signal.id, error=str(error) or repr(error))

        keeping = asyncio.create_task(keep(), name=f"keep signal {signal.id}")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _notify_listeners(self, signal: Signal, only: Collection[str] | None) -> Unreached:
        unreached: dict[str, Exception] = {}
        for hear in self.listeners:
            try:
                unreached |= await hear(signal, None if only is not None and EVERYBODY in only else only)
            except Exception as error:
                unreached[EVERYBODY] = error
        return unreached

    async def settle(self, signal: Signal, unreached: Unreached) -> None:
        """The signal was offered to all; a receiver that could not be reached is tried again later, or given up."""
        if not unreached:
            await signals.settle_signal(self.database.api, signal)
            for name in signal.undelivered or ():
                self._unreached.pop(name, None)
            return
        tries = signal.tries + 1
        last = tries >= self.config.tries_max
        wait = min(self.config.again_seconds * 2**signal.tries, self.config.again_seconds_max)
        again_after = None if last else timedelta(seconds=wait)
        await signals.put_off_signal(self.database.api, signal, sorted(unreached), again_after)
        for name, error in unreached.items():
            reason = str(error) or repr(error)
            if last:
                log.error("signal_given_up", signal=signal.id, type=signal.type, of=name, tries=tries, error=reason)
            elif self._unreached.get(name) != reason:  # once, not for each signal and each try
                if len(self._unreached) >= NAMES_MAX:
                    self._unreached.clear()
                self._unreached[name] = reason
                log.warning("signal_put_off", signal=signal.id, type=signal.type, of=name, error=reason)

    async def offer(self, signal: Signal, only: Collection[str] | None = None) -> Unreached:
        """Offer a stored signal to the runs that wait for it, behind older ones that were not offered yet; or only to
        those of them that `only` names. Returns the receivers that it could not reach."""
        pool = self.database.api
        waiting = await signals.subscribers(pool, signal)
        if only is not None:
            waiting = [each for each in waiting if _name(each.run_id) in only]
        if not waiting:
            return {}
        # Another process may be about to offer them.
        before = await signals.find_unsettled_before(pool, signal) if signal.undelivered is None else []
        offering = [self._send_in_order(each, [*before, signal]) for each in waiting]
        done = await asyncio.gather(*offering, return_exceptions=True)
        return dict(_failures(zip(waiting, done, strict=True)))

    async def _send_in_order(self, subscriber: signals.Subscriber, offered: Sequence[Signal]) -> None:
        run_id, offers = subscriber.run_id, None
        if subscriber.offered is not None:
            offers = msgspec.json.decode(subscriber.offered, type=c.Offered)
        for signal in offered:
            if signal.run_id in (None, run_id):
                outcome = await self._offer(run_id, signal, offers)
                if signal.type not in outcome["awaits"]:
                    await signals.unsubscribe(self.database.api, run_id, signal.type, subscriber.opened_seq)
                    return


def _as_it_is(shown: c.ShownCall, call: ToolCallState) -> c.ShownCall:
    return replace(shown, args=call.args, open=call.open, result=call.result or "", error=call.error)


def _reading(heard: Heard | None) -> _SignalReading:
    if heard is None:
        return _SignalReading(0, None, 0)
    return _SignalReading(len(heard.left), heard.to_all or None, heard.own)


def _encode_offers(offered: c.Offered | None) -> bytes | None:
    return None if offered is None else msgspec.json.encode(offered)


def _name(run_id: UUID) -> str:
    return f"run {run_id}"


def _failures(done: Iterable[tuple[signals.Subscriber, BaseException | None]]) -> Iterable[tuple[str, Exception]]:
    for subscriber, error in done:
        if isinstance(error, Exception):
            yield _name(subscriber.run_id), error
        elif error is not None:
            raise error
