"""The tests that come with the templates, and those on docs/language.md: the workflows do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hai_flow.authoring.scaffold import TEMPLATES
from hai_flow.definition.yaml.document import parse
from hai_flow.testing.loading import DocumentLoader

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The workflows and tests of the page as files."""
    for number, example in enumerate(
        re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "language.md").read_text(), re.DOTALL)
    ):
        if example.startswith("hai: flow/v1"):
            (tmp_path / f"{parse(example.encode()).value['name']}.flow.yaml").write_text(example)
        elif example.startswith("hai: test/v1"):
            (tmp_path / f"{number}.test.yaml").write_text(example)
    return tmp_path


def test_the_tests_on_the_page_pass(folder: Path) -> None:
    suites = [DocumentLoader().load(path) for path in sorted(folder.rglob("*.test.yaml"))]
    results = [suite.run(case) for suite in suites for case in suite.cases]
    assert len(results) == 3
    assert [str(failure) for result in results for failure in result.failures] == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_tests_of_a_template_pass(name: str) -> None:
    suite = DocumentLoader().load(ROOT / "hai_flow" / "templates" / f"{name}.test.yaml")
    results = [suite.run(case) for case in suite.cases]
    assert results
    assert [str(failure) for result in results for failure in result.failures] == []
