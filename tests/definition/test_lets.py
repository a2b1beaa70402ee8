"""`let`, and the values of cases and branches: what may be read where, and what a run makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.personal.pii_flow import derive_personal
from tests.testing.support import messages, played

HEAD = """\
hai: flow/v1
name: a
version: 1
input:
  type: object
  required: [n, names]
  properties: {n: {type: integer}, names: {type: array, items: {type: string}}}
"""
RIGHT = (
    HEAD
    + """\
steps:
  - let: {long: "${{ input.names.filter(x, size(x) > 2) }}", twice: "${{ input.n * 2 }}", text: "n is ${{ input.n }}"}
  - id: kind
    switch:
      - {when: twice > 4, result: many}
      - default: true
        steps: [{let: {few: "${{ twice + 1 }}"}}]
        result: few ${{ few }}
  - id: both
    parallel:
      one: {steps: [{let: {a: "${{ twice }}"}}], result: "${{ a }}"}
      two: {steps: [{wait: {for: 1d}}, {let: {a: 2}}], result: "${{ a }}"}
  - id: race
    join: any
    parallel:
      one: {steps: [{let: {a: 1}}, {wait: {for: 1d}}], result: "${{ a }}"}
      two: {steps: [{let: {b: "${{ twice }}"}}], result: "${{ b }}"}
  - id: all
    for_each:
      items: ${{ long }}
      as: name
      max_parallel: 2
      steps: [{let: {loud: "${{ name.upperAscii() }}"}}, {wait: {for: 1h}}, {say: "${{ loud }}"}]
      output: ${{ loud }}
  - id: rounds
    repeat:
      max: 9
      until: reached >= twice
      steps: [{let: {reached: "${{ index + 1 }}"}}]
output:
  kind: ${{ steps.kind.output.result }}
  race: ${{ steps.race.output.result }}
  both: ${{ steps.both.output.results }}
  all: ${{ steps.all.output.map(x, x.output) }}
  rounds: ${{ steps.rounds.output.count }}
  text: ${{ text }}
"""
)


@pytest.mark.parametrize(("n", "kind"), [(1, "few 3"), (3, "many")])
def test_a_name_is_read_in_its_list_and_inside_of_it(tmp_path: Path, n: int, kind: str) -> None:
    assert check_workflow(RIGHT.encode()) == []
    tests = f"""\
hai: test/v1
workflow: expense.flow.yaml
cases:
  - name: a case
    input: {{n: {n}, names: [ann, bo, carl]}}
    script: [restart, {{advance: 1d}}, restart, {{advance: 2h}}, restart]
    expect:
      status: finished
      output: {{kind: {kind}, race: {2 * n}, both: {{one: {2 * n}, two: 2}}, all: [ANN, CARL], rounds: {2 * n}}}
      said: [ANN, CARL]
      state: {{}}
"""
    (result,) = played(tmp_path, tests, RIGHT)
    assert messages(result) == []


@pytest.mark.parametrize(
    ("steps", "code", "word"),
    [
        ("[{say: '${{ late }}'}, {let: {late: 1}}]", "expression.unknown_name", "late"),
        ("[{try: [{let: {late: 1}}]}, {say: '${{ late }}'}]", "expression.unknown_name", "late"),
        ("[{let: {late: 1}}, {let: {late: 2}}]", "let.name", "already"),
        ("[{let: {input: 1}}]", "let.name", "my_input"),
        ("[{let: {late: 1}, if: input.n > 1}]", "let.if", "condition ?"),
        ("[{let: {late: input.n}}]", "text.path", "${{ input.n }}"),
        ("[{for_each: {items: [1], steps: [{let: {item: 1}}]}}]", "let.name", "item"),
        ("[{let: {late: 1}}, {for_each: {items: [1], as: late, key: a, steps: [{say: x}]}}]", "for_each.as", "`let`"),
        ("[{let: {late: 'a'}}, {if: late > 1, say: x}]", "expression.type", ""),
        ("[{id: a, switch: [{when: input.n > 1, result: 1}]}, {if: steps.a.output.result > 0, say: x}]",
         "expression.unguarded", "result"),
        ("[{id: a, switch: [{when: input.n > 1, result: 1}, {default: true, steps: [{say: x}]}]}, "
         "{if: steps.a.output.result > 0, say: x}]", "expression.unguarded", "result"),
        ("[{switch: [{when: input.n > 1}]}]", "shape.missing_key", "steps"),
        ("[{id: a, join: any, parallel: {one: {steps: [{say: x}], result: 1}, two: [{say: y}]}}, "
         "{if: steps.a.output.result > 0, say: x}]", "expression.unguarded", "result"),
        ("[{parallel: {one: {steps: [{say: x}]}, two: [{say: y}]}}]", "shape.missing_key", "result"),
    ],
)  # fmt: skip
def test_a_name_or_a_value_that_may_be_absent_is_a_finding(steps: str, code: str, word: str) -> None:
    findings = check_workflow(f"{HEAD}steps: {steps}\n".encode())
    assert any(each.code == code and word in each.message for each in findings), findings


def test_a_case_that_always_ends_needs_no_value() -> None:
    steps = "[{id: a, switch: [{when: input.n > 1, result: 1}, {default: true, steps: [{return: 1}]}]}, {if: steps.a.output.result > 0, say: x}]"  # noqa: E501
    assert check_workflow(f"{HEAD}steps: {steps}\n".encode()) == []


def test_a_value_made_of_a_personal_one_is_personal() -> None:
    source = HEAD.replace("n: {type: integer}", "n: {type: integer, pii: true}")
    switch = "{id: s, switch: [{default: true, result: '${{ a }}'}]}"
    steps = f"[{{let: {{a: '${{{{ input.n }}}}', b: 1}}}}, {switch}, {{say: '${{{{ a }}}}'}}]"
    known = derive_personal(compile_workflow(f"{source}steps: {steps}\n".encode()), lambda run: None)
    assert known.steps["let#1"].output
    assert known.steps["s"].output
    assert known.steps["say#1"].words


def test_the_name_of_an_older_document_stays_what_it_was() -> None:
    steps = "[{for_each: {items: [1], as: vars, key: '${{ vars }}', steps: [{say: '${{ vars }}'}]}}]"
    assert check_workflow(f"{HEAD}steps: {steps}\n".encode()) == []
