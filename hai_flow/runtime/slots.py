"""`concurrency`: slots for runs that start, and the queue of those that find none (STORE H7).

A start takes a slot of its key before the run is stored, and the run's end frees it in the same commit. Who finds none
is stored as `queued` (or refused, if its workflow says so); what it says in its outbox puts it into the queue, and what
the end of another says admits the next. The sweep repeats what somebody left half done.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.definition.plan import Concurrency, Plan
from hai_flow.engine import commands as c
from hai_flow.engine.slots import AWAIT, FREED
from hai_flow.engine.starting import key_of
from hai_flow.errors import Rejected
from hai_flow.runtime.committer import Committer
from hai_flow.runtime.courier import Courier
from hai_flow.store import runs, slots
from hai_flow.store.database import Database
from hai_flow.store.outbox import OutboxMessage

log = structlog.get_logger(__name__)

BUSY: Final = "concurrency_busy"
CANCELLED: Final = "a newer run of the same concurrency key has started"


class _Awaited(msgspec.Struct):
    key: str
    seats: int
    cancels: bool
    since: int


class _Freed(msgspec.Struct):
    key: str


class Slots:
    """Gives slots of concurrency keys to those who start and to those who wait."""

    def __init__(self, database: Database, committer: Committer, courier: Courier) -> None:
        self.database = database
        self.committer = committer
        committer.seated = self.seated
        courier.handlers[AWAIT] = self._await
        courier.handlers[FREED] = self._freed

    @contextlib.asynccontextmanager
    async def seated(self, tenant: UUID, plan: Plan, start: c.Start) -> AsyncGenerator[c.Start]:
        """The Start with what it must say of its concurrency key. Inside, it is submitted; if it is refused there, its
        slot is free again. Raises `Rejected` 409 `concurrency_busy` where the workflow queues nobody."""
        concurrency = plan.concurrency
        key = key_of(plan, start, self.committer.now_ms())
        if concurrency is None or key is None:
            yield start
            return
        pool = self.database.api
        if start.parent is not None and await slots.held_above(
            pool, tenant, key, concurrency.limit, UUID(start.parent.run_id)
        ):
            yield start
            return
        start = msgspec.structs.replace(start, key=key)
        slot = await slots.take_slot(pool, tenant, key, concurrency.limit, start.run_id)
        if slot is None:
            if concurrency.on_conflict == "reject":
                await self._refuse(tenant, plan, concurrency, key, start)
            cancels = concurrency.on_conflict == "cancel_running"
            start = msgspec.structs.replace(start, queued=True, cancels=cancels)
        try:
            yield start
        except Rejected:
            if slot is not None:
                await slots.give_back(pool, tenant, slot, start.run_id)
            raise

    async def _refuse(self, tenant: UUID, plan: Plan, concurrency: Concurrency, key: str, start: c.Start) -> None:
        """Refuse a start that finds no slot, unless its run is there already."""
        if await runs.get_run(self.database.api, tenant, start.run_id) is not None:
            return
        found = await slots.holders(self.database.api, tenant, key, concurrency.limit)
        winner = {"run_id": str(found[0].run_id), "status": found[0].status} if found else None
        text = key.removeprefix(f"{plan.name}:")
        most = "one run" if concurrency.limit == 1 else f"{concurrency.limit} runs"
        message = f"workflow {plan.name} has at most {most} of the concurrency key {text!r} at once; wait for its end."
        raise Rejected(409, BUSY, message, winner=winner)

    # --- the queue ------------------------------------------------------------------------------------------------

    async def _await(self, message: OutboxMessage) -> None:
        wanted = msgspec.json.decode(message.body, type=_Awaited)
        pool, tenant = self.database.api, message.tenant
        since = values.instant(wanted.since)
        await slots.wait_for_slot(pool, tenant, wanted.key, message.run_id, wanted.seats, since)
        if wanted.cancels:
            for run_id in await slots.too_many(pool, tenant, wanted.key, wanted.seats):
                await self._stop(tenant, run_id, f"{message.command_id}/{run_id}")
        await self.admit(tenant, wanted.key)

    async def _stop(self, tenant: UUID, run_id: UUID, command_id: str) -> None:
        with contextlib.suppress(Rejected):  # it has ended
            stop = c.Stop(by="system", reason=CANCELLED)
            await self.committer.submit(run_id, tenant, stop, command_id=command_id)

    async def _freed(self, message: OutboxMessage) -> None:
        freed = msgspec.json.decode(message.body, type=_Freed)
        await slots.leave_queue(self.database.api, message.tenant, freed.key, message.run_id)
        await self.admit(message.tenant, freed.key)

    async def admit(self, tenant: UUID, key: str) -> None:
        """Let those begin who have waited longest, as far as there are slots."""
        pool = self.database.api
        for seat in await slots.seat_waiters(pool, tenant, key):
            try:
                await self.committer.submit(seat.run_id, tenant, c.Admit())
            except Rejected as rejected:
                if rejected.status not in (404, 409):
                    raise
                await slots.vacate(pool, tenant, seat.slot, seat.run_id)
                if rejected.code == "run_paused":  # it asks again when it is resumed
                    continue
            await slots.leave_queue(pool, tenant, key, seat.run_id)

    async def sweep(self) -> None:
        """Admit whom nobody has admitted, and free what nobody holds."""
        pool = self.database.api
        await slots.forget_unborn(pool)
        await runs.free_lost_slots(pool)
        for tenant, key in await slots.keys_to_admit(pool):
            await self.admit(tenant, key)
