"""A wrong test document is answered at the wrong key or value, with the remedy, everything at once."""

from __future__ import annotations

import pytest

from hai_flow.testing.documents.reader import read_suite
from tests.testing.support import findings_of

GOOD = """\
hai: test/v1
workflow: a.flow.yaml
people: {ann: [role:boss, group:finance], eve: []}
mock:
  erp.book: [{error: {code: tool.unavailable, retry_after: 5s}}, {output: {id: B1}}]
  review: {tool_calls: [web.search, {call: web.fetch, with: {url: x}}], text: fine}
cases:
  - name: a case
    requester: ann
    mock: {erp.book: {output: null}}
    script:
      - expect: {status: waiting, pending: [review], error: null}
      - decide: {pending: review, by: ann, decision: approve, values: {a: 1}, edits: {b: 2}, refused: 403}
      - answer: {pending: form, value: {why: because}}
      - signal: {type: paid, data: {n: 1}}
      - advance: 2d
      - pause
      - resume: {}
      - stop:
      - restart
    expect: {output: null, calls: {erp.book: 2}, not_called: [mail.send], escalated: {review: 1}, steps: {a: finished}}
    events: [run_started, run_finished]
"""

WRONG = [
    ("cases: []", "cases: []", "expected at least one case, found an empty list"),
    ("hai: test/v1", "hai: test/v2", "expected `hai: test/v1`, found `test/v2`"),
    ("hai: test/v1", "hai: flow/v1", "this is a workflow, its tests are a file of their own"),
    (
        "workflow: a.flow.yaml\n",
        "workflo: a.flow.yaml\n",
        "unknown key `workflo` in the tests, where `workflow` is missing; did you",
    ),
    ("workflow: a.flow.yaml\n", "workflow: 5\n", "`workflow`: expected text, found the number 5"),
    ("people:", "now: 2026-03-02\npeople:", "expected an instant with offset such as 2026-03-02T09:00:00Z"),
    ("role:boss", "boss", "expected `role:NAME` or `group:NAME`, found the text 'boss'"),
    ("eve: []", "eve: 5", "expected a list such as [role:controller], found the number 5"),
    ("eve: []", "user:eve: []", "expected a person's name without `user:` such as `ann`, found `user:eve`"),
    ("{output: null}}", "{output: 1, error: {}}}", "expected one of `output`, `error`, `text`, found `output` and"),
    ("{output: null}}", "{}}", "expected `output`, `error`, `text` or `tool_calls` in the mock of `erp.book`"),
    ("{output: null}}", "[]}", "expected what `erp.book` does call after call, found an empty list"),
    ("{output: null}}", "{outputs: 1}}", "unknown key `outputs` in the mock of `erp.book`; did you mean `output`?"),
    ("retry_after: 5s", "retry_after: soon", "expected a duration such as 90s, 1h30m, 7d or PT5M, found 'soon'"),
    ("code: tool.unavailable", "codes: x", "unknown key `codes` in the error of `erp.book`; did you mean `code`?"),
    ("- name: a case", "- nam: a case", "unknown key `nam` in a case, where `name` is missing; did you mean `name`?"),
    ("requester: ann", "requester: anne", "there is nobody `anne` in `people`; did you mean `ann`?"),
    ("by: ann", "by: user:ann", "there is nobody `user:ann` in `people`; write `ann`, without `user:`"),
    ("by: ann", "by: mallory", "there is nobody `mallory` in `people`; write `mallory: []` there"),
    ("- expect:", "- expects:", "there is no verb `expects` in a script; did you mean `expect`?"),
    ("status: waiting", "status: waits", "there is no status of a run `waits`; did you mean `waiting`?"),
    ("pending: [review]", "pending: review", "`pending`: expected a list, found the text 'review'"),
    ("pending: [review]", "pending: [1]", "expected the path of a step (text), found the number 1"),
    ("error: null", "error: tool.failed", "`error`: expected a mapping, or null for no error, found the text"),
    (
        "decision: approve",
        "decisions: approve",
        "unknown key `decisions` in `decide`, where `decision` is missing; did you",
    ),
    ("edits: {b: 2}", "edits: [b]", "`edits`: expected a mapping, found a list"),
    ("refused: 403", "refused: 500", "expected the status of a refusal (403, 404, 409, 410, 422), found 500"),
    ("refused: 403", "refused: true", "`refused`: expected a whole number, found true (a boolean)"),
    ("value: {why: because}}", "error: no, value: 1}", "expected one of `value` (what is answered) and `error`"),
    (", value: {why: because}", "", "expected one of `value` (what is answered) and `error`"),
    ("{type: paid,", "{name: paid,", "unknown key `name` in `signal`, where `type` is missing; the keys are type"),
    ("advance: 2d", "advance: 2", "expected a duration such as 2d, found the number 2"),
    ("advance: 2d", "advance: 2 days", "expected a duration such as 90s, 1h30m, 7d or PT5M, found '2 days'"),
    ("resume: {}", "resume: now", "expected nothing behind `resume`, found the text 'now'"),
    ("- pause\n", "- paus\n", "there is no verb `paus` in a script; did you mean `pause`?"),
    ("- pause\n", "- 5\n", "expected an entry of the script such as `advance: 2d`, found the number 5"),
    ("- stop:\n", "- {stop: {}, pause: {}}\n", "expected exactly one verb in an entry of the script, found `stop`"),
    ("erp.book: 2", "erp.book: two", "expected how often (a whole number from 0), found the text 'two'"),
    ("{review: 1}", "{review: -1}", "expected how often (a whole number from 0), found the number -1"),
    ("{a: finished}", "{a: done}", "there is no status of a step `done`"),
    ("{a: finished}", "{a: 1}", "expected the status of a step (text), found the number 1"),
    ("run_finished]", "run_ended]", "there is no event `run_ended`; did you mean `"),
    ("not_called: [mail.send]", "not_called: mail", "`not_called`: expected a list, found the text 'mail'"),
    ("    requester: ann\n", "    requester: ann\n    requester: eve\n", "the key `requester` is written twice"),
]


