"""The Pause column of the pause table (docs/run-states.md), cell by cell. Stop's column is in test_stopping.py."""

from __future__ import annotations

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from tests.support.runs import DAY, MINUTE, SECOND, Play

TWO_CALLS = "steps: [{id: a, call: t.f, timeout: 1m, retry: {max: 2, every: 10s, jitter: false}}, {id: b, call: t.f}]"
APPROVAL = """
steps:
  - {id: gate, approve: {title: Go?, from: anyone, deadline: 1h}, on_reject: [{say: no}]}
  - {id: after, call: t.f}
"""


def test_an_attempt_in_flight_is_recorded_and_nothing_begins_until_resume() -> None:
    play = Play(TWO_CALLS)
    play.pause()
    assert (play.status, play.open) == ("paused", {"a": 1})
    play.succeed("a", {"n": 1})
    assert (play.status, play.open, play.step("a")) == ("paused", {}, "finished")
    assert play.of(e.TurnEnded)[-1].reason == "paused"
    play.resume()
    assert (play.status, play.open) == ("running", {"b": 1})


def test_a_failure_in_flight_is_recorded_and_its_back_off_fires_on_resume() -> None:
    play = Play(TWO_CALLS)
    play.pause()
    play.fail("a")
    assert (play.status, play.timers) == ("paused", [("a", "retry", 10 * SECOND)])
    assert play.advance(DAY) is None
    play.resume()
    assert play.open == {"a": 2}


def test_an_attempt_lost_while_paused_begins_again_on_resume() -> None:
    play = Play(TWO_CALLS)
    play.pause()
    play.lose("a")
    assert (play.status, play.open) == ("paused", {})
    play.resume()
    assert play.open == {"a": 2}


def test_the_clock_of_a_timeout_stands_while_paused() -> None:
    play = Play(TWO_CALLS)
    play.advance(50 * SECOND)
    play.pause()
    play.advance(DAY)
    play.resume()
    assert play.advance(9 * SECOND) is None
    assert play.open == {"a": 1}
    play.advance(SECOND)
    assert play.of(e.StepRetried)[-1].error.code == "step.timeout"


def test_the_clock_of_a_block_stands_while_the_run_waits_for_people() -> None:
    play = Play("steps: [{id: s, timeout: 1m, switch: [{default: true, steps: [{id: q, call: pick}, {call: t.f}]}]}]")
    play.advance(DAY)
    assert play.status == "waiting"
    play.answer("s/0/q", content="x")
    assert play.advance(59 * SECOND) is None
    play.advance(SECOND)
    assert (play.status, play.error.code, play.error.path) == ("failed", "step.timeout", "s")


def test_an_answer_is_stored_while_paused_and_its_consequence_waits() -> None:
    play = Play(APPROVAL)
    play.pause()
    play.answer("gate", decision="approve")
    assert (play.status, play.step("gate"), play.open) == ("paused", "finished", {})
    assert play.types() == [
        "turn_started", "vote_cast", "pending_decided", "step_finished", "turn_ended",
    ]  # fmt: skip
    play.resume()
    assert play.open == {"after": 1}


def test_a_rejection_while_paused_is_stored_and_handled_on_resume() -> None:
    play = Play(APPROVAL)
    play.pause()
    play.answer("gate", decision="reject")
    assert (play.status, play.said) == ("paused", [])
    play.resume()
    assert (play.status, play.said, play.error.code) == ("failed", ["no"], "approval.rejected")


def test_a_deadline_runs_and_fires_while_paused_and_its_consequence_waits() -> None:
    play = Play(APPROVAL)
    play.pause()
    play.advance(61 * MINUTE)
    assert (play.status, play.step("gate"), play.said) == ("paused", "failed", [])
    assert play.state.pendings[play.pending("gate")].status == "expired"
    play.resume()
    assert play.said == ["no"]


def test_a_question_asked_before_the_pause_keeps_its_deadline_after_it() -> None:
    play = Play(APPROVAL)
    play.pause()
    play.advance(30 * MINUTE)
    play.resume()
    assert play.timers == [("gate", "deadline", 30 * MINUTE)]


