"""The people of a tenant that may decide: those with a key, and those of the file of channels.

Tokens of issuers make no list: they lack all people that have not signed in lately. So where an identity file names
issuers, a roster is complete only if the file of channels says that its people are (`complete: true`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.engine import commands as c
from hai_flow.engine.pendings.selectors import is_agent
from hai_flow.notify.channels import App, Email, NotifyFile, Person, TenantChannels
from hai_flow.runtime.people.delegates import AllIds, list_selectors_of, load_people_of_agents
from hai_flow.runtime.people.ids import NO_ALIASES, NO_IDS, Aliases
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.store.identity import proofs
from hai_flow.store.identity.proofs import Holding
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import Database

DECIDER: Final = "decider"  # the role by which a key decides questions


class Roster(msgspec.Struct, frozen=True):
    """The people of a tenant. `holders`: once for each key, with its roles and groups. `is_complete`: there are no
    other deciders. `by_keys`: keys alone let people sign in. `all_ids`: whose ids are one person's. `held`: what all
    keys of a person stand for, by each id, for what an exclusion names keeps them out by whichever key they have it.
    `departed`: those of the file who were let go: their keys were revoked, or they were erased."""

    holders: Sequence[c.Principal]
    file: TenantChannels
    by_keys: bool = True
    all_ids: AllIds = NO_ALIASES.all_of
    held: Mapping[str, Holding] = {}
    departed: frozenset[str] = frozenset()

    @property
    def is_complete(self) -> bool:
        return self.by_keys or self.file.complete

    def list_people(self, notify: Sequence[str] | None) -> list[c.Principal]:
        """Those that can decide a question with these channels in `notify`; None: any question. Where keys alone let
        people sign in, people without one decide by the channels that reach them."""
        listed = [
            c.Principal(id, person.roles, person.groups)
            for id, person in self.file.people.items()
            if id not in self.departed
            and (not self.by_keys or any(self._reaches(each, person) for each in notify or ()))
        ]
        return [self.name_person(each) for each in (*self.holders, *listed)]

    def name_person(self, holder: c.Principal) -> c.Principal:
        """Whoever holds a key, or stands in the file, by the one id of their person."""
        one, *further = self.all_ids(holder.id)
        between = (id for each in holder.through for id in self.all_ids(each))
        through = (*between, *self.list_held(one))
        issuer = one if is_agent(c.Principal(one)) else None
        return c.Principal(one, holder.roles, holder.groups, aliases=tuple(further), issuer=issuer, through=through)

    def list_held(self, id: str) -> tuple[str, ...]:
        """The roles and groups of all keys of the person, as selectors."""
        return list_selectors_of(self.held.get(each) for each in self.all_ids(id)) if self.held else ()

    def _reaches(self, destination: str, person: Person) -> bool:
        name = destination.partition(":")[0]
        channel = self.file.channels.get(name)
        return (isinstance(channel, Email) and person.email is not None) or (
            isinstance(channel, App) and name in person.accounts
        )


class Rosters:
    """Loads rosters. `home`: the database with the keys, where that is another one. `file`: None, if this process has
    none."""

    def __init__(
        self,
        tenants: Tenants,
        file: NotifyFile | None,
        home: Database | None,
        *,
        by_keys: bool,
        ids: Mapping[str, Aliases] = NO_IDS,
    ) -> None:
        self._tenants = tenants
        self._file = file
        self._home = home
        self._by_keys = by_keys
        self._ids = ids

    async def find_credentials(self, pool: Pool, tenant: UUID) -> tuple[Pool, AllIds]:
        """The database with the keys, and whose ids are one person's in the tenant. `pool`: of this cell."""
        name = await self._tenants.name(tenant) if self._ids else ""
        return pool if self._home is None else self._home.api, self._ids.get(name, NO_ALIASES).all_of

    async def has_left(self, pool: Pool, tenant: UUID, id: str) -> bool:
        """Whether the person was let go: they were erased, or keys alone let people sign in, and theirs were revoked.
        `pool`: of this cell."""
        credentials, all_ids = await self.find_credentials(pool, tenant)
        ids = all_ids(id)
        holders = await proofs.find_key_holders(credentials, tenant, ids, by_keys=self._by_keys)
        return proofs.has_left(holders, ids)

    async def load(self, connection: Connection | Pool, tenant: UUID) -> Roster:
        at_home = connection if self._home is None else self._home.api
        name = await self._tenants.name(tenant) if self._file is not None or self._ids else ""
        file = TenantChannels() if self._file is None else self._file.place(name)
        all_ids = self._ids.get(name, NO_ALIASES).all_of
        rows = await proofs.list_holders(at_home, tenant, DECIDER)
        agents = {one for id, *_ in rows if is_agent(c.Principal(one := all_ids(id)[0]))}
        of_agents = {each: await load_people_of_agents(at_home, tenant, all_ids(each)) for each in agents}
        holders = [
            c.Principal(id, tuple(roles), tuple(groups), through=of_agents.get(all_ids(id)[0], ()))
            for id, roles, groups in rows
        ]
        people = {each for id in (*(holder.id for holder in holders), *file.people) for each in all_ids(id)}
        held = await proofs.load_holdings_of_people(at_home, tenant, people)
        key_holders = await proofs.find_key_holders(at_home, tenant, file.people and people, by_keys=self._by_keys)
        departed = frozenset(id for id in file.people if proofs.has_left(key_holders, all_ids(id)))
        return Roster(holders, file, self._by_keys, all_ids, held, departed)
