"""Blocks: parallel branches in any order, races, switches; and where a Retry goes on inside of them."""

from __future__ import annotations

from itertools import permutations

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from tests.support.runs import HOUR, MINUTE, SECOND, Play

THREE = """
steps:
  - id: p
    join: %s
    parallel:
      a: [{id: x, call: pick}, {id: x2, set: {log: a}}]
      b: [{id: y, call: pick}, {id: y2, set: {log: b}}]
      c: [{id: z, call: pick}, {id: z2, set: {log: c}}]
state: {log: {type: array, default: [], reduce: append}}
output: {log: "${{ state.log }}", winner: "${{ steps.p.output.winner }}"}
"""
LEAVES = {"a": "p/a/x", "b": "p/b/y", "c": "p/c/z"}


@pytest.mark.parametrize("order", list(permutations("abc")), ids="".join)
def test_branches_may_be_answered_in_any_order(order: tuple[str, ...]) -> None:
    play = Play(THREE % "all")
    for branch in order:
        assert play.status == "waiting"
        play.answer(LEAVES[branch], content="x")
    assert (play.status, play.output) == ("finished", {"log": list(order), "winner": None})


@pytest.mark.parametrize("winner", "abc")
def test_the_first_branch_to_finish_wins_and_the_others_are_voided(winner: str) -> None:
    play = Play(THREE % "any")
    play.answer(LEAVES[winner], content="x")
    assert (play.status, play.output) == ("finished", {"log": [winner], "winner": winner})
    for branch in set("abc") - {winner}:
        assert play.step(LEAVES[branch]) == "stopped"
        with pytest.raises(Rejected) as refusal:
            play.answer(LEAVES[branch], content="x")
        assert refusal.value.code == "pending_voided"


def test_a_failing_branch_drops_out_of_a_race_and_the_last_error_is_raised() -> None:
    play = Play(THREE % "any")
    for branch in "abc":
        assert play.status == "waiting"
        play.answer(LEAVES[branch], error=f"{branch} declined")
    assert (play.status, play.error.path) == ("failed", "p/c/z")


def test_a_retried_race_that_all_branches_lost_is_run_by_all_again() -> None:
    play = Play(THREE % "any")
    for branch in "abc":
        play.answer(LEAVES[branch], error="no")
    play.retry()
    assert play.asking == set(LEAVES.values())
    play.answer(LEAVES["b"], error="no")
    play.answer(LEAVES["c"], error="no")
    assert play.status == "waiting"
    play.answer(LEAVES["a"], content="x")
    assert play.output == {"log": ["a"], "winner": "a"}


def test_the_first_failure_stops_the_other_branches_and_is_raised_as_it_is() -> None:
    play = Play(THREE % "all")
    play.answer("p/a/x", content="x")
    play.answer("p/b/y", error="no")
    assert (play.status, play.error.code) == ("failed", "tool.declined")
    assert [play.step(f"p/{leaf}") for leaf in ("a/x2", "b/y", "c/z")] == ["finished", "failed", "stopped"]


def test_a_caught_failure_of_a_branch_goes_on_behind_the_block() -> None:
    play = Play(
        """
        steps:
          - id: p
            parallel: {a: [{id: x, call: t.f}], b: [{id: y, call: t.f}]}
            catch: [{steps: [{say: "caught ${{ error.path }}"}]}]
          - say: after
        """
    )
    decision = play.fail("p/a/x")
    assert (play.status, play.said, decision.cut) == ("finished", ["caught p/a/x", "after"], True)


def test_a_losing_branch_takes_its_timers_with_it() -> None:
    play = Play("steps: [{join: any, parallel: {a: [{wait: {for: 1h}}], b: [{wait: {for: 2h}}]}}]")
    play.advance(HOUR)
    assert (play.status, play.timers) == ("finished", [])


def test_two_timers_that_are_due_at_once_decide_one_race() -> None:
    play = Play("steps: [{join: any, parallel: {a: [{wait: {for: 1h}}], b: [{wait: {for: 1h}}]}}]")
    play.advance(2 * HOUR)
    assert play.status == "finished"
    assert len(play.of(e.TimerFired)) == 1


def test_a_switch_takes_the_first_case_that_is_true() -> None:
    text = "state: {n: {type: integer, default: %d}}\nsteps: [{id: s, switch: [{when: state.n > 1, steps: [{say: a}]}, "
    text += "{when: state.n > 0, steps: [{say: b}]}]}]\noutput: ${{ steps.s.output }}"
    outcomes = [(play.said, play.output) for play in (Play(text % n) for n in (2, 1, 0))]
    assert outcomes == [(["a"], {"case": 0}), (["b"], {"case": 1}), ([], {"case": None})]


def test_a_skipped_step_has_nothing_inside_and_the_flow_goes_on() -> None:
    play = Play("steps: [{id: p, if: false, parallel: {a: [{say: a}], b: [{say: b}]}}, {say: c}]")
    assert (play.status, play.said, play.step("p")) == ("finished", ["c"], "skipped")


# --- the command Retry --------------------------------------------------------------------------------------------


def test_retry_goes_on_from_the_step_that_failed() -> None:
    play = Play("steps: [{id: a, call: t.f}, {id: b, call: t.f}]\noutput: ${{ steps.b.output }}")
    play.succeed("a", 1)
    play.fail("b")
    play.retry()
    assert play.open == {"b": 2}
    play.succeed("b", 5)
    assert (play.status, play.output, play.state.error) == ("finished", 5, None)


