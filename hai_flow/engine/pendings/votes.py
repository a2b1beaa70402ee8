"""The rules of one pending with their holes filled, and the result of its votes (docs/language.md#people).

A function of the pending alone: the meaning of a selector was settled when the pending was opened and when each vote
was cast. Not here: arithmetic (`quorum`), reading a vote (`answers`), and the consequences of a decision (`pendings`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from hai_flow import values
from hai_flow.definition.people.calendars import Calendar, count_working_days
from hai_flow.engine.commands import Principal
from hai_flow.engine.events import VoteCast
from hai_flow.engine.pendings import quorum
from hai_flow.engine.pendings.selectors import (
    EDITOR,
    World,
    ids_of,
    is_unproven,
    list_excluding_selectors,
    list_ids_between,
    list_matching_selectors,
    voting_person,
)
from hai_flow.engine.state.patch import is_same_json
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Unreadable
from hai_flow.primitives import instants
from hai_flow.primitives.invisible_characters import compose
from hai_flow.values import Json

APPROVE: Final = "approve"
REJECT: Final = "reject"


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The deciders, their number, and their time. Durations in milliseconds, or as a text like `3 working days`, which
    are days of `calendar`, the one that the deployment had at opening.

    `people` are those of `from` that may vote, if they can be listed, with the selectors that each could match;
    `everyone` is the meaning of `quorum: all`. Both are fixed when the stage is worked out, at opening.
    `asks_requester`: the requester of the run surely may vote. `fault` says why a decision is impossible. `reasons` are
    the options whose answer must say why, `veto` the selectors of those whose rejection alone decides. `confirm`: a
    page asks once more before it sends an answer. `rules`: a standing rule may approve. `pick`: so many of those who
    are asked decide, `picked`, who are chosen behind the opening (None: not yet; nobody: all of them, and `pick_note`
    says why). `escalations` are the stages to
    come, each with all that stays from the one before."""

    from_: tuple[str, ...] = msgspec.field(name="from", default=())
    exclude: tuple[str, ...] = ()
    quorum: int | str | dict[str, int] = 1
    reject_when: int | str = "any"
    deadline: int | str | None = None
    people: dict[str, tuple[str, ...]] | None = None
    everyone: tuple[str, ...] = ()
    asks_requester: bool = True
    fault: str = ""
    edit: bool | tuple[str, ...] = False
    combine: dict[str, str] = {}
    reasons: tuple[str, ...] = ()
    veto: tuple[str, ...] = ()
    confirm: bool = False
    rules: bool = True
    pick: int | None = None
    picked: tuple[str, ...] | None = None
    pick_note: str = ""
    notify: tuple[str, ...] = ()
    remind: tuple[int | str, ...] = ()
    pause_clock: Literal["run", "stop"] = "run"
    calendar: Calendar | None = None
    escalations: tuple[Rules, ...] = ()

    def find_due(self, since: int, duration: int | str) -> int:
        """The instant so long after `since`."""
        if isinstance(duration, int):
            return since + duration
        return (self.calendar or Calendar()).add(since, count_working_days(duration) or 1)

    def selectors(self) -> tuple[str, ...]:
        """Every selector by which people are let in or counted, in this stage and those to come."""
        unique = dict.fromkeys((*self.from_, *self.veto))
        if isinstance(self.quorum, dict):
            unique.update(dict.fromkeys(each for each in self.quorum if each != quorum.ANY))
        for stage in self.escalations:
            unique.update(dict.fromkeys(stage.selectors()))
        return tuple(unique)

    def exclusions(self) -> tuple[str, ...]:
        """Every selector that keeps people out, in this stage and those to come."""
        unique = dict.fromkeys(self.exclude)
        for stage in self.escalations:
            unique.update(dict.fromkeys(stage.exclude))
        return tuple(unique)


