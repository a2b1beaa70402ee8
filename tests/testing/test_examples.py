"""Every workflow that comes along has tests beside it, and they pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.testing.loading import Loader
from hai_flow.testing.report import describe

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "workflows").rglob("*.test.yaml"))
LOADER = Loader()
DOCUMENTS = [LOADER.load(path, str(path.relative_to(ROOT))) for path in FILES]
CASES = [(document, case) for document in DOCUMENTS for case in document.cases]


@pytest.mark.parametrize("path", sorted((ROOT / "workflows").rglob("*.flow.yaml")), ids=lambda path: path.name)
def test_a_workflow_has_tests_beside_it(path: Path) -> None:
    assert path.with_name(path.name.replace(".flow.yaml", ".test.yaml")) in FILES


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.file)
def test_they_have_no_findings(document) -> None:
    assert document.findings == ()
    assert document.cases


@pytest.mark.parametrize(("document", "case"), CASES, ids=[f"{each.file}: {case.name}" for each, case in CASES])
def test_they_pass(document, case) -> None:
    result = document.run(case)
    assert result.passed, "\n".join(line.text for line in describe(result))
