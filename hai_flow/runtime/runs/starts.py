"""The one door through which a run starts: a tenant, a plan and a Start (or a Fork) in, an `Outcome` out. It finds
everything else that a run needs to be stored: its id, the pinned workflows of its children, its place in a trace, the
slot of its thread (a child shares its parent's), the state that it takes over (`thread_state`), and a slot of its
concurrency key or a place in the queue (`concurrency_slots`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.cells import HOME, place_id
from hai_flow.definition.plan import Plan, Run
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.shared_state import has_kept_state
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.primitives import uuids
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.trace_parent import ASKER, BeginTrace, forward_trace
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.submission import SEAT_LOST, Begin, CommitCarrier, Outcome, RunCreation
from hai_flow.runtime.runs.concurrency_slots import Slots
from hai_flow.runtime.runs.thread_state import ThreadState
from hai_flow.runtime.tenancy.placement import demand_seat
from hai_flow.runtime.tenancy.quotas import Quotas
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.store.commit.entries import Branch
from hai_flow.store.messaging.concurrency_slots import derive_thread_slot

FindPins: TypeAlias = Callable[[UUID, Plan], Awaitable[dict[str, e.Pin]]]
"""Finds the workflow that each `run` step of a tenant's plan means now, and of the plans that they lead to."""
FindRetirement: TypeAlias = Callable[[UUID, Plan], Awaitable[Rejected | None]]
"""Finds the refusal of a run of a plan whose version was retired; None: it is in use."""


PLANS_MAX: Final = 1000  # of which it is known whether they are plain