def derive_rules(pending: PendingState) -> Rules:
    """The rules that hold for the pending now. Raises `Unreadable` where this release does not know one of them: to
    leave it out would let others decide than may."""
    return _convert(pending.opened.policy or {})


def _convert(policy: Json) -> Rules:
    try:
        return msgspec.convert(policy, Rules)
    except msgspec.ValidationError as error:
        raise Unreadable(f"the question has rules that this release does not know: {error}") from error


def asks(policy: Json, other: Principal) -> bool:
    """Whether the rules, as an event keeps them, ask `other`, a stranger to the run. A role that cannot be
    listed is whatever they bring along."""
    rules = _convert(policy)
    if rules.people is not None:
        person = voting_person(other)
        mine = [each for id in ids_of(person) for each in rules.people.get(id, ())]
        return bool(list_matching_selectors(mine, other, World(person.id, {})) if is_unproven(other) else mine)
    world = World("", {})
    return bool(list_matching_selectors(rules.from_, other, world)) and not list_excluding_selectors(
        rules.exclude, other, world
    )


def to_json(rules: Rules) -> Json:
    """The rules as plain JSON, as an event keeps them."""
    return values.loads(msgspec.json.encode(rules))


# --- counting ---------------------------------------------------------------------------------------------------------


def voter(vote: VoteCast) -> str:
    return vote.on_behalf_of or vote.by


def voters(votes: Sequence[VoteCast]) -> set[str]:
    """Everybody that has had a vote, by all ids: the voters, the people they voted for, and who vouches for them."""
    ids = {id for vote in votes for id in (vote.by, voter(vote), *vote.aliases, *vote.lent_aliases)}
    ids.update(id for vote in votes for id in _list_vouching(vote))
    return set(map(compose, ids))


def ids_of_voter(principal: Principal) -> tuple[str, ...]:
    """All that a vote of the principal is counted under."""
    return tuple(map(compose, (*ids_of(principal), *_list_vouching(principal))))


def describe_earlier_vote(pending: PendingState, principal: Principal) -> str:
    """The vote on the question that is the principal's one vote already, as a clause; "": there is none."""
    spent, own = set(ids_of_voter(principal)), set(map(compose, ids_of(principal)))
    for vote in pending.votes:
        ids = voters([vote])
        if ids.isdisjoint(spent):
            continue
        if own.isdisjoint(map(compose, (vote.by, voter(vote), *vote.aliases, *vote.lent_aliases))):
            return f"{vote.by}, who has one vote with {principal.id}, has voted on it; that vote stands"
        return f"{', '.join(sorted(own & ids))} has voted on it; a vote stands"
    return ""


def _list_vouching(who: Principal | VoteCast) -> tuple[str, ...]:
    """The one that acts behind the credential, with all that have one vote with it."""
    return () if who.issuer is None else (who.issuer, *list_ids_between(who.through))


def counts(rules: Rules, vote: VoteCast, digest: str) -> bool:
    """Whether the vote counts: its voter may decide now; an approval is of the present question, and not of an edit of
    the voter's own where that is excluded."""
    if is_never(vote):
        return True
    if vote.decision == APPROVE and (vote.digest != digest or (vote.edited and EDITOR in rules.exclude)):
        return False
    return not set(rules.from_).isdisjoint(vote.matched) and set(rules.exclude).isdisjoint(vote.barred)


def is_never(vote: VoteCast) -> bool:
    """Whether a standing rule has cast it that says never: it decides, whomever the question asks."""
    return vote.rule is not None and vote.rule.never


def _list_votes_that_count(rules: Rules, pending: PendingState, decision: str) -> list[VoteCast]:
    digest = pending.opened.digest
    return [vote for vote in pending.votes if vote.decision == decision and counts(rules, vote, digest)]


def approvals(rules: Rules, pending: PendingState) -> list[VoteCast]:
    """The approvals that count, in the order in which they were cast."""
    return _list_votes_that_count(rules, pending, APPROVE)


