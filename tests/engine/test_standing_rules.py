"""Standing rules: which one votes on a gate, with whose votes, and why none does (docs/approvals.md#standing-rules)."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.canaries import ASKER, CANARY
from hai_flow.engine.decide import decide
from hai_flow.engine.decision import Decision
from hai_flow.engine.draft import DecisionContext
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.runs.replay import decide_again
from hai_flow.engine.standing_rules import CONSULT, StandingRule, choose
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.held_steps import Freeze
from hai_flow.errors import Rejected
from tests.support.runs import Play

PAY: Final = """
tools: {{t: {{python: registered, effect: {effect}}}}}
steps:
  - id: pay
    call: t.pay
    with: {{amount: 50, to: DE-1, note: x}}
    approval: {{from: "{asks}", deadline: 1h{more}}}
"""
DAN = c.Principal("user:dan", ("boss",))
BOB = c.Principal("user:bob", ("boss",))
CFO = c.Principal("user:cfo", ("cfo",))
DIGEST: Final = "d" * 64


def rule(id: str = "a", kind: Any = "allow", voters: tuple[c.Principal, ...] = (DAN,), **more: Any) -> StandingRule:
    people = ("user:pro", *(voter.id for voter in voters))
    fields: dict[str, Any] = {"tool": "t.pay", "tool_digest": DIGEST, "people": people, "reason": "small"}
    return StandingRule(id=id, digest=f"v-{id}", kind=kind, voters=voters, **{**fields, **more})


def never(id: str = "n", **more: Any) -> StandingRule:
    return rule(id, "never", **more)


class Gate:
    """A run that waits at its gate, for a tool with rules."""

    def __init__(self, asks: str = "role:boss", more: str = "", effect: str = "write", text: str = "") -> None:
        self.freezes: list[Freeze] = []
        text = text or PAY.format(asks=asks, more=more, effect=effect)
        self.play = Play(text, decide=self._decide)

    def _decide(self, *args: Any) -> Decision:
        return decide(*args, context=DecisionContext(self.freezes, {"t.pay"}))

    @property
    def pending(self) -> PendingState:
        return self.play.state.pendings[self.play.pending("pay")]

    def consult(self, *rules: StandingRule, digest: str | None = DIGEST) -> str:
        """The id of the rule that has voted, and what came of it; "" where none did."""
        play, pending = self.play, self.pending
        chosen = choose(play.plan, play.state, pending, digest, rules, self.freezes).rule
        if chosen is None:
            return ""
        play.do(chosen.make_command(pending))
        return f"{chosen.id} {self.pending.status}"


# What is asked, the rules in force, and the rule that votes with what comes of it.
CASES: Final[dict[str, tuple[dict[str, Any], list[StandingRule], str]]] = {
    "no rule": ({}, [], ""),
    "an allow without a condition": ({}, [rule()], "a approve"),
    "a never without a condition": ({}, [never()], "n reject"),
    "a never goes before an allow": ({}, [rule(), never()], "n reject"),
    "a never goes first, whichever is older": ({}, [never("z"), rule("a")], "z reject"),
    "a never goes before an allow for the workflow": ({}, [rule(workflow="sample"), never()], "n reject"),
    "the first of two nevers": ({}, [never("n2"), never("n1")], "n1 reject"),
    "the first of two allows": ({}, [rule("b"), rule("a")], "a approve"),
    "an allow for the workflow goes first": ({}, [rule("a"), rule("b", workflow="sample")], "b approve"),
    "another workflow": ({}, [rule(workflow="other")], ""),
    "a never of another workflow": ({}, [rule(), never(workflow="other")], "a approve"),
    "another tool": ({}, [rule(tool="t.other")], ""),
    "another function of the tool": ({}, [rule(tool="t")], ""),
    "a condition that is met": ({}, [rule(when="args.amount <= 50")], "a approve"),
    "a condition that is not met": ({}, [rule(when="args.amount < 50")], ""),
    "a bound that is met": ({}, [rule(bounds={"amount": {"min": 50, "max": 50}, "to": {"in": ["DE-1"]}})], "a approve"),
    "a bound that is not met": ({}, [rule(bounds={"amount": {"max": 50}, "to": {"equals": "DE-2"}})], ""),
    "a bound and a condition": ({}, [rule(when="args.to == 'DE-1'", bounds={"amount": {"max": 49}})], ""),
    "an or in a condition reaches no bound": ({}, [rule(when="true || true", bounds={"amount": {"max": 9}})], ""),
    "a never whose condition is not met": ({}, [rule(), never(when="args.amount > 50")], "a approve"),
    "a never whose condition can't be evaluated": ({}, [rule(), never(when="args.iban == 'x'")], ""),
    "an allow whose condition can't be evaluated": ({}, [rule("a"), rule("b", when="args.iban == 'x'")], ""),
    "a bound of another type": ({}, [rule(bounds={"to": {"max": 5}})], ""),
    "a condition that does not compile": ({}, [rule(when="input.amount > 1")], ""),
    "a pattern that is none": ({}, [rule(when="args.note.matches(args.to + '(')")], ""),
    "used up": ({}, [rule(used_up=True)], ""),
    "used up, and another one": ({}, [rule("a", used_up=True), rule("b")], "b approve"),
    "another description of the tool": ({}, [rule(tool_digest="e" * 64)], ""),
    "a never outlives the description": ({}, [never(tool_digest="e" * 64)], "n reject"),
    "proposed by the requester": ({}, [rule(people=("user:ann", "user:dan"))], ""),
    "approved by the requester": ({"asks": "anyone"}, [rule(voters=(c.Principal("user:ann"),))], ""),
    "a never by the requester": ({}, [never(people=("user:ann",))], "n reject"),
    "approved by those who are not asked": ({}, [rule(voters=(CFO,))], ""),
    "a never by those who are not asked": ({}, [never(voters=(CFO,))], "n reject"),
    "approved by one who is excluded": ({"more": ", exclude: [user:dan]"}, [rule()], ""),
    "approved by an agent": ({"asks": "agent:x"}, [rule(voters=(c.Principal("agent:x"),))], ""),
    "one vote of two": ({"more": ", quorum: 2"}, [rule()], "a open"),
    "two votes of two": ({"more": ", quorum: 2"}, [rule(voters=(DAN, BOB))], "a approve"),
    "two approvers are no second seat": ({"more": ", quorum: 2"}, [rule(voters=(DAN, CFO))], "a open"),
    "the same person twice": ({"more": ", quorum: 2"}, [rule(voters=(DAN, replace(DAN, aliases=("a@x",))))], "a open"),
    "one rule a question": ({"more": ", quorum: 2"}, [rule("a"), rule("b", voters=(BOB,))], "a open"),
    "a never against a quorum": ({"more": ", quorum: 2, reject_when: unreachable"}, [never()], "n reject"),
    "the gate takes no rule": ({"more": ", rules: false"}, [rule()], ""),
    "a never where the gate takes no rule": ({"more": ", rules: false"}, [never()], "n reject"),
    "irreversible": ({"effect": "irreversible"}, [rule()], ""),
    "irreversible, and the gate takes rules": (
        {"effect": "irreversible", "more": ", rules: true"},
        [rule()],
        "a approve",
    ),
    "a never for what is irreversible": ({"effect": "irreversible"}, [never()], "n reject"),
    "values are asked for": ({"more": ", form: {type: object, properties: {n: {type: integer}}}"}, [rule()], ""),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_that_votes_is_the_same_in_any_order_of_rules(name: str) -> None:
    asks, rules, outcome = CASES[name]
    for order in (rules, rules[::-1]):
        gate = Gate(**asks)
        assert gate.consult(*order) == outcome
        _check_log(gate.play)


def test_there_are_at_least_forty_cases() -> None:
    assert len(CASES) >= 40


def _check_log(play: Play) -> None:
    """The log breaks no invariant, and each of its commits can be decided again."""
    state = RunState(str(play.run_id))
    for batch in play.log:
        again = decide_again(play.plan, state, batch)
        assert again.left is None, again
        state = fold(state, batch)


def test_a_vote_by_rule_names_the_rule_and_starts_the_very_call() -> None:
    gate = Gate()
    assert gate.consult(rule()) == "a approve"
    (vote,) = gate.pending.votes
    assert (vote.by, vote.via, vote.rule, vote.reason) == ("user:dan", "rule", e.RuleUse("a", "v-a"), "small")
    assert gate.play.open == {"pay": 1}
    decided = next(each for each in gate.play.last if isinstance(each, e.PendingDecided))
    assert (decided.via, decided.by) == ("rule", "user:dan")


def test_an_approver_of_the_rule_has_voted_another_completes_the_quorum() -> None:
    gate = Gate(more=", quorum: 2")
    assert gate.consult(rule()) == "a open"
    with pytest.raises(Rejected, match="has voted"):
        gate.play.answer("pay", by=DAN, decision="approve")
    gate.play.answer("pay", by=BOB, decision="approve")
    assert gate.pending.status == "approve"
    _check_log(gate.play)


def test_who_has_approved_a_rule_under_two_ids_has_one_vote_by_it() -> None:
    gate = Gate(more=", quorum: 3")
    gate.consult(rule(voters=(DAN, replace(DAN, id="user:daniel", aliases=("user:dan",)), BOB)))
    assert [vote.by for vote in gate.pending.votes] == ["user:dan", "user:bob"]


def test_who_has_voted_is_not_voted_for_by_the_rule_they_approved() -> None:
    gate = Gate(more=", quorum: 2")
    gate.play.answer("pay", by=DAN, decision="approve")
    assert gate.consult(rule()) == ""
    assert gate.consult(rule(voters=(DAN, BOB))) == "a approve"


def test_edited_arguments_are_approved_by_no_rule_and_refused_by_a_never() -> None:
    gate = Gate(more=", quorum: 2, edit: [amount]")
    gate.play.answer("pay", by=BOB, decision="approve", edits={"amount": 5000})
    assert gate.consult(rule()) == ""
    assert gate.consult(never(when="args.amount <= 50")) == ""
    assert gate.consult(never(when="args.amount > 50")) == "n reject"
    _check_log(gate.play)


def test_a_gate_says_that_there_are_rules_and_no_other_does() -> None:
    plan = PAY.format(asks="role:boss", more="", effect="write")
    for ruled, kinds in (({"t.pay"}, [CONSULT]), ({"t.other"}, []), ((), [])):
        sent: list[str] = []

        def recording(*args: Any, ruled: Any = ruled, sent: list[str] = sent) -> Decision:
            decision = decide(*args, context=DecisionContext(ruled=ruled))
            sent += [message.kind for message in decision.outbox]
            return decision

        Play(plan, decide=recording)
        assert sent == kinds


@pytest.mark.parametrize("scope", ["tool", "tenant", "workflow"])
def test_a_freeze_of_the_call_wins_over_an_allow_and_not_over_a_never(scope: Any) -> None:
    gate = Gate()
    name = {"tool": "t.pay", "tenant": "", "workflow": gate.play.state.workflow}[scope]
    gate.freezes.append(Freeze("f", "frozen", scope, name, "a drill"))
    assert gate.consult(rule()) == ""
    with pytest.raises(Rejected, match="freeze f holds"):
        gate.play.do(rule().make_command(gate.pending))
    assert gate.consult(never()) == "n reject"


def test_the_deciding_commit_refuses_a_rule_for_a_changed_question() -> None:
    gate = Gate()
    command = rule().make_command(gate.pending)
    for wrong in (
        replace(command, digest="0" * 64),
        replace(command, id="call_none"),
        replace(command, people=("user:ann",)),
        replace(command, voters=(CFO,)),
    ):
        with pytest.raises(Rejected) as refusal:
            gate.play.do(wrong)
        assert (refusal.value.status, refusal.value.code) == (409, "rule_idle")
    gate.play.do(command)
    with pytest.raises(Rejected):
        gate.play.do(command)


def test_no_rule_decides_a_canary() -> None:
    gate = Gate()
    shown = {"workflow": "pay", "version": 1, "sha256": "", "requester": "user:ann"}
    gate.play.state = replace(gate.play.state, workflow=CANARY, requester=ASKER, input=shown)
    assert gate.consult(never()) == gate.consult(rule()) == ""


def test_a_fork_keeps_no_rules_vote_and_gets_none_of_its_requesters_rule() -> None:
    gate = Gate(more=", quorum: 2")
    assert gate.consult(rule()) == "a open"
    for by, outcome in (("user:dan", None), ("user:zoe", "a")):
        fork = gate.play.fork(gate.play.state.seq, {}, by=by)
        pending = fork.state.pendings[fork.pending("pay")]
        assert (pending.status, pending.votes) == ("open", ())
        chosen = choose(fork.plan, fork.state, pending, DIGEST, [rule()]).rule
        assert (None if chosen is None else chosen.id) == outcome


def test_what_was_rejected_is_asked_anew_and_approved_by_no_rule() -> None:
    gate = Gate()
    gate.play.answer("pay", by=BOB, decision="reject")
    assert gate.play.status == "failed"
    gate.play.do(c.Retry(by="user:bob", who=BOB))
    assert gate.pending.status == "open"
    assert gate.consult(rule()) == ""
    assert gate.consult(never()) == "n reject"


@pytest.mark.parametrize(("tool", "kept"), [("built_in.establish", ("role:boss", "group:eu")), ("t.pay", ())])
def test_a_vote_for_a_rule_keeps_what_its_voter_holds(tool: str, kept: tuple[str, ...]) -> None:
    """The rule votes for them later, where these may be excluded; no key stands for those of an issuer's token."""
    text = PAY.format(asks="anyone", more="", effect="write")
    gate = Gate(text=text.replace("tools: {t:", f"tools: {{{tool.partition('.')[0]}:").replace("t.pay", tool))
    gate.play.answer("pay", by=c.Principal("user:dan", ("boss",), ("eu",)), decision="approve")
    (vote,) = gate.play.of(e.VoteCast)
    assert vote.through == kept
