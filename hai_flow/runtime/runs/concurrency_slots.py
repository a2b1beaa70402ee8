"""`concurrency`: slots for runs that start, and the queue of those that find none (docs/design/store.md#slots). A start
takes a slot of its key before the run is stored, and the end frees it in the same commit. A run without one is stored
as `queued`; messages of outboxes queue it, and admit the next. Until a run's first commit its slot is only promised:
the sweep takes back overdue promises, and a commit that comes later is decided again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
import structlog

from hai_flow.definition.plan import Concurrency, Plan
from hai_flow.engine import commands as c
from hai_flow.engine.runs.start_run import compute_key_of_fork, compute_key_of_move, key_of
from hai_flow.engine.state.state import TERMINAL_STATUSES, RunState
from hai_flow.engine.steps.concurrency_slots import AWAIT, FREED
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.states import HEAD, state_at
from hai_flow.runtime.commit.submission import SEAT_LOST, Begin
from hai_flow.store.messaging import concurrency_slots
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import run_lists

Handle: TypeAlias = Callable[[OutboxMessage], Awaitable[None]]
log = structlog.get_logger(__name__)

BUSY: Final = "concurrency_busy"
STALLED_EVERY: Final = timedelta(minutes=1)  # freeing a slot gives it on; this is for slots freed by hand
_TRIES: Final = 3
CANCELLED: Final = "a newer run of the same concurrency key has started"


class _Awaited(msgspec.Struct):
    key: str
    seats: int
    cancels: bool
    since: int


class _Freed(msgspec.Struct):
    key: str


class Slots:
    """Gives slots of concurrency keys to runs that start and to runs that wait."""

    def __init__(self, database: Database, committer: Committer, rows: Rows | None = None) -> None:
        self._rows = rows or Rows()
        self.database = database
        self.committer = committer
        self.handlers: Mapping[str, Handle] = {AWAIT: self._await, FREED: self._handle_freed}
        """The handlers of the messages of runs that wait for a slot, or free one, by their kind."""

    @contextlib.asynccontextmanager
    async def reserve_slot(self, tenant: UUID, plan: Plan, begin: Begin) -> AsyncGenerator[tuple[Begin, str | None]]:
        """The Start with its concurrency key, and the slot that it was promised. Inside, it is submitted; if it is
        refused there, the slot is the next one's. Raises `Rejected` 409 `concurrency_busy` where the workflow queues no
        run, and for a fork, which can't begin by waiting."""
        concurrency = plan.concurrency
        if concurrency is None:
            yield begin, None
            return
        key = self._key_of(plan, begin)
        if key is None or await self._is_held_above(tenant, concurrency, key, begin):
            yield begin, None
            return
        begin = msgspec.structs.replace(begin, key=key)
        slot = await concurrency_slots.take_slot(self.database.api, tenant, key, concurrency.limit, begin.run_id)
        if slot is None:
            if concurrency.on_conflict == "reject" or isinstance(begin, c.Fork):
                await self._refuse(tenant, plan, concurrency, key, begin.run_id)
            else:
                cancels = concurrency.on_conflict == "cancel_running"
                begin = msgspec.structs.replace(begin, queued=True, cancels=cancels)
        try:
            yield begin, slot
        except Rejected:
            if slot is not None and await concurrency_slots.give_back(
                self.database.api, tenant, key, slot, begin.run_id
            ):
                with contextlib.suppress(Rejected):  # else the sweep does it, when the promise is over
                    await self.admit(tenant, key)
            raise

    async def is_left(self, tenant: UUID, slot: str, run_id: UUID) -> bool:
        """Whether a run that was stopped for the run has left it the slot, with its work."""
        return await concurrency_slots.is_left(self.database.api, tenant, slot, run_id)

    def _key_of(self, plan: Plan, begin: Begin) -> str | None:
        now = self.committer.now_ms()
        return compute_key_of_fork(plan, begin, now) if isinstance(begin, c.Fork) else key_of(plan, begin, now)

    async def claim(self, tenant: UUID, plan: Plan, begin: Begin, leaving: RunState) -> bool:
        """Promise a slot to a run that is to begin in the place of `leaving`, which is active, before that is stopped.
        Returns whether it gets the slot of that run instead, when that has ended. Raises `Rejected` 409
        `concurrency_busy` as `reserve_slot`. One that may queue is promised nothing."""
        concurrency = plan.concurrency
        key = None if concurrency is None else self._key_of(plan, begin)
        if concurrency is None or key is None:
            return False
        pool = self.database.api
        if leaving.key == key and await concurrency_slots.has_slot(pool, tenant, key, UUID(leaving.run_id)):
            return True
        queues = concurrency.on_conflict != "reject" and not isinstance(begin, c.Fork)
        if not queues and await concurrency_slots.take_slot(pool, tenant, key, concurrency.limit, begin.run_id) is None:
            await self._refuse(tenant, plan, concurrency, key, begin.run_id)
        return False

    @contextlib.asynccontextmanager
    async def moving(self, tenant: UUID, plan: Plan, state: RunState) -> AsyncGenerator[str | None]:
        """Inside, the run in `state` is moved to `plan`, with the slot that this gives, if it needs another one; behind
        that its old slot is the next one's. Raises `Rejected` 409 `concurrency_busy` where there is no slot."""
        concurrency, run_id, pool = plan.concurrency, UUID(state.run_id), self.database.api
        key = compute_key_of_move(plan, state, self.committer.now_ms())
        if key == state.key or state.parent is not None or state.slot is not None:
            yield None
            return
        slot = None
        if concurrency is not None and key is not None:
            slot = await concurrency_slots.take_slot(pool, tenant, key, concurrency.limit, run_id, moves=True)
            if slot is None:
                raise await self._busy(tenant, plan, concurrency, key)
        try:
            yield slot
        except Rejected:
            if (
                slot is not None
                and key is not None
                and await concurrency_slots.give_back(pool, tenant, key, slot, run_id)
            ):
                await self.admit(tenant, key)
            raise
        if state.key is not None:
            await concurrency_slots.release_slots(pool, tenant, state.key, run_id)
            await self.admit(tenant, state.key)

    async def unclaim(self, tenant: UUID, plan: Plan, begin: Begin) -> None:
        """The run does not begin: what was promised to it by `claim` goes to the next."""
        key = None if plan.concurrency is None else self._key_of(plan, begin)
        if key is None:
            return
        pool = self.database.api
        for slot in await concurrency_slots.list_slots_promised_to(pool, tenant, key, begin.run_id):
            if await concurrency_slots.give_back(pool, tenant, key, slot, begin.run_id):
                with contextlib.suppress(Rejected):  # else the sweep does it
                    await self.admit(tenant, key)

    async def _is_held_above(self, tenant: UUID, concurrency: Concurrency, key: str, begin: Begin) -> bool:
        if isinstance(begin, c.Fork) or begin.parent is None:
            return False
        parent_id = UUID(begin.parent.run_id)
        return await concurrency_slots.is_held_above(self.database.api, tenant, key, concurrency.limit, parent_id)

    async def _refuse(self, tenant: UUID, plan: Plan, concurrency: Concurrency, key: str, run_id: UUID) -> None:
        """Refuse a start that finds no slot, unless its run is there already."""
        if await run_lists.get_run(self.database.api, tenant, run_id) is None:
            raise await self._busy(tenant, plan, concurrency, key)

    async def _busy(self, tenant: UUID, plan: Plan, concurrency: Concurrency, key: str) -> Rejected:
        holders = await self.holders(tenant, key, concurrency.limit)
        winner = {"run_id": str(holders[0].run_id), "status": holders[0].status} if holders else None
        text = key.removeprefix(f"{plan.name}:")
        most = "one run" if concurrency.limit == 1 else f"{concurrency.limit} runs"
        message = f"workflow {plan.name} has at most {most} of the concurrency key {text!r} at once; wait for its end."
        return Rejected(409, BUSY, message, winner=winner)

    async def holders(self, tenant: UUID, key: str, limit: int) -> list[concurrency_slots.Holder]:
        """The runs that hold a slot of the key, the oldest first. Slots are the engine's alone: requests read them
        here."""
        return await concurrency_slots.holders(self.database.api, tenant, key, limit)

    # --- the queue ------------------------------------------------------------------------------------------------

    async def _await(self, message: OutboxMessage) -> None:
        request = msgspec.json.decode(message.body, type=_Awaited)
        pool, tenant = self.database.api, message.tenant
        since = instants.instant(request.since)
        await concurrency_slots.wait_for_slot(pool, tenant, request.key, message.run_id, request.seats, since)
        if request.cancels:
            older = await concurrency_slots.too_many(pool, tenant, request.key, request.seats)
            stop = partial(self._stop, tenant, message.command_id)
            await self._rows.go_through(Sweep.WAITING_RUNS, older, lambda run_id: f"run {run_id}, to be stopped", stop)
        await self.admit(tenant, request.key)

    async def _stop(self, tenant: UUID, of: str, run_id: UUID) -> None:
        with contextlib.suppress(Rejected):  # it has ended
            stop = c.Stop(by="system", reason=CANCELLED)
            await self.committer.submit(run_id, tenant, stop, command_id=f"{of}/{run_id}")

    async def _handle_freed(self, message: OutboxMessage) -> None:
        freed = msgspec.json.decode(message.body, type=_Freed)
        await concurrency_slots.leave_queue(self.database.api, message.tenant, freed.key, message.run_id)
        await self.admit(message.tenant, freed.key)

    async def admit(self, tenant: UUID, key: str, overdue: Sequence[str] = ()) -> None:
        """Let the runs begin that have waited longest, as far as there are slots; those `overdue` are taken back
        first. One that can't begin here (a newer release wrote it) goes to the end of the queue."""
        pool, admitted, given_on = self.database.api, set[UUID](), True
        while given_on:
            given_on = False

            async def begin(seat: concurrency_slots.Holder) -> None:
                nonlocal given_on
                given_on |= await self._begin(tenant, key, seat)

            for seat in await concurrency_slots.seat_waiters(pool, tenant, key, overdue):
                name = f"run {seat.run_id}"
                if (
                    await self._rows.deal(Sweep.WAITING_RUNS, name, partial(begin, seat))
                    and seat.run_id not in admitted
                ):
                    await concurrency_slots.step_back(pool, tenant, key, seat.run_id)
                    given_on |= await concurrency_slots.give_back(pool, tenant, key, seat.slot, seat.run_id)
                admitted.add(seat.run_id)

    async def _begin(self, tenant: UUID, key: str, seat: concurrency_slots.Holder) -> bool:
        """Let a run begin with its slot. Returns whether it did not need the slot, which has the next one now."""
        pool, given_on = self.database.api, False
        try:
            await self.committer.submit(seat.run_id, tenant, c.Admit(), seat=seat.slot)
        except Rejected as rejected:
            if rejected.code == SEAT_LOST:
                return False
            if rejected.status not in (404, 409):
                raise
            given_on = await concurrency_slots.give_back(pool, tenant, key, seat.slot, seat.run_id)
            if rejected.code == "run_paused":  # it asks again when it is resumed
                return given_on
        await concurrency_slots.leave_queue(pool, tenant, key, seat.run_id)
        return given_on

    async def take_back(self, tenant: UUID, leaver: UUID) -> None:
        """Have the run `leaver` undo what it had left to an heir that does not begin: it gets its slots back, and from
        then on the heir can't begin. Nothing happens where the heir has begun. Done in part, it may be done again."""
        pool = self.database.api
        for _ in range(_TRIES):
            state = await state_at(self.database, tenant, leaver, HEAD)
            if state is None:
                return
            seized = await concurrency_slots.seize(pool, tenant, leaver)
            if state.heir is None or not (seized or not state.ended):
                break
            try:
                command = c.TakeBack(heir=state.heir.run_id, seized=seized)
                outcome = await self.committer.submit(leaver, tenant, command)
                log.info("work_taken_back", run_id=str(leaver), heir=state.heir.run_id, status=outcome.status)
                break
            except Rejected as rejected:  # it has ended since we looked: its heir has the slots
                if rejected.status != 409:
                    raise
        row = await run_lists.get_run(pool, tenant, leaver)
        if row is not None and row.status not in TERMINAL_STATUSES:
            await concurrency_slots.keep_seized(pool, tenant, leaver)
            return
        for key in {slot.rpartition("#")[0] for slot in await concurrency_slots.release_seized(pool, tenant, leaver)}:
            await self.admit(tenant, key)

    async def sweep(self) -> None:
        """Look through everything that others may have left behind."""
        await self.sweep_promises()
        await self.sweep_stalled()

    async def sweep_promises(self) -> None:
        """Take back slots that were promised for too long. Have runs take back the work that they had left to an heir
        which has not begun."""
        await self._rows.go_through(
            Sweep.PROMISED_SLOTS,
            await concurrency_slots.list_overdue_heirs(self.database.api),
            lambda each: f"run {each[1]}, which has left its slots",
            lambda each: self.take_back(*each),
        )
        overdue = await concurrency_slots.overdue_promises(self.database.api)
        await self._rows.go_through(
            Sweep.PROMISED_SLOTS,
            overdue,
            lambda each: _name(each.tenant, each.key),
            lambda each: self.admit(each.tenant, each.key, each.slots),
        )

    async def sweep_stalled(self) -> None:
        """Admit waiting runs that were passed over, unless some process looked through a part of them just now."""
        await orphan_cleanup.sweep(self.database.api, "queues", STALLED_EVERY, self._admit_stalled)

    async def _admit_stalled(self, after: list[Any] | None) -> orphan_cleanup.Page:
        stalled, page = await concurrency_slots.find_stalled_keys(self.database.api, after)
        name, admit = (lambda each: _name(*each)), (lambda each: self.admit(*each))
        await self._rows.go_through(Sweep.WAITING_KEYS, stalled, name, admit)
        return page


def _name(tenant: UUID, key: str) -> str:
    return f"key {key} of {tenant}"
