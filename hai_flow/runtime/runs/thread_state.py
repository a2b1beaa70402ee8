"""The state that a run takes over from the run before it in its thread (`keep: thread`), and the owner of a thread that
begins. It is read while the slot of the thread is promised to the run that begins, so no other run of the thread is
active, and the state is that of the last run's end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.state.shared_state import has_kept_state
from hai_flow.errors import Rejected
from hai_flow.runtime.commit.states import state_at
from hai_flow.store.messaging import concurrency_slots
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.runs import run_lists, threads
from hai_flow.store.runs.run_lists import RunSummary


class ThreadState:
    """Gives a Start the state that its thread has kept."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def has_begun(self, tenant: UUID, run_id: UUID) -> bool:
        """Whether the run is there: it is started again."""
        return await run_lists.get_run(self.database.api, tenant, run_id) is not None

    @contextlib.asynccontextmanager
    async def with_thread_state(
        self, tenant: UUID, plan: Plan, start: c.Start, owners: Collection[str] | None = None
    ) -> AsyncGenerator[c.Start]:
        """The Start with the kept state. It must be submitted inside the context. `owners`: one of them has to own the
        thread, if it has an owner; None: the caller has checked that. Raises `Rejected` 409 `thread_busy` where another
        run of the thread is active, or begins, or has given it another owner."""
        keeps = has_kept_state(plan)
        if (owners is None and not keeps) or start.thread_id == str(start.run_id):  # a thread that begins with this run
            yield start
            return
        pool, slot = self.database.api, concurrency_slots.derive_thread_slot(start.thread_id)
        if not await concurrency_slots.promise_slot(pool, tenant, slot, start.run_id):
            if await run_lists.get_run(pool, tenant, start.run_id) is None:
                raise Rejected(409, "thread_busy", f"another run is active in thread {start.thread_id}.")
            yield start  # it is there: the same outcome again
            return
        try:
            last = await threads.last_run(pool, tenant, start.thread_id)
            if owners is not None and last is not None and last.started_by not in owners:
                raise Rejected(409, "thread_busy", f"another run has begun in thread {start.thread_id}.")
            yield msgspec.structs.replace(start, kept=await self.state_after(tenant, plan, last)) if keeps else start
        except Rejected:
            await concurrency_slots.settle_slot(pool, tenant, slot, start.run_id)
            raise
        with contextlib.suppress(*FAILURES):  # else the sweep does it: what was committed is no failure
            await concurrency_slots.settle_slot(pool, tenant, slot, start.run_id)

    async def state_after(self, tenant: UUID, plan: Plan, last: RunSummary | None) -> dict[str, object]:
        """The state that the run `last` of a thread has left for a run of `plan`; empty if `last` was of another
        workflow."""
        if last is None or last.workflow_name != plan.name or not has_kept_state(plan):
            return {}
        state = await state_at(self.database, tenant, last.id, last.seq)
        return state.state if state is not None and isinstance(state.state, dict) else {}
