"""How much of a run a person may see, by one function; lists get the same rules as values for their queries. Pure.
Everybody sees their own runs, and those of the person that they act for; operators and viewers all of their tenant;
others those whose workflow's `visibility` names them. A question with its evidence is also seen by the people that it
asks, and by its voters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final

import msgspec

from hai_flow.api.permissions.principals import Principal as Caller
from hai_flow.engine.commands import Principal
from hai_flow.engine.pendings.selectors import World, ids_of, list_matching_selectors, name_holdings, voting_person
from hai_flow.engine.state.state import RunState
from hai_flow.store.runs.viewers import Viewer
from hai_flow.wire.reader_redaction import is_asking_reader

TENANT: Final = "tenant"


class Sight(IntEnum):
    """How much of a run somebody sees: each value includes those before it."""

    NOTHING = 0  # for them the run does not exist
    QUESTIONS = 1  # those that they are asked or have voted on, with their evidence
    CONVERSATION = 2  # everything but the evidence of questions that others are asked
    ALL = 3


def find_sight(who: Principal, requester: str, visibility: Collection[str]) -> Sight | None:
    """The sight of `who` as the run's requester, or by the `visibility` of its workflow. None: neither applies, so it
    depends on the run's questions (`find_sight_by_questions`)."""
    if requester in ids_of(who) or not collect_selectors(who).isdisjoint(visibility):
        return Sight.CONVERSATION
    return None


def find_sight_by_questions(reader: Principal, state: RunState | None) -> Sight:
    """The sight of `reader` because of the run's questions that ask them."""
    return Sight.QUESTIONS if state is not None and is_asking_reader(state, reader) else Sight.NOTHING


def collect_selectors(who: Principal) -> frozenset[str]:
    """The selectors that match `who` in a `visibility`. A delegate counts with their own roles, not with those of the
    person that they act for."""
    return frozenset((TENANT, *ids_of(who), *name_holdings(who.roles, who.groups)))


def build_viewer(caller: Caller) -> Viewer:
    """The same rules for lists: the caller's ids and selectors, for the store's queries."""
    threads, workflows = caller.threads, caller.workflows
    return Viewer(
        ids_of(caller.who),
        tuple(sorted(collect_selectors(caller.who))),
        None if threads is None else tuple(sorted(threads)),
        None if workflows is None else tuple(sorted(workflows)),
    )


def build_reader(who: Principal, roles: Mapping[str, tuple[str, ...]]) -> Principal:
    """`who` with their roles as a workflow defines them. A role that it declares (`roles`) means exactly the people and
    groups that it lists there, whether or not a person has a role of that name otherwise."""
    if not roles:
        return who
    held = [role for role in voting_person(who).roles if role not in roles]
    world = World("", roles)
    held += [
        each.removeprefix("role:") for each in list_matching_selectors([f"role:{name}" for name in roles], who, world)
    ]
    if who.lent_roles is not None:
        return msgspec.structs.replace(who, lent_roles=tuple(held))
    return msgspec.structs.replace(who, roles=tuple(held))
