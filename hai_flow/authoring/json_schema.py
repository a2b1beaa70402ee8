"""The JSON Schema (2020-12) of documents and of their tests, for the YAML language server.

Made from the tables of keys. It checks shapes and simple values. Only the compiler can check rules that need the whole
document (does the named step exist, does the expression compile). Every document that the compiler accepts satisfies
the schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hai_flow.authoring import keys_of_tests
from hai_flow.definition.names import name_forms
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.key_table import COMMON_KEYS
from hai_flow.definition.yaml.keys import Key, Shape, Type
from hai_flow.definition.yaml.language import SHAPES, VERBS
from hai_flow.values import Json

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_HOLE: Final = r"^\s*\$\{\{[\s\S]*\}\}\s*$"
_DURATION: Final = (
    r"^[1-9][0-9]{0,3} working days?$|"
    r"^([0-9]+(ms|s|m|h|d|w))+$|^P(?=.)([0-9.]+W)?([0-9.]+D)?(T(?=[0-9])([0-9.]+H)?([0-9.]+M)?([0-9.]+S)?)?$"
)
_SELECTOR: Final = r"^((user|agent|role|group):[\s\S]+|requester|anyone|editor)$|\$\{\{"
_NAMES: Final[dict[str, str]] = {
    "id": f"^{name_forms.IDENTIFIER}$",
    "variable": f"^{name_forms.VARIABLE}$",
    "workflow": f"^{name_forms.WORKFLOW}$",
    "name": f"^{name_forms.HANDLE}$",
}


def workflow_schema() -> Json:
    definitions: dict[str, Json] = {"step": _step(), "steps": _steps(), **_scalars()}
    definitions |= {name: _mapping(shape) for name, shape in SHAPES.items() if name not in ("document", "step")}
    return {
        "$schema": DIALECT,
        "title": "HAI Flow workflow",
        "description": "A workflow of HAI Flow (`hai: flow/v1`).",
        **_mapping(SHAPES["document"]),
        "$defs": definitions,
    }


def _steps() -> Json:
    return {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}, "description": "Steps, in order."}


def _scalars() -> dict[str, Json]:
    return {
        "duration": {
            "type": "string",
            "anyOf": [{"pattern": _DURATION}, {"pattern": _HOLE}],
            "examples": ["90s", "1h30m", "2d"],
        },
        "selectors": {
            "oneOf": [
                {"type": "string", "pattern": _SELECTOR},
                {"type": "array", "items": {"type": "string", "pattern": _SELECTOR}},
            ],
            "examples": ["requester", ["user:ann", "role:controller"]],
        },
        "schema": {"type": "object", "description": "A JSON Schema (2020-12)."},
    }


_NULLABLE: Final = ("nothing", "reject", "consent")  # of which `fail:` and `reject:` alone are short for `{}`


def _mapping(shape: Shape) -> dict[str, Json]:
    """A mapping of the language. `additionalProperties` is false, so that a misspelt key is underlined."""
    result: dict[str, Json] = {
        "type": ["object", "null"] if shape.name in _NULLABLE else "object",
        "properties": {key.name: _property(key) for key in shape.keys},
        "required": [key.name for key in shape.keys if key.required and not key.instead],
    }
    if not shape.open:
        result["additionalProperties"] = False
    groups = [{"oneOf": [{"required": [key]} for key in group]} for group in shape.exactly_one]
    groups += [{"anyOf": [{"required": [key.name]}, {"required": [key.instead]}]} for key in shape.keys if key.instead]
    groups += [{"not": {"required": list(pair)}} for group in shape.at_most_one for pair in _pairs(group)]
    groups += [
        {"if": {"required": [key.name]}, "then": {"anyOf": [{"required": [other]} for other in key.beside]}}
        for key in shape.keys
        if key.beside
    ]
    needed = {key.needed_by: [key.name] for key in shape.keys if key.needed_by}
    if needed:
        result["dependentRequired"] = needed
    return result | ({"allOf": groups} if groups else {})


def _pairs(names: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    return ((one, other) for number, one in enumerate(names) for other in names[number + 1 :])


def _property(key: Key) -> Json:
    schema = _describe(_value(key.type), key.does, key.example)
    if key.default and "`" not in key.default and key.type.kind in ("enum", "integer", "boolean", "any", "duration"):
        schema["default"] = _read(key.default)
    return schema


def _describe(schema: Json, does: str, example: str) -> dict[str, Json]:
    """The schema with its description: plain, and as Markdown for editors that show it. An example that is no scalar is
    a snippet: editors would write it as `[object Object]`."""
    text = does[:1].upper() + does[1:] + "."
    described = {"description": text.replace("`", ""), "markdownDescription": text, **schema}
    if example and isinstance(value := _read(example), dict | list):
        described["defaultSnippets"] = [{"label": example if len(example) <= 60 else "example", "body": value}]
    elif example:
        described["examples"] = [value]
    return described


def _read(text: str) -> Json:
    return parse(text.encode()).value


def _step() -> Json:
    """A step: all keys are offered, exactly one verb is needed, and each verb says which keys go with it."""
    properties = {
        verb.name: _describe(_value(verb.type), f"{verb.does}. Output: {verb.output or 'none'}", verb.example)
        for verb in VERBS.values()
    }
    properties |= {key.name: _property(key) for key in SHAPES["step"].keys}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": [{"required": [verb]} for verb in VERBS],
        "allOf": [
            {
                "if": {"required": [verb.name]},
                "then": {"propertyNames": {"enum": [*COMMON_KEYS, verb.name, *verb.keys]}},
            }
            for verb in VERBS.values()
        ],
    }


def _value(type_: Type) -> dict[str, Json]:
    match type_.kind:
        case "text" | "literal":
            return {"type": "string", **_bounds(type_, "minLength", "maxLength")}
        case "hole":
            return {"type": "string", "pattern": _HOLE}
        case "cel":
            return {"type": ["string", "boolean"]}
        case "duration" | "selectors" | "schema" | "steps":
            return {"$ref": f"#/$defs/{type_.kind}"}
        case "shape":
            return {"$ref": f"#/$defs/{type_.shape}"}
        case "id" | "workflow" | "name":
            return {"type": "string", "pattern": _NAMES[type_.kind]}
        case "boolean":
            return {"type": "boolean"}
        case "integer" | "number":
            return {"type": type_.kind, **_bounds(type_, "exclusiveMinimum" if type_.above else "minimum", "maximum")}
        case "enum":
            return {"enum": list(type_.values)}
        case "list":
            return {"type": "array", "items": _value(type_.parts[0]), **_bounds(type_, "minItems", "maxItems")}
        case "map":
            return _map(type_)
        case "either":
            return {"anyOf": [_value(part) for part in type_.parts]}
        case _:
            return {}


def _map(type_: Type) -> dict[str, Json]:
    result = {
        "type": "object",
        "additionalProperties": _value(type_.parts[0]),
        **_bounds(type_, "minProperties", "maxProperties"),
    }
    if type_.keys in _NAMES:
        result["propertyNames"] = {"pattern": _NAMES[type_.keys]}
    return result


def _bounds(type_: Type, least: str, most: str) -> dict[str, Json]:
    bounds = {least: type_.minimum, most: type_.maximum}
    return {word: int(bound) for word, bound in bounds.items() if bound is not None}


def tests_schema() -> Json:
    return {
        "$schema": DIALECT,
        "title": "HAI Flow tests",
        "description": "Tests of a workflow (`hai: test/v1`): the real engine, scripted people, a virtual clock.",
        **_mapping(keys_of_tests.DOCUMENT),
        "$defs": {shape.name: _mapping(shape) for shape in keys_of_tests.SHAPES if shape is not keys_of_tests.DOCUMENT},
    }
