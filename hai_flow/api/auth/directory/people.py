"""People with several ids, tenant by tenant: the ids of one tenant never mean anybody of another."""

from __future__ import annotations

import dataclasses
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.api.auth.directory.row_cache import Book
from hai_flow.api.permissions.principals import Principal
from hai_flow.primitives.invisible_characters import compose
from hai_flow.runtime.people.ids import NO_ALIASES, NOBODY, Aliases, Ids
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import tenants


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
        return (await self.of(tenant)).one(id)

    async def known(self, principal: Principal) -> Principal:
        """The principal by the one id of their person, with all further ones. So a credential, session or ticket that
        was made before two ids became one person's is theirs, too. Id, roles and groups are in their composed form."""
        aliases, who = await self.of(principal.tenant), principal.who
        names = (who.id, *who.roles, *who.groups)
        if aliases is NO_ALIASES and all(map(str.isascii, names)):
            return principal
        id = aliases.one(who.id)
        ids = dict.fromkeys((*aliases.further(id), who.id))
        ids.pop(id, None)
        roles, groups = map(compose, who.roles), map(compose, who.groups)
        who = msgspec.structs.replace(who, id=id, aliases=tuple(ids), roles=tuple(roles), groups=tuple(groups))
        return dataclasses.replace(principal, who=who, people=aliases)


SECONDS: Final = 5.0  # for how long it is believed that a name has a tenant, or none


class TenantIds:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: Book[UUID | None] = Book(self._find, SECONDS)

    async def id_of(self, name: str) -> UUID | None:
        return await self._known.get(name) if tenants.NAME.fullmatch(name) else None

    async def _find(self, name: str) -> UUID | None:
        tenant = await tenants.find_tenant(self._runtime.database.api, name)
        return None if tenant is None else tenant.id
