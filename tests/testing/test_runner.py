"""A case is a run of the real engine: what its script does happens, and what its expectations say must hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.testing.loading import DocumentLoader
from hai_flow.testing.report import describe
from tests.testing.support import ASKED, EXPENSE, HEAD, PAID, case, loaded, messages, played


def test_a_run_goes_on_until_nothing_moves_without_the_clock(tmp_path: Path) -> None:
    result = case(
        tmp_path,
        f"""\
    script:
      - expect: {{status: waiting, pending: [account], steps: {{details: skipped, review: pending}}}}
{PAID}
      - expect: {{status: waiting, pending: [], state: {{status: submitted}}, calls: {{erp.book: 1}}}}
      - advance: 59m59s
      - expect: {{status: waiting}}
      - advance: 1s
    expect: {{status: finished, output: {{booking: B1, status: booked}}, state: {{status: booked}}, error: null}}
    events: [run_started, pending_opened, vote_cast, timer_set, timer_fired, run_finished]
""",
    )
    assert messages(result) == []
    assert result.passed


def test_pauses_between_retries_pass_by_themselves(tmp_path: Path) -> None:
    head = HEAD.replace("{output: {id: B1}}", "[{error: {code: tool.unavailable}}, {output: {id: B2}}]")
    body = f"    script:\n{PAID}      - advance: 1h\n    expect: {{calls: {{erp.book: 2}}, output: {{booking: B2}}}}\n"
    assert messages(case(tmp_path, body, head)) == []


def test_a_list_of_behaviours_that_has_run_out_fails_the_case(tmp_path: Path) -> None:
    head = HEAD.replace("{output: {id: B1}}", "[{error: {code: tool.unavailable}}]")
    result = case(tmp_path, f"    script:\n{PAID}", head)
    assert messages(result) == [
        "11:9 the mock `erp.book` has run out: it says what 1 call does, and step `book` (line 23 of the workflow) "
        "makes call 2; add to its list, or make it a mapping that holds for every call"
    ]


def test_an_effect_that_is_not_mocked_fails_the_case_and_is_named(tmp_path: Path) -> None:
    head = HEAD[: HEAD.index("mock:")]
    result = case(tmp_path, f"    script:\n{PAID}", head)
    assert messages(result) == [
        "9:9 step `book` (line 23 of the workflow) performs `erp.book`, which is not mocked; write under `mock`: "
        "`erp.book: {output: ...}`"
    ]


@pytest.mark.parametrize(
    ("expected", "passes"),
    [
        ("", False),
        ("    expect: {}\n", False),
        ("    expect: {status: failed}\n", True),
        ("    expect: {calls: {erp.book: 1}}\n", True),
        ("    events: [run_failed]\n", True),
    ],
)
def test_a_case_that_expects_nothing_fails_where_its_run_does(tmp_path: Path, expected: str, passes: bool) -> None:
    head = HEAD.replace("{output: {id: B1}}", "{error: {code: tool.failed, retriable: false, message: No books.}}")
    result = case(tmp_path, f"    script:\n{PAID}{expected}", head)
    assert result.passed == passes
    assert passes or "No books." in messages(result)[0]


@pytest.mark.parametrize("name", ["erp.book", "erp"])
def test_a_mock_of_the_case_stands_over_that_of_the_file(tmp_path: Path, name: str) -> None:
    body = f"    mock: {{{name}: {{output: {{id: MINE}}}}}}\n    script:\n{PAID}      - advance: 1h\n"
    assert messages(case(tmp_path, body + "    expect: {output: {booking: MINE}}\n")) == []


@pytest.mark.parametrize("name", ["book", "erp.book", "erp"])
def test_an_effect_is_mocked_by_its_step_its_call_or_its_tool(tmp_path: Path, name: str) -> None:
    head = HEAD.replace("erp.book", name)
    body = f"    script:\n{PAID}    expect: {{calls: {{{name}: 1}}, steps: {{book: finished}}}}\n"
    assert messages(case(tmp_path, body, head)) == []


def test_a_state_of_the_case_stands_in_place_of_the_defaults(tmp_path: Path) -> None:
    body = "    state: {status: reopened, log: [a, b]}\n    expect: {state: {status: reopened, log: [a, b]}}\n"
    assert messages(case(tmp_path, body)) == []


def test_maps_are_compared_by_what_is_expected_of_them_and_lists_exactly(tmp_path: Path) -> None:
    body = "    state: {log: [a, b]}\n    expect: {state: {log: [a]}}\n"
    (failure,) = case(tmp_path, body).failures
    assert (failure.message, failure.expected, failure.actual) == ("state.log", ["a"], ["a", "b"])


def test_each_thing_that_is_not_as_expected_has_its_place(tmp_path: Path) -> None:
    result = case(
        tmp_path,
        """\
    expect:
      status: finished
      pending: [account, review]
      not_called: [book]
      steps: {account: finished}
      error: {code: x}
