"""Documents of OpenAPI: what refers to what, however long, however often, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow import values
from hai_flow.definition.plan import Operation
from hai_flow.definition.tools.openapi import DEFINITIONS_MAX, UnusableDocument, read

OBJECT = {"type": "object"}


def operation(schema: Any, schemas: Any = None, version: str = "3.0.3", **more: Any) -> Operation:
    """An operation whose body has this schema."""
    body = {"content": {"application/json": {"schema": schema}}}
    answered = {"200": {"content": {"application/json": {"schema": schema}}}}
    path = {"/x": {"post": {"operationId": "g", "requestBody": body, "responses": answered}}}
    document = {"openapi": version, "paths": path, "components": {"schemas": schemas or {}}, **more}
    return read(values.dumps(document)).find("g")


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        ("get", "read"),
        ("head", "read"),
        ("post", "write"),
        ("put", "write"),
        ("patch", "write"),
        ("delete", "irreversible"),
    ],
)
def test_the_method_of_an_operation_says_its_class_of_effect(method: str, effect: str) -> None:
    answered = {"200": {"description": "Good."}}
    path = {"/x": {method: {"operationId": "g", "responses": answered}}}
    assert read(values.dumps({"openapi": "3.1.0", "paths": path})).find("g").effect == effect


def to(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def fits(found: Operation, body: Any) -> bool:
    return not found.parameters.findings({"body": body})


def test_a_format_is_an_annotation_of_a_service() -> None:
    found = operation({**OBJECT, "properties": {"at": {"type": "string", "format": "date-time"}}})
    assert fits(found, {"at": "2026-01-02T03:04:05"})
    assert not fits(found, {"at": 5})


@pytest.mark.parametrize("length", [60, 2000])
def test_a_long_chain_of_references_is_no_deep_schema(length: int) -> None:
    chain: dict[str, Any] = {f"S{n}": {**OBJECT, "properties": {"n": to(f"S{n + 1}")}} for n in range(length)}
    found = operation(to("S0"), {**chain, f"S{length}": {"type": "string"}})
    assert fits(found, {"n": {"n": {}}})
    assert not fits(found, {"n": {"n": 5}})


@pytest.mark.parametrize("verb", ["allOf", "anyOf", "oneOf"])
def test_a_chain_of_schemas_that_are_put_together_is_followed_to_its_end(verb: str) -> None:
    chain: dict[str, Any] = {f"S{n}": {verb: [to(f"S{n + 1}")]} for n in range(120)}
    found = operation(to("S0"), {**chain, "S120": {"type": "integer"}})
    assert fits(found, 5)
    assert not fits(found, "five")


def test_places_of_the_same_name_are_not_confused() -> None:
    schema = {**OBJECT, "properties": {"p": to("X"), "q": {"$ref": "#/X"}, "r": {"$ref": "#/other/X"}}}
    found = operation(schema, {"X": {"type": "string"}}, X={"type": "integer"}, other={"X": {}})
    assert fits(found, {"p": "a", "q": 1})
    assert not fits(found, {"p": 1, "q": 1})
    assert not fits(found, {"p": "a", "q": "a"})


def test_references_are_read_with_their_escapes() -> None:
    schemas = {
        "a/b": {"type": "string"},
        "a~b": {"type": "integer"},
        "a b": {"type": "boolean"},
        "a.b": {"type": "null"},
    }
    names = {"p": "a~1b", "q": "a~0b", "r": "a%20b", "s": "a.b", "t": "a%2Fb"}
    found = operation({**OBJECT, "properties": {key: to(name) for key, name in names.items()}}, schemas)
    assert fits(found, {"p": "x", "q": 1, "r": True, "s": None})
    for wrong in ({"p": 1}, {"q": "x"}, {"r": 1}, {"s": 1}):
        assert not fits(found, wrong), wrong


def test_a_place_within_a_list_is_found() -> None:
    other = {"parameters": [{"name": "a", "in": "query", "schema": {"type": "integer"}}]}
    found = operation({"$ref": "#/other/parameters/0/schema"}, other=other)
    assert fits(found, 5)
    assert not fits(found, "five")


def test_schemas_that_refer_to_themselves_take_values_of_any_depth() -> None:
    tree = {**OBJECT, "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": to("Tree")}}}
    found = operation(to("Tree"), {"Tree": tree})
    assert fits(found, {"name": "a", "children": [{"name": "b", "children": []}]})
    assert not fits(found, {"children": [{"children": [{"name": 5}]}]})


def test_what_stands_beside_a_reference_counts_since_3_1() -> None:
    beside = {**to("X"), "maxLength": 2, "description": "Short."}
    schemas = {"X": {"type": "string"}}
    old, new = operation(beside, schemas), operation(beside, schemas, version="3.1.0")
    assert fits(old, "long")
    assert not fits(new, "long")
    assert fits(new, "ab")
    for each in (old, new):
        assert each.result is not None
        assert each.result["description"] == "Short.", "a model reads it"


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "int"}, 5, "five"),
        ({"type": "any"}, [5], None),
        ({"type": "array", "items": [{"type": "string"}]}, ["a"], [1]),
        ({**OBJECT, "properties": {"n": {"type": "string", "required": True}}}, {"n": "a"}, {}),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, 4, 3),
        ({"type": "string", "minLength": "1", "pattern": "(?<a>", "enum": "a"}, "", 1),
        ({**OBJECT, "additionalProperties": "false", "description": ["a"]}, {"x": 1}, 1),
        ({"$recursiveAnchor": True, "$schema": "http://a.example/draft-04", "type": "string"}, "a", 1),
    ],
)
def test_what_binds_nothing_in_a_schema_takes_no_operation_away(schema: Any, right: Any, wrong: Any) -> None:
    for each in (operation(schema), operation(to("X"), {"X": schema})):
        assert fits(each, right)
        assert wrong is None or not fits(each, wrong)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("https://a.example/x.json#/X", "only what stands in the document itself is read"),
        ("other.yaml#/X", "only what stands in the document itself is read"),
        ("file:///etc/passwd", "only what stands in the document itself is read"),
        ("#/components/schemas/Nobody", "which is not there"),
        ("#/paths/~1x/post/tags/7", "which is not there"),
    ],
)
def test_a_reference_that_leads_out_of_the_document_or_nowhere_is_told(reference: str, words: str) -> None:
    with pytest.raises(UnusableDocument, match=words):
        operation({**OBJECT, "properties": {"a": {"$ref": reference}}})


def test_a_reference_that_leads_to_itself_is_told() -> None:
    around = {"a": {"$ref": "#/components/requestBodies/b"}, "b": {"$ref": "#/components/requestBodies/a"}}
    path = {"/x": {"post": {"operationId": "g", "requestBody": around["a"], "responses": {}}}}
    document = {"openapi": "3.0.0", "paths": path, "components": {"requestBodies": around}}
    with pytest.raises(UnusableDocument, match="refers to itself"):
        read(values.dumps(document)).find("g")


def test_one_schema_that_is_nested_too_deep_and_too_many_are_refused() -> None:
    deep: Any = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UnusableDocument, match="nested too deep"):
        operation(deep)
    many = {f"S{n}": {"anyOf": [to(f"S{n + 1}")]} for n in range(DEFINITIONS_MAX + 1)}
    with pytest.raises(UnusableDocument, match="refers to more than"):
        operation(to("S0"), {**many, f"S{DEFINITIONS_MAX + 1}": {}})


def test_a_schema_is_converted_once_for_all_operations() -> None:
    shared = {f"S{n}": {**OBJECT, "properties": {"n": to(f"S{n + 1}")}} for n in range(50)}
    paths = {
        f"/{n}": {
            "get": {
                "operationId": f"o{n}",
                "responses": {"200": {"content": {"application/json": {"schema": to("S0")}}}},
            }
        }
        for n in range(50)
    }
    document = read(
        values.dumps({"openapi": "3.0.0", "paths": paths, "components": {"schemas": {**shared, "S50": {}}}})
    )
    found = [document.find(id).result for id in document.ids]
    assert all(each == found[0] for each in found)
    first, last = found[0], found[-1]
    assert first is not None
    assert last is not None
    assert all(first["$defs"][name] is last["$defs"][name] for name in first["$defs"])


# --- documents as services write them ---------------------------------------------------------------------------------

CAT: Any = {**OBJECT, "properties": {"kind": {"type": "string"}, "lives": {"type": "integer"}}}
DOG: Any = {**OBJECT, "properties": {"kind": {"type": "string"}, "barks": {"type": "boolean"}}}
STORED: Any = {**OBJECT, "required": ["id", "n"], "properties": {"id": {"type": "integer", "readOnly": True}, "n": {}}}
TAKEN: dict[str, tuple[Any, Any, Any]] = {
    "a required property that refers to a schema to be read only": (
        {**OBJECT, "required": ["id"], "properties": {"id": to("Key"), "n": {}}}, {"n": 1}, {"id": 5},
    ),
    "null for a reference that is nullable": (
        {**OBJECT, "properties": {"to": {**to("Cat"), "nullable": True}}}, {"to": None}, {"to": 5},
    ),
    "one of two that overlap, told apart by a member": (
        {"oneOf": [to("Cat"), to("Dog")], "discriminator": {"propertyName": "kind"}},
        {"kind": "cat", "lives": 9}, {"kind": "cat", "lives": "many", "barks": "no"},
    ),
    "no property that is to be read only": (to("Stored"), {"n": 1}, {"id": 1}),
    "no property in a list that is to be read only": ({"type": "array", "items": to("Stored")}, [{"n": 1}], [{}]),
}  # fmt: skip


@pytest.mark.parametrize("form", TAKEN)
def test_a_body_that_its_service_takes_fits(form: str) -> None:
    schema, right, wrong = TAKEN[form]
    found = operation(schema, {"Cat": CAT, "Key": {"type": "string", "readOnly": True}, "Dog": DOG, "Stored": STORED})
    assert (fits(found, right), fits(found, wrong)) == (True, False)


def test_a_property_to_be_read_only_is_there_in_the_answer() -> None:
    result = operation(to("Stored"), {"Stored": STORED}).result
    assert result is not None
    assert result["$defs"]["Stored"]["required"] == ["id", "n"]


def described(parameters: Any = (), answer: Any = None) -> Operation:
    path = {"/x": {"get": {"operationId": "g", "parameters": list(parameters), "responses": {"200": answer or {}}}}}
    return read(values.dumps({"openapi": "3.0.3", "paths": path})).find("g")


OF_ANSWERS: list[Any] = [
    {"$ref": "./answers.yaml#/Order"},
    {"$ref": "#/components/responses/Gone"},
    {"content": {"application/json": {"schema": to("Gone")}}},
]


@pytest.mark.parametrize("answer", OF_ANSWERS)
def test_an_answer_that_can_not_be_described_takes_no_operation_away(answer: Any) -> None:
    assert described(answer=answer).result is None


OF_PARAMETERS: list[Any] = [
    {"name": "q", "in": "query", "content": {"application/json": {"schema": OBJECT}}},
    {"name": "q", "in": "query", "style": "tabDelimited", "schema": {"type": "array"}},
]


@pytest.mark.parametrize("parameter", OF_PARAMETERS)
def test_a_parameter_that_can_not_be_sent_is_left_out_unless_it_is_needed(parameter: Any) -> None:
    named = {"name": "a", "in": "query", "schema": {"type": "string"}}
    assert [each.name for each in described([parameter, named]).placed] == ["a"]
    with pytest.raises(UnusableDocument, match="`q`"):
        described([{**parameter, "required": True}, named])
