"""The part of the data that a request may touch: one tenant, in the cell of what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, cast
from uuid import UUID

from hai_flow.api.base.id_patterns import is_run_id
from hai_flow.api.permissions.principals import Principal
from hai_flow.api.permissions.rights import may_decide
from hai_flow.cells import HOME, TenantCells
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.errors import Rejected
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.cells import Cells
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.people.inbox import Inbox
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.tenancy.placement import demand_seat
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.row_security import Reads


@dataclass(frozen=True, slots=True)
class TenantScope:
    """Every read and write of a request goes through the pools and services of its scope, which are its tenant's."""

    principal: Principal
    cells: Cells
    cell: int  # where the run, thread or list of the request lives
    living: TenantCells  # all cells of the tenant

    @property
    def tenant(self) -> UUID:
        return self.principal.tenant

    @property
    def is_of_deployment(self) -> bool:
        """Whether the tenant is the one whose operators and admins run the deployment."""
        return self.tenant == LOCAL_TENANT

    def demand_deployment(self, detail: str) -> None:
        """Raises Rejected 403 for callers of other tenants."""
        if not self.is_of_deployment:
            raise Rejected(403, "tenant_forbidden", detail)

    @property
    def runtime(self) -> Runtime:
        """The runtime over the cell. Raises Rejected 503 while it is away."""
        return self.cells.at(self.cell)

    @property
    def at_home(self) -> Self:
        """The access to home, the cell that has the tenants and credentials."""
        return self.at(HOME)

    @property
    def everywhere(self) -> Sequence[Self]:
        """The access to each of the tenant's cells."""
        return [self.at(cell) for cell in self.living.cells] if self.living.is_large else (self,)

    @property
    def within_reach(self) -> Sequence[Self]:
        """Those of `everywhere` whose cells are not away."""
        away = self.cells.away_numbers
        return [each for each in self.everywhere if each.cell not in away]

    def at(self, cell: int) -> Self:
        return self if cell == self.cell else replace(self, cell=cell)

    @property
    def at_seat(self) -> Self:
        """The access to the tenant's seat. It has the things that the tenant has once: workflows, schedules,
        delegations, events to all."""
        return self.at(self.living.seat)

    async def find_at_thread(self, thread_id: str) -> Self:
        """The access to the cell of a thread of the tenant; of one that is not there, to where it would begin."""
        if not self.cells.several:
            return self
        cell = await self.cells.places.of_thread(self.tenant, thread_id)
        return self.at(self.living.place(thread_id) if cell is None else cell)

    async def find_at_run(self, run_id: UUID | str) -> Self:
        """The access to the cell of a run of the tenant; of a text that is no run's id, this one."""
        if not self.cells.several or not (isinstance(run_id, UUID) or is_run_id(run_id)):
            return self
        return self.at(await self.cells.places.of_run(self.tenant, UUID(str(run_id))))

    async def find_at_pending(self, id: str) -> Self:
        """The access to the cell of a question's run; of a text that is no question's id, this one."""
        run_id = run_of_pending(id)
        return self if run_id is None else await self.find_at_run(run_id)

    async def beginning(self, plan: Plan, start: c.Start) -> Self:
        """The access to the cell where the run begins in the thread that it names. Raises Rejected as the engine does;
        503 where a cell is away whose answer is needed, 422 where the run would have to be in another cell than its
        thread."""
        if not self.living.is_large:
            return self
        await self.runtime.starts.rehearse(plan, start)  # a start that is refused in any case leaves nothing behind
        at_seat = await self.catalog.counts(self.tenant, plan)
        cell = await self.cells.places.begin(self.tenant, start.thread_id, at_seat=at_seat)
        if at_seat:
            demand_seat(cell, self.living.seat, plan.name)
        return self.at(cell)

    async def beginning_anew(self, plan: Plan, start: c.Start, id: UUID | None) -> Self:
        """The access to the cell where the run begins in a thread of its own. `id`: made of the key under which it is
        started once. Raises as `beginning`."""
        if not self.living.is_large:
            return self
        await self.runtime.starts.rehearse(plan, start)
        places, at_seat = self.cells.places, await self.catalog.counts(self.tenant, plan)
        if id is not None:
            cell = await places.begin_once(self.tenant, id, at_seat=at_seat)
        else:
            cell = self.living.seat if at_seat else await places.anywhere(self.tenant)
        if at_seat:
            demand_seat(cell, self.living.seat, plan.name)
        return self.at(cell)

    @property
    def somewhere(self) -> Self:
        """The access to any cell of the tenant that is not away; to its seat, if all are."""
        away = self.cells.away_numbers
        return self.at(next((cell for cell in self.living.cells if cell not in away), self.living.seat))

    async def repeat(self) -> None:
        """Copy changes of the tenant's seat to its other cells, before the request is answered. A cell that is away
        gets them later."""
        await self.cells.spreading.repeat(self.tenant, self.living)

    @property
    def pool(self) -> Pool:
        """The connections with which requests write, and read credentials: only these show which tenant the request is
        of."""
        return self.runtime.database.api

    @property
    def reads(self) -> Pool:
        """The connections with which requests read: behind the second wall, unless the server asks for no
        credentials."""
        if self.principal.is_anybody:
            return self.runtime.database.api
        return cast("Pool", Reads(self.runtime.database, self.tenant))

    @property
    def catalog(self) -> Catalog:
        """The workflows, read as `reads` does."""
        return self.runtime.catalog.reading(self.reads)

    @property
    def inbox(self) -> Inbox:
        """The inboxes, read as `reads` does."""
        return self.runtime.inbox.reading(self.reads, self.principal.people.all_of, may_decide)

    @property
    def files(self) -> Files:
        """The files, read as `reads` does."""
        return self.runtime.files.reading(self.reads)
