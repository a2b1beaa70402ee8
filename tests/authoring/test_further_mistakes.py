"""More mistakes of new authors, each found at its line, most written before the checker was read; and right files that
are unusual, in which nothing is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hai_flow.checking.modules import ModuleFiles
from hai_flow.definition.checks.unused_declarations import list_notes
from hai_flow.definition.compiler import check_workflow
from tests.support import commands

SOURCE: Final = Path(__file__).resolve().parent / "mistakes.txt"
RIGHT: Final = Path(__file__).resolve().parent / "right.txt"
PYTHON: Final = Path(__file__).resolve().parent / "python_mistakes.txt"
PROJECT: Final = Path(__file__).resolve().parent / "project"
UNUSED: Final = Path(__file__).resolve().parent / "unused.txt"
HEAD: Final = "hai: flow/v1\nname: a\nversion: 1\n"


class Mistake(NamedTuple):
    """A workflow with one mistake: the lines at which it may be found, and a word that the message has."""

    name: str
    word: str
    workflow: str
    lines: tuple[int, ...]


def read_mistakes(path: Path = SOURCE) -> list[Mistake]:
    """Each begins with `== name: word`; `# HERE` marks its line, `# HERE-1` another that is right too."""
    mistakes: list[Mistake] = []
    for part in re.split(r"^== ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        name, _, word = title.rpartition(": ")
        workflow = HEAD + body
        marked = [number for number, line in enumerate(workflow.split("\n"), 1) if "# HERE" in line]
        mistakes.append(Mistake(name, word, re.sub(r" # HERE(-1)?", "", workflow), tuple(marked)))
    return mistakes


@pytest.mark.parametrize("mistake", read_mistakes(), ids=lambda mistake: mistake.name)
def test_a_mistake_is_found_at_its_line_in_words_that_help(mistake: Mistake) -> None:
    source = mistake.workflow.encode()
    findings = check_workflow(source, "a.flow.yaml", modules=ModuleFiles(["a.flow.yaml"]).find)
    assert any(each.line in mistake.lines and mistake.word in each.message for each in findings), findings


@pytest.mark.parametrize("mistake", read_mistakes(PYTHON), ids=lambda mistake: mistake.name)
def test_arguments_that_do_not_fit_annotations_of_python_are_findings(mistake: Mistake) -> None:
    modules = ModuleFiles(["a.flow.yaml"], root=PROJECT, imports=False)
    findings = check_workflow(mistake.workflow.encode(), "a.flow.yaml", modules=modules.find)
    assert [each.line for each in findings] == list(mistake.lines), findings
    assert mistake.word in findings[0].message


@pytest.mark.parametrize("mistake", read_mistakes(UNUSED), ids=lambda mistake: mistake.name)
def test_what_nothing_uses_is_told_and_is_no_finding(mistake: Mistake) -> None:
    source = mistake.workflow.encode()
    assert check_workflow(source) == []
    ((line, _, message),) = list_notes(source)
    assert line in mistake.lines
    assert mistake.word in message


def test_validate_tells_what_nothing_uses(tmp_path: Path) -> None:
    mistake = read_mistakes(UNUSED)[0]
    (tmp_path / "a.flow.yaml").write_text(mistake.workflow)
    made = commands.run("validate", "a.flow.yaml", folder=tmp_path)
    assert f"a.flow.yaml:{mistake.lines[0]}:3: {mistake.word}" in made.stdout
    assert "no findings" in made.stdout
    assert made.returncode == 0


def read_right_files() -> list[tuple[str, str]]:
    """The name and the workflow of each."""
    parts = re.split(r"^== ", RIGHT.read_text(), flags=re.MULTILINE)[1:]
    return [(name, HEAD + body) for name, _, body in (part.partition("\n") for part in parts)]


@pytest.mark.parametrize(("name", "workflow"), read_right_files(), ids=lambda each: each.partition("\n")[0])
def test_nothing_is_found_in_an_unusual_file_that_is_right(name: str, workflow: str) -> None:
    assert [str(each) for each in check_workflow(workflow.encode(), modules=ModuleFiles(["a.flow.yaml"]).find)] == []
    assert list_notes(workflow.encode()) == []


@pytest.mark.parametrize("imports", [False, True])
def test_what_fits_the_annotations_of_a_function_is_no_finding(imports: bool) -> None:
    modules = ModuleFiles(["a.flow.yaml"], root=PROJECT, imports=imports)
    assert check_workflow((HEAD + FITTING).encode(), "a.flow.yaml", modules=modules.find) == []


FITTING: Final = """\
input:
  type: object
  required: [order, amount]
  properties:
    order: {type: string}
    amount: {type: number}
    note: {type: string}
    day: {type: string, format: date}
    names: {type: array, items: {type: string}, default: []}
tools: {shop: {python: acme.shop, effect: write}}
models: {smart: {provider: openai, model: gpt-5.4}}
steps:
  - id: sent
    call: shop.ship
    with:
      lines: "${{ input.names.map(n, {'sku': n, 'count': 2}) }}"
      on: ${{ input.?day.orValue("2026-01-01") }}
      colour: blue
      speed: "${{ input.amount > 3.0 ? 'fast' : 'slow' }}"
  - id: many
    call: shop.count
    with: {names: "${{ input.names }}", limit: "${{ int(input.amount) }}"}
  - if: has(input.note)
    call: shop.cancel
    with: {order: "${{ input.note }}"}
  - say: "${{ steps.sent.output.id }} for ${{ steps.sent.output.total / 2 }}, ${{ steps.many.output + 1 }}"
  - agent: {model: smart, prompt: x, tools: [shop.*], approvals: {shop.cancel: {from: requester, edit: [order]}}}
"""


def test_the_samples_are_many() -> None:
    assert len(read_mistakes()) + len(read_mistakes(UNUSED)) >= 120
    assert len(read_right_files()) >= 40
