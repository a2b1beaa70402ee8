"""Random policies and votes, against the rules of docs/language.md#people said once more, slowly.

The oracle knows everybody and tries every seating; it shares no code with the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from tests.support.examples import examples
from tests.support.people import HOUR, REQUESTER, Asked, approving, escalate, failure, policy

PEOPLE = ("user:ann", "user:bob", "user:eve", "user:joe", REQUESTER)
DECLARED = ("a", "b")  # roles of the document; "x" is one of the deployment's
SELECTORS = (*PEOPLE[:3], "role:a", "role:b", "role:x", "requester", "anyone")

declared = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from(PEOPLE), unique=True, min_size=1).map(tuple) for name in DECLARED}
)
selectors = st.lists(st.sampled_from(SELECTORS), unique=True, min_size=1, max_size=3)
seats = st.dictionaries(st.sampled_from(SELECTORS), st.integers(1, 2), min_size=1, max_size=2)
quorums = (
    st.integers(1, 3)
    | st.just("all")
    | seats
    | st.builds(lambda wanted, total: {**wanted, "any": total}, seats, st.integers(1, 4))
)


@dataclass
class Oracle:
    """Who is who, and what was voted."""

    roles: dict[str, tuple[str, ...]]
    holders: set[str]  # of the role "x"
    from_: list[str]
    exclude: list[str]
    quorum: Any
    reject_when: Any
    votes: list[tuple[str, str]] = field(default_factory=list)

    def matches(self, person: str, selector: str) -> bool:
        match selector:
            case "anyone":
                return True
            case "requester":
                return person == REQUESTER
            case "role:x":
                return person in self.holders
            case str() if selector.startswith("role:"):
                return person in self.roles[selector[5:]]
            case _:
                return person == selector

    def may_vote(self, person: str) -> bool:
        return (
            any(self.matches(person, each) for each in self.from_)
            and not any(self.matches(person, each) for each in self.exclude)
            and all(person != voter for voter, _ in self.votes)
        )

    def counted(self, decision: str) -> set[str]:
        return {
            voter
            for voter, given in self.votes
            if given == decision
            and any(self.matches(voter, each) for each in self.from_)
            and not any(self.matches(voter, each) for each in self.exclude)
        }

    @property
    def is_listed(self) -> bool:
        return not {"role:x", "anyone"} & set(self.from_)

    def met(self, people: dict[str, set[str]]) -> bool:
        """`people` with the selectors that each may count for."""
        if isinstance(self.quorum, int):
            return len(people) >= self.quorum
        if self.quorum == "all":
            return (
                self.is_listed
                and {each for each in PEOPLE if any(self.matches(each, s) for s in self.from_)} <= people.keys()
            )
        wanted = [name for name, count in self.quorum.items() if name != "any" for _ in range(count)]
        if len(people) < self.quorum.get("any", len(wanted)):
            return False
        tries = product(people, repeat=len(wanted))
        return any(
            len(set(row)) == len(row) and all(seat in people[who] for who, seat in zip(row, wanted, strict=True))
            for row in tries
        )

    def sure(self, person: str) -> set[str]:
        return {each for each in SELECTORS if self.matches(person, each)}

    def verdict(self) -> str | None:
        approvers = {person: self.sure(person) for person in self.counted("approve")}
        if self.met(approvers):
            return "approve"
        rejections = len(self.counted("reject"))
        limit = {"any": 1, "unreachable": 99}.get(self.reject_when, self.reject_when)
        return "reject" if rejections >= limit or self.is_unreachable() else None

    def is_unreachable(self) -> bool:
        """Whether not even all who could still approve are enough; before they vote, anybody may have the role x."""
        if self.quorum == "all" and not self.is_listed:
            return True
        if not self.is_listed:
            return False
        spent = {voter for voter, _ in self.votes}
        known = {person: self.sure(person) for person in self.counted("approve")}
        for person in PEOPLE:
            lets_in = any(self.matches(person, each) for each in self.from_)
            kept_out = any(self.matches(person, each) for each in self.exclude if each != "role:x")
            if lets_in and not kept_out and person not in spent:
                known[person] = self.sure(person) | {"role:x"}
        return not self.met(known)


exclusions = st.lists(st.sampled_from((*PEOPLE[:2], "role:b", "role:x", "requester")), unique=True, max_size=2)
ballots = st.lists(st.tuples(st.sampled_from(PEOPLE), st.sampled_from(("approve", "reject"))), max_size=8)
later = st.none() | st.tuples(selectors, quorums | st.none(), st.integers(0, 4))


@settings(max_examples=examples(600), deadline=None)
@given(
    declared,
    st.sets(st.sampled_from(PEOPLE)),
    selectors,
    exclusions,
    quorums,
    st.sampled_from(("any", "unreachable", 2)),
    ballots,
    later,
)
def test_votes_come_to_what_the_rules_say(
    roles: dict[str, tuple[str, ...]],
    holders: set[str],
    from_: list[str],
    exclude: list[str],
    quorum: Any,
    reject_when: Any,
    votes: list[tuple[str, str]],
    stage: tuple[list[str], Any, int] | None,
) -> None:
    oracle = Oracle(roles, holders, from_, exclude, quorum, reject_when)
    stages = () if stage is None else (escalate(HOUR, from_=stage[0], quorum=stage[1]),)
    rules = policy(tuple(from_), exclude=exclude, quorum=quorum, reject_when=reject_when, escalations=stages)
    plan = approving(rules, roles=roles)
    if oracle.is_unreachable() and (stage is None or next_of(oracle, stage).is_unreachable()):
        assert failure(plan).code == "approval.impossible"
        return
    ask = Asked(plan)
    escalated = bool(ask.pending.escalations)
    assert escalated == oracle.is_unreachable()
    if escalated and stage is not None:
        oracle = next_of(oracle, stage)
    for number, (person, decision) in enumerate(votes):
        if stage is not None and number == stage[2] and not escalated:
            escalated = True
            oracle = next_of(oracle, stage)
            ask.advance(HOUR)
            if decided_at_escalation(ask, oracle):
                return
        principal = c.Principal(person, ("x",) if person in holders else ())
        assert ask.can(principal) == oracle.may_vote(person)
        if not oracle.may_vote(person):
            assert ask.refusal(principal, decision, reason="again").status == 403
            continue
        ask.vote(principal, decision)
        oracle.votes.append((person, decision))
        expected = oracle.verdict()
        if expected is not None:
            assert ask.envelope["decision"] == ask.pending.status == expected
            return
        assert ask.is_open
        met = not any((ask.needs["missing"]["people"], ask.needs["missing"]["seats"], ask.needs["missing"]["names"]))
        assert not met


def next_of(oracle: Oracle, stage: tuple[list[str], Any, int]) -> Oracle:
    from_, quorum, _ = stage
    kept = oracle.quorum if quorum is None else quorum
    return Oracle(oracle.roles, oracle.holders, from_, oracle.exclude, kept, oracle.reject_when, oracle.votes)


def decided_at_escalation(ask: Asked, oracle: Oracle) -> bool:
    """What the votes before come to in the stage that begins; a stage that nobody can decide, as the last, is the no of
    `on_deadline` at once."""
    if oracle.verdict() == "approve":
        assert ask.envelope["decision"] == "approve"
        return True
    if oracle.is_unreachable():
        assert (ask.error, ask.pending.status) == ("approval.rejected", "expired")
        return True
    assert ask.is_open
    return False
