"""`for_each` and `repeat`: which iterations run, what they see of each other, and what becomes of them.
docs/language.md#for_each-and-repeat."""

from __future__ import annotations

import pytest

from hai_flow.engine import events as e
from hai_flow.engine.state.state import LoopState
from hai_flow.engine.steps.next_iteration import ITEMS_BYTES_MAX, ITEMS_MAX, index_of, next_iteration
from tests.support.runs import MINUTE, Play

# --- for_each ---------------------------------------------------------------------------------------------------------


def items(count: int, **settings: object) -> str:
    more = "".join(f"    {name}: {value}\n" for name, value in settings.items())
    return (
        f"steps:\n  - id: each\n    for_each:\n      items: [{', '.join(f'i{n}' for n in range(count))}]\n"
        + more.replace("    ", "      ")
        + '      steps: [{id: work, call: t.f, with: {of: "${{ item }}", at: "${{ index }}"}}]\n'
        + "output: ${{ steps.each.output }}\n"
    )


def test_items_are_worked_on_one_after_the_other() -> None:
    play = Play(items(3))
    for key in ("i0", "i1", "i2"):
        assert set(play.open) == {f"each[{key}]/work"}
        play.succeed(f"each[{key}]/work", key)
    assert play.status == "finished"
    assert [result["status"] for result in play.output] == ["finished"] * 3


def test_at_most_max_parallel_items_are_open_at_once() -> None:
    play = Play(items(5, max_parallel=2))
    assert set(play.open) == {"each[i0]/work", "each[i1]/work"}
    play.succeed("each[i1]/work")
    assert set(play.open) == {"each[i0]/work", "each[i2]/work"}
    for key in ("i0", "i2", "i3", "i4"):
        play.succeed(f"each[{key}]/work")
    assert [result["key"] for result in play.output] == ["i0", "i1", "i2", "i3", "i4"], "in the order of the items"


def test_each_iteration_sees_its_own_item_and_index() -> None:
    play = Play(items(3, max_parallel=3))
    args = [play.state.steps[f"each[i{n}]/work"].args for n in range(3)]
    assert args == [f'{{"of":"i{n}","at":{n}}}' for n in range(3)]


def test_the_output_of_an_iteration_is_evaluated_at_its_end_in_its_scope() -> None:
    play = Play(items(2, max_parallel=2, output='{item: "${{ item }}", got: "${{ steps.work.output }}"}'))
    play.succeed("each[i1]/work", "b")
    play.succeed("each[i0]/work", "a")
    assert [result["output"] for result in play.output] == [{"item": "i0", "got": "a"}, {"item": "i1", "got": "b"}]


def test_an_empty_list_finishes_at_once() -> None:
    play = Play("steps: [{id: each, for_each: {items: [], steps: [{call: t.f}]}}]\noutput: ${{ steps.each.output }}")
    assert (play.status, play.output) == ("finished", [])


def test_the_key_names_the_iteration_and_is_escaped_in_paths() -> None:
    play = Play(
        """
        steps:
          - id: each
            for_each: {items: [{n: a/b}, {n: "c]"}], key: "${{ item.n }}", max_parallel: 2, steps: [{id: w, call: t.f}]}
        output: ${{ steps.each.output }}
        """
    )
    assert set(play.open) == {"each[a%2Fb]/w", "each[c%5D]/w"}
    for path in list(play.open):
        play.succeed(path)
    assert [result["key"] for result in play.output] == ["a/b", "c]"]


def test_objects_without_a_key_are_named_by_their_position() -> None:
    play = Play(
        "steps: [{id: each, for_each: {items: [{n: 1}, {n: 2}], max_parallel: 2, steps: [{id: w, call: t.f}]}}]"
    )
    assert set(play.open) == {"each[0]/w", "each[1]/w"}


def test_equal_keys_fail_before_anything_starts() -> None:
    play = Play(
        "input: {type: object, properties: {names: {type: array}}}\n"
        "steps: [{id: each, for_each: {items: '${{ input.names }}', max_parallel: 3, steps: [{id: w, call: t.f}]}}]",
        input={"names": ["a", "b", "a"]},
    )
    assert (play.status, play.error.code) == ("failed", "for_each.duplicate_key")
    assert not play.of(e.IterationStarted)


def test_items_that_are_no_list_fail_the_step() -> None:
    play = Play(
        "input: {type: object, properties: {x: {}}}\n"
        "steps: [{id: each, for_each: {items: '${{ input.x }}', steps: [{call: t.f}]}}]",
        input={"x": 3},
    )
    assert (play.status, play.error.code) == ("failed", "expression.error")


