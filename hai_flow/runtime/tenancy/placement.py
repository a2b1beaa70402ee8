"""In which of a tenant's cells a thread lives, and in which one a new thread begins. A thread that is named after its
first run says its cell; one that a client named is known to its anchor (`store/cells/thread_locations`), which all
processes find by the name. So nothing here is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID, uuid4

from hai_flow.cells import HOME, TenantCells, cell_in_thread_id, cell_of, draw_cell, place_id
from hai_flow.errors import Rejected
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.store.cells import thread_locations
from hai_flow.store.postgres.database import Database


class ThreadPlacement:
    """Finds the places of threads, and gives new ones theirs. `database_of` gives that of a cell, or raises Rejected
    503 where it is away; `there` those of all cells that are not; `numbers`: all cells of the process."""

    def __init__(
        self,
        tenants: Callable[[], Tenants],
        database_of: Callable[[int], Database],
        there: Callable[[], Mapping[int, Database]],
        numbers: Sequence[int],
    ) -> None:
        self._tenants = tenants
        self._numbers = frozenset(numbers)
        self._database_of = database_of
        self._there = there

    async def living(self, tenant: UUID, said: int = HOME) -> TenantCells:
        """Where the tenant lives. `said`: a cell that an id names; if this process does not know it to be the tenant's,
        it asks the database again."""
        living = await self._tenants().living(tenant)
        if said != HOME and said in self._numbers and said not in living.cells:
            self._tenants().forget(tenant)
            living = await self._tenants().living(tenant)
        return living

    async def of_run(self, tenant: UUID, run_id: UUID) -> int:
        """The cell of a run of the tenant. If the id names a cell that is not the tenant's, the tenant has no run of
        this id: then it is the seat, which answers that."""
        named = cell_of(run_id)
        living = await self.living(tenant, named)
        return named if named in living.cells else living.seat

    async def of_thread(self, tenant: UUID, thread_id: str) -> int | None:
        """The cell in which the thread lives. None: the thread has not begun. Raises Rejected 503 where the cell is
        away that knows its place."""
        named = cell_in_thread_id(thread_id)
        living = await self.living(tenant, named)
        if not living.is_large:
            return living.seat
        anchor = living.anchor(thread_id)
        if (
            named in living.cells
            and named not in (HOME, anchor)
            and (await self._find_cell(named, tenant, thread_id)).here
        ):
            return named
        reachable = self._there()
        if anchor in reachable:
            location = await self._find_cell(anchor, tenant, thread_id)
            return anchor if location.here else location.points_to
        for cell in living.cells:  # where it is found, it lives; where it is not, only the anchor knows
            if cell in reachable and (await self._find_cell(cell, tenant, thread_id)).here:
                return cell
        self._database_of(anchor)
        return anchor

    async def begin(self, tenant: UUID, thread_id: str, *, at_seat: bool = False) -> int:
        """The cell in which the thread is to begin, or lives: the same for everybody, from now on. `at_seat`: it begins
        with a run that has to be in the seat. Raises Rejected 503 where a cell is away that has to know."""
        cell = await self.of_thread(tenant, thread_id)
        if cell is not None:
            return cell
        living = await self.living(tenant)
        preferred = living.seat if at_seat else living.place(thread_id)
        return await self._point(tenant, thread_id, living.anchor(thread_id), preferred)

    async def begin_once(self, tenant: UUID, id: UUID, *, at_seat: bool = False) -> int:
        """The cell of the run that is started under a key from which `id` was made, in a thread of its own: the same
        whenever it is started again. Raises as `begin`."""
        living, name = await self.living(tenant), str(id)
        anchor = living.anchor(name)
        thread_id = str(place_id(id, anchor))  # the name of its thread, if it begins there
        location = await self._find_cell(anchor, tenant, thread_id)
        if location.here or location.points_to is not None:
            return anchor if location.points_to is None else location.points_to
        return await self._point(tenant, thread_id, anchor, living.seat if at_seat else living.place(name))

    async def anywhere(self, tenant: UUID) -> int:
        """A cell for a thread without a name from a client: one that can be reached."""
        living, reachable = await self.living(tenant), self._there()
        return draw_cell(uuid4().hex, [cell for cell in living.open if cell in reachable] or living.open)

    async def _point(self, tenant: UUID, thread_id: str, anchor: int, wanted: int) -> int:
        if wanted == anchor:
            return anchor
        self._database_of(wanted)  # a thread that is pointed to a cell which is away could begin nowhere
        async with self._database_of(anchor).api.acquire() as connection:
            pointed = await thread_locations.point(connection, tenant, thread_id, wanted)
        return anchor if pointed is None else pointed

    async def _find_cell(self, cell: int, tenant: UUID, thread_id: str) -> thread_locations.ThreadLocation:
        return await thread_locations.locate(self._database_of(cell).api, tenant, thread_id)


def demand_seat(cell: int, seat: int, workflow: str) -> None:
    """Raises Rejected 422 where a run that counts with others of its key would be in another cell than they."""
    if cell != seat:
        raise Rejected(
            422,
            "concurrency_elsewhere",
            f"workflow {workflow} has a concurrency key, or runs one that has; of a tenant in several cells such runs "
            "are counted in its first cell alone, and this thread lives in another. Begin a thread with it.",
        )
