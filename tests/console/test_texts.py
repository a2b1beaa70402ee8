"""The server's sentences in the reader's language: each code that the server gives has one in Chinese."""

from __future__ import annotations

import re
from typing import get_args, get_type_hints

import pytest

from console import building
from hai_flow.api.http.problems import collect_codes_of_faults
from hai_flow.api.requests.schemas import WhyNot
from hai_flow.definition.fields import KNOWN_CODES
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.schedule import Clause
from tests.support.codes import (
    codes_of_findings,
    codes_of_obstacles,
    codes_of_refusals,
    codes_of_standing,
    codes_of_values,
    sentences_of_reasons,
)

CATALOGUE = building.HERE / "src" / "text" / "server.zh.ts"


def translated() -> dict[str, str]:
    """The Chinese sentences, by code."""
    return dict(re.findall(r'^  "?([a-z0-9_.]+)"?: "(.+)",$', CATALOGUE.read_text(), re.MULTILINE))


@pytest.mark.costly
def test_every_refusal_has_a_sentence_in_chinese() -> None:
    codes = codes_of_refusals()
    assert len(codes) > 100
    assert codes - set(translated()) == set()


@pytest.mark.slow
def test_every_mistake_of_a_document_has_a_sentence_in_chinese() -> None:
    codes = codes_of_findings()
    assert len(codes) > 150
    assert codes - set(translated()) == set()


@pytest.mark.costly
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


@pytest.mark.costly
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


def test_every_reason_why_one_may_not_decide_is_said_in_both_languages() -> None:
    codes = set(get_args(get_type_hints(WhyNot)["code"]))
    assert {"excluded.requester", "not_picked"} < codes
    for name in ("en.ts", "zh.ts"):
        reasons = (CATALOGUE.parent / name).read_text().partition("whyNot: {")[2].partition("}")[0]
        assert set(re.findall(r'^      "?([a-z_.]+)"?: "', reasons, re.MULTILINE)) == codes, name


def test_every_reason_that_is_a_sentence_alone_is_said_in_chinese() -> None:
    written = (CATALOGUE.parent / "reasons.zh.ts").read_text()
    forms = re.findall(r"^  \[/(\^.+?)/, ", written, re.MULTILINE)
    reasons = sentences_of_reasons()
    assert {"it needs 7 more people, and 7 can decide", "it answered 7"} < reasons
    assert {each for each in reasons if not any(re.fullmatch(form, each) for form in forms)} == set()


def test_no_page_shows_a_sentence_of_the_server_but_by_its_code() -> None:
    shows = re.compile(r"(?<!=)[{>] *[a-z]+(?:\.[a-z]+)*\??\.(?:message|detail|explanation|why)\b")
    lines = {
        f"{path.name}: {line.strip()}"
        for path in (CATALOGUE.parents[1]).rglob("*.tsx")
        for line in path.read_text().splitlines()
        if shows.search(line) and not re.search(r'lang="en"|[a-z](?:Text|InChinese)\(|inChinese\(', line)
    }
    assert {line for line in lines if not line.endswith(OWN_WORDS)} == set()


OWN_WORDS = (
    "{pending.message && <Markdown text={pending.message} />}",  # the author's
    "{step.detail && <Text text={step.detail} />}",  # what the step says in the source
    "`${each.path.slice(field.length)} ${each.message}`.trim());",  # translated before
    "<code>{p.at(each.line, each.column)}</code> {each.message.slice(0, 1000)}",  # translated before
)


def test_sentences_in_chinese_are_chinese() -> None:
    assert {code for code, said in translated().items() if not re.search(r"[\u4e00-\u9fff]", said)} == set()


def test_chinese_sentences_have_the_punctuation_of_chinese() -> None:
    chinese = r"[\u3000-\u9fff\uff00-\uffef]"
    narrow = re.compile(rf"{chinese}[,:;?!()]|[,:;?!()]{chinese}|\}}[,:;?!()]")
    for path in sorted(CATALOGUE.parent.glob("*zh.ts")):
        texts = re.findall(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`', path.read_text())
        assert len(texts) > 10
        texts = [re.sub(r"\$\{[^{}]*\}", "{}", text) for text in texts if re.search(chinese, text)]
        assert [text for text in texts if narrow.search(text)] == [], path.name
