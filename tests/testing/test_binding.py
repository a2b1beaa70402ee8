"""What a test names must be in its workflow, and what it gives must fit: else it would pass in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.testing.support import EXPENSE, HEAD, loaded

CASE = """\
cases:
  - name: a case
    input: {amount: 900}
    state: {status: new}
    mock: {book: {output: {id: B2}}}
    script:
      - answer: {pending: account, value: main}
      - decide: {pending: review, decision: approve}
    expect: {pending: [], state: {status: new}, calls: {erp.book: 1}, not_called: [details], steps: {book: finished}}
"""
WRONG = [
    ("mock:\n  erp.book", "mock:\n  erp.boook", 5, 3, "no step of the workflow performs `erp.boook`; did you mean"),
    ("mock:\n  erp.book", "mock:\n  erp.pay", 5, 3, "no step of the workflow performs `erp.pay`; there is erp.book"),
    ("mock: {book", "mock: {account", 10, 12, "`account` asks a client, which is not mocked; answer it in the script"),
    ("mock: {book", "mock: {pick", 10, 12, "`pick` asks a client, which is not mocked; answer it in the script"),
    ("{amount: 900}", "{amount: -1}", 8, 21, "the input does not fit the workflow: -1 is less than the minimum of 0"),
    ("{amount: 900}", "{amount: 9, nte: x}", 8, 12, "the input does not fit the workflow: "),
    ("input: {amount: 900}", "input: {}", 8, 12, "the input does not fit the workflow: "),
    ("state: {status: new}\n", "state: {status: 5}\n", 9, 21, "the state `status` does not fit the workflow: 5 is not"),
    ("state: {status: new}\n", "state: {stats: x}\n", 9, 13, "the workflow declares no state `stats`; did you mean"),
    ("pending: account,", "pending: acount,", 12, 18, "the workflow has no step `acount`; did you mean `account`?"),
    ("pending: review", "pending: book", 13, 27, "people are not asked at `book`; there is account, details, review"),
    ("decision: approve", "decision: aprove", 13, 45, "`review` has no option `aprove`; did you mean `approve`?"),
    ("pending: []", "pending: [reviw]", 14, 24, "the workflow has no step `reviw`; did you mean `review`?"),
    ("status: new}, calls", "stats: 1}, calls", 14, 35, "the workflow declares no state `stats`; did you mean"),
    ("erp.book: 1", "erp.bok: 1", 14, 57, "no step of the workflow performs `erp.bok`; did you mean `erp.book`?"),
    ("[details]", "[mail.send]", 14, 84, "no step of the workflow performs `mail.send`; there is book, erp,"),
    ("{book: finished}", "{bok: failed}", 14, 99, "the workflow has no step `bok`; did you mean `book`?"),
    ("steps: {book: finished}", "escalated: {review: 1}", 14, 103, "`review` has no `escalate` in its `on_deadline`"),
]


def test_what_a_client_is_only_shown_is_not_mocked(tmp_path: Path) -> None:
    shown = "tools: {show: {frontend: {description: S, parameters: {type: object}, answer: none}}}"
    flow = f"hai: flow/v1\nname: a\nversion: 1\n{shown}\nsteps: [{{id: x, call: show}}]\n"
    (tmp_path / "a.flow.yaml").write_text(flow)
    case = "{name: a, mock: {x: {output: 1}}, script: [{expect: {pending: [x]}}]}"
    suite = f"hai: test/v1\nworkflow: a.flow.yaml\ncases: [{case}]\n"
    document = loaded(tmp_path, suite)
    assert [
        "is only shown to a client" in document.findings[0].message,
        "not asked at" in document.findings[1].message,
    ] == [True, True]


def test_a_document_that_fits_its_workflow_has_no_findings(tmp_path: Path) -> None:
    document = loaded(tmp_path, HEAD + CASE.replace("[details]", "[]"))
    assert document.findings == ()
    assert [case.name for case in document.cases] == ["a case"]


@pytest.mark.parametrize(("right", "wrong", "line", "column", "message"), WRONG, ids=[each[1] for each in WRONG])
def test_what_the_workflow_does_not_have_is_a_finding(
    tmp_path: Path, right: str, wrong: str, line: int, column: int, message: str
) -> None:
    good = HEAD + CASE.replace("[details]", "[book]")
    text = good.replace(right.replace("[details]", "[book]"), wrong, 1)
    assert text != good
    document = loaded(tmp_path, text)
    (finding,) = document.findings
    assert message in finding.message
    assert (finding.line, finding.column) == (line, column)
    assert document.cases == ()


FLOW: Final = """\
hai: flow/v1
name: a
version: 1
input: {type: object}
triggers:
  - webhook: {path: orders, secret: "${{ secrets.S }}", input: {}}
  - schedule: {cron: "0 6 * * *", timezone: UTC}
