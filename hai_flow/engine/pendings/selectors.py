"""The meaning of a selector: `user:ann`, `role:controller`, `group:finance`, `requester`, `anyone`
(docs/language.md#people).

A role that the document declares means exactly the people and groups it lists; any other role, and every group, comes
with the principal. So its members cannot be listed, only recognised."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hai_flow.definition.names.wording import kind_of
from hai_flow.engine.commands import Principal
from hai_flow.primitives.invisible_characters import compose, list_spellings
from hai_flow.values import Json

REQUESTER: Final = "requester"
ANYONE: Final = "anyone"
CAUSED: Final = (
    "caused this run: an agent or a token of theirs started it, or they the one before it, its event or a fork"
)
AGENT: Final = "agent:"  # how the ids of programs begin that act by themselves
KEY: Final = "key:"  # how an `issuer` begins that is an API key
EDITOR: Final = "editor"  # only in `exclude`: the people that edited the arguments

_SELECTOR = re.compile(r"(?:user|agent|role|group):\S{1,200}")


class NotASelector(ValueError):
    """A value that names no one. The message has the expected and the found."""


def acting_as(text: str) -> Principal:
    """The principal that a development server takes a person for: `user:ann,role:controller,group:finance`,
    and `for=user:bob` for a delegate. Raises `NotASelector`."""
    ids: list[str] = []
    others: list[str] = []
    held: dict[str, list[str]] = {"role": [], "group": []}
    for part in filter(None, (each.strip() for each in compose(text).split(","))):
        kind, _, name = part.partition(":")
        if part.startswith("for=user:") and _SELECTOR.fullmatch(part[4:]):
            others.append(part[4:])
        elif not _SELECTOR.fullmatch(part):
            raise NotASelector(f"expected user:, role:, group: or for=user:, separated by commas; found {part!r:.80}")
        elif kind in ("user", "agent"):
            ids.append(part)
        else:
            held[kind].append(name)
    if len(ids) != 1 or len(others) > 1:
        raise NotASelector(f"expected exactly one user: (and at most one for=user:), found {text!r:.80}")
    id, other = ids[0], others[0] if others else None
    further = () if other is None else list_spellings(other)[1:]
    return Principal(
        id, tuple(held["role"]), tuple(held["group"]), other, aliases=list_spellings(id)[1:], lent_aliases=further
    )


class World(NamedTuple):
    """The world in which one run reads selectors: its requester, the roles that the document declares, and the people
    behind the run, who are its requesters wherever those are excluded (`engine/state/instigators`). `cause`: their
    part, as a clause."""

    requester: str
    roles: Mapping[str, tuple[str, ...]]
    instigators: tuple[str, ...] = ()
    cause: str = CAUSED


def selectors_of(value: Json, *, editor: bool = False) -> tuple[str, ...]:
    """The selectors in a rendered `from` or `exclude`: one, or a list of them, each once. Raises `NotASelector`."""
    words = (REQUESTER, ANYONE, EDITOR) if editor else (REQUESTER, ANYONE)
    unique: dict[str, None] = {}
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, list):  # a hole that gives several
            unique.update(dict.fromkeys(selectors_of(item, editor=editor)))
        elif isinstance(item, str) and (item in words or _SELECTOR.fullmatch(item)):
            unique[compose(item)] = None
        else:
            actual = f"{item!r:.80}" if isinstance(item, str) else kind_of(item)
            raise NotASelector(f"expected a selector (user:, role:, group:, {', '.join(words)}), found {actual}")
    return tuple(unique)


def is_agent(principal: Principal) -> bool:
    """Whether a program that acts by itself calls: whatever roles it has, only its own name asks it to decide."""
    return principal.id.startswith(AGENT)


def is_unproven(principal: Principal) -> bool:
    """Whether an API key alone vouches for who they are, which is not made for that."""
    return principal.issuer is not None and principal.issuer.startswith(KEY)


def person_of(principal: Principal) -> str:
    """Whose vote it is: a delegate votes as the other."""
    return principal.on_behalf_of or principal.id


def voting_person(principal: Principal) -> Principal:
    """The person whose vote it is, with their roles and groups."""
    if principal.on_behalf_of is None:
        return principal
    roles = principal.roles if principal.lent_roles is None else principal.lent_roles
    groups = principal.groups if principal.lent_groups is None else principal.lent_groups
    return Principal(principal.on_behalf_of, roles, groups, aliases=principal.lent_aliases, issuer=principal.issuer)


def name_holdings(roles: Iterable[str], groups: Iterable[str]) -> tuple[str, ...]:
    return (*(f"role:{each}" for each in roles), *(f"group:{each}" for each in groups))


def ids_of(principal: Principal) -> tuple[str, ...]:
    """All ids of the principal, and of the person that they act for."""
    if principal.on_behalf_of is None:
        return (principal.id, *principal.aliases)
    return (principal.id, *principal.aliases, principal.on_behalf_of, *principal.lent_aliases)


def list_matching_selectors(selectors: Iterable[str], principal: Principal, world: World) -> tuple[str, ...]:
    """The selectors that `principal` matches, as the person whose vote it casts."""
    person = voting_person(principal)
    if is_unproven(principal):
        selectors = [each for each in selectors if each in (REQUESTER, ANYONE)]
    elif is_agent(principal):
        selectors = [each for each in selectors if each in (REQUESTER, ANYONE, principal.id)]
    holdings = _holdings_of(person)
    return tuple(each for each in selectors if _matches(each, holdings, world))


def list_excluding_selectors(selectors: Collection[str], principal: Principal, world: World) -> tuple[str, ...]:
    """The selectors of an exclusion that `principal` falls under: itself, the person it votes for, one of those by whom
    the vote came to it, or any of them by what they hold beside that."""
    if not selectors:
        return ()
    people = (principal, voting_person(principal))
    if principal.through:
        people = (*people, _read_people_between(principal.through))
    holdings = [_holdings_of(one) for one in people]
    return tuple(each for each in selectors if any(_excludes(each, one, world) for one in holdings))


def _read_people_between(through: Sequence[str]) -> Principal:
    """All of them as one: an exclusion of any excludes the vote."""
    parts: dict[str, list[str]] = {"role": [], "group": []}
    ids = []
    for each in through:
        kind, _, name = each.partition(":")
        parts.get(kind, ids).append(name if kind in parts else each)
    return Principal(ids[0] if ids else AGENT, tuple(parts["role"]), tuple(parts["group"]), aliases=tuple(ids[1:]))


def list_ids_between(through: Sequence[str]) -> tuple[str, ...]:
    """The people in the `through` of a principal or a vote, without what they hold."""
    return tuple(each for each in through if not each.startswith(("role:", "group:")))


def is_surely_barred(selectors: Iterable[str], id: str, world: World) -> bool:
    """Whether an exclusion keeps out a person known only by id, whatever roles and groups they have."""
    holdings = _holdings_of(Principal(id))
    return any(_excludes(each, holdings, world) for each in selectors)


def find_sure_ids(selectors: Iterable[str], world: World) -> frozenset[str] | None:
    """The ids of whom the selectors match whatever roles and groups they have; None: everybody. To ask that of
    thousands of ids one by one, about thousands of selectors, takes minutes."""
    ids: set[str] = set()
    for selector in selectors:
        kind, _, name = selector.partition(":")
        if selector == ANYONE:
            return None
        if selector == REQUESTER:
            ids.add(compose(world.requester))
        elif kind == "role":
            members = find_sure_ids(_find_members(name, world) or (), world)
            if members is None:
                return None
            ids |= members
        elif kind != "group":
            ids.add(compose(selector))
    return frozenset(ids)


class _Holdings(NamedTuple):
    """A principal, for thousands of comparisons."""

    ids: frozenset[str]
    roles: frozenset[str]
    groups: frozenset[str]


def _holdings_of(principal: Principal) -> _Holdings:
    ids = _composed((principal.id, *principal.aliases))  # old logs have other spellings
    return _Holdings(ids, _composed(principal.roles), _composed(principal.groups))


def _excludes(selector: str, holdings: _Holdings, world: World) -> bool:
    if selector == REQUESTER and not holdings.ids.isdisjoint(_composed(world.instigators)):
        return True
    return _matches(selector, holdings, world)


def _matches(selector: str, holdings: _Holdings, world: World) -> bool:
    if selector == ANYONE:
        return True
    if selector == REQUESTER:
        return compose(world.requester) in holdings.ids
    kind, _, name = selector.partition(":")
    if kind == "group":
        return compose(name) in holdings.groups
    if kind == "role":
        members = _find_members(name, world)
        if members is None:
            return compose(name) in holdings.roles
        return any(_matches(member, holdings, world) for member in members)
    return compose(selector) in holdings.ids


def _composed(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(compose, names))


def _find_members(role: str, world: World) -> tuple[str, ...] | None:
    """The members of a role that the document declares; None: it declares no such role."""
    members = world.roles.get(role)
    if members is None and not role.isascii():
        declared = {compose(name): each for name, each in world.roles.items()}
        members = declared.get(compose(role))
    return members


def expand_selectors(selectors: Iterable[str], world: World) -> tuple[str, ...]:
    """The same people in selectors that mean something without the run: `user:`, `role:`, `group:`, `anyone`.

    `requester` becomes the person's id, and a role that the document declares becomes its members. Each selector that
    is left can be compared with `principal_selectors`: a principal that has one of them is asked."""
    unique: dict[str, None] = {}
    for selector in selectors:
        kind, _, name = selector.partition(":")
        members = _find_members(name, world) if kind == "role" else None
        if selector == REQUESTER:
            unique[world.requester] = None
        elif members is not None:
            unique.update(dict.fromkeys(expand_selectors(members, world)))
        else:
            unique[compose(selector)] = None
    return tuple(unique)


def principal_selectors(principal: Principal) -> tuple[str, ...]:
    """The principal's ids, roles and groups as selectors, for a comparison with those of `expand_selectors`."""
    person = voting_person(principal)
    if is_unproven(person) or is_agent(principal):
        return (person.id, *person.aliases, ANYONE)
    roles = (f"role:{each}" for name in person.roles for each in list_spellings(name))
    groups = (f"group:{each}" for name in person.groups for each in list_spellings(name))
    return (person.id, *person.aliases, *roles, *groups, ANYONE)


def list_held_selectors(principal: Principal) -> tuple[str, ...]:
    """The roles and groups of the principal, and of the person that it votes for, as selectors."""
    people = (principal, voting_person(principal))
    held = (
        f"{kind}:{name}"
        for each in people
        for kind, names in (("role", each.roles), ("group", each.groups))
        for name in names
    )
    return tuple(dict.fromkeys(held))


def list_people(selectors: Iterable[str], world: World) -> tuple[str, ...] | None:
    """Everyone in the selectors, by id; None if they can't be listed."""
    people: dict[str, None] = {}
    for selector in selectors:
        kind, _, name = selector.partition(":")
        members = _find_members(name, world) or (ANYONE,)
        if selector == REQUESTER:
            people[compose(world.requester)] = None
        elif kind in ("user", "agent"):
            people[compose(selector)] = None
        elif kind == "role" and all(member.startswith("user:") for member in members):
            people.update(dict.fromkeys(map(compose, members)))
        else:
            return None
    return tuple(people)


def is_sure_match(selector: str, id: str, world: World) -> bool:
    """Whether a person known only by id matches whatever roles and groups they have."""
    return _matches(selector, _holdings_of(Principal(id)), world)
