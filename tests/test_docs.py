"""What the documents say is true: their examples compile, their links lead somewhere, generated pages are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.settings_page import page
from hai_flow.definition.compiler import check_workflow

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    assert missing == []


def test_the_workflows_in_the_readme_compile() -> None:
    documents = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert documents
    for document in documents:
        assert check_workflow(document.encode(), "README.md") == []


def test_the_mistakes_in_the_readme_are_answered_as_it_shows() -> None:
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
    assert "\n".join(str(each) for each in check_workflow(wrong, "refund.flow.yaml")) == shown[1].strip()


@pytest.mark.parametrize("path", sorted((ROOT / "workflows").rglob("*.flow.yaml")), ids=lambda path: path.stem)
def test_every_example_workflow_is_without_findings(path: Path) -> None:
    assert check_workflow(path.read_bytes(), path.name) == []


def test_the_settings_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == page() + "\n"
