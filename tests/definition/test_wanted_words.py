"""Words that authors asked for: what fails and is data, sums of parallel items, a veto, consent by silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.definition.compiler import check_workflow
from tests.testing.support import messages, played

HEAD = "hai: flow/v1\nname: a\nversion: 1\n"
TESTS = "hai: test/v1\nworkflow: expense.flow.yaml\n"

IGNORED = (
    HEAD
    + """\
tools: {shop: {python: acme.shop}}
steps:
  - id: pay
    call: shop.pay
    continue_on_error: true
    catch: [{errors: [tool.unavailable], steps: [{say: closed}]}]
  - say: "${{ steps.pay.status }}: ${{ has(steps.pay.error) ? steps.pay.error.code : 'fine' }}"
  - say: Paid ${{ steps.pay.?output.orValue("nothing") }}
"""
)


@pytest.mark.parametrize(
    ("mock", "said"),
    [
        ("{error: {code: tool.failed, retriable: false}}", '["failed: tool.failed", Paid nothing]'),
        ("{error: {code: tool.unavailable, retriable: false}}", '[closed, "failed: tool.unavailable", Paid nothing]'),
        ("{output: all}", '["finished: fine", Paid all]'),
    ],
)
def test_the_flow_goes_on_behind_a_failure_that_is_data(tmp_path: Path, mock: str, said: str) -> None:
    assert check_workflow(IGNORED.encode()) == []
    case = f"cases: [{{name: a, script: [restart], expect: {{status: finished, error: null, said: {said}}}}}]\n"
    (result,) = played(tmp_path, f"{TESTS}mock: {{shop.pay: {mock}}}\n{case}", IGNORED)
    assert messages(result) == []


def test_the_output_of_a_step_whose_failure_is_data_must_be_guarded() -> None:
    source = IGNORED.replace('steps.pay.?output.orValue("nothing")', "steps.pay.output").replace("    catch:", "    # ")
    assert [finding.code for finding in check_workflow(source.encode())] == ["expression.unguarded"]


SUMS = (
    HEAD
    + """\
state:
  sum: {type: integer, minimum: 0, default: 10, reduce: add}
  least: {type: integer, reduce: min}
  most: {type: integer, reduce: max}
steps:
  - for_each:
      items: [5, 3, 4]
      max_parallel: 3
      as: n
      steps: [{set: {sum: "${{ n }}", least: "${{ n }}", most: "${{ n }}"}}, {set: {sum: -1}}]
"""
)


def test_parallel_items_add_to_one_number(tmp_path: Path) -> None:
    assert [each for each in check_workflow(SUMS.encode()) if each.code != "state.starts_null"] == []
    tests = f"{TESTS}cases: [{{name: a, expect: {{status: finished, state: {{sum: 19, least: 3, most: 5}}}}}}]\n"
    (result,) = played(tmp_path, tests, SUMS)
    assert messages(result) == []


@pytest.mark.parametrize(("kind", "value"), [("string", "x"), ("boolean", "true"), ("array", "[]")])
def test_only_numbers_are_added(kind: str, value: str) -> None:
    source = f"{HEAD}state: {{sum: {{type: {kind}, default: {value}, reduce: add}}}}\nsteps: [set: {{sum: {value}}}]\n"
    assert "state.reduce" in {finding.code for finding in check_workflow(source.encode())}


VETO = (
    HEAD
    + """\
steps:
  - id: vote
    approve:
      title: Go?
      from: [role:board, role:cfo]
      quorum: 2
      reject_when: 2
      veto: role:cfo
      confirm: true
    on_reject: [{return: "no"}]
output: "yes"
"""
)


@pytest.mark.parametrize(
    ("votes", "output"), [("bob:reject carl:approve dora:approve", "yes"), ("bob:approve fay:reject", "no")]
)
def test_one_rejection_with_a_veto_decides_and_others_count(tmp_path: Path, votes: str, output: str) -> None:
    assert check_workflow(VETO.encode()) == []
    script = ", ".join(
        f"{{decide: {{pending: vote, by: {who}, decision: {what}}}}}"
        for who, _, what in (vote.partition(":") for vote in votes.split())
    )
    people = "people: {bob: [role:board], carl: [role:board], dora: [role:board], fay: [role:cfo], eve: []}\n"
    tests = (
        f'{TESTS}{people}cases: [{{name: a, script: [{script}], expect: {{status: finished, output: "{output}"}}}}]\n'
    )
    (result,) = played(tmp_path, tests, VETO)
    assert messages(result) == []


def test_a_veto_of_somebody_who_is_not_asked_is_a_finding() -> None:
    source = VETO.replace("from: [role:board, role:cfo]", "from: role:board")
    assert [finding.code for finding in check_workflow(source.encode())] == ["veto.not_asked"]


@pytest.mark.parametrize(("end", "codes"), [("approve", ["approval.by_deadline"]), ("{approve: {intended: true}}", [])])
def test_silence_that_is_meant_to_be_consent_has_no_warning(end: str, codes: list[str]) -> None:
    source = VETO.replace("      confirm: true\n", f"      on_deadline: {end}\n")
    assert [finding.code for finding in check_workflow(source.encode())] == codes
