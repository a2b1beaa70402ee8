"""The tenants as this process knows them: their names, which stay, and their limits, which are at most some seconds
old. So nothing is asked of the database for a run that begins or a stream that opens."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from uuid import UUID

from hai_flow.cells import HOME, TenantCells
from hai_flow.errors import StoreError
from hai_flow.runtime.base.single_flight import SingleFlightCache
from hai_flow.settings import Settings
from hai_flow.store.identity import tenants
from hai_flow.store.identity.tenants import Limits, Tenant
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES

SECONDS: Final = 5.0  # for how long other processes go by limits that were changed
TENANTS_MAX: Final = 10_000  # that are known at a time
_NONE: Final = Limits()


def limits_of(settings: Settings) -> Limits:
    """The limits of each tenant without limits of its own."""
    return Limits(
        settings.tenant_runs_per_minute,
        settings.tenant_open_runs_max,
        settings.tenant_followers_max,
        settings.tenant_log_bytes_max,
    )


class Tenants:
    """The tenants of the database. `defaults`: the limits of those that have none of their own."""

    def __init__(self, database: Database, defaults: Limits = _NONE) -> None:
        self._database = database
        self.defaults = defaults
        self._known: OrderedDict[UUID, SingleFlightCache[Tenant | None]] = OrderedDict()
        self._names: dict[UUID, str] = {}
        self._seats: dict[UUID, int] = {}

    async def limits(self, tenant: UUID) -> Limits:
        """The limits of the tenant; each is a number. Raises asyncpg's errors."""
        row = await self._find(tenant)
        return self.defaults if row is None else row.limits.over(self.defaults)

    async def living(self, tenant: UUID) -> TenantCells:
        """Where the tenant lives. Raises asyncpg's errors."""
        row = await self._find(tenant)
        return TenantCells.in_one(HOME) if row is None else row.living

    async def seat(self, tenant: UUID) -> int:
        """The tenant's first cell, which stays once it has something: so the last known cell is returned while home is
        away."""
        try:
            self._seats[tenant] = (await self.living(tenant)).seat
        except (StoreError, *FAILURES):
            if tenant not in self._seats:
                raise
        if len(self._seats) > TENANTS_MAX:
            self._seats.pop(next(iter(self._seats)))
        return self._seats[tenant]

    def cached_name(self, tenant: UUID) -> str | None:
        """The tenant's name, if it was asked for before."""
        return self._names.get(tenant)

    async def name(self, tenant: UUID) -> str:
        """The tenant's name; "" of one that has no row. Raises asyncpg's errors."""
        if tenant not in self._names:
            row = await self._find(tenant)
            if row is None:
                return ""
            if len(self._names) >= TENANTS_MAX:
                self._names.clear()
            self._names[tenant] = row.name
        return self._names[tenant]

    def forget(self, tenant: UUID) -> None:
        """Look it up anew the next time: it was changed here."""
        self._known.pop(tenant, None)

    async def _find(self, tenant: UUID) -> Tenant | None:
        entry = self._known.get(tenant)
        if entry is None:
            entry = self._known[tenant] = SingleFlightCache(
                lambda: tenants.get_tenant(self._database.api, tenant), SECONDS
            )
            if len(self._known) > TENANTS_MAX:
                self._known.popitem(last=False)
        try:
            return await entry.get()
        except Exception:
            self.forget(tenant)  # a fault is no answer to keep
            raise
