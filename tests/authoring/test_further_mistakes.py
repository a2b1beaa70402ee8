"""Sixty-one more mistakes of new authors, each found at its line, most written before the checker was read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hai_flow.checking.modules import ModuleFiles
from hai_flow.definition.compiler import check_workflow

SOURCE: Final = Path(__file__).resolve().parent / "mistakes.txt"
HEAD: Final = "hai: flow/v1\nname: a\nversion: 1\n"


class Mistake(NamedTuple):
    """A workflow with one mistake: the lines at which it may be found, and a word that the message has."""

    name: str
    word: str
    workflow: str
    lines: tuple[int, ...]


def read_mistakes() -> list[Mistake]:
    """Each begins with `== name: word`; `# HERE` marks its line, `# HERE-1` another that is right too."""
    mistakes: list[Mistake] = []
    for part in re.split(r"^== ", SOURCE.read_text(), flags=re.MULTILINE)[1:]:
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
