"""Failing: retries and their delays, timeouts, handlers, and attempts that are lost. docs/language.md#failing."""

from __future__ import annotations

import pytest

from hai_flow.definition.plan import CatchClause, Retry
from hai_flow.engine import events as e
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.retry_policy import catching, delay, matches
from hai_flow.engine.state.run_size import TRACE
from hai_flow.errors import Rejected
from tests.support.runs import MINUTE, SECOND, Play
from tests.support.values import require

SEED = ("run", "a", 1)


def retried(text: str) -> Play:
    return Play(f"steps: [{{id: a, call: t.f, retry: {text}}}]")


def test_a_retriable_failure_is_tried_again_until_the_retries_are_used_up() -> None:
    play = retried("{max: 2, every: 10s, jitter: false}")
    for attempt in (1, 2):
        play.fail("a", "tool.unavailable")
        assert play.timers == [("a", "retry", 10 * SECOND)]
        play.advance(10 * SECOND)
        assert play.open == {"a": attempt + 1}
    play.fail("a", "tool.unavailable", "still down")
    assert (play.status, play.error.message, play.error.attempt) == ("failed", "still down", 3)


def test_a_failure_that_is_not_retriable_is_not_tried_again() -> None:
    play = retried("{max: 2}")
    play.fail("a", "tool.invalid_result")
    assert play.status == "failed"


@pytest.mark.parametrize(("retriable", "status"), [(False, "failed"), (True, "running")])
def test_the_tool_may_say_whether_its_failure_is_retriable(retriable: bool, status: str) -> None:
    play = retried("{max: 2}")
    play.fail("a", "tool.failed" if not retriable else "tool.invalid_result", retriable=retriable)
    assert play.status == status


def test_errors_replaces_what_is_retriable() -> None:
    play = retried('{max: 2, errors: ["tool.invalid_*", tool.invalid_result]}'.replace('"tool.invalid_*", ', ""))
    play.fail("a", "tool.invalid_result")
    assert play.status == "running"
    play = retried("{max: 2, errors: [tool.invalid_result]}")
    play.fail("a", "tool.unavailable")
    assert play.status == "failed"


def test_exponential_delays_double_up_to_the_greatest() -> None:
    policy = Retry(10, backoff="exponential", every=1000, max_delay=5000, jitter=False)
    waits = [delay(policy, failures, "tool.failed", True, None, SEED) for failures in range(5)]
    assert waits == [1000, 2000, 4000, 5000, 5000]


def test_jitter_is_the_same_for_whoever_decides_and_between_a_half_and_one() -> None:
    policy = Retry(10, every=1000)
    waits = [delay(policy, 0, "tool.failed", True, None, ("run", "a", attempt)) for attempt in range(50)]
    assert waits == [delay(policy, 0, "tool.failed", True, None, ("run", "a", attempt)) for attempt in range(50)]
    assert all(wait is not None and 500 <= wait < 1000 for wait in waits)
    assert len(set(waits)) > 40


@pytest.mark.parametrize(("asked", "wait"), [(None, 1000), (500, 1000), (3000, 3000), (99_000, 5000)])
def test_retry_after_is_obeyed_up_to_the_greatest_delay(asked: int | None, wait: int) -> None:
    policy = Retry(1, every=1000, max_delay=5000, jitter=False)
    assert delay(policy, 0, "tool.failed", True, asked, SEED) == wait


@pytest.mark.parametrize(
    ("pattern", "code", "fits"),
    [("*", "x", True), ("tool.*", "tool.failed", True), ("tool.*", "tools.failed", False), ("a.b", "a.b", True)],
)
def test_a_pattern_is_a_code_or_a_prefix_or_a_star(pattern: str, code: str, fits: bool) -> None:
    assert matches(pattern, code) is fits


def test_every_attempt_uses_the_arguments_that_were_first_rendered() -> None:
    play = Play(
        """
        state: {n: {type: integer, default: 1}}
        steps:
          - parallel:
              x: [{id: a, call: t.f, with: {n: "${{ state.n }}"}, retry: {max: 1}}]
              y: [{id: b, call: t.f}, {set: {n: 2}}]
        """
    )
    play.succeed("parallel#1/y/b")
    play.fail("parallel#1/x/a")
    play.advance(MINUTE)
    assert play.state.state == {"n": 2}
    assert play.state.steps["parallel#1/x/a"].args == '{"n":1}'