class Starts:
    """Starts runs of plans. `find_pins` gives the workflows that a run's children will be of, `find_retirement` the
    refusal of a version that was retired."""

    def __init__(
        self,
        committer: Committer,
        slots: Slots,
        keeping: ThreadState,
        find_pins: FindPins,
        find_retirement: FindRetirement,
        quotas: Quotas,
        tenants: Tenants,
        cell: int = HOME,
    ) -> None:
        self._committer = committer
        self._slots = slots
        self._keeping = keeping
        self._find_pins = find_pins
        self._find_retirement = find_retirement
        self._quotas = quotas
        self._tenants = tenants
        self.cell = cell
        self.begin_trace: BeginTrace = forward_trace
        self._plain: dict[bytes, bool] = {}

    def new_id(self) -> UUID:
        """The id of a run that is started once."""
        return place_id(new_run_id(self._committer.now_ms()), self.cell)

    async def seat(self, tenant: UUID) -> int:
        """The tenant's first cell."""
        return await self._tenants.seat(tenant)

    def id_of(self, *parts: str) -> UUID:
        """The id of a run of this cell, made from the identity of its start (tenant, principal, Idempotency-Key; or
        tenant, thread, runId), so that the same start made twice is one run (docs/design/store.md#command-ids)."""
        return place_id(uuids.derive_uuid(*parts), self.cell)

    async def start(
        self,
        tenant: UUID,
        plan: Plan,
        begin: Begin,
        *,
        command_id: str | None = None,
        body_sha: bytes = b"",
        branch: Branch | None = None,
        asked: AuditActor | None = None,
        owners: Collection[str] | None = None,
        resolved: bool = False,
        latest: bool = False,
        claimed: bool = False,
        promised: bool = False,
        carrier: CommitCarrier | None = None,
    ) -> Outcome:
        """Store the run `begin.run_id`; return after the commit. The same run again is the same outcome again.

        `command_id`, `body_sha`, `asked` and `carrier` as in `Committer.submit`. `branch`: where the run leaves its
        thread's line; the caller then gives the kept state. `owners`: if another request begins the thread at the same
        time, one of them has to own it; None: the owner is known. `resolved`: the plan's version was found for this
        start, in use.
        `latest`: the start names no version, and the plan is of the one that was the latest; only where
        `asks_for_version`. `claimed`: `claim` has asked the tenant's limits for it. `promised`: the slot of its thread
        is promised to it.

        Raises `Rejected`: 409 `workflow_retired` where the version of the plan or of a child was retired, 429 where the
        tenant has too many runs, 404 where a child's workflow does not exist, 409 `thread_busy` where the thread has an
        active run, 409 `concurrency_busy` where the workflow queues no run, 422 `concurrency_elsewhere` where runs of
        its key are counted in another cell, `SUPERSEDED` where the plan is not of the `latest` version any more, and
        the engine's refusals.
        """
        if plan.concurrency is not None:
            demand_seat(self.cell, await self.seat(tenant), plan.name)
        if not isinstance(begin, c.Start) or begin.parent is None:
            excess = None if claimed else await self._quotas.excess(tenant)
            if excess is not None and not await self._keeping.has_begun(tenant, begin.run_id):
                raise excess
        is_first = isinstance(begin, c.Start) and begin.parent is None
        is_plain = is_first and branch is None and self._is_plain(plan)
        asks = is_plain and not self._committer.database.sharded
        assert asks or not latest, "its commit asks for the version"
        if not (resolved or asks):
            retired = await self._find_retirement(tenant, plan)
            if retired is not None and not await self._keeping.has_begun(tenant, begin.run_id):
                raise retired
            resolved = True
        slot = _derive_thread_slot(begin)
        birth = RunCreation(plan, slot=slot, branch=branch, left=promised, in_use=not resolved, latest=latest)
        if isinstance(begin, c.Start) and is_first:
            begin = msgspec.structs.replace(begin, trace=begin.trace or self._trace())
            if is_plain and (owners is None or begin.thread_id == str(begin.run_id)):  # its commit asks for the rest
                return await self._submit(tenant, begin, birth, command_id, body_sha, asked, carrier)
            begin = msgspec.structs.replace(begin, pins=await self._find_pins(tenant, plan))
            if branch is None:
                async with self._keeping.with_thread_state(tenant, plan, begin, owners) as start:
                    return await self._store(tenant, start, birth, command_id, body_sha, asked, carrier)
        return await self._store(tenant, begin, birth, command_id, body_sha, asked, carrier)

    async def claim(self, tenant: UUID, plan: Plan, begin: Begin, leaving: RunState) -> e.Heir:
        """Ask for everything that `start` may refuse the run, before the active run `leaving` of its thread is stopped
        for it. Returns what that one is told of its heir. Raises `Rejected` as `start`."""
        if plan.concurrency is not None:
            demand_seat(self.cell, await self.seat(tenant), plan.name)
        refused = await self._quotas.excess(tenant, leaving=1) or await self._find_retirement(tenant, plan)
        if refused is not None:
            raise refused
        if isinstance(begin, c.Start):
            await self._find_pins(tenant, plan)
        key = await self._slots.claim(tenant, plan, begin, leaving)
        return e.Heir(str(begin.run_id), key=key)

    async def unclaim(self, tenant: UUID, plan: Plan, begin: Begin) -> None:
        """The run does not begin after all."""
        await self._slots.unclaim(tenant, plan, begin)

    async def _store(
        self,
        tenant: UUID,
        begin: Begin,
        birth: RunCreation,
        command_id: str | None,
        body_sha: bytes,
        asked: AuditActor | None,
        carrier: CommitCarrier | None,
    ) -> Outcome:
        if isinstance(begin, c.Fork) and await self._slots.is_left(tenant, birth.slot or "", begin.run_id):
            birth.left = True
        while True:
            async with self._slots.reserve_slot(tenant, birth.plan, begin) as (start, seat):
                try:
                    return await self._submit(tenant, start, birth, command_id, body_sha, asked, carrier, seat)
                except Rejected as rejected:
                    if rejected.code != SEAT_LOST:
                        raise

    async def _submit(
        self,
        tenant: UUID,
        begin: Begin,
        birth: RunCreation,
        command_id: str | None,
        body_sha: bytes,
        asked: AuditActor | None,
        carrier: CommitCarrier | None,
        seat: str | None = None,
    ) -> Outcome:
        return await self._committer.submit(
            begin.run_id,
            tenant,
            begin,
            command_id=command_id,
            body_sha=body_sha,
            birth=birth,
            seat=seat,
            asked=asked,
            carrier=carrier,
        )

    def asks_for_version(self, plan: Plan) -> bool:
        """Whether the commit of a run of the plan that begins a thread asks by itself whether the plan's version is in
        use, and the latest."""
        return self._is_plain(plan) and not self._committer.database.sharded

    def _is_plain(self, plan: Plan) -> bool:
        """Whether a run of the plan needs nothing but itself to begin: no slot of a concurrency key, no versions of
        children, no state that its thread has kept. Found once for a document."""
        plain = self._plain.get(plan.sha256)
        if plain is None:
            if len(self._plain) >= PLANS_MAX:
                self._plain.clear()
            runs = any(isinstance(step.verb, Run) for step in plan.steps.values())
            plain = self._plain[plan.sha256] = not (runs or plan.concurrency is not None or has_kept_state(plan))
        return plain

    def _trace(self) -> str | None:
        place = self.begin_trace(ASKER.get())
        return None if place is None else str(place)

    async def rehearse(self, plan: Plan, begin: Begin) -> None:
        """Raise the engine's refusal of `begin`, before anything is done for it."""
        await self._committer.rehearse(begin, plan, RunState(str(begin.run_id)))


def _derive_thread_slot(begin: Begin) -> str | None:
    if isinstance(begin, c.Start):
        return derive_thread_slot(begin.thread_id) if begin.parent is None else None
    first = begin.events[0]
    assert isinstance(first, e.RunStarted), "a log begins with run_started"
    return derive_thread_slot(first.thread_id)


def new_run_id(ms: int) -> UUID:
    return uuids.uuid7(ms)
