# ruff: noqa: E501  (a case is a line)
"""Edits of findings: each mends what it belongs to, and changes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.yaml.fixes import apply_fixes, find_part
from tests.definition.test_wrong_files import BASE, CASES

WHOLE = [
    (text if text.lstrip("«").startswith("hai:") else BASE + text).replace("«", "")
    for text, _, _ in (cast(tuple[str, str, str], case.values) for case in CASES)
]


@pytest.mark.costly
def test_an_edit_removes_its_finding() -> None:
    mended = 0
    for text in WHOLE:
        before = check_workflow(text.encode())
        if any(finding.fix for finding in before):
            mended += 1
            after = {(each.line, each.message) for each in check_workflow(apply_fixes(text, before).encode())}
            left = [each for each in before if each.fix and (each.line, each.message) in after]
            assert left == [], (text, left)
    assert mended > 40


def test_what_a_plan_warns_of_has_its_end_and_its_edit() -> None:
    roles = "roles: {inance: [user:ann]}\nsteps:\n  - {id: go, approve: {title: Go?, from: role:finance}}\n"
    source = f"hai: flow/v1\nname: sample\nversion: 1\n{roles}".encode()
    plan = compile_workflow(source)
    assert [each.code for each in plan.warnings if each.fix] == ["role.unknown"]
    assert plan.warnings == tuple(check_workflow(source))


@pytest.mark.costly
def test_a_finding_ends_behind_where_it_begins() -> None:
    for text in WHOLE:
        for finding in check_workflow(text.encode()):
            if finding.line and finding.end_line:
                assert (finding.end_line, finding.end_column) >= (finding.line, finding.column), finding


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("- sya: a  # why\n", "- say: a  # why\n"),
        ("- say: Kind: ${{ input.kind }}\n", '- say: "Kind: ${{ input.kind }}"\n'),
        ("- {say: a, if: input.knd == 'taxi'}\n", "- {say: a, if: input.kind == 'taxi'}\n"),
        ("- {say: a, if: input.kind == 'txai' or input.amount > 1}\n", "- {say: a, if: input.kind == 'taxi' || input.amount > 1}\n"),
        ("- {id: my-step, say: a}\n- say: ${{ steps.my-step.status }}\n", "- {id: my_step, say: a}\n- say: ${{ steps.my_step.status }}\n"),
        ("- say: a\n  if: ${{ input.amount }} > 1\n", "- say: a\n  if: input.amount > 1\n"),
        ("- {wait: {for: 5 minutes}}\n", "- {wait: {for: 5m}}\n"),
        ("- {call: mial.send}\n", "- {call: mail.send}\n"),
        ("- {call: web.serach}\n", "- {call: web.search}\n"),
        ("- {set: [{op: add, path: /plans/-, value: {}}]}\n", "- {set: [{op: add, path: /plan/-, value: {}}]}\n"),
        ("- {set: {state.status: a}}\n", "- {set: {status: a}}\n"),
    ],
)  # fmt: skip
def test_validate_fix_writes_what_was_meant_and_keeps_the_rest(tmp_path: Path, wrong: str, right: str) -> None:
    path = tmp_path / "a.flow.yaml"
    path.write_text(BASE + "# kept\nsteps:\n" + wrong)
    result = CliRunner().invoke(app, ["validate", "--fix", str(path)])
    assert path.read_text() == BASE + "# kept\nsteps:\n" + right
    assert result.exit_code == 0
    assert "1 file: no findings." in result.output.splitlines()


def test_another_word_than_a_misspelt_one_is_for_its_author() -> None:
    (finding,) = check_workflow((BASE + "steps: [{http: {url: 'https://a'}}]\n").encode())
    assert "did you mean `get`?" in finding.message
    assert finding.fix == ()


@pytest.mark.parametrize(
    "step",
    [
        "{id: a, http: {get: 'https://a.de'}}, {say: '${{ steps.a.output.headers[\"Content-Type\"] }}'}",
        "{http: {url: 'https://a.de', method: post}}",
    ],
)
def test_a_remedy_for_more_than_the_word_that_is_marked_is_no_edit(step: str) -> None:
    (finding,) = check_workflow((BASE + f"steps: [{step}]\n").encode())
    assert "write `" in finding.message
    assert finding.fix == ()


def test_an_edit_keeps_the_kind_of_a_selector() -> None:
    text = "hai: flow/v1\nname: a\nversion: 1\nroles: {auditor: [user:ann]}\nvisibility: [role:auditer]\nsteps: [{say: a}]\n"
    assert "visibility: [role:auditor]" in apply_fixes(text, check_workflow(text.encode()))


@pytest.mark.parametrize(
    ("name", "meant", "part"),
    [("shp.pay", "shop", "shp"), ("/plans/-", "plan", "plans"), ("order.total", "order_total", "order.total")],
)
def test_a_word_is_meant_for_the_part_of_a_name_that_is_nearest_to_it(name: str, meant: str, part: str) -> None:
    assert find_part(name, meant) == part


def test_a_line_that_yaml_cannot_read_hides_no_other_finding() -> None:
    text = BASE + "steps:\n  - say: Hello: you\n  - say: ${{ input.none }}\n  - say: @all\n    sey: x\n\t- say: c\n"
    found = check_workflow(text.encode())
    first = BASE.count("\n") + 2
    assert [(each.line - first, each.code) for each in found] == [
        (0, "yaml.syntax"),
        (1, "expression.unknown_property"),
        (2, "yaml.syntax"),
        (3, "shape.unknown_key"),
        (4, "yaml.syntax"),
    ]
