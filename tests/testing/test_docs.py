"""The page about tests is true: its example passes as it stands, and it names every key there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hai_flow.authoring import keys_of_tests
from hai_flow.definition.yaml.keys import Shape
from hai_flow.testing.loading import DocumentLoader
from hai_flow.testing.report import describe

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def test_the_example_passes_as_it_stands(tmp_path: Path) -> None:
    workflow, tests = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "refund.flow.yaml").write_text(workflow)
    path = tmp_path / "refund.test.yaml"
    path.write_text(tests)
    document = DocumentLoader().load(path)
    assert document.findings == ()
    for case in document.cases:
        result = document.run(case)
        assert result.passed, "\n".join(line.text for line in describe(result))


@pytest.mark.parametrize("shape", keys_of_tests.SHAPES, ids=lambda shape: shape.name)
def test_every_key_is_on_the_page(shape: Shape) -> None:
    assert [key for key in shape.words if not re.search(rf"\b{key}\b", PAGE)] == []


def test_every_verb_of_a_script_is_on_the_page() -> None:
    assert [verb for verb in keys_of_tests.LINE.words if f"`{verb}" not in PAGE] == []
