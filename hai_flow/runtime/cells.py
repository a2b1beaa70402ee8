"""The cells of one process: a runtime for each, over its own schema, and which of them a request is for. Everything of
a tenant lives in its cells, so nothing below knows of cells. Home has the things that exist once: tools, connections to
servers, tenants and their credentials. No task and no connection is shared between two cells; one that is away is
answered with 503, and comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import structlog

from hai_flow.cells import HOME, TenantCells
from hai_flow.errors import Rejected, StoreError
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.replication import Spreading
from hai_flow.runtime.runtime import Observer, Runtime
from hai_flow.runtime.tenancy.placement import ThreadPlacement
from hai_flow.settings import Settings
from hai_flow.store.cells.cells import HOME_NAME, Cell
from hai_flow.store.ops import health
from hai_flow.store.postgres import revisions
from hai_flow.store.postgres.database import Database, Deadlines
from hai_flow.store.postgres.error_classes import FAILURES

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0  # a cell that answers no question within this time is away
_HOME_ALONE: Final = TenantCells.in_one(HOME)


class Cells(Service):
    """`home` is started with it, and must be there; each of `others` as soon as it can be reached.

    `performs`: whether the others perform effects; None: as home does. `observers`: makes the observers of a further
    cell."""

    def __init__(
        self,
        home: Runtime,
        others: Sequence[Cell] = (),
        *,
        performs: bool | None = None,
        observers: Callable[[Cell], Sequence[Observer]] = lambda _: (),
        deadlines: Deadlines | None = None,
    ) -> None:
        super().__init__()
        self.home = home

        def beside(cell: Cell) -> Runtime:
            return Runtime(
                cell.dsn,
                settings_of(cell, home.settings, len(others)),
                performs=home.performs if performs is None else performs,
                deadlines=deadlines or home.deadlines,
                observers=observers(cell),
                cell=cell.number,
                beside=home,
            )

        self._cells: Mapping[int, tuple[Cell, Runtime]] = {cell.number: (cell, beside(cell)) for cell in others}
        self._away: dict[int, str] = dict.fromkeys(self._cells, "it was not reached yet")
        self.spreading = Spreading(home, self.at, self.runtimes)
        self.places = ThreadPlacement(
            lambda: home.tenants, lambda number: self.at(number).database, self._databases, self.numbers
        )

    @property
    def several(self) -> bool:
        """Whether there are cells beside home."""
        return bool(self._cells)

    @property
    def numbers(self) -> Sequence[int]:
        return (HOME, *self._cells)

    @property
    def names(self) -> Sequence[str]:
        """The names of all cells of the process, home first."""
        return [self.name(number) for number in self.numbers]

    @property
    def away(self) -> Mapping[str, str]:
        """The cells that can't be used now, by name, each with the reason."""
        return {self._cells[number][0].name: reason for number, reason in self._away.items()}

    @property
    def away_numbers(self) -> Collection[int]:
        """The cells that can't be used now, by number."""
        return self._away.keys()

    def runtimes(self) -> list[Runtime]:
        """The runtimes of all cells that can be reached."""
        reachable = [runtime for number, (_, runtime) in self._cells.items() if number not in self._away]
        return [self.home, *reachable]

    def _databases(self) -> Mapping[int, Database]:
        return {runtime.cell: runtime.database for runtime in self.runtimes()}

    def name(self, number: int) -> str:
        """The name of the cell; its number, where this process does not know it."""
        if number == HOME:
            return HOME_NAME
        entry = self._cells.get(number)
        return str(number) if entry is None else entry[0].name

    def at(self, number: int) -> Runtime:
        """The runtime over the cell. Raises Rejected 503 where it is away, or unknown to this process."""
        if number == HOME:
            return self.home
        entry = self._cells.get(number)
        if entry is None:
            log.error("cell_unknown", cell=number, remedy="name it in HAI_FLOW_CELLS")
        if entry is None or number in self._away:
            raise Rejected(
                503,
                "cell_away",
                f"what you ask for lives in the cell {self.name(number)!r}, which can't be reached now; nothing was "
                "stored. Try again later.",
            )
        return entry[1]

    async def living(self, tenant: UUID) -> TenantCells:
        """Where the tenant lives. Raises asyncpg's errors."""
        return await self.home.tenants.living(tenant) if self._cells else _HOME_ALONE

    async def databases(self, but: int, tenant: UUID) -> Sequence[Database]:
        """The databases of those cells of the tenant that can be reached, without the cell `but`."""
        living = await self.living(tenant)
        return [base for cell, base in self._databases().items() if cell in living.cells and cell != but]

    # --- life

    async def _start(self) -> None:
        for runtime in [self.home, *(runtime for _, runtime in self._cells.values())] if self._cells else ():
            runtime.others = self
        await self.home.start()
        if self._cells:
            seconds, spreading = self.home.settings.poll_seconds, self.spreading
            self._keep(lambda: spreading.run(spreading.send_due_relays, seconds), "events to all of a tenant")
            self._keep(lambda: spreading.run(spreading.send_due_again, seconds), "what a seat has once")
        for number in self._cells:
            self._keep(lambda number=number: self._live(number), f"cell {self.name(number)}")

    async def _stop(self) -> None:
        await self._end_tasks()
        await asyncio.gather(*(runtime.stop() for _, runtime in self._cells.values()), return_exceptions=True)
        await self.home.stop()

    async def _live(self, number: int) -> None:
        """Start the cell's runtime, and look from then on whether it answers."""
        cell, runtime = self._cells[number]
        while True:
            fault = await (self._fault(runtime) if runtime.running else self._begin(cell, runtime))
            if fault is None and self._away.pop(number, None) is not None:
                log.info("cell_there", cell=cell.name)
            elif fault is not None:
                if self._away.get(number) != fault:
                    log.error("cell_away", cell=cell.name, place=cell.shown, reason=fault)
                self._away[number] = fault
            await asyncio.sleep(LOOK_SECONDS)

    async def _begin(self, cell: Cell, runtime: Runtime) -> str | None:
        try:
            if await revisions.is_behind(cell.dsn, runtime.deadlines):
                return "its schema is older than this release: run hai-flow migrate"
            await runtime.start()
        except (StoreError, *FAILURES) as error:
            return str(error) or type(error).__name__
        return None

    @staticmethod
    async def _fault(runtime: Runtime) -> str | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await health.answers(runtime.database.api)
        except (StoreError, *FAILURES) as error:
            return str(error) or "it does not answer"
        return None


def settings_of(cell: Cell, settings: Settings, cells: int) -> Settings:
    """The settings of a process's runtime over the cell: those beside home keep as much in memory as home does."""
    return replace(
        settings,
        database_replica_url=None,  # the setting is home's: a replica of another database has other runs
        database_url=cell.dsn,
        database_direct_url=cell.direct,
        database_pooled=cell.pooled,
        cache_bytes_max=settings.cache_bytes_max // cells,
    )