steps:
  - approve: {title: Go, from: "user:ann", deadline: 1d, withdraw_when: {event: order.gone}}
    on_reject: [return: 1]
  - wait_for: {event: order.paid, deadline: 3d}
"""
STARTS: Final = [
    ("start: {webhook: {path: ordres}}", 5, 29, "no `webhook` trigger has the path `ordres`; did you mean `orders`?"),
    ("start: {schedule: {cron: 0 7 * * *}}", 5, 30, "no `schedule` trigger has the cron `0 7 * * *`; did you mean"),
    ("script: [signal: {type: order.payed}]", 5, 29, "the workflow waits for no event `order.payed`; did you mean"),
    ("script: [signal: {type: order.gonne}]", 5, 29, "the workflow waits for no event `order.gonne`; did you mean"),
    ("script: [advance: 2 days]", 5, 23, "write 2d"),
    ("expect: {status: done}", 5, 22, "there is no status of a run `done`; did you mean `finished`?"),
]


@pytest.mark.parametrize(("entry", "line", "column", "message"), STARTS, ids=[each[0] for each in STARTS])
def test_what_starts_or_moves_a_run_by_a_wrong_name_is_a_finding(
    tmp_path: Path, entry: str, line: int, column: int, message: str
) -> None:
    (tmp_path / "a.flow.yaml").write_text(FLOW)
    document = loaded(tmp_path, f"hai: test/v1\nworkflow: a.flow.yaml\ncases:\n  - name: a\n    {entry}\n")
    (finding,) = document.findings
    assert message in finding.message
    assert (finding.line, finding.column) == (line, column)


def test_an_event_that_resembles_none_may_be_sent(tmp_path: Path) -> None:
    (tmp_path / "a.flow.yaml").write_text(FLOW)
    case = "{name: a, script: [signal: {type: stock.empty}, signal: {type: order.gone}]}"
    assert loaded(tmp_path, f"hai: test/v1\nworkflow: a.flow.yaml\ncases: [{case}]\n").findings == ()


def test_a_workflow_with_mistakes_shows_them_too(tmp_path: Path) -> None:
    document = loaded(tmp_path, HEAD + CASE, EXPENSE.replace("- wait:", "- wiat:"))
    first, second = document.findings
    assert str(first) == "t.test.yaml:2:11: the workflow `expense.flow.yaml` has a mistake; correct it first"
    assert "wiat" in second.message
    assert second.file.endswith("expense.flow.yaml")


def test_a_workflow_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    document = loaded(tmp_path, HEAD.replace("expense.flow", "expanse.flow") + CASE)
    (finding,) = document.findings
    assert str(finding) == (
        "t.test.yaml:2:11: expected a workflow at `expanse.flow.yaml`, beside this file: no such file or directory; "
        "give its path, or name@version"
    )


def test_a_workflow_named_without_its_ending_is_found_for_the_remedy(tmp_path: Path) -> None:
    document = loaded(tmp_path, HEAD.replace("expense.flow.yaml", "expense") + CASE)
    (finding,) = document.findings
    assert finding.message.endswith("; did you mean `expense.flow.yaml`?")


def test_a_published_version_needs_a_server(tmp_path: Path) -> None:
    document = loaded(tmp_path, HEAD.replace("expense.flow.yaml", "expense@4") + CASE)
    (finding,) = document.findings
    assert finding.message == (
        "`expense@4` is a published version, and no server was named; add --server URL or --database DSN, or give the "
        "path of the workflow's file"
    )