def test_a_failure_stops_the_others_and_is_raised_as_it_is() -> None:
    play = Play(items(4, max_parallel=2))
    play.fail("each[i0]/work", "tool.failed", "no")
    assert (play.status, play.error.code, play.error.path) == ("failed", "tool.failed", "each[i0]/work")
    assert play.step("each[i1]/work") == "stopped"
    assert play.step("each[i2]/work") == "pending"


def test_isolated_failures_are_data() -> None:
    play = Play(items(3, on_failure="isolate"))
    play.succeed("each[i0]/work", "fine")
    play.fail("each[i1]/work", "tool.failed", "no")
    play.succeed("each[i2]/work")
    assert play.status == "finished"
    assert [result["status"] for result in play.output] == ["finished", "failed", "finished"]
    assert play.output[1]["error"]["code"] == "tool.failed"


def test_the_output_is_there_after_a_failure_too() -> None:
    play = Play(
        """
        steps:
          - id: each
            for_each: {items: [a, b, c], steps: [{id: w, call: t.f}]}
            catch: [{steps: [{say: caught}]}]
        output: ${{ steps.each.output }}
        """
    )
    play.succeed("each[a]/w")
    play.fail("each[b]/w")
    assert play.status == "finished"
    assert [result["status"] for result in play.output] == ["finished", "failed", "stopped"]


def test_loops_nest_and_each_sees_the_items_around_it() -> None:
    play = Play(
        """
        steps:
          - id: outer
            for_each:
              items: [x, y]
              as: row
              steps:
                - id: inner
                  for_each:
                    items: [1, 2]
                    steps: [{id: w, call: t.f, with: {at: "${{ row }}${{ item }}${{ index }}"}}]
        """
    )
    seen = []
    while play.open:
        (path,) = play.open
        seen.append((path, play.state.steps[path].args))
        play.succeed(path)
    assert seen == [
        ("outer[x]/inner[1]/w", '{"at":"x10"}'),
        ("outer[x]/inner[2]/w", '{"at":"x21"}'),
        ("outer[y]/inner[1]/w", '{"at":"y10"}'),
        ("outer[y]/inner[2]/w", '{"at":"y21"}'),
    ]
    assert play.status == "finished"


@pytest.mark.slow
def test_a_finished_iteration_is_forgotten_so_that_memory_stays_bounded() -> None:
    play = Play(items(200, max_parallel=4))
    sizes = []
    while play.open:
        play.succeed(next(iter(play.open)))
        sizes.append(len(play.state.steps))
    assert max(sizes) < 20
    assert play.status == "finished"


def test_a_pause_begins_no_iteration() -> None:
    play = Play(items(3))
    play.pause()
    play.succeed("each[i0]/work")
    assert not play.open
    play.resume()
    assert set(play.open) == {"each[i1]/work"}


def test_a_caught_failure_inside_an_iteration_lets_it_finish() -> None:
    play = Play(
        """
        steps:
          - id: each
            for_each:
              items: [a, b]
              output: ${{ steps.w.status }}
              steps: [{id: w, call: t.f, catch: [{steps: [{say: sorry}]}]}]
        output: ${{ steps.each.output }}
        """
    )
    play.fail("each[a]/w")
    play.succeed("each[b]/w")
    assert [(result["status"], result["output"]) for result in play.output] == [
        ("finished", "failed"),
        ("finished", "finished"),
    ]


# --- repeat -----------------------------------------------------------------------------------------------------------


def test_without_a_condition_it_repeats_exactly_max_times() -> None:
    play = Play("steps: [{id: r, repeat: {max: 3, steps: [{id: w, call: t.f}]}}]\noutput: ${{ steps.r.output }}")
    for n in range(3):
        play.succeed(f"r[{n}]/w")
    assert (play.status, play.output) == ("finished", {"count": 3})


def test_until_is_asked_behind_an_iteration_and_sees_it() -> None:
    play = Play(
        """
        steps:
          - id: r
            repeat: {max: 5, until: steps.w.output == "done", steps: [{id: w, call: t.f}]}
        output: ${{ steps.r.output }}
        """
    )
    play.succeed("r[0]/w", "more")
    play.succeed("r[1]/w", "done")
    assert (play.status, play.output) == ("finished", {"count": 2})


