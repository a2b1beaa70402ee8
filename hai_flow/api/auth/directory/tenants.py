"""The tenants of the database, by name, as requests ask for them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from hai_flow.api.auth.directory.row_cache import Book
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import tenants

SECONDS: Final = 5.0  # for how long it is believed that a name has a tenant, or none


class TenantIds:
    """The ids of tenants by name."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: Book[UUID | None] = Book(self._find, SECONDS)

    async def id_of(self, name: str) -> UUID | None:
        """The tenant of this name, if there is one."""
        return await self._known.get(name) if tenants.NAME.fullmatch(name) else None

    async def _find(self, name: str) -> UUID | None:
        tenant = await tenants.find_tenant(self._runtime.database.api, name)
        return None if tenant is None else tenant.id
