"""Characters in documents that nobody sees or nothing can store: named at their place, with the remedy."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.yaml.document import parse
from hai_flow.errors import Finding

HEAD = "hai: flow/v1\nname: a\nversion: 1\n"


def findings(text: str) -> list[Finding]:
    return list(parse(text.encode()).findings)


@pytest.mark.parametrize("escape", ["\\0", "\\x00", "\\u0000", "\\U00000000"])
@pytest.mark.parametrize("at", ["title: {}", "steps: [{{say: {}}}]", "{}: 1", "steps: [{{set: {{{}: 1}}}}]"])
def test_a_nul_by_an_escape_is_a_finding_at_its_text_also_in_a_key(escape: str, at: str) -> None:
    (found,) = findings(HEAD + at.format(f'"a{escape}b"'))
    assert (found.code, found.line, found.column) == ("yaml.control", 4, at.replace("{{", "{").index("{}") + 1)
    assert "\x00" not in json.dumps(parse((HEAD + at.format(f'"a{escape}b"')).encode()).value)


def test_what_is_no_escape_is_no_nul() -> None:
    assert findings(HEAD + "title: '\\0'\n") == []
    assert findings(HEAD + 'title: "\\\\0"\n') == []


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=80), inner), max_leaves=6)
)
@pytest.mark.slow
def test_a_document_written_as_json_is_read_as_json_with_every_character(value: object) -> None:
    text = json.dumps({"value": value})
    stored = "\\u0000" not in text and "\\ud" not in json.dumps(value, ensure_ascii=False)
    document = parse(text.encode())
    if stored and not document.findings:
        assert document.value == json.loads(text)
    assert {each.code for each in document.findings} <= {"yaml.control", "yaml.merge_key", "yaml.key", "yaml.surrogate"}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "\\ud83d\\ude80 b", "c": 1}',
        '{"a": "\\uD83D\\uDE80\\ud83d\\ude80"}',
        'a: "\\ud83d\\ude80"\nb: "\\ud83d\\ude80"',
    ],
)
def test_a_surrogate_pair_is_one_character(text: str) -> None:
    document = parse(text.encode())
    assert document.findings == ()
    assert document.value["a"].startswith("🚀")
    last = list(document.value)[-1]
    assert document.position((last,), key=True)[1] == text.split("\n")[-1].index(f"{last}") + (0 if "{" in text else 1)


@pytest.mark.parametrize(
    ("text", "column"), [('{"a": "x\\ud83d"}', 9), ('{"a": "\\ude80\\ud83d"}', 8), ('a: "\\udc00"', 5)]
)
def test_half_of_a_character_is_a_finding_of_its_own(text: str, column: int) -> None:
    found = findings(text)[0]
    assert (found.code, found.column) == ("yaml.surrogate", column)


def test_escapes_in_other_quotes_stay_as_they_are() -> None:
    assert parse(b"a: '\\ud83d\\ude80'\nb: \"\\\\ud83d\\\\ude80\"").value == {
        "a": "\\ud83d\\ude80",
        "b": "\\ud83d\\ude80",
    }


@pytest.mark.parametrize(
    ("text", "line", "column", "sign", "mended"),
    [
        ("steps:\n  -\u00a0say: a\n", 5, 4, "U+00A0 (no-break space)", " "),
        ("steps:\n  - say:\u00a0a\n", 5, 9, "U+00A0", " "),
        ("steps:\n\u00a0\u00a0- say: a\n", 5, 1, "U+00A0", " "),
        ("steps:\n\u3000- say: a\n", 5, 1, "U+3000 (ideographic space)", " "),
        ("st\u200beps:\n  - say: a\n", 4, 3, "U+200B (zero-width space)", ""),
        ("steps:\n  - say\ufe0f: a\n", 5, 8, "U+FE0F", ""),
        ("steps:\n  - say\u061c: a\n", 5, 8, "U+061C", ""),
        ("steps:\n  - sa\uffa0y: a\n", 5, 7, "U+FFA0", None),
        ("steps:\n  - say\U000e0041: a\n", 5, 8, "U+E0041", ""),
        ("steps:\n  -\u3164say: a\n", 5, 4, "U+3164", " "),
        ("title: x\nif\u00a0: y\n", 5, 3, "U+00A0", " "),
        ("sa\ufeffy: 1\n", 4, 3, "U+FEFF (byte order mark)", None),
        ("\ufeffsteps: []\n", 4, 1, "U+FEFF", None),
        ("steps:\n  - if:\u2003true\n", 5, 8, "U+2003", " "),
        ("steps:\n  - say: a\n\ufeff  - say: b\n", 6, 1, "U+FEFF", None),
        ("steps:\n  - say: a\n \ufeff - say: b\n", 6, 2, "U+FEFF", None),
        ("steps:\n  - say: >-\n      a\n\u00a0\u00a0\u00a0\u00a0\u00a0b\n", 7, 1, "U+00A0", None),
    ],
)
def test_a_sign_that_spoils_a_key_is_named_with_its_code_and_column(
    text: str, line: int, column: int, sign: str, mended: str | None
) -> None:
    found = findings(HEAD + text)[0]
    assert (found.code, found.line, found.column) == ("yaml.unseen", line, column)
    assert sign in found.message
    if mended is not None:
        (edit,) = found.fix
        assert (edit.line, edit.column, edit.end_column, edit.text) == (line, column, column + 1, mended)


@pytest.mark.parametrize("text", ["  -\u00a0say: a\n", "  -\u3000say: a\n", "  - say:\u00a0a\n", "  - say\u00a0: a\n"])
def test_what_follows_from_a_spoilt_key_is_no_finding_of_its_own(text: str) -> None:
    found = check_workflow(f"hai: flow/v1\nname: x\nversion: 1\nsteps:\n{text}".encode())
    assert [each.code for each in found] == ["yaml.unseen"]


def test_an_escape_beyond_the_last_character_is_named() -> None:
    found = findings(HEAD + 'title: "a\\U00110000"\n')[0]
    assert (found.code, found.line, found.column) == ("yaml.syntax", 4, 10)
    assert "`\\U00110000` is no character" in found.message


@pytest.mark.parametrize(
    ("before", "key", "column"),
    [
        ("- set: {", '"' + "\\u0041" * 300 + '"', 9),
        ("- set: {a: 1, ", "'" + "k" * 1100 + "'", 15),
        ("- set: {", "k" * 1100, 9),
        ("- ", '"' + "\\u0041" * 300 + '"', 3),
        ("- a: {b: {", '"' + "\\x41" * 300 + '"', 11),
    ],
)
def test_a_key_that_is_too_long_for_yaml_is_named_at_its_beginning(before: str, key: str, column: int) -> None:
    found = findings(f"{HEAD}steps:\n{before}{key}: 1{'}' * before.count('{')}\n")[0]
    assert (found.code, found.line, found.column) == ("yaml.syntax", 5, column)
    assert f"at most 1024 characters, this one has {len(key)}" in found.message


@pytest.mark.parametrize(
    "text", ["title: a\u00a0b\n", "title: 你好\u3000世界\n", "title: '\u00a0a'\n", "'a\u00a0b': 1\n"]
)
def test_a_sign_that_spoils_nothing_is_left_alone(text: str) -> None:
    assert findings(HEAD + text) == []


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("written", ['"a{}b"', "'a{}b'", "a{}b", "|-\n  a{}b", '"{{{{ x }}}}a{}b"'])
def test_a_line_break_of_other_ages_is_kept_in_a_text(sign: str, written: str) -> None:
    document = parse((HEAD + f"title: {written.format(sign)}\nsteps: [{{say: hello}}]\n").encode())
    assert document.findings == ()
    assert document.value["title"].endswith(f"a{sign}b")
    assert document.value["steps"] == [{"say": "hello"}]
    (found,) = findings(HEAD + f"title: {written.format(sign)}\nsteps: [}}\n")
    assert found.line == 5 + written.count("\n")


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029"])
def test_a_line_break_of_other_ages_that_spoils_a_key_is_named(sign: str) -> None:
    named = [each for each in findings(HEAD + f"steps:\n  -{sign}say: a\n") if f"U+{ord(sign):04X}" in each.message]
    assert [(each.code, each.line) for each in named] == [("yaml.unseen", 5)]
