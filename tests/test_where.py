"""The page that answers "where is ...?" names what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINES = re.findall(r"^\| (?!where|--)(.+?) \| (.+) \|$", (ROOT / "docs" / "where.md").read_text(), re.MULTILINE)
ANSWERS = [(asked, *place) for asked, answer in LINES for place in re.findall(r"`(\S+\.py)`: `(\w+)`", answer)]


def names_in(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(each.id for each in targets if isinstance(each, ast.Name))
    return found


def test_there_are_twenty_questions() -> None:
    assert len(LINES) == 20


@pytest.mark.parametrize(("asked", "file", "name"), ANSWERS, ids=[asked for asked, _, _ in ANSWERS])
def test_what_answers_a_question_is_there(asked: str, file: str, name: str) -> None:
    assert name in names_in(ROOT / file), f"where {asked}: {file} has no {name}"


def test_the_first_line_of_a_module_says_what_it_is_for() -> None:
    modules = {path: path.read_text() for path in sorted((ROOT / "hai_flow").rglob("*.py"))}
    silent = [path for path, text in modules.items() if text.strip() and not ast.get_docstring(ast.parse(text))]
    assert not silent, f"these modules do not say what they are for: {silent}"