def test_while_is_asked_before_an_iteration() -> None:
    play = Play(
        """
        state: {n: {type: integer, default: 0}}
        steps:
          - id: r
            repeat: {max: 5, while: state.n < 2, steps: [{set: {n: "${{ state.n + 1 }}"}}]}
        output: ${{ steps.r.output }}
        """
    )
    assert (play.status, play.output) == ("finished", {"count": 2})


def test_a_while_that_is_false_at_first_runs_nothing() -> None:
    play = Play("steps: [{id: r, repeat: {max: 5, while: 1 > 2, steps: [{call: t.f}]}}]\noutput: ${{ steps.r.output }}")
    assert (play.status, play.output) == ("finished", {"count": 0})


@pytest.mark.parametrize("condition", ["until: 1 > 2", "while: 1 < 2"])
def test_a_condition_that_still_asks_for_more_at_max_is_an_error(condition: str) -> None:
    play = Play(f"steps: [{{id: r, repeat: {{max: 2, {condition}, steps: [{{say: again}}]}}}}]")
    assert (play.status, play.error.code) == ("failed", "repeat.exhausted")


def test_behind_a_repeat_a_step_is_that_of_the_last_iteration() -> None:
    play = Play(
        """
        steps:
          - {id: r, repeat: {max: 2, steps: [{id: w, call: t.f}]}}
        output: ${{ steps.w.output }}
        """
    )
    play.succeed("r[0]/w", "first")
    play.succeed("r[1]/w", "last")
    assert play.output == "last"


def test_inner_steps_are_reset_at_each_iteration() -> None:
    play = Play(
        """
        steps:
          - id: r
            repeat:
              max: 2
              steps:
                - {id: a, if: index == 0, call: t.f}
                - {id: b, say: "${{ steps.a.status }}"}
        """
    )
    play.succeed("r[0]/a")
    assert play.said == ["finished", "skipped"]


def test_a_failure_inside_is_raised_and_ends_the_loop() -> None:
    play = Play("steps: [{id: r, repeat: {max: 3, steps: [{id: w, call: t.f}]}}]").succeed_all("r[0]/w")
    play.fail("r[1]/w")
    assert (play.status, play.error.path, play.step("r")) == ("failed", "r[1]/w", "failed")


def test_a_timeout_bounds_all_of_a_loop() -> None:
    play = Play("steps: [{id: r, timeout: 1m, repeat: {max: 3, steps: [{id: w, call: t.f}]}}]").succeed_all("r[0]/w")
    play.advance(MINUTE)
    assert (play.status, play.error.code, play.error.path) == ("failed", "step.timeout", "r")
    assert play.step("r[1]/w") == "stopped"


# --- which iterations, and how many --------------------------------------------------------------------------------


def test_a_list_has_at_most_ten_thousand_items() -> None:
    text = (
        "input: {type: object, properties: {list: {type: array}}}\n"
        'steps: [{id: each, for_each: {items: "${{ input.list }}", steps: [{wait: {for: 1d}}]}}]'
    )
    assert Play(text, input={"list": list(range(ITEMS_MAX))}).status == "waiting"
    play = Play(text, input={"list": list(range(ITEMS_MAX + 1))})
    assert (play.error.code, play.error.path) == ("expression.too_large", "each")
    assert "at most 10000 items, found 10001" in play.error.message
    assert play.open == {}


def test_items_have_at_most_a_megabyte() -> None:
    text = (
        "input: {type: object, properties: {list: {type: array}}}\n"
        'steps: [{id: each, for_each: {items: "${{ input.list }}", steps: [{wait: {for: 1d}}]}}]'
    )
    brackets = len('[{"v":""}]')
    assert Play(text, input={"list": [{"v": "x" * (ITEMS_BYTES_MAX - brackets)}]}).state.error is None
    play = Play(text, input={"list": [{"v": "x" * (ITEMS_BYTES_MAX - brackets + 1)}]})
    assert (play.error.code, play.error.path) == ("expression.too_large", "each")


def test_truth_is_no_name_of_an_iteration() -> None:
    play = Play("steps: [{id: each, for_each: {items: [true, 7, x], steps: [{id: w, call: t.f}], max_parallel: 3}}]")
    assert set(play.open) == {"each[0]/w", "each[7]/w", "each[x]/w"}


def test_what_is_begun_again_goes_before_what_was_never_begun() -> None:
    loop = LoopState(keys=("a", "b", "c", "d"), begun=3, again=("b", "c"))
    assert next_iteration("each", loop) == ("each[b]",)
    assert next_iteration("each", LoopState(keys=("a", "b"), begun=1)) == ("each[b]",)
    assert next_iteration("each", LoopState(keys=("a", "b"), begun=2)) == ()
    assert next_iteration("each", LoopState(keys=("a", "b"), begun=2, again=("a",))) == ("each[a]",)


