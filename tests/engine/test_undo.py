"""`undo` and `finally`: what finished is taken back, newest first, and what was begun is cleaned up.
docs/language.md#retry-catch-undo."""

from __future__ import annotations

import pytest

from hai_flow.engine import events as e
from tests.support.runs import HOUR, MINUTE, Play

TWO = """
steps:
  - {id: a, call: t.f, undo: {call: t.back, with: {what: "${{ steps.a.output }}"}}}
  - {id: b, call: t.f, undo: {call: t.back, with: {what: "${{ steps.b.output }}"}}}
  - {id: c, call: t.f}
"""


def two_done(text: str = TWO) -> Play:
    play = Play(text)
    play.succeed("a", "A")
    play.succeed("b", "B")
    return play


def undo_all(play: Play) -> list[str]:
    """Let every undo succeed that comes; their paths in order."""
    order = []
    while undoing := [path for path in play.open if path.endswith("~undo")]:
        (path,) = undoing
        order.append(path)
        play.succeed(path)
    return order


def test_a_failed_run_undoes_finished_work_newest_first_one_at_a_time() -> None:
    play = two_done()
    play.fail("c")
    assert play.status == "running"
    assert play.state.steps["b/~undo"].args == '{"what":"B"}'
    assert undo_all(play) == ["b/~undo", "a/~undo"]
    assert (play.status, play.error.code, play.error.path) == ("failed", "tool.failed", "c")
    assert (play.step("a"), play.step("b")) == ("undone", "undone")


def test_a_run_that_finishes_undoes_nothing() -> None:
    play = two_done()
    play.succeed("c")
    assert (play.status, play.step("a")) == ("finished", "finished")


def test_a_stop_undoes_too_and_then_the_run_is_stopped() -> None:
    play = two_done()
    play.stop()
    assert play.status == "stopping"
    play.fail("c", "tool.failed")
    assert undo_all(play) == ["b/~undo", "a/~undo"]
    assert play.status == "stopped"


def test_an_effect_finished_within_a_stops_grace_is_undone_first() -> None:
    play = Play("steps:\n  - {id: a, call: t.f, undo: {call: t.back}}\n  - {id: b, call: t.f, undo: {call: t.back}}")
    play.succeed("a")
    play.stop()
    play.succeed("b")
    assert undo_all(play) == ["b/~undo", "a/~undo"]
    assert play.status == "stopped"


def test_terminate_undoes_nothing() -> None:
    play = two_done()
    play.terminate()
    assert (play.status, play.step("a")) == ("stopped", "finished")


def test_return_undoes_nothing() -> None:
    play = Play("steps:\n  - {id: a, call: t.f, undo: {call: t.back}}\n  - {return: 1}").succeed_all("a")
    assert (play.status, play.output) == ("finished", 1)


TRIED = """
steps:
  - {id: before, call: t.f, undo: {call: t.back}}
  - id: wrap
    try:
      - {id: a, call: t.f, undo: {call: t.back}}
      - {id: b, call: t.f}
    catch: [{steps: [{id: told, say: "caught ${{ error.code }}"}]}]
    finally: [{id: tidied, say: tidied}]
  - {id: after, call: t.f}
"""


def test_return_undoes_no_item_that_it_cuts_off_either() -> None:
    play = Play(
        """
        steps:
          - id: each
            for_each:
              items: [x]
              steps:
                - {id: a, call: t.f, undo: {call: t.back}}
                - {return: early}
        """
    )
    play.succeed("each[x]/a")
    assert (play.status, play.output, play.step("each[x]/a")) == ("finished", "early", "finished")


@pytest.mark.parametrize("clean_up", ["", ", finally: [{id: clean, call: t.f}]"])
def test_an_item_of_a_branch_that_loses_its_race_is_not_undone(clean_up: str) -> None:
    play = Play(
        f"""
        steps:
          - id: race
            join: any
            parallel:
              fast: [{{id: b, call: t.f}}]
              slow:
                - id: each
                  for_each:
                    items: [x]
                    steps:
                      - {{id: a, call: t.f, undo: {{call: t.back}}}}
                      - {{id: c, call: t.f{clean_up}}}
        """
    )
    play.succeed_all("race/slow/each[x]/a", "race/fast/b")
    if clean_up:
        play.succeed("race/slow/each[x]/c/~finally/clean")
    assert (play.status, play.step("race/slow/each[x]/a")) == ("finished", "finished")