def test_retry_keeps_finished_steps_and_repeats_failed_and_stopped_ones() -> None:
    play = Play(
        """
        steps:
          - id: s
            switch:
              - when: true
                steps:
                  - id: p
                    timeout: 10m
                    parallel:
                      done: [{id: a, call: t.f}]
                      fails: [{id: b, call: t.f}, {id: c, call: t.f}]
                      asks: [{id: q, call: pick}]
                      waits: [{wait: {for: 1h}}]
                      works: [{id: w, call: t.f}]
          - {id: last, say: end}
        """
    )
    play.succeed_all("s/0/p/done/a", "s/0/p/fails/b")
    asked = play.pending("s/0/p/asks/q")
    play.fail("s/0/p/fails/c")
    assert play.status == "failed"
    play.advance(HOUR)
    play.retry()
    assert play.open == {"s/0/p/fails/c": 2, "s/0/p/works/w": 2}
    assert play.timers[0][:2] == ("s/0/p/waits/wait#1", "wait")
    assert play.pending("s/0/p/asks/q") != asked
    assert play.state.timeouts["s/0/p"] == play.state.compute_working_time(play.now) + 10 * MINUTE, (
        "the block's clock begins anew"
    )
    play.succeed_all("s/0/p/fails/c", "s/0/p/works/w")
    play.answer("s/0/p/asks/q", content="x")
    play.advance(9 * MINUTE)
    assert play.status == "waiting"


def test_a_handler_that_was_cut_off_by_a_sibling_goes_on_after_a_retry() -> None:
    play = Play(
        """
        steps:
          - id: p
            parallel:
              x: [{id: a, call: t.f, catch: [{steps: [{id: c, call: t.f}, {say: "${{ error.code }}"}]}]}]
              y: [{id: b, call: t.f}]
        """
    )
    play.fail("p/x/a")
    play.fail("p/y/b")
    assert (play.status, play.step("p/x/a/~catch/0/c")) == ("failed", "stopped")
    play.retry()
    assert play.open == {"p/x/a/~catch/0/c": 2, "p/y/b": 2}
    play.succeed_all("p/y/b", "p/x/a/~catch/0/c")
    assert (play.status, play.said) == ("finished", ["tool.failed"])


def test_a_retry_after_an_output_that_failed_evaluates_it_again() -> None:
    play = Play("state: {zero: {type: integer, default: 0}}\nsteps: [{say: hi}]\noutput: ${{ 1 / state.zero }}")
    assert play.error.code == "expression.error"
    play.retry()
    assert (play.status, play.said) == ("failed", ["hi"])
    assert len(play.of(e.RunFailed)) == 2


def test_a_rejected_approval_is_asked_again_by_a_retry() -> None:
    play = Play("steps: [{id: gate, approve: {title: Go?, from: anyone}}]")
    play.answer("gate", content="false")
    play.retry()
    assert (play.status, play.asking) == ("waiting", {"gate"})
    play.answer("gate", content="true")
    assert play.status == "finished"


def test_a_retry_of_a_run_that_waits_for_people_waits_again() -> None:
    play = Play("steps: [{id: q, call: pick}]")
    play.do(c.NeedAttention(reason="refused"))
    play.retry()
    assert (play.status, play.asking) == ("waiting", {"q"})


def test_a_wait_that_became_due_in_need_of_attention_ends_with_the_retry() -> None:
    play = Play("steps: [{wait: {for: 10s}}, {id: a, call: t.f}]")
    play.do(c.NeedAttention(reason="refused"))
    assert play.advance(MINUTE) is None
    play.retry()
    assert play.open == {"a": 1}


def test_the_turn_stays_open_for_a_near_timer_and_ends_for_a_distant_one() -> None:
    assert Play("steps: [{wait: {for: 30s}}]").status == "running"
    assert Play("steps: [{wait: {for: 31s}}]").status == "waiting"
    play = Play("steps: [{wait: {for: 30s}}, {say: hi}]")
    play.advance(30 * SECOND)
    assert (play.status, len(play.of(e.TurnStarted))) == ("finished", 1)


# --- as many branches as are wanted -----------------------------------------------------------------------------------

TWO_OF_THREE = """
steps:
  - id: p
    parallel:
      a: [{id: x, call: t.a, undo: {call: t.u}}]
      b: [{id: y, call: t.b}]
      c: [{id: z, call: t.c}]
    join: 2
  - {id: after, call: t.d}
output: ${{ steps.p.output }}
"""


def test_a_parallel_goes_on_when_its_number_of_branches_finished() -> None:
    play = Play(TWO_OF_THREE).succeed_all("p/c/z")
    assert set(play.open) == {"p/a/x", "p/b/y"}
    play.succeed("p/a/x")
    assert set(play.open) == {"after"}
    assert play.state.steps["p/b/y"].status == "stopped"
    play.succeed("after")
    assert play.output == {"winners": ["c", "a"]}
    assert not play.of(e.StepUndone)


def test_branches_may_fail_while_enough_are_left() -> None:
    play = Play(TWO_OF_THREE)
    play.fail("p/b/y")
    assert set(play.open) == {"p/a/x", "p/c/z"}
    play.fail("p/c/z")
    assert (play.status, play.open) == ("failed", {}) or play.state.steps["p"].status == "failed"


def test_after_a_retry_the_branches_that_had_finished_still_count() -> None:
    play = Play(TWO_OF_THREE.replace(", undo: {call: t.u}", "")).succeed_all("p/a/x")
    play.fail("p/b/y")
    play.fail("p/c/z")
    assert play.status == "failed"
    play.retry()
    assert set(play.open) == {"p/b/y", "p/c/z"}
    play.succeed("p/c/z")
    assert set(play.open) == {"after"}
    play.succeed("after")
    assert play.output == {"winners": ["a", "c"]}
