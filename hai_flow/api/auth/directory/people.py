"""People with several ids, tenant by tenant: the ids of one tenant never mean anybody of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.api.auth.directory.tenants import TenantIds
from hai_flow.api.permissions.principals import NO_ALIASES, Aliases, Principal
from hai_flow.runtime.runtime import Runtime

Ids = Mapping[str, Mapping[str, str]]
"""The one id of each further id of a person, by the name of their tenant."""

NOBODY: Final[Ids] = {}


class People:
    """Whose ids are one person's. `ids` is what the identity file says."""

    def __init__(self, runtime: Runtime, ids: Ids = NOBODY) -> None:
        self._tenants = TenantIds(runtime)
        self._aliases = {name: Aliases(one) for name, one in ids.items() if one}

    async def of(self, tenant: UUID) -> Aliases:
        """The ids of a tenant's people."""
        for name, aliases in self._aliases.items():
            if await self._tenants.id_of(name) == tenant:
                return aliases
        return NO_ALIASES

    async def one(self, tenant: UUID, id: str) -> str:
        """The one id of the person of the tenant with this id."""
        return (await self.of(tenant)).one(id)

    async def known(self, principal: Principal) -> Principal:
        """The principal by the one id of their person, with all further ones. So a credential, session or ticket that
        was made before two ids became one person's is theirs, too."""
        aliases = await self.of(principal.tenant)
        if aliases is NO_ALIASES:
            return principal
        id = aliases.one(principal.id)
        who = msgspec.structs.replace(principal.who, id=id, aliases=aliases.further(id))
        return replace(principal, who=who, people=aliases)