def test_the_place_of_an_iteration_is_found_among_those_that_were_begun() -> None:
    loop = LoopState(keys=("a", "b", "c"), begun=2)
    assert [index_of(loop, key) for key in "ab"] == [0, 1]
    assert index_of(LoopState(keys=("a", "b"), begun=9), "b") == 1
    with pytest.raises(AssertionError, match="c is no key"):
        index_of(loop, "c")


# --- going on after a failure -----------------------------------------------------------------------------------------


def test_a_retry_goes_on_with_the_failed_item_and_keeps_what_is_done() -> None:
    play = Play(items(4))
    play.succeed("each[i0]/work", 0)
    play.fail("each[i1]/work")
    play.retry()
    assert set(play.open) == {"each[i1]/work"}
    for key in ("i1", "i2", "i3"):
        play.succeed(f"each[{key}]/work", 1)
    assert (play.status, [result["status"] for result in play.output]) == ("finished", ["finished"] * 4)


def test_a_retry_begins_the_items_again_that_were_cut_off() -> None:
    play = Play(items(6, max_parallel=3)).succeed_all("each[i0]/work")
    play.fail("each[i2]/work")
    assert play.status == "failed"
    play.retry()
    assert set(play.open) == {"each[i1]/work", "each[i2]/work", "each[i3]/work"}
    while play.open:
        play.succeed(next(iter(play.open)))
    assert (play.status, len(play.output)) == ("finished", 6)


def test_a_retry_of_an_exhausted_repeat_gives_it_as_many_iterations_again() -> None:
    play = Play(
        "steps: [{id: r, repeat: {max: 2, until: steps.w.output == 1, steps: [{id: w, call: t.f}]}}]\n"
        "output: ${{ steps.r.output }}"
    )
    play.succeed("r[0]/w", 0)
    play.succeed("r[1]/w", 0)
    assert play.error.code == "repeat.exhausted"
    play.retry()
    play.succeed("r[2]/w", 1)
    assert (play.status, play.output) == ("finished", {"count": 1})


def test_a_retry_goes_on_in_the_iteration_of_a_repeat_that_failed() -> None:
    play = Play("steps: [{id: r, repeat: {max: 3, steps: [{id: a, call: t.f}, {id: b, call: t.f}]}}]")
    play.succeed_all("r[0]/a", "r[0]/b", "r[1]/a")
    play.fail("r[1]/b")
    play.retry()
    assert set(play.open) == {"r[1]/b"}
    play.succeed("r[1]/b")
    assert set(play.open) == {"r[2]/a"}


# --- break and continue -----------------------------------------------------------------------------------------------


def looped(steps: str, **settings: object) -> str:
    more = "".join(f", {name}: {value}" for name, value in settings.items())
    return (
        f"steps: [{{id: each, for_each: {{items: [a, b, c, d]{more}, steps: [{steps}]}}}}, {{id: after, call: t.g}}]\n"
        "output: ${{ steps.each.output.map(i, i.status) }}"
    )


LOOK = '{id: look, call: t.f}, {if: steps.look.output == "hit", break: true}, {id: on, call: t.h}'


def test_break_ends_the_loop_and_later_items_never_begin() -> None:
    play = Play(looped(LOOK))
    play.succeed("each[a]/look", "miss")
    play.succeed("each[a]/on")
    play.succeed("each[b]/look", "hit")
    assert set(play.open) == {"after"}
    play.succeed("after")
    assert play.output == ["finished", "finished", "stopped", "stopped"]


def test_break_stops_the_items_that_run_at_once_and_undoes_nothing() -> None:
    paid = (
        '{id: pay, call: t.p, undo: {call: t.u}}, {id: look, call: t.f}, {if: steps.look.output == "hit", break: true}'
    )
    play = Play(looped(paid, max_parallel=3))
    for key in "abc":
        play.succeed(f"each[{key}]/pay")
    play.succeed("each[b]/look", "hit")
    assert set(play.open) == {"after"}
    play.succeed("after")
    assert play.output == ["stopped", "finished", "stopped", "stopped"]
    assert not play.of(e.StepUndone)


def test_continue_skips_the_rest_of_one_item() -> None:
    play = Play(looped('{if: item != "c", continue: true}, {id: work, call: t.f}', output="1"))
    assert set(play.open) == {"each[c]/work"}
    play.succeed_all("each[c]/work", "after")
    assert play.output == ["finished"] * 4
    assert [item["output"] for item in play.state.steps["each"].output] == [None, None, 1, None]


