"""What the documents say is true: their examples compile, generated pages are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.settings_page import page
from hai_flow.cli import app
from hai_flow.definition.compiler import check_workflow

ROOT = Path(__file__).resolve().parents[1]


def test_the_workflows_in_the_readme_compile() -> None:
    documents = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert documents
    for document in documents:
        assert check_workflow(document.encode(), "README.md") == []


def test_the_mistakes_in_the_readme_are_answered_as_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = b"""hai: flow/v1
name: refund
version: 1
tools: {shop: {python: acme.shop}}
steps:
  - id: check
    call: shop.check
    with: {order: 1}
    retires: {max: 3}
  - if: steps.chek.output.ok
    say: refunded
"""
    shown = re.search(r"\$ hai-flow validate.*?\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    monkeypatch.chdir(tmp_path)
    Path("refund.flow.yaml").write_bytes(wrong)
    assert CliRunner().invoke(app, ["validate", "refund.flow.yaml"]).stdout == shown[1]


@pytest.mark.parametrize("path", sorted((ROOT / "workflows").rglob("*.flow.yaml")), ids=lambda path: path.stem)
def test_every_example_workflow_is_without_findings(path: Path) -> None:
    assert check_workflow(path.read_bytes(), path.name) == []


def test_the_settings_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == page() + "\n"
