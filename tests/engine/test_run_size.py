"""What one run may grow to: open waits, and the length of its log. Beyond it ends, in order, whatever it is doing."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.state import run_size
from hai_flow.engine.state.bounds import Bounds
from hai_flow.errors import Rejected
from tests.support.runs import HOUR, MINUTE, SECOND, Play

MANY = """
input: {type: object, properties: {names: {type: array, items: {type: string}}}}
steps:
  - id: all
    for_each:
      items: ${{ input.names }}
      max_parallel: 20
      on_failure: %s
      steps: [%s]
"""
WAITS = {
    "an answer": "{ask: {title: '?', form: {type: object}}}",
    "an approval": "{approve: {title: Go?, from: anyone, deadline: 1h}}",
    "a frontend": "{call: pick}",
    "a gate": "{call: t.f, approval: {from: anyone}}",
    "an event": "{wait_for: {event: ping, deadline: 1h}}",
    "a time": "{wait: {for: 1h}}",
    "a child run": "{run: other, with: {}}",
}
ENDLESS = """
steps:
  - id: sure
    call: t.book
    undo: {call: t.back}
  - id: rounds
    try:
      - repeat:
          max: 10000
          steps: [{say: "on and on"}]
    catch: [{errors: ["*", limit.log], steps: [{say: never}]}]
    finally: [{call: t.clean}]
