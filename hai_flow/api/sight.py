"""Who may see how much of a run: the one function that says it, and what lists need to say the same.

Everybody sees the runs that they have asked for, or the person that they act for has; operators and viewers those of
their tenant; others those of workflows whose `visibility` names them. Who is asked a question of a run, or has voted on
one, sees that question with its evidence, and nothing else of the run. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final

import msgspec

from hai_flow.api.principals import Principal as Caller
from hai_flow.engine.commands import Principal
from hai_flow.engine.selectors import World, matched, represented
from hai_flow.engine.state import RunState
from hai_flow.store.run_lists import Viewer
from hai_flow.wire.withheld import asked_of

TENANT: Final = "tenant"


class Sight(IntEnum):
    """How much of a run somebody sees: each value includes those before it."""

    NOTHING = 0  # for them there is no such run
    QUESTIONS = 1  # those that they are asked or have voted on, with their evidence
    CONVERSATION = 2  # everything but the evidence of questions that others are asked
    ALL = 3


def sight_of(who: Principal, requester: str, visibility: Collection[str]) -> Sight | None:
    """What `who` sees of a run as its requester, or by the `visibility` of its workflow; None: neither, so that it
    depends on the questions of the run (`sight_by_questions`)."""
    if requester in ids_of(who) or not selectors_for(who).isdisjoint(visibility):
        return Sight.CONVERSATION
    return None


def sight_by_questions(reader: Principal, state: RunState | None) -> Sight:
    """What `reader` sees of a run because of what they are asked."""
    return Sight.QUESTIONS if state is not None and asked_of(state, reader) else Sight.NOTHING


def ids_of(who: Principal) -> tuple[str, ...]:
    """Whose runs are theirs: their own, and those of the person that they act for."""
    return (who.id,) if who.on_behalf_of is None else (who.id, who.on_behalf_of)


def selectors_for(who: Principal) -> frozenset[str]:
    """The selectors of a `visibility` that name `who`. A person who acts for another one has their own roles."""
    roles, groups = (f"role:{each}" for each in who.roles), (f"group:{each}" for each in who.groups)
    return frozenset((TENANT, *ids_of(who), *roles, *groups))


def viewer_for(caller: Caller) -> Viewer:
    """The same for lists."""
    threads, workflows = caller.threads, caller.workflows
    return Viewer(
        ids_of(caller.who),
        tuple(sorted(selectors_for(caller.who))),
        None if threads is None else tuple(sorted(threads)),
        None if workflows is None else tuple(sorted(workflows)),
    )


def reader_in(who: Principal, roles: Mapping[str, tuple[str, ...]]) -> Principal:
    """`who` as the questions of a workflow know them that declares these `roles`: such a role means exactly the people
    and groups that it lists, whatever roles of that name people bring along."""
    if not roles:
        return who
    held = [role for role in represented(who).roles if role not in roles]
    world = World("", roles)
    held += [each.removeprefix("role:") for each in matched([f"role:{name}" for name in roles], who, world)]
    if who.lent_roles is not None:
        return msgspec.structs.replace(who, lent_roles=tuple(held))
    return msgspec.structs.replace(who, roles=tuple(held))
