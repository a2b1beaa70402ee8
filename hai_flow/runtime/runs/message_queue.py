"""`on_message: enqueue`: a user's message that comes while a run of its thread is active waits for its end, stored with
everything that its run needs. The end of a run sends a message through the outbox, which starts the next one; a sweep
looks for threads whose process died in between. Starting is repeated without harm: the run's id is made of the POST."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.engine.steps.concurrency_slots import THREAD_FREED
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.service import Service, wait_at_most
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.runs.starts import Starts
from hai_flow.store.messaging import message_queue
from hai_flow.store.messaging.message_queue import WAITING_MAX, QueuedMessage
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.postgres import orphan_cleanup as sweeps
from hai_flow.store.postgres.database import Database

log = structlog.get_logger(__name__)

STALLED_EVERY: Final = timedelta(seconds=10)
WITHDRAWN: Final = Rejected(410, "message_withdrawn", "the message was withdrawn before its turn came.")
FULL: Final = Rejected(
    429,
    "message_queue_full",
    f"{WAITING_MAX} messages of this thread wait for the end of its run; send this one again when there are fewer.",
)
_LATER: Final = (429, 503)


class _FreedThread(msgspec.Struct):
    thread: str


class MessageQueue(Service):
    """Keeps messages until the run before theirs has ended, and starts their runs."""

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        starts: Starts,
        poll_seconds: float,
        *,
        sweeps: bool,
        rows: Rows | None = None,
    ) -> None:
        """`sweeps`: whether this process looks for messages that a dead process left behind."""
        super().__init__()
        self._database = database
        self._catalog = catalog
        self._starts = starts
        self._poll_seconds = poll_seconds
        self._sweeps = sweeps
        self._rows = rows or Rows()
        self._waited_for: dict[tuple[UUID, UUID], set[asyncio.Event]] = {}
        self._wake = asyncio.Event()
        self.handlers = {THREAD_FREED: self._handle_freed}
        """The handlers of the messages of runs that have ended, by their kind."""

    async def _start(self) -> None:
        self._keep(self._run_polls, "queued messages")
        if self._sweeps:
            self._keep(self._run_sweeps, "stalled messages")

    async def add(
        self, tenant: UUID, workflow: bytes, start: c.Start, asked: AuditActor, *, command_id: str, body_sha: bytes
    ) -> QueuedMessage:
        """Let a message wait for its turn. The same one again finds the first. Raises Rejected 429 where too many of
        the thread wait, and 409 where another message has the same run."""
        message = QueuedMessage(
            tenant=tenant,
            run_id=start.run_id,
            thread_id=start.thread_id,
            workflow=workflow,
            principal=start.requester,
            start=values.dumps(start),
            asked=msgspec.json.encode(asked),
            command_id=command_id,
            body_sha=body_sha,
            queued_at=instants.instant(0),  # the database says when
        )
        stored = await message_queue.add(self._database.api, message)
        if stored is None:
            raise FULL
        if stored.body_sha != body_sha:
            raise Rejected(409, "run_id_reused", "this runId was used for another message that waits; use a new one.")
        await self._advance_apart((tenant, start.thread_id))  # the run that was active may have ended just now
        return stored

    async def has_any(self, tenant: UUID, thread_id: str) -> bool:
        return await message_queue.first_of(self._database.api, tenant, thread_id) is not None

    async def wait_outcome(self, tenant: UUID, run_id: UUID) -> Rejected | None:
        """Wait until the message has started its run, or was refused: then the refusal."""
        key, event = (tenant, run_id), asyncio.Event()
        self._waited_for.setdefault(key, set()).add(event)
        self._wake.set()
        try:
            await event.wait()
        finally:
            self._waited_for[key].discard(event)
            if not self._waited_for[key]:
                del self._waited_for[key]
        message = await message_queue.find(self._database.api, tenant, run_id)
        return None if message is None else message.refusal

    async def advance(self, tenant: UUID, thread_id: str) -> None:
        """Start the run of the next message, if no run is active in the thread. A message that can never start a run is
        marked so, and the one behind it is next."""
        pool = self._database.api
        while (message := await message_queue.first_of(pool, tenant, thread_id)) is not None:
            try:
                await self._begin(message)
            except Rejected as rejected:
                if rejected.code == "thread_busy" or rejected.status in _LATER:
                    return
                log.info("queued_message_refused", run=str(message.run_id), thread=thread_id, reason=rejected.code)
                await message_queue.refuse(pool, tenant, message.run_id, rejected)
            else:
                await message_queue.remove(pool, tenant, message.run_id)
            self._wake.set()

    async def _begin(self, message: QueuedMessage) -> None:
        plan = await self._catalog.plan(message.tenant, message.workflow)
        await self._starts.start(
            message.tenant,
            plan,
            msgspec.convert(values.loads(message.start), c.Start),
            command_id=message.command_id,
            body_sha=message.body_sha,
            asked=msgspec.json.decode(message.asked, type=AuditActor),
        )

    async def _handle_freed(self, message: OutboxMessage) -> None:
        await self.advance(message.tenant, msgspec.json.decode(message.body, type=_FreedThread).thread)

    # --- for callers that wait, and for messages that were left behind ------------------------------------------------

    async def _run_polls(self) -> None:
        while True:
            await wait_at_most(self._wake, self._poll_seconds if self._waited_for else None)
            self._wake.clear()
            if self._waited_for:
                try:
                    await self._look()
                except Exception as error:  # the next poll tries again
                    log.warning("poll_failed", error=str(error))

    async def _look(self) -> None:
        for key in await message_queue.find_settled(self._database.api, list(self._waited_for)):
            for event in self._waited_for.get(key, ()):
                event.set()

    async def _run_sweeps(self) -> None:
        while True:
            await asyncio.sleep(STALLED_EVERY.total_seconds() * random.uniform(0.8, 1.0))
            try:
                await self.sweep()
            except Exception as error:  # the next one tries again
                log.warning("sweep_failed", error=str(error))

    async def sweep(self) -> None:
        """Start the runs of messages whose thread has no active run: the process that should have done so is gone."""
        await sweeps.sweep(self._database.api, "queued_messages", STALLED_EVERY, self._advance_stalled)

    async def _advance_stalled(self, after: list[Any] | None) -> sweeps.Page:
        stalled, page = await message_queue.find_stalled_threads(self._database.api, after)
        await self._rows.go_through(Sweep.QUEUED_MESSAGES, sorted(stalled), _name, lambda each: self.advance(*each))
        return page

    async def _advance_apart(self, thread: tuple[UUID, str]) -> None:
        """The same as `advance`, for a caller who is not to hear of the message in front, which is another one's."""
        await self._rows.deal(Sweep.QUEUED_MESSAGES, _name(thread), lambda: self.advance(*thread))


def _name(thread: tuple[UUID, str]) -> str:
    return f"thread {thread[1]} of {thread[0]}"
