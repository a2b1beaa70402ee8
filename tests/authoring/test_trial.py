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


LATER_PARTS = {
    "second_trial": PAGE[PAGE.index("## A second trial") : PAGE.index("## A third trial")],
    "fourth_trial": PAGE[PAGE.index("## A fourth trial") : PAGE.index("## A fifth trial")],
    "fifth_trial": PAGE[PAGE.index("## A fifth trial") :],
}
LATER = sorted(path for folder in LATER_PARTS for path in (ROOT / "tests/authoring" / folder).glob("*.flow.yaml"))
ROWS = {
    name: (int(warnings), int(count))
    for part in LATER_PARTS.values()
    for name, warnings, count in re.findall(
        r"^\| [^|]+ \| `([a-z-]+)` \| (?:\d, now )?(\d) \| (\d) of \3 \|$", part, re.M
    )
}


def test_the_later_tables_have_every_text() -> None:
    assert sorted(ROWS) == sorted(path.name.removesuffix(".flow.yaml") for path in LATER)
    assert len(LATER) == 27


@pytest.mark.parametrize("path", LATER, ids=[path.stem for path in LATER])
def test_a_text_of_a_later_trial_is_what_its_row_says(path: Path) -> None:
    name = path.name.removesuffix(".flow.yaml")
    warnings, count = ROWS[name]
    assert [each.severity for each in check_workflow(path.read_bytes())] == ["warning"] * warnings
    suite = DocumentLoader().load(path.with_name(f"{name}.test.yaml"))
    assert suite.findings == ()
    results = [suite.run(case) for case in suite.cases]
    assert [failure for result in results for failure in result.failures] == []
    assert len(results) == count
