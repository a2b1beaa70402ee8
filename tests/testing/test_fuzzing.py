"""Whatever stands in a test document is answered: with findings, or with results. Nothing is raised."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.yaml.document import parse
from hai_flow.testing.documents.binding import check_suite
from hai_flow.testing.documents.reader import read_suite
from hai_flow.testing.runner import run_case
from tests.support.examples import examples
from tests.testing.support import EXPENSE
from tests.testing.test_reader import GOOD

PLAN = compile_workflow(EXPENSE.encode())
PLAYABLE = """\
hai: test/v1
workflow: expense.flow.yaml
now: 2026-03-02T09:00:00Z
people: {ann: [role:boss], eve: []}
mock: {erp.book: [{error: {code: tool.unavailable, retry_after: 5s}}, {output: {id: B1}}]}
cases:
  - name: a case
    requester: ann
    input: {amount: 2000}
    state: {status: new}
    mock: {book: {output: {id: B2}}}
    script:
      - answer: {pending: details, value: {why: because}, by: eve}
      - answer: {pending: account, value: main}
      - expect: {status: waiting, pending: [review], error: null}
      - decide: {pending: review, by: eve, decision: approve, reason: fine}
      - signal: {type: paid, data: {n: 1}}
      - advance: 2d
      - restart
      - pause
      - resume
      - stop
    expect: {output: null, calls: {erp.book: 2}, not_called: [book], steps: {review: finished}}
    events: [run_started]
"""
WORDS = st.sampled_from(
    ["review", "account", "details", "book", "erp.book", "erp", "ann", "eve", "approve", "reject", "2d", "waiting",
     "pause", "stop", "restart", "finished", "a[b]/c", "a[]/b", "", "run_started", "tool.failed", "step.lost"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(-10, 10) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=4,
)


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of everything inside."""
    found = [at] if at else []
    if isinstance(value, dict):
        items: Any = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*at, key))
    return found


def changed(document: Any, at: tuple[str | int, ...], value: Any, how: str) -> bytes:
    """The document with one thing in it replaced, gone, or renamed to something else."""
    document = copy.deepcopy(document)
    inner = document
    for key in at[:-1]:
        inner = inner[key]
    if how == "replace":
        inner[at[-1]] = value
    elif how == "rename" and isinstance(inner, dict):
        inner[str(value)] = inner.pop(at[-1])
    else:
        del inner[at[-1]]
    return json.dumps(document, allow_nan=False).encode()


@st.composite
def documents(draw: st.DrawFn, text: str) -> bytes:
    document = parse(text.encode()).value
    at = draw(st.sampled_from(places(document)))
    return changed(document, at, draw(VALUES), draw(st.sampled_from(["replace", "rename", "remove"])))


@settings(max_examples=examples(200), deadline=None)
@given(documents(GOOD))
def test_a_changed_document_has_findings_or_is_a_suite(source: bytes) -> None:
    suite, findings = read_suite(source)
    assert (suite is None) == bool(findings)
    lines = source.count(b"\n") + 1
    assert all(1 <= finding.line <= lines and finding.column >= 1 and finding.message for finding in findings)


@settings(max_examples=examples(200), deadline=None)
@given(documents(PLAYABLE))
def test_a_changed_case_has_findings_or_a_result(source: bytes) -> None:
    suite, _ = read_suite(source)
    if suite is None or check_suite(suite, PLAN):
        return
    for case in suite.cases:
        result = run_case(suite, case, PLAN)
        assert all(failure.line == 1 and failure.message for failure in result.failures)


def test_the_case_that_is_changed_can_be_played() -> None:
    suite, findings = read_suite(PLAYABLE.encode())
    assert findings == []
    assert suite is not None
    assert check_suite(suite, PLAN) == []
