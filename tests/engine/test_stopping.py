"""Stop, Terminate and return: what is open is cut off, in order, and nothing goes on behind it."""

from __future__ import annotations

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from tests.engine.test_transitions import paused_in_queue, queued
from tests.support.runs import SECOND, Play
from tests.support.values import require

MIXED = """
steps:
  - id: p
    parallel:
      effect: [{id: a, call: t.f, expose: true}, {id: next, call: t.f}]
      people: [{id: q, call: pick}]
      time: [{id: w, wait: {for: 1h}}]
      backing_off: [{id: r, call: t.f, retry: {max: 1, every: 1h}}]
"""


def mixed() -> Play:
    play = Play(MIXED)
    play.fail("p/backing_off/r")
    return play


def test_stop_voids_people_and_time_and_waits_for_what_is_in_flight() -> None:
    play = mixed()
    decision = play.stop(reason="enough")
    assert decision.outcome == {"id": str(play.run_id), "status": "stopping", "in_flight": 1}
    assert (play.status, play.open, play.timers) == ("stopping", {"p/effect/a": 1}, [("", "grace", 30 * SECOND)])
    assert [play.step(f"p/{leaf}") for leaf in ("people/q", "time/w", "backing_off/r")] == ["stopped"] * 3
    assert play.step("p") == "running", "a block ends after what is inside it"
    assert not decision.cut


def test_a_result_that_comes_within_the_grace_is_recorded_and_ends_the_run() -> None:
    play = mixed()
    play.stop(by="user:eve", reason="enough")
    play.succeed("p/effect/a", {"n": 1})
    assert (play.status, play.step("p/effect/a"), play.step("p")) == ("stopped", "finished", "stopped")
    assert play.step("p/effect/next") == "pending"
    ended = play.events[-1]
    assert isinstance(ended, e.RunStopped)
    assert (ended.by, ended.reason, ended.terminated) == ("user:eve", "enough", False)


@pytest.mark.parametrize("end", ["fail", "lose"])
def test_an_attempt_that_fails_while_stopping_is_stopped_and_not_retried(end: str) -> None:
    play = mixed()
    play.stop()
    getattr(play, end)("p/effect/a")
    assert (play.status, play.step("p/effect/a")) == ("stopped", "stopped")


def test_what_does_not_end_within_the_grace_is_cut_off() -> None:
    play = mixed()
    play.stop()
    assert require(play.advance(30 * SECOND)).cut
    assert play.status == "stopped"
    with pytest.raises(Rejected) as refusal:
        play.succeed("p/effect/a", attempt=1)
    assert refusal.value.code == "attempt_closed"


def test_a_lost_step_that_waits_for_its_turn_is_stopped_with_the_rest() -> None:
    play = Play("steps: [{parallel: {x: [{id: a, call: t.f}], y: [{id: b, call: t.f}]}}]")
    play.pause()
    play.lose("parallel#1/x/a")
    play.stop()
    play.terminate()
    assert (play.status, play.step("parallel#1/x/a"), play.step("parallel#1")) == ("stopped", "stopped", "stopped")


def test_a_late_answer_to_a_stopped_run_is_refused_with_what_stands() -> None:
    play = mixed()
    play.stop()
    with pytest.raises(Rejected) as refusal:
        play.answer("p/people/q", content="x")
    assert (refusal.value.status, refusal.value.code) == (409, "pending_voided")
    assert refusal.value.winner["outcome"] == "voided"


def test_stop_and_terminate_are_idempotent() -> None:
    play = mixed()
    play.stop()
    assert play.stop().already
    play.terminate()
    assert play.status == "stopped"
    assert play.terminate().already
    assert play.stop().already


def test_terminate_cuts_everything_off_and_counts_attempts_in_flight() -> None:
    play = mixed()
    decision = play.terminate(reason="now")
    assert (play.status, decision.outcome["in_flight"], decision.cut) == ("stopped", 1, True)
    assert {play.step(path) for path in play.state.steps} == {"stopped"}
    assert play.of(e.RunStopped)[0].terminated


@pytest.mark.parametrize("begin", [queued, paused_in_queue])
@pytest.mark.parametrize("end", [Play.stop, Play.terminate])
def test_a_run_that_never_began_can_be_stopped(begin: object, end: object) -> None:
    assert callable(begin)
    assert callable(end)
    play = begin()
    end(play)
    assert (play.status, play.of(e.StepStarted)) == ("stopped", [])


def test_pause_and_resume_are_refused_while_stopping() -> None:
    play = mixed()
    play.stop()
    for ask in (play.pause, play.resume, play.retry):
        with pytest.raises(Rejected) as refusal:
            ask()
        assert refusal.value.code == "run_stopping"


def test_return_ends_the_run_from_any_depth_and_stops_what_else_is_open() -> None:
    play = Play(
        """
        steps:
          - id: p
            parallel:
              x: [{id: s, switch: [{default: true, steps: [{id: a, call: t.f}, {id: end, return: {n: 7}}]}]}]
              y: [{id: b, call: t.f}]
              z: [{id: q, call: pick}]
          - {id: never, call: t.f}
        output: {n: 0}
        """
    )
    decision = play.succeed("p/x/s/0/a")
    assert (play.status, play.output, decision.cut) == ("finished", {"n": 7}, True)
    assert {path: play.step(path) for path in ("p", "p/x/s", "p/y/b", "p/z/q", "never")} == {
        "p": "stopped", "p/x/s": "stopped", "p/y/b": "stopped", "p/z/q": "stopped", "never": "pending",
    }  # fmt: skip
    assert play.step("p/x/s/0/end") == "finished"


def test_a_message_that_was_streaming_is_aborted_with_its_step() -> None:
    play = Play("steps: [{id: a, call: t.f, stream: text}]")
    play.happened(e.MessageStarted, message_id="m-1", path="a")
    play.happened(e.MessageChunk, message_id="m-1", n=0, content="so f")
    play.terminate()
    assert play.state.messages["m-1"].aborted
    assert play.types()[0] == "message_ended"


def test_continue_and_retry_of_what_goes_on_by_itself_are_already_so() -> None:
    play = mixed()
    assert play.go_on().already
    assert play.retry().already
    play.stop()
    assert play.do(c.Continue()).already