""",
    )
    assert messages(result) == ["10:7 status", "11:7 pending", "13:15 steps.account", "14:7 error"]
    assert [failure.actual for failure in result.failures] == ["waiting", ["account"], "waiting", None]


def test_an_expectation_that_fails_in_the_middle_ends_the_case_there(tmp_path: Path) -> None:
    body = f"    script:\n      - expect: {{status: finished}}\n{ASKED}    expect: {{status: failed}}\n"
    assert messages(case(tmp_path, body)) == ["10:18 status"]


def test_a_true_is_no_one(tmp_path: Path) -> None:
    workflow = "hai: flow/v1\nname: a\nversion: 1\nsteps:\n  - return: {yes: true, one: 1}\n"
    head = "hai: test/v1\nworkflow: expense.flow.yaml\n"
    (first,) = played(tmp_path, head + "cases: [{name: a, expect: {output: {yes: 1, one: 1.0}}}]\n", workflow)
    assert [failure.message for failure in first.failures] == ["output.yes"]


# --- people -----------------------------------------------------------------------------------------------------------


def test_a_vote_that_must_be_refused_and_is_goes_on(tmp_path: Path) -> None:
    body = f"""\
    script:
{ASKED}
      - decide: {{pending: review, by: ann, decision: maybe, refused: 422}}
      - expect: {{pending: [review]}}
      - decide: {{pending: review, by: ann, decision: approve}}
      - decide: {{pending: review, by: ann, decision: reject, refused: 409}}
    expect: {{calls: {{book: 1}}}}
"""
    assert messages(case(tmp_path, body)) == []


def test_a_vote_that_is_accepted_against_expectation_fails_the_case(tmp_path: Path) -> None:
    body = f"    script:\n{ASKED}      - decide: {{pending: review, by: ann, decision: approve, refused: 403}}\n"
    assert messages(case(tmp_path, body)) == [
        "11:9 expected it to be refused with 403, but what user:ann sent was accepted"
    ]


def test_a_vote_that_is_refused_for_another_reason_fails_the_case(tmp_path: Path) -> None:
    body = f"    script:\n{ASKED}      - decide: {{pending: review, decision: maybe, refused: 403}}\n"
    (message,) = messages(case(tmp_path, body))
    assert message.startswith("11:9 expected it to be refused with 403, but it was with 422: ")


def test_a_vote_that_is_refused_without_expectation_fails_the_case(tmp_path: Path) -> None:
    body = f"    script:\n{ASKED}      - decide: {{pending: review, decision: approve, edits: {{amount: 1}}}}\n"
    (message,) = messages(case(tmp_path, body))
    assert message.startswith("11:9 refused with 422: ")


def test_where_nobody_is_asked_nobody_can_decide(tmp_path: Path) -> None:
    body = "    script:\n      - decide: {pending: review, decision: approve}\n"
    (message,) = messages(case(tmp_path, body))
    assert message.startswith("10:9 nobody is asked at `review` now: the run is waiting at account")


def test_a_form_is_answered_with_its_values(tmp_path: Path) -> None:
    text = f"""\
{HEAD}cases:
  - name: a form
    input: {{amount: 2000}}
    script:
      - expect: {{pending: [details]}}
      - answer: {{pending: details, value: {{}}, refused: 422}}
      - answer: {{pending: details, value: {{why: a car}}}}
      - expect: {{pending: [account], steps: {{details: finished}}}}
      - answer: {{pending: account, error: closed}}
    expect: {{status: failed, error: {{code: tool.declined, path: account}}}}
"""
    (result,) = played(tmp_path, text)
    assert messages(result) == []


# --- time, operators, restarts ----------------------------------------------------------------------------------------


def test_everything_that_falls_due_on_the_way_happens_in_its_order(tmp_path: Path) -> None:
    workflow = """\
hai: flow/v1
name: a
version: 1
state: {log: {type: array, items: {type: string}, default: [], reduce: append}}
steps:
  - parallel:
      slow: [{wait: {for: 3h}}, {set: {log: slow}}]
      fast: [{wait: {for: 1h}}, {set: {log: fast}}, {wait: {for: 1h}}, {set: {log: again}}]
"""
    head = "hai: test/v1\nworkflow: expense.flow.yaml\n"
    text = head + "cases: [{name: a, script: [{advance: 1d}], expect: {state: {log: [fast, again, slow]}}}]\n"
    (result,) = played(tmp_path, text, workflow)
    assert messages(result) == []


def test_a_deadline_that_passes_on_the_way_is_not_jumped_over(tmp_path: Path) -> None:
    body = f"""\
    script:
{ASKED}
      - advance: 30d
      - decide: {{pending: review, decision: approve, refused: 410}}
    expect: {{status: failed, error: {{code: approval.rejected}}, not_called: [book]}}
