"""JSON Schema: compiled, closed to the outside, with defaults."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hai_flow.definition.schemas.schemas import JsonSchema, close_schema, compile_schema


def faults(raw: Any) -> list[tuple[tuple[str | int, ...], str]]:
    found: list[tuple[tuple[str | int, ...], str]] = []
    compile_schema(raw, lambda path, code, message: found.append((path, message)))
    return found


@pytest.mark.parametrize(
    ("raw", "path", "fragment"),
    [
        ({"$ref": "https://example.com/x"}, ("$ref",), "copy the schema here"),
        ({"$ref": "file:///etc/passwd"}, ("$ref",), "copy the schema here"),
        ({"items": {"$ref": "other.json"}}, ("items", "$ref"), "inside this schema"),
        ({"$ref": "#/$defs/x"}, ("$ref",), "leads nowhere"),
        ({"allOf": [{}], "$ref": "#/allOf/\u00b2"}, ("$ref",), "leads nowhere"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, ("$schema",), "2020-12"),
        ({"type": "strnig"}, ("type",), "did you mean `string`?"),
        ({"propertes": {}}, ("propertes",), "did you mean `properties`?"),
        ({"properties": {"a": {"minLength": -1}}}, ("properties", "a", "minLength"), "less than"),
        ({"pattern": "("}, ("pattern",), "regex"),
        ({"type": "integer", "default": "x"}, ("default",), "does not fit"),
        ({"required": ["a"], "properties": {"aa": {}}}, ("required", 0), "not among"),
        (5, (), "a mapping"),
        ({"properties": {"a": 1}}, ("properties", "a"), "a mapping"),
    ],
)
def test_a_wrong_schema_is_a_finding_at_its_place(raw: Any, path: tuple[str, ...], fragment: str) -> None:
    found = faults(raw)
    assert len(found) == 1, found
    assert found[0][0] == path
    assert fragment in found[0][1]


def test_nothing_outside_is_read_even_when_a_reference_hides_behind_an_id() -> None:
    with pytest.raises(ValueError, match=r"denied|not allowed|file"):
        JsonSchema({"$id": "file:///etc/", "$ref": "passwd"})


def test_all_faults_of_a_value_are_found() -> None:
    schema = JsonSchema({
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "integer"}, "mail": {"type": "string", "format": "email"}},
    })  # fmt: skip
    found = schema.findings({"a": "x", "mail": "nobody"})
    assert sorted(fault["path"] for fault in found) == ["", "/a", "/mail"]
    assert schema.findings({"a": 1, "b": 2}) == []


@pytest.mark.parametrize(
    ("format_", "bad"), [("date-time", "2020-01-01"), ("email", "x"), ("uri", "not a uri"), ("uuid", "1-2")]
)
def test_formats_are_asserted(format_: str, bad: str) -> None:
    assert JsonSchema({"type": "string", "format": format_}).findings(bad)


def test_defaults_are_filled_at_every_depth_and_the_value_is_not_changed() -> None:
    schema = JsonSchema({
        "properties": {
            "risk": {"default": "low"},
            "nested": {"default": {}, "properties": {"n": {"default": 3}}},
            "list": {"items": {"properties": {"x": {"default": 1}}}},
            "referred": {"$ref": "#/$defs/d"},
        },
        "$defs": {"d": {"default": True}},
    })  # fmt: skip
    given = {"list": [{}, {"x": 2}]}
    assert schema.with_defaults(given) == {
        "list": [{"x": 1}, {"x": 2}], "risk": "low", "nested": {"n": 3}, "referred": True,
    }  # fmt: skip
    assert given == {"list": [{}, {"x": 2}]}


def test_input_refuses_unknown_properties_unless_it_says_otherwise() -> None:
    assert JsonSchema(close_schema({"type": "object"})).findings({"x": 1})
    assert not JsonSchema(close_schema({"type": "object", "additionalProperties": True})).findings({"x": 1})


def test_a_pattern_can_not_hang() -> None:
    began = time.process_time()
    assert JsonSchema({"pattern": "^(a+)+$"}).findings("a" * 60 + "b")
    assert JsonSchema({"pattern": "^(?=(a+)+$)"}).findings("a" * 60 + "b")
    assert time.process_time() - began < 1


LOOKS = {"type": "string", "pattern": r"(?=(a+))\1*b"}


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [
        (LOOKS, "a" * 4001, ""),
        ({"properties": {"a": LOOKS}}, {"a": "b", "c/d": "x" * 4001}, "/c~1d"),
        ({"properties": {"a": LOOKS, "b": LOOKS}}, {"a": "a" * 3000}, "/a"),
        ({"items": LOOKS}, ["a" * 3000, "a" * 3001], "/1"),
        ({"patternProperties": {"^x(?!y)": {}}}, {"x" * 4001: 1}, ""),
    ],
)
def test_a_text_too_long_for_a_lookaround_pattern_is_no_mismatch(schema: Any, value: Any, place: str) -> None:
    (fault,) = JsonSchema(schema).findings(value)
    assert fault["path"] == place
    assert "looks around or back" in fault["message"]


def test_a_lookaround_pattern_takes_short_texts_and_others_long_ones() -> None:
    assert JsonSchema(LOOKS).findings("a" * 1000 + "b") == []
    assert len(JsonSchema(LOOKS).findings("c" * 1000)) == 1
    assert JsonSchema({"type": "string", "pattern": "^(a+)+$"}).findings("a" * 1_000_000) == []


def test_a_fault_does_not_repeat_a_long_value() -> None:
    (fault,) = JsonSchema({"type": "string", "pattern": "^b$"}).findings("a" * 100_000)
    assert len(fault["message"]) <= 500
    assert fault["message"].endswith('does not match "^b$"')


def test_circular_references_end() -> None:
    schema = JsonSchema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})
    assert schema.with_defaults({"x": 1}) == {"x": 1}
