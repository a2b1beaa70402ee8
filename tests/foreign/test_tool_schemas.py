"""Schemas of tools as providers of models take them: `strict` where it may be, and no choice at the top."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.models.structured import is_strict, parameters_shown
from hai_flow.steps.agent import ToolShelf
from hai_flow.steps.offered_tools import OfferedFunction


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a={"type": "string", "format": "date-time"}, b={"type": ["integer", "null"]}),
        closed(a={"anyOf": [{"type": "string"}, closed(b={"type": "number", "minimum": 1})]}),
        {**closed(a={"$ref": "#/$defs/A"}), "$defs": {"A": closed(b={"enum": ["x"]})}},
        closed(a={"type": "array", "items": closed(), "maxItems": 3}),
    ],
)
def test_a_schema_that_openai_takes_with_strict_is_sent_so(schema: dict[str, Any]) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        closed(a={"type": "string", "format": "uri"}),
        closed(a={"oneOf": [{"type": "string"}]}),
        closed(a={"allOf": [{"type": "string"}]}),
        closed(a={"not": {"type": "string"}}),
        closed(a={"type": "object"}),
        closed(a={"type": ["object", "null"]}),
        closed(a={"type": ["object", "null"], "properties": {}}),
        closed(a={"type": "string", "default": "x"}),
        closed(a={"type": "object", "additionalProperties": {"type": "string"}}),
        closed(a={"type": "array", "prefixItems": [{"type": "string"}]}),
        closed(a={"type": "array", "items": {"type": "string", "format": "regex"}}),
        closed(a={}),
        closed(a=True),
        {**closed(), "anyOf": [closed(a={"type": "string"})]},
        {**closed(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "object", "patternProperties": {}}}},
        {"type": "array", "items": {"type": "string"}},
        {**closed(a={"type": "string"}, b={"type": "string"}), "required": ["a"]},
    ],
)
def test_a_schema_with_what_strict_lacks_is_sent_without_it(schema: dict[str, Any]) -> None:
    assert not is_strict(schema)


def test_a_schema_deeper_than_openai_takes_is_sent_without_strict() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(12):
        schema = closed(a=schema)
    assert not is_strict(schema)


def test_a_choice_at_the_top_shows_all_properties_and_is_checked_as_it_is() -> None:
    one = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {}}, "required": ["id"]}
    other = {"properties": {"name": {"type": "string"}, "id": {"type": "integer"}}, "required": ["name", "id"]}
    schema = {"anyOf": [{"$ref": "#/$defs/One"}, other], "$defs": {"One": one}, "description": "A choice"}
    shown = parameters_shown(schema)
    assert shown["type"] == "object"
    assert (set(shown["properties"]), shown["required"]) == ({"id", "note", "name"}, ["id"])
    assert not {"anyOf", "oneOf", "allOf"} & set(shown)
    shelf = ToolShelf([OfferedFunction("t.f", "", schema)])
    assert shelf.tools[0].schema == shown
    assert shelf.schemas()["t_f"].findings({"id": 1}) == []
    assert shelf.schemas()["t_f"].findings({"note": 1}) != []
    assert parameters_shown({"allOf": [one, other]})["required"] == ["id", "name"]


def test_a_tool_whose_schema_is_none_is_not_offered_and_all_others_are() -> None:
    good = {"type": "object", "properties": {}}
    shelf = ToolShelf(
        [OfferedFunction("a", "", good), OfferedFunction("b", "", {"type": "int"}), OfferedFunction("c", "", good)]
    )
    assert [each.name for each in shelf.tools] == ["a", "c"]
    assert set(shelf.schemas()) == {"a", "c"}
