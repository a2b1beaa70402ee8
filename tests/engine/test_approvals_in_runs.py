"""Approvals inside of whole runs: what goes on behind a decision, and what pauses, stops, retries and crashes do."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from hai_flow.definition.plan import Expiry, Plan, Repeat
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from tests.support.people import HOUR, Hole, approving, escalate, gated, policy, who
from tests.support.runs import Play

PATH = "loop[0]/gate"
ANN, BOB, EVE = who("ann", "boss"), who("bob", "boss"), who("eve", "boss")
PLAIN = c.Principal("user:stranger")


def changed(plan: Plan, path: str, **changes: Any) -> Plan:
    """The plan with another step at `path`."""
    step = msgspec.structs.replace(plan.steps[path], **changes)
    return dataclasses.replace(plan, steps={**plan.steps, path: step})


def decide(run: Play, by: c.Principal, decision: str = "approve", path: str = PATH, **fields: Any) -> None:
    run.answer(path, by=by, decision=decision, **fields)


def test_an_approval_goes_on_to_the_end_of_the_run() -> None:
    run = Play(approving(policy(quorum=2)))
    decide(run, BOB)
    assert run.status == "waiting"
    decide(run, EVE)
    assert run.status == "finished"


def test_who_started_the_run_may_not_approve_it() -> None:
    run = Play(approving(policy()))
    with pytest.raises(Rejected) as refusal:
        decide(run, ANN)
    assert refusal.value.status == 403


def test_behind_a_gate_the_call_begins_once_and_with_what_was_approved() -> None:
    run = Play(gated(policy(edit=True)))
    assert run.open == {}
    decide(run, BOB)
    assert run.open == {PATH: 1}
    run.succeed(PATH, {"id": "B1"})
    assert (run.status, len(run.of(e.AttemptStarted))) == ("finished", 1)
    assert run.state.steps[PATH].approval["decision"] == "approve"


def test_a_rejection_runs_its_handler_and_then_fails_the_run() -> None:
    run = Play(gated(policy(), handlers=("reject",)))
    decide(run, BOB, "reject", reason="too much")
    assert (run.status, run.error.code, run.error.message) == ("failed", "approval.rejected", "too much")
    assert run.said == ["reject"]


def test_a_retry_of_a_rejected_gate_asks_again_and_performs_nothing_before() -> None:
    run = Play(gated(policy()))
    decide(run, BOB, "reject")
    first = run.pending(PATH)
    with pytest.raises(Rejected, match="BOB has said no".replace("BOB", BOB.id)):
        run.retry()
    run.do(c.Retry(by=EVE.id, who=EVE))
    assert (run.open, run.status) == ({}, "waiting")
    assert run.pending(PATH) != first
    decide(run, EVE)
    assert run.open == {PATH: 1}


def test_a_retry_behind_a_gate_that_was_passed_does_not_ask_again() -> None:
    run = Play(gated(policy()))
    decide(run, BOB)
    run.fail(PATH, retriable=False)
    assert run.status == "failed"
    run.retry()
    assert PATH in run.open
    assert len(run.of(e.PendingOpened)) == 1


def test_a_retry_of_a_gate_rejected_by_its_deadline_asks_again_first() -> None:
    run = Play(gated(policy(expiry=Expiry("reject"))))
    run.advance(HOUR)
    assert run.status == "failed"
    run.retry()
    assert (run.open, run.status, run.asking) == ({}, "waiting", {PATH})
    decide(run, BOB)
    assert run.open == {PATH: 1}


def test_arguments_that_an_undo_has_changed_are_asked_about_again() -> None:
    run = Play("""
        steps:
          - id: deal
            try:
              - {id: quote, call: t.quote, undo: {call: t.forget}}
              - {id: pay, call: t.pay, with: {amount: "${{ steps.quote.output }}"}, approval: {from: anyone}}
        """)
    for amount in (5, 5, 9):
        run.succeed("deal/quote", amount)
        if run.asking:
            run.answer("deal/pay", by="user:bob", decision="approve")
        assert run.open == {"deal/pay": run.attempt("deal/pay")}
        run.fail("deal/pay", retriable=False)
        run.succeed("deal/quote/~undo")
        run.retry()
    asked = [event.args for event in run.of(e.PendingOpened)]
    assert asked == ['{"amount":5}', '{"amount":9}']
    assert [event.attempt for event in run.of(e.AttemptStarted)] == [1, 3], "no number is given twice"


def test_an_authors_option_skips_the_rest_of_an_iteration_and_asks_again() -> None:
    decided = Hole("steps", lambda steps: steps["gate"]["approval"]["decision"] != "revise")
    decided.steps = frozenset({"gate"})
    plan = gated(policy(options=("approve", "revise", "reject")), handlers=("revise",))
    run = Play(changed(plan, "loop", verb=Repeat(3, "loop[]", until=decided)))
    decide(run, BOB, "revise", reason="shorter")
    assert (run.said, run.status, run.asking) == (["revise"], "waiting", {"loop[1]/gate"})
    decide(run, BOB, path="loop[1]/gate")
    run.succeed("loop[1]/gate")
    assert run.status == "finished"


def test_while_a_run_is_paused_votes_are_taken_and_their_consequences_wait() -> None:
    run = Play(gated(policy(quorum=2)))
    run.pause()
    decide(run, BOB)
    decide(run, EVE)
    assert (run.status, run.open, run.state.pendings[run.pending(PATH)].status) == ("paused", {}, "approve")
    run.resume()
    assert run.open == {PATH: 1}


def test_while_a_run_is_paused_deadlines_escalate_in_time() -> None:
    run = Play(approving(policy(escalations=(escalate(HOUR, from_=["role:cfo"]),))))
    run.pause()
    run.advance(HOUR)
    assert len(run.of(e.PendingEscalated)) == 1
    run.advance(HOUR)
    assert run.state.pendings[run.pending(PATH)].status == "expired"
    run.resume()
    assert run.error.code == "approval.rejected"


def test_a_pause_halts_the_clock_where_the_policy_says_so() -> None:
    run = Play(approving(policy(pause_clock="stop")))
    run.advance(HOUR // 2)
    run.pause()
    assert run.advance(10 * HOUR) is None
    run.resume()
    assert run.timers == [(PATH, "halting_deadline", HOUR // 2)]
    assert run.state.pendings[run.pending(PATH)].opened.deadline == run.now + HOUR // 2
    run.advance(HOUR // 2)
    assert run.error.code == "approval.rejected"


def test_a_stop_voids_what_is_asked_and_a_late_vote_is_told_so() -> None:
    run = Play(approving(policy(remind=(HOUR // 2,))))
    run.stop()
    assert (run.status, run.timers) == ("stopped", [])
    with pytest.raises(Rejected) as refusal:
        decide(run, BOB)
    assert (refusal.value.status, refusal.value.code) == (409, "pending_voided")


def test_reminders_come_in_a_waiting_run_and_leave_it_waiting() -> None:
    run = Play(approving(policy(remind=(HOUR // 2,))))
    run.advance(HOUR // 2)
    assert (run.status, len(run.of(e.PendingReminded))) == ("waiting", 1)
    run.advance(HOUR // 2)
    assert run.error.code == "approval.rejected"


def test_one_vote_of_several_leaves_the_run_waiting_and_repeats_are_known() -> None:
    run = Play(approving(policy(quorum=2)))
    answered = run.answer(PATH, by=BOB, decision="approve")
    assert answered.outcome["answers"][0]["status"] == "accepted"
    again = run.answer(PATH, by=BOB, decision="approve")
    assert (again.already, again.outcome["answers"][0]["status"]) == (True, "already")


AT_MOST_ONCE = changed(gated(policy()), "loop[]/gate", approval=None, delivery="at_most_once")


@pytest.mark.parametrize("decision", ["happened", "again", "fail"])
def test_a_lost_call_that_may_happen_once_waits_for_an_operator(decision: str) -> None:
    run = Play(AT_MOST_ONCE)
    run.lose(PATH)
    assert (run.status, run.asking, run.open) == ("waiting", {PATH}, {})
    with pytest.raises(Rejected):
        decide(run, PLAIN, decision, result=1)
    decide(run, who("local"), decision, result=1)
    if decision == "happened":
        assert run.status == "finished"
    elif decision == "again":
        assert run.open == {PATH: 2}
    else:
        assert run.error.code == "step.in_doubt"


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("decision", ["happened", "again", "fail", "late"])
def test_the_call_that_a_frontend_saw_begin_gets_its_result_behind_a_doubt(decision: str, guarded: bool) -> None:
    plan = changed(gated(policy()), "loop[]/gate", delivery="at_most_once", expose=True)
    run = Play(plan if guarded else changed(plan, "loop[]/gate", approval=None))
    if guarded:
        decide(run, BOB)
    (shown,) = run.state.tool_calls
    run.lose(PATH)
    if decision == "late":
        run.succeed(PATH, {"id": "B1"}, attempt=1)
    else:
        decide(run, who("local"), decision, result={"id": "B1"})
    if decision == "again":
        run.succeed(PATH, {"id": "B1"}, attempt=2)
    (resolved,) = run.of(e.ToolCallResolved)
    assert (resolved.tool_call_id, resolved.error) == (shown, "step.in_doubt" if decision == "fail" else None)
    assert run.state.tool_calls[shown].result == resolved.content


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_late_result_settles_a_doubt_that_nobody_has_decided(succeeded: bool) -> None:
    run = Play(AT_MOST_ONCE)
    run.lose(PATH)
    if succeeded:
        run.succeed(PATH, {"id": "B1"}, attempt=1)
        assert run.status == "finished"
    else:
        run.fail(PATH, attempt=1)
        assert run.error.code == "tool.failed"
    with pytest.raises(Rejected) as refusal:
        decide(run, who("local"), "again")
    assert refusal.value.status == 409


def test_a_late_result_does_not_undo_what_an_operator_decided() -> None:
    run = Play(AT_MOST_ONCE)
    run.lose(PATH)
    decide(run, who("local"), "again")
    with pytest.raises(Rejected) as refusal:
        run.succeed(PATH, attempt=1)
    assert refusal.value.code == "attempt_closed"


def test_a_late_result_of_an_earlier_attempt_settles_no_later_doubt() -> None:
    run = Play(AT_MOST_ONCE)
    run.lose(PATH)
    decide(run, who("local"), "again")
    run.lose(PATH)
    with pytest.raises(Rejected) as refusal:
        run.succeed(PATH, attempt=1)
    assert (refusal.value.code, run.asking) == ("attempt_closed", {PATH})
    run.succeed(PATH, attempt=2)
    assert run.status == "finished"


def test_nothing_but_an_approval_ever_falls_through_to_the_next_step() -> None:
    for expiry in ("reject", "fail"):
        run = Play(gated(policy(expiry=Expiry(expiry))))
        run.advance(HOUR)
        assert (run.status, run.open, run.of(e.AttemptStarted)) == ("failed", {}, [])


# --- a quorum that is worked out --------------------------------------------------------------------------------------


def worked_out(quorum: str) -> Play:
    return Play(
        "input: {type: object, required: [n], properties: {n: {}}}\n"
        f"steps: [{{id: gate, approve: {{title: Go?, from: anyone, quorum: {quorum}}}}}]",
        input={"n": 2},
    )


def test_a_hole_gives_the_quorum_when_it_is_asked() -> None:
    play = worked_out('"${{ input.n }}"')
    play.answer("gate", by="user:bob", decision="approve")
    assert play.asking == {"gate"}
    play.answer("gate", by="user:cy", decision="approve")
    assert play.status == "finished"


@pytest.mark.parametrize("quorum", ["0", "-1", "1.5", "null", "'most'", "true", "[1]"])
def test_a_hole_that_gives_no_quorum_fails_the_step(quorum: str) -> None:
    play = worked_out(f'"${{{{ dyn({quorum}) }}}}"')  # its value is not known before the run
    assert play.status == "failed"
    assert play.state.failure is not None
    assert "expected a number from 1, or `all`" in play.state.failure.message
