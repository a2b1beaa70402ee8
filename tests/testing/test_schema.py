"""What the editor's schema of tests accepts and what the reader does agree wherever both can tell."""

from __future__ import annotations

from pathlib import Path

import jsonschema_rs
import pytest

from hai_flow.authoring import json_schema
from hai_flow.definition.yaml.document import parse
from tests.testing.support import findings_of
from tests.testing.test_fuzzing import PLAYABLE
from tests.testing.test_reader import GOOD

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "workflows").rglob("*.test.yaml"))
DOCUMENTS = [GOOD, PLAYABLE, *(path.read_text() for path in FILES)]
SCHEMA = jsonschema_rs.validator_for(json_schema.tests_schema())


@pytest.mark.parametrize("document", DOCUMENTS, ids=["good", "playable", *(path.stem for path in FILES)])
def test_what_can_be_played_is_fine_for_the_editor(document: str) -> None:
    assert [error.message for error in SCHEMA.iter_errors(parse(document.encode()).value)] == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("workflow: a", "workflo: a"), ("- expect:", "- expects:"), ("pending: [review]", "pending: review"),
     ("{type: paid,", "{name: paid,"), ("- pause\n", "- paus\n"), ("advance: 2d", "advance: 2")],
)  # fmt: skip
def test_what_the_editor_marks_is_a_finding(right: str, wrong: str) -> None:
    document = GOOD.replace(right, wrong, 1)
    assert not SCHEMA.is_valid(parse(document.encode()).value)
    assert findings_of(document)