def test_a_document_without_mistakes_has_no_findings() -> None:
    suite, findings = read_suite(GOOD.encode(), "t.test.yaml")
    assert findings == []
    assert suite is not None
    assert [case.name for case in suite.cases] == ["a case"]
    assert suite.people["ann"].roles == ("boss",)
    assert suite.people["ann"].groups == ("finance",)


@pytest.mark.parametrize(("right", "wrong", "message"), WRONG, ids=[f"{wrong!r:.50}" for _, wrong, _ in WRONG])
def test_a_mistake_is_one_finding_at_its_line_that_says_what_to_do(right: str, wrong: str, message: str) -> None:
    text = GOOD[: GOOD.index("cases:")] + wrong if right == "cases: []" else GOOD.replace(right, wrong, 1)
    assert text != GOOD
    findings = findings_of(text)
    wanted = [finding for finding in findings if message in finding.message]
    assert findings == wanted[:1], "\n".join(map(str, findings))
    changed = next(n for n, (a, b) in enumerate(zip(GOOD.split("\n"), text.split("\n"), strict=False), 1) if a != b)
    assert abs(wanted[0].line - changed) <= 1
    assert wanted[0].severity == "error"


def test_two_cases_of_one_name_could_not_be_told_apart() -> None:
    text = "hai: test/v1\nworkflow: a.flow.yaml\ncases:\n  - name: a\n  - name: a\n"
    assert [str(finding) for finding in findings_of(text)] == [
        "t.test.yaml:5:11: the name `a` is used twice (first at line 4); choose another"
    ]


def test_an_empty_file_says_how_to_begin() -> None:
    assert [str(finding) for finding in findings_of("")] == [
        "t.test.yaml:1:1: expected tests, found an empty file; begin with `hai: test/v1`"
    ]


def test_what_is_no_mapping_is_one_finding() -> None:
    (finding,) = findings_of("- a\n- b\n")
    assert str(finding) == "t.test.yaml:1:1: expected a mapping for the tests, found a list"


def test_without_a_clock_of_its_own_a_test_begins_with_the_year() -> None:
    suite, _ = read_suite(b"hai: test/v1\nworkflow: a\ncases: [{name: a}]\n")
    assert suite is not None
    assert suite.now == 1_767_225_600_000


@pytest.mark.parametrize(
    ("people", "requester"),
    [
        ("{ann: [role:boss], bob: [role:boss], eve: []}", "user:eve"),
        ("{eve: [], ann: [role:boss]}", "user:eve"),
        ("{ann: [role:boss], bob: [group:it]}", "user:bob"),
        ("{}", "user:local"),
    ],
)
def test_a_run_is_started_by_the_last_person_without_a_role(people: str, requester: str) -> None:
    suite, _ = read_suite(f"hai: test/v1\nworkflow: a\npeople: {people}\ncases: [{{name: a}}]\n".encode())
    assert suite is not None
    assert suite.requester(suite.cases[0]).id == requester
