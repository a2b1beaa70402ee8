"""The people that may answer a question, as far as the question itself shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

from hai_flow.cli.errors import Problem
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.cli.client.rest import Server
    from hai_flow.engine.commands import Principal


Roles: TypeAlias = Mapping[str, Sequence[str]]
"""The people that the `roles` of a workflow name, by role: there the roles of those who act count for nothing."""
NO_ROLES: Final[Roles] = {}
LOCAL: Final = "user:local"  # every person's name until there are identities; the engine uses the same name
_NAMES: Final = ("user:ann", "user:bob", "user:cleo", "user:dan", "user:eve")


def roles_of_source(source: bytes) -> Roles:
    """The `roles` of a workflow as it was published; none where this release can't read it."""
    from hai_flow.definition.compiler import compile_workflow
    from hai_flow.errors import DefinitionError

    if b"roles" not in source:
        return NO_ROLES
    try:
        return compile_workflow(source, stored=True).roles
    except DefinitionError:
        return NO_ROLES


async def roles_of_workflow(api: Server, reference: str) -> Roles:
    """The `roles` of a workflow that the server has; none where it shows none."""
    try:
        return roles_of_source((await api.get(f"/v1/workflows/{quote(reference, safe='@+')}"))["source"].encode())
    except Problem:
        return NO_ROLES


def as_whom(pending: Json, started_by: str | None, roles: Roles = NO_ROLES) -> str | None:
    """The value of `--as` for a person allowed to answer `pending`; None: the option is not needed.

    The result is a guess if the requester is not known (`started_by` None), or if the pending does not list its voters.
    """
    policy = pending.get("policy") or {}
    selectors, excluded = _without_roles(policy.get("from") or (), roles), policy.get("exclude") or ()
    out = {each if each != "requester" else started_by for each in excluded}
    out |= {vote["by"] for vote in (pending.get("needed") or {}).get("votes") or ()}
    if LOCAL not in out and _asks_local(policy, selectors, started_by):
        return None
    named = [*(policy.get("people") or ()), *(each for each in selectors if each.startswith("user:"))]
    named += [started_by] if "requester" in selectors and started_by else []
    for person in named:
        if person not in out:
            return None if person == LOCAL else person
    somebody = next((name for name in _NAMES if name not in out and name != started_by), _NAMES[0])
    wanted_first = _without_roles(_sort_lacking_first(pending, selectors), roles)
    groups = [each for each in wanted_first if each.startswith(("role:", "group:"))]
    return ",".join([somebody, *groups[:1]])


def _without_roles(selectors: Iterable[str], roles: Roles) -> list[str]:
    """The selectors, those in place of a role that the workflow gives to these."""
    return [
        other for each in selectors for other in (roles.get(each[5:], [each]) if each.startswith("role:") else [each])
    ]


def _asks_local(policy: Json, asked: Iterable[str], started_by: str | None) -> bool:
    if started_by in (LOCAL, None) and policy.get("asks_requester", True):
        return True
    return bool({LOCAL, "anyone"} & {*asked}) or LOCAL in (policy.get("people") or ())


def _sort_lacking_first(pending: Json, asked: Iterable[str]) -> list[str]:
    """The selectors of an approval, those first that still lack a vote."""
    seats = (pending.get("needed") or {}).get("missing", {}).get("seats") or {}
    return [*(seat for seat in seats if seat != "any"), *asked]


def principal(act_as: str | None) -> Principal:
    """The acting person: the local user, or the one that `--as` names. Raises NotASelector."""
    from hai_flow.engine import commands as c
    from hai_flow.engine.pendings.selectors import acting_as

    return c.LOCAL_PRINCIPAL if act_as is None else acting_as(act_as)


def may_answer(pending: Json, who: Principal, started_by: str, roles: Roles = NO_ROLES) -> bool:
    """Whether the person `who` may answer the pending, as far as its rules name people."""
    from hai_flow.engine.pendings.selectors import World, list_excluding_selectors, list_matching_selectors, person_of

    policy = pending.get("policy") or {}
    world = World(started_by, {name: tuple(members) for name, members in roles.items()})
    if list_excluding_selectors(policy.get("exclude") or (), who, world):
        return False
    is_requester = person_of(who) == started_by and policy.get("asks_requester", True)
    listed = person_of(who) in (policy.get("people") or ())
    return is_requester or listed or bool(list_matching_selectors(policy.get("from") or (), who, world))
