"""Freezes as a process knows them (docs/decisions/0099), and the tools for which tenants have standing rules.

Every commit, and every pulse, says which version of the freezes the database has. A process that knows an older one
begins nothing until it has read them; so a freeze reaches a process with the first commit behind it, and one that
commits nothing within a pulse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, cast
from uuid import UUID

import structlog

from hai_flow.engine.steps.held_steps import Freeze, Mode, Scope, freeze_of
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.store.ops import freezes as store
from hai_flow.store.ops.freezes import FreezeRow
from hai_flow.store.ops.pulse import DueWork
from hai_flow.store.people import rules
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES

log = structlog.get_logger(__name__)

READ_AGAIN_SECONDS: Final = 0.5
_NOTHING: Final[frozenset[str]] = frozenset()


class Freezes(Service):
    """`changed` are called when others are in force than before."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._version = 0
        self._newest = 0
        self._rows: list[FreezeRow] = []
        self._of: dict[UUID, tuple[Freeze, ...]] = {}
        self._ruled: Mapping[UUID, frozenset[str]] = {}
        self._stale = asyncio.Event()
        self._reading = asyncio.Lock()
        self.changed: list[Callable[[], None]] = []

    def of(self, tenant: UUID) -> tuple[Freeze, ...]:
        """Those in force for the tenant's runs, the first first."""
        if not self._rows:
            return ()
        of_tenant = self._of.get(tenant)
        if of_tenant is None:
            rows = [row for row in self._rows if row.tenant in (None, tenant)]
            self._of[tenant] = of_tenant = tuple(map(_freeze, rows))
        return of_tenant

    def ruled(self, tenant: UUID) -> frozenset[str]:
        """The tools for which the tenant has standing rules, as far as the process knows."""
        return self._ruled.get(tenant, _NOTHING) if self._ruled else _NOTHING

    @property
    def are_any(self) -> bool:
        """Whether any tenant has freezes or standing rules, as far as the process knows."""
        return bool(self._rows or self._ruled)

    @property
    def any_ruled(self) -> bool:
        """Whether any tenant has standing rules, as far as the process knows."""
        return bool(self._ruled)

    @property
    def is_stale(self) -> bool:
        """Whether the database has others than the process knows."""
        return self._newest != self._version

    def holds(self, run: CachedRun, path: str) -> bool:
        """Whether the attempt at `path` may not begin; also where the process does not know it yet."""
        return self._newest != self._version or (bool(self._rows) and self.certainly_holds(run, path))

    def certainly_holds(self, run: CachedRun, path: str) -> bool:
        """Whether a freeze that the process knows holds the attempt at `path`."""
        if not self._rows or run.plan is None:
            return False
        return freeze_of(run.plan, run.state, path, self.of(run.tenant)) is not None

    def note_version(self, version: int) -> None:
        if version > self._newest and self.running:
            self._newest = version
            self._stale.set()

    def look(self, due: DueWork | None, asked_at: float) -> None:
        """What the pulse has found; None: it could not ask."""
        if due is None:
            self._stale.set()
        else:
            self.note_version(due.freezes)

    async def obey(self) -> None:
        """Take in what was just committed. Where that can't be read now, nothing begins in this process until it is:
        the act has succeeded, and whoever is told otherwise repeats it."""
        try:
            await self.read()
        except FAILURES as error:
            log.warning("freezes_not_read", error=str(error) or repr(error))
            self.note_version(self._newest + 1)

    async def _start(self) -> None:
        await self.read()
        self._keep(self._run, "freezes")

    async def _run(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self.read()
            except FAILURES as error:
                log.warning("freezes_not_read", error=str(error) or repr(error))
                await asyncio.sleep(READ_AGAIN_SECONDS)
                self._stale.set()

    async def read(self) -> None:
        """Take in those that are in force now. One read ends before another begins, so none undoes a newer one."""
        async with self._reading:
            noted = self._newest
            async with self._database.engine.acquire() as connection:
                version, rows = await store.in_force(connection)  # first: what is newer than it is read again
                self._ruled = await rules.list_tools(connection)
            changes = version != self._version or rows != self._rows
            # What was noted before counts no more: a database that was restored may have an older version.
            self._newest = version if self._newest == noted else max(version, self._newest)
            self._version, self._rows = version, rows
            if changes:
                self._of = {}
                for call in self.changed:
                    call()


def _freeze(row: FreezeRow) -> Freeze:
    return Freeze(str(row.id), cast("Mode", row.mode), cast("Scope", row.scope), row.name, row.reason)