def test_what_a_try_held_is_undone_before_its_catch_and_its_finally() -> None:
    play = Play(TRIED).succeed_all("before", "wrap/a")
    play.fail("wrap/b")
    assert (set(play.open), play.said) == ({"wrap/a/~undo"}, [])
    play.succeed("wrap/a/~undo")
    assert play.said == ["caught tool.failed", "tidied"]
    assert set(play.open) == {"after"}
    assert play.step("before") == "finished", "it stands outside of the try"
    play.succeed("after")
    assert play.status == "finished"


def test_caught_and_undone_work_is_not_undone_again_at_a_later_failure() -> None:
    play = Play(TRIED).succeed_all("before", "wrap/a")
    play.fail("wrap/b")
    play.succeed("wrap/a/~undo")
    play.fail("after")
    assert undo_all(play) == ["before/~undo"]
    assert play.status == "failed"


def test_what_a_catch_has_done_is_undone_when_the_catch_fails() -> None:
    play = Play(
        """
        steps:
          - {id: a, call: t.f}
        catch:
          - steps:
              - {id: amends, call: t.f, undo: {call: t.back}}
              - {id: b, call: t.f}
        finally: [{say: tidied}]
        """
    )
    play.fail("a")
    play.succeed("~catch/0/amends")
    play.fail("~catch/0/b", "tool.other")
    assert (set(play.open), play.said) == ({"~catch/0/amends/~undo"}, [])
    play.succeed("~catch/0/amends/~undo")
    assert (play.status, play.error.code, play.said) == ("failed", "tool.other", ["tidied"])
    assert play.error.cause is not None
    assert play.error.cause.code == "tool.failed"


def test_a_stop_inside_a_catch_undoes_its_effects_and_runs_the_finally() -> None:
    play = Play(
        """
        steps:
          - id: wrap
            try: [{id: a, call: t.f}]
            catch: [{steps: [{id: amends, call: t.f, undo: {call: t.back}}, {id: b, call: t.f}]}]
            finally: [{say: tidied}]
        """
    )
    play.fail("wrap/a")
    play.succeed("wrap/~catch/0/amends")
    play.stop()
    play.succeed("wrap/~catch/0/b")
    assert undo_all(play) == ["wrap/~catch/0/amends/~undo"]
    assert (play.status, play.said) == ("stopped", ["tidied"])


def test_a_step_that_its_own_finally_fails_is_undone_itself() -> None:
    play = Play(
        """
        steps:
          - id: a
            call: t.f
            undo: {call: t.back}
            catch: [{errors: [nothing.of_it], steps: [{say: caught}]}]
            finally: [{id: c, call: t.f}]
        """
    )
    play.succeed("a")
    play.fail("a/~finally/c")
    assert undo_all(play) == ["a/~undo"]
    assert (play.status, play.error.path) == ("failed", "a/~finally/c")


def test_an_undo_is_retried_and_given_up_without_stopping_the_others() -> None:
    play = two_done()
    play.fail("c")
    for _ in range(6):
        play.fail("b/~undo", "tool.unavailable")
        play.advance(MINUTE)
    assert set(play.open) == {"a/~undo"}
    play.succeed("a/~undo")
    assert (play.status, play.error.code) == ("failed", "undo.failed")
    assert play.error.data == {"undone": ["a"], "failed": ["b"]}
    assert play.error.cause is not None
    assert play.error.cause.code == "tool.failed"


def test_a_failed_undo_is_never_caught() -> None:
    play = Play(TRIED.replace("catch: [{", 'catch: [{errors: ["*"], ')).succeed_all("before", "wrap/a")
    play.fail("wrap/b")
    play.fail("wrap/a/~undo", "tool.invalid_result")
    assert play.said == ["tidied"]
    assert undo_all(play) == ["before/~undo"]
    assert (play.status, play.error.code) == ("failed", "undo.failed")


def test_an_undo_fails_behind_the_finally_of_what_it_takes_back() -> None:
    play = Play(
        """
        steps:
          - id: each
            for_each:
              items: [x]
              steps:
                - {id: a, call: t.f, undo: {call: t.back}, finally: [{say: clean}]}
                - {id: b, call: t.f}
        """
    )
    play.succeed("each[x]/a")
    play.fail("each[x]/b")
    play.fail("each[x]/a/~undo", "tool.invalid_result")
    assert (play.status, play.error.code) == ("failed", "undo.failed")
    assert play.said == ["clean"]