def values_given(pending: PendingState) -> list[Json]:
    """The values of all approvals of the present question, whether or not they count at this stage."""
    digest = pending.opened.digest
    return [vote.values or {} for vote in pending.votes if vote.decision == APPROVE and vote.digest == digest]


def _collect_approvers(rules: Rules, pending: PendingState) -> dict[str, tuple[str, ...]]:
    return {voter(vote): vote.matched for vote in approvals(rules, pending)}


def _list_everyone(rules: Rules, pending: PendingState) -> tuple[str, ...]:
    """The people of `quorum: all`, each by the id under which they approved, if they have."""
    one = {}
    for vote in approvals(rules, pending):
        aliases = vote.aliases if vote.on_behalf_of is None else vote.lent_aliases
        one.update(dict.fromkeys(aliases, voter(vote)))
    return tuple(dict.fromkeys(one.get(id, id) for id in rules.everyone)) if one else rules.everyone


def verdict(rules: Rules, pending: PendingState) -> str | None:
    """approve, reject, or None: still open. (An option of the author's own decides by itself.)"""
    if any(map(is_never, pending.votes)):
        return REJECT
    approvers = _collect_approvers(rules, pending)
    if quorum.is_met(_quorum(rules), approvers, _list_everyone(rules, pending)):
        return APPROVE
    rejections = _list_votes_that_count(rules, pending, REJECT)
    if any(not set(rules.veto).isdisjoint(vote.matched) for vote in rejections):
        return REJECT
    rejecters = {voter(vote) for vote in rejections}
    limit = {"any": 1}.get(rules.reject_when) if isinstance(rules.reject_when, str) else rules.reject_when
    if limit is not None and len(rejecters) >= limit:
        return REJECT
    return REJECT if _is_unreachable(rules, pending, approvers) else None


def impossible(rules: Rules, pending: PendingState) -> str | None:
    """Why this stage can't be decided for good, or None."""
    if rules.fault:
        return rules.fault
    if not _is_unreachable(rules, pending, _collect_approvers(rules, pending)):
        return None
    able = ", ".join(rules.people or ()) or "nobody"
    return f"the quorum of {_describe_quorum(rules)} can't be reached: those who may decide are {able}"


