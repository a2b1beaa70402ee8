"""docs/authoring-trial.md: the texts are those of its table, and each is what the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hai_flow.definition.compiler import check_workflow
from hai_flow.testing.loading import DocumentLoader

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "authoring-trial.md").read_text()
TEXTS = sorted((ROOT / "tests" / "authoring" / "trial").glob("*.flow.yaml"))
FIRST = PAGE[: PAGE.index("## A second trial")]
OUTCOMES = dict(re.findall(r"^\| [^|]+ \| `([a-z-]+)` \| [^|]+ \| ([^|]+) \|$", FIRST, re.MULTILINE))


def test_the_table_has_every_text() -> None:
    assert sorted(OUTCOMES) == [path.name.removesuffix(".flow.yaml") for path in TEXTS]
    valid = sum(outcome.startswith("valid") for outcome in OUTCOMES.values())
    assert f"{valid} of {len(TEXTS)} now" in PAGE


@pytest.mark.parametrize("path", TEXTS, ids=[path.stem for path in TEXTS])
def test_a_text_is_what_the_table_says(path: Path) -> None:
    found = [finding.severity for finding in check_workflow(path.read_bytes())]
    errors, warnings = found.count("error"), found.count("warning")
    said = (
        f"{errors} errors" if errors else "valid" + (f", {warnings} warning{'s' * (warnings > 1)}" if warnings else "")
    )
    assert said == OUTCOMES[path.name.removesuffix(".flow.yaml")]


SECOND_PART = PAGE[PAGE.index("## A second trial") : PAGE.index("## A third trial")]
SECOND = sorted((ROOT / "tests" / "authoring" / "second_trial").glob("*.flow.yaml"))
COUNTS = dict(re.findall(r"^\| [^|]+ \| `([a-z-]+)` \| 0 \| (\d) of \2 \|$", SECOND_PART, re.MULTILINE))


def test_the_second_table_has_every_text() -> None:
    assert sorted(COUNTS) == [path.name.removesuffix(".flow.yaml") for path in SECOND]
    assert len(SECOND) == 12


@pytest.mark.parametrize("path", SECOND, ids=[path.stem for path in SECOND])
def test_a_text_of_the_second_trial_has_no_finding_and_its_tests_are_green(path: Path) -> None:
    assert [str(finding) for finding in check_workflow(path.read_bytes())] == []
    name = path.name.removesuffix(".flow.yaml")
    suite = DocumentLoader().load(path.with_name(f"{name}.test.yaml"))
    assert suite.findings == ()
    results = [suite.run(case) for case in suite.cases]
    assert [failure for result in results for failure in result.failures] == []
    assert len(results) == int(COUNTS[name])