def test_a_failed_undo_of_a_branch_being_cut_off_fails_the_run() -> None:
    play = Play(
        """
        steps:
          - {id: before, call: t.f, undo: {call: t.back}}
          - id: both
            parallel:
              left: [{id: block, try: [{id: a, call: t.f, undo: {call: t.back}}, {id: b, call: t.f}]}]
              right: [{id: c, call: t.f}]
            catch: [{steps: [{say: caught}]}]
        """
    )
    play.succeed_all("before", "both/left/block/a")
    play.fail("both/left/block/b")
    play.fail("both/right/c")
    play.fail("both/left/block/a/~undo", "tool.invalid_result")
    assert play.said == ["caught"]
    assert undo_all(play) == ["before/~undo"]
    assert (play.status, play.error.code) == ("failed", "undo.failed")
    assert play.error.data == {"undone": ["before"], "failed": ["both/left/block/a"]}


def test_a_stop_in_which_an_undo_fails_ends_failed() -> None:
    play = two_done()
    play.stop()
    play.fail("c", "tool.failed")
    play.fail("b/~undo", "tool.invalid_result")
    play.succeed("a/~undo")
    assert (play.status, play.error.code, play.error.data) == (
        "failed",
        "undo.failed",
        {"undone": ["a"], "failed": ["b"]},
    )


def test_an_undo_that_is_lost_with_its_process_is_performed_again() -> None:
    play = two_done()
    play.fail("c")
    play.lose("b/~undo")
    assert play.open == {"b/~undo": 2}
    assert undo_all(play) == ["b/~undo", "a/~undo"]


ROLLOUT = """
steps:
  - id: each
    for_each:
      items: [a, b, c]
      max_parallel: 3
      on_failure: {on_failure}
      rollback: {rollback}
      steps:
        - {{id: deploy, call: t.f, undo: {{call: t.back}}}}
        - {{id: check, call: t.f}}
output: ${{{{ steps.each.output }}}}
"""


def rollout(on_failure: str, rollback: str) -> Play:
    play = Play(ROLLOUT.format(on_failure=on_failure, rollback=rollback))
    for key in ("a", "b", "c"):
        play.succeed(f"each[{key}]/deploy")
    return play


def test_an_isolated_item_that_fails_is_rolled_back_and_the_others_go_on() -> None:
    play = rollout("isolate", "item")
    play.fail("each[b]/check")
    assert "each[b]/deploy/~undo" in play.open
    play.succeed("each[b]/deploy/~undo")
    for key in ("a", "c"):
        play.succeed(f"each[{key}]/check")
    assert (play.status, [result["status"] for result in play.output]) == (
        "finished",
        ["finished", "failed", "finished"],
    )


def test_a_failure_that_stops_a_loop_undoes_failed_and_stopped_items() -> None:
    play = rollout("stop", "item")
    play.succeed("each[a]/check")
    play.fail("each[b]/check")
    undone = set(undo_all_open(play))
    assert undone == {"each[b]/deploy/~undo", "each[c]/deploy/~undo", "each[a]/deploy/~undo"}, "the run fails: all is"
    assert (play.status, play.error.path) == ("failed", "each[b]/check")


def undo_all_open(play: Play) -> list[str]:
    order = []
    while undoing := sorted(path for path in play.open if path.endswith("~undo")):
        order.append(undoing[0])
        play.succeed(undoing[0])
    return order


def test_rollback_none_leaves_items_to_the_scope_around() -> None:
    play = rollout("isolate", "none")
    play.fail("each[b]/check")
    for key in ("a", "c"):
        play.succeed(f"each[{key}]/check")
    assert play.status == "finished"
    assert not play.of(e.StepUndone)


def test_rollback_all_undoes_every_item_and_raises_the_first_error() -> None:
    play = rollout("isolate", "all")
    play.succeed("each[a]/check")
    play.fail("each[b]/check")
    assert set(undo_all(play)) == {f"each[{key}]/deploy/~undo" for key in "abc"}
    assert (play.status, play.error.path) == ("failed", "each[b]/check")


def test_finally_runs_behind_a_step_that_finished_failed_or_was_stopped() -> None:
    text = "steps: [{id: a, call: t.f, finally: [{id: tidy, call: t.f}]}, {id: b, call: t.f}]"
    play = Play(text)
    play.succeed("a", 1)
    assert set(play.open) == {"a/~finally/tidy"}
    play.succeed("a/~finally/tidy")
    assert set(play.open) == {"b"}
    play = Play(text)
    play.fail("a")
    assert set(play.open) == {"a/~finally/tidy"}
    play.succeed("a/~finally/tidy")
    assert (play.status, play.error.path) == ("failed", "a")
    play = Play(text)
    play.stop()
    play.fail("a")
    assert (play.status, set(play.open)) == ("stopping", {"a/~finally/tidy"})
    play.succeed("a/~finally/tidy")
    assert play.status == "stopped"


