"""What runs want of each other, and events from outside, brought to whom they concern.

Nothing is sent from memory. What a commit wants of another run is a row of that commit; a signal is a row before
anybody hears of it. So whoever dies in between loses nothing: rows that are not done with are given out again, to any
process. Each delivery is harmless twice: a message is a command under the message's own id, a signal is known to a run
that has taken it, and a child's id is made from what starts it (STORE H5, H6).

The process that wrote such a row delivers it at once; the poll is for what others left behind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.engine import children
from hai_flow.engine import commands as c
from hai_flow.engine.events import Error
from hai_flow.engine.signals import SUBSCRIBE
from hai_flow.errors import Rejected
from hai_flow.runtime.catalog import Catalog
from hai_flow.runtime.committer import Birth, Committer
from hai_flow.runtime.service import Service, wait_at_most
from hai_flow.store import outbox, signals
from hai_flow.store.database import Database
from hai_flow.store.outbox import OutboxMessage
from hai_flow.store.signals import Signal

Json: TypeAlias = Any
Handle: TypeAlias = Callable[[OutboxMessage], Awaitable[None]]
log = structlog.get_logger(__name__)

FINAL_REFUSALS: Final = frozenset({404, 409, 410})
NO_CHILD: Final = frozenset({404, 413, 422})  # a start that is refused so can never succeed


@dataclass(frozen=True, slots=True)
class CourierConfig:
    """`poll_seconds`: at least this often it is looked for what others left behind. `batch_max`: messages, or signals,
    taken at once. `page_max`: stored signals that are read at once for a run that begins to wait."""

    poll_seconds: float = 1.0
    batch_max: int = 100
    page_max: int = 100


class _Subscription(msgspec.Struct):
    path: str
    types: list[str]
    since: int


class Courier(Service):
    """Delivers messages between runs, and signals.

    `handlers`: how a message of some kind is delivered; a kind without one is a command for its target. A handler
    raises `Rejected` where the message will never be accepted; any other error, and it is delivered again later.
    `listeners` hear of every signal that is for all, at least once, beside the runs that wait for it: an error of
    theirs, and they hear of it again later.
    """

    def __init__(
        self, database: Database, committer: Committer, catalog: Catalog, config: CourierConfig | None = None
    ) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.catalog = catalog
        self.config = config or CourierConfig()
        self.handlers: dict[str, Handle] = {children.START: self._start_child, SUBSCRIBE: self._subscribe}
        self.listeners: list[Callable[[Signal], Awaitable[None]]] = []
        self._mail = asyncio.Event()
        self._signals = asyncio.Event()

    async def _start(self) -> None:
        self.committer.on_outbox = self._mail.set
        self._spawn(self._run(self._mail, self._deliver_due, "delivery_failed"), "messages between runs")
        self._spawn(self._run(self._signals, self._offer_due, "offering_failed"), "signals")

    async def _stop(self) -> None:
        self.committer.on_outbox = lambda: None

    async def _run(self, woken: asyncio.Event, work: Callable[[], Awaitable[int]], failure: str) -> None:
        while True:
            woken.clear()
            done = 0
            try:
                done = await work()
            except Exception as error:
                log.warning(failure, error=str(error) or repr(error))
            if not done:  # else there may be more, and what was behind the first of a sender is due now
                await wait_at_most(woken, self.config.poll_seconds * random.uniform(0.8, 1.0))

    # --- messages between runs ------------------------------------------------------------------------------------

    async def _deliver_due(self) -> int:
        """Deliver what is due; returns how many messages were got rid of."""
        async with self.database.api.acquire() as connection:
            messages = await outbox.due_messages(connection, self.config.batch_max)
        return sum(await asyncio.gather(*map(self._deliver, messages)))

    async def _deliver(self, message: OutboxMessage) -> bool:
        """Whether the receiver has the message, or never will. If not, it is given out again after a while."""
        handle = self.handlers.get(message.kind, self._submit)
        try:
            await handle(message)
        except Rejected as rejected:
            if rejected.status not in FINAL_REFUSALS:
                return False
            log.info("message_refused", message=message.command_id, kind=message.kind, reason=rejected.detail)
        except (ValueError, msgspec.DecodeError) as error:
            log.error("message_unreadable", message=message.command_id, kind=message.kind, error=str(error))
            return False
        except Exception as error:  # of unknown outcome: it is delivered again under the same id
            log.warning("message_not_delivered", message=message.command_id, error=str(error) or repr(error))
            return False
        async with self.database.api.acquire() as connection:
            await outbox.delete_message(connection, message)
        return True

    async def _submit(self, message: OutboxMessage, birth: Birth | None = None) -> None:
        command = children.command_of(message.kind, message.target, msgspec.json.decode(message.body))
        if command is None:
            raise ValueError(f"no release of ours sends messages of the kind {message.kind!r}")
        await self.committer.submit(
            UUID(message.target),
            message.tenant,
            command,
            command_id=message.command_id,
            body_sha=sha256(message.body).digest(),
            birth=birth,
        )

    async def _start_child(self, message: OutboxMessage) -> None:
        """Start a child run; if it can't be started, its parent hears of that as of a child that has failed."""
        body = msgspec.json.decode(message.body)
        try:
            plan = await self.catalog.plan_of_child(message.tenant, body["workflow"], body["sha256"])
            await self._submit(message, Birth(plan))
        except Rejected as rejected:
            if rejected.status not in NO_CHILD:
                raise
            await self._refuse(message, body["parent"], rejected)

    async def _refuse(self, message: OutboxMessage, parent: Json, rejected: Rejected) -> None:
        findings = list(rejected.findings) or None
        error = Error(rejected.code, rejected.detail, at=self.committer.now_ms(), data=findings)
        ended = c.ChildEnded(path=parent["path"], attempt=parent["attempt"], status="failed", error=error)
        command_id = f"{message.command_id}/refused"
        await self.committer.submit(message.run_id, message.tenant, ended, command_id=command_id)

    # --- signals --------------------------------------------------------------------------------------------------

    async def send(
        self, tenant: UUID, id: str, type: str, data: Json, run_id: UUID | None = None
    ) -> tuple[Signal, bool]:
        """Store a signal and see to it that it is offered to whom it concerns; returns it, and whether it was there
        already. Raises `Rejected` 409 if another one has its id."""
        kept = await signals.store_signal(self.database.api, tenant, id, type, values.dumps(data), run_id)
        self._signals.set()
        return kept

    async def _subscribe(self, message: OutboxMessage) -> None:
        """A run waits: offer it what was stored before, and remember that it is to be offered what comes.

        What was stored is offered twice, before the subscription is written and behind it: so what is old comes before
        what is new, and nothing that was stored in between is missed.
        """
        wanted = msgspec.json.decode(message.body, type=_Subscription)
        seen: list[str] = []
        since = values.instant(wanted.since)
        awaited = await self._offer_stored(message, wanted.types, since, seen)
        if awaited:
            tenant, run_id = message.tenant, message.run_id
            await signals.subscribe(self.database.api, tenant, run_id, wanted.path, awaited, message.last_seq)
            await self._offer_stored(message, awaited, since, seen)

    async def _offer_stored(
        self, message: OutboxMessage, types: Sequence[str], since: datetime, seen: list[str]
    ) -> list[str]:
        """Offer the run what is stored of these types, but for those `seen`; returns the types that it still awaits."""
        tenant, run_id = message.tenant, message.run_id
        awaited, after = list(types), None
        hot = self.committer.peek(run_id)
        without = [*seen, *(hot.state.signals if hot is not None else ())]
        while awaited:
            page = await signals.signals_for(
                self.database.api,
                tenant,
                run_id,
                awaited,
                since=since,
                without=without,
                limit=self.config.page_max,
                after=after,
            )
            for signal in page:
                seen.append(signal.id)
                if signal.type in awaited:
                    still = await self._offer(run_id, signal)
                    awaited = [type for type in awaited if type in still]
            if len(page) < self.config.page_max:
                break
            after = page[-1]
        return awaited

    async def _offer(self, run_id: UUID, signal: Signal) -> Sequence[str]:
        """Offer the run a signal; the types that it waits for after that."""
        command = c.Signal(
            id=signal.id,
            name=signal.type,
            data=values.loads(signal.data),
            sent_at=values.milliseconds(signal.sent_at),
        )
        try:
            outcome = await self.committer.submit(run_id, signal.tenant, command)
        except Rejected as rejected:
            if rejected.status not in FINAL_REFUSALS:
                raise
            return ()  # it has ended
        return outcome.value["awaits"]

    async def _offer_due(self) -> int:
        """Offer due signals to those who wait, the oldest first; returns how many there were."""
        async with self.database.api.acquire() as connection:
            due = await signals.due_signals(connection, self.config.batch_max)
        for signal in due:
            try:
                await self._spread(signal)
            except Exception as error:  # it is given out again; those behind it must not wait for that
                log.warning("signal_not_offered", signal=signal.id, error=str(error) or repr(error))
        return len(due)

    async def _spread(self, signal: Signal) -> None:
        pool = self.database.api
        waiting = await signals.subscribers(pool, signal)
        if waiting:
            before = await signals.unsettled_before(pool, signal)  # another process may be about to offer them
            await asyncio.gather(*(self._offer_in_order(each, [*before, signal]) for each in waiting))
        if signal.run_id is None:
            for hear in self.listeners:
                await hear(signal)
        await signals.settle_signal(pool, signal)

    async def _offer_in_order(self, subscriber: signals.Subscriber, offered: Sequence[Signal]) -> None:
        for signal in offered:
            if signal.run_id in (None, subscriber.run_id):
                awaited = await self._offer(subscriber.run_id, signal)
                if signal.type not in awaited:
                    await signals.unsubscribe(self.database.api, subscriber.run_id, signal.type, subscriber.opened_seq)
                    return
