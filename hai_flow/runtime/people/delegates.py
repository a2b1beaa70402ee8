"""Delegations and standing rules as they hold now: of each only as much as the people behind it have at this moment.

A delegation ends with the API key, the browser session and the issuer's token by which it was made, and its roles and
groups are those that this key or session still stands for. That is looked up each time that a delegation is used or
shown, in the database that has the credentials: so it holds in every process, whichever ended the key or session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec.structs import replace

from hai_flow.engine import commands as c
from hai_flow.engine.pendings.selectors import is_agent, name_holdings, voting_person
from hai_flow.store.identity import proofs
from hai_flow.store.identity.keys import list_speaks_for
from hai_flow.store.identity.proofs import Holding
from hai_flow.store.people.delegations import Delegation
from hai_flow.store.postgres.connections import Connection, Pool

AllIds: TypeAlias = Callable[[str], tuple[str, ...]]
"""All ids of the person with this id, the one that they are known by first."""
MayDecide: TypeAlias = Callable[[Iterable[str]], bool]
"""Whether these roles let somebody decide questions."""


async def in_force(
    credentials: Pool, tenant: UUID, found: Sequence[Delegation], all_ids: AllIds, may_decide: MayDecide
) -> list[Delegation]:
    """Those of the delegations that hold now, each with the roles and groups that its giver still has, and with
    all that either of the two holds by now. `credentials` reads home, the cell that has keys and sessions."""
    if not found:
        return []
    keys = await proofs.load_holdings_of_keys(credentials, tenant, {each.key for each in found if each.key is not None})
    sessions = await proofs.load_holdings_of_sessions(
        credentials, tenant, {each.session for each in found if each.session is not None}
    )
    ids = {id for each in found for person in (each.from_id, each.to_id) if person for id in all_ids(person)}
    people = await proofs.load_holdings_of_people(credentials, tenant, ids)
    holding: list[Delegation] = []
    for each in found:
        held: list[Holding | None] = []
        if each.key is not None:
            held.append(keys.get(each.key))
        if each.session is not None:
            held.append(sessions.get(each.session))
        personal = _find_personal_holding(people, all_ids(each.from_id))
        if each.ends_with is None:
            held += personal
        capped = _cap(each, held)
        if capped is not None and (not held or may_decide(capped.roles)):
            of_both = [*held, *personal, *_find_personal_holding(people, all_ids(each.to_id))]
            holding.append(replace(capped, held=list_selectors_of(of_both)))
    return holding


async def list_held_by_other_keys(credentials: Pool, tenant: UUID, ids: Sequence[str]) -> tuple[str, ...]:
    """The roles and groups that the keys of the person with these ids stand for, as selectors."""
    people = await proofs.load_holdings_of_people(credentials, tenant, ids)
    return list_selectors_of(people.values())


def list_people_of_agent(principal: str, speaks_for: Iterable[str] | None) -> tuple[str, ...]:
    """The people for whom an agent acts by its key, as far as the key names them; none, for a key of somebody else."""
    is_of_agent = is_agent(c.Principal(principal))
    return tuple(each for each in speaks_for or () if is_of_agent and not each.endswith("*"))


async def load_people_of_agents(credentials: Connection | Pool, tenant: UUID, agents: Sequence[str]) -> tuple[str, ...]:
    """The people of agents: those that any of their good keys names."""
    good_keys = await list_speaks_for(credentials, tenant, agents)
    return tuple(sorted({each for agent, names in good_keys for each in list_people_of_agent(agent, names)}))


async def cap_voters(
    credentials: Pool, tenant: UUID, voters: Sequence[c.Principal], all_ids: AllIds
) -> tuple[c.Principal, ...]:
    """The voters of a standing rule, each with the remaining roles and groups, and with all that the keys of the person
    hold by now. A voter whose keys have all ended is left out. Without any key, past or present, a person keeps the
    roles of the approval: they may come from an issuer."""
    people = await proofs.load_holdings_of_people(
        credentials, tenant, {id for each in voters for one in (each.id, voting_person(each).id) for id in all_ids(one)}
    )
    capped: list[c.Principal] = []
    for each in voters:
        own, lent = (_find_personal_holding(people, all_ids(id)) for id in (each.id, voting_person(each).id))
        if all(holding.roles or holding.groups for holding in (*own, *lent)):
            roles, groups = lent[0].caps(each.roles, each.groups) if lent else (each.roles, each.groups)
            through = tuple(dict.fromkeys((*each.through, *list_selectors_of((*own, *lent)))))
            capped.append(replace(each, roles=tuple(roles), groups=tuple(groups), through=through))
    return tuple(capped)


def _find_personal_holding(people: dict[str, Holding], ids: Sequence[str]) -> list[Holding]:
    """The holding of a person by all of their keys; none, where nobody ever gave them a key."""
    holdings = [people[id] for id in ids if id in people]
    if not holdings:
        return []
    roles = frozenset[str]().union(*(each.roles or () for each in holdings))
    return [Holding(roles, frozenset[str]().union(*(each.groups for each in holdings)))]


def list_selectors_of(held: Iterable[Holding | None]) -> tuple[str, ...]:
    """All roles and groups of the holdings, as selectors."""
    return tuple(sorted({name for each in held if each for name in name_holdings(each.roles or (), each.groups)}))


def _cap(delegation: Delegation, held: Sequence[Holding | None]) -> Delegation | None:
    """The delegation within all that its giver holds; None: a proof has ended."""
    roles, groups = list(delegation.roles), list(delegation.groups)
    for each in held:
        if each is None:
            return None
        roles, groups = each.caps(roles, groups)
    return replace(delegation, roles=roles, groups=groups)
