"""What nobody else would notice: runs that are due, runs of dead workers, messages between runs, rows left behind.

The poll is the truth; a hint only makes it come sooner. A message between runs is delivered as a command under the
message's own id, and deleted after the receiver's commit (or its "already so", or a final refusal): a deliverer that
dies in between delivers it twice, and the second time changes nothing (STORE H5).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.committer import Committer
from hai_flow.runtime.service import Service, wait_at_most
from hai_flow.runtime.worker import Worker
from hai_flow.store import outbox, runs
from hai_flow.store.database import EVERYTHING, Database

log = structlog.get_logger(__name__)

SENDER: Final = "system"
FINAL_REFUSALS: Final = frozenset({404, 409, 410})
WAIT_SECONDS_MIN: Final = 0.01  # a run that is due but can't be taken (its row is locked) must not make us spin


@dataclass(frozen=True, slots=True)
class SweeperConfig:
    """`poll_seconds`: at least this often it is looked what is due. `claims_max`: runs taken by one claim.

    `held_max`: claim no more while this many are held. `messages_max`: messages between runs that are delivered at
    once. `queues`: whose runs this process performs. `tidy_seconds`: how often what is left behind is cleared away.
    """

    poll_seconds: float = 1.0
    claims_max: int = 50
    held_max: int = 10_000
    messages_max: int = 100
    queues: tuple[str, ...] = ("default",)
    tidy_seconds: float = 60.0


class _Signal(msgspec.Struct):
    name: str
    data: object = None


class Sweeper(Service):
    """Claims what is due or lost and hands it to the worker; delivers messages between runs; tidies up."""

    def __init__(
        self, database: Database, committer: Committer, worker: Worker, config: SweeperConfig | None = None
    ) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.worker = worker
        self.config = config or SweeperConfig()
        self._hinted = asyncio.Event()

    async def _start(self) -> None:
        self._hinted.set()
        self._spawn(self._run_claims(), "claims")
        self._spawn(self._run_deliveries(), "deliveries")
        self._spawn(self._run_tidying(), "tidying")

    def hint(self, payload: str) -> None:
        """Somebody committed a run that nobody holds and that has something to perform."""
        if payload in (runs.DUE, EVERYTHING):
            self._hinted.set()

    async def _run_claims(self) -> None:
        while True:
            pause = self.config.poll_seconds
            try:
                pause = await self._claim()
            except Exception as error:
                log.warning("claim_failed", error=str(error))
            await wait_at_most(self._hinted, pause * random.uniform(0.8, 1.0))
            self._hinted.clear()

    async def _claim(self) -> float:
        """Claim once; return after how many seconds to look again."""
        if self.worker.id is None or self.worker.held >= self.config.held_max:
            return self.config.poll_seconds
        claimed = await self.worker.claim(self.config.claims_max, self.config.queues)
        if len(claimed) >= self.config.claims_max:
            return 0.0
        async with self.database.engine.acquire() as connection:
            due = await runs.next_wake(connection, self.config.queues)
        if due is None:
            return self.config.poll_seconds
        wait = (values.milliseconds(due) - self.committer.now_ms()) / 1000
        return min(max(wait, WAIT_SECONDS_MIN), self.config.poll_seconds)

    async def _run_deliveries(self) -> None:
        while True:
            delivered = 0
            try:
                delivered = await self._deliver_due()
            except Exception as error:
                log.warning("delivery_failed", error=str(error))
            if not delivered:  # else the next ones of the same senders are due now
                await asyncio.sleep(self.config.poll_seconds * random.uniform(0.8, 1.0))

    async def _deliver_due(self) -> int:
        """Deliver what is due at once; returns how many messages were got rid of."""
        async with self.database.api.acquire() as connection:
            messages = await outbox.due_messages(connection, self.config.messages_max)
        return sum(await asyncio.gather(*map(self._deliver, messages)))

    async def _deliver(self, message: outbox.OutboxMessage) -> bool:
        """Whether the receiver has the message, or never will. If not, it is given out again after a while."""
        try:
            target, command = UUID(message.target), _command(message)
        except (ValueError, msgspec.DecodeError) as error:
            log.error("message_unreadable", message=message.command_id, kind=message.kind, error=str(error))
            return False
        try:
            await self.committer.submit(
                target,
                message.tenant,
                command,
                command_id=message.command_id,
                body_sha=sha256(message.body).digest(),
            )
        except Rejected as rejected:
            if rejected.status not in FINAL_REFUSALS:
                return False
            log.warning("message_refused", message=message.command_id, kind=message.kind, reason=rejected.detail)
        except Exception as error:  # of unknown outcome: it is delivered again under the same id
            log.warning("message_not_delivered", message=message.command_id, error=str(error))
            return False
        async with self.database.api.acquire() as connection:
            await outbox.delete_message(connection, message)
        return True

    async def _run_tidying(self) -> None:
        while True:
            await asyncio.sleep(self.config.tidy_seconds * random.uniform(0.8, 1.0))
            try:
                async with self.database.api.acquire() as connection:
                    await runs.forget_workers(connection, timedelta(hours=1))
                    await runs.free_lost_slots(connection)
            except Exception as error:
                log.warning("tidying_failed", error=str(error))


def _command(message: outbox.OutboxMessage) -> c.Command:
    """What the message asks of its receiver. Raises ValueError for a kind that this release does not know."""
    match message.kind:
        case "signal":
            signal = msgspec.json.decode(message.body, type=_Signal)
            return c.Signal(id=message.command_id, name=signal.name, data=signal.data)
        case "stop":
            return c.Stop(by=SENDER)
        case "pause":
            return c.Pause(by=SENDER)
        case "resume":
            return c.Resume(by=SENDER)
        case "terminate":
            return c.Terminate(by=SENDER)
    raise ValueError(f"expected signal, stop, pause, resume or terminate, found {message.kind!r}")
