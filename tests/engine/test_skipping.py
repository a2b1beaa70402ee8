"""A step is skipped by who controls the run: the flow goes on behind it, and nobody has approved anything."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from tests.support.runs import HOUR, Play

CHAIN = """
    steps:
      - {id: a, call: t}
      - {id: b, call: t, with: {x: "${{ steps.a.output }}"}, retry: {max: 1, every: 1h}}
      - {id: d, call: t, with: {x: "${{ steps.b.output }}"}}
"""


def refusal(play: Play, path: str, output: Any = None) -> Rejected:
    before = play.state
    with pytest.raises(Rejected) as refused:
        play.skip(path, output)
    assert play.state is before
    return refused.value


def failed_in_b() -> Play:
    play = Play(CHAIN)
    play.succeed("a", 1)
    play.fail("b")
    play.advance(HOUR)
    play.fail("b")
    assert play.status == "failed"
    return play


def test_a_failed_run_goes_on_after_the_failed_step_with_a_given_output() -> None:
    play = failed_in_b()
    play.skip("b", {"made": "up"})
    assert (play.status, play.step("b"), play.open) == ("running", "skipped", {"d": 1})
    assert play.state.steps["d"].args == '{"x":{"made":"up"}}'
    (event,) = [each for each in play.of(e.StepSkipped) if each.path == "b"]
    assert (event.by, event.output) == ("user:op", {"made": "up"})
    play.succeed("d")
    assert play.status == "finished"


def test_without_an_output_it_is_null() -> None:
    play = failed_in_b()
    play.skip("b")
    assert play.state.steps["d"].args == '{"x":null}'


def test_a_step_between_two_attempts_is_skipped_and_has_no_further_one() -> None:
    play = Play(CHAIN)
    play.succeed("a", 1)
    play.fail("b")
    assert play.status == "waiting"
    play.skip("b", 2)
    assert (play.open, play.timers) == ({"d": 1}, [])


def test_what_is_in_flight_is_not_skipped() -> None:
    refused = refusal(Play(CHAIN), "a")
    assert (refused.status, refused.code) == (409, "step_in_flight")


@pytest.mark.parametrize("path", ["d", "nothing", "", "a"])
def test_a_skip_of_a_step_not_reached_is_refused_with_those_that_are(path: str) -> None:
    refused = refusal(failed_in_b(), path)
    assert (refused.status, refused.code) == (422, "skip.not_there")
    assert [finding["message"] for finding in refused.findings or []] == ["b"]


GATED = "steps: [{id: pay, call: t, with: {n: 1}, approval: {from: anyone}}, {id: d, call: t}]"


def test_a_gated_call_that_is_skipped_performs_nothing_and_is_not_approved() -> None:
    play = Play(GATED)
    play.skip("pay", {"paid": 1})
    assert play.open == {"d": 1}
    assert [each.reason for each in play.of(e.PendingVoided)] == ["it was skipped"]
    assert play.state.steps["pay"].approval is None
    assert not play.of(e.PendingDecided)
    with pytest.raises(Rejected) as refused:
        play.answer("pay", decision="approve")
    assert refused.value.status == 409


def test_an_approve_is_skipped_without_an_output_that_could_say_yes() -> None:
    play = Play("steps: [{id: ok, approve: {title: Sure?, from: anyone}}, {id: d, call: t}]")
    refused = refusal(play, "ok", {"decision": "approve"})
    assert (refused.status, refused.code) == (422, "skip.approval")
    play.skip("ok")
    assert (play.step("ok"), play.open) == ("skipped", {"d": 1})


def test_the_finally_of_a_skipped_step_runs_and_then_the_flow_goes_on() -> None:
    play = Play(
        """
    steps:
      - {id: a, wait_for: {event: ping, deadline: 1d}, finally: [{id: tidy, call: t}]}
      - {id: d, call: t}
    """
    )
    play.skip("a")
    assert (play.open, play.timers, dict(play.state.subscriptions)) == ({"a/~finally/tidy": 1}, [], {})
    play.succeed("a/~finally/tidy")
    assert play.open == {"d": 1}


def test_a_skip_ends_the_branch_of_a_parallel_and_the_item_of_a_loop() -> None:
    play = Play(
        """
    steps:
      - id: p
        parallel:
          a: [{id: x, wait: {for: 1d}}]
          b:
            - id: each
              for_each: {items: [1, 2], as: n, steps: [{id: y, ask: {title: Y, form: {properties: {}}, from: anyone}}]}
      - {id: d, call: t}
    """
    )
    play.skip("p/a/x")
    while play.asking:
        play.skip(min(play.asking), 1)
    assert (play.step("p"), play.open) == ("finished", {"d": 1})


def test_a_failed_step_of_a_block_is_skipped_and_the_block_goes_on() -> None:
    play = Play("steps: [{id: p, parallel: {a: [{id: x, call: t}], b: [{id: y, call: t}]}}, {id: d, call: t}]")
    play.succeed("p/a/x")
    play.fail("p/b/y")
    assert play.status == "failed"
    play.skip("p/b/y", 1)
    assert (play.step("p"), play.open) == ("finished", {"d": 1})


def test_a_paused_run_stays_paused_and_goes_on_behind_the_skip_at_resume() -> None:
    play = Play("steps: [{id: a, wait: {for: 1d}}, {id: d, call: t}]")
    play.pause()
    play.skip("a")
    assert (play.status, play.open) == ("paused", {})
    play.resume()
    assert play.open == {"d": 1}


def test_a_step_that_has_not_begun_in_a_paused_run_is_skipped_also_a_block() -> None:
    play = Play("steps: [{id: a, call: t}, {id: p, try: [{id: x, call: t}]}, {id: d, call: t}]")
    play.pause()
    play.succeed("a")
    play.skip("p", "none")
    play.resume()
    assert (play.step("p"), play.open) == ("skipped", {"d": 1})


def test_a_block_that_began_is_not_skipped_as_a_whole_nor_is_cleanup() -> None:
    play = Play(
        "steps: [{id: a, call: t, undo: {call: t, with: {b: 1}, retry: {max: 1, every: 1h}}}, {id: b, call: t}]"
    )
    play.succeed("a")
    play.fail("b")
    play.fail("a/~undo")
    assert play.timers
    assert refusal(play, "a/~undo").code == "skip.not_there"
    play = Play("steps: [{id: p, try: [{id: x, wait: {for: 1d}}]}]")
    assert [f["message"] for f in refusal(play, "p").findings or []] == ["p/x"]


def test_a_step_lost_too_often_is_skipped_and_needs_no_attention() -> None:
    play = Play("steps: [{id: a, call: t}, {id: d, call: t}]")
    for _ in range(5):
        play.lose("a")
    assert play.status == "needs_attention"
    play.skip("a", 1)
    assert (play.status, play.open) == ("running", {"d": 1})


def test_a_child_that_is_awaited_is_stopped_when_its_step_is_skipped() -> None:
    play = Play("steps: [{id: below, run: other, with: {}}, {id: d, call: t}]")
    with pytest.raises(Rejected, match="people decide"):
        play.skip("below", 3)  # as far as is known
    decision = play.do(c.Skip(by="user:op", path="below", output=3, asks_below=False))
    assert [message.kind for message in decision.outbox] == ["stop"]
    assert play.open == {"d": 1}


@pytest.mark.parametrize("end", ["stop", "finish"])
def test_a_run_that_has_ended_well_or_is_stopping_skips_nothing(end: str) -> None:
    play = Play("steps: [{id: a, call: t}]")
    if end == "stop":
        play.stop()
    else:
        play.succeed("a")
    assert refusal(play, "a").status == 409


def test_a_skipped_step_is_never_undone() -> None:
    play = Play("steps: [{id: a, call: t, undo: {call: t, with: {b: 1}}}, {id: b, call: t}]")
    play.fail("a")
    play.skip("a", 1)
    play.fail("b")
    assert play.status == "failed"
    assert not play.of(e.StepUndone)


def test_a_run_that_holds_a_key_waits_for_its_slot_again() -> None:
    play = Play("concurrency: {key: x}\nsteps: [{id: a, call: t}, {id: d, call: t}]", start=False)
    play.start(key="sample:x")
    play.fail("a")
    play.skip("a")
    assert play.status == "queued"
    play.do(c.Admit())
    assert play.open == {"d": 1}