def _is_unreachable(rules: Rules, pending: PendingState, approvers: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether not even all that could still approve would be enough. Never, where they can't be listed."""
    people = dict.fromkeys(rules.picked, rules.from_) if rules.picked else rules.people
    if people is None:
        return False
    spent = voters(pending.votes)
    possible = {**{id: matched for id, matched in people.items() if id not in spent}, **approvers}
    return not quorum.is_met(_quorum(rules), possible, _list_everyone(rules, pending))


def _quorum(rules: Rules) -> quorum.Quorum:
    needed = rules.quorum
    if isinstance(needed, str):
        assert needed == "all"
        return "all"
    return needed


def _describe_quorum(rules: Rules) -> str:
    needed = rules.quorum
    return (
        str(needed) if not isinstance(needed, dict) else ", ".join(f"{name}: {count}" for name, count in needed.items())
    )


# --- what people see --------------------------------------------------------------------------------------------------


def envelope(
    pending: PendingState, decision: str, reason: str | None, given: Json = None, *, expired: bool = False
) -> dict[str, Json]:
    """The frozen result of an approval, as authors read it in `steps.X.approval`. `given` are the combined values."""
    rules = derive_rules(pending)
    return {
        "decision": decision,
        "reason": reason,
        "values": given,
        "edits": pending.edits,
        "votes": [_show_vote(rules, vote, pending.opened.digest) for vote in pending.votes],
        "expired": expired,
        "escalations": [
            {
                "at": instants.rfc3339(each.began),
                "from": each.policy.get("from", []),  # not there where a hole named nobody
                "quorum": each.policy.get("quorum", 1),
            }
            for each in pending.escalations
        ],
    }


def _show_vote(rules: Rules, vote: VoteCast, digest: str) -> dict[str, Json]:
    return {
        "by": vote.by,
        "on_behalf_of": vote.on_behalf_of,
        "roles": [each.removeprefix("role:") for each in vote.matched if each.startswith("role:")],
        "decision": vote.decision,
        "reason": vote.reason,
        "values": vote.values,
        "at": instants.rfc3339(vote.at),
        "via": vote.via,
        "digest": vote.digest,
        "counts": counts(rules, vote, digest),
        **({} if vote.rule is None else {"rule": vote.rule.id}),
    }


def describe_needs(pending: PendingState) -> dict[str, Json]:
    """The deciders of the pending now, their votes so far, and the votes missing to an approval."""
    rules = derive_rules(pending)
    lacking = quorum.missing(_quorum(rules), _collect_approvers(rules, pending), _list_everyone(rules, pending))
    spent = voters(pending.votes)
    return {
        "from": list(rules.from_),
        "exclude": list(rules.exclude),
        "quorum": rules.quorum,
        "reject_when": rules.reject_when,
        "reasons": list(rules.reasons),
        **({"veto": list(rules.veto)} if rules.veto else {}),
        **({"confirm": True} if rules.confirm else {}),
        **({} if rules.pick is None else _describe_pick(rules)),
        **({"deadline": rules.deadline} if isinstance(rules.deadline, str) else {}),
        "people": None if rules.people is None else [id for id in rules.people if id not in spent],
        "votes": [_show_vote(rules, vote, pending.opened.digest) for vote in pending.votes],
        "missing": {"people": lacking.people, "seats": dict(lacking.seats), "names": list(lacking.names)},
        "escalations": {"passed": len(pending.escalations), "left": len(rules.escalations)},
    }


def _describe_pick(rules: Rules) -> dict[str, Json]:
    picked: Json = None if rules.picked is None else list(rules.picked)
    return {"pick": rules.pick, "picked": picked, **({"pick_note": rules.pick_note} if rules.pick_note else {})}


def expire_votes(before: PendingState, after: PendingState) -> list[Json]:
    """The votes that counted before and don't count afterwards: an edit made the question another one."""
    old, new = derive_rules(before), derive_rules(after)
    return [
        _show_vote(new, vote, after.opened.digest)
        for vote in before.votes
        if counts(old, vote, before.opened.digest) and not counts(new, vote, after.opened.digest)
    ]


# --- combining --------------------------------------------------------------------------------------------------------


class Differs(ValueError):
    """A value that must be the `same` in every approval is not. The message names both."""


def merge_values(rules: Rules, form: Json, given: Sequence[Json]) -> Json:
    """The values of several approvals as one, each property by its rule. None if there is no form. Raises `Differs`."""
    if form is None:
        return None
    result: dict[str, Json] = {}
    for name in dict.fromkeys(name for each in given for name in each):
        inputs = [each[name] for each in given if name in each]
        result[name] = _merge_property(rules.combine.get(name, "same"), name, inputs)
    return result


def _merge_property(rule: str, name: str, found: list[Json]) -> Json:
    match rule:
        case "same":
            for each in found[1:]:
                if not is_same_json(each, found[0]):
                    stands = values.dumps(found[0]).decode()
                    raise Differs(f"{name} must be the same in every approval; {stands} stands, so approve with that")
            return found[0]
        case "first":
            return found[0]
        case "last":
            return found[-1]
        case "list":
            return found
        case "any":
            return any(found)
        case "all":
            return all(found)
        case _:
            return _find_extreme(min if rule == "min" else max, rule, name, found)


def _find_extreme(choose: Any, rule: str, name: str, found: list[Json]) -> Json:
    try:
        return choose(found)
    except TypeError:
        raise Differs(
            f"{name} is combined by {rule}: expected values that can be ordered, found {found!r:.80}"
        ) from None
