"""docs/authoring-trial.md: the texts are those of its table, and each is what the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hai_flow.definition.compiler import check_workflow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "authoring-trial.md").read_text()
TEXTS = sorted((ROOT / "tests" / "authoring" / "trial").glob("*.flow.yaml"))
OUTCOMES = dict(re.findall(r"^\| [^|]+ \| `([a-z-]+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE))


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