def test_an_attempt_that_takes_too_long_is_cut_and_tried_again() -> None:
    play = Play("steps: [{id: a, call: t.f, timeout: 30s, retry: {max: 1, every: 1s, jitter: false}}]")
    assert require(play.advance(30 * SECOND)).cut
    play.advance(SECOND)
    assert play.open == {"a": 2}
    with pytest.raises(Rejected):
        play.succeed("a", attempt=1)
    play.advance(30 * SECOND)
    assert play.error.code == "step.timeout"


def test_a_block_that_takes_too_long_stops_what_is_inside_it() -> None:
    play = Play(
        """
        steps:
          - id: p
            timeout: 1m
            parallel: {x: [{id: a, call: t.f}], y: [{id: b, call: t.f}]}
            catch: [{errors: [step.timeout], steps: [{say: "late: ${{ error.path }}"}]}]
        """
    )
    play.advance(MINUTE)
    assert (play.status, play.said, play.step("p/x/a")) == ("finished", ["late: p"], "stopped")


def test_the_first_fitting_clause_handles_and_the_flow_goes_on_behind() -> None:
    play = Play(
        """
        steps:
          - id: a
            call: t.f
            catch:
              - {errors: [tool.unavailable], steps: [{say: wrong}]}
              - {errors: ["tool.*"], steps: [{say: "caught ${{ error.code }}"}]}
              - {steps: [{say: wrong}]}
          - say: "${{ steps.a.status }}, ${{ steps.a.error.code }}"
        """
    )
    play.fail("a", "tool.invalid_result")
    assert (play.status, play.said) == ("finished", ["caught tool.invalid_result", "failed, tool.invalid_result"])


def test_a_rejection_is_never_caught_by_accident() -> None:
    gate = "{id: gate, approve: {title: Go?, from: anyone}, catch: [{%ssteps: [{say: caught}]}]}"
    play = Play("steps: [" + gate % "" + "]")
    play.answer("gate", content="false")
    assert play.status == "failed"
    play = Play("steps: [" + gate % "errors: [approval.rejected], " + "]")
    play.answer("gate", content="false")
    assert (play.status, play.said) == ("finished", ["caught"])


def test_a_rejection_is_raised_after_its_list_inside_the_steps_catch() -> None:
    play = Play(
        """
        steps:
          - id: gate
            approve: {title: Go?, from: anyone}
            on_reject: [{say: "no: ${{ error.message }}"}]
            catch: [{errors: [approval.rejected], steps: [{say: caught}]}]
          - {say: after}
        """
    )
    play.answer("gate", decision="reject", reason="too dear")
    assert (play.status, play.said) == ("finished", ["no: too dear", "caught", "after"])
    assert play.state.steps["gate"].output["decision"] == "reject"


def test_an_error_in_a_handler_replaces_the_first_and_keeps_it_as_cause() -> None:
    play = Play(
        """
        steps:
          - id: a
            call: t.f
            catch:
              - steps:
                  - id: b
                    call: t.f
                    catch: [{steps: [{fail: {message: third, code: third}}]}]
        """
    )
    play.fail("a", message="first")
    play.fail("a/~catch/0/b", message="second")
    causes = [play.error, play.error.cause, play.error.cause and play.error.cause.cause]
    assert [error.message for error in causes if error] == ["third", "second", "first"]


def test_the_documents_catch_covers_everything_including_the_output() -> None:
    play = Play(
        """
        state: {zero: {type: integer, default: 0}}
        steps: [{id: a, call: t.f}]
        catch: [{steps: [{say: "caught ${{ error.code }}"}, {return: {ok: false}}]}]
        output: ${{ 1 / state.zero }}
        """
    )
    play.succeed("a")
    assert (play.status, play.said, play.output) == ("finished", ["caught expression.error"], {"ok": False})


