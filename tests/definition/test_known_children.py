"""What a workflow gives to the workflows that it runs, and reads of them, where those are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.definition.child_interface import Child, child_of
from hai_flow.definition.compiler import check_workflow
from tests.definition.support import compiled, workflow

CHILD = """\
input: {type: object, required: [order], properties: {order: {type: string}, n: {type: integer, default: 1}}}
steps:
  - {id: a, say: a}
  - {if: input.n > 5, return: {paid: false, why: many}}
output: {paid: true}
"""


def children(name: str, version: int | None) -> Child | None:
    return child_of(compiled(CHILD)) if name == "pay" and version in (None, 2) else None


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("[{id: c, run: pay, with: {order: a}}, {say: '${{ steps.c.output.paid }} ${{ steps.c.output.why }}'}]", ""),
        ("[{run: pay@2, with: {order: '${{ run.id }}'}}]", ""),
        ("[{run: pay@3, with: {whatever: 1}}]", ""),  # not known
        ("[{run: pay}]", "the workflow `pay` needs the argument `order`"),
        ("[{run: pay, with: {order: 1}}]", "the argument `order` does not fit the workflow `pay`"),
        ("[{run: pay@2, with: {order: a, nn: 1}}]", "has no argument `nn`; did you mean `n`?"),
        (
            "[{id: c, run: pay, with: {order: a}}, {say: '${{ steps.c.output.payed }}'}]",
            "there is no `payed` in `steps.c.output`; did you mean `paid`?",
        ),
        (
            "[{id: c, run: pay, detach: true, with: {order: a}}, {say: '${{ steps.c.output.paid }}'}]",
            "there is no `paid` in `steps.c.output` (it has run_id)",
        ),
        ("[{id: c, run: pay, detach: true, with: {order: a}}, {say: '${{ steps.c.output.run_id }}'}]", ""),
        ("[{run: pay, detach: true, with: {order: a}, timeout: 5m}]", "write `limits: {duration: ...}` in `pay`"),
    ],
)
def test_what_is_given_to_a_child_and_read_of_it_is_checked(steps: str, words: str) -> None:
    found = check_workflow(workflow(f"steps: {steps}\n"), children=children)
    assert len(found) == (1 if words else 0), found
    assert not words or words in found[0].message


def test_what_gives_no_mapping_everywhere_has_any_output() -> None:
    for end in ("output: 5", "output: '${{ input }}'", "output: {a: 1}\ncatch: [{steps: [{return: 1}]}]"):
        assert child_of(compiled(f"{end}\n")).output == {}
    assert child_of(compiled("")).output == {}


def test_validate_knows_the_files_that_are_checked_and_those_beside_them(tmp_path: Path) -> None:
    head = "hai: flow/v1\nname: {}\nversion: {}\n"
    (tmp_path / "pay.flow.yaml").write_text(head.format("pay", 2) + CHILD)
    parent = tmp_path / "parent.flow.yaml"
    parent.write_text(head.format("parent", 1) + "steps: [{run: pay, with: {ordr: a}}]\n")
    for names in ([parent], [tmp_path]):
        result = CliRunner().invoke(app, ["validate", *map(str, names)])
        assert result.exit_code == 1
        assert "the workflow `pay` has no argument `ordr`; did you mean `order`?" in result.output
