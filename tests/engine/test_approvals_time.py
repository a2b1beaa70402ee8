"""Deadlines, escalations and reminders of what people are asked (docs/language.md#people)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.plan import Expiry
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings import deadlines, decide, gates, validate_answers
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.errors import Rejected
from tests.support.people import (
    DAY,
    HOUR,
    NOON,
    REQUESTER,
    Asked,
    Hole,
    Lit,
    approving,
    asking,
    escalate,
    failure,
    gated,
    picking,
    policy,
    who,
)

ANN, BOB, EVE = who("ann", "boss"), who("bob", "boss"), who("eve", "boss")
CFO = who("carl", "cfo")
FORM = {"type": "object", "properties": {"n": {"type": "integer"}}}


def asked(from_: Any = ("role:boss",), **rules: Any) -> Asked:
    handlers = rules.pop("handlers", ())
    return Asked(approving(policy(from_, **rules), handlers=handlers))


# --- what the last deadline does --------------------------------------------------------------------------------------


def test_until_the_deadline_a_vote_counts_and_from_then_on_it_does_not() -> None:
    ask = asked()
    assert ask.advance(HOUR - 1) == []
    ask.vote(ANN)
    assert ask.status == "finished"
    late = asked()
    late.now += HOUR  # its timer has not been seen to yet
    assert late.refusal(ANN).status == 410
    assert not late.pending.votes


def test_reject_runs_the_handler_and_raises_a_rejection() -> None:
    ask = asked(expiry=Expiry("reject", reason=Lit("nobody came")), handlers=("reject",))
    assert ask.advance(HOUR) == ["deadline"]
    assert (ask.error, ask.handler, ask.pending.status) == ("approval.rejected", "~reject", "expired")
    assert (ask.envelope["decision"], ask.envelope["reason"], ask.envelope["expired"]) == (
        "reject",
        "nobody came",
        True,
    )


def test_fail_raises_that_it_expired_and_no_handler_runs() -> None:
    ask = asked(expiry=Expiry("fail"), handlers=("reject",))
    ask.advance(HOUR)
    assert (ask.error, ask.handler, ask.envelope["decision"]) == ("approval.expired", None, "expired")


def test_approve_goes_on_and_the_envelope_says_that_nobody_did() -> None:
    ask = asked(expiry=Expiry("approve"), quorum=2)
    ask.vote(ANN)
    ask.advance(HOUR)
    assert (ask.status, ask.envelope["decision"], ask.envelope["expired"]) == ("finished", "approve", True)
    assert len(ask.envelope["votes"]) == 1


def test_a_gate_that_the_deadline_approves_lets_the_call_begin() -> None:
    ask = Asked(gated(policy(expiry=Expiry("approve"))), args={"n": 1})
    ask.advance(HOUR)
    assert ask.state.ready == (ask.path,)
    assert ask.do(gates.check_gate) == '{"n":1}'


def test_an_ask_may_have_a_default_instead_of_an_answer() -> None:
    ask = Asked(asking(policy(("anyone",), form=FORM, expiry=Expiry("default", value=Lit({"n": 7})))))
    ask.advance(HOUR)
    assert (ask.status, ask.state.steps[ask.path].output, ask.pending.status) == ("finished", {"n": 7}, "expired")
    assert ask.refusal(ANN, None, values={"n": 1}).status == 410


def test_an_ask_expires_with_its_own_code() -> None:
    ask = Asked(asking(policy(("anyone",), form=FORM, expiry=Expiry("fail"))))
    ask.advance(HOUR)
    assert ask.error == "ask.expired"


def test_an_error_in_the_reason_fails_the_step_and_nothing_stays_open() -> None:
    def broken(value: Any) -> Any:
        raise ExpressionError("expression.absent", "there is no such thing")

    ask = asked(expiry=Expiry("reject", reason=Hole("state", broken)))
    ask.advance(HOUR)
    assert (ask.status, ask.error, ask.pending.status) == ("failed", "expression.absent", "expired")


# --- escalation -------------------------------------------------------------------------------------------------------


def test_an_escalation_keeps_the_pending_and_asks_others_with_a_new_clock() -> None:
    ask = asked(escalations=(escalate(DAY, from_=["role:cfo"]),))
    before = ask.pending
    ask.advance(HOUR)
    after = ask.pending
    assert (after.opened.id, after.opened.digest) == (before.opened.id, before.opened.digest)
    assert after.opened.deadline == ask.now + DAY
    assert [(timer.kind, timer.due - ask.now) for timer in ask.state.timers] == [("deadline", DAY)]
    assert ask.refusal(ANN).status == 403
    ask.vote(CFO)
    assert ask.envelope["escalations"] == [{"at": "2026-03-02T13:00:00.000Z", "from": ["role:cfo"], "quorum": 1}]


def test_what_an_escalation_does_not_say_stays_as_it_was() -> None:
    ask = asked(quorum=2, exclude=["user:eve"], notify=(Lit("mail"),), escalations=(escalate(DAY),))
    ask.advance(HOUR)
    assert {key: ask.needs[key] for key in ("from", "exclude", "quorum")} == {
        "from": ["role:boss"], "exclude": ["user:eve"], "quorum": 2,
    }  # fmt: skip


def test_earlier_votes_count_of_those_who_may_still_decide_others_are_kept() -> None:
    ask = asked(("role:boss", "role:dev"), quorum=3, escalations=(escalate(DAY, from_=["role:boss", "role:cfo"]),))
    ask.vote(ANN)
    ask.vote(who("joe", "dev"))
    ask.advance(HOUR)
    assert [vote["counts"] for vote in ask.needs["votes"]] == [True, False]
    ask.vote(CFO)
    assert ask.is_open
    ask.vote(BOB)
    assert ask.status == "finished"
    assert [vote["counts"] for vote in ask.envelope["votes"]] == [True, False, True, True]


def test_an_earlier_vote_counts_by_a_role_that_only_a_later_stage_asks_for() -> None:
    stage = escalate(DAY, from_=["role:cfo"], quorum={"role:cfo": 1, "role:vp": 1})
    ask = asked(quorum=3, escalations=(stage,))
    ask.vote(who("ann", "boss", "vp", "cfo"))
    ask.advance(HOUR)
    assert (ask.needs["votes"][0]["counts"], ask.needs["missing"]["people"]) == (True, 1)
    ask.vote(CFO)
    assert ask.status == "finished"


def test_an_escalation_decides_at_once_if_the_earlier_votes_are_enough() -> None:
    ask = asked(quorum=2, escalations=(escalate(DAY, quorum=1),))
    ask.vote(ANN, reason="fine")
    ask.advance(HOUR)
    assert (ask.status, ask.pending.by, ask.envelope["reason"]) == ("finished", "user:ann", "fine")
    assert not ask.state.timers


def test_a_voter_whom_a_later_stage_excludes_no_longer_counts() -> None:
    ask = asked(quorum=2, escalations=(escalate(DAY, exclude=["user:ann"], quorum=1),))
    ask.vote(ANN)
    ask.advance(HOUR)
    assert ask.is_open
    ask.vote(BOB)
    assert [vote["counts"] for vote in ask.envelope["votes"]] == [False, True]


def test_every_stage_comes_once_and_then_the_last_deadline_decides() -> None:
    ask = asked(escalations=(escalate(DAY, from_=["role:cfo"]), escalate(2 * DAY, from_=["user:joe"])))
    assert ask.advance(HOUR) == ["deadline"]
    assert ask.advance(DAY) == ["deadline"]
    assert ask.needs["from"] == ["user:joe"]
    assert ask.advance(2 * DAY) == ["deadline"]
    assert (ask.error, len(ask.envelope["escalations"])) == ("approval.rejected", 2)


def test_a_stage_that_nobody_can_decide_is_passed_over() -> None:
    ask = asked(escalations=(escalate(DAY, from_=["nobody"]), escalate(DAY, from_=["role:cfo"])))
    ask.advance(HOUR)
    assert (ask.needs["from"], len(ask.of(e.PendingEscalated))) == (["role:cfo"], 2)
    assert [timer.kind for timer in ask.state.timers] == ["deadline"]


def test_a_last_stage_that_nobody_can_decide_raises_that_it_is_impossible() -> None:
    ask = asked(escalations=(escalate(DAY, from_=["user:ann"], quorum=2),), expiry=Expiry("approve"))
    ask.advance(HOUR)
    assert (ask.status, ask.error, ask.pending.status) == ("failed", "approval.impossible", "expired")


def test_a_last_stage_that_nobody_can_decide_leads_to_the_deadlines_no() -> None:
    ask = asked(quorum=2, escalations=(escalate(DAY, from_=["user:ann"]),), expiry=Expiry("reject"))
    ask.advance(HOUR)
    assert (ask.status, ask.error, ask.pending.status) == ("failed", "approval.rejected", "expired")


def test_a_stage_without_people_stands_in_the_envelope() -> None:
    ask = asked(escalations=(escalate(DAY, from_=Lit([])),), expiry=Expiry("reject"))
    ask.advance(HOUR)
    assert (ask.status, ask.error) == ("failed", "approval.rejected")
    assert ask.envelope["escalations"] == [{"at": "2026-03-02T13:00:00.000Z", "from": [], "quorum": 1}]


@pytest.mark.parametrize("wrong", [["bob"], [None], "someone", 7])
def test_an_exclusion_that_names_nobody_lets_nobody_in_at_any_stage(wrong: Any) -> None:
    rules = policy(escalations=(escalate(DAY, exclude=wrong),))
    assert failure(approving(rules)).code == "approval.impossible"
    later = policy(exclude=wrong, escalations=(escalate(DAY, from_=["role:cfo"]),))
    assert failure(approving(later)).code == "approval.impossible"


def test_the_rules_of_all_stages_are_filled_in_when_the_question_is_opened() -> None:
    asked_of = ["user:ann"]
    stage = escalate(DAY, from_=Hole("state", lambda state: list(asked_of)))
    ask = asked(escalations=(stage,))
    asked_of[:] = ["user:mallory"]
    ask.advance(HOUR)
    assert ask.needs["from"] == ["user:ann"]


# --- reminders --------------------------------------------------------------------------------------------------------


def test_those_who_may_decide_are_reminded_after_each_delay() -> None:
    ask = asked(deadline=DAY, remind=(2 * HOUR, HOUR), notify=(Lit("slack:#money"),))
    assert ask.advance(HOUR) == ["remind"]
    assert ask.advance(HOUR) == ["remind"]
    assert [(event.n, event.notify) for event in ask.of(e.PendingReminded)] == [
        (1, ("slack:#money",)), (2, ("slack:#money",)),
    ]  # fmt: skip
    assert [timer.kind for timer in ask.state.timers] == ["deadline"]


def test_reminders_begin_anew_with_every_stage() -> None:
    ask = asked(deadline=2 * HOUR, remind=(HOUR,), escalations=(escalate(DAY),))
    assert ask.advance(HOUR) == ["remind"]
    assert ask.advance(HOUR) == ["deadline"]
    assert ask.advance(HOUR) == ["remind"]


def test_nobody_is_reminded_of_what_is_decided() -> None:
    ask = asked(deadline=DAY, remind=(HOUR,))
    ask.vote(ANN)
    assert ask.state.timers == ()


def test_a_stage_may_have_reminders_of_its_own() -> None:
    ask = asked(escalations=(escalate(DAY, remind=(HOUR, 2 * HOUR), notify=(Lit("pager"),)),))
    assert ask.advance(HOUR) == ["deadline"]
    assert ask.advance(2 * HOUR) == ["remind", "remind"]
    assert ask.of(e.PendingReminded)[-1].notify == ("pager",)


# --- clocks and holes -------------------------------------------------------------------------------------------------


def test_a_clock_that_a_pause_halts_has_a_timer_of_its_own_kind() -> None:
    ask = asked(pause_clock="stop")
    assert [timer.kind for timer in ask.state.timers] == ["halting_deadline"]
    ask.advance(HOUR)
    assert ask.error == "approval.rejected"


def test_in_a_paused_run_a_halted_deadline_refuses_no_vote_a_running_does() -> None:
    for clock, refused in (("run", True), ("stop", False)):
        ask = asked(pause_clock=clock)
        ask.do(lambda draft, step: draft.emit(e.RunPaused, by="user:op"))
        ask.now += 2 * HOUR
        if refused:
            assert ask.refusal(ANN).status == 410
        else:
            assert ask.vote(ANN) == ["accepted"]


def test_a_duration_may_be_a_hole_that_sees_the_arguments_of_the_call() -> None:
    ask = Asked(gated(policy(deadline=Hole("args", lambda args: args["wait"]))), args={"wait": "2h"})
    assert ask.pending.opened.deadline == NOON + 2 * HOUR


@pytest.mark.parametrize("given", ["soon", 5, None, "0s"])
def test_a_hole_that_gives_no_duration_fails_the_step(given: Any) -> None:
    plan = gated(policy(deadline=Hole("args", lambda args: args["wait"])))
    assert failure(plan, args={"wait": given}).code == "expression.error"


# --- one winner -------------------------------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_deadline_and_a_vote_at_the_same_instant_have_one_winner() -> None:
    """10,000 instants: the vote comes a moment before the deadline or at it, and is decided before or behind it."""
    plans = {
        "approve": Asked(approving(policy())),
        "quorum": Asked(approving(policy(quorum=2))),
        "escalated": Asked(approving(policy(quorum=2, escalations=(escalate(DAY, quorum=1),)))),
        "ask": Asked(asking(policy(("anyone",), form=FORM, expiry=Expiry("fail")))),
        "gate": Asked(gated(policy()), args={"n": 1}),
        "tool": Asked(picking()),
    }
    for name in ("quorum", "escalated"):
        plans[name].vote(BOB)
    rng = random.Random(1)
    winners: dict[str, int] = {}
    for _ in range(10_000):
        name = rng.choice(list(plans))
        at = NOON + HOUR - rng.choice((0, 0, 0, 1))
        winner = one_instant(plans[name], name, at, timer_first=rng.random() < 0.5)
        winners[winner] = winners.get(winner, 0) + 1
    assert winners.keys() == {"a vote", "the deadline"}
    assert min(winners.values()) > 500


def one_instant(ask: Asked, name: str, at: int, *, timer_first: bool) -> str:
    """Both commands reach the run, one behind the other: the later one is decided on what the first has left."""
    state, decided = ask.state, []
    for is_timer in (timer_first, not timer_first):
        now = NOON + HOUR if is_timer else at
        draft = Draft(ask.plan, state, max(now, state.at), DEFAULT_BOUNDS)
        if is_timer:
            let_deadline_pass(draft, ask.path)
        else:
            vote_unless_refused(draft, ask, name)
        decided += [event for event in draft.events if isinstance(event, e.PendingDecided)]
        state = draft.state
    (winner,) = decided
    assert state.pendings[ask.id].status == winner.outcome
    assert not state.open_pendings
    assert not state.timers
    assert (winner.via == "deadline") != (winner.by is not None)
    return "the deadline" if winner.via == "deadline" else "a vote"


def let_deadline_pass(draft: Draft, path: str) -> None:
    if any(timer.path == path and timer.due <= draft.now for timer in draft.state.timers):
        draft.emit(e.TimerFired, path=path, kind="deadline")
        deadlines.deadline_passed(draft, draft.step(path))


def vote_unless_refused(draft: Draft, ask: Asked, name: str) -> None:
    voter = c.Principal(REQUESTER) if name == "tool" else ANN
    given: dict[str, Any] = {"ask": {"values": {"n": 1}}, "tool": {"content": "x"}}.get(name, {"decision": "approve"})
    command = c.Answer(answers=(c.PendingAnswer(id=ask.id, **given),), by=voter)
    try:
        ((pending, reading, known),) = validate_answers.readings(draft, command)
    except Rejected:
        return
    if not known:  # the same answer decided it already
        decide.decide_pending(draft, pending, reading, voter, "rest")