def test_an_error_in_the_documents_catch_fails_the_run_with_its_cause() -> None:
    play = Play("steps: [{id: a, call: t.f}]\ncatch: [{steps: [{fail: {message: worse, code: worse}}]}]")
    play.fail("a", message="bad")
    assert (play.error.code, play.error.cause and play.error.cause.message) == ("worse", "bad")


def test_fail_raises_with_its_code_and_data() -> None:
    play = Play("steps: [{fail: {message: No., code: mine, data: {n: 1}}}]")
    assert (play.error.code, play.error.message, play.error.data) == ("mine", "No.", {"n": 1})


@pytest.mark.parametrize(
    "step",
    [
        'if: "1 / state.zero > 0", say: x', 'call: t.f, with: {n: "${{ 1 / state.zero }}"}',
        'switch: [{when: "1 / state.zero > 0", steps: [{say: x}]}]', 'say: "${{ 1 / state.zero }}"',
        'title: "${{ 1 / state.zero }}", call: t.f', 'return: "${{ 1 / state.zero }}"',
        'ask: {title: "${{ 1 / state.zero }}", form: {type: object}}', 'wait: {for: "${{ string(state.zero) }}"}',
        'wait: {until: "${{ string(state.zero) }}"}', 'set: {zero: "${{ 1 / state.zero }}"}',
    ],
)  # fmt: skip
def test_an_expression_that_fails_fails_its_step(step: str) -> None:
    play = Play(f"state: {{zero: {{type: integer, default: 0}}}}\nsteps: [{{id: a, {step}}}]")
    assert (play.status, play.error.code, play.error.path) == ("failed", "expression.error", "a")


def test_five_losses_in_a_row_need_attention_and_a_retry_performs_it_again() -> None:
    play = Play("steps: [{id: a, call: t.f}]")
    for attempt in range(1, 5):
        play.lose("a")
        assert play.open == {"a": attempt + 1}
    decision = play.lose("a")
    assert (play.status, play.open, decision.cut) == ("needs_attention", {}, True)
    assert play.of(e.RunNeedsAttention)[0].path == "a"
    play.retry()
    assert (play.status, play.open) == ("running", {"a": 6})
    play.lose("a")
    assert (play.status, play.open) == ("running", {"a": 7})
    play.succeed("a")
    assert play.status == "finished"


def test_losses_use_up_no_retries_and_a_failure_between_them_restarts() -> None:
    play = retried("{max: 1, every: 1s}")
    for _ in range(4):
        play.lose("a")
    play.fail("a")
    play.advance(SECOND)
    for _ in range(4):
        play.lose("a")
    assert (play.status, play.open) == ("running", {"a": 10})


def test_a_step_that_was_lost_three_times_runs_alone() -> None:
    play = Play("steps: [{parallel: {x: [{id: a, call: t.f}], y: [{id: b, call: t.f}, {id: c, call: t.f}]}}]")
    a, b, c = (f"parallel#1/{leaf}" for leaf in ("x/a", "y/b", "y/c"))
    for _ in range(3):
        play.lose(a)
    assert play.open == {b: 1}, "the suspect waits until it is alone"
    play.succeed(b)
    assert play.open in ({c: 1}, {a: 4})
    if c in play.open:
        play.succeed(c)
    assert play.open == {a: 4}


def test_two_suspects_run_one_after_the_other() -> None:
    play = Play("steps: [{parallel: {x: [{id: a, call: t.f}], y: [{id: b, call: t.f}]}}]")
    a, b = "parallel#1/x/a", "parallel#1/y/b"
    for _ in range(3):
        play.lose(a)
        if b in play.open:
            play.lose(b)
    while play.open == {b: play.attempt(b)} and play.state.steps[b].lost < 3:
        play.lose(b)
    assert len(play.open) == 1
    play.succeed(next(iter(play.open)))
    assert len(play.open) == 1
    play.succeed(next(iter(play.open)))
    assert play.status == "finished"


def test_a_step_that_may_happen_once_is_not_retried_unless_it_says_so() -> None:
    head = "defaults: {retry: {max: 3, every: 10s, jitter: false}}\n"
    play = Play(head + "steps: [{id: a, call: t.f, delivery: at_most_once}]")
    play.fail("a", "tool.unavailable")
    assert (play.status, play.timers) == ("failed", [])
    play = Play(head + "steps: [{id: a, call: t.f}]")
    play.fail("a", "tool.unavailable")
    assert play.timers == [("a", "retry", 10 * SECOND)]


