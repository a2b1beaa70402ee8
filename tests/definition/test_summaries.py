"""`summary`: one line of a workflow by which lists show its runs."""

from __future__ import annotations

import pytest

from hai_flow.definition.compiler import check_workflow

HEAD = """\
hai: flow/v1
name: a
version: 1
input:
  type: object
  required: [order, card]
  properties: {order: {type: string}, note: {type: string}, card: {type: string, pii: true}}
state: {status: {type: string, default: new}}
"""
STEPS = "steps: [{id: a, say: x}]\n"


@pytest.mark.parametrize(
    "line",
    ["Order ${{ input.order }}, ${{ state.status }}", "${{ run.requester }}", "Nightly", "${{ thread.message }}"],
)
def test_a_line_over_what_is_always_there_has_no_finding(line: str) -> None:
    assert check_workflow(f'{HEAD}summary: "{line}"\n{STEPS}'.encode()) == []


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("${{ now }}", "summary.names", "found `now`"),
        ("${{ steps.a.output }}", "summary.names", "before `a`"),
        ("a\\nb", "summary.line", "one line"),
        ("${{ input.card }}", "pii.shown", "lists of runs show"),
        ("${{ secrets.KEY }}", "expression.unknown_name", "secret"),
        ("{{ input.order }}", "text.braces", "plain text"),
    ],
)
def test_what_a_list_can_not_show_is_a_finding(line: str, code: str, words: str) -> None:
    found = check_workflow(f'{HEAD}summary: "{line}"\n{STEPS}'.encode())
    assert [each.line for each in found] == [9], [str(each) for each in found]
    assert words in found[0].message
    assert found[0].code == code