def test_a_wait_that_became_due_while_paused_ends_on_resume() -> None:
    play = Play("steps: [{id: w, wait: {for: 10m}}, {id: a, call: t.f}]")
    play.pause()
    assert play.advance(DAY) is None
    with pytest.raises(Rejected) as refusal:
        play.do(c.TimerFired())
    assert refusal.value.code == "timer_early"
    play.resume()
    assert (play.step("w"), play.open) == ("finished", {"a": 1})


def test_a_wait_that_is_not_due_goes_on_after_resume() -> None:
    play = Play("steps: [{id: w, wait: {for: 10m}}]")
    play.pause()
    play.advance(MINUTE)
    play.resume()
    assert (play.status, play.timers) == ("waiting", [("w", "wait", 9 * MINUTE)])


def test_no_new_branch_or_step_of_a_block_begins_while_paused() -> None:
    play = Play(
        """
        steps:
          - id: first
            call: t.f
          - id: p
            parallel: {x: [{id: a, call: t.f}, {id: b, call: t.f}], y: [{id: c, call: t.f}]}
        """
    )
    play.pause()
    play.succeed("first")
    assert play.step("p") == "pending"
    play.resume()
    play.pause()
    play.succeed("p/x/a")
    assert play.step("p/x/b") == "pending"
    play.resume()
    assert play.open == {"p/x/b": 1, "p/y/c": 1}


def test_a_run_that_returned_does_not_end_while_paused() -> None:
    play = Play(
        """
        steps:
          - parallel:
              left: [{id: a, call: t.f, finally: [{id: clean, call: t.f}]}]
              right: [{id: b, call: t.f}, {return: early}]
        """
    )
    play.succeed("parallel#1/right/b")
    play.pause()
    play.succeed("parallel#1/left/a/~finally/clean")
    assert play.status == "paused"
    play.resume()
    assert (play.status, play.output) == ("finished", "early")


def test_pause_is_idempotent_and_says_who_and_why() -> None:
    play = Play(APPROVAL)
    first = play.pause(by="user:eve", reason="a look")
    again = play.pause(by="user:bob", reason="me too")
    assert again.already
    assert first.outcome == again.outcome == {"id": str(play.run_id), "status": "paused"}
    assert [(event.by, event.reason) for event in play.of(e.RunPaused)] == [("user:eve", "a look")]


def test_resume_of_a_run_that_is_not_paused_is_already_so() -> None:
    play = Play(APPROVAL)
    assert play.resume().already
    assert play.of(e.RunResumed) == []


@pytest.mark.parametrize("end", [Play.stop, Play.terminate])
def test_stop_and_terminate_work_while_paused(end: object) -> None:
    play = Play(APPROVAL)
    play.pause()
    assert callable(end)
    end(play)
    assert (play.status, play.step("gate")) == ("stopped", "stopped")
    assert play.state.pendings[play.pending("gate")].status == "voided"


@pytest.mark.parametrize("ask", [Play.pause, Play.resume, Play.retry, Play.signal])
def test_what_asks_something_of_an_ended_run_is_refused_with_what_stands(ask: object) -> None:
    play = Play("steps: [{say: hi}]")
    assert callable(ask)
    with pytest.raises(Rejected) as refusal:
        ask(play, "x")
    assert (refusal.value.status, refusal.value.code) == (409, "run_ended")
    assert refusal.value.winner == {"status": "finished", "seq": play.state.seq}
    asks_to_go_on = any(word in refusal.value.detail for word in ("retry", "resume"))
    assert ("(rerun, fork)" in refusal.value.detail) == asks_to_go_on


def test_work_that_fell_due_in_a_pause_happens_as_of_the_resumption() -> None:
    play = Play("steps: [{id: w, wait: {for: 10m}}, {id: a, call: t.f}]")
    play.pause()
    play.now += 60 * MINUTE
    play.resume()
    assert {event.at for event in play.last} == {play.now}


def test_a_runs_limit_that_passed_in_a_pause_is_reached_at_its_resumption() -> None:
    play = Play("limits: {duration: 30m}\nsteps: [{id: a, call: t.f}]")
    play.pause()
    play.now += 60 * MINUTE
    play.resume()
    assert (play.error.code, play.error.at) == ("limit.duration", play.now)
