"""The server's sentences in the reader's language: each code that the server gives has one in Chinese."""

from __future__ import annotations

import re
from typing import get_args

from console import building
from hai_flow.api.http.problems import collect_codes_of_faults
from hai_flow.definition.fields import KNOWN_CODES
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.schedule import Clause
from tests.support.codes import (
    codes_of_findings,
    codes_of_obstacles,
    codes_of_refusals,
    codes_of_standing,
    codes_of_values,
)

CATALOGUE = building.HERE / "src" / "text" / "server.zh.ts"


def translated() -> dict[str, str]:
    """The Chinese sentences, by code."""
    return dict(re.findall(r'^  "?([a-z0-9_.]+)"?: "(.+)",$', CATALOGUE.read_text(), re.MULTILINE))


def test_every_refusal_has_a_sentence_in_chinese() -> None:
    codes = codes_of_refusals()
    assert len(codes) > 100
    assert codes - set(translated()) == set()


def test_every_mistake_of_a_document_has_a_sentence_in_chinese() -> None:
    codes = codes_of_findings()
    assert len(codes) > 150
    assert codes - set(translated()) == set()


def test_every_fault_of_a_value_and_of_a_request_has_a_sentence_in_chinese() -> None:
    codes = codes_of_values() | collect_codes_of_faults()
    assert {"value.minimum", "value.no_variable", "request.missing", "request.unknown_parameter"} < codes
    assert codes - set(translated()) == set()


def test_every_reason_why_a_run_stays_has_a_sentence_in_chinese() -> None:
    codes = codes_of_obstacles()
    assert {"step.join", "step.effect", "pending.content"} < codes
    assert codes - set(translated()) == set()


def test_every_code_with_which_a_run_can_fail_has_a_sentence_in_chinese() -> None:
    assert KNOWN_CODES - set(translated()) == set()


def test_exactly_the_findings_of_doctor_and_status_have_chinese_sentences() -> None:
    codes = codes_of_standing()
    assert {"doctor.schema.empty", "doctor.pooler.polls", "doctor.database.fsync.bad", "status.no_worker"} < codes
    written = re.findall(r'^  "([a-z_.]+)": \(', (CATALOGUE.parent / "doctor.zh.ts").read_text(), re.MULTILINE)
    assert codes == set(written)


def test_a_fault_has_a_code_of_these_and_says_what_is_wanted() -> None:
    schema = {
        "type": "object",
        "required": ["day"],
        "properties": {"guests": {"type": "integer", "maximum": 8}, "meal": {"enum": ["fish", 7]}},
    }
    found = {each["code"]: each["params"] for each in JsonSchema(schema).findings({"guests": 9, "meal": "none"})}
    assert found == {"value.required": ["day"], "value.maximum": ["8"], "value.enum": ["fish", "7"]}
    assert set(found) <= codes_of_values()


def test_every_clause_of_a_schedule_is_said_in_chinese() -> None:
    said = (CATALOGUE.parent / "schedule.zh.ts").read_text()
    assert {code for code in get_args(Clause) if f'"{code}": (' not in said} == set()


def test_sentences_in_chinese_are_chinese() -> None:
    assert {code for code, said in translated().items() if not re.search(r"[\u4e00-\u9fff]", said)} == set()


def test_chinese_sentences_have_the_punctuation_of_chinese() -> None:
    narrow = re.compile(r"[\u4e00-\u9fff][,:;?!]|[,:;?!][\u4e00-\u9fff]")
    for path in sorted(CATALOGUE.parent.glob("*zh.ts")):
        texts = re.findall(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`', path.read_text())
        assert len(texts) > 10
        assert [text for text in texts if narrow.search(text)] == [], path.name