def test_a_skipped_step_has_no_finally() -> None:
    play = Play("steps: [{id: a, if: 1 > 2, call: t.f, finally: [{say: tidy}]}]")
    assert (play.status, play.said) == ("finished", [])


def test_an_error_of_finally_fails_the_step_unless_an_earlier_one_stands() -> None:
    text = "steps: [{id: a, call: t.f, finally: [{fail: {message: worse, code: worse}}]}]"
    play = Play(text).succeed_all("a")
    assert (play.status, play.error.code) == ("failed", "worse")
    play = Play(text)
    play.fail("a", "tool.failed")
    assert (play.status, play.error.code) == ("failed", "tool.failed")


def test_the_documents_finally_runs_last_and_keeps_the_outcome() -> None:
    text = """
    steps: [{id: a, call: t.f}]
    finally: [{say: bye}]
    output: done
    """
    play = Play(text).succeed_all("a")
    assert (play.status, play.output, play.said) == ("finished", "done", ["bye"])
    play = Play(text)
    play.fail("a")
    assert (play.status, play.error.path, play.said) == ("failed", "a", ["bye"])
    play = Play(text)
    play.stop()
    play.fail("a")
    assert (play.status, play.said) == ("stopped", ["bye"])


def test_return_runs_every_finally_around_it() -> None:
    play = Play(
        """
        steps:
          - id: out
            try:
              - id: in
                try: [{return: early}]
                finally: [{say: inner}]
            finally: [{say: outer}]
        finally: [{say: last}]
        """.replace("id: in\n", "id: inn\n")
    )
    assert (play.status, play.output, play.said) == ("finished", "early", ["inner", "outer", "last"])


def test_a_branch_that_loses_runs_its_finally_before_the_race_is_over() -> None:
    play = Play(
        """
        steps:
          - id: race
            join: any
            parallel:
              fast: [{id: a, call: t.f}]
              slow: [{id: b, call: t.f, finally: [{id: tidy, call: t.f}]}]
          - {id: next, call: t.f}
        """
    )
    play.succeed("race/fast/a")
    assert set(play.open) == {"race/slow/b/~finally/tidy"}
    play.succeed("race/slow/b/~finally/tidy")
    assert set(play.open) == {"next"}
    assert play.state.steps["race"].output == {"winner": "fast"}


def test_what_is_being_cleaned_up_is_not_stopped_by_a_second_failure() -> None:
    play = Play(
        """
        steps:
          - id: p
            parallel:
              one: [{id: a, call: t.f, finally: [{id: tidy, call: t.f}]}]
              two: [{id: b, call: t.f}]
        """
    )
    play.succeed("p/one/a")
    play.fail("p/two/b")
    assert set(play.open) == {"p/one/a/~finally/tidy"}
    play.succeed("p/one/a/~finally/tidy")
    assert (play.status, play.error.path) == ("failed", "p/two/b")


def test_a_timeout_still_bounds_cleanup_while_the_run_is_stopped() -> None:
    play = Play("steps: [{id: a, call: t.f, finally: [{id: tidy, call: t.f, timeout: 1m}]}]")
    play.stop()
    play.fail("a")
    play.advance(MINUTE)
    assert play.status == "stopped"


# --- Retry behind an undo ---------------------------------------------------------------------------------------------


def test_a_retry_runs_undone_steps_again_with_a_key_of_their_own() -> None:
    play = two_done()
    play.fail("c")
    undo_all(play)
    play.retry()
    assert set(play.open) == {"a"}
    assert play.state.steps["a"].key == f"{play.run_id}/a#2"
    play.succeed("a", "A2")
    play.succeed("b", "B2")
    assert set(play.open) == {"c"}
    play.fail("c")
    assert play.state.steps["b/~undo"].args == '{"what":"B2"}'
    assert play.state.steps["b/~undo"].key == f"{play.run_id}/b/~undo#2"
    assert undo_all(play) == ["b/~undo", "a/~undo"]


