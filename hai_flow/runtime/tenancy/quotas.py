"""The limits of a tenant: runs that begin in a minute, runs that have not ended, bytes of logs; its own, or those of
the settings. Looked at before anything of a run is stored. Children are neither counted as begun nor refused. All
processes count the same rows; a few runs that begin in the same moment may pass beyond."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from hai_flow.errors import Rejected
from hai_flow.runtime.base.single_flight import SingleFlightCache
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.store.identity import tenants
from hai_flow.store.identity.tenants import Limits
from hai_flow.store.postgres.database import Database

MINUTE: Final = timedelta(minutes=1)
BYTES_SECONDS: Final = 60.0  # for how long it is believed how large a tenant's logs are
REFUSED_SECONDS: Final = 1.0  # for how long it is not asked again: its neighbours are not to pay for one that hammers
FULL_SECONDS: Final = 60  # when to try again where only an end of runs, or less of their logs, helps
TENANTS_MAX: Final = 10_000  # whose bytes are remembered


class Quotas:
    """Holds tenants to their limits."""

    def __init__(self, database: Database, tenants: Tenants) -> None:
        self._database = database
        self._tenants = tenants
        self.others: Callable[[UUID], Awaitable[Sequence[Database]]] | None = None
        """The other cells of a tenant that are there; None: there are none."""
        self._bytes: OrderedDict[UUID, SingleFlightCache[int]] = OrderedDict()
        self._refused: dict[UUID, tuple[float, int, int]] = {}  # until when, by which limit, and when to come again

    async def excess(self, tenant: UUID, *, leaving: int = 0) -> Rejected | None:
        """Why the tenant may start no run now; None: it may. `leaving`: so many open runs end for it."""
        quota = await self._tenants.limits(tenant)
        until, limit, seconds_left = self._refused.get(tenant, (0.0, 0, 0))
        if time.monotonic() < until and limit == quota.runs_per_minute:
            return _reject_many(limit, seconds_left)
        others = [] if self.others is None else await self.others(tenant)
        if others and (excess := await self._check_excess(tenant, quota, others, leaving)) is not None:
            return excess
        if not others and (quota.runs_per_minute or quota.open_runs):
            limits = quota.runs_per_minute or 0, quota.open_runs + leaving if quota.open_runs else 0
            used = await tenants.used(self._database.api, tenant, *limits)
            if used.earliest is not None:
                seconds = (used.earliest + MINUTE - used.now).total_seconds()
                if len(self._refused) >= TENANTS_MAX:
                    self._refused.clear()
                again, until = max(1, math.ceil(seconds)), time.monotonic() + min(seconds, REFUSED_SECONDS)
                self._refused[tenant] = until, limits[0], again
                return _reject_many(limits[0], again)
            if quota.open_runs and used.open_runs >= quota.open_runs + leaving:
                return _reject_full(used.open_runs)
        if quota.log_bytes and (held := await self._log_bytes(tenant, others)) >= quota.log_bytes:
            detail = f"the logs of your tenant's runs have {held} bytes, and may have {quota.log_bytes}."
            return Rejected(429, "tenant_log_bytes", detail, retry_after=FULL_SECONDS)
        return None

    async def _check_excess(
        self, tenant: UUID, quota: Limits, others: Sequence[Database], leaving: int
    ) -> Rejected | None:
        """Why a tenant of several cells may start no run now: by the sum of the cells that can be reached. While one is
        away the tenant may have as much more as is in it."""
        limits = quota.runs_per_minute or 0, quota.open_runs + leaving if quota.open_runs else 0
        if not any(limits):
            return None
        uses = [await tenants.count_used_in_cell(each.api, tenant, *limits) for each in (self._database, *others)]
        begun_runs, open_runs = sum(each.started for each in uses), sum(each.open_runs for each in uses)
        if limits[0] and begun_runs >= limits[0]:
            return _reject_many(limits[0], math.ceil(max(1.0, min(each.seconds for each in uses if each.started))))
        return _reject_full(open_runs) if limits[1] and open_runs >= limits[1] else None

    async def _log_bytes(self, tenant: UUID, others: Sequence[Database]) -> int:
        """How large the tenant's logs are: looked up once for all starts that want to know it, and kept for a while."""

        async def look() -> int:
            return sum([await tenants.log_bytes(each.api, tenant) for each in (self._database, *others)])

        lookup = self._bytes.get(tenant)
        if lookup is None:
            while len(self._bytes) >= TENANTS_MAX:
                self._bytes.popitem(last=False)
            lookup = self._bytes[tenant] = SingleFlightCache(look, BYTES_SECONDS)
        try:
            return await lookup.get()
        except BaseException:
            self._bytes.pop(tenant, None)  # the next start looks again
            raise


def _reject_full(open_runs: int) -> Rejected:
    detail = f"your tenant has {open_runs} runs that have not ended, the most that it may have."
    return Rejected(429, "tenant_open_runs", detail, retry_after=FULL_SECONDS)


def _reject_many(limit: int, seconds: int) -> Rejected:
    detail = f"your tenant has started {limit} runs within a minute, the most that it may."
    return Rejected(429, "tenant_runs", detail, retry_after=seconds)