"""
    result = case(tmp_path, body)
    assert messages(result) == []


def test_a_paused_run_takes_votes_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    body = f"""\
    script:
{ASKED}
      - pause
      - decide: {{pending: review, decision: approve}}
      - expect: {{status: paused, not_called: [book]}}
      - resume
      - expect: {{calls: {{book: 1}}}}
      - stop
    expect: {{status: stopped}}
"""
    assert messages(case(tmp_path, body)) == []


def test_what_can_not_be_paused_any_more_fails_the_case(tmp_path: Path) -> None:
    (message,) = messages(case(tmp_path, "    script: [stop, pause]\n"))
    assert message.startswith("9:20 refused with 409: can't pause a run that is stopped")


def test_a_restart_changes_nothing_at_any_point_of_the_script(tmp_path: Path) -> None:
    body = f"    script:\n      - restart\n{ASKED}      - restart\n"
    body += (
        "      - decide: {pending: review, decision: approve}\n      - restart\n      - advance: 1h\n      - restart\n"
    )
    assert messages(case(tmp_path, body + "    expect: {status: finished}\n")) == []


def test_a_restart_that_would_change_something_fails_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hai_flow.testing.virtual_run.fold", lambda state, events: state)
    (message,) = messages(case(tmp_path, "    script: [restart]\n"))
    assert message.startswith("9:14 the restart changes the run: read from its log, it differs in status, seq, at")


def test_events_are_looked_for_in_their_order(tmp_path: Path) -> None:
    (message,) = messages(case(tmp_path, "    events: [step_skipped, run_started]\n"))
    assert message.startswith(
        "9:5 expected the event `run_started` behind `step_skipped`; what happened is run_started,"
    )


# --- many -------------------------------------------------------------------------------------------------------------


def test_a_workflow_is_compiled_once_for_all_its_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hai_flow.testing import loading

    compiled: list[str] = []
    compile_workflow = loading.compile_workflow
    monkeypatch.setattr(
        loading,
        "compile_workflow",
        lambda source, file, modules: compiled.append(file) or compile_workflow(source, file, modules=modules),
    )
    loaded(tmp_path, HEAD + "cases: [{name: a, input: {amount: 1}}]\n")
    (tmp_path / "u.test.yaml").write_text((tmp_path / "t.test.yaml").read_text())
    loader = DocumentLoader()
    documents = [loader.load(tmp_path / name) for name in ("t.test.yaml", "u.test.yaml")]
    assert all(each.run(case).passed for each in documents for case in each.cases)
    assert len(compiled) == 2  # by `loaded` above, and by the loader


def test_a_failure_is_described_with_its_line_and_what_was_expected(tmp_path: Path) -> None:
    result = case(tmp_path, "    expect: {status: finished}\n")
    assert [line.text for line in describe(result)] == [
        "t.test.yaml:9:14: not as expected",
        "    9 |     expect: {status: finished}",
        "      status",
        '        expected  "finished"',
        '        found     "waiting"',
        "      the run is waiting at account (2026-01-01T00:00:00.000Z)",
    ]


def test_values_that_are_long_are_shown_as_a_difference_of_lines(tmp_path: Path) -> None:
    log = ", ".join(f"entry number {n}" for n in range(8))
    result = case(tmp_path, f"    state: {{log: [{log}, last]}}\n    expect: {{state: {{log: [{log}]}}}}\n")
    lines = [line.text for line in describe(result)]
    assert "        - expected, + found" in lines
    assert '        +   "last"' in lines
    assert '            "entry number 3",' in lines


def test_the_sample_workflow_has_no_findings(tmp_path: Path) -> None:
    assert loaded(tmp_path, HEAD + "cases: [{name: a, input: {amount: 1}}]\n", EXPENSE).findings == ()


def test_a_pause_between_retries_does_not_carry_a_deadline_past(tmp_path: Path) -> None:
    workflow = """\
hai: flow/v1
name: a
version: 1
tools: {shop: {python: acme.shop}}
steps:
  - parallel:
      people: [{id: review, approve: {title: Fine?, from: anyone, deadline: 5s}, on_reject: [{return: late}]}]
      shop: [{call: shop.pay, with: {}, retry: {max: 1, every: 10s, jitter: false}}]
"""
    text = """\
hai: test/v1
workflow: expense.flow.yaml
mock: {shop.pay: [{error: {}}, {output: 1}]}
cases:
  - name: the deadline is the script's
    script:
      - expect: {pending: [parallel#1/people/review], calls: {shop.pay: 1}}
      - advance: 4s
      - decide: {pending: parallel#1/people/review, decision: approve}
    expect: {status: finished, calls: {shop.pay: 2}}
  - name: it passes first
    script: [{advance: 5s}]
    expect: {output: late, calls: {shop.pay: 1}}
"""
    assert [messages(result) for result in played(tmp_path, text, workflow)] == [[], []]