def test_a_retry_passes_by_what_was_not_undone() -> None:
    play = Play(
        """
        steps:
          - {id: a, call: t.f, undo: {call: t.back}}
          - {id: kept, call: t.f}
          - id: block
            try: [{id: b, call: t.f, undo: {call: t.back}}, {id: also_kept, call: t.f}]
          - {id: c, call: t.f}
        """
    )
    for path in ("a", "kept", "block/b", "block/also_kept"):
        play.succeed(path)
    play.fail("c")
    assert undo_all(play) == ["block/b/~undo", "a/~undo"]
    play.retry()
    play.succeed("a")
    assert set(play.open) == {"block/b"}
    play.succeed("block/b")
    assert set(play.open) == {"c"}
    play.succeed("c")
    assert play.status == "finished"


@pytest.mark.parametrize(
    "body",
    [
        "try: [{id: a, call: t.f}]",
        "for_each: {items: [1, 2], max_parallel: 2, on_failure: isolate, steps: [{id: a, call: t.f}]}",
        "call: t.f",
    ],
)
def test_a_retry_of_a_step_that_its_own_finally_failed_goes_on_in_there(body: str) -> None:
    play = Play(f"steps:\n  - id: step\n    {body}\n    finally: [{{id: b, call: t.f}}, {{id: c, call: t.f}}]")
    for path in list(play.open):
        play.fail(path) if path.startswith("step[1]") else play.succeed(path)
    output = play.state.steps["step"].output
    play.succeed("step/~finally/b")
    play.fail("step/~finally/c")
    play.retry()
    assert set(play.open) == {"step/~finally/c"}, "what was done is done"
    play.succeed("step/~finally/c")
    assert (play.status, play.step("step")) == ("finished", "finished")
    assert play.state.steps["step"].output == output


def test_a_retry_repeats_the_undone_item_of_a_finished_loop_alone() -> None:
    play = Play(
        """
        steps:
          - id: each
            for_each:
              items: [x, y, z]
              max_parallel: 3
              on_failure: isolate
              steps:
                - {id: a, call: t.f, if: item == 'x', undo: {call: t.back}}
                - {id: b, call: t.f}
          - {id: c, call: t.f}
        """
    )
    play.succeed_all("each[x]/a", "each[x]/b", "each[y]/b")
    play.fail("each[z]/b")
    play.fail("c")
    assert undo_all(play) == ["each[x]/a/~undo"]
    play.retry()
    assert set(play.open) == {"each[x]/a"}
    play.succeed_all("each[x]/a", "c")
    assert play.status == "finished"
    assert [item["status"] for item in play.state.steps["each"].output] == ["finished", "finished", "failed"]


def test_a_retry_after_an_undo_goes_on_inside_the_block_that_failed() -> None:
    play = Play(
        """
        steps:
          - {id: a, call: t.f, undo: {call: t.back}}
          - {id: block, try: [{id: kept, call: t.f}, {id: b, call: t.f}]}
        """
    )
    play.succeed_all("a", "block/kept")
    play.fail("block/b")
    undo_all(play)
    play.retry()
    play.succeed("a")
    assert set(play.open) == {"block/b"}, "what was done, and not undone, is done"
    play.succeed("block/b")
    assert play.status == "finished"


REJECTED = """
steps:
  - id: gate
    approve: {title: Go?, from: anyone}
    on_reject: [{id: a, call: t.f, undo: {call: t.back}}]
    catch: [%s]
  - {id: after, call: t.f}
"""


def test_a_retry_of_a_rejection_whose_handler_was_undone_asks_again() -> None:
    play = Play(REJECTED % "{errors: [tool.*], steps: [{return: no}]}")
    play.answer("gate", decision="reject")
    play.succeed("gate/~reject/a")
    undo_all(play)
    assert (play.status, play.error.code) == ("failed", "approval.rejected")
    play.retry()
    assert play.asking == {"gate"}
    play.answer("gate", decision="approve")
    assert set(play.open) == {"after"}
    play.fail("after")
    play.retry()
    assert set(play.open) == {"after"}, "the rejection is over"


def test_a_retry_leaves_the_effects_of_a_caught_rejection_alone() -> None:
    play = Play(REJECTED % "{errors: [approval.rejected], steps: [{say: never mind}]}")
    play.answer("gate", decision="reject")
    play.succeed("gate/~reject/a")
    undo_all(play)
    play.fail("after")
    play.retry()
    assert set(play.open) == {"after"}
    assert play.said == ["never mind"]