catch: [{errors: ["*", limit.log], steps: [{say: never}]}]
finally: [{say: bye}]
"""


def names(count: int) -> dict[str, Any]:
    return {"names": [f"n{n}" for n in range(count)]}


# --- waits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(WAITS))
def test_a_run_at_its_limit_of_waits_fails_the_step_of_the_next(kind: str) -> None:
    play = Play(MANY % ("isolate", WAITS[kind]), input=names(8), limits=Bounds(waits=5))
    play.settle()
    loop = play.state.steps["all"].loop
    assert loop is not None
    ended = [item.error and item.error.code for item in loop.results.values()]
    assert ended == ["limit.waits"] * 3
    assert play.status in ("waiting", "running")
    assert (
        len({*play.asking, *play.state.subscriptions, *play.state.children, *(t.path for t in play.state.timers)}) == 5
    )


def test_waits_up_to_the_limit_are_no_fault_and_an_end_makes_room() -> None:
    play = Play(MANY % ("stop", WAITS["an approval"]), input=names(5), limits=Bounds(waits=5))
    play.settle()
    for path in sorted(play.asking):
        play.answer(path, decision="approve")
    assert play.status == "finished"


def test_a_question_with_reminders_is_one_wait() -> None:
    reminded = "{approve: {title: Go?, from: anyone, deadline: 1h, remind: [10m, 20m]}}"
    play = Play(MANY % ("stop", reminded), input=names(5), limits=Bounds(waits=5))
    play.settle()
    assert len(play.asking) == 5


def test_too_many_waits_fail_the_run_unless_a_catch_names_them() -> None:
    play = Play(MANY % ("stop", WAITS["an approval"]), input=names(6), limits=Bounds(waits=5))
    play.settle()
    assert (play.status, play.error.code) == ("failed", "limit.waits")
    assert "max_parallel" in play.error.message


# --- the log ----------------------------------------------------------------------------------------------------------


def until_it_ends(play: Play) -> None:
    """Every effect succeeds, and whatever goes on by itself does."""
    for _ in range(2_000):
        play.settle()
        for path in sorted(play.open):
            play.succeed(path)
        if play.state.ended:
            return
    raise AssertionError(f"the run is {play.status} after {play.state.seq} events")


@pytest.mark.parametrize("warned", [True, False])
def test_a_run_whose_log_is_full_is_warned_fails_and_cleans_up(*, warned: bool) -> None:
    play = Play(ENDLESS, limits=Bounds(run_events=1_000, events=120 if warned else 256))
    until_it_ends(play)
    assert (play.status, play.error.code) == ("failed", "limit.log")
    (warning,) = play.of(e.WarningRaised)
    assert (warning.code, "1000 events" in warning.message) == ("limit.near", True)
    at = [event.type for event in play.events].index("warning_raised")
    assert 800 <= at < 1_000
    assert play.step("sure") == "undone"
    assert play.step("rounds/~finally/call#1") == "finished"
    assert play.said[-1] == "bye"
    assert "never" not in play.said, "no catch takes it"
    assert 1_000 <= play.state.seq < 1_250


def test_a_run_that_waits_is_ended_by_the_next_thing_that_happens_to_it() -> None:
    play = Play("steps: [{parallel: {a: [{call: pick}], b: [{wait_for: {event: ping, deadline: 1d}}]}}]")
    play.limits = Bounds(run_events=play.state.seq)
    play.signal("s-1", "ping")
    assert (play.status, play.error.code, play.asking) == ("failed", "limit.log", set())


def test_attempts_in_flight_are_cut_off_and_their_performers_fenced() -> None:
    play = Play("steps: [{parallel: {a: [{call: t.f}], b: [{call: t.f}, {call: t.f}]}}]")
    play.limits = Bounds(run_events=play.state.seq)
    decision = play.succeed(sorted(play.open)[1])
    assert decision.cut
    assert (play.status, play.open) == ("failed", {})


def test_what_only_streams_is_ended_by_going_on() -> None:
    play = Play("steps: [{call: t.f, finally: [{say: bye}]}]")
    assert play.go_on().already
    play.limits = Bounds(run_events=play.state.seq)
    play.go_on()
    assert (play.status, play.error.code, play.said) == ("failed", "limit.log", ["bye"])


def test_bytes_count_as_events_do_and_are_told_by_who_stores_them() -> None:
    play = Play("steps: [{call: t.f}, {say: on}]")
    done = c.StepSucceeded(path="call#1", attempt=1, output=None)
    limits = Bounds(run_bytes=1_000)
    for size, types in ((799, []), (800, ["limit.near"]), (1_000, ["limit.near"])):
        decided = decide(play.plan, play.state, done, play.now, limits, size)
        assert [event.code for event in decided.events if isinstance(event, e.WarningRaised)] == types
        assert decided.state.status == ("failed" if size == 1_000 else "finished")


def test_cleaning_up_that_does_not_end_either_is_cut_off() -> None:
    play = Play(
        "steps: [{try: [{fail: No.}], finally: [{repeat: {max: 10000, steps: [{call: t.f}]}}]}]",
        limits=Bounds(run_events=400),
    )
    play._book.spared = True
    until_it_ends(play)
    assert (play.status, play.error.code) == ("failed", "limit.log")
    assert "cut off, too" in play.error.message
    assert 500 <= play.state.seq < 560


def test_a_run_cut_off_in_its_undo_names_the_effects_not_undone() -> None:
    play = Play(
        """
        steps:
          - {id: one, call: t.f, undo: {call: t.back, retry: {max: 100, every: 1s}}}
          - {id: two, call: t.f, undo: {call: t.back}}
          - {fail: No.}
        """,
        limits=Bounds(run_events=60),
    )
    play._book.spared = True
    play.succeed_all("one", "two")
    play.fail("two/~undo", retriable=False)
    while not play.state.ended:
        play.fail("one/~undo")
        play.advance(SECOND)
    assert (play.error.code, play.error.data) == ("undo.failed", {"undone": [], "failed": ["two"]})
    assert play.error.cause is not None
    assert "cut off, too" in play.error.cause.message


def test_a_stop_of_a_run_whose_log_is_full_cleans_up_and_ends() -> None:
    play = Play("steps: [{call: t.f, undo: {call: t.back}}, {repeat: {max: 30, steps: [{say: on}]}}, {call: pick}]")
    play.succeed("call#1")
    play.settle()
    play.limits = Bounds(run_events=play.state.seq)
    play.stop()
    until_it_ends(play)
    assert (play.status, play.step("call#1")) == ("stopped", "undone")


def test_a_run_whose_log_is_full_is_not_retried() -> None:
    play = Play("steps: [{call: t.f}]")
    play.fail("call#1")
    play.limits = Bounds(run_events=play.state.seq)
    with pytest.raises(Rejected) as refused:
        play.retry()
    assert (refused.value.status, refused.value.code) == (409, "run_full")


def test_a_paused_run_whose_log_is_full_waits_until_it_is_resumed() -> None:
    play = Play("steps: [{call: pick}]")
    play.pause()
    play.limits = Bounds(run_events=play.state.seq)
    play.answer("call#1", content="x")
    assert play.status == "paused"
    play.resume()
    assert (play.status, play.error.code) == ("failed", "limit.log")


def test_a_warning_is_given_once_also_by_a_process_that_reads_the_log() -> None:
    play = Play("steps: [{call: pick}, {call: pick}, {say: done}]")
    play.limits = Bounds(run_events=play.state.seq + 10)
    play.answer("call#1", content="x")
    play.answer("call#2", content="x")
    assert len(play.of(e.WarningRaised)) <= 1
    assert run_size.is_due(play.state, 0, play.limits) is False
    play.advance(HOUR + MINUTE)