def test_break_in_a_repeat_asks_no_condition_and_counts_its_round() -> None:
    play = Play(
        "steps: [{id: again, repeat: {max: 9, until: 'false', steps: "
        "[{say: x}, {if: index == 2, break: true}, {say: y}]}}]\n"
        "output: ${{ steps.again.output.count }}"
    )
    assert (play.status, play.output) == ("finished", 3)


def test_continue_in_a_repeat_goes_on_behind_the_condition() -> None:
    play = Play(
        "steps: [{id: again, repeat: {max: 9, until: index == 3, steps: "
        "[{if: 'true', continue: true}, {call: t.f}]}}]\n"
        "output: ${{ steps.again.output.count }}"
    )
    assert (play.status, play.output) == ("finished", 4)


def test_break_leaves_blocks_and_handlers_and_their_finally_runs_first() -> None:
    play = Play(
        """
        steps:
          - id: each
            for_each:
              items: [a, b]
              steps:
                - parallel:
                    one:
                      - try:
                          - fail: no
                        catch:
                          - steps: [{switch: [{default: true, steps: [{break: true}]}]}]
                        finally: [{id: tidy, call: t.f}]
                    two: [{id: slow, call: t.g}]
                - {id: never, call: t.h}
          - {id: after, call: t.g}
        """
    )
    assert [path.rpartition("/")[2] for path in play.open] == ["tidy"]
    play.succeed(next(iter(play.open)))
    assert set(play.open) == {"after"}


def test_break_leaves_the_innermost_loop_only() -> None:
    play = Play(
        """
        steps:
          - for_each:
              items: [a, b]
              steps:
                - repeat: {max: 3, steps: [{break: true}]}
                - {id: work, call: t.f}
        """
    )
    assert set(play.open) == {"for_each#1[a]/work"}
    play.succeed("for_each#1[a]/work")
    assert set(play.open) == {"for_each#1[b]/work"}


def test_two_items_that_leave_at_once_end_the_loop_once() -> None:
    play = Play(looped("{id: look, call: t.f, finally: [{id: tidy, call: t.u}]}, {break: true}", max_parallel=2))
    play.succeed_all("each[a]/look", "each[b]/look", "each[a]/look/~finally/tidy")
    for path in [path for path in play.open if path != "after"]:
        play.succeed(path)
    play.succeed("after")
    assert play.status == "finished"


def test_a_loop_that_was_left_begins_no_further_item_when_a_retry_comes_by() -> None:
    play = Play(
        """
        steps:
          - id: all
            try:
              - id: each
                for_each:
                  items: [a, b, c]
                  steps:
                    - {id: pay, call: t.p, undo: {call: t.u}}
                    - {if: item == "b", break: true}
              - {id: last, call: t.l}
        """
    )
    play.succeed_all("all/each[a]/pay", "all/each[b]/pay")
    play.fail("all/last")
    play.succeed_all("all/each[b]/pay/~undo", "all/each[a]/pay/~undo")
    assert play.status == "failed"
    play.retry()
    began = []
    while play.status == "running" and play.open:
        path = next(iter(play.open))
        began.append(path)
        play.succeed(path)
    assert play.status == "finished"
    assert not [path for path in began if "[c]" in path]


def test_a_handlers_loop_runs_once_more_when_its_step_fails_after_a_retry() -> None:
    play = Play(
        """\
        steps:
          - id: a
            call: t.f
            finally:
              - id: each
                for_each: {items: [x, y], max_parallel: 2, steps: [{id: tidy, call: t.g}]}
        """
    )
    play.fail("a")
    play.succeed("a/~finally/each[x]/tidy")
    play.fail("a/~finally/each[y]/tidy")
    assert play.status == "failed"
    play.retry()
    play.fail("a")
    play.fail("a/~finally/each[x]/tidy")
    assert play.status == "failed"
    play.retry()
    play.succeed("a")
    for key in ("x", "y"):
        play.succeed(f"a/~finally/each[{key}]/tidy")
    assert play.status == "finished"


def test_what_is_no_list_is_named_in_words_of_people() -> None:
    loop = "for_each: {items: '${{ input.l }}', steps: [{say: x}]}"
    play = Play(f"input: {{type: object, properties: {{l: {{}}}}}}\nsteps: [{{{loop}}}]", start=False)
    play.start({"l": None})
    assert "nothing (null)" in play.error.message
