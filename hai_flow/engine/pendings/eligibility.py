"""May a principal answer a pending, and why not.

The principal comes authenticated, with the roles and groups that they have at that moment."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.selectors import (
    CAUSED,
    REQUESTER,
    World,
    ids_of,
    is_agent,
    list_excluding_selectors,
    list_matching_selectors,
    voting_person,
)
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.primitives.invisible_characters import compose

NOT_ASKED: Final = "not_asked"  # why a principal may not decide: it is not among the people that are asked

NOT_PICKED: Final = "not_picked"  # why a principal may not decide: others of those who are asked were picked

OF_AN_AGENT: Final = "agent"  # why a principal may not decide: it is a program, and is not asked by its name
_DECISIONS: Final = ("approve", "gate", "doubt")


class Obstacle(NamedTuple):
    """Why a principal may not answer an open pending: a code, and a clause for people."""

    code: str
    reason: str


def may_decide(plan: Plan, state: RunState, pending: PendingState, principal: c.Principal) -> bool:
    """Whether the principal may answer the pending now: it is open, and they are eligible and have not voted."""
    return pending.status == "open" and obstacle(pending, principal, world_of(plan, state)) is None


def obstacle(pending: PendingState, principal: c.Principal, world: World) -> Obstacle | None:
    """Why the principal may not answer the open pending; None if it may."""
    refusal = ineligible(pending, principal, world)
    if refusal is not None:
        return refusal
    earlier = votes.describe_earlier_vote(pending, principal)
    return Obstacle("voted", earlier) if earlier else None


def ineligible(pending: PendingState, principal: c.Principal, world: World) -> Obstacle | None:
    """Why the principal is not among the deciders, or None."""
    rules = derive_rules(pending)
    kept_out = list_excluding_selectors(rules.exclude, principal, world)
    if REQUESTER in kept_out:
        return _find_requester_obstacle(principal, world)
    if kept_out:
        own = list_excluding_selectors(rules.exclude, msgspec.structs.replace(principal, through=()), world)
        further = (
            "by another of their keys or somebody for whom they act"
            if principal.on_behalf_of is None
            else (f"or somebody by whom the vote came to {principal.id}")
        )
        who = principal.id if own else f"{principal.id}, {further},"
        return Obstacle("excluded", f"{who} is excluded from it ({', '.join(kept_out)})")
    if is_agent(principal) and pending.opened.kind in _DECISIONS and principal.id not in rules.from_:
        reason = f"{principal.id} is an agent, and agents decide only where `from` names them"
        return Obstacle(OF_AN_AGENT, reason)
    if not list_matching_selectors(rules.from_, principal, world):
        return Obstacle(NOT_ASKED, f"it asks {', '.join(rules.from_)}")
    return _find_obstacle_of_pick(rules, principal)


def _find_obstacle_of_pick(rules: votes.Rules, principal: c.Principal) -> Obstacle | None:
    """Why somebody whom the question asks is not among those who were picked; None: they are, or it picks nobody."""
    if rules.pick is None or rules.picked == ():
        return None
    if rules.picked is None:
        return Obstacle(NOT_PICKED, f"{rules.pick} of those whom it asks are being picked; look again in a moment")
    person = voting_person(principal)
    if not {person.id, *person.aliases}.isdisjoint(rules.picked):
        return None
    names = ", ".join(rules.picked)
    return Obstacle(NOT_PICKED, f"{names} {'was' if len(rules.picked) == 1 else 'were'} picked to decide it")


def _find_requester_obstacle(principal: c.Principal, world: World) -> Obstacle:
    """Why the requester may not decide, nor anybody behind the run."""
    people = set(map(compose, (*ids_of(principal), *principal.through)))
    if compose(world.requester) in people:
        return Obstacle("excluded.requester", f"{world.requester} started this run; somebody else must decide")
    behind = next(id for id in world.instigators if compose(id) in people)
    return Obstacle("excluded.instigator", f"{behind} {world.cause}; somebody else must decide")


def describe_deciders(pending: PendingState) -> str:
    """Who may answer the pending in somebody's place, as a sentence."""
    rules = derive_rules(pending)
    out = f", but not {', '.join(rules.exclude)}" if rules.exclude else ""
    return f"Those who may decide it: {', '.join(rules.from_)}{out}."


def world_of(plan: Plan, state: RunState) -> World:
    return World(state.requester, plan.roles, state.all_instigators, _describe_cause(state))


def _describe_cause(state: RunState) -> str:
    """The part of the people behind the run, as a clause."""
    if state.senders:
        return "sent an event that this run, or one below it, took, or caused the run"
    if state.forked:
        return "asked for the run that this one was forked from"
    return _CAUSES.get(state.trigger, CAUSED)


_CAUSES: Final = {
    "run": "started the run that started this one",
    "event": "sent the event that started this run",
    "schedule": "let the schedule start this run",
}