def test_a_retry_leaves_alone_what_a_catch_has_dealt_with() -> None:
    play = Play(TRIED).succeed_all("before", "wrap/a")
    play.fail("wrap/b")
    play.succeed("wrap/a/~undo")
    play.fail("after")
    undo_all(play)
    play.retry()
    assert set(play.open) == {"before"}
    play.succeed("before")
    assert set(play.open) == {"after"}


def test_a_retry_runs_the_undone_items_of_a_loop_again() -> None:
    play = rollout("isolate", "all")
    play.succeed("each[a]/check")
    play.fail("each[b]/check")
    undo_all(play)
    play.retry()
    for key in ("a", "b", "c"):
        assert f"each[{key}]/deploy" in play.open
        play.succeed(f"each[{key}]/deploy")
    for path in ("each[b]/check", "each[c]/check"):
        play.succeed(path)
    assert (play.status, [result["status"] for result in play.output]) == ("finished", ["finished"] * 3)


@pytest.mark.parametrize("limit", ["steps: 2", "tool_calls: 2"])
def test_a_limit_fails_the_step_that_would_exceed_it(limit: str) -> None:
    play = Play(f"limits: {{{limit}}}\nsteps: [{{id: a, call: t.f}}, {{id: b, call: t.f}}, {{id: c, call: t.f}}]")
    play.succeed_all("a", "b")
    assert (play.status, play.error.code, play.error.path) == ("failed", f"limit.{limit.split(':')[0]}", "c")


def test_the_limit_of_duration_counts_waiting_and_fails_whatever_is_open() -> None:
    play = Play("limits: {duration: 1h}\nsteps: [{id: q, call: pick}]")
    assert play.status == "waiting"
    play.advance(HOUR)
    assert (play.status, play.error.code, play.error.path) == ("failed", "limit.duration", "q")


def test_a_limit_is_caught_only_by_its_name() -> None:
    text = "limits: {steps: 1}\nsteps: [{id: a, say: one}, {id: b, say: two, catch: [{%s steps: [{return: ok}]}]}]"
    assert Play(text % "").status == "failed"
    assert Play(text % "errors: [limit.steps],").status == "failed", "the handler's step is one too many as well"


def test_what_a_finally_has_done_is_not_undone_by_an_error_around_it() -> None:
    play = Play("""
        steps:
          - id: outer
            try:
              - id: inner
                try: [{id: work, call: t.f, undo: {call: t.back}}]
                finally: [{id: note, call: t.note, undo: {call: t.unnote}}]
              - {id: next, call: t.f}
        """)
    play.succeed_all("outer/inner/work", "outer/inner/~finally/note")
    play.fail("outer/next", retriable=False)
    assert set(play.open) == {"outer/inner/work/~undo"}
    play.succeed("outer/inner/work/~undo")
    assert (play.status, play.of(e.StepUndone)[0].path) == ("failed", "outer/inner/work")
    assert len(play.of(e.StepUndone)) == 1


def test_a_second_cleanup_after_a_retry_that_fails_is_undone_and_final() -> None:
    play = Play(
        """
        steps:
          - id: main
            call: t.f
            finally:
              - id: clean
                call: t.f
                undo: {call: t.back}
                catch: [{errors: [http.*], steps: [{say: caught}]}]
                finally: [{id: last, call: t.f}]
        """
    )
    clean = "main/~finally/clean"
    play.fail("main")
    play.succeed_all(clean, f"{clean}/~finally/last")
    assert play.status == "failed"
    play.retry()
    play.fail("main")
    play.fail(clean)
    assert undo_all(play) == [f"{clean}/~undo"], "what it did before the Retry"
    play.succeed(f"{clean}/~finally/last")
    assert (play.status, play.error.path) == ("failed", "main")


def test_a_retry_after_a_failed_stop_goes_on_in_the_finally_left_open() -> None:
    play = Play(
        """
        steps:
          - id: both
            parallel:
              a: [{id: quick, say: quick}]
              b:
                - id: work
                  call: t.f
                  undo: {call: t.back, retry: {max: 0}}
                  finally: [{id: clean, call: t.f}]
        """
    )
    play.succeed("both/b/work")
    play.stop()
    play.fail("both/b/work/~finally/clean")
    play.fail("both/b/work/~undo")
    assert (play.status, play.error.code) == ("failed", "undo.failed")
    play.retry()
    assert set(play.open) == {"both/b/work/~finally/clean"}
    play.succeed("both/b/work/~finally/clean")
    assert (play.status, play.said) == ("finished", ["quick"])