@pytest.mark.parametrize("lost", [False, True])
def test_a_message_that_an_attempt_was_streaming_ends_with_it_as_cut_off(lost: bool) -> None:
    play = retried("{max: 1}")
    play.happened(e.MessageStarted, message_id="m-1", path="a")
    if lost:
        play.lose("a")
    else:
        play.fail("a", "tool.unavailable")
    assert [(ended.message_id, ended.aborted) for ended in play.of(e.MessageEnded)] == [("m-1", True)]
    assert not play.state.open_messages


@pytest.mark.parametrize(
    ("errors", "code", "caught"),
    [
        ((), "tool.failed", 0),
        ((), "approval.rejected", None),
        ((), "limit.steps", None),
        ((), "undo.failed", None),
        (("undo.failed", "*"), "undo.failed", None),
        (("approval.rejected", "tool.*"), "tool.failed", 0),
        (("approval.rejected", "tool.*"), "approval.rejected", 0),
        (("limit.*",), "limit.steps", 0),
        (("tool",), "tool.failed", None),
        (("tool.failed.",), "tool.failed", None),
    ],
)
def test_a_clause_catches_by_any_pattern_but_never_a_failed_undo(
    errors: tuple[str, ...], code: str, caught: int | None
) -> None:
    found = catching([CatchClause(errors, "first")], code)
    assert (None if found is None else found[0]) == caught


def test_any_of_the_codes_of_a_retry_is_enough() -> None:
    policy = Retry(3, errors=("http.connection", "tool.*"), every=1000, jitter=False)
    waits = [delay(policy, 0, code, True, None, SEED) for code in ("http.connection", "tool.failed", "llm.timeout")]
    assert waits == [1000, 1000, None]


def test_a_tools_place_is_noted_beside_the_error_unseen_by_workflows() -> None:
    play = Play("steps: [{try: [{id: a, call: t.f, retry: {max: 0}}], catch: [{steps: [{say: '${{ error }}'}]}]}]")
    (path,) = play.open
    play.fail(path, "tool.failed", "It broke.", trace="File till.py, line 7")
    warned = [event for event in play.events if isinstance(event, e.WarningRaised)]
    assert [(event.code, event.path, event.message) for event in warned] == [(TRACE, path, "File till.py, line 7")]
    told = [event for event in play.events if not isinstance(event, e.WarningRaised)]
    assert "till.py" not in repr(told)
    assert "till.py" not in repr(play.state)


def test_traces_do_not_fill_a_log() -> None:
    play = Play("steps: [{id: a, call: t.f, retry: {max: 0}}]", limits=Bounds(run_events=20))
    play.fail("a", trace="File till.py, line 7")
    assert not any(isinstance(event, e.WarningRaised) and event.code == TRACE for event in play.events)


def test_the_time_of_an_error_is_one_like_all_others() -> None:
    play = Play(
        "steps: [{try: [{fail: {message: x, code: my.code}}], "
        "catch: [{steps: [{return: '${{ [error.at, string(timestamp(error.at) <= now)] }}'}]}]}]"
    )
    at, was = play.output
    assert (at[10], at[-1], was) == ("T", "Z", "true")


def test_only_data_and_a_cause_may_be_absent_of_an_error() -> None:
    members = "error.retriable, error.attempt, error.path, has(error.data), has(error.cause), error.?data.?x.orValue(0)"
    play = Play(
        "steps: [{try: [{fail: {message: x, code: my.code}}], catch: [{steps: [{return: '${{ ["
        + members
        + "] }}'}]}]}]"
    )
    assert play.output == [False, 0, "try#1/fail#1", False, False, 0]


def test_data_of_an_error_without_data_is_null_where_it_is_all_of_a_hole() -> None:
    play = Play(
        "steps: [{try: [{fail: x}], catch: [{steps: [{return: ['${{ error.data }}', 'a ${{ error.cause }}']}]}]}]"
    )
    assert play.output == [None, "a "]
